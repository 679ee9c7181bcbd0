//! Read-only for ever (design section 4).
use super::Shared;
use super::proto::FilesReply;
use crate::{Fid, Kind, Lamination, Result, Time};
use forebay_storage::Batch;
use rustix::io::Errno;

impl Shared {
    /// `EBUSY` while a member holds the file open for writing. Doing it again changes nothing.
    pub(super) fn laminate(&self, fid: Fid) -> Result<FilesReply> {
        let _inode = self.inodes.lock(fid);
        let mut inode = self.inodes.get(fid)?;
        match inode.kind {
            Kind::File => {}
            Kind::Dir => return Err(Errno::ISDIR.into()),
            _ => return Err(Errno::INVAL.into()),
        }
        if self.opens.writers(fid) {
            return Err(Errno::BUSY.into());
        }
        if inode.lamination != Lamination::Hard {
            inode.lamination = Lamination::Hard;
            inode.ctime = Time::now();
            let mut batch = Batch::new();
            self.inodes.put(&mut batch, fid, &inode);
            self.store.apply(batch)?;
            self.finish_patterns(fid, &inode);
        }
        Ok(FilesReply::Attr(inode.attr(fid)))
    }
}
