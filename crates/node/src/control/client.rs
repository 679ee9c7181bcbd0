//! The client of the control socket: connects to the server of a store, after checking whose it is, and asks.
use super::{ControlReply, ControlRequest, Hello, MAX_LINE_BYTES, SOCKET_NAME, VERSION};
use super::{
    DeadMember, RecordPart, RecordReply, RecordRequest, RecordSpec, StageJob, StageReply,
    StageRequest, StageSpec, Status,
};
use crate::failure::{Context, Failure, Result};
use crate::units::size;
use forebay_client::peer_credentials::PeerCredentials;
use forebay_server::delegate::{RecodeCursor, RecodeStep};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::Uid;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Sends a request, and gives what the one kind of reply to it holds.
macro_rules! ask {
    ($client:expr, $limit:expr, $request:expr, $reply:pat => $held:expr) => {
        $client.call(&$request, $limit, |reply| match reply {
            $reply => Some($held),
            _ => None,
        })
    };
}

/// A connection to a running service.
pub struct ControlClient {
    stream: BufReader<UnixStream>,
    store: String,
    silent: bool,
    /// Process id of the server.
    pub pid: u32,
}

/// Why there is no connection.
#[derive(Debug)]
pub enum ConnectError {
    /// No server runs on this store.
    NotRunning,
    /// There is one, and it does not answer.
    Silent(Failure),
    /// There is one, but it cannot be asked.
    Failed(Failure),
}

impl ConnectError {
    /// As a failure; `not_running` is that of no server.
    pub fn failure(self, not_running: impl FnOnce() -> Failure) -> Failure {
        match self {
            ConnectError::NotRunning => not_running(),
            ConnectError::Silent(failure) | ConnectError::Failed(failure) => failure,
        }
    }
}

/// Whom the way to a service belongs to.
struct SocketOwners {
    directory: Uid,
    socket: Uid,
    /// The process behind it, as the kernel says.
    peer: Uid,
}

impl SocketOwners {
    /// Only a service of the store's owner is asked, and by another user than root only one's own: what anybody else answers
    /// there could be anything.
    fn check(&self, store: &str) -> Result {
        let (owner, own) = (self.directory, rustix::process::geteuid());
        if self.socket != owner || self.peer != owner {
            let by = match self.socket != owner {
                true => self.socket,
                false => self.peer,
            };
            return Err(Failure::new(
                format!(
                    "the control socket of {store} is served by user {}, not by user {} who owns the store",
                    by.as_raw(),
                    owner.as_raw()
                ),
                "it is not asked; look who may write into the directory",
            ));
        }
        if owner != own && !own.is_root() {
            return Err(Failure::new(
                format!("the service of {store} belongs to user {}", owner.as_raw()),
                "ask as that user",
            ));
        }
        Ok(())
    }
}

/// The process that listens on the control socket of `store`, as the kernel says; 0 if that cannot be seen from here.
///
/// # Errors
/// If nobody listens, or not somebody who may be asked.
pub(super) fn listener(store: &Path) -> Result<u32> {
    let shown = store.display().to_string();
    let (stream, owners) = reach(store).or_fail(
        format!("cannot reach the service of {shown}"),
        "look whether it still runs: `pgrep -af forebay`",
    )?;
    owners.check(&shown)?;
    let peer = PeerCredentials::of(&stream).or_fail(
        format!("cannot see who serves {shown}"),
        "mount /proc, or end the process named in its lock file",
    )?;
    Ok(peer.process())
}

/// Connects to the socket of a store, which no link may stand for, and asks whose all of it is.
fn reach(store: &Path) -> std::io::Result<(UnixStream, SocketOwners)> {
    let directory = std::fs::File::open(store)?;
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let socket = rustix::fs::openat(&directory, SOCKET_NAME, flags, Mode::empty())?;
    let found = rustix::fs::fstat(&socket)?;
    if FileType::from_raw_mode(found.st_mode) != FileType::Socket {
        return Err(Errno::NOTSOCK.into());
    }
    // What was looked at is what is connected to, whatever the name leads to by now; and short enough for an address.
    let stream = UnixStream::connect(format!("/proc/self/fd/{}", socket.as_raw_fd()))?;
    let peer = PeerCredentials::of(&stream)?.uid;
    let owners = SocketOwners {
        directory: Uid::from_raw(rustix::fs::fstat(&directory)?.st_uid),
        socket: Uid::from_raw(found.st_uid),
        peer,
    };
    Ok((stream, owners))
}

