//! Truncating, punching, zeroing and preallocating.
//!
//! A truncate is a commit of its own (with everything pending before it): it needs the exact size. Holes are pending
//! writes of zeros that store nothing; they are published like any write.
use super::intervals::Source;
use super::open_file::OpenFile;
use super::write::{MAX_SIZE, end_of};
use super::{Delegate, Fallocate, Handle};
use crate::{Caller, Fid, Result, Time};
use rustix::io::Errno;
use std::sync::Arc;

impl Delegate {
    /// Makes the file exactly `size` long.
    pub(super) fn truncate(
        &self,
        fid: Fid,
        size: u64,
        handle: Option<Handle>,
        caller: Caller,
    ) -> Result<()> {
        if let Some(handle) = handle {
            let open = self.table.get(handle)?;
            self.used(&open);
            if !open.flags.write || open.file.fid != fid {
                return Err(Errno::BADF.into());
            }
            return self.cut_at(&open.file, size, Some(caller));
        }
        let file = self.table.hold(&self.ask_file(fid)?);
        let result = self.cut_at(&file, size, Some(caller));
        self.unhold(&file);
        result
    }

    /// Publishes everything pending and the new size as one commit. `caller`: whose set-id bits rule applies, if any.
    pub(super) fn cut_at(
        &self,
        file: &Arc<OpenFile>,
        size: u64,
        caller: Option<Caller>,
    ) -> Result<()> {
        if size > MAX_SIZE {
            return Err(Errno::FBIG.into());
        }
        let _commit = file.commit_lock.lock();
        {
            let mut state = file.state.lock();
            let setid = state.attr.mode & 0o6000 != 0 && caller.is_some_and(|c| c.uid != 0);
            state.pending.attr.clear_setid |= setid;
        }
        self.publish_locked(file, Some(size), self.always_sync)
    }

    /// Punches, zeroes or preallocates. Preallocation reserves nothing (a log-structured store writes elsewhere anyway): it
    /// fails if there is no room now, and makes the file longer.
    ///
    /// # Errors
    /// `EBADF`, `EINVAL` for an empty range, `EFBIG`, `ENOSPC`.
    pub fn fallocate(&self, handle: Handle, what: Fallocate, offset: u64, len: u64) -> Result<()> {
        let _at = self.counters.other();
        let open = self.table.get(handle)?;
        if !open.flags.write {
            return Err(Errno::BADF.into());
        }
        if len == 0 {
            return Err(Errno::INVAL.into());
        }
        let len = usize::try_from(len).map_err(|_| Errno::FBIG)?;
        let end = end_of(offset, len)?;
        let file = &open.file;
        if !what.punch && !what.zero {
            let (_, _, free) = self.node.data.space()?;
            let missing = end.saturating_sub(file.state.lock().size().max(offset));
            if missing > free {
                return Err(Errno::NOSPC.into());
            }
        }
        {
            let mut state = file.state.lock();
            if what.punch || what.zero {
                state.pending.put(offset..end, Source::Hole);
                state.pending.touch(Time::now());
            }
            // Whatever size this node knows: another may have made the file shorter meanwhile.
            if !what.punch && !what.keep_size {
                state.pending.reach(end);
                state.pending.touch(Time::now());
            }
        }
        if self.is_posix() {
            self.publish(file, self.always_sync)
        } else {
            Ok(())
        }
    }
}
