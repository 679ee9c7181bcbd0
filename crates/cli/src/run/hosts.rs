//! The host file of `run`: where servers are started.
//!
//! ```text
//! # a comment
//! node1
//! node2 slots=2      two servers
//! ```
use crate::files::read_text;
use forebay_node::failure::{Context, Failure, Result, USAGE};
use std::net::{SocketAddr, ToSocketAddrs, UdpSocket};
use std::path::Path;

/// Longest host file, bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// A line of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// Its name or address.
    pub name: String,
    /// Servers to start there.
    pub servers: u32,
    /// It is this machine, by an address that others can have for it, too.
    pub is_here: bool,
}

/// Reads the file and looks up every host.
///
/// # Errors
/// A usage failure that names the file, the line, and what to write.
pub fn read(path: &Path) -> Result<Vec<Host>> {
    let shown = path.display();
    let next = "name a file with one host a line";
    let text = read_text("host file", path, MAX_FILE_BYTES, next)?;
    let mut hosts = parse(&text, path)?;
    let mut here = false;
    for (line, host) in &mut hosts {
        let addresses: Vec<SocketAddr> = (host.name.as_str(), 0)
            .to_socket_addrs()
            .or_fail(
                format!("{shown}, line {line}: unknown host {}", host.name),
                "write a name that this machine can look up",
            )
            .map_err(|failure| failure.with_code(USAGE))?
            .collect();
        here |= addresses.iter().copied().any(is_here);
        let outward = |address: &&SocketAddr| !address.ip().is_loopback();
        host.is_here = addresses.iter().filter(outward).copied().any(is_here);
    }
    if !here {
        return Err(Failure::usage(
            format!(
                "the host file {shown} does not name this machine, {}",
                forebay_node::spec::host()
            ),
            "add it: the command runs here and would have no mount; or start `forebay run` on a host of the file",
        ));
    }
    Ok(hosts.into_iter().map(|(_, host)| host).collect())
}

/// Whether the address is one of this machine: only to those can a socket be bound.
fn is_here(address: SocketAddr) -> bool {
    UdpSocket::bind(address).is_ok()
}

/// The hosts with their line numbers.
fn parse(text: &str, path: &Path) -> Result<Vec<(usize, Host)>> {
    let shown = path.display();
    let mut hosts = Vec::new();
    for (line, text) in (1..).zip(text.lines()) {
        let text = text.split('#').next().unwrap_or_default();
        let mut words = text.split_whitespace();
        let Some(name) = words.next() else { continue };
        let mut servers = Some(1);
        for word in words {
            servers = word
                .strip_prefix("slots=")
                .and_then(|n| n.parse().ok())
                .filter(|n| (1..=64).contains(n));
        }
        // A name goes into the launcher's command line, where these mean something.
        let plain = !name.starts_with('-') && !name.contains([',', '=']);
        match servers.filter(|_| plain) {
            Some(servers) => hosts.push((
                line,
                Host {
                    name: name.to_string(),
                    servers,
                    is_here: false,
                },
            )),
            None => {
                return Err(Failure::usage(
                    format!("{shown}, line {line}: '{}' is no host", text.trim()),
                    "write a name, or a name and `slots=N` with N from 1 to 64",
                ));
            }
        }
    }
    match hosts.is_empty() {
        false => Ok(hosts),
        true => Err(Failure::usage(
            format!("the host file {shown} names no host"),
            "write one host a line",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(text: &str) -> Result<Vec<(usize, Host)>> {
        parse(text, Path::new("hosts"))
    }

    #[test]
    fn names_slots_and_comments_are_read() {
        let read = hosts("# all\nnode1\n\nnode2 slots=3 # big\n").unwrap();
        let host = |name: &str, servers| Host {
            name: name.into(),
            servers,
            is_here: false,
        };
        assert_eq!(read, [(2, host("node1", 1)), (4, host("node2", 3))]);
    }

    #[test]
    fn what_is_no_host_is_named_with_its_line() {
        for text in [
            "a\nb slots=0",
            "a\nb cpus=2",
            "a\n-x",
            "a\nb,c",
            "a\nb slots=x",
        ] {
            let failure = hosts(text).unwrap_err();
            assert!(failure.text.contains("hosts, line 2"), "{failure}");
            assert_eq!(failure.code, forebay_node::failure::USAGE);
        }
        assert!(hosts("# none\n").unwrap_err().text.contains("no host"));
    }
}
