//! Truncating, punching, zeroing and preallocating.
//!
//! A truncate is a commit of its own, together with everything pending before it: it needs the exact size. A punched hole is a pending
//! write that stores no bytes, and is published like any write.
use super::commit_plan::FileCut;
use super::handles::Handle;
use super::intervals::ByteSource;
use super::open_file::OpenFile;
use super::pending::write_end;
use super::write::LayerWriter;
use crate::{Caller, Fid, Result, Time};
use rustix::io::Errno;

/// What `fallocate` does with the range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fallocate {
    /// Make it a hole; the size stays.
    pub punch: bool,
    /// Make it read as zeros.
    pub zero: bool,
    /// The size stays, also if the range ends after it.
    pub keep_size: bool,
}

/// Changes nothing that can be seen.
const RESERVE_WITHIN: Fallocate = Fallocate {
    punch: false,
    zero: false,
    keep_size: true,
};

impl LayerWriter {
    /// Makes the file exactly as long as `cut` says.
    pub(super) fn truncate(
        &self,
        fid: Fid,
        cut: FileCut,
        handle: Option<Handle>,
        caller: Caller,
    ) -> Result<()> {
        if let Some(handle) = handle {
            let open = self.ctx.table.get_writable(handle)?;
            if open.file.fid != fid {
                return Err(Errno::BADF.into());
            }
            return self.committer.cut_at(&open.file, cut, Some(caller));
        }
        let attr = self.ctx.ask_file(fid)?;
        let file = self.ctx.table.acquire(&attr);
        let result = self.committer.cut_at(&file, cut, Some(caller));
        self.opens.release(&file);
        result
    }

    /// Punches, zeroes or preallocates. Preallocation reserves nothing (a log-structured store writes elsewhere anyway): it
    /// fails if there is no room now, and makes the file longer. `mtime`: of the change; `None`: the file keeps the one that it has.
    pub(super) fn fallocate(
        &self,
        file: &OpenFile,
        what: Fallocate,
        offset: u64,
        len: u64,
        mtime: Option<Time>,
    ) -> Result<()> {
        if len == 0 {
            return Err(Errno::INVAL.into());
        }
        let len = usize::try_from(len).map_err(|_| Errno::FBIG)?;
        let end = write_end(offset, len)?;
        if !what.punch && !what.zero {
            let (_, _, free) = self.ctx.node.data.space()?;
            let missing = end.saturating_sub(file.state.lock().size().max(offset));
            if missing > free {
                return Err(Errno::NOSPC.into());
            }
        }
        {
            let mut state = file.state.lock();
            state.content_changes();
            if what.punch || what.zero {
                state.pending.put(offset..end, ByteSource::Hole);
            }
            // Whatever size this node knows: another may have made the file shorter meanwhile.
            if !what.punch && !what.keep_size {
                state.pending.extend_to(end);
            }
            // Else nothing has changed.
            if let Some(mtime) = mtime.filter(|_| what != RESERVE_WITHIN) {
                state.pending.touch(mtime);
            }
        }
        match self.ctx.posix {
            true => self.committer.publish(file),
            false => Ok(()),
        }
    }
}
