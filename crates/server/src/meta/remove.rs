//! Removing names: unlink and rmdir.
use super::names;
use super::operations::NamespaceOperations;
use super::plan::{NameInDirectory, OperationPlan};
use crate::{Caller, Fid, Kind, Member, Result};
use rustix::io::Errno;

/// What may lose its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RemovedKind {
    /// An empty directory.
    Directory,
    /// Anything else; only this inode, if one is given.
    NotDirectory(Option<Fid>),
}

impl NamespaceOperations {
    /// Answers what lost the name; `ENOENT` if the name is another inode's than the wanted one.
    pub fn remove(
        &self,
        dir: Fid,
        name: &[u8],
        (by, caller): (Member, Caller),
        removed: RemovedKind,
    ) -> Result<Fid> {
        names::check(name)?;
        self.retry(|| {
            let inode = self.local.directory(dir)?;
            let entry = self.local.get_entry(dir, name)?;
            match (removed, entry.kind == Kind::Dir) {
                (RemovedKind::NotDirectory(Some(fid)), _) if fid != entry.fid => {
                    return Err(Errno::NOENT.into());
                }
                (RemovedKind::NotDirectory(_), true) => return Err(Errno::ISDIR.into()),
                (RemovedKind::Directory, false) => return Err(Errno::NOTDIR.into()),
                _ => {}
            }
            self.check_sticky(inode.uid, inode.mode, entry, caller)?;
            let time = self.local.now();
            let mut plan = OperationPlan::removal();
            plan.change_entry(NameInDirectory { dir, name }, Some(entry), None, time);
            plan.remove(entry, time);
            self.coordinator.run(&plan, by)?;
            Ok(entry.fid)
        })
    }
}
