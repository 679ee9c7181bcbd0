//! The policy of the kernel's caches: what it may keep of names, attributes and open files, and for how long.
//!
//! Invariant: the kernel keeps nothing that another node, or a change of mode, could make stale, except what the owner leased to
//! this node. While the mount is recorded exactly, it keeps nothing of files that are opened.
use super::file_handle::encode;
use super::write_back::WriteBack;
use crate::protocol::{EntryAnswer, FopenFlags, OpenedHandle};
use crate::recording::MountRecording;
use forebay_server::delegate::{KernelLease, OpenedFile, StalePages};
use forebay_server::proto::meta::LEASE_TERM;
use forebay_server::{Attr, Kind, Lamination, OpenFlags};
use rustix::io::Errno;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How long the kernel may keep what cannot change behind its back.
const CACHE_TIMEOUT: Duration = Duration::from_secs(1);
/// The kernel counts in ticks of its clock, and takes this for the next one.
const SHORTEST_TIMEOUT: Duration = Duration::from_nanos(1);

/// See the head of this file.
pub(crate) struct CachePolicy {
    /// One member: nobody else changes names and attributes.
    pub alone: bool,
    /// Dirty pages too.
    pub write_back: WriteBack,
    pub recording: Arc<MountRecording>,
    /// The kernel can be told to look a name up again: only then is one leased to it.
    pub entries_expire: AtomicBool,
}

impl CachePolicy {
    fn entry_ttl(&self) -> Duration {
        match self.alone && !self.recording.exact() {
            true => CACHE_TIMEOUT,
            false => Duration::ZERO,
        }
    }

