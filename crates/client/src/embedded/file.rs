//! An open file of the backend in the server's process.
//!
//! Invariant: before a call reads or changes the file, the kernel's dirty pages of it are written back. Programs on the mount see the
//! call's changes once these are published.
use super::EmbeddedClient;
use bytes::Bytes;
use forebay_server::delegate::{
    ChangeMark, DirectRead, Fallocate, Handle, LockOutcome, OpenedFile, SeekTarget, WantedLock,
};
use forebay_server::proto::locks::{HeldLock, LockMode, LockSpace};
use forebay_server::{Attr, Caller, Delegate, Fid, Result, SetAttr};
use rustix::io::Errno;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Numbers lock owners of this process that are not the kernel's, which are scrambled addresses and use all bits.
static NEXT_LOCK_OWNER: AtomicU64 = AtomicU64::new(0xF0EB << 48);

/// An open handle. Dropping it commits and closes without a report.
pub struct EmbeddedFile {
    delegate: Arc<Delegate>,
    caller: Caller,
    handle: Handle,
    fid: Fid,
    /// Who holds the locks taken through this handle.
    lock_owner: u64,
    /// Content was changed since the last commit: programs of this node's mount are to see it.
    changed: AtomicBool,
    open: AtomicBool,
    /// The name that is removed at the close, if it is still this file's.
    temporary: Option<NameInDir>,
}

/// A directory, and a name in it.
pub(super) type NameInDir = (Fid, Vec<u8>);

impl EmbeddedFile {
    pub(crate) fn new(client: &EmbeddedClient, opened: OpenedFile) -> EmbeddedFile {
        EmbeddedFile {
            delegate: client.delegate.clone(),
            caller: client.caller,
            handle: opened.handle,
            fid: opened.attr.fid,
            lock_owner: NEXT_LOCK_OWNER.fetch_add(1, Ordering::Relaxed),
            changed: AtomicBool::new(false),
            open: AtomicBool::new(true),
            temporary: None,
        }
    }

    /// The file that was made as `name` loses it when the handle is closed, unless the name is another file's then.
    pub(super) fn with_temporary_name(mut self, name: NameInDir) -> EmbeddedFile {
        self.temporary = Some(name);
        self
    }

    pub(crate) fn fid(&self) -> Fid {
        self.fid
    }

    pub(crate) fn read(&self, offset: u64, len: u32) -> Result<Bytes> {
        self.delegate.kernel_pages.write_back_dirty(self.fid);
        self.delegate.read(self.handle, offset, len)
    }

    /// Where the bytes of some ranges lie: see [`Delegate::locate_ranges`].
    pub(crate) fn locate(&self, ranges: &[Range<u64>], most: usize) -> Result<Option<DirectRead>> {
        self.delegate.kernel_pages.write_back_dirty(self.fid);
        self.delegate.locate_ranges(self.handle, ranges, most)
    }

    /// A program has made so many reads itself.
    pub(crate) fn count_reads(&self, reads: u64, bytes: u64) {
        self.delegate.count_direct_reads(reads, bytes);
    }

    /// The first of several ranges, and a mark by which it can be told later whether they are still what reads return: see
    /// [`Delegate::read_ahead`].
    pub(crate) fn read_ahead(&self, ranges: &[Range<u64>]) -> Result<(Bytes, Option<ChangeMark>)> {
        self.delegate.kernel_pages.write_back_dirty(self.fid);
        self.delegate.read_ahead(self.handle, ranges)
    }

    /// Writes some bytes; [`EmbeddedFile::show_elsewhere`] follows the last.
    pub(crate) fn write(&self, data: &[u8], offset: u64) -> Result<()> {
        self.change();
        let written = self.delegate.write(self.handle, offset, data, self.caller);
        written.map(drop)
    }

    /// Returns once kernels of other nodes show nothing older, in posix consistency.
    pub(crate) fn show_elsewhere(&self) -> Result<()> {
        self.delegate.kernel_pages.show_elsewhere(self.fid)
    }

    pub(crate) fn commit(&self) -> Result<()> {
        let synced = self.delegate.fsync(self.handle);
        self.show_changes();
        // A library has no pages that could be old.
        synced.map(drop)
    }

    pub(crate) fn set_len(&self, len: u64) -> Result<()> {
        let set = SetAttr {
            size: Some(len),
            ..SetAttr::default()
        };
        self.change();
        let cut = self
            .delegate
            .names
            .setattr(self.fid, &set, Some(self.handle), self.caller)
            .and_then(|_| self.delegate.kernel_pages.show_elsewhere(self.fid));
        self.show_changes();
        cut
    }

    pub(crate) fn attr(&self) -> Result<Attr> {
        self.delegate.kernel_pages.write_back_dirty(self.fid);
        self.delegate.names.getattr(self.fid)
    }

