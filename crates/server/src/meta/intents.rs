//! The intents that this member coordinates, from their number to their end.
//!
//! Invariants:
//! - An intent is live from `begin` until its record is deleted, or every member has been told that it was given up. `Ask` answers
//!   by that; after a crash only intents with a record (committed ones) are live, the others never happened.
//! - The record names the members that may lack steps, or lack them on disk; it is deleted when there are none. They are asked to sync
//!   for many intents at once, now and then, because it costs each of them a sync of its log.
//! - So while a member is dead, only the intents stay that it had a part of when it died: a new one cannot be decided without it. And
//!   they stay for that member alone: the others are told that these are over, and keep no markers of later ones (`applied`).
use super::{
    Meta,
    proto::{IntentId, MetaRequest},
    records,
    records::{Intent, Tag},
};
use crate::{Member, Result};
use forebay_data::Counter;
use forebay_storage::{Batch, Store};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Records that one batch deletes.
const TOGETHER: usize = 1024;

struct Live {
    /// With the members that may still hear of it; `None`: any.
    numbers: BTreeMap<u64, Option<BTreeSet<Member>>>,
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
    /// Parts of committed intents that were done, perhaps not on disk.
    done: Mutex<Vec<(IntentId, Intent)>>,
    /// Held while intents are tried again, and while they are forgotten: one that is tried stands in neither list, and must not be
    /// taken for one that is over.
    upkeep: Mutex<()>,
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
        Ok(IntentId {
            coordinator: self.member,
            number,
        })
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
    fn concerns(&self, id: IntentId, members: BTreeSet<Member>) {
        if let Some(of) = self.live.lock().numbers.get_mut(&id.number) {
            *of = Some(members);
        }
    }

    pub fn is_live(&self, id: IntentId) -> bool {
        id.coordinator == self.member && self.live.lock().numbers.contains_key(&id.number)
    }

    /// Keeps a committed intent for another try.
    pub fn leave(&self, id: IntentId, intent: Intent) {
        self.left.lock().insert(id.number, intent);
    }

    /// What is left to do of an intent.
    fn left_of(&self, id: IntentId) -> Option<Intent> {
        self.left.lock().get(&id.number).cloned()
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

fn members(intent: &Intent) -> BTreeSet<Member> {
    intent.parts.iter().map(|(member, _)| *member).collect()
}

impl Meta {
    /// Has every member do its steps of a committed intent; `forget_done` forgets it. What cannot be done now is left for
    /// `finish_left`; answers the first member that could not.
    pub(crate) fn finish(&self, id: IntentId, intent: Intent) -> Option<Member> {
        let (mut done, mut left) = (intent.clone(), intent);
        let mut failed = None;
        left.parts.retain(|(member, part)| {
            let request = MetaRequest::Finish {
                intent: id,
                below: self.intents.below(*member),
                part: part.clone(),
            };
            let finished = self.call(*member, request);
            if let Err(e) = &finished {
                tracing::info!(
                    "intent {} waits for its last steps at member {member}: {e}",
                    id.number
                );
                failed = failed.or(Some(*member));
            }
            finished.is_err()
        });
        done.parts
            .retain(|(member, _)| left.parts.iter().all(|(m, _)| m != member));
        if left.gate && failed.is_none() {
            // Only now: the next directory move must see the new parents.
            if let Err(e) = self.call(0, MetaRequest::Abort { intent: id }) {
                tracing::info!(
                    "intent {} waits for the lock of directory moves: {e}",
                    id.number
                );
                failed = Some(0);
            }
        }
        // First what is left: without it the intent would be over once the rest is on disk.
        if failed.is_some() {
            self.intents.leave(id, left);
        }
        self.intents.done.lock().push((id, done));
        failed
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
                    below: self.intents.below(*member),
                    makes: part.makes.clone(),
                };
                if let Err(e) = self.call(*member, request) {
                    tracing::info!("intent {} waits for member {member}: {e}", id.number);
                }
            }
            self.intents.leave(id, intent);
        }
    }

    /// Forgets the intents of which every member has its steps on disk: asks for that, once for all of them. Of those with a
    /// member that does not answer that member's part stays for another time.
    ///
    /// # Errors
    /// When this member's own store fails.
    pub fn forget_done(&self) -> Result<()> {
        let _upkeep = self.intents.upkeep.lock();
        // Parts of one intent that were done at different times are forgotten together: one alone does not tell that it is over.
        let mut done: BTreeMap<u64, (IntentId, Intent)> = BTreeMap::new();
        for (id, parts) in std::mem::take(&mut *self.intents.done.lock()) {
            match done.get_mut(&id.number) {
                Some((_, all)) => all.parts.extend(parts.parts),
                None => drop(done.insert(id.number, (id, parts))),
            }
        }
        let done: Vec<(IntentId, Intent)> = done.into_values().collect();
        let asked: BTreeSet<Member> = done.iter().flat_map(|(_, done)| members(done)).collect();
        let mut unsure = BTreeSet::new();
        for member in asked {
            if let Err(e) = self.call(member, MetaRequest::Sync) {
                tracing::info!(
                    "finished intents are not forgotten before member {member} answers: {e}"
                );
                unsure.insert(member);
            }
        }
        for (at, some) in done.chunks(TOGETHER).enumerate() {
            let mut batch = Batch::reclaiming();
            let mut over = Vec::new();
            for (id, done) in some {
                let (mut rest, left) = (done.clone(), self.intents.left_of(*id));
                rest.parts.retain(|(member, _)| unsure.contains(member));
                let wait = left.is_some() || !rest.parts.is_empty();
                let unchanged = rest.parts.len() == done.parts.len();
                if wait && !unchanged {
                    let mut record = rest.clone();
                    record
                        .parts
                        .extend(left.into_iter().flat_map(|left| left.parts));
                    records::put(&mut batch, Tag::Intent, *id, &record);
                } else if !wait {
                    records::delete(&mut batch, Tag::Intent, *id);
                }
                over.push((*id, rest, wait));
            }
            if let Err(e) = self.apply(batch) {
                // Writing a record twice is writing it once.
                let again = done[at * TOGETHER..].iter().cloned();
                self.intents.done.lock().extend(again);
                return Err(e);
            }
            for (id, rest, wait) in over {
                if !wait {
                    self.intents.end(id);
                    continue;
                }
                let left = self.intents.left_of(id);
                let concerned = members(&rest).into_iter();
                let concerned = concerned.chain(left.iter().flat_map(members)).collect();
                self.intents.concerns(id, concerned);
                if !rest.parts.is_empty() {
                    self.intents.done.lock().push((id, rest));
                }
            }
        }
        Ok(())
    }

    /// Tries all committed intents again that wait for it. No step is asked for before the decision is on disk: the sync that
    /// should have brought it there may have failed (`plan`).
    pub(crate) fn finish_left(&self) {
        let _upkeep = self.intents.upkeep.lock();
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
