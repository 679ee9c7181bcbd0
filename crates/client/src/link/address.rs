//! Where a server's link is: a socket for each member, in the store's directory.
use super::error::LinkError;
use super::socket::PacketSocket;
use rustix::fd::OwnedFd;
use rustix::fs::OFlags;
use rustix::io::{Errno, retry_on_intr};
use rustix::net::SocketAddrUnix;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The variable that says which server the programs of a job use: a store, or a socket.
pub const SOCKET_VARIABLE: &str = "FOREBAY_SOCKET";

/// What the names of sockets begin with; the member's number follows.
const SOCKET_PREFIX: &str = "link-";

/// The socket of a member whose service has its store, or that of its first member, at `store`.
pub fn socket_of(store: &Path, member: u16) -> PathBuf {
    store.join(format!("{SOCKET_PREFIX}{member}"))
}

/// The socket of the member with the lowest number that has one in this directory; of a socket, itself.
pub(super) fn find_socket(place: &Path) -> Result<PathBuf, LinkError> {
    let not_running = |source| LinkError::NotRunning {
        socket: place.to_path_buf(),
        source,
    };
    let metadata = std::fs::metadata(place).map_err(not_running)?;
    if metadata.file_type().is_socket() {
        return Ok(place.to_path_buf());
    }
    let entries = std::fs::read_dir(place).map_err(not_running)?;
    let member = |entry: io::Result<std::fs::DirEntry>| {
        let name = entry.ok()?.file_name();
        name.to_str()?.strip_prefix(SOCKET_PREFIX)?.parse().ok()
    };
    let lowest: Option<u16> = entries.filter_map(member).min();
    match lowest {
        Some(member) => Ok(socket_of(place, member)),
        None => Err(not_running(Errno::NOENT.into())),
    }
}

/// Removes the sockets that a killed server of `store` has left. The caller holds the store's lock.
pub fn remove_left_sockets(store: &Path) {
    let entries = std::fs::read_dir(store).into_iter().flatten().flatten();
    let left = entries.filter(|entry| {
        entry
            .file_name()
            .to_string_lossy()
            .starts_with(SOCKET_PREFIX)
    });
    for entry in left.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_socket())) {
        // The next server removes it too, so it does not matter if this fails.
        let _ = std::fs::remove_file(entry.path());
    }
}

/// Uses a socket's address, which may not be longer than 107 bytes: that of a longer path goes through its open directory.
fn with_address<T>(
    socket: &Path,
    use_it: impl Fn(&SocketAddrUnix) -> rustix::io::Result<T>,
) -> io::Result<T> {
    if let Ok(address) = SocketAddrUnix::new(socket) {
        return Ok(use_it(&address)?);
    }
    let (Some(parent), Some(name)) = (socket.parent(), socket.file_name()) else {
        return Err(Errno::INVAL.into());
    };
    let directory = File::open(parent)?;
    let through = Path::new("/proc/self/fd").join(directory.as_raw_fd().to_string());
    Ok(use_it(&SocketAddrUnix::new(through.join(name))?)?)
}

/// A socket that is connected to the server at `socket`, within `limit`.
pub(super) fn connect(socket: &Path, limit: Duration) -> io::Result<OwnedFd> {
    let end = PacketSocket::unconnected()?;
    set_socket_timeout(&end, Timeout::Send, Some(limit))?;
    with_address(socket, |address| {
        retry_on_intr(|| rustix::net::connect(&end, address))
    })?;
    Ok(end)
}

/// A socket at which connections are accepted, for its owner only; what was left there goes.
pub(super) fn listen(socket: &Path) -> io::Result<OwnedFd> {
    match std::fs::remove_file(socket) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let end = PacketSocket::unconnected()?;
    with_address(socket, |address| rustix::net::bind(&end, address))?;
    // Nobody can connect before it listens.
    std::fs::set_permissions(socket, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
    rustix::net::listen(&end, 128)?;
    rustix::fs::fcntl_setfl(&end, OFlags::NONBLOCK)?;
    Ok(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(10);

    #[test]
    fn a_store_has_a_socket_for_each_member_also_below_a_long_path() {
        let dir = tempfile::tempdir().unwrap();
        let store = dir.path().join("x".repeat(150));
        std::fs::create_dir(&store).unwrap();
        assert!(matches!(
            find_socket(&store),
            Err(LinkError::NotRunning { .. })
        ));
        let listening: Vec<OwnedFd> = [10, 2]
            .iter()
            .map(|member| listen(&socket_of(&store, *member)).unwrap())
            .collect();
        let found = find_socket(&store).unwrap();
        assert_eq!(found, socket_of(&store, 2));
        assert_eq!(find_socket(&found).unwrap(), found);
        connect(&found, LIMIT).unwrap();
        drop(listening);
        assert_eq!(
            connect(&found, LIMIT).unwrap_err().kind(),
            io::ErrorKind::ConnectionRefused
        );
        // What was left is replaced.
        let _again = listen(&found).unwrap();
        connect(&found, LIMIT).unwrap();
    }
}
