//! One HTTP request and its answer on one connection, which then ends.
//!
//! Invariants: a request ends within [`REQUEST_LIMIT`], however slowly it comes or is read; its head takes [`MAX_HEAD_BYTES`] bytes
//! at most; a body is not read. So a client can hold one thread for that time, and no more.
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Longest a connection may take.
pub const REQUEST_LIMIT: Duration = Duration::from_secs(5);
/// Longest head of a request, bytes.
pub const MAX_HEAD_BYTES: usize = 8 << 10;
/// Headers of a request.
const MAX_HEADERS: usize = 64;
/// Bytes and time for what a client still sends after its answer: else the kernel would drop the answer.
const MAX_DRAINED_BYTES: u64 = 64 << 10;
const DRAIN_LIMIT: Duration = Duration::from_millis(500);

/// What is written at a time.
const WRITE_BYTES: usize = 64 << 10;

/// A connection of either kind.
pub trait HttpStream: Read + Write + Send + 'static {
    /// Reads and writes from now on fail after this time.
    fn within(&self, time: Duration) -> io::Result<()>;
    /// Says that nothing more will be written.
    fn finish(&self) -> io::Result<()>;
}

macro_rules! connection {
    ($stream:ty) => {
        impl HttpStream for $stream {
            fn within(&self, time: Duration) -> io::Result<()> {
                self.set_read_timeout(Some(time))?;
                self.set_write_timeout(Some(time))
            }
            fn finish(&self) -> io::Result<()> {
                self.shutdown(std::net::Shutdown::Write)
            }
        }
    };
}
connection!(TcpStream);
connection!(UnixStream);

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpResponse {
    /// `200 OK` and the like.
    pub status: &'static str,
    /// Type of the body.
    pub kind: &'static str,
    /// The body.
    pub body: String,
}

impl HttpResponse {
    /// A sentence for people.
    pub fn plain(status: &'static str, body: &str) -> HttpResponse {
        HttpResponse {
            status,
            kind: "text/plain; charset=utf-8",
            body: format!("{body}\n"),
        }
    }
}

/// A connection on which all that is read and written ends by one time.
struct TimedConnection<'a> {
    connection: &'a mut dyn HttpStream,
    until: Instant,
}

impl TimedConnection<'_> {
    fn limit(&self) -> io::Result<()> {
        let left = self.until.saturating_duration_since(Instant::now());
        match left.is_zero() {
            true => Err(io::ErrorKind::TimedOut.into()),
            false => self.connection.within(left),
        }
    }
}

impl Read for TimedConnection<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.limit()?;
        self.connection.read(buffer)
    }
}

impl Write for TimedConnection<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.limit()?;
        self.connection
            .write(&bytes[..bytes.len().min(WRITE_BYTES)])
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Reads one request, answers it by `route` (method, path), and ends the connection.
///
/// # Errors
/// When the client is gone or too slow.
pub fn serve(
    connection: &mut dyn HttpStream,
    limit: Duration,
    route: impl FnOnce(&str, &str) -> HttpResponse,
) -> io::Result<()> {
    let until = Instant::now() + limit;
    let mut timed = TimedConnection { connection, until };
    let (answer, head_only) = match request(&mut timed)? {
        Ok((method, path)) => (route(&method, &path), method == "HEAD"),
        Err(answer) => (answer, false),
    };
    let head = format!(
        "HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n",
        answer.status,
        answer.kind,
        answer.body.len()
    );
    timed.write_all(head.as_bytes())?;
    if !head_only {
        timed.write_all(answer.body.as_bytes())?;
    }
    timed.connection.finish()?;
    timed.until = until.min(Instant::now() + DRAIN_LIMIT);
    io::copy(&mut timed.take(MAX_DRAINED_BYTES), &mut io::sink()).map(drop)
}

