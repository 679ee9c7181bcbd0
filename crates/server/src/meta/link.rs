//! The operation `link`: a hard link to a file, or the first name of one that was made without (`O_TMPFILE`).
use super::operations::NamespaceOperations;
use super::plan::{NameInDirectory, OperationPlan};
use super::steps::{EntryTarget, Precondition};
use super::{entries, names};
use crate::{Attr, Error, Fid, Kind, Member, Result};
use rustix::io::Errno;

impl NamespaceOperations {
    pub fn link(&self, fid: Fid, dir: Fid, name: &[u8], by: Member) -> Result<Attr> {
        names::check(name)?;
        self.retry(|| {
            self.local.directory(dir)?;
            if entries::get(&self.local.store, dir, name)?.is_some() {
                return Err(Errno::EXIST.into());
            }
            let (kind, first) = match self.attr_of(fid) {
                Ok(attr) => (attr.kind, attr.nlink == 0),
                Err(Error::Posix(Errno::STALE)) => return Err(Errno::NOENT.into()),
                Err(e) => return Err(e.into()),
            };
            if kind == Kind::Dir {
                return Err(Errno::PERM.into());
            }
            let time = self.local.now();
            let mut plan = OperationPlan::default();
            let spot = NameInDirectory { dir, name };
            plan.change_entry(spot, None, Some(EntryTarget { fid, kind }), time);
            plan.require(match first {
                true => Precondition::Name { fid, time },
                false => Precondition::Link { fid, time },
            });
            self.coordinator.run(&plan, by).map(drop)
        })?;
        self.attr_of(fid)
    }
}
