//! Figures that cost a look at everything there is, looked up seldom enough: how many files and extents, how much disk.
//!
//! ```text
//!  asked -> nothing has changed since the last look ------------> that one, age zero
//!        -> the last look is younger than PACE times its cost --> that one, with its age
//!        -> else a thread looks, waited for `patience` at most -> the new one, or the last one with its age
//! ```
//!
//! Invariants: one look at a time; looking takes at most 1/PACE of the time of one core, however often is asked; nobody waits
//! for a look longer than he said; a look that fails is told to whoever asks next, and is then tried again.
use crate::Result;
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A look is repeated after so many times what it took.
const PACE: u32 = 20;
/// A look that took no longer is repeated whenever it is asked for.
const QUICK: Duration = Duration::from_millis(5);

/// What a look found, and how long ago.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Seen<T> {
    /// What was found.
    pub value: T,
    /// How long ago the look began that found it; zero if nothing has changed since.
    pub age: Duration,
}

/// How to look, and how to know that it would find the same.
pub trait Look: Send + Sync + 'static {
    /// What is found.
    type Found: Clone + Send + 'static;
    /// Looks; soon ends with an error once `stop` is set.
    ///
    /// # Errors
    /// As reading the store.
    fn look(&self, stop: &AtomicBool) -> Result<Self::Found>;
    /// A number that is another one after every change; `None` if there is none.
    fn changes(&self) -> Option<u64>;
}

struct Last<T> {
    value: T,
    begun: Instant,
    took: Duration,
    changes: Option<u64>,
}

struct State<T> {
    last: Option<Last<T>>,
    failed: Option<crate::Error>,
    looking: bool,
    thread: Option<std::thread::JoinHandle<()>>,
}

/// See the head of this file.
pub struct Census<L: Look> {
    look: Arc<L>,
    state: Arc<(Mutex<State<L::Found>>, Condvar)>,
    stop: Arc<AtomicBool>,
}

impl<L: Look> Census<L> {
    /// Nothing is looked at before somebody asks.
    pub fn new(look: L) -> Census<L> {
        let state = State {
            last: None,
            failed: None,
            looking: false,
            thread: None,
        };
        Census {
            look: Arc::new(look),
            state: Arc::new((Mutex::new(state), Condvar::new())),
            stop: Arc::default(),
        }
    }

    /// The newest figures there are within `patience`; `None` if there are none yet.
    ///
    /// # Errors
    /// What the last look failed with, once.
    pub fn ask(&self, patience: Duration) -> Result<Option<Seen<L::Found>>> {
        let (lock, ended) = &*self.state;
        let until = Instant::now() + patience;
        let mut state = lock.lock();
        if let Some(last) = &state.last {
            if last.changes.is_some() && last.changes == self.look.changes() {
                return Ok(Some(Seen {
                    value: last.value.clone(),
                    age: Duration::ZERO,
                }));
            }
            let pause = if last.took <= QUICK {
                Duration::ZERO
            } else {
                last.took * PACE
            };
            if last.begun.elapsed() < pause {
                return Ok(seen(&state.last));
            }
        }
        if !state.looking && !self.stop.load(Ordering::Relaxed) {
            self.start(&mut state)?;
        }
        // A look that took longer than that last time is not worth the wait: the next one to ask gets what it finds.
        let hopeless = state.last.as_ref().is_some_and(|last| last.took > patience);
        while !hopeless && state.looking && !ended.wait_until(&mut state, until).timed_out() {}
        match state.failed.take() {
            Some(error) => Err(error),
            None => Ok(seen(&state.last)),
        }
    }

    fn start(&self, state: &mut State<L::Found>) -> Result<()> {
        let (look, shared, stop) = (self.look.clone(), self.state.clone(), self.stop.clone());
        let thread = std::thread::Builder::new().name("census".into());
        let spawned = thread.spawn(move || {
            let begun = Instant::now();
            // Read first: what changes meanwhile makes the figures old, never new.
            let changes = look.changes();
            let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| look.look(&stop)));
            let (lock, ended) = &*shared;
            let mut state = lock.lock();
            match found {
                Ok(Ok(value)) => {
                    state.failed = None;
                    state.last = Some(Last {
                        value,
                        begun,
                        took: begun.elapsed(),
                        changes,
                    });
                }
                Ok(Err(error)) => state.failed = Some(error),
                Err(_) => {
                    let why = "counting files and extents panicked; see the log".into();
                    state.failed = Some(crate::Error::Refused(why));
                }
            }
            state.looking = false;
            ended.notify_all();
        });
        state.thread = Some(spawned.map_err(|e| {
            let why = format!("cannot start a thread: {e}; raise the limit of processes");
            crate::Error::Refused(why)
        })?);
        state.looking = true;
        Ok(())
    }

    /// Ends a look under way, and begins no more.
    pub fn end(&self) {
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.state.0.lock().thread.take();
        // A panic was told already.
        let _ = thread.map(std::thread::JoinHandle::join);
    }
}

fn seen<T: Clone>(last: &Option<Last<T>>) -> Option<Seen<T>> {
    last.as_ref().map(|last| Seen {
        value: last.value.clone(),
        age: last.begun.elapsed(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crossbeam_channel::{Receiver, Sender, unbounded};
    use std::sync::atomic::AtomicU64;

    const LONG: Duration = Duration::from_secs(60);

    /// Finds what it is told, when it is told; counts the looks.
    struct Told {
        changes: Arc<AtomicU64>,
        found: Receiver<Option<u32>>,
    }

    impl Look for Told {
        type Found = u32;
        fn look(&self, _: &AtomicBool) -> Result<u32> {
            match self.found.recv_timeout(LONG) {
                Ok(Some(value)) => Ok(value),
                _ => Err(crate::Error::Corrupt("as told".into())),
            }
        }
        fn changes(&self) -> Option<u64> {
            Some(self.changes.load(Ordering::SeqCst))
        }
    }

    fn told() -> (Census<Told>, Sender<Option<u32>>, Arc<AtomicU64>) {
        let (tell, found) = unbounded();
        let changes = Arc::new(AtomicU64::new(0));
        let told = Told {
            changes: changes.clone(),
            found,
        };
        (Census::new(told), tell, changes)
    }

    #[test]
    fn what_has_not_changed_is_not_looked_at_again() {
        let (census, tell, changes) = told();
        tell.send(Some(1)).unwrap();
        let first = census.ask(LONG).unwrap().unwrap();
        assert_eq!(first.value, 1);
        // Nobody tells anything: a second look would not end.
        let again = census.ask(Duration::ZERO).unwrap().unwrap();
        assert_eq!((again.value, again.age), (1, Duration::ZERO));
        changes.store(1, Ordering::SeqCst);
        tell.send(Some(2)).unwrap();
        // Perhaps the first look took so long that the next is not due yet.
        let until = Instant::now() + LONG;
        while census.ask(LONG).unwrap().unwrap().value != 2 {
            assert!(Instant::now() < until);
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn nobody_waits_for_a_long_look_and_a_failure_is_told_once() {
        let (census, tell, _) = told();
        assert_eq!(census.ask(Duration::ZERO).unwrap(), None);
        assert_eq!(census.ask(Duration::from_millis(1)).unwrap(), None);
        tell.send(None).unwrap();
        assert!(census.ask(LONG).is_err());
        tell.send(Some(7)).unwrap();
        assert_eq!(census.ask(LONG).unwrap().unwrap().value, 7);
        census.end();
    }
}
