//! Where the reply to one request arrives. The first answer or failure stays; later ones are ignored.

use crate::{Error, Message, Rank};
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::time::Instant;

type Outcome = Result<Message, Error>;

/// Filled once, taken once.
#[derive(Default)]
pub(crate) struct ReplySlot {
    outcome: Mutex<SlotState>,
    filled: Condvar,
}

#[derive(Default)]
enum SlotState {
    #[default]
    Empty,
    Filled(Outcome),
    Taken,
}

impl ReplySlot {
    pub fn new() -> Arc<ReplySlot> {
        Arc::default()
    }

    pub fn fill(&self, outcome: Outcome) {
        let mut state = self.outcome.lock();
        if matches!(*state, SlotState::Empty) {
            *state = SlotState::Filled(outcome);
            self.filled.notify_one();
        }
    }

    pub fn fail(&self, error: Error) {
        self.fill(Err(error));
    }

    /// The outcome, if there is one yet.
    pub fn take(&self) -> Option<Outcome> {
        take(&mut self.outcome.lock())
    }

    /// Waits for the outcome; `Ok(None)` when time is up.
    pub fn wait(&self, until: Option<Instant>) -> Result<Option<Message>, Error> {
        let mut state = self.outcome.lock();
        loop {
            if let Some(outcome) = take(&mut state) {
                return outcome.map(Some);
            }
            match until {
                None => self.filled.wait(&mut state),
                Some(until) => {
                    if self.filled.wait_until(&mut state, until).timed_out() {
                        return take(&mut state).transpose();
                    }
                }
            }
        }
    }
}

fn take(state: &mut SlotState) -> Option<Outcome> {
    if !matches!(state, SlotState::Filled(_)) {
        return None;
    }
    match std::mem::replace(state, SlotState::Taken) {
        SlotState::Filled(outcome) => Some(outcome),
        SlotState::Empty | SlotState::Taken => None,
    }
}

/// The replier's side of a slot: dropped without a reply it reports the rank as dead.
pub(crate) struct ReplyGuard {
    slot: Arc<ReplySlot>,
    rank: Rank,
}

impl ReplyGuard {
    pub fn new(slot: Arc<ReplySlot>, rank: Rank) -> ReplyGuard {
        ReplyGuard { slot, rank }
    }

    pub fn fill(&self, message: Message) {
        self.slot.fill(Ok(message));
    }
}

impl Drop for ReplyGuard {
    fn drop(&mut self) {
        // Ignored after `fill`: the first outcome stays.
        self.slot.fail(Error::Dead(self.rank));
    }
}
