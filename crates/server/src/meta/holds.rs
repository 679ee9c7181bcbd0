//! Locks (*holds*) that unfinished intents have at this member: on entries that must not change, on directories that must
//! stay empty.
//!
//! Invariants:
//! - An entry or directory is held by one intent at most.
//! - Holds come only under the inode lock of the directory concerned, so a thread that has that lock and finds no hold may
//!   change the entry.
//! - No thread waits for a hold while it has an inode lock, or in a leaf request.
use crate::Fid;
use forebay_proto::intents::{IntentId, Precondition};
use parking_lot::{Condvar, Mutex};
use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

#[derive(Default)]
struct HoldTable {
    entries: HashMap<(Fid, Vec<u8>), IntentId>,
    emptied: HashMap<Fid, IntentId>,
    held: BTreeMap<IntentId, (Vec<Precondition>, Instant)>,
}

/// The holds of one member.
#[derive(Default)]
pub(crate) struct EntryHolds {
    table: Mutex<HoldTable>,
    released: Condvar,
}

impl EntryHolds {
    /// Another intent that holds this entry.
    pub fn entry(&self, dir: Fid, name: &[u8], me: Option<IntentId>) -> Option<IntentId> {
        let table = self.table.lock();
        if table.entries.is_empty() {
            return None;
        }
        table
            .entries
            .get(&(dir, name.to_vec()))
            .copied()
            .filter(|id| Some(*id) != me)
    }

    /// Another intent that keeps this directory empty.
    pub fn emptying_intent(&self, dir: Fid, me: Option<IntentId>) -> Option<IntentId> {
        self.table
            .lock()
            .emptied
            .get(&dir)
            .copied()
            .filter(|id| Some(*id) != me)
    }

    /// Holds what `preconditions` name. The caller has their inode locks and found nothing of it held.
    pub fn hold(&self, id: IntentId, preconditions: Vec<Precondition>) {
        let mut table = self.table.lock();
        for precondition in &preconditions {
            match precondition {
                Precondition::Entry { dir, name, .. } => {
                    table.entries.insert((*dir, name.clone()), id);
                }
                Precondition::Empty { fid } => {
                    table.emptied.insert(*fid, id);
                }
                Precondition::Link { .. }
                | Precondition::Make { .. }
                | Precondition::Name { .. } => {}
            }
        }
        table.held.insert(id, (preconditions, Instant::now()));
    }

    /// What the intent holds.
    pub fn preconditions(&self, id: IntentId) -> Option<Vec<Precondition>> {
        self.table
            .lock()
            .held
            .get(&id)
            .map(|(preconditions, _)| preconditions.clone())
    }

    /// Releases all that the intent holds and wakes who waits for it.
    pub fn release(&self, id: IntentId) {
        let mut table = self.table.lock();
        for precondition in table
            .held
            .remove(&id)
            .map(|(preconditions, _)| preconditions)
            .unwrap_or_default()
        {
            match precondition {
                Precondition::Entry { dir, name, .. } => {
                    table.entries.remove(&(dir, name));
                }
                Precondition::Empty { fid } => {
                    table.emptied.remove(&fid);
                }
                Precondition::Link { .. }
                | Precondition::Make { .. }
                | Precondition::Name { .. } => {}
            }
        }
        self.released.notify_all();
    }

    /// Waits until the intent holds nothing here, `limit` at most.
    pub fn wait(&self, id: IntentId, limit: Duration) {
        let mut table = self.table.lock();
        let until = Instant::now() + limit;
        while table.held.contains_key(&id)
            && !self.released.wait_until(&mut table, until).timed_out()
        {}
    }

    /// Intents that have held something here for at least `age`.
    pub fn older(&self, age: Duration) -> Vec<IntentId> {
        let table = self.table.lock();
        table
            .held
            .iter()
            .filter(|(_, (_, since))| since.elapsed() >= age)
            .map(|(id, _)| *id)
            .collect()
    }
}
