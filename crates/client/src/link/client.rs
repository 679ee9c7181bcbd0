//! A client's link to its server: opens a session, and a new one when that has ended.
use super::LinkFile;
use super::address::find_socket;
use super::connection::BulkTransfer;
use super::error::{CallError, LinkError};
use super::process_local::ProcessLocal;
use super::request::{OpenPath, OpenReply, PathCall, Request};
use super::session::{LinkSession, SessionError};
use crate::OpenOptions;
use forebay_server::{Caller, Member};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// See the head of this file.
#[derive(Clone)]
pub(crate) struct LinkClient {
    link: Arc<Link>,
    pub caller: Caller,
    /// Of the service; it is the same for ever.
    pub members: Member,
}

struct Link {
    /// A socket, or the directory where it is looked for.
    place: PathBuf,
    session: ProcessLocal<CurrentSession>,
}

#[derive(Default)]
struct CurrentSession(Mutex<Option<Arc<LinkSession>>>);

impl LinkClient {
    /// Connects to the server whose socket is at `place`, or in that directory.
    pub fn connect(place: &Path, caller: Caller) -> Result<LinkClient, LinkError> {
        // As a process may change its directory.
        let place = std::path::absolute(place).map_err(LinkError::Local)?;
        let link = Link {
            place,
            session: ProcessLocal::new(CurrentSession::default()),
        };
        let mut client = LinkClient {
            link: Arc::new(link),
            caller,
            members: 0,
        };
        client.members = client.session()?.served.members;
        Ok(client)
    }

    /// The session of this process, which is begun if there is none, or if it has ended.
    fn session(&self) -> Result<Arc<LinkSession>, LinkError> {
        let inherit = |parent: &CurrentSession| {
            if let Some(session) = parent.0.try_lock().as_deref().and_then(Option::as_ref) {
                session.forget_in_child();
            }
            CurrentSession::default()
        };
        let mut current = self.link.session.get(inherit).0.lock();
        if let Some(session) = current.as_ref().filter(|session| !session.is_ended()) {
            return Ok(session.clone());
        }
        *current = None;
        let begun = Arc::new(LinkSession::begin(find_socket(&self.link.place)?)?);
        *current = Some(begun.clone());
        Ok(begun)
    }

    /// Makes a call that needs nothing of this process at the server. If that has ended before it got it, the next one gets it.
    pub(super) fn call<T: DeserializeOwned>(
        &self,
        request: &Request<'_>,
    ) -> Result<(T, Arc<LinkSession>), CallError> {
        for _ in 0..2 {
            let session = self.session()?;
            match session.call(request, BulkTransfer::None) {
                Ok((reply, _)) => return Ok((reply, session)),
                Err(SessionError::NotMade) => {}
                Err(SessionError::Failed(error)) => return Err(error),
            }
        }
        let socket = self.link.place.clone();
        Err(LinkError::Ended { socket }.into())
    }

    /// Makes a call on a path.
    pub fn path<'a, C: PathCall<'a>>(&self, call: C) -> Result<C::Reply, CallError> {
        let request = Request::Path(self.caller, call.into());
        Ok(self.call(&request)?.0)
    }

    /// Opens a file.
    pub fn open(&self, path: &Path, options: &OpenOptions) -> Result<LinkFile, CallError> {
        let request = OpenPath {
            path: path.as_os_str().as_bytes(),
            options: options.bits(),
            mode: options.mode,
        };
        let request = Request::Open(self.caller, request);
        let (opened, session): (OpenReply, _) = self.call(&request)?;
        Ok(LinkFile::new(self.clone(), session, opened, options))
    }
}
