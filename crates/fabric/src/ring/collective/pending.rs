//! Operations under way at one rank, and those that ended: what came, and who waits for it.

use super::super::wire::{Failure, Id};
use super::Settings;
use crate::{Rank, Replier};
use bytes::Bytes;
use parking_lot::Condvar;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What came from one rank for one operation.
pub(super) struct Arrival {
    pub from: Rank,
    pub plan: u64,
    pub root: Rank,
    pub content: Result<Bytes, Failure>,
    /// None with a failure: nobody waits.
    pub replier: Option<Replier>,
}

struct Pending {
    arrivals: Vec<Arrival>,
    /// The ranks that have sent something: one message each.
    from: HashSet<Rank>,
    /// Here while a caller takes part.
    caller: Option<Arc<Condvar>>,
    /// Without a caller it is dropped then.
    expires: Option<Instant>,
}

pub(super) struct Table {
    settings: Settings,
    pending: HashMap<Id, Pending>,
    /// What those that come late are told.
    ended: HashMap<Id, Failure>,
    /// The same, the oldest first.
    order: VecDeque<Id>,
    dead: HashSet<Rank>,
    /// No operation without a caller expires before this; none is waiting if there is none.
    sweep: Option<Instant>,
}

impl Table {
    pub fn new(settings: Settings) -> Table {
        Table {
            settings,
            pending: HashMap::new(),
            ended: HashMap::new(),
            order: VecDeque::new(),
            dead: HashSet::new(),
            sweep: None,
        }
    }

    pub fn held(&self) -> (usize, usize) {
        (self.pending.len(), self.ended.len())
    }

    /// A caller takes part; it waits on what is returned.
    pub fn attend(&mut self, id: &Id, me: Rank) -> Result<Arc<Condvar>, Failure> {
        if let Some(failure) = self.ended.get(id) {
            return Err(*failure);
        }
        let full = self.pending.len() >= self.settings.pending;
        let pending = match self.pending.get_mut(id) {
            Some(pending) if pending.caller.is_some() => return Err(Failure::Busy(me)),
            Some(pending) => pending,
            None if full => return Err(Failure::Busy(me)),
            None => self.pending.entry(id.clone()).or_insert(Pending {
                arrivals: Vec::new(),
                from: HashSet::new(),
                caller: None,
                expires: None,
            }),
        };
        let caller = Arc::new(Condvar::new());
        pending.caller = Some(caller.clone());
        Ok(caller)
    }

    /// What came since the last time.
    pub fn take(&mut self, id: &Id) -> Vec<Arrival> {
        let pending = self.pending.get_mut(id);
        pending.map_or_else(Vec::new, |p| std::mem::take(&mut p.arrivals))
    }

