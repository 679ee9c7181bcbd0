//! Tests of one file that take turns.
//!
//! A process that a test starts has the files that all tests beside it hold open, until it runs its own program. Then they
//! are closed there: that commits what is written till then, and a lock of the open file, or a writer, may outlive its test's
//! close. So where a test counts commits or extents, looks for what is not published yet, or locks, all tests of its file take turns.
use std::sync::{Mutex, MutexGuard, PoisonError};

static TURN: Mutex<()> = Mutex::new(());

/// Waits for the tests before.
#[must_use = "the turn ends with the guard"]
pub fn turn() -> MutexGuard<'static, ()> {
    // Another test's failure is not this one's.
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}
