//! Who is at the other end of a Unix socket, as the kernel says (`SO_PEERCRED`).
use rustix::fd::{AsFd, AsRawFd};
use rustix::process::{Pid, Uid};
use std::io;

/// See the head of this file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerCredentials {
    /// The user.
    pub uid: Uid,
    /// The process. `None`: this one cannot see it, for it is not in the same PID namespace or one below.
    pub pid: Option<Pid>,
}

impl PeerCredentials {
    /// Of the peer of a connected socket.
    ///
    /// # Errors
    /// As `getsockopt`.
    pub fn of(socket: impl AsFd) -> io::Result<PeerCredentials> {
        let mut found = libc::ucred {
            pid: 0,
            uid: u32::MAX,
            gid: u32::MAX,
        };
        let mut len = size_of::<libc::ucred>() as libc::socklen_t;
        // `rustix` takes the process for a number that is not 0, which is what the kernel gives for one that cannot be seen.
        // SAFETY: the descriptor is open, and `found` may be written for `len` bytes; any bytes are a `ucred`.
        let done = unsafe {
            libc::getsockopt(
                socket.as_fd().as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERCRED,
                (&raw mut found).cast(),
                &mut len,
            )
        };
        match done {
            0 => Ok(PeerCredentials {
                uid: Uid::from_raw(found.uid),
                pid: Pid::from_raw(found.pid),
            }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// The number of the process; 0 if it cannot be seen.
    pub fn process(&self) -> u32 {
        self.pid
            .map_or(0, |pid| pid.as_raw_nonzero().get().unsigned_abs())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn the_peer_of_a_pair_is_this_process() {
        let (one, _other) = UnixStream::pair().unwrap();
        let peer = PeerCredentials::of(&one).unwrap();
        assert_eq!(peer.uid, rustix::process::geteuid());
        assert_eq!(peer.pid, Some(rustix::process::getpid()));
        assert_eq!(peer.process(), std::process::id());
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(PeerCredentials::of(&file).is_err());
    }
}
