//! The socket that metrics are served on.
//!
//! Invariants: a fixed number of connections at once, each for a limited time; more are turned away at once. A socket file is
//! replaced only if no process answers on it, and is removed with the server.
use super::address::{Address, ServerAddress};
use super::http::{self, HttpResponse, HttpStream};
use super::scrape;
use crate::acceptor::Acceptor;
use crate::control::Status;
use crate::failure::{Context, Failure, Result};
use std::io::ErrorKind;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The content type of the metrics.
const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Tells the figures of the members of this process as they are now; an error is a sentence for people. Takes a moment only.
pub type StatusSource = Box<dyn Fn() -> Result<Status, String> + Send + Sync>;

/// Waits for the next connection.
type Accept = Box<dyn Fn() -> std::io::Result<Box<dyn HttpStream>> + Send>;

/// A socket that nobody answers on yet.
pub struct MetricsEndpoint {
    accept: Accept,
    address: ServerAddress,
}

impl MetricsEndpoint {
    /// Opens the address of the server of this rank.
    ///
    /// # Errors
    /// A failure that names the address: in use, not allowed, no such directory.
    pub fn open(address: &Address, rank: u32) -> Result<MetricsEndpoint> {
        let address = address
            .of(rank)
            .map_err(|why| Failure::plain(format!("metrics: {why}")))?;
        Ok(match address {
            ServerAddress::Tcp(at) => {
                let listener = TcpListener::bind(at).or_fail(
                    format!("cannot serve metrics on {at}"),
                    "choose another port with --metrics; +{rank} behind it gives each server of a machine its own, and port 0 is any free one",
                )?;
                MetricsEndpoint {
                    address: ServerAddress::Tcp(listener.local_addr().unwrap_or(at)),
                    accept: Box::new(move || Ok(Box::new(listener.accept()?.0))),
                }
            }
            ServerAddress::Unix(path) => {
                let listener = unix(&path)?;
                MetricsEndpoint {
                    address: ServerAddress::Unix(path),
                    accept: Box::new(move || Ok(Box::new(listener.accept()?.0))),
                }
            }
        })
    }

    /// Where, for people and programs: `http://127.0.0.1:9470/metrics` or `unix:/MAX_SOCKET_PATH`.
    pub fn url(&self) -> String {
        match &self.address {
            ServerAddress::Tcp(at) => format!("http://{at}/metrics"),
            ServerAddress::Unix(path) => format!("unix:{}", path.display()),
        }
    }

    /// Answers from now on, until the value is dropped.
    ///
    /// # Errors
    /// If there is no thread.
    pub fn serve(self, source: StatusSource) -> Result<MetricsServer> {
        let stop = Arc::new(AtomicBool::new(false));
        accept(stop.clone(), source, self.accept)?;
        let address = self.address;
        Ok(MetricsServer { stop, address })
    }
}

/// Opens a socket file, in the place of one that nobody answers on.
fn unix(path: &Path) -> Result<UnixListener> {
    let shown = path.display();
    let what = || format!("cannot serve metrics on {shown}");
    match std::fs::symlink_metadata(path) {
        Ok(there) if !there.file_type().is_socket() => {
            return Err(Failure::new(
                format!("cannot serve metrics on {shown}: something else has that name"),
                "choose another path with --metrics",
            ));
        }
        Ok(_) => match UnixStream::connect(path) {
            Err(e) if e.kind() == ErrorKind::ConnectionRefused => {
                std::fs::remove_file(path).or_fail(what(), "remove it")?;
            }
            _ => {
                return Err(Failure::new(
                    format!("cannot serve metrics on {shown}: another program does"),
                    "choose another path with --metrics; {rank} in it becomes the number of the server",
                ));
            }
        },
        Err(_) => {}
    }
    let next = "make its directory, or choose another path with --metrics";
    let listener = UnixListener::bind(path).or_fail(what(), next)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).or_fail(what(), next)?;
    Ok(listener)
}

/// Metrics being served.
pub struct MetricsServer {
    stop: Arc<AtomicBool>,
    address: ServerAddress,
}

impl Drop for MetricsServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        // Wakes the thread. Should that fail, it sleeps until the process ends.
        match &self.address {
            ServerAddress::Tcp(at) => drop(TcpStream::connect_timeout(at, Duration::from_secs(1))),
            ServerAddress::Unix(path) => {
                drop(UnixStream::connect(path));
                // One left behind is replaced by the next server.
                let _ = std::fs::remove_file(path);
            }
        }
    }
}

