//! Renaming, over files and directories, with NOREPLACE and EXCHANGE, within one member and across.
//!
//! The owner of the destination directory coordinates.
use super::attempt::AttemptError;
use super::operations::NamespaceOperations;
use super::plan::Plan;
use super::steps::{EntryTarget, IntentStep, Precondition};
use super::{entries, names};
use crate::{Caller, Fid, Kind, RenameFlags, Result, Time};
use forebay_proto::meta::PeekEntry;
use rustix::io::Errno;

/// One place in the tree.
#[derive(Clone, Copy)]
struct NameInDirectory<'a> {
    dir: Fid,
    name: &'a [u8],
}

impl NameInDirectory<'_> {
    fn need(&self, is: Option<EntryTarget>) -> Precondition {
        Precondition::Entry {
            dir: self.dir,
            name: self.name.to_vec(),
            is,
        }
    }

    fn set(&self, to: Option<EntryTarget>) -> IntentStep {
        IntentStep::Entry {
            dir: self.dir,
            name: self.name.to_vec(),
            to,
        }
    }
}

impl NamespaceOperations {
    pub fn rename(
        &self,
        from: Fid,
        name: &[u8],
        to: Fid,
        to_name: &[u8],
        flags: RenameFlags,
        caller: Caller,
    ) -> Result<()> {
        names::check(name)?;
        names::check(to_name)?;
        if flags.no_replace && flags.exchange {
            return Err(Errno::INVAL.into());
        }
        let source = NameInDirectory { dir: from, name };
        let target = NameInDirectory {
            dir: to,
            name: to_name,
        };
        self.retry(|| match self.rename_plan(source, target, flags, caller)? {
            Some(plan) => self.coordinator.run(&plan),
            None => Ok(()),
        })
    }

    /// The plan by the state now; `None` if there is nothing to do.
    fn rename_plan(
        &self,
        source: NameInDirectory<'_>,
        target: NameInDirectory<'_>,
        flags: RenameFlags,
        caller: Caller,
    ) -> Result<Option<Plan>, AttemptError> {
        let moved = self.peek_anywhere(source)?;
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
        match replaced {
            Some(replaced) if flags.exchange => {
                Ok(Some(exchange(source, target, moved, replaced, time)))
            }
            _ => Ok(Some(replace(source, target, moved, replaced, time)?)),
        }
    }

    fn peek_anywhere(&self, spot: NameInDirectory<'_>) -> Result<EntryTarget> {
        let request = PeekEntry {
            dir: spot.dir,
            name: spot.name.to_vec(),
        };
        self.members.call(spot.dir.owner(), request)
    }
}

fn is_dir(entry: EntryTarget) -> i32 {
    i32::from(entry.kind == Kind::Dir)
}

/// `moved` goes from `source` to `target`; what was there goes.
fn replace(
    source: NameInDirectory<'_>,
    target: NameInDirectory<'_>,
    moved: EntryTarget,
    replaced: Option<EntryTarget>,
    time: Time,
) -> Result<Plan, AttemptError> {
    let mut plan = Plan::default();
    plan.need(source.need(Some(moved)));
    plan.need(target.need(replaced));
    plan.step(source.set(None));
    plan.step(target.set(Some(moved)));
    plan.step(IntentStep::Touch {
        dir: source.dir,
        links: -is_dir(moved),
        time,
    });
    plan.step(IntentStep::Touch {
        dir: target.dir,
        links: is_dir(moved) - replaced.map_or(0, is_dir),
        time,
    });
    move_steps(&mut plan, moved, source.dir, target.dir, time);
    if let Some(replaced) = replaced {
        match (moved.kind == Kind::Dir, replaced.kind == Kind::Dir) {
            (true, false) => return Err(Errno::NOTDIR.into()),
            (false, true) => return Err(Errno::ISDIR.into()),
            (true, true) => {
                plan.need(Precondition::Empty { fid: replaced.fid });
                plan.step(IntentStep::Bury {
                    fid: replaced.fid,
                    time,
                });
            }
            (false, false) => plan.step(IntentStep::Drop {
                fid: replaced.fid,
                time,
            }),
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
) -> Plan {
    let links = is_dir(moved) - is_dir(other);
    let mut plan = Plan::default();
    plan.need(source.need(Some(moved)));
    plan.need(target.need(Some(other)));
    plan.step(source.set(Some(other)));
    plan.step(target.set(Some(moved)));
    plan.step(IntentStep::Touch {
        dir: source.dir,
        links: -links,
        time,
    });
    plan.step(IntentStep::Touch {
        dir: target.dir,
        links,
        time,
    });
    move_steps(&mut plan, moved, source.dir, target.dir, time);
    move_steps(&mut plan, other, target.dir, source.dir, time);
    plan
}

fn move_steps(plan: &mut Plan, entry: EntryTarget, from: Fid, to: Fid, time: Time) {
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
