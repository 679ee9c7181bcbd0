//! Renaming, over files and directories, with NOREPLACE and EXCHANGE, within one member and across.
//!
//! The owner of the destination directory coordinates.
use super::attempt::AttemptError;
use super::operations::NamespaceOperations;
use super::plan::{NameInDirectory, OperationPlan};
use super::steps::{EntryTarget, IntentStep};
use super::{entries, names};
use crate::{Caller, Fid, Kind, Member, RenameFlags, Result, Time};
use forebay_proto::meta::{GetEntry, Rename};
use rustix::io::Errno;

impl NamespaceOperations {
    /// Answers what was moved, and what was there before.
    pub fn rename(&self, request: &Rename, by: Member) -> Result<Vec<Fid>> {
        names::check(&request.name)?;
        names::check(&request.to_name)?;
        let (flags, caller) = (request.flags, request.caller);
        if flags.no_replace && flags.exchange {
            return Err(Errno::INVAL.into());
        }
        let source = NameInDirectory {
            dir: request.from,
            name: &request.name,
        };
        let target = NameInDirectory {
            dir: request.to,
            name: &request.to_name,
        };
        self.retry(|| match self.rename_plan(source, target, flags, caller)? {
            Some((plan, concerned)) => {
                self.coordinator.run(&plan, by)?;
                Ok(concerned)
            }
            None => Ok(Vec::new()),
        })
    }

    /// The plan by the state now, and what it moves and replaces; `None` if there is nothing to do.
    fn rename_plan(
        &self,
        source: NameInDirectory<'_>,
        target: NameInDirectory<'_>,
        flags: RenameFlags,
        caller: Caller,
    ) -> Result<Option<(OperationPlan, Vec<Fid>)>, AttemptError> {
        let moved = self.get_entry_anywhere(source)?;
        let dir = self.local.directory(target.dir)?;
        let replaced = entries::get(&self.local.store, target.dir, target.name)?;
        if replaced.is_some() && flags.no_replace {
            return Err(Errno::EXIST.into());
        }
        if replaced.is_none() && flags.exchange {
            return Err(Errno::NOENT.into());
        }
        if replaced.is_some_and(|r| r.fid == moved.fid) {
            return Ok(None);
        }
        if source.dir == target.dir {
            self.check_sticky(dir.uid, dir.mode, moved, caller)?;
        } else if caller.uid != 0 {
            let from = self.attr_of(source.dir)?;
            self.check_sticky(from.uid, from.mode, moved, caller)?;
        }
        if let Some(replaced) = replaced {
            self.check_sticky(dir.uid, dir.mode, replaced, caller)?;
        }
        let time = self.local.now();
        let plan = match replaced {
            Some(replaced) if flags.exchange => exchange(source, target, moved, replaced, time),
            _ => replace(source, target, moved, replaced, time)?,
        };
        let concerned = [Some(moved), replaced].into_iter().flatten();
        Ok(Some((plan, concerned.map(|entry| entry.fid).collect())))
    }

    fn get_entry_anywhere(&self, spot: NameInDirectory<'_>) -> Result<EntryTarget> {
        let request = GetEntry {
            dir: spot.dir,
            name: spot.name.to_vec(),
        };
        self.members.call(spot.dir.owner(), request)
    }
}

/// `moved` goes from `source` to `target`; what was there goes.
fn replace(
    source: NameInDirectory<'_>,
    target: NameInDirectory<'_>,
    moved: EntryTarget,
    replaced: Option<EntryTarget>,
    time: Time,
) -> Result<OperationPlan, AttemptError> {
    let mut plan = OperationPlan::default();
    plan.change_entry(source, Some(moved), None, time);
    plan.change_entry(target, replaced, Some(moved), time);
    move_steps(&mut plan, moved, source.dir, target.dir, time);
    if let Some(replaced) = replaced {
        match (moved.kind == Kind::Dir, replaced.kind == Kind::Dir) {
            (true, false) => return Err(Errno::NOTDIR.into()),
            (false, true) => return Err(Errno::ISDIR.into()),
            _ => plan.remove(replaced, time),
        }
    }
    Ok(plan)
}

/// `moved` and `other` change places.
fn exchange(
    source: NameInDirectory<'_>,
    target: NameInDirectory<'_>,
    moved: EntryTarget,
    other: EntryTarget,
    time: Time,
) -> OperationPlan {
    let mut plan = OperationPlan::default();
    plan.change_entry(source, Some(moved), Some(other), time);
    plan.change_entry(target, Some(other), Some(moved), time);
    move_steps(&mut plan, moved, source.dir, target.dir, time);
    move_steps(&mut plan, other, target.dir, source.dir, time);
    plan
}

fn move_steps(plan: &mut OperationPlan, entry: EntryTarget, from: Fid, to: Fid, time: Time) {
    let parent = (entry.kind == Kind::Dir && from != to).then_some(to);
    plan.step(IntentStep::Moved {
        fid: entry.fid,
        parent,
        time,
    });
    if let Some(parent) = parent {
        plan.moves(entry.fid, parent);
    }
}
