//! The operations under way at one rank with the messages that came for them, and the failures of those that ended.

use super::super::wire::{CollectiveFailure, OperationId};
use super::CollectiveCounts;
use super::operation::MemoryBounds;
use crate::{Rank, Replier};
use bytes::Bytes;
use parking_lot::Condvar;
use std::cmp::Ordering;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What came from one rank for one operation.
pub(super) struct ChildArrival {
    pub from: Rank,
    pub root: Rank,
    pub content: Result<Bytes, CollectiveFailure>,
    /// `None` with a failure: its sender does not wait for a reply.
    pub replier: Option<Replier>,
}

impl ChildArrival {
    /// Whether it says that its sender is in its group now. Other failures may come late.
    fn is_current(&self) -> bool {
        matches!(self.content, Ok(_) | Err(CollectiveFailure::Mismatch(_)))
    }
}

/// Arrivals and why they are refused.
type RefusedArrivals = Vec<(ChildArrival, CollectiveFailure)>;

#[derive(Default)]
struct PendingOperation {
    arrivals: Vec<ChildArrival>,
    /// The ranks that have sent something: one message each.
    from: HashSet<Rank>,
    /// Here while a caller takes part.
    caller: Option<Arc<Condvar>>,
    /// Without a caller it is dropped then.
    expires: Option<Instant>,
    /// The ranks that are at later rounds: if they have not come yet, they will not.
    ahead: HashSet<Rank>,
    /// This rank is in another group of the same number.
    other_group: Option<Rank>,
}

impl PendingOperation {
    fn is_current(&self, now: Instant) -> bool {
        self.expires.is_none_or(|e| now < e) && self.arrivals.iter().any(ChildArrival::is_current)
    }
}

/// How two operations of one group's number are related.
enum OperationOrder {
    /// Of different groups.
    OtherGroup,
    /// The other one is of an earlier round, or a later one.
    Earlier,
    Later,
    None,
}

impl OperationId {
    fn relation(&self, other: &OperationId) -> OperationOrder {
        if self.group != other.group {
            return OperationOrder::None;
        }
        match other.round.cmp(&self.round) {
            _ if self.digest != other.digest => OperationOrder::OtherGroup,
            _ if self.key != other.key => OperationOrder::None,
            Ordering::Less => OperationOrder::Earlier,
            Ordering::Greater => OperationOrder::Later,
            Ordering::Equal => OperationOrder::None,
        }
    }
}

#[derive(Default)]
pub(super) struct PendingOperations {
    bounds: MemoryBounds,
    pending: HashMap<OperationId, PendingOperation>,
    /// The failures that answer late messages.
    ended: HashMap<OperationId, CollectiveFailure>,
    /// The same, the oldest first.
    order: VecDeque<OperationId>,
    dead: HashSet<Rank>,
    /// No operation without a caller expires before this; none is waiting if there is none.
    next_expiry: Option<Instant>,
    pub counts: CollectiveCounts,
}

impl PendingOperations {
    pub fn new(bounds: MemoryBounds) -> PendingOperations {
        PendingOperations {
            bounds,
            ..PendingOperations::default()
        }
    }

    /// Whether nobody here takes part in it, nor did.
    pub fn is_untouched(&self, id: &OperationId) -> bool {
        let called = self.pending.get(id).is_some_and(|p| p.caller.is_some());
        !called && !self.ended.contains_key(id)
    }

    /// A caller takes part; it waits on what is returned. Also what cannot be answered any more.
    pub fn begin_call(
        &mut self,
        id: &OperationId,
        me: Rank,
    ) -> (Result<Arc<Condvar>, CollectiveFailure>, RefusedArrivals) {
        if let Some(failure) = self.ended.get(id) {
            return (Err(*failure), Vec::new());
        }
        let full = self.pending.len() >= self.bounds.pending;
        match self.pending.get(id) {
            Some(pending) if pending.caller.is_some() => {
                return (Err(CollectiveFailure::Busy(me)), Vec::new());
            }
            None if full => return (Err(CollectiveFailure::Busy(me)), Vec::new()),
            _ => {}
        }
        // What is here already and does not fit.
        let (now, mut refused) = (Instant::now(), Vec::new());
        let (mut ahead, mut over, mut conflict) = (HashSet::new(), Vec::new(), None);
        for (other, pending) in self.pending.iter().filter(|(_, p)| p.caller.is_none()) {
            match id.relation(other) {
                OperationOrder::OtherGroup if pending.is_current(now) => {
                    conflict = pending.arrivals.first().map(|a| (other.clone(), a.from));
                }
                OperationOrder::Earlier => over.push(other.clone()),
                OperationOrder::Later => ahead.extend(&pending.from),
                OperationOrder::OtherGroup | OperationOrder::None => {}
            }
        }
        for earlier in over {
            let why = CollectiveFailure::Over(me);
            refused.extend(self.end(&earlier, why).into_iter().map(|a| (a, why)));
        }
        if let Some((conflicting, from)) = conflict {
            let why = CollectiveFailure::Mismatch(from);
            for ended in [&conflicting, id] {
                refused.extend(self.end(ended, why).into_iter().map(|a| (a, why)));
            }
            return (Err(why), refused);
        }
        let pending = self.pending.entry(id.clone()).or_default();
        let caller = Arc::new(Condvar::new());
        pending.caller = Some(caller.clone());
        pending.ahead = ahead;
        (Ok(caller), refused)
    }

