//! The address on which metrics are served, as people write it: `127.0.0.1:9470`, `127.0.0.1:9470+{rank}`,
//! `unix:/run/user/1000/fb{rank}.sock`.
//!
//! Invariant: no address that another machine can reach; metrics need no password.
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

/// An address of which each server of a job may make its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// A port of this machine; port 0 is any free one.
    Tcp {
        /// Loopback address and port.
        at: SocketAddr,
        /// The rank is added to the port.
        by_rank: bool,
    },
    /// A socket file, absolute; may hold `{rank}`.
    Unix(String),
}

/// An address of one server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerAddress {
    /// A port of this machine.
    Tcp(SocketAddr),
    /// A socket file.
    Unix(PathBuf),
}

/// Bytes of a socket's path, the zero at its end not counted.
const MAX_SOCKET_PATH: usize = 107;

impl Address {
    /// Reads an address; `none` is none.
    ///
    /// # Errors
    /// A sentence that says what is wrong and how addresses are written.
    pub fn parse(text: &str) -> Result<Option<Address>, String> {
        if text == "none" {
            return Ok(None);
        }
        if let Some(path) = text.strip_prefix("unix:") {
            if !path.starts_with('/') {
                return Err(format!(
                    "'{path}' is not an absolute path; write unix:/DIR/NAME"
                ));
            }
            return Ok(Some(Address::Unix(path.to_string())));
        }
        let (base, by_rank) = match text.strip_suffix("+{rank}") {
            Some(base) => (base, true),
            None => (text, false),
        };
        let wrong = || {
            format!(
                "'{text}' is not an address for metrics; write 127.0.0.1:PORT, 127.0.0.1:PORT+{{rank}}, unix:PATH or none"
            )
        };
        let at = match base.strip_prefix("localhost:") {
            Some(port) => SocketAddr::new(
                IpAddr::V4(Ipv4Addr::LOCALHOST),
                port.parse().map_err(|_| wrong())?,
            ),
            None => base.parse::<SocketAddr>().map_err(|_| wrong())?,
        };
        if !at.ip().is_loopback() {
            return Err(format!(
                "{} can be reached from other machines, and metrics ask for no password; write 127.0.0.1:{}, or unix:PATH, and let a program you trust pass them on",
                at.ip(),
                at.port()
            ));
        }
        Ok(Some(Address::Tcp { at, by_rank }))
    }

    /// The address of the server of this rank.
    ///
    /// # Errors
    /// A sentence: the port would be above 65535, or the path is too long for a socket.
    pub fn of(&self, rank: u32) -> Result<ServerAddress, String> {
        match self {
            Address::Tcp { at, by_rank: false } => Ok(ServerAddress::Tcp(*at)),
            Address::Tcp { at, by_rank: true } => {
                let port = u32::from(at.port()).checked_add(rank);
                let port = port.and_then(|port| u16::try_from(port).ok());
                let port = port.filter(|_| at.port() != 0).ok_or_else(|| {
                    format!(
                        "there is no port {} + {rank}; choose a port from 1024 to 65000",
                        at.port()
                    )
                })?;
                Ok(ServerAddress::Tcp(SocketAddr::new(at.ip(), port)))
            }
            Address::Unix(path) => {
                let path = path.replace("{rank}", &rank.to_string());
                if path.len() > MAX_SOCKET_PATH {
                    return Err(format!(
                        "{path} has {} bytes, and the path of a socket {MAX_SOCKET_PATH} at most; choose a shorter one",
                        path.len()
                    ));
                }
                Ok(ServerAddress::Unix(path.into()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(text: &str, rank: u32) -> Result<ServerAddress, String> {
        Address::parse(text)?.ok_or("none")?.of(rank)
    }

    #[test]
    fn each_rank_has_its_own_where_it_is_asked_for() {
        let tcp = |text: &str| Ok(ServerAddress::Tcp(text.parse().unwrap()));
        assert_eq!(place("127.0.0.1:9470", 3), tcp("127.0.0.1:9470"));
        assert_eq!(place("127.0.0.1:9470+{rank}", 3), tcp("127.0.0.1:9473"));
        assert_eq!(place("localhost:0", 3), tcp("127.0.0.1:0"));
        assert_eq!(place("[::1]:80+{rank}", 1), tcp("[::1]:81"));
        assert_eq!(
            place("unix:/a/{rank}", 2),
            Ok(ServerAddress::Unix("/a/2".into()))
        );
        assert_eq!(Address::parse("none"), Ok(None));
    }

    #[test]
    fn what_cannot_be_is_refused_with_a_way_out() {
        for (text, part) in [
            ("0.0.0.0:9470", "other machines"),
            ("10.0.0.1:9470", "other machines"),
            ("[::]:9470", "other machines"),
            ("9470", "127.0.0.1:PORT"),
            ("127.0.0.1", "127.0.0.1:PORT"),
            ("example.org:80", "127.0.0.1:PORT"),
            ("unix:here", "absolute"),
            ("127.0.0.1:65535+{rank}", "no port 65535 + 1"),
            ("127.0.0.1:0+{rank}", "no port 0 + 1"),
        ] {
            let why = place(text, 1).unwrap_err();
            assert!(why.contains(part), "{text}: {why}");
        }
        let long = format!("unix:/{}", "x".repeat(107));
        assert!(place(&long, 0).unwrap_err().contains("shorter"));
    }
}
