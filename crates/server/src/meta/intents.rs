//! The intents that this member coordinates, from their number to their end.
//!
//! Invariants:
//! - An intent is live from `begin` until its record is deleted, or every member has heard that it was aborted. `AskIntent`
//!   answers by that; after a crash only intents with a record (committed ones) are live, the others never happened.
//! - The record names the members that may lack steps, or lack them on disk; it is deleted when there are none. They are asked
//!   to sync for many intents at once, now and then, because it costs each of them a sync of its log.
//! - So while a member is dead, the intents that it had not finished stay recorded, for it alone. The other members treat them as
//!   finished and delete their markers (`applied`). No new intent that needs the dead member can be decided.
use super::records::{self, Intent, RecordTag};
use crate::{Member, Result};
use forebay_data::Counter;
use forebay_proto::intents::IntentId;
use forebay_storage::Store;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

struct LiveIntents {
    /// With the members that may still hear of it; `None`: any.
    numbers: BTreeMap<u64, Option<BTreeSet<Member>>>,
    /// Above every number given out.
    next: u64,
}

/// Intents of this coordinator.
pub(crate) struct Intents {
    member: Member,
    counter: Counter,
    live: Mutex<LiveIntents>,
    /// Committed, but some member could not do its steps yet.
    left: Mutex<BTreeMap<u64, Intent>>,
    /// Parts of committed intents that were done, perhaps not on disk.
    pub done: Mutex<Vec<(IntentId, Intent)>>,
    /// Held while intents are tried again, and while they are forgotten: one that is tried stands in neither list, and must not be
    /// taken for one that is over.
    pub upkeep: Mutex<()>,
}

impl Intents {
    pub fn open(store: &Arc<Store>, member: Member) -> Result<Intents> {
        let left: BTreeMap<u64, Intent> = records::all(store, RecordTag::Intent)?
            .into_iter()
            .map(|(id, intent)| (id.number, intent))
            .collect();
        let next = left.last_key_value().map_or(0, |(number, _)| number + 1);
        Ok(Intents {
            member,
            counter: Counter::open(store.clone(), b"intent", 1)?,
            live: Mutex::new(LiveIntents {
                numbers: left.iter().map(|(n, i)| (*n, Some(members(i)))).collect(),
                next,
            }),
            left: Mutex::new(left),
            done: Mutex::default(),
            upkeep: Mutex::default(),
        })
    }

    /// A new live intent.
    pub fn begin(&self) -> Result<IntentId> {
        let mut live = self.live.lock();
        let number = self.counter.next()?;
        live.numbers.insert(number, None);
        live.next = number + 1;
        Ok(IntentId::new(self.member, number))
    }

    /// The intent is over.
    pub fn end(&self, id: IntentId) {
        self.live.lock().numbers.remove(&id.number);
    }

    /// All intents of this member under this number are over for `member`.
    pub fn below(&self, member: Member) -> u64 {
        let live = self.live.lock();
        let concerns =
            |of: &Option<BTreeSet<Member>>| of.as_ref().is_none_or(|m| m.contains(&member));
        let mut numbers = live.numbers.iter();
        let first = numbers.find(|(_, of)| concerns(of));
        first.map_or(live.next, |(number, _)| *number)
    }

    /// Only these members may still hear of the intent.
    pub fn set_remaining_members(&self, id: IntentId, members: BTreeSet<Member>) {
        if let Some(of) = self.live.lock().numbers.get_mut(&id.number) {
            *of = Some(members);
        }
    }

    pub fn is_live(&self, id: IntentId) -> bool {
        id.coordinator == self.member && self.live.lock().numbers.contains_key(&id.number)
    }

    /// Keeps a committed intent for another try.
    pub fn queue_retry(&self, id: IntentId, intent: Intent) {
        self.left.lock().insert(id.number, intent);
    }

    /// What is left to do of an intent.
    pub fn left_of(&self, id: IntentId) -> Option<Intent> {
        self.left.lock().get(&id.number).cloned()
    }

    /// Takes all intents that wait for another try.
    pub fn take_retries(&self) -> Vec<(IntentId, Intent)> {
        let left = std::mem::take(&mut *self.left.lock());
        left.into_iter()
            .map(|(number, intent)| (IntentId::new(self.member, number), intent))
            .collect()
    }

    /// How many committed intents wait for another try.
    #[cfg(test)]
    pub fn left(&self) -> usize {
        self.left.lock().len()
    }
}

/// The members with a part of the intent.
pub(crate) fn members(intent: &Intent) -> BTreeSet<Member> {
    intent.parts.iter().map(|(member, _)| *member).collect()
}
