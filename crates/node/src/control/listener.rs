//! The server's end of the control socket.
//!
//! Invariant: one descriptor is held back for a connection, so that a service without descriptors can still be stopped.
use super::{ControlReply, ControlRequest, Hello, MAX_LINE_BYTES, SOCKET_NAME, VERSION, address};
use crate::acceptor::Acceptor;
use crate::descriptors;
use crate::failure::{Context, Result};
use forebay_client::peer_credentials::PeerCredentials;
use parking_lot::{Condvar, Mutex};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Answers requests.
pub trait ControlHandler: Send + Sync + 'static {
    /// The reply to one request; may take as long as stopping takes.
    fn answer(&self, request: ControlRequest, asker: u32) -> ControlReply;
}

/// Longest first line, from whomever.
const MAX_HELLO_BYTES: u64 = 4096;

/// The socket; it disappears with this value.
pub struct Listener {
    path: PathBuf,
    pending: Arc<UnansweredRequests>,
}

/// How many requests have been read but not answered.
#[derive(Default)]
struct UnansweredRequests {
    count: Mutex<usize>,
    fewer: Condvar,
}

impl UnansweredRequests {
    fn add(&self) {
        *self.count.lock() += 1;
    }

    fn done(&self) {
        *self.count.lock() -= 1;
        self.fewer.notify_all();
    }
}

impl Listener {
    /// Opens the socket of `store`. The caller holds the store's lock, so that a socket left there is a dead one.
    ///
    /// # Errors
    /// If the socket cannot be made.
    pub fn open(store: &Path, handler: Arc<dyn ControlHandler>) -> Result<Listener> {
        let path = store.join(SOCKET_NAME);
        let next = "check the permissions of the store's directory";
        match std::fs::remove_file(&path) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(e),
            _ => Ok(()),
        }
        .or_fail(
            format!("cannot remove the old control socket {}", path.display()),
            next,
        )?;
        let listener = address(store)
            .and_then(|(_directory, short)| {
                let listener = UnixListener::bind(&short)?;
                std::fs::set_permissions(&short, std::fs::Permissions::from_mode(0o600))?;
                Ok(listener)
            })
            .or_fail(
                format!("cannot open the control socket {}", path.display()),
                next,
            )?;
        let pending = Arc::new(UnansweredRequests::default());
        let counted = pending.clone();
        let acceptor = Acceptor {
            what: "control socket",
            most: descriptors::connections(),
            reserve: true,
        };
        let most = acceptor.most;
        acceptor.start(
            move || Some(listener.accept().map(|(stream, _)| stream)),
            move |stream| refuse(stream, most),
            move |stream| {
                if let Err(e) = serve(stream, handler.as_ref(), &counted) {
                    tracing::debug!("control connection: {e}");
                }
            },
        )?;
        Ok(Listener { path, pending })
    }

    /// Removes the socket once every request read so far is answered, or after `limit`.
    pub fn close(self, limit: Duration) {
        let mut count = self.pending.count.lock();
        // Whether they were answered or the limit passed, the process ends next.
        let fewer = &self.pending.fewer;
        fewer.wait_while_for(&mut count, |count| *count > 0, limit);
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // A socket left behind is removed by the next server.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Removes the socket that a killed server of `store` has left. The caller holds the store's lock.
pub fn remove_left(store: &Path) {
    // The next server removes it too, so it does not matter if this fails.
    let _ = std::fs::remove_file(store.join(SOCKET_NAME));
}

/// Tells one connection too many that it is.
fn refuse(stream: &mut UnixStream, most: usize) {
    let why = format!(
        "{most} programs are connected to this service already; end one, as a recording, or try again"
    );
    // So little fits the buffer; who is gone need not hear it.
    let _ = send(stream, &ControlReply::Refused(why));
}

fn serve(
    stream: UnixStream,
    handler: &dyn ControlHandler,
    pending: &UnansweredRequests,
) -> std::io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    stream.set_write_timeout(Some(Duration::from_secs(30)))?;
    let credentials = PeerCredentials::of(&stream)?;
    let (peer, asker) = (credentials.uid, credentials.process());
    let own = rustix::process::geteuid();
    let mut stream = BufReader::new(stream);
    // The hello is read before anyone is refused: closing on a client that still writes would cost it the answer.
    let Some(line) = read_line(&mut stream, MAX_HELLO_BYTES)? else {
        return Ok(());
    };
    let refusal = if peer != own && !peer.is_root() {
        tracing::warn!("refused user {} on the control socket", peer.as_raw());
        Some(format!(
            "the service belongs to user {}; ask as that user",
            own.as_raw()
        ))
    } else {
        match serde_json::from_str::<Hello>(&line) {
            Ok(hello) if hello.forebay == VERSION => None,
            Ok(hello) => Some(format!(
                "this service is forebay {} (protocol {VERSION}) and the client is {} (protocol {}); use the same program",
                env!("CARGO_PKG_VERSION"),
                hello.program,
                hello.forebay
            )),
            Err(_) => Some("say hello first: this is forebay's control socket".into()),
        }
    };
    if let Some(why) = refusal {
        return send(stream.get_mut(), &ControlReply::Refused(why));
    }
    send(stream.get_mut(), &Hello::own(std::process::id()))?;
    while let Some(line) = read_line(&mut stream, MAX_LINE_BYTES)? {
        pending.add();
        let answer = match serde_json::from_str::<ControlRequest>(&line) {
            Ok(ask) => handler.answer(ask, asker),
            Err(e) => ControlReply::Refused(format!(
                "unknown request ({e}); use the same version of forebay"
            )),
        };
        let sent = send(stream.get_mut(), &answer);
        pending.done();
        sent?;
    }
    Ok(())
}

