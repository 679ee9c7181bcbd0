//! Shared and exclusive locks (*turns*) that decide which tests of one program run in parallel.
//!
//! `cargo test` runs the tests of a program as threads of one process. A child process started by one test inherits the open files
//! of all tests that run at the time, until it executes its own program. So a file that another test has closed may stay open for a
//! moment, with its locks. The close in the child is a FLUSH for the mount, which commits what was written until then. So these
//! tests run alone: those that count commits or extents, check for unpublished writes, or lock; those that change state of the
//! whole process, such as its working directory; and those that need much of the machine. Other programs may run at the time.
//!
//! - [`shared`]: may run beside other tests with a shared turn. Every test that starts processes takes one.
//! - [`exclusive`]: runs beside no test that has a turn.
//!
//! A turn belongs to a test. A thread that has one gets another at once, and all end with the last. A thread that a test starts
//! needs no turn and gets none: it would wait for its own test. Such a thread is recognised by having no name; the threads of tests
//! have one.
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::cell::RefCell;
use std::marker::PhantomData;
use std::sync::MutexGuard;

static PROGRAM: RwLock<()> = RwLock::new(());

enum Lock {
    Shared(#[allow(dead_code, reason = "held")] RwLockReadGuard<'static, ()>),
    Exclusive(#[allow(dead_code, reason = "held")] RwLockWriteGuard<'static, ()>),
}

thread_local! {
    /// What this thread has, and how many turns stand for it.
    static HELD: RefCell<(usize, Option<Lock>)> = const { RefCell::new((0, None)) };
}

/// A turn; it ends when dropped, on the thread that took it.
#[must_use = "the turn ends with the guard"]
pub struct Turn {
    is_counted: bool,
    _not_send: PhantomData<MutexGuard<'static, ()>>,
}

/// Waits until no test has the program for itself.
pub fn shared() -> Turn {
    take(|| Lock::Shared(PROGRAM.read()))
}

/// Waits until no other test has a turn.
///
/// # Panics
///
/// The thread has a shared turn: two such would wait for each other. Or it is not a test's first.
#[track_caller]
pub fn exclusive() -> Turn {
    let turn = take(|| Lock::Exclusive(PROGRAM.write()));
    let is_exclusive = HELD.with_borrow(|(_, lock)| matches!(lock, Some(Lock::Exclusive(_))));
    assert!(
        is_exclusive,
        "the test itself takes an exclusive turn, before what has a shared one"
    );
    turn
}

fn take(lock: impl FnOnce() -> Lock) -> Turn {
    let is_counted = std::thread::current().name().is_some();
    if is_counted {
        HELD.with_borrow_mut(|(turns, held)| {
            held.get_or_insert_with(lock);
            *turns += 1;
        });
    }
    Turn {
        is_counted,
        _not_send: PhantomData,
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if !self.is_counted {
            return;
        }
        HELD.with_borrow_mut(|(turns, held)| {
            *turns -= 1;
            if *turns == 0 {
                *held = None;
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    /// Whether another thread would have to wait for a shared turn, and for an exclusive one.
    fn others_wait() -> (bool, bool) {
        let tried = thread::spawn(|| {
            let shared = PROGRAM.try_read().is_none();
            (shared, PROGRAM.try_write().is_none())
        });
        tried.join().unwrap()
    }

    #[test]
    fn turns_exclude_each_other_and_a_thread_has_as_many_as_it_takes() {
        let first = shared();
        let second = shared();
        assert_eq!(others_wait(), (false, true));
        assert!(std::panic::catch_unwind(exclusive).is_err());
        drop(first);
        assert_eq!(others_wait(), (false, true));
        drop(second);
        assert_eq!(others_wait(), (false, false));
        let outer = exclusive();
        let inner = shared();
        drop(outer);
        assert_eq!(others_wait(), (true, true));
        // A thread of this test does not wait for it.
        thread::spawn(|| drop(shared())).join().unwrap();
        drop(inner);
        assert_eq!(others_wait(), (false, false));
    }
}
