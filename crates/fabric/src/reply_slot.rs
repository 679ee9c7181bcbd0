//! The slot in which the reply to one request arrives. The first answer or failure counts; later ones are ignored.

use crate::{Error, Message, Rank};
use parking_lot::{Condvar, Mutex};
use std::time::{Duration, Instant};

type CallResult = Result<Message, Error>;

/// Taken once.
#[derive(Default)]
pub(crate) struct ReplySlot {
    outcome: Mutex<Option<CallResult>>,
    filled: Condvar,
}

impl ReplySlot {
    pub fn fill(&self, outcome: CallResult) {
        let mut state = self.outcome.lock();
        if state.is_none() {
            *state = Some(outcome);
            self.filled.notify_one();
        }
    }

    /// The outcome, if there is one yet.
    pub fn take(&self) -> Option<CallResult> {
        self.outcome.lock().take()
    }

    /// Waits for the outcome of a call to `rank` that began at `begun`, until its deadline.
    pub fn wait(&self, rank: Rank, begun: Instant, deadline: Duration) -> CallResult {
        let mut outcome = self.outcome.lock();
        let left = deadline.saturating_sub(begun.elapsed());
        // A time too far for the clock is no limit.
        self.filled
            .wait_while_for(&mut outcome, |outcome| outcome.is_none(), left);
        let late = Error::Deadline {
            rank,
            after: deadline,
        };
        outcome.take().unwrap_or(Err(late))
    }
}
