//! Attempts of an operation: why one ended, and how that travels between members.
use crate::{Error, Member, Result};
use forebay_proto::meta::{IntentId, MetaReply};

/// Why an attempt of an operation ended.
#[derive(Debug)]
pub(crate) enum AttemptError {
    /// For good.
    Fail(Error),
    /// What it saw is no longer so: look again.
    Changed,
    /// Intent `by` holds something at member `at`: try again when it is over.
    Busy { at: Member, by: IntentId },
}

impl<E: Into<Error>> From<E> for AttemptError {
    fn from(e: E) -> AttemptError {
        AttemptError::Fail(e.into())
    }
}

pub(crate) fn done(_: ()) -> MetaReply {
    MetaReply::Done
}

/// Refusals that the asker acts on travel as replies.
pub(crate) fn stop_reply(result: Result<(), AttemptError>) -> Result<MetaReply> {
    match result {
        Ok(()) => Ok(MetaReply::Done),
        Err(AttemptError::Changed) => Ok(MetaReply::Changed),
        Err(AttemptError::Busy { by, .. }) => Ok(MetaReply::Busy(by)),
        Err(AttemptError::Fail(e)) => Err(e),
    }
}

/// The other direction of `stop_reply`, at the asker.
pub(crate) fn reply_stop(at: Member, reply: MetaReply) -> Result<(), AttemptError> {
    match reply {
        MetaReply::Changed => Err(AttemptError::Changed),
        MetaReply::Busy(by) => Err(AttemptError::Busy { at, by }),
        _ => Ok(()),
    }
}

/// A member answered something else than the question asks for.
pub(crate) fn unexpected(to: Member, reply: &MetaReply) -> Error {
    Error::Refused(format!(
        "member {to} answered {reply:?}; do all members run the same version?"
    ))
}
