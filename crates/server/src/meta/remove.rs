//! Removing names: unlink and rmdir.
use super::names;
use super::operations::NamespaceOperations;
use super::plan::{NameInDirectory, OperationPlan};
use crate::{Caller, Fid, Kind, Member, Result};
use rustix::io::Errno;

impl NamespaceOperations {
    /// `directory`: it must be one, and else none. Answers what lost the name.
    pub fn remove(
        &self,
        dir: Fid,
        name: &[u8],
        (by, caller): (Member, Caller),
        directory: bool,
    ) -> Result<Fid> {
        names::check(name)?;
        self.retry(|| {
            let inode = self.local.directory(dir)?;
            let entry = self.local.get_entry(dir, name)?;
            match (directory, entry.kind == Kind::Dir) {
                (false, true) => return Err(Errno::ISDIR.into()),
                (true, false) => return Err(Errno::NOTDIR.into()),
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
