//! The clients of one node in one team: their values are combined here, and the last to come asks for all of them.
//!
//! # Invariants
//! - The server is asked to take part once for each call of the team, by the client that comes last, on its thread.
//! - A client waits for the others of its node `client_wait` at most. The first client that stops waiting ends the call for all
//!   of them, those that are still to come included, and the other nodes are notified.
//! - Once the last one has come, the others wait as long as its call takes, which has limits of its own.
//! - At most [`MAX_UNFINISHED_CALLS`] calls that some client never came to are remembered.

use super::TeamSpec;
use crate::Member;
use bytes::Bytes;
use forebay_fabric::Rank;
use forebay_fabric::ring::{CollectiveFailure, Group};
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Unfinished calls remembered for clients that come late.
const MAX_UNFINISHED_CALLS: usize = 64;

/// One team at one node.
pub(super) struct LocalTeam {
    pub plan: TeamSpec,
    pub group: Group,
    /// This node.
    me: Rank,
    /// How long its clients wait for each other.
    client_wait: Duration,
    calls: Mutex<PendingCalls>,
    changed: Condvar,
}

#[derive(Default)]
struct PendingCalls {
    by_round: BTreeMap<u64, LocalCall>,
    /// Clients that take part now.
    clients: u32,
    /// The round after the last one of clients that have left.
    next: u64,
}

#[derive(Default)]
struct LocalCall {
    /// Those of the clients that came, combined.
    value: Option<Bytes>,
    came: u32,
    waiting: u32,
    phase: CallPhase,
}

#[derive(Default)]
enum CallPhase {
    #[default]
    Gathering,
    /// All came, and the last one asks.
    Asking,
    Over(Result<Bytes, CollectiveFailure>),
}

impl LocalTeam {
    /// At node `me`, whose clients wait `client_wait` for each other. `next`: the first round.
    pub fn new(
        plan: TeamSpec,
        group: Group,
        next: u64,
        me: Member,
        client_wait: Duration,
    ) -> LocalTeam {
        let calls = PendingCalls {
            next,
            ..PendingCalls::default()
        };
        LocalTeam {
            plan,
            group,
            me: me.into(),
            client_wait,
            calls: Mutex::new(calls),
            changed: Condvar::new(),
        }
    }

    /// A client joins; the round that it begins with. `None`: as many as the plan names are here already.
    pub fn join(&self) -> Option<u64> {
        let mut calls = self.calls.lock();
        if calls.clients == self.plan.here {
            return None;
        }
        calls.clients += 1;
        Some(calls.next)
    }

    /// A client leaves. Those that join once all have left go on after the last call.
    pub fn leave(&self, next: u64) {
        let mut calls = self.calls.lock();
        calls.clients -= 1;
        calls.next = calls.next.max(next);
    }

    /// The round that the next client to join begins with.
    pub fn next_round(&self) -> u64 {
        self.calls.lock().next
    }

    /// Whether no client takes part.
    pub fn empty(&self) -> bool {
        self.calls.lock().clients == 0
    }

    /// Takes part in a call with `value`: with the others' values combined, the last one `ask`s; whoever waited too long `decline`s.
    pub fn call(
        &self,
        round: u64,
        value: Bytes,
        combine: &dyn Fn(Bytes, Bytes) -> Bytes,
        ask: impl FnOnce(Bytes) -> Result<Bytes, CollectiveFailure>,
        decline: impl FnOnce(),
    ) -> Result<Bytes, CollectiveFailure> {
        let mut calls = self.calls.lock();
        let call = calls.by_round.entry(round).or_default();
        call.came += 1;
        if let CallPhase::Over(outcome) = &call.phase {
            // The others did not wait for this client.
            let outcome = outcome.clone();
            self.forget_finished(&mut calls, round);
            return outcome;
        }
        let value = match call.value.take() {
            Some(sum) => combine(sum, value),
            None => value,
        };
        if call.came == self.plan.here {
            call.phase = CallPhase::Asking;
            drop(calls);
            let mut ending = CallEnding {
                local: self,
                round,
                outcome: Err(CollectiveFailure::Panicked(self.me)),
            };
            ending.outcome = ask(value);
            return ending.outcome.clone();
        }
        call.value = Some(value);
        call.waiting += 1;
        let until = Instant::now().checked_add(self.client_wait);
        loop {
            let Some(call) = calls.by_round.get_mut(&round) else {
                // Forgotten, as more than `MAX_UNFINISHED_CALLS` others were given up since.
                return Err(CollectiveFailure::Over(self.me));
            };
            match (&call.phase, until) {
                (CallPhase::Over(outcome), _) => {
                    let outcome = outcome.clone();
                    call.waiting -= 1;
                    self.forget_finished(&mut calls, round);
                    return outcome;
                }
                (CallPhase::Gathering, Some(until)) if Instant::now() >= until => {
                    let failure = CollectiveFailure::Missing(self.me);
                    call.phase = CallPhase::Over(Err(failure));
                    call.waiting -= 1;
                    self.forget_finished(&mut calls, round);
                    drop(calls);
                    self.changed.notify_all();
                    decline();
                    return Err(failure);
                }
                (CallPhase::Gathering, Some(until)) => {
                    self.changed.wait_until(&mut calls, until);
                }
                _ => self.changed.wait(&mut calls),
            }
        }
    }

    /// Forgets a call that is over for all, and the oldest of those that some never came to.
    fn forget_finished(&self, calls: &mut PendingCalls, round: u64) {
        let over = |call: &LocalCall| call.waiting == 0 && matches!(call.phase, CallPhase::Over(_));
        let here = self.plan.here;
        if let Some(call) = calls.by_round.get(&round)
            && over(call)
            && call.came >= here
        {
            calls.by_round.remove(&round);
        }
        if calls.by_round.len() > MAX_UNFINISHED_CALLS {
            let oldest = calls.by_round.iter().find(|(_, call)| over(call));
            if let Some(oldest) = oldest.map(|(round, _)| *round) {
                calls.by_round.remove(&oldest);
            }
        }
    }
}

/// Tells those who wait how the call ended, whatever happened.
struct CallEnding<'a> {
    local: &'a LocalTeam,
    round: u64,
    outcome: Result<Bytes, CollectiveFailure>,
}

impl Drop for CallEnding<'_> {
    fn drop(&mut self) {
        let mut calls = self.local.calls.lock();
        if let Some(call) = calls.by_round.get_mut(&self.round) {
            call.phase = CallPhase::Over(self.outcome.clone());
        }
        self.local.forget_finished(&mut calls, self.round);
        drop(calls);
        self.local.changed.notify_all();
    }
}