/// Method and path, without what follows a `?`; or what to say to a request that is none.
fn request(
    connection: &mut TimedConnection<'_>,
) -> io::Result<Result<(String, String), HttpResponse>> {
    let mut head = Vec::new();
    let mut buffer = [0; 1024];
    loop {
        let n = match connection.read(&mut buffer) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(e),
        };
        head.extend_from_slice(&buffer[..n]);
        let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
        let mut request = httparse::Request::new(&mut headers);
        match request.parse(&head) {
            Ok(httparse::Status::Complete(_)) => {
                let path = request.path.unwrap_or_default();
                let path = path.split('?').next().unwrap_or_default();
                let method = request.method.unwrap_or_default();
                return Ok(Ok((method.to_string(), path.to_string())));
            }
            Ok(httparse::Status::Partial) if head.len() <= MAX_HEAD_BYTES => {}
            Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
                return Ok(Err(HttpResponse::plain(
                    "431 Request Header Fields Too Large",
                    "the request is too long",
                )));
            }
            Err(_) => {
                return Ok(Err(HttpResponse::plain(
                    "400 Bad Request",
                    "this is no HTTP request",
                )));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    /// What a client that sends `text` gets from a server that answers with method and path.
    fn answer(text: &[u8], limit: Duration) -> (String, io::Result<()>) {
        let (mut client, mut server) = UnixStream::pair().unwrap();
        client.write_all(text).unwrap();
        let served = std::thread::spawn(move || {
            serve(&mut server, limit, |method, path| {
                HttpResponse::plain("200 OK", &format!("{method} {path}"))
            })
        });
        let mut got = String::new();
        let _ = client.read_to_string(&mut got);
        drop(client);
        (got, served.join().unwrap())
    }

    #[test]
    fn a_request_is_answered_and_the_connection_ends() {
        let (got, served) = answer(b"GET /metrics?x=1 HTTP/1.1\r\nHost: a\r\n\r\n", LONG);
        assert!(served.is_ok(), "{served:?}");
        assert!(got.starts_with("HTTP/1.1 200 OK\r\n"), "{got}");
        assert!(got.ends_with("\r\n\r\nGET /metrics\n"), "{got}");
        assert!(got.contains("Content-Length: 13\r\n"), "{got}");
        let (got, _) = answer(b"HEAD /metrics HTTP/1.1\r\n\r\n", LONG);
        assert!(got.contains("Content-Length: 14\r\n") && got.ends_with("\r\n\r\n"));
    }

    #[test]
    fn what_is_too_long_or_no_request_is_refused() {
        let long = format!("GET / HTTP/1.1\r\nX: {}", "a".repeat(2 * MAX_HEAD_BYTES));
        let (got, _) = answer(long.as_bytes(), LONG);
        assert!(got.starts_with("HTTP/1.1 431 "), "{got}");
        let many = format!(
            "GET / HTTP/1.1\r\n{}\r\n",
            "A: b\r\n".repeat(MAX_HEADERS + 1)
        );
        let (got, _) = answer(many.as_bytes(), LONG);
        assert!(got.starts_with("HTTP/1.1 431 "), "{got}");
        let (got, _) = answer(b"\x16\x03\x01\x00\xff\xff\xff", LONG);
        assert!(got.starts_with("HTTP/1.1 400 "), "{got}");
    }

    #[test]
    fn who_sends_half_a_request_is_left_after_the_limit() {
        let (got, served) = answer(b"GET / HTTP/1.1\r\nX", Duration::from_millis(20));
        assert!(got.is_empty() && served.is_err(), "{got} {served:?}");
    }

    #[test]
    fn who_does_not_read_the_answer_is_left_after_the_limit() {
        let (mut client, mut server) = UnixStream::pair().unwrap();
        client.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        let large = HttpResponse::plain("200 OK", &"x".repeat(64 << 20));
        let served = serve(&mut server, Duration::from_millis(50), |_, _| large);
        assert!(served.is_err());
    }
}
