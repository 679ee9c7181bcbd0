//! Where the reply to one request arrives. The first answer or failure counts; later ones are ignored.

use crate::{Error, Message};
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::time::Instant;

type Outcome = Result<Message, Error>;

/// Taken once.
#[derive(Default)]
pub(crate) struct ReplySlot {
    outcome: Mutex<Option<Outcome>>,
    filled: Condvar,
}

impl ReplySlot {
    pub fn new() -> Arc<ReplySlot> {
        Arc::default()
    }

    pub fn fill(&self, outcome: Outcome) {
        let mut state = self.outcome.lock();
        if state.is_none() {
            *state = Some(outcome);
            self.filled.notify_one();
        }
    }

    /// The outcome, if there is one yet.
    pub fn take(&self) -> Option<Outcome> {
        self.outcome.lock().take()
    }

    /// Waits for the outcome; `None` when time is up. Without an instant it waits for as long as it takes.
    pub fn wait(&self, until: Option<Instant>) -> Option<Outcome> {
        let mut state = self.outcome.lock();
        loop {
            if state.is_some() {
                return state.take();
            }
            match until {
                None => self.filled.wait(&mut state),
                Some(until) => {
                    if self.filled.wait_until(&mut state, until).timed_out() {
                        return state.take();
                    }
                }
            }
        }
    }
}
