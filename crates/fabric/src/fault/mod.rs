//! A fault-injecting wrapper of any transport: it does what bad networks and dead nodes do.
//!
//! # The faults
//! - A request, its reply, or a one-way message is lost, each with its own probability. A lost request or reply shows
//!   as `Deadline` at once: the wait is not played out, so tests stay quick.
//! - A request or message is delayed (by `latency` always, by up to `delay` sometimes). A delay that reaches the
//!   deadline shows as `Deadline`, again without waiting; the request is executed.
//! - A rank is dead from [`Faults::kill`] until [`Faults::revive`]: others get `Dead`, its own calls get `Closed`. A call
//!   under way when either end dies is executed, and its reply is lost.
//!
//! Not among them: bytes changed on the way, messages of one sender out of order, anything twice. A transport
//! promises that these do not happen ([`ByteTransport`](crate::session::ByteTransport)).
//!
//! All choices come from one seed. One thread's calls replay exactly; concurrent threads draw from one sequence in
//! order of arrival, so their runs do not.

mod intercept;

use crate::{Error, Fabric, Message, Rank};
pub use intercept::{Intercept, InterceptedCall, intercepted};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// What may go wrong, how often. Probabilities in thousandths. The default is nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FaultRates {
    /// A request never arrives.
    pub lose_request: u16,
    /// A request is carried out, its reply never arrives.
    pub lose_reply: u16,
    /// A one-way message never arrives, though sending it succeeds.
    pub lose_message: u16,
    /// A request or message is delayed by up to `delay`.
    pub late: u16,
    /// The longest such delay.
    pub delay: Duration,
    /// Added to every request and message between different ranks.
    pub latency: Duration,
}

/// What went wrong so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FaultCounts {
    /// Requests that never arrived.
    pub lost_requests: u64,
    /// Requests carried out whose reply was lost or too late.
    pub lost_replies: u64,
    /// Messages that never arrived.
    pub lost_messages: u64,
    /// Requests and messages delayed.
    pub delayed: u64,
    /// Requests and messages refused because one side was dead.
    pub refused: u64,
}

#[derive(Default)]
struct FaultState {
    rates: FaultRates,
    counts: FaultCounts,
    dead: BTreeSet<Rank>,
    random: u64,
}

/// The faults of one fabric, shared by its ends; changed at run time.
pub struct Faults {
    state: Mutex<FaultState>,
    sleep: Box<dyn Fn(Duration) + Send + Sync>,
}

impl Faults {
    /// No faults yet; later choices follow from `seed`. Delays sleep.
    pub fn new(seed: u64) -> Arc<Faults> {
        Faults::with_sleep(seed, std::thread::sleep)
    }

    /// As `new`, but delays are given to `sleep`: a virtual clock, or a counter.
    pub fn with_sleep(seed: u64, sleep: impl Fn(Duration) + Send + Sync + 'static) -> Arc<Faults> {
        let state = FaultState {
            random: seed,
            ..FaultState::default()
        };
        Arc::new(Faults {
            state: Mutex::new(state),
            sleep: Box::new(sleep),
        })
    }

    /// One end, with these faults.
    pub fn wrap(self: &Arc<Faults>, end: Arc<dyn Fabric>) -> Arc<dyn Fabric> {
        intercepted(end, self.clone())
    }

    /// From now on these rates.
    pub fn set(&self, rates: FaultRates) {
        self.state.lock().rates = rates;
    }

    /// `rank` is cut off from all others.
    pub fn kill(&self, rank: Rank) {
        self.state.lock().dead.insert(rank);
    }

    /// `rank` is back, with whatever state it had.
    pub fn revive(&self, rank: Rank) {
        self.state.lock().dead.remove(&rank);
    }

    /// What went wrong so far.
    pub fn counts(&self) -> FaultCounts {
        self.state.lock().counts
    }

    /// Whether a call from `from` to `to` can start.
    fn admit(&self, from: Rank, to: Rank) -> Result<(), Error> {
        let mut state = self.state.lock();
        let refusal = if state.dead.contains(&from) {
            Error::Closed
        } else if state.dead.contains(&to) {
            Error::Dead(to)
        } else {
            return Ok(());
        };
        state.counts.refused += 1;
        Err(refusal)
    }

    /// Draws whether the event with these rates happens.
    fn draw(&self, rates: fn(&FaultRates) -> u16) -> bool {
        let mut state = self.state.lock();
        let rates = rates(&state.rates);
        state.chance(rates)
    }

    fn count(&self, counter: fn(&mut FaultCounts) -> &mut u64) {
        *counter(&mut self.state.lock().counts) += 1;
    }

    fn draw_delay(&self, from: Rank, to: Rank) -> Duration {
        let mut state = self.state.lock();
        if from == to {
            return Duration::ZERO;
        }
        let mut delay = state.rates.latency;
        let late = state.rates.late;
        if state.chance(late) {
            let longest = state.rates.delay.as_nanos() as u64;
            delay += Duration::from_nanos(state.next() % longest.saturating_add(1).max(1));
            state.counts.delayed += 1;
        }
        delay
    }

    fn sleep(&self, delay: Duration) {
        if !delay.is_zero() {
            (self.sleep)(delay);
        }
    }
}

impl FaultState {
    /// SplitMix64: each seed walks through all 2^64 states.
    fn next(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn chance(&mut self, thousandths: u16) -> bool {
        self.next() % 1000 < u64::from(thousandths)
    }
}

impl Intercept for Faults {
    fn call(&self, mut call: InterceptedCall<'_>) -> Result<Message, Error> {
        let (from, to, deadline) = (call.end.rank(), call.to, call.deadline);
        let missed = || Error::Deadline {
            rank: to,
            after: deadline,
        };
        self.admit(from, to)?;
        if self.draw(|o| o.lose_request) {
            self.count(|c| &mut c.lost_requests);
            return Err(missed());
        }
        let delay = self.draw_delay(from, to);
        let in_time = delay.is_zero() || delay < deadline;
        if in_time {
            self.sleep(delay);
            call.deadline -= delay;
        }
        let reply = call.proceed();
        self.admit(from, to)?;
        let reply = reply.map_err(|error| match error {
            Error::Deadline { .. } => missed(),
            other => other,
        })?;
        if !in_time || self.draw(|o| o.lose_reply) {
            self.count(|c| &mut c.lost_replies);
            return Err(missed());
        }
        Ok(reply)
    }

    fn send(&self, end: &dyn Fabric, to: Rank, message: Message) -> Result<(), Error> {
        let from = end.rank();
        self.admit(from, to)?;
        if self.draw(|o| o.lose_message) {
            self.count(|c| &mut c.lost_messages);
            return Ok(());
        }
        self.sleep(self.draw_delay(from, to));
        end.send(to, message)
    }
}
