//! What a reader asks the owner first: the file's attributes and the sequence its reads must show.
//!
//! A view may name a commit that a slice owner has not published yet. That is safe: the slice owner still has the part
//! staged, and asks for the decision before it answers extents. So views never wait for a commit in progress.
use super::Shared;
use super::proto::FilesReply;
use super::records::{self, CommitId};
use crate::{Error, Fid, Result, keys};
use rustix::io::Errno;

impl Shared {
    pub(super) fn view(&self, fid: Fid) -> Result<FilesReply> {
        Ok(FilesReply::Attr(self.inodes.get(fid)?.attr(fid)))
    }

    /// The sequence of a decided commit. With `abort`, `None` is a promise, kept on disk, that it never will be decided.
    pub(super) fn decision(&self, id: CommitId, abort: bool) -> Result<FilesReply> {
        // Commits decide under the inode's lock, so none slips between the look and the promise.
        let _inode = self.inodes.lock(id.fid);
        if let Some(seq) = self.recall(id)? {
            return Ok(FilesReply::Decision(Some(seq)));
        }
        match self.inodes.get(id.fid) {
            Ok(_) => {}
            // A removed file: no commit will find it.
            Err(Error::Posix(Errno::STALE)) => return Ok(FilesReply::Decision(None)),
            Err(error) => return Err(error),
        }
        if abort {
            // Small, and it lets a member give room back.
            let mut batch = super::reclaiming();
            batch.put(keys::DECISIONS, id.abort_key(), records::abort_value());
            self.store.apply(batch)?;
        }
        Ok(FilesReply::Decision(None))
    }
}
