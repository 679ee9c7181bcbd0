//! Truncating, punching, zeroing and preallocating.
//!
//! A truncate is a commit of its own (with everything pending before it): it needs the exact size. Holes are pending
//! writes of zeros that store nothing; they are published like any write.
use super::intervals::Source;
use super::write::end_of;
use super::{Delegate, Fallocate, Handle};
use crate::{Caller, Fid, Result, Time};
use rustix::io::Errno;

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
            open.used();
            if !open.flags.write || open.file.fid != fid {
                return Err(Errno::BADF.into());
            }
            return self.committer.cut_at(&open.file, size, Some(caller));
        }
        let file = self.table.hold(&self.views.ask_file(fid)?);
        let result = self.committer.cut_at(&file, size, Some(caller));
        self.opens.unhold(&file);
        result
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
        if self.posix {
            self.committer.publish(file, self.always_sync)
        } else {
            Ok(())
        }
    }
}
