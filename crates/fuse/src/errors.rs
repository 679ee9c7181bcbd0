//! Errors of starting and stopping a mount; each message says what to do.
use std::io;
use std::path::PathBuf;

/// A mount could not be started or stopped.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The mount point does not exist.
    #[error("mount point {} does not exist: create it first (mkdir -p)", point.display())]
    Missing {
        /// The mount point.
        point: PathBuf,
    },
    /// The mount point is not a directory.
    #[error("mount point {} is not a directory: name an empty directory", point.display())]
    NotADirectory {
        /// The mount point.
        point: PathBuf,
    },
    /// The mount point has entries, which the mount would hide.
    #[error("mount point {} is not empty: name an empty directory, so that the mount hides nothing", point.display())]
    NotEmpty {
        /// The mount point.
        point: PathBuf,
    },
    /// Something is mounted there.
    #[error("mount point {} is in use by a mount of type {kind}: {advice}", point.display())]
    InUse {
        /// The mount point.
        point: PathBuf,
        /// The file system type as the kernel names it.
        kind: String,
        /// What to do.
        advice: String,
    },
    /// The mount point lies below another mount that this process must not touch.
    #[error("mount point {} lies inside the mount {} of type {kind}: {advice}", point.display(), outer.display())]
    Inside {
        /// The mount point.
        point: PathBuf,
        /// The mount around it.
        outer: PathBuf,
        /// Its file system type.
        kind: String,
        /// What to do.
        advice: String,
    },
    /// `/dev/fuse` is missing.
    #[error(
        "/dev/fuse does not exist: load the kernel's fuse module (modprobe fuse), or start the container with --device /dev/fuse"
    )]
    NoDevice,
    /// The process may not mount.
    #[error("not allowed to mount: {detail}")]
    NotAllowed {
        /// What was refused, and what to do.
        detail: String,
    },
    /// `fusermount3` is missing, and only root can mount without it.
    #[error("mounting without root needs fusermount3: install the package fuse3")]
    NoHelper,
    /// The mount was asked to stop but processes still use it; it was cut off under them.
    #[error("mount {} was still in use and was cut off: its users see \"Transport endpoint is not connected\"", point.display())]
    CutOff {
        /// The mount point.
        point: PathBuf,
    },
    /// Nothing of Forebay is mounted there.
    #[error("{} is not a Forebay mount", point.display())]
    NotMounted {
        /// The path asked.
        point: PathBuf,
    },
    /// Processes still use the mount.
    #[error("mount {} is in use: close what uses it (`fuser -vm` names it) and try again, or force it", point.display())]
    Busy {
        /// The mount point.
        point: PathBuf,
    },
    /// Any other system call that failed.
    #[error("cannot {action} {}: {source}", point.display())]
    System {
        /// What was tried.
        action: &'static str,
        /// The mount point.
        point: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
}

impl MountError {
    pub(crate) fn system(
        action: &'static str,
        point: &std::path::Path,
        source: impl Into<io::Error>,
    ) -> MountError {
        MountError::System {
            action,
            point: point.to_path_buf(),
            source: source.into(),
        }
    }
}
