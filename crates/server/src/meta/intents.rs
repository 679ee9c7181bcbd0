//! The intents that this member coordinates, from their number to their end.
//!
//! Invariants:
//! - An intent is live from `begin` until every member did its steps, or has been told that it was given up. `Ask` answers
//!   by that; after a crash only intents with a record (committed ones) are live, the others never happened.
//! - The record is deleted only after all members confirmed their steps.
use super::{
    Meta,
    proto::{IntentId, MetaRequest},
    records,
    records::{Intent, Tag},
};
use crate::{Error, Member, Result, counter::Counter};
use forebay_storage::{Batch, Store};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

struct Live {
    numbers: BTreeSet<u64>,
    /// Above every number given out.
    next: u64,
}

/// Intents of this coordinator.
pub(crate) struct Intents {
    member: Member,
    counter: Counter,
    live: Mutex<Live>,
    /// Committed, but some member could not do its steps yet.
    left: Mutex<BTreeMap<u64, Intent>>,
}

impl Intents {
    pub fn open(store: &Arc<Store>, member: Member) -> Result<Intents> {
        let left: BTreeMap<u64, Intent> = records::all(store, Tag::Intent)?
            .into_iter()
            .map(|(id, intent)| (id.number, intent))
            .collect();
        let next = left.last_key_value().map_or(0, |(number, _)| number + 1);
        Ok(Intents {
            member,
            counter: Counter::open(store.clone(), b"intent", 1)?,
            live: Mutex::new(Live {
                numbers: left.keys().copied().collect(),
                next,
            }),
            left: Mutex::new(left),
        })
    }

    /// A new live intent.
    pub fn begin(&self) -> Result<IntentId> {
        let mut live = self.live.lock();
        let number = self.counter.next()?;
        live.numbers.insert(number);
        live.next = number + 1;
        Ok(IntentId {
            coordinator: self.member,
            number,
        })
    }

    /// The intent is over.
    pub fn end(&self, id: IntentId) {
        self.live.lock().numbers.remove(&id.number);
    }

    /// All intents of this member under this number are over.
    pub fn below(&self) -> u64 {
        let live = self.live.lock();
        live.numbers.first().copied().unwrap_or(live.next)
    }

    pub fn is_live(&self, id: IntentId) -> bool {
        id.coordinator == self.member && self.live.lock().numbers.contains(&id.number)
    }

    /// Keeps a committed intent for another try.
    fn leave(&self, id: IntentId, intent: Intent) {
        self.left.lock().insert(id.number, intent);
    }

    /// Takes all intents that wait for another try.
    fn take_left(&self) -> Vec<(IntentId, Intent)> {
        let left = std::mem::take(&mut *self.left.lock());
        left.into_iter()
            .map(|(number, intent)| {
                (
                    IntentId {
                        coordinator: self.member,
                        number,
                    },
                    intent,
                )
            })
            .collect()
    }

    /// How many committed intents wait for another try.
    pub fn left(&self) -> usize {
        self.left.lock().len()
    }
}

impl Meta {
    /// Has every member do its steps of a committed intent, then forgets it. What cannot be done now is left for
    /// `finish_left`; answers the member that could not.
    pub(crate) fn finish(&self, id: IntentId, intent: Intent) -> Option<Member> {
        match self.try_finish(id, &intent) {
            Ok(()) => {
                self.intents.end(id);
                None
            }
            Err((member, e)) => {
                tracing::info!(
                    "intent {} waits for its last steps at member {member}: {e}",
                    id.number
                );
                self.intents.leave(id, intent);
                Some(member)
            }
        }
    }

    fn try_finish(&self, id: IntentId, intent: &Intent) -> Result<(), (Member, Error)> {
        for (member, steps) in &intent.steps {
            let below = self.intents.below();
            let request = MetaRequest::Finish {
                intent: id,
                below,
                steps: steps.clone(),
            };
            self.call(*member, request).map_err(|e| (*member, e))?;
        }
        if intent.gate {
            // Only now: the next directory move must see the new parents.
            self.call(0, MetaRequest::Abort { intent: id })
                .map_err(|e| (0, e))?;
        }
        let mut batch = Batch::new();
        records::delete(&mut batch, Tag::Intent, id);
        self.apply(batch).map_err(|e| (self.member(), e))
    }

    /// Tries all committed intents again that wait for it.
    pub(crate) fn finish_left(&self) {
        let mut down = BTreeSet::new();
        for (id, intent) in self.intents.take_left() {
            if intent.steps.iter().any(|(member, _)| down.contains(member)) {
                // One wait for a member that does not answer is enough in a round.
                self.intents.leave(id, intent);
            } else if let Some(member) = self.finish(id, intent) {
                down.insert(member);
            }
        }
    }
}
