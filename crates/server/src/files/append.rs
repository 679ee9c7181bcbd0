//! Where appends go: the owner hands out offsets, so that appends of several nodes never overlap.
use super::Shared;
use super::proto::FilesReply;
use crate::{Fid, Result};
use rustix::io::Errno;

impl Shared {
    /// Reserves `len` bytes behind the published size, every reservation before, and the asker's own pending writes.
    /// Reservations end when nobody holds the file open, or with a truncate.
    pub(super) fn append(&self, fid: Fid, len: u64, pending_end: u64) -> Result<FilesReply> {
        let _inode = self.inodes.lock(fid);
        let size = self.inodes.get(fid)?.size;
        let offset = self
            .opens
            .reserve(fid, len, size.max(pending_end))
            .ok_or(Errno::FBIG)?;
        Ok(FilesReply::Offset(offset))
    }
}
