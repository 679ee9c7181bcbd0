//! The interface through which the namespace (`meta`) calls `files` in the same member.
use super::FileContent;
use crate::inodes::Inode;
use crate::{Fid, Member};
use forebay_proto::meta::NewOpen;
use forebay_storage::Batch;

/// What the namespace asks and tells `files` of this member.
pub trait FilesHook: Send + Sync {
    /// Whether some member holds `fid` open for writing. Called with the inode's lock held: take no inode lock.
    fn writers(&self, fid: Fid) -> bool;
    /// The file was laminated softly, and that has landed. Called with the inode's lock held.
    fn laminated(&self, _fid: Fid, _inode: &Inode) {}
    /// The inode lost its last name (it is in `keys::ORPHANS`): remove it now, or at the last close. Called
    /// without locks.
    fn orphaned(&self, fid: Fid);
    /// Counts an open of a file whose first record has just landed; false if the member has abandoned it. Called with the inode's
    /// lock held.
    fn open_new(&self, fid: Fid, by: Member, open: NewOpen) -> bool;
    /// Whether some member holds `fid` open. Called with the inode's lock held: take no inode lock.
    fn is_open(&self, fid: Fid) -> bool;
    /// A file without a name got its first one, and that has landed. Called with the inode's lock held.
    fn named(&self, fid: Fid);
    /// Adds to `batch`, which takes the file's last name, the removal of all that is kept of it, if that can be done at
    /// once. Called with the inode's lock held, which is kept until the batch has landed; so is the answer. `None`: nothing
    /// was added, and the file becomes an orphan.
    fn remove_at_once<'a>(
        &'a self,
        fid: Fid,
        inode: &Inode,
        batch: &mut Batch,
    ) -> Option<Box<dyn PreparedRemoval + 'a>>;
}

/// The removal of a file that is in a batch. Dropped without `batch_applied`, the batch did not land.
pub trait PreparedRemoval {
    /// The batch has landed. Called with the inode's lock held.
    fn batch_applied(self: Box<Self>);
}

impl FilesHook for FileContent {
    fn writers(&self, fid: Fid) -> bool {
        self.components.opens.writers(fid)
    }
    fn laminated(&self, fid: Fid, inode: &Inode) {
        self.components.patterns.finish(fid, inode);
    }
    fn orphaned(&self, fid: Fid) {
        if self.components.opens.orphan(fid) {
            self.components.work.remove(fid);
        }
    }
    fn open_new(&self, fid: Fid, by: Member, open: NewOpen) -> bool {
        self.opens.open_new(fid, by, open)
    }
    fn is_open(&self, fid: Fid) -> bool {
        self.components.opens.is_open(fid)
    }
    fn named(&self, fid: Fid) {
        self.components.opens.note_named(fid);
    }
    fn remove_at_once<'a>(
        &'a self,
        fid: Fid,
        inode: &Inode,
        batch: &mut Batch,
    ) -> Option<Box<dyn PreparedRemoval + 'a>> {
        // What fails here fails in the background again, and is reported there.
        let removal = self.remover.remove_at_once(fid, inode, batch);
        removal.unwrap_or_default()
    }
}
