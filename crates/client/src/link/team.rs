//! A client's place in a team, over the link.
//!
//! A forked child has none: it has to join for itself.
use super::LinkClient;
use super::connection::BulkTransfer;
use super::error::{CallError, LinkError};
use super::file::LinkFile;
use super::process_local::ProcessLocal;
use super::request::{OpenPath, OpenReply, Request, TeamRequest};
use super::session::{LinkSession, SessionError};
use crate::{OpenOptions, TeamSpec};
use forebay_server::Attr;
use serde::de::DeserializeOwned;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

/// A number that no open file of a session has.
const NO_FILE: u64 = 0;

/// See the head of this file.
pub(crate) struct LinkTeam {
    client: LinkClient,
    joined: ProcessLocal<Option<JoinedTeam>>,
}

struct JoinedTeam {
    session: Arc<LinkSession>,
    team: u64,
}

impl LinkClient {
    pub fn team(&self, plan: &TeamSpec) -> Result<LinkTeam, CallError> {
        let (team, session) = self.call(&Request::Join(self.caller, plan.clone()))?;
        Ok(LinkTeam {
            client: self.clone(),
            joined: ProcessLocal::new(Some(JoinedTeam { session, team })),
        })
    }
}

impl LinkTeam {
    fn call<T: DeserializeOwned>(&self, request: TeamRequest<'_>) -> Result<T, CallError> {
        match self.joined.get(|_| None) {
            Some(joined) => joined.call(request),
            None => Err(LinkError::Stale.into()),
        }
    }

    pub fn stat(&mut self, path: &Path) -> Result<Attr, CallError> {
        let path = path.as_os_str().as_bytes();
        self.call(TeamRequest::Stat { path })
    }

    pub fn open(&mut self, path: &Path, options: &OpenOptions) -> Result<LinkFile, CallError> {
        let opened: OpenReply = self.call(TeamRequest::Open(OpenPath {
            path: path.as_os_str().as_bytes(),
            options: options.bits(),
            mode: options.mode,
        }))?;
        let Some(joined) = self.joined.own().and_then(Option::as_ref) else {
            return Err(LinkError::Stale.into());
        };
        let (client, session) = (self.client.clone(), joined.session.clone());
        Ok(LinkFile::new(client, session, opened, options))
    }

    pub fn close(&mut self, file: &LinkFile) -> Result<Attr, CallError> {
        let joined = self.joined.own().and_then(Option::as_ref);
        let taken = joined.and_then(|joined| file.take_from(&joined.session));
        let session = joined.map(|joined| joined.session.clone());
        let closed = self.call(TeamRequest::Close {
            // The others are not to wait.
            file: taken.unwrap_or(NO_FILE),
        });
        if let (Err(_), Some(session), Some(file)) = (&closed, session, taken) {
            session.defer_close(file);
        }
        closed
    }

    /// Takes part in the next call with a file that is none: `EBADF`.
    pub fn skip(&mut self) -> Result<Attr, CallError> {
        self.call(TeamRequest::Close { file: NO_FILE })
    }
}

impl JoinedTeam {
    fn call<T: DeserializeOwned>(&self, request: TeamRequest<'_>) -> Result<T, CallError> {
        let request = Request::Team(self.team, request);
        match self.session.call(&request, BulkTransfer::None) {
            Ok((reply, _)) => Ok(reply),
            Err(SessionError::NotMade) => Err(LinkError::Stale.into()),
            Err(SessionError::Failed(error)) => Err(error),
        }
    }
}

impl Drop for JoinedTeam {
    fn drop(&mut self) {
        // A place that the server does not give back now goes with the session.
        let _: Result<(), _> = self.call(TeamRequest::Leave);
    }
}