    pub(crate) fn allocate(&self, what: Fallocate, offset: u64, len: u64) -> Result<()> {
        self.change();
        self.delegate.fallocate(self.handle, what, offset, len)
    }

    pub(crate) fn seek(&self, offset: u64, target: SeekTarget) -> Result<u64> {
        self.delegate.kernel_pages.write_back_dirty(self.fid);
        self.delegate.seek(self.handle, offset, target)
    }

    /// Locks; `wait`: asked some times a second whether to go on waiting, `None` does not wait.
    pub(crate) fn lock(
        &self,
        lock: &FileLock,
        pid: u32,
        wait: Option<&mut dyn FnMut() -> bool>,
    ) -> Result<()> {
        self.delegate.kernel_pages.write_back_dirty(self.fid);
        // Before it is asked for, as in `unlock`: a shared lock may replace an exclusive one, and then others read.
        self.show_changes();
        let (locks, wanted) = (&self.delegate.locks, self.wanted(lock, pid));
        let granted = match wait {
            None => locks.lock(self.handle, &wanted),
            Some(goes_on) => match locks.lock_or_wait(self.handle, &wanted)? {
                LockOutcome::Granted(stale) => Ok(stale),
                LockOutcome::Waiting(wait) => locks.wait_for_lock(wait, &mut || !goes_on()),
            },
        };
        granted.map(drop)
    }

    pub(crate) fn unlock(&self, space: LockSpace, range: Range<u64>) -> Result<()> {
        self.delegate.kernel_pages.write_back_dirty(self.fid);
        // Before the lock goes: a program of the mount that takes it next must not read pages of before.
        self.show_changes();
        let (owner, handle) = (self.lock_owner, self.handle);
        let locks = &self.delegate.locks;
        locks.unlock(handle, owner, space, range.start, range.end)
    }

    pub(crate) fn test_lock(&self, lock: &FileLock, pid: u32) -> Result<Option<HeldLock>> {
        let wanted = self.wanted(lock, pid);
        self.delegate.locks.test_lock(self.handle, &wanted)
    }

    fn wanted(&self, lock: &FileLock, pid: u32) -> WantedLock {
        WantedLock {
            owner: self.lock_owner,
            space: lock.space,
            start: lock.range.start,
            end: lock.range.end,
            mode: lock.mode,
            pid,
            detect: lock.space == LockSpace::Record,
        }
    }

    /// Commits and closes; only the first call does anything.
    pub(crate) fn close(&self) -> Result<()> {
        if !self.take() {
            return Ok(());
        }
        let flushed = self.delegate.flush(self.handle);
        // Before its locks go, as in `unlock`.
        self.show_changes();
        let released = self.delegate.release(self.handle);
        // Last: the owner of the directory may not answer, and others may wait for the locks.
        released.and(flushed).and(self.remove_temporary())
    }

    /// Whether closing it removes a name.
    pub(crate) fn is_temporary(&self) -> bool {
        self.temporary.is_some()
    }

    fn remove_temporary(&self) -> Result<()> {
        let Some((dir, name)) = &self.temporary else {
            return Ok(());
        };
        let names = &self.delegate.names;
        match names.unlink_file(*dir, name, self.fid, self.caller) {
            // It was renamed or removed before, or the name is another file's now.
            Err(e) if matches!(e.errno(), Errno::NOENT | Errno::STALE) => Ok(()),
            removed => removed,
        }
    }

    /// The handle, which is the caller's to close; `EBADF` if it is closed.
    pub(crate) fn take_handle(&self) -> Result<Handle> {
        match self.take() {
            true => {
                if let Err(e) = self.remove_temporary() {
                    tracing::warn!("the name of a temporary file stays: {e}");
                }
                Ok(self.handle)
            }
            false => Err(Errno::BADF.into()),
        }
    }

    fn take(&self) -> bool {
        self.open.swap(false, Ordering::SeqCst)
    }

    /// The content is about to be changed, above what programs of the mount have written.
    fn change(&self) {
        self.delegate.kernel_pages.write_back_dirty(self.fid);
        self.changed.store(true, Ordering::SeqCst);
    }

    /// Programs of the mount see what was changed.
    fn show_changes(&self) {
        if self.changed.swap(false, Ordering::SeqCst) {
            self.delegate.kernel_pages.refresh_kernel(self.fid);
        }
    }
}

impl Drop for EmbeddedFile {
    fn drop(&mut self) {
        // A caller who needs the outcome calls `close`.
        let _ = self.close();
    }
}

/// A lock that is wanted.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct FileLock {
    pub space: LockSpace,
    pub range: Range<u64>,
    pub mode: LockMode,
}
