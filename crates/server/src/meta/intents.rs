//! The intents that this member coordinates, from their number to their end.
//!
//! Invariants:
//! - An intent is live from `begin` until its record is deleted, or every member has been told that it was given up. `Ask` answers
//!   by that; after a crash only intents with a record (committed ones) are live, the others never happened.
//! - The record is deleted only after all members have their steps on disk. They are asked for that for many intents at once,
//!   now and then, because it costs each of them a sync of its log.
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

/// Records that one batch deletes.
const TOGETHER: usize = 1024;

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
    /// Every member did its steps, perhaps not on disk: the members.
    done: Mutex<Vec<(IntentId, Vec<Member>)>>,
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
            done: Mutex::default(),
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
    pub fn leave(&self, id: IntentId, intent: Intent) {
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
    /// Has every member do its steps of a committed intent; `forget_done` forgets it. What cannot be done now is left for
    /// `finish_left`; answers the member that could not.
    pub(crate) fn finish(&self, id: IntentId, intent: Intent) -> Option<Member> {
        match self.try_finish(id, &intent) {
            Ok(()) => {
                let members = intent.parts.iter().map(|(member, _)| *member);
                self.intents.done.lock().push((id, members.collect()));
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

    /// At a start, before any member finishes an intent: what the members made for those that a crash left is there.
    pub(crate) fn remake_left(&self) {
        for (id, intent) in self.intents.take_left() {
            for (member, part) in &intent.parts {
                if part.makes.is_empty() {
                    continue;
                }
                let request = MetaRequest::Remake {
                    intent: id,
                    below: self.intents.below(),
                    makes: part.makes.clone(),
                };
                if let Err(e) = self.call(*member, request) {
                    tracing::info!("intent {} waits for member {member}: {e}", id.number);
                }
            }
            self.intents.leave(id, intent);
        }
    }

    fn try_finish(&self, id: IntentId, intent: &Intent) -> Result<(), (Member, Error)> {
        for (member, part) in &intent.parts {
            let below = self.intents.below();
            let request = MetaRequest::Finish {
                intent: id,
                below,
                part: part.clone(),
            };
            self.call(*member, request).map_err(|e| (*member, e))?;
        }
        if intent.gate {
            // Only now: the next directory move must see the new parents.
            self.call(0, MetaRequest::Abort { intent: id })
                .map_err(|e| (0, e))?;
        }
        Ok(())
    }

    /// Forgets the intents of which every member has its steps on disk: asks for that, once for all of them. Those with a
    /// member that does not answer stay for another time.
    ///
    /// # Errors
    /// When this member's own store fails.
    pub fn forget_done(&self) -> Result<()> {
        let done = std::mem::take(&mut *self.intents.done.lock());
        let members: BTreeSet<Member> = done.iter().flat_map(|(_, m)| m.iter().copied()).collect();
        let mut unsure = BTreeSet::new();
        for member in members {
            if let Err(e) = self.call(member, MetaRequest::Sync) {
                tracing::info!(
                    "finished intents are not forgotten before member {member} answers: {e}"
                );
                unsure.insert(member);
            }
        }
        let (stay, go): (Vec<_>, Vec<_>) =
            (done.into_iter()).partition(|(_, members)| members.iter().any(|m| unsure.contains(m)));
        self.intents.done.lock().extend(stay);
        for some in go.chunks(TOGETHER) {
            let mut batch = Batch::reclaiming();
            for (id, _) in some {
                records::delete(&mut batch, Tag::Intent, *id);
            }
            if let Err(e) = self.apply(batch) {
                // Deleting a record twice is deleting it once.
                self.intents.done.lock().extend(go);
                return Err(e);
            }
            some.iter().for_each(|(id, _)| self.intents.end(*id));
        }
        Ok(())
    }

    /// Tries all committed intents again that wait for it. No step is asked for before the decision is on disk: the sync that
    /// should have brought it there may have failed (`plan`).
    pub(crate) fn finish_left(&self) {
        let left = self.intents.take_left();
        if left.is_empty() {
            return;
        }
        if let Err(e) = self.store.barrier() {
            tracing::info!("decided intents wait for a sync of this store: {e}");
            for (id, intent) in left {
                self.intents.leave(id, intent);
            }
            return;
        }
        let mut down = BTreeSet::new();
        for (id, intent) in left {
            if intent.parts.iter().any(|(member, _)| down.contains(member)) {
                // One wait for a member that does not answer is enough in a round.
                self.intents.leave(id, intent);
            } else if let Some(member) = self.finish(id, intent) {
                down.insert(member);
            }
        }
    }
}