impl ControlClient {
    /// Connects to the server of `store`.
    ///
    /// # Errors
    /// [`ConnectError::NotRunning`] if none runs; [`ConnectError::Failed`] if it refuses or does not answer.
    pub fn connect(store: &Path) -> Result<ControlClient, ConnectError> {
        let shown = store.display().to_string();
        let stream = match reach(store) {
            Ok((stream, owners)) => {
                owners.check(&shown).map_err(ConnectError::Failed)?;
                stream
            }
            Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => {
                return Err(ConnectError::NotRunning);
            }
            Err(e) => {
                let next = "name a store directory of your own, or ask as the user who started the service";
                return Err(ConnectError::Failed(Failure::new(
                    format!("cannot reach the service of {shown}: {e}"),
                    next,
                )));
            }
        };
        let mut client = ControlClient {
            stream: BufReader::new(stream),
            store: shown,
            silent: false,
            pid: 0,
        };
        match client.greet() {
            Ok(()) => Ok(client),
            Err(failure) if client.silent => Err(ConnectError::Silent(failure)),
            Err(failure) => Err(ConnectError::Failed(failure)),
        }
    }

    /// Whether an answer did not come in time.
    pub fn is_silent(&self) -> bool {
        self.silent
    }

    fn greet(&mut self) -> Result {
        self.limit(Duration::from_secs(10))?;
        // One that refuses before it was asked may be gone already; what it said is still there.
        let sent = self.send(&Hello::own(0));
        let line = self.line().map_err(|e| sent.err().unwrap_or(e))?;
        let Ok(hello) = serde_json::from_str::<Hello>(&line) else {
            return Err(match serde_json::from_str::<ControlReply>(&line) {
                Ok(ControlReply::Refused(why)) => Failure::plain(why),
                _ => Failure::new(
                    format!(
                        "{}: the answer on the control socket is not Forebay's",
                        self.store
                    ),
                    "name another store",
                ),
            });
        };
        if hello.forebay != VERSION {
            return Err(Failure::new(
                format!(
                    "the service of {} is forebay {} and this is {}",
                    self.store,
                    hello.program,
                    env!("CARGO_PKG_VERSION")
                ),
                "use the program that started it",
            ));
        }
        self.pid = hello.pid;
        Ok(())
    }

    /// What the service holds and does.
    ///
    /// # Errors
    /// As of every request: if the server refuses, is gone, or does not answer within `limit`.
    pub fn status(&mut self, limit: Duration) -> Result<Status> {
        ask!(self, limit, ControlRequest::Status, ControlReply::Status(status) => *status)
    }

    /// Has the service commit, unmount and close; also if files are open there, with `force`. Gives the members that had been declared dead.
    ///
    /// # Errors
    /// As [`ControlClient::status`].
    pub fn stop(&mut self, force: bool, limit: Duration) -> Result<Vec<DeadMember>> {
        let request = ControlRequest::Stop { force };
        ask!(self, limit, request, ControlReply::Stopped { dead } => dead)
    }

    /// Starts a stage job; its number.
    ///
    /// # Errors
    /// As [`ControlClient::status`].
    pub fn start_stage_job(&mut self, spec: StageSpec, limit: Duration) -> Result<u64> {
        let request = ControlRequest::Stage(StageRequest::Start(Box::new(spec)));
        ask!(self, limit, request, ControlReply::Stage(StageReply::Job(job)) => job)
    }

    /// One stage job, with its lines from the `from`-th on.
    ///
    /// # Errors
    /// As [`ControlClient::status`].
    pub fn stage_job(&mut self, job: u64, from: usize, limit: Duration) -> Result<StageJob> {
        let request = ControlRequest::Stage(StageRequest::Look { job, from });
        ask!(self, limit, request, ControlReply::Stage(StageReply::Seen(job)) => *job)
    }

    /// All stage jobs; the unfinished ones of earlier runs are forgotten first, if `forget` says so.
    ///
    /// # Errors
    /// As [`ControlClient::status`].
    pub fn stage_jobs(&mut self, forget: bool, limit: Duration) -> Result<Vec<StageJob>> {
        let request = ControlRequest::Stage(match forget {
            true => StageRequest::Forget,
            false => StageRequest::List,
        });
        ask!(self, limit, request, ControlReply::Stage(StageReply::Jobs(jobs)) => jobs)
    }

    /// Ends a stage job soon.
    ///
    /// # Errors
    /// As [`ControlClient::status`].
    pub fn cancel_stage_job(&mut self, job: u64, limit: Duration) -> Result {
        let request = ControlRequest::Stage(StageRequest::Cancel { job });
        ask!(self, limit, request, ControlReply::Stage(StageReply::Job(_)) => ())
    }

