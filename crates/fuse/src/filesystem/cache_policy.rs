//! The policy of the kernel's caches: what it may keep of names, attributes and open files, and for how long.
//!
//! Invariant: the kernel keeps nothing that another node, or a change of mode, could make untrue; while the mount is recorded
//! exactly, nothing.
use super::file_handle::encode;
use crate::protocol::{EntryAnswer, FopenFlags, Opened};
use crate::recording::MountRecording;
use forebay_server::delegate::OpenedFile;
use forebay_server::{Attr, Kind, Lamination, OpenFlags};
use rustix::io::Errno;
use std::sync::Arc;
use std::time::Duration;

/// How long the kernel may keep what cannot change behind its back.
const CACHE_TIMEOUT: Duration = Duration::from_secs(1);

/// See the head of this file.
pub(crate) struct CachePolicy {
    /// One member: nobody else changes names and attributes.
    pub alone: bool,
    pub recording: Arc<MountRecording>,
}

impl CachePolicy {
    fn entry_ttl(&self) -> Duration {
        match self.alone && !self.recording.exact() {
            true => CACHE_TIMEOUT,
            false => Duration::ZERO,
        }
    }

    /// A softly laminated file may get its write bits back, so only the hard kind is kept. A write takes set-id bits here, and the kernel
    /// does not ask for the mode then.
    fn attr_ttl(&self, attr: &Attr) -> Duration {
        let changes_by_writes = attr.kind == Kind::File && attr.mode & 0o6000 != 0;
        let fixed = self.alone && !changes_by_writes || attr.lamination == Lamination::Permanent;
        if fixed && !self.recording.exact() {
            CACHE_TIMEOUT
        } else {
            Duration::ZERO
        }
    }

    /// Attributes, and how long the kernel may keep them.
    pub fn shown(&self, attr: Attr) -> (Attr, Duration) {
        let ttl = self.attr_ttl(&attr);
        (attr, ttl)
    }

    /// What a name stands for, and how long the kernel may keep that.
    pub fn entry(&self, attr: Attr) -> EntryAnswer {
        EntryAnswer {
            attr_ttl: self.attr_ttl(&attr),
            entry_ttl: self.entry_ttl(),
            attr: Some(attr),
        }
    }

    /// The answer to a lookup: that a name does not exist is kept too, where nobody else could make it.
    pub fn found(&self, answer: Result<Attr, Errno>) -> Result<EntryAnswer, Errno> {
        match answer {
            Err(e) if self.alone && e == Errno::NOENT => Ok(EntryAnswer {
                attr: None,
                attr_ttl: Duration::ZERO,
                entry_ttl: CACHE_TIMEOUT,
            }),
            answer => answer.map(|attr| self.entry(attr)),
        }
    }

    /// The kernel's handle of an opened file, and what it may do with the file's pages.
    pub fn opened(&self, opened: &OpenedFile, flags: OpenFlags) -> Opened {
        // A mount that is recorded exactly is to see every call as it is.
        let direct = opened.direct || self.recording.exact();
        let mut fopen = FopenFlags::empty();
        if !flags.write && self.alone {
            // Closing a file that was only read publishes nothing; but where locks are kept here, it gives up the closer's.
            fopen |= FopenFlags::FOPEN_NOFLUSH;
        }
        if direct {
            fopen |= FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES;
        } else if opened.keep_cache {
            fopen |= FopenFlags::FOPEN_KEEP_CACHE;
        }
        (encode(opened.handle, flags, direct), fopen)
    }
}

#[cfg(test)]
mod tests {
    use super::super::file_handle::{APPEND, DIRECT, WRITE, has, open_flags};
    use super::*;
    use crate::protocol;
    use forebay_server::proto::Inode;
    use forebay_server::{Fid, Time};

    #[test]
    fn an_opened_file_is_cached_as_its_handle_says() {
        let policy = CachePolicy {
            alone: true,
            recording: Arc::default(),
        };
        let opened = OpenedFile {
            handle: 77,
            attr: Inode::new(Kind::File, 0o644, 0, 0, Time::default()).attr(Fid(9)),
            keep_cache: true,
            direct: false,
            made: false,
        };
        let open = |flags| policy.opened(&opened, open_flags(protocol::OpenFlags(flags)));
        let (fh, fopen) = open(libc::O_RDWR | libc::O_APPEND);
        assert_eq!(super::super::file_handle::handle(fh), 77);
        assert!(has(fh, WRITE) && has(fh, APPEND) && !has(fh, DIRECT));
        assert_eq!(fopen, FopenFlags::FOPEN_KEEP_CACHE);
        let (fh, fopen) = open(libc::O_RDONLY | libc::O_APPEND);
        assert!(!has(fh, WRITE) && !has(fh, APPEND));
        assert!(fopen.contains(FopenFlags::FOPEN_NOFLUSH));
    }
}
