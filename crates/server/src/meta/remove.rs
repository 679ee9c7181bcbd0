//! Taking names away: unlink and rmdir.
use super::names;
use super::operations::NamespaceOperations;
use super::plan::Plan;
use super::steps::{IntentStep, Precondition};
use crate::{Caller, Fid, Kind, Result};
use rustix::io::Errno;

impl NamespaceOperations {
    pub fn unlink(&self, dir: Fid, name: &[u8], caller: Caller) -> Result<()> {
        names::check(name)?;
        self.retry(|| {
            let inode = self.local.directory(dir)?;
            let entry = self.local.peek(dir, name)?;
            if entry.kind == Kind::Dir {
                return Err(Errno::ISDIR.into());
            }
            self.check_sticky(inode.uid, inode.mode, entry, caller)?;
            let time = self.local.now();
            let mut plan = Plan::removal();
            plan.need(Precondition::Entry {
                dir,
                name: name.to_vec(),
                is: Some(entry),
            });
            plan.step(IntentStep::Entry {
                dir,
                name: name.to_vec(),
                to: None,
            });
            plan.step(IntentStep::Touch {
                dir,
                links: 0,
                time,
            });
            plan.step(IntentStep::Drop {
                fid: entry.fid,
                time,
            });
            self.coordinator.run(&plan)
        })
    }

    pub fn rmdir(&self, dir: Fid, name: &[u8], caller: Caller) -> Result<()> {
        names::check(name)?;
        self.retry(|| {
            let inode = self.local.directory(dir)?;
            let entry = self.local.peek(dir, name)?;
            if entry.kind != Kind::Dir {
                return Err(Errno::NOTDIR.into());
            }
            self.check_sticky(inode.uid, inode.mode, entry, caller)?;
            let time = self.local.now();
            let mut plan = Plan::removal();
            plan.need(Precondition::Entry {
                dir,
                name: name.to_vec(),
                is: Some(entry),
            });
            plan.need(Precondition::Empty { fid: entry.fid });
            plan.step(IntentStep::Entry {
                dir,
                name: name.to_vec(),
                to: None,
            });
            plan.step(IntentStep::Touch {
                dir,
                links: -1,
                time,
            });
            plan.step(IntentStep::Bury {
                fid: entry.fid,
                time,
            });
            self.coordinator.run(&plan)
        })
    }
}