    /// A softly laminated file may get its write bits back, so only the hard kind is kept. A write takes set-id bits here, and the kernel
    /// does not ask for the mode then. Nor does it for the blocks, of which a file gets the first as soon as it is written.
    fn attr_ttl(&self, attr: &Attr) -> Duration {
        let without_blocks = attr.bytes == 0 && self.write_back.is_on();
        let changes_by_writes =
            attr.kind == Kind::File && (attr.mode & 0o6000 != 0 || without_blocks);
        let fixed = self.alone && !changes_by_writes || attr.lamination == Lamination::Permanent;
        // Before it takes a write the kernel asks for attributes that it does not keep.
        let counted = attr.kind == Kind::File && self.write_back.budget.is_tight();
        if fixed && !counted && !self.recording.exact() {
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

    /// The same of what may be leased to this node.
    pub fn shown_leased(&self, attr: Attr, lease: KernelLease) -> (Attr, Duration) {
        let ttl = self.attr_ttl(&attr).max(self.leased_ttl(&attr, lease));
        (attr, ttl)
    }

    /// How long the kernel may keep leased attributes. Those of a directory are asked for at every path through it. Those of other
    /// objects change more often, and are mostly asked for a second time within one call of a program: after the look-up of a
    /// name by `stat`, for one.
    fn leased_ttl(&self, attr: &Attr, lease: KernelLease) -> Duration {
        match attr.kind {
            _ if !lease.attributes || self.recording.exact() => Duration::ZERO,
            Kind::Dir => LEASE_TERM,
            // A write takes set-id bits here, and the kernel does not ask for the mode then.
            _ if attr.mode & 0o6000 != 0 => Duration::ZERO,
            _ => SHORTEST_TIMEOUT,
        }
    }

    /// What a name stands for, and how long the kernel may keep that.
    pub fn entry(&self, attr: Attr) -> EntryAnswer {
        EntryAnswer {
            attr_ttl: self.attr_ttl(&attr),
            entry_ttl: self.entry_ttl(),
            attr: Some(attr),
        }
    }

    /// The same of what may be leased to this node.
    pub fn entry_leased(&self, attr: Attr, lease: KernelLease) -> EntryAnswer {
        let leased_ttl = self.leased_ttl(&attr, lease);
        let mut entry = self.entry(attr);
        entry.attr_ttl = entry.attr_ttl.max(leased_ttl);
        let expires = self.entries_expire.load(Ordering::Relaxed);
        if lease.entry && expires && !self.recording.exact() {
            entry.entry_ttl = entry.entry_ttl.max(LEASE_TERM);
        }
        entry
    }

    /// The answer to a lookup: that a name does not exist is kept too, where nobody else could make it.
    pub fn found(
        &self,
        answer: Result<Attr, Errno>,
        lease: KernelLease,
    ) -> Result<EntryAnswer, Errno> {
        match answer {
            Err(e) if self.alone && e == Errno::NOENT => Ok(EntryAnswer {
                attr: None,
                attr_ttl: Duration::ZERO,
                entry_ttl: CACHE_TIMEOUT,
            }),
            answer => answer.map(|attr| self.entry_leased(attr, lease)),
        }
    }

    /// The kernel's handle of an opened file, and what it may do with the file's pages.
    pub fn opened(&self, opened: &OpenedFile, flags: OpenFlags) -> OpenedHandle {
        // Where the kernel keeps dirty pages, it alone knows the end of the file, so it places appended bytes; and nobody else makes
        // pages old.
        let keeps_dirty_pages = self.write_back.is_on();
        // A mount that is recorded exactly is to see every call as it is.
        let direct = opened.direct && !keeps_dirty_pages || self.recording.exact();
        let mut fopen = FopenFlags::empty();
        if direct {
            fopen |= FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES;
        }
        if !self.recording.exact() {
            // Those that are old have been dropped when the kernel hears of this.
            fopen |= FopenFlags::FOPEN_KEEP_CACHE;
        }
        (encode(opened.handle, flags, direct), fopen)
    }

    /// The pages that must be dropped before the kernel hears of the open.
    pub fn stale(&self, opened: &OpenedFile) -> Option<StalePages> {
        let kept = self.write_back.is_on() || self.recording.exact();
        opened.stale.clone().filter(|_| !kept)
    }
}

#[cfg(test)]
mod tests {
    use super::super::file_handle::{DIRECT, READ, WRITE, has, open_flags};
    use super::super::write_back::WriteBackConditions;
    use super::*;
    use crate::protocol::{self, InitFlags, KernelConfig};
    use forebay_server::proto::Inode;
    use forebay_server::{Fid, Time};

    /// With the writeback cache, if the kernel keeps dirty pages.
    fn policy(keeps_dirty_pages: bool) -> CachePolicy {
        let write_back = WriteBack::for_conditions(WriteBackConditions {
            members: 1,
            posix: false,
            read_only: false,
            allowed: keeps_dirty_pages,
            free: u64::MAX,
        });
        let mut config = KernelConfig::new(InitFlags::all(), InitFlags::empty(), 0);
        write_back.negotiate(&mut config);
        CachePolicy {
            alone: true,
            write_back,
            recording: Arc::default(),
            entries_expire: AtomicBool::default(),
        }
    }

    fn open(policy: &CachePolicy, opened: &OpenedFile, flags: i32) -> OpenedHandle {
        policy.opened(opened, open_flags(protocol::OpenFlags(flags)))
    }

    fn opened(direct: bool) -> OpenedFile {
        OpenedFile {
            handle: 77,
            attr: Inode::new(Kind::File, 0o644, 0, 0, Time::default()).attr(Fid(9)),
            stale: None,
            direct,
            made: false,
            leased: false,
        }
    }

    #[test]
    fn an_opened_file_is_cached_as_its_handle_says() {
        let policy = policy(false);
        let (fh, fopen) = open(&policy, &opened(false), libc::O_RDWR);
        assert_eq!(super::super::file_handle::handle(fh), 77);
        assert!(has(fh, READ) && has(fh, WRITE) && !has(fh, DIRECT));
        assert_eq!(fopen, FopenFlags::FOPEN_KEEP_CACHE);
        let (fh, fopen) = open(&policy, &opened(true), libc::O_WRONLY);
        assert!(!has(fh, READ) && has(fh, WRITE) && has(fh, DIRECT));
        assert!(fopen.contains(FopenFlags::FOPEN_DIRECT_IO));
        let (fh, fopen) = open(&policy, &opened(false), libc::O_RDONLY);
        assert!(has(fh, READ) && !has(fh, WRITE));
        assert_eq!(fopen, FopenFlags::FOPEN_KEEP_CACHE);
    }

    #[test]
    fn a_kernel_that_keeps_written_pages_keeps_those_of_every_file() {
        let policy = policy(true);
        let flags = libc::O_WRONLY | libc::O_APPEND;
        let (fh, fopen) = open(&policy, &opened(true), flags);
        assert!(!has(fh, DIRECT));
        assert_eq!(fopen, FopenFlags::FOPEN_KEEP_CACHE);
    }
}