fn accept(stop: Arc<AtomicBool>, source: StatusSource, next: Accept) -> Result {
    let acceptor = Acceptor {
        what: "metrics",
        most: crate::descriptors::metrics_connections(),
        reserve: false,
    };
    acceptor.start(
        move || {
            let accepted = next();
            // Looked at after the wait: the last connection is only there to end it.
            (!stop.load(Ordering::SeqCst)).then_some(accepted)
        },
        |connection| refuse(&mut **connection),
        move |mut connection| {
            let respond = |method: &str, path: &str| respond(&source, method, path);
            if let Err(e) = http::serve(&mut *connection, http::REQUEST_LIMIT, respond) {
                tracing::debug!("a connection for metrics: {e}");
            }
        },
    )
}

/// Says that there are too many, as far as that needs no waiting.
fn refuse(connection: &mut dyn HttpStream) {
    let text = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    // So little fits the buffer of any socket; who is gone need not hear it.
    let _ = connection
        .within(Duration::from_millis(10))
        .and_then(|()| connection.write_all(text.as_bytes()));
}

/// The response to one request.
fn respond(source: &StatusSource, method: &str, path: &str) -> HttpResponse {
    match (method, path) {
        ("GET" | "HEAD", "/metrics") => match source() {
            Ok(status) => HttpResponse {
                status: "200 OK",
                kind: CONTENT_TYPE,
                body: scrape::text(&status),
            },
            Err(why) => HttpResponse::plain("503 Service Unavailable", &why),
        },
        ("GET" | "HEAD", _) => HttpResponse::plain("404 Not Found", "the metrics are at /metrics"),
        _ => HttpResponse::plain("405 Method Not Allowed", "metrics are read with GET"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::SocketAddr;

    fn get(mut stream: impl Read + Write, path: &str) -> String {
        // A connection that is turned away may be gone already.
        let _ = write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\n\r\n");
        let mut got = String::new();
        let _ = stream.read_to_string(&mut got);
        got
    }

    fn port(serving: &MetricsServer) -> SocketAddr {
        match &serving.address {
            ServerAddress::Tcp(at) => *at,
            ServerAddress::Unix(_) => unreachable!("it was opened on a port"),
        }
    }

    fn says_no() -> StatusSource {
        Box::new(|| Err("the service stops".into()))
    }

    fn on_any_port() -> MetricsServer {
        let address = Address::parse("127.0.0.1:0").unwrap().unwrap();
        let endpoint = MetricsEndpoint::open(&address, 0).unwrap();
        assert!(endpoint.url().starts_with("http://127.0.0.1:"));
        endpoint.serve(says_no()).unwrap()
    }

    #[test]
    fn paths_that_are_none_and_a_service_that_stops_say_so() {
        let serving = on_any_port();
        let ask = |path| get(TcpStream::connect(port(&serving)).unwrap(), path);
        assert!(ask("/").starts_with("HTTP/1.1 404 "));
        let got = ask("/metrics");
        assert!(
            got.starts_with("HTTP/1.1 503 ") && got.contains("stops"),
            "{got}"
        );
    }

    #[test]
    fn those_who_say_nothing_hold_some_places_and_for_a_while_only() {
        let serving = on_any_port();
        let idle: Vec<_> = (0..crate::descriptors::metrics_connections())
            .map(|_| TcpStream::connect(port(&serving)).unwrap())
            .collect();
        // They are accepted in their order, so this one comes after all of them.
        let got = get(TcpStream::connect(port(&serving)).unwrap(), "/");
        assert!(got.is_empty() || got.contains(" 503 "), "{got}");
        drop(idle);
        let until = std::time::Instant::now() + Duration::from_secs(60);
        while !get(TcpStream::connect(port(&serving)).unwrap(), "/").contains(" 404 ") {
            assert!(std::time::Instant::now() < until);
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn a_socket_file_is_replaced_only_if_nobody_answers_and_goes_with_the_server() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("m");
        let address = Address::parse(&format!("unix:{}", path.display()));
        let address = address.unwrap().unwrap();
        // A dead one.
        drop(UnixListener::bind(&path).unwrap());
        let serving = MetricsEndpoint::open(&address, 0).unwrap();
        assert_eq!(serving.url(), format!("unix:{}", path.display()));
        let serving = serving.serve(says_no()).unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let open = || match MetricsEndpoint::open(&address, 0) {
            Ok(_) => String::from("opened"),
            Err(failure) => failure.text,
        };
        assert!(open().contains("another program"), "{}", open());
        let got = get(UnixStream::connect(&path).unwrap(), "/");
        assert!(got.contains(" 404 "), "{got}");
        drop(serving);
        assert!(!path.exists());
        std::fs::write(&path, "mine").unwrap();
        assert!(open().contains("something else"), "{}", open());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "mine");
    }

    #[test]
    fn a_port_in_use_is_named() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = taken.local_addr().unwrap().to_string();
        let address = Address::parse(&at).unwrap().unwrap();
        let failure = MetricsEndpoint::open(&address, 0).map(|_| ()).unwrap_err();
        assert!(
            failure.text.contains(&at) && failure.text.contains("port 0"),
            "{failure}"
        );
    }
}
