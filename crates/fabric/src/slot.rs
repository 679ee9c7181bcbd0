//! Where the reply to one request arrives. The first answer or failure stays; later ones are ignored.

use crate::{Error, Message, Rank};
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::time::Instant;

type Outcome = Result<Message, Error>;

/// Filled once, taken once.
#[derive(Default)]
pub(crate) struct Slot {
    outcome: Mutex<State>,
    filled: Condvar,
}

#[derive(Default)]
enum State {
    #[default]
    Empty,
    Filled(Outcome),
    Taken,
}

impl Slot {
    pub fn new() -> Arc<Slot> {
        Arc::default()
    }

    pub fn fill(&self, outcome: Outcome) {
        let mut state = self.outcome.lock();
        if matches!(*state, State::Empty) {
            *state = State::Filled(outcome);
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

fn take(state: &mut State) -> Option<Outcome> {
    if !matches!(state, State::Filled(_)) {
        return None;
    }
    match std::mem::replace(state, State::Taken) {
        State::Filled(outcome) => Some(outcome),
        State::Empty | State::Taken => None,
    }
}

/// The replier's side of a slot: dropped without a reply it reports the rank as dead.
pub(crate) struct Answer {
    slot: Arc<Slot>,
    rank: Rank,
}

impl Answer {
    pub fn new(slot: Arc<Slot>, rank: Rank) -> Answer {
        Answer { slot, rank }
    }

    pub fn give(&self, message: Message) {
        self.slot.fill(Ok(message));
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        // Ignored after `give`: the first outcome stays.
        self.slot.fail(Error::Dead(self.rank));
    }
}
