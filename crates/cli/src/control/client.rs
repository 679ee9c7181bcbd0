//! The asking side of the control socket.
use super::{Answer, Ask, Hello, VERSION, address};
use crate::fail::{Context, Failure, Result};
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// A connection to a running service.
pub struct Client {
    stream: BufReader<UnixStream>,
    store: String,
    /// Process id of the server.
    pub pid: u32,
}

/// Why there is no connection.
#[derive(Debug)]
pub enum NoServer {
    /// No server runs on this store.
    NotRunning,
    /// There is one, but it cannot be asked.
    Failed(Failure),
}

impl Client {
    /// Connects to the server of `store`.
    ///
    /// # Errors
    /// [`NoServer::NotRunning`] if none runs; [`NoServer::Failed`] if it refuses or does not answer.
    pub fn connect(store: &Path) -> Result<Client, NoServer> {
        let shown = store.display().to_string();
        let stream = match address(store).and_then(|(_directory, path)| UnixStream::connect(path)) {
            Ok(stream) => stream,
            Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => {
                return Err(NoServer::NotRunning);
            }
            Err(e) => {
                let next = "name a store directory of your own, or ask as the user who started the service";
                return Err(NoServer::Failed(Failure::new(
                    format!("cannot reach the service of {shown}: {e}"),
                    next,
                )));
            }
        };
        let mut client = Client {
            stream: BufReader::new(stream),
            store: shown,
            pid: 0,
        };
        client.greet().map_err(NoServer::Failed)?;
        Ok(client)
    }

    fn greet(&mut self) -> Result {
        self.limit(Duration::from_secs(10))?;
        self.send(&Hello::own(0))?;
        let line = self.line()?;
        let Ok(hello) = serde_json::from_str::<Hello>(&line) else {
            return Err(match serde_json::from_str::<Answer>(&line) {
                Ok(Answer::Refused(why)) => Failure::plain(why),
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

    /// Asks, and waits for the answer at most `limit`.
    ///
    /// # Errors
    /// If the server refuses, is gone, or does not answer in time.
    pub fn ask(&mut self, ask: &Ask, limit: Duration) -> Result<Answer> {
        self.limit(limit)?;
        self.send(ask)?;
        let line = self.line()?;
        match serde_json::from_str(&line) {
            Ok(Answer::Refused(why)) => Err(Failure::plain(why)),
            Ok(answer) => Ok(answer),
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
        match self.stream.read_line(&mut line) {
            Ok(0) => Err(Failure::new(
                format!("the service of {} ended without an answer", self.store),
                next,
            )),
            Ok(_) => Ok(line),
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                Err(Failure::new(
                    format!(
                        "the service of {} (pid {}) does not answer",
                        self.store, self.pid
                    ),
                    next,
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