fn read_line(stream: &mut BufReader<UnixStream>, most: u64) -> std::io::Result<Option<String>> {
    let mut line = String::new();
    let n = stream.take(most).read_line(&mut line)?;
    if n > 0 && !line.ends_with('\n') {
        return Err(std::io::Error::other("a line without an end"));
    }
    Ok((n > 0).then_some(line))
}

fn send(stream: &mut UnixStream, message: &impl serde::Serialize) -> std::io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    stream.write_all(&line)
}

#[cfg(test)]
mod tests {
    use super::super::{ConnectError, ControlClient};
    use super::*;

    struct Echo;
    impl ControlHandler for Echo {
        fn answer(&self, request: ControlRequest, _asker: u32) -> ControlReply {
            match request {
                ControlRequest::Stop { force: true } => ControlReply::Stopped { dead: Vec::new() },
                _ => ControlReply::Refused("no; try force".into()),
            }
        }
    }

    #[test]
    fn questions_are_answered_also_below_a_long_path() {
        let dir = tempfile::tempdir().unwrap();
        let store = dir.path().join("x".repeat(150));
        std::fs::create_dir(&store).unwrap();
        assert!(matches!(
            ControlClient::connect(&store),
            Err(ConnectError::NotRunning)
        ));
        let listener = Listener::open(&store, Arc::new(Echo)).unwrap();
        let mode = std::fs::metadata(store.join(SOCKET_NAME))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
        let mut client = ControlClient::connect(&store).unwrap();
        assert_eq!(client.pid, std::process::id());
        let limit = Duration::from_secs(10);
        assert_eq!(client.status(limit).unwrap_err().text, "no; try force");
        assert!(matches!(
            client.stop(true, limit),
            Ok(dead) if dead.is_empty()
        ));
        drop(listener);
        assert!(!store.join(SOCKET_NAME).exists());
    }

    #[test]
    fn one_connection_too_many_is_told_so_and_a_place_that_is_free_again_is_taken() {
        let dir = tempfile::tempdir().unwrap();
        let _listener = Listener::open(dir.path(), Arc::new(Echo)).unwrap();
        let mut clients: Vec<ControlClient> = (0..descriptors::connections())
            .map(|_| ControlClient::connect(dir.path()).unwrap())
            .collect();
        match ControlClient::connect(dir.path()) {
            Err(ConnectError::Failed(failure)) => {
                assert!(failure.text.contains("connected"), "{failure}");
            }
            other => panic!("{:?}", other.map(|c| c.pid)),
        }
        let limit = Duration::from_secs(10);
        assert!(matches!(
            clients[0].stop(true, limit),
            Ok(dead) if dead.is_empty()
        ));
        clients.pop();
        // The server sees the end of the connection a moment later.
        let end = std::time::Instant::now() + limit;
        while let Err(e) = ControlClient::connect(dir.path()) {
            assert!(std::time::Instant::now() < end, "{e:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn another_version_and_a_stranger_to_the_protocol_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let _listener = Listener::open(dir.path(), Arc::new(Echo)).unwrap();
        for (line, word) in [
            ("{\"forebay\":2,\"program\":\"9\"}\n", "protocol 2"),
            ("GET / HTTP/1.1\n", "hello"),
        ] {
            let mut stream = UnixStream::connect(dir.path().join(SOCKET_NAME)).unwrap();
            stream
                .set_read_timeout(Some(Duration::from_secs(10)))
                .unwrap();
            stream.write_all(line.as_bytes()).unwrap();
            let mut answer = String::new();
            BufReader::new(stream).read_line(&mut answer).unwrap();
            assert!(
                answer.contains("Refused") && answer.contains(word),
                "{answer}"
            );
        }
    }
}
