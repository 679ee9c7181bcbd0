//! The clients of one node in one team: they meet here, and one of them speaks for all of them.
//!
//! # Invariants
//! - The server is asked to take part once for each call of the team, by the client that comes last, on its thread.
//! - A client waits for the others of its node `patience` at most. Whoever stops waiting first ends the call for all of them, those
//!   that are still to come included; the other nodes are told.
//! - Once the last one has come, the others wait as long as its call takes, which has limits of its own.
//! - At most [`KEPT`] calls that some client never came to are remembered.

use super::TeamPlan;
use crate::Member;
use bytes::Bytes;
use forebay_fabric::ring::{Failure, Group};
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Unfinished calls remembered for clients that come late.
const KEPT: usize = 64;

/// One team at one node.
pub(super) struct Local {
    pub plan: TeamPlan,
    pub group: Group,
    calls: Mutex<Calls>,
    changed: Condvar,
}

#[derive(Default)]
struct Calls {
    by_round: BTreeMap<u64, Call>,
    /// Clients that take part now.
    seats: u32,
    /// The round after the last one of clients that have left.
    next: u64,
}

#[derive(Default)]
struct Call {
    /// Those of the clients that came, combined.
    value: Option<Bytes>,
    came: u32,
    waiting: u32,
    phase: Phase,
}

#[derive(Default)]
enum Phase {
    #[default]
    Gathering,
    /// All came, and the last one asks.
    Asking,
    Over(Result<Bytes, Failure>),
}

/// What one client does in a call.
pub(super) struct Part<'a> {
    pub round: u64,
    pub value: Bytes,
    pub combine: &'a dyn Fn(Bytes, Bytes) -> Bytes,
    /// How long to wait for the other clients.
    pub patience: Duration,
    /// This node.
    pub me: Member,
}

impl Local {
    /// `next`: the first round.
    pub fn new(plan: TeamPlan, group: Group, next: u64) -> Local {
        let calls = Calls {
            next,
            ..Calls::default()
        };
        Local {
            plan,
            group,
            calls: Mutex::new(calls),
            changed: Condvar::new(),
        }
    }

    /// Takes a seat; the round that its client begins with. `None`: all are taken.
    pub fn sit(&self) -> Option<u64> {
        let mut calls = self.calls.lock();
        if calls.seats == self.plan.here {
            return None;
        }
        calls.seats += 1;
        Some(calls.next)
    }

    /// Gives a seat up. Those who sit down once all have done so go on behind the last call.
    pub fn leave(&self, next: u64) {
        let mut calls = self.calls.lock();
        calls.seats -= 1;
        calls.next = calls.next.max(next);
    }

    /// The round that the next client to sit down begins with.
    pub fn begin(&self) -> u64 {
        self.calls.lock().next
    }

    /// Whether nobody sits here.
    pub fn empty(&self) -> bool {
        self.calls.lock().seats == 0
    }

    /// Takes part in a call: with the others' values combined, the last one `ask`s; whoever waited too long `decline`s.
    pub fn call(
        &self,
        part: Part<'_>,
        ask: impl FnOnce(Bytes) -> Result<Bytes, Failure>,
        decline: impl FnOnce(),
    ) -> Result<Bytes, Failure> {
        let round = part.round;
        let mut calls = self.calls.lock();
        let call = calls.by_round.entry(round).or_default();
        call.came += 1;
        if let Phase::Over(outcome) = &call.phase {
            // The others did not wait for this client.
            let outcome = outcome.clone();
            self.tidy(&mut calls, round);
            return outcome;
        }
        let value = match call.value.take() {
            Some(sum) => (part.combine)(sum, part.value),
            None => part.value,
        };
        if call.came == self.plan.here {
            call.phase = Phase::Asking;
            drop(calls);
            let mut ending = Ending {
                local: self,
                round,
                outcome: Err(Failure::Panicked(part.me.into())),
            };
            ending.outcome = ask(value);
            return ending.outcome.clone();
        }
        call.value = Some(value);
        call.waiting += 1;
        let until = Instant::now().checked_add(part.patience);
        loop {
            let Some(call) = calls.by_round.get_mut(&round) else {
                // Forgotten, as more than `KEPT` others were given up since.
                return Err(Failure::Over(part.me.into()));
            };
            match (&call.phase, until) {
                (Phase::Over(outcome), _) => {
                    let outcome = outcome.clone();
                    call.waiting -= 1;
                    self.tidy(&mut calls, round);
                    return outcome;
                }
                (Phase::Gathering, Some(until)) if Instant::now() >= until => {
                    let failure = Failure::Missing(part.me.into());
                    call.phase = Phase::Over(Err(failure));
                    call.waiting -= 1;
                    self.tidy(&mut calls, round);
                    drop(calls);
                    self.changed.notify_all();
                    decline();
                    return Err(failure);
                }
                (Phase::Gathering, Some(until)) => {
                    self.changed.wait_until(&mut calls, until);
                }
                _ => self.changed.wait(&mut calls),
            }
        }
    }

    /// Forgets a call that is over for all, and the oldest of those that some never came to.
    fn tidy(&self, calls: &mut Calls, round: u64) {
        let over = |call: &Call| call.waiting == 0 && matches!(call.phase, Phase::Over(_));
        let here = self.plan.here;
        if let Some(call) = calls.by_round.get(&round)
            && over(call)
            && call.came >= here
        {
            calls.by_round.remove(&round);
        }
        if calls.by_round.len() > KEPT {
            let oldest = calls.by_round.iter().find(|(_, call)| over(call));
            if let Some(oldest) = oldest.map(|(round, _)| *round) {
                calls.by_round.remove(&oldest);
            }
        }
    }
}

/// Tells those who wait how the call ended, whatever happened.
struct Ending<'a> {
    local: &'a Local,
    round: u64,
    outcome: Result<Bytes, Failure>,
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        let mut calls = self.local.calls.lock();
        if let Some(call) = calls.by_round.get_mut(&self.round) {
            call.phase = Phase::Over(self.outcome.clone());
        }
        self.local.tidy(&mut calls, self.round);
        drop(calls);
        self.local.changed.notify_all();
    }
}
