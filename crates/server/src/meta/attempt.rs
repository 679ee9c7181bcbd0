//! Why one attempt of an operation on names failed, and how that is encoded.
use crate::{Error, Member, Result};
use forebay_proto::intents::IntentId;
use forebay_proto::meta::HoldReply;

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

/// What the asker acts on travels as a reply.
pub(crate) fn hold_reply(held: Result<(), AttemptError>) -> Result<HoldReply> {
    match held {
        Ok(()) => Ok(HoldReply::Held),
        Err(AttemptError::Changed) => Ok(HoldReply::Changed),
        Err(AttemptError::Busy { by, .. }) => Ok(HoldReply::Busy(by)),
        Err(AttemptError::Fail(e)) => Err(e),
    }
}

/// The other direction of `hold_reply`, at the asker of member `at`.
pub(crate) fn held(at: Member, reply: HoldReply) -> Result<(), AttemptError> {
    match reply {
        HoldReply::Held => Ok(()),
        HoldReply::Changed => Err(AttemptError::Changed),
        HoldReply::Busy(by) => Err(AttemptError::Busy { at, by }),
    }
}
