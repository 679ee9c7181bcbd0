//! What the namespace of a member knows of the content side of the same member.
use crate::Fid;
use crate::files::{Files, Removal};
use crate::inodes::Inode;
use forebay_storage::Batch;

/// What the namespace asks and tells the content side of this member.
pub trait FilesHook: Send + Sync {
    /// Whether some member holds `fid` open for writing. Called with the inode's lock held: take no inode lock.
    fn writers(&self, fid: Fid) -> bool;
    /// The file was laminated softly, and that has landed. Called with the inode's lock held.
    fn laminated(&self, _fid: Fid, _inode: &Inode) {}
    /// The inode lost its last name (it is in `keys::ORPHANS`): remove it now, or at the last close. Called
    /// without locks.
    fn orphaned(&self, fid: Fid);
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
    ) -> Option<Box<dyn Removal + 'a>>;
}

impl FilesHook for Files {
    fn writers(&self, fid: Fid) -> bool {
        Files::writers(self, fid)
    }
    fn laminated(&self, fid: Fid, inode: &Inode) {
        Files::laminated(self, fid, inode);
    }
    fn orphaned(&self, fid: Fid) {
        if let Err(e) = Files::orphaned(self, fid) {
            // Its orphan record stands: the next start removes it.
            tracing::warn!(
                "file {:#x} without a name stays until the next start: {e}",
                fid.0
            );
        }
    }
    fn is_open(&self, fid: Fid) -> bool {
        Files::is_open(self, fid)
    }
    fn named(&self, fid: Fid) {
        Files::got_name(self, fid);
    }
    fn remove_at_once<'a>(
        &'a self,
        fid: Fid,
        inode: &Inode,
        batch: &mut Batch,
    ) -> Option<Box<dyn Removal + 'a>> {
        Files::remove_at_once(self, fid, inode, batch)
    }
}