    /// Has the service record all requests of its mounts; the files that it records into.
    ///
    /// # Errors
    /// As [`ControlClient::status`].
    pub fn start_recording(
        &mut self,
        spec: &RecordSpec,
        limit: Duration,
    ) -> Result<Vec<RecordPart>> {
        let request = ControlRequest::Record(RecordRequest::Start(spec.clone()));
        ask!(self, limit, request, ControlReply::Record(RecordReply::Started(parts)) => parts)
    }

    /// Ends a recording; what is wrong with its parts, as sentences for people.
    ///
    /// # Errors
    /// As [`ControlClient::status`].
    pub fn stop_recording(&mut self, id: u64, limit: Duration) -> Result<Vec<String>> {
        let request = ControlRequest::Record(RecordRequest::Stop { id });
        ask!(self, limit, request, ControlReply::Record(RecordReply::Stopped(problems)) => problems)
    }

    /// Has the service do a step of encoding a file again; what it did, and where the next begins.
    ///
    /// # Errors
    /// As [`ControlClient::status`].
    pub fn recode(&mut self, fid: u64, place: RecodeCursor, limit: Duration) -> Result<RecodeStep> {
        let request = ControlRequest::Recode { fid, place };
        ask!(self, limit, request, ControlReply::Recoded(step) => step)
    }

    /// Sends a request; `read` gives what its one kind of reply holds.
    fn call<T>(
        &mut self,
        request: &ControlRequest,
        limit: Duration,
        read: impl FnOnce(ControlReply) -> Option<T>,
    ) -> Result<T> {
        self.limit(limit)?;
        self.send(request)?;
        let line = self.line()?;
        match serde_json::from_str(&line) {
            Ok(ControlReply::Refused(why)) => Err(Failure::plain(why)),
            Ok(reply) => read(reply).ok_or_else(|| {
                Failure::new(
                    "the service gave an unknown answer",
                    "use the same version of forebay",
                )
            }),
            Err(e) => Err(Failure::new(
                format!("{}: cannot read the service's answer: {e}", self.store),
                "use the same version of forebay",
            )),
        }
    }

    fn limit(&self, limit: Duration) -> Result {
        let stream = self.stream.get_ref();
        stream
            .set_read_timeout(Some(limit))
            .and_then(|()| stream.set_write_timeout(Some(limit)))
            .or_fail("cannot limit the wait for the service", "try again")
    }

    fn send(&mut self, message: &impl serde::Serialize) -> Result {
        let mut line =
            serde_json::to_vec(message).or_fail("cannot write the request", "report this")?;
        line.push(b'\n');
        self.stream.get_mut().write_all(&line).or_fail(
            format!("the service of {} closed the connection", self.store),
            "see its log",
        )
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        let next = format!("see {}/log", self.store);
        match (&mut self.stream).take(MAX_LINE_BYTES).read_line(&mut line) {
            Ok(0) => Err(Failure::new(
                format!("the service of {} ended without an answer", self.store),
                next,
            )),
            Ok(n) if n as u64 == MAX_LINE_BYTES => Err(Failure::new(
                format!(
                    "the service of {} answers more than {}",
                    self.store,
                    size(MAX_LINE_BYTES)
                ),
                next,
            )),
            Ok(_) => Ok(line),
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                self.silent = true;
                Err(Failure::new(
                    match self.pid {
                        0 => format!("the service of {} does not answer", self.store),
                        pid => format!("the service of {} (pid {pid}) does not answer", self.store),
                    },
                    format!(
                        "{next}; its process id is in {store}/lock: `kill -CONT` wakes one that is stopped; `forebay umount --force {store}` ends it",
                        store = self.store
                    ),
                ))
            }
            Err(e) => Err(Failure::new(
                format!(
                    "the connection to the service of {} failed: {e}",
                    self.store
                ),
                next,
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_that_does_not_answer_is_named_with_its_process_once_that_is_known() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let mut client = ControlClient {
            stream: BufReader::new(ours),
            store: "/s".into(),
            silent: false,
            pid: 0,
        };
        client.limit(Duration::from_millis(1)).unwrap();
        let text = client.line().unwrap_err().text;
        assert!(
            text.starts_with("the service of /s does not answer;"),
            "{text}"
        );
        client.pid = 7;
        let text = client.line().unwrap_err().text;
        assert!(text.contains("/s (pid 7) does not answer"), "{text}");
    }
}