    /// Ends an operation, `why` for those that come late; returns what came too late already.
    pub fn end(&mut self, id: &Id, why: Failure) -> Vec<Arrival> {
        if self.ended.insert(id.clone(), why).is_none() {
            self.order.push_back(id.clone());
        }
        while self.order.len() > self.settings.remembered {
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
        id: Id,
        arrival: Arrival,
        worth: Duration,
        me: Rank,
    ) -> (Option<(Arrival, Failure)>, Vec<Arrival>) {
        let now = Instant::now();
        let expired = self.expire(now, me);
        if let Some(failure) = self.ended.get(&id) {
            return (Some((arrival, *failure)), expired);
        }
        let full = self.pending.len() >= self.settings.pending;
        if full && !self.pending.contains_key(&id) {
            return (Some((arrival, Failure::Busy(me))), expired);
        }
        let expires = now.checked_add(worth);
        let pending = self.pending.entry(id).or_insert_with(|| Pending {
            arrivals: Vec::new(),
            from: HashSet::new(),
            caller: None,
            expires,
        });
        if !pending.from.insert(arrival.from) {
            return (Some((arrival, Failure::Over(me))), expired);
        }
        pending.expires = pending.expires.max(expires);
        pending.arrivals.push(arrival);
        match &pending.caller {
            Some(caller) => {
                caller.notify_one();
            }
            None => self.sweep = earlier(self.sweep, pending.expires),
        }
        (None, expired)
    }

    /// Drops operations that nobody here came for while anyone waited.
    fn expire(&mut self, now: Instant, me: Rank) -> Vec<Arrival> {
        if self.sweep.is_none_or(|sweep| now < sweep) {
            return Vec::new();
        }
        self.sweep = None;
        let gone: Vec<Id> = self
            .pending
            .iter()
            .filter(|(_, p)| p.caller.is_none() && p.expires.is_some_and(|e| e <= now))
            .map(|(id, _)| id.clone())
            .collect();
        let why = Failure::Missing(me);
        let dropped = gone.iter().flat_map(|id| self.end(id, why)).collect();
        let waiting = self.pending.values().filter(|p| p.caller.is_none());
        self.sweep = waiting.map(|p| p.expires).fold(None, earlier);
        dropped
    }

    pub fn died(&mut self, rank: Rank) {
        self.dead.insert(rank);
        for pending in self.pending.values() {
            if let Some(caller) = &pending.caller {
                caller.notify_one();
            }
        }
    }

    pub fn is_dead(&self, rank: Rank) -> bool {
        self.dead.contains(&rank)
    }
}

fn earlier(a: Option<Instant>, b: Option<Instant>) -> Option<Instant> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (one, other) => one.or(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(round: u64) -> Id {
        Id {
            group: 0,
            round,
            key: Bytes::new(),
        }
    }

    fn arrival(from: Rank) -> Arrival {
        Arrival {
            from,
            plan: 0,
            root: 0,
            content: Ok(Bytes::new()),
            replier: None,
        }
    }

    const LONG: Duration = Duration::from_secs(600);

    fn table() -> Table {
        Table::new(Settings {
            pending: 3,
            remembered: 2,
        })
    }

    fn refusal(table: &mut Table, round: u64, from: Rank, worth: Duration) -> Option<Failure> {
        let (refused, _) = table.keep(id(round), arrival(from), worth, 9);
        refused.map(|(_, failure)| failure)
    }

    #[test]
    fn more_than_fits_is_refused() {
        let mut table = table();
        for round in 0..3 {
            assert_eq!(refusal(&mut table, round, 1, LONG), None);
        }
        assert_eq!(refusal(&mut table, 3, 1, LONG), Some(Failure::Busy(9)));
        assert_eq!(table.attend(&id(3), 9).err(), Some(Failure::Busy(9)));
        // Those under way go on.
        assert_eq!(refusal(&mut table, 2, 2, LONG), None);
        assert!(table.attend(&id(2), 9).is_ok());
        assert_eq!(table.attend(&id(2), 9).err(), Some(Failure::Busy(9)));
        assert_eq!(table.take(&id(2)).len(), 2);
    }

    #[test]
    fn what_is_over_is_refused_as_long_as_it_is_remembered() {
        let mut table = table();
        for round in 0..3 {
            assert_eq!(table.end(&id(round), Failure::Over(9)).len(), 0);
        }
        assert_eq!(refusal(&mut table, 2, 1, LONG), Some(Failure::Over(9)));
        assert_eq!(table.attend(&id(1), 9).err(), Some(Failure::Over(9)));
        assert_eq!(refusal(&mut table, 0, 1, LONG), None);
        assert_eq!(table.held(), (1, 2));
    }

    #[test]
    fn one_message_a_rank() {
        let mut table = table();
        assert_eq!(refusal(&mut table, 0, 1, LONG), None);
        assert_eq!(table.take(&id(0)).len(), 1);
        assert_eq!(refusal(&mut table, 0, 1, LONG), Some(Failure::Over(9)));
    }

    #[test]
    fn what_nobody_came_for_makes_room() {
        let mut table = table();
        for round in 0..3 {
            assert_eq!(refusal(&mut table, round, 1, Duration::ZERO), None);
            // With a caller it stays.
            if round == 0 {
                assert!(table.attend(&id(0), 9).is_ok());
            }
        }
        let (refused, expired) = table.keep(id(3), arrival(1), LONG, 9);
        assert!(refused.is_none());
        // Those of rounds 1 and 2; the one of round 2 went when 1 was dropped, or now.
        assert!(!expired.is_empty());
        let left: HashSet<u64> = table.pending.keys().map(|id| id.round).collect();
        assert_eq!(left, HashSet::from([0, 3]));
    }
}
