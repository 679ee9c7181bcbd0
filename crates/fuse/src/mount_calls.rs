//! Mounting and unmounting: the system calls for root, `fusermount3` for everyone else.
use crate::errors::MountError;
use crate::mount_table::TYPE;
use crate::options::MountOptions;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};
use std::ffi::CString;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};

const HELPER: &str = "fusermount3";

/// Mounts on `point` and returns the connection to the kernel.
pub(crate) fn mount(point: &Path, options: &MountOptions) -> Result<OwnedFd, MountError> {
    if !Path::new("/dev/fuse").exists() {
        return Err(MountError::NoDevice);
    }
    if rustix::process::geteuid().is_root() {
        match mount_directly(point, options) {
            // Root of a user namespace may be refused; the helper may still be allowed.
            Err(MountError::System { source, .. })
                if source.raw_os_error() == Some(libc::EPERM) => {}
            done => return done,
        }
    }
    mount_by_helper(point, options)
}

fn mount_directly(point: &Path, options: &MountOptions) -> Result<OwnedFd, MountError> {
    let device = rustix::fs::open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).map_err(|e| match e {
        Errno::NOENT | Errno::NODEV | Errno::NXIO => MountError::NoDevice,
        e => MountError::NotAllowed {
            detail: format!("/dev/fuse cannot be opened ({e}); a container needs --device /dev/fuse and --cap-add SYS_ADMIN"),
        },
    })?;
    let mut data = format!(
        "fd={},rootmode=40000,user_id={},group_id={},default_permissions",
        device.as_raw_fd(),
        rustix::process::getuid().as_raw(),
        rustix::process::getgid().as_raw()
    );
    if options.allow_other {
        data.push_str(",allow_other");
    }
    let mut flags = MountFlags::NOSUID | MountFlags::NODEV;
    if options.read_only {
        flags |= MountFlags::RDONLY;
    }
    // The text above has no zero byte.
    let data = CString::new(data).unwrap_or_default();
    rustix::mount::mount(
        options.source.as_str(),
        point,
        TYPE,
        flags,
        Some(data.as_c_str()),
    )
    .map_err(|e| MountError::system("mount on", point, e))?;
    Ok(device)
}

/// `fusermount3` mounts and passes the connection back over a socket, which it gets as its standard input.
fn mount_by_helper(point: &Path, options: &MountOptions) -> Result<OwnedFd, MountError> {
    let system = |e: io::Error| MountError::system("mount on", point, e);
    let (ours, theirs) = UnixStream::pair().map_err(system)?;
    let mut words = format!(
        "fsname={},subtype=forebay,default_permissions,nosuid,nodev",
        // The helper splits its options at commas unless they are escaped.
        options.source.replace('\\', "\\\\").replace(',', "\\,")
    );
    if options.allow_other {
        words.push_str(",allow_other");
    }
    if options.read_only {
        words.push_str(",ro");
    }
    let helper = Command::new(HELPER)
        .args(["-o", &words, "--"])
        .arg(point)
        .env("_FUSE_COMMFD", "0")
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| {
            if e.kind() == io::ErrorKind::NotFound {
                MountError::NoHelper
            } else {
                system(e)
            }
        })?;
    let device = receive(&ours);
    drop(ours);
    let output = helper.wait_with_output().map_err(system)?;
    match device {
        Ok(Some(device)) => Ok(device),
        Ok(None) => {
            let said = String::from_utf8_lossy(&output.stderr).trim().to_string();
            let advice = if said.contains("user_allow_other") {
                " (write user_allow_other into /etc/fuse.conf, or mount without allow_other)"
            } else if said.contains("/dev/fuse") {
                " (the administrator can allow it: chmod 666 /dev/fuse)"
            } else {
                ""
            };
            Err(MountError::NotAllowed {
                detail: format!("{said}{advice}"),
            })
        }
        Err(e) => Err(system(e.into())),
    }
}

/// The descriptor the helper sends; `None` if it ended without one.
fn receive(socket: &UnixStream) -> Result<Option<OwnedFd>, Errno> {
    let mut byte = [0u8; 1];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let message = loop {
        match rustix::net::recvmsg(
            socket,
            &mut [IoSliceMut::new(&mut byte)],
            &mut control,
            RecvFlags::CMSG_CLOEXEC,
        ) {
            Err(Errno::INTR) => {}
            done => break done?,
        }
    };
    if message.bytes == 0 {
        return Ok(None);
    }
    Ok(control.drain().find_map(|m| match m {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    }))
}

/// Unmounts if nobody uses it; `EBUSY` otherwise.
pub(crate) fn unmount(point: &Path) -> io::Result<()> {
    match rustix::mount::unmount(point, UnmountFlags::NOFOLLOW) {
        Err(Errno::PERM) => helper_unmount(point, &["-u", "-q"]),
        done => Ok(done?),
    }
}

/// Takes the mount out of the tree; it ends when its last user has gone.
pub(crate) fn detach(point: &Path) -> io::Result<()> {
    match rustix::mount::unmount(point, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW) {
        Err(Errno::PERM) => helper_unmount(point, &["-u", "-q", "-z"]),
        done => Ok(done?),
    }
}

/// Cuts the connection, so that waiting users wake up with an error, and takes the mount out of the tree.
pub(crate) fn force(point: &Path) -> io::Result<()> {
    // The first call aborts the connection even if it cannot unmount because of open files.
    let _ = rustix::mount::unmount(point, UnmountFlags::FORCE | UnmountFlags::NOFOLLOW);
    match detach(point) {
        // The first call was enough.
        Err(e) if e.raw_os_error() == Some(libc::EINVAL) => Ok(()),
        done => done,
    }
}

fn helper_unmount(point: &Path, flags: &[&str]) -> io::Result<()> {
    let output = Command::new(HELPER)
        .args(flags)
        .arg("--")
        .arg(point)
        .stdin(Stdio::null())
        .output()?;
    if output.status.success() {
        return Ok(());
    }
    // The helper says nothing with -q; being in use is the common reason.
    Err(io::Error::from_raw_os_error(libc::EBUSY))
}
