//! The attributes of a file at one moment, as `stat` shows them.
use forebay_server::{Attr, Kind, Lamination, Time};
use std::time::{Duration, SystemTime};

/// The attributes of a file at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Metadata(pub(crate) Attr);

#[allow(clippy::len_without_is_empty)]
impl Metadata {
    /// What it is.
    pub fn kind(&self) -> Kind {
        self.0.kind
    }
    /// Whether it is a regular file.
    pub fn is_file(&self) -> bool {
        self.0.kind == Kind::File
    }
    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.0.kind == Kind::Dir
    }
    /// Whether it is a symbolic link.
    pub fn is_symlink(&self) -> bool {
        self.0.kind == Kind::Symlink
    }
    /// The size in bytes.
    pub fn len(&self) -> u64 {
        self.0.size
    }
    /// Bytes it takes in logs; holes take none.
    pub fn stored(&self) -> u64 {
        self.0.bytes
    }
    /// Permission and set-id bits (`0o7777`).
    pub fn mode(&self) -> u32 {
        self.0.mode
    }
    /// The owning user.
    pub fn uid(&self) -> u32 {
        self.0.uid
    }
    /// The owning group.
    pub fn gid(&self) -> u32 {
        self.0.gid
    }
    /// Names it has.
    pub fn nlink(&self) -> u32 {
        self.0.nlink
    }
    /// The file id: the inode number on a mount, never used again for another file.
    pub fn ino(&self) -> u64 {
        self.0.fid.0
    }
    /// Grows with every published change of the content; equal generations mean equal content.
    pub fn generation(&self) -> u64 {
        self.0.generation
    }
    /// Whether it is read-only for ever.
    pub fn lamination(&self) -> Lamination {
        self.0.lamination
    }
    /// Last access, as far as it is kept: exactly as it is stored.
    pub fn atime(&self) -> Time {
        self.0.atime
    }
    /// Last change of the content, exactly.
    pub fn mtime(&self) -> Time {
        self.0.mtime
    }
    /// Last change of content or attributes, exactly.
    pub fn ctime(&self) -> Time {
        self.0.ctime
    }
    /// Last change of the content; `None` if the system's clock type cannot hold it.
    pub fn modified(&self) -> Option<SystemTime> {
        system_time(self.0.mtime)
    }
    /// Last access, as far as it is kept.
    pub fn accessed(&self) -> Option<SystemTime> {
        system_time(self.0.atime)
    }
    /// Last change of content or attributes.
    pub fn changed(&self) -> Option<SystemTime> {
        system_time(self.0.ctime)
    }
}

fn system_time(time: Time) -> Option<SystemTime> {
    let whole = Duration::from_secs(time.secs.unsigned_abs());
    let base = if time.secs < 0 {
        SystemTime::UNIX_EPOCH.checked_sub(whole)
    } else {
        SystemTime::UNIX_EPOCH.checked_add(whole)
    };
    base?.checked_add(Duration::from_nanos(u64::from(time.nanos)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_the_epoch_and_at_the_ends_of_the_range() {
        let t = system_time(Time {
            secs: -2,
            nanos: 800_000_000,
        })
        .unwrap();
        assert_eq!(
            SystemTime::UNIX_EPOCH.duration_since(t).unwrap(),
            Duration::from_millis(1200)
        );
        assert!(
            system_time(Time {
                secs: i64::MIN,
                nanos: 999_999_999
            })
            .is_some()
        );
        assert!(
            system_time(Time {
                secs: i64::MAX,
                nanos: 999_999_999
            })
            .is_some()
        );
    }
}
