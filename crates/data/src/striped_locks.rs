//! Striped locks: a fixed number of locks for any number of logs or containers, which are mapped to locks by their numbers.
//!
//! Invariant: whoever needs several takes them in one call, which locks in a fixed order. So there is no deadlock.
use parking_lot::{Mutex, MutexGuard};

const STRIPES: usize = 64;

/// See the head of this file.
pub struct StripedLocks([Mutex<()>; STRIPES]);

/// Some of them, held.
pub type StripeGuards<'a> = Vec<MutexGuard<'a, ()>>;

impl Default for StripedLocks {
    fn default() -> StripedLocks {
        StripedLocks([const { Mutex::new(()) }; STRIPES])
    }
}

impl StripedLocks {
    /// Locks these, in one order whatever the order given.
    pub fn lock(&self, numbers: impl IntoIterator<Item = u64>) -> StripeGuards<'_> {
        let numbers = numbers.into_iter();
        let mut stripes: Vec<usize> = numbers.map(|n| n as usize % STRIPES).collect();
        stripes.sort_unstable();
        stripes.dedup();
        stripes.into_iter().map(|s| self.0[s].lock()).collect()
    }
}