    /// Why an operation cannot be any more, that waits for these.
    pub fn cannot_complete(
        &self,
        id: &OperationId,
        absent: impl Iterator<Item = Rank>,
    ) -> Option<CollectiveFailure> {
        let pending = self.pending.get(id)?;
        if let Some(rank) = pending.other_group {
            return Some(CollectiveFailure::Mismatch(rank));
        }
        absent.into_iter().find_map(|rank| {
            let dead = self
                .dead
                .contains(&rank)
                .then_some(CollectiveFailure::Missing(rank));
            dead.or_else(|| {
                pending
                    .ahead
                    .contains(&rank)
                    .then_some(CollectiveFailure::Ahead(rank))
            })
        })
    }

    /// What came since the last time.
    pub fn take(&mut self, id: &OperationId) -> Vec<ChildArrival> {
        let pending = self.pending.get_mut(id);
        pending.map_or_else(Vec::new, |p| std::mem::take(&mut p.arrivals))
    }

    /// Ends an operation, `why` for those that come late; returns what came too late already.
    pub fn end(&mut self, id: &OperationId, why: CollectiveFailure) -> Vec<ChildArrival> {
        if self.ended.insert(id.clone(), why).is_none() {
            self.order.push_back(id.clone());
        }
        while self.order.len() > self.bounds.remembered {
            if let Some(oldest) = self.order.pop_front() {
                self.ended.remove(&oldest);
            }
        }
        self.pending
            .remove(id)
            .map_or_else(Vec::new, |p| p.arrivals)
    }

    /// Keeps what came. Returns it if it is refused, and what was kept too long.
    pub fn keep(
        &mut self,
        id: OperationId,
        arrival: ChildArrival,
        keep_for: Duration,
        me: Rank,
    ) -> (Option<(ChildArrival, CollectiveFailure)>, RefusedArrivals) {
        let now = Instant::now();
        let expired = self.expire(now, me);
        if let Some(failure) = self.refusal_of(&id, &arrival, me) {
            let mut refused = expired;
            if let CollectiveFailure::Mismatch(_) = failure {
                // Its sender fails, so it is nothing that anyone could still take part in.
                refused.extend(self.end(&id, failure).into_iter().map(|a| (a, failure)));
            }
            return (Some((arrival, failure)), refused);
        }
        let expires = now.checked_add(keep_for);
        let new = || PendingOperation {
            expires,
            ..PendingOperation::default()
        };
        let pending = self.pending.entry(id).or_insert_with(new);
        pending.from.insert(arrival.from);
        pending.expires = pending.expires.max(expires);
        pending.arrivals.push(arrival);
        match &pending.caller {
            Some(caller) => {
                caller.notify_one();
            }
            None => self.next_expiry = earlier(self.next_expiry, pending.expires),
        }
        (None, expired)
    }

    /// Why not; and lets those know whom it concerns.
    fn refusal_of(
        &mut self,
        id: &OperationId,
        arrival: &ChildArrival,
        me: Rank,
    ) -> Option<CollectiveFailure> {
        if let Some(failure) = self.ended.get(id) {
            return Some(*failure);
        }
        let mut failure = None;
        for (other, pending) in &mut self.pending {
            let Some(caller) = &pending.caller else {
                continue;
            };
            match other.relation(id) {
                OperationOrder::OtherGroup if arrival.is_current() => {
                    pending.other_group = Some(arrival.from);
                    failure = Some(CollectiveFailure::Mismatch(arrival.from));
                }
                OperationOrder::Earlier => failure = Some(CollectiveFailure::Over(me)),
                OperationOrder::Later => {
                    pending.ahead.insert(arrival.from);
                }
                OperationOrder::OtherGroup | OperationOrder::None => continue,
            }
            caller.notify_one();
        }
        let full = self.pending.len() >= self.bounds.pending;
        let came = match self.pending.get(id) {
            Some(pending) => pending
                .from
                .contains(&arrival.from)
                .then_some(CollectiveFailure::Over(me)),
            None => full.then_some(CollectiveFailure::Busy(me)),
        };
        failure.or(came)
    }

    /// Drops operations that nobody here came for while anyone waited.
    fn expire(&mut self, now: Instant, me: Rank) -> RefusedArrivals {
        if self.next_expiry.is_none_or(|expiry| now < expiry) {
            return Vec::new();
        }
        self.next_expiry = None;
        let gone: Vec<OperationId> = self
            .pending
            .iter()
            .filter(|(_, p)| p.caller.is_none() && p.expires.is_some_and(|e| e <= now))
            .map(|(id, _)| id.clone())
            .collect();
        let why = CollectiveFailure::Missing(me);
        let dropped = gone.iter().flat_map(|id| self.end(id, why));
        let dropped = dropped.map(|arrival| (arrival, why)).collect();
        let waiting = self.pending.values().filter(|p| p.caller.is_none());
        self.next_expiry = waiting.map(|p| p.expires).fold(None, earlier);
        dropped
    }

    pub fn note_death(&mut self, rank: Rank) {
        self.dead.insert(rank);
        for pending in self.pending.values() {
            if let Some(caller) = &pending.caller {
                caller.notify_one();
            }
        }
    }
}

fn earlier(a: Option<Instant>, b: Option<Instant>) -> Option<Instant> {
    a.into_iter().chain(b).min()
}

#[cfg(test)]
mod tests;
