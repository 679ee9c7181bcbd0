//! Requests of a kernel that keeps dirty pages (FUSE writeback cache); one member only.
//!
//! Such a kernel chooses where appended bytes go, and keeps size and times of the files that it knows. It writes pages when it
//! likes, at the latest before a close or an fsync reaches this node, and then hands over the time of the last change. So
//! nothing here chooses an offset or takes the time.
//!
//! Invariant: after a commit the file has the time that the kernel handed over last, to the nanosecond, unless a cut or a change
//! past the kernel's pages came later.
use super::commit_plan::FileCut;
use super::context::DelegateContext;
use super::handles::Handle;
use super::read::LayerReader;
use super::truncate::Fallocate;
use super::write::{LayerWriter, WriteOrigin};
use crate::{Attr, Caller, Fid, Result, Time};
use bytes::Bytes;
use rustix::io::Errno;
use std::sync::Arc;
use std::time::Duration;

/// Most bytes that a kernel sends at once, with few exceptions.
const ROOM_OF_A_WRITE: u64 = 1 << 20;

/// See the head of this file.
pub struct WriteBackCalls {
    pub(super) ctx: Arc<DelegateContext>,
    pub(super) reader: Arc<LayerReader>,
    pub(super) writer: Arc<LayerWriter>,
}

impl WriteBackCalls {
    /// The rest of a page of which a program writes a part, through the writer's own handle, which may be open for writing alone. Short
    /// only at the end of the file.
    ///
    /// # Errors
    /// As read, but `EBADF` only if there is no such handle.
    pub fn read(&self, handle: Handle, offset: u64, len: u32) -> Result<Bytes> {
        let _at = self.ctx.counters.begin();
        let open = self.ctx.table.get(handle)?;
        let mut waited = Duration::ZERO;
        let bytes = self
            .reader
            .read_file(&open.file, offset, len, &mut waited)?;
        self.ctx.counters.read(bytes.len());
        Ok(bytes)
    }

    /// Bytes for where the kernel says, all or nothing. Dirty pages that cannot be written are lost: those who have the file open for
    /// writing are told at their next flush or sync.
    ///
    /// # Errors
    /// `EBADF`, `EFBIG`, `ENOSPC`.
    pub fn write(
        &self,
        handle: Handle,
        offset: u64,
        data: &[u8],
        origin: WriteOrigin,
    ) -> Result<()> {
        let _at = self.ctx.counters.begin();
        let open = self.ctx.table.get_writable(handle)?;
        let written = self.writer.write(&open, offset, data, origin);
        if let (WriteOrigin::Writeback, Err(e)) = (origin, &written) {
            tracing::warn!(fid = open.file.fid.0, offset, len = data.len(), error = %e,
                "pages that the kernel had kept are lost; their writers are told at fsync or close");
            open.file.writeback_errors.add(e.errno());
        }
        written.map(drop)
    }

    /// What this node may still store, bytes.
    ///
    /// # Errors
    /// As the disk.
    pub fn room(&self) -> Result<u64> {
        Ok(self.ctx.node.data.space()?.2)
    }

    /// Whether more pages of the file may come: none do while there is no room and some were lost of which the handle has not been told.
    ///
    /// # Errors
    /// `ENOSPC`, which does not count as told; `EBADF`.
    pub fn may_write_more(&self, handle: Handle) -> Result<()> {
        let open = self.ctx.table.get(handle)?;
        if !open.file.writeback_errors.has_unreported(&open.reported) {
            return Ok(());
        }
        match self.room()? < ROOM_OF_A_WRITE {
            true => Err(Errno::NOSPC.into()),
            false => Ok(()),
        }
    }

    /// Sets a file's length, which the kernel does not treat as a change of its time.
    ///
    /// # Errors
    /// As a truncate.
    pub fn truncate(
        &self,
        fid: Fid,
        size: u64,
        handle: Option<Handle>,
        caller: Caller,
    ) -> Result<()> {
        let _at = self.ctx.counters.other();
        let cut = FileCut { size, mtime: None };
        self.writer.truncate(fid, cut, handle, caller)
    }

    /// Punches, zeroes or preallocates; the kernel hands over the time by itself.
    ///
    /// # Errors
    /// As [`Delegate::fallocate`](super::Delegate::fallocate).
    pub fn fallocate(&self, handle: Handle, what: Fallocate, offset: u64, len: u64) -> Result<()> {
        let _at = self.ctx.counters.other();
        let open = self.ctx.table.get_writable(handle)?;
        self.writer.fallocate(&open.file, what, offset, len, None)
    }

    /// Takes note of a time that the kernel gives a file: changes made from now on are not before it.
    pub fn observe_kernel_time(&self, time: Time) {
        self.ctx.kernel_clock.observe(time);
    }

    /// The kernel's time of the last change of a file that is open for writing. Published with the bytes, by the flush, fsync or release
    /// that follows. Answers the attributes as this node sees them.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn set_kernel_mtime(&self, handle: Handle, mtime: Time) -> Result<Attr> {
        let _at = self.ctx.counters.other();
        let open = self.ctx.table.get_writable(handle)?;
        let mut state = open.file.state.lock();
        state.set_kernel_mtime(mtime);
        Ok(state.shown())
    }
}
