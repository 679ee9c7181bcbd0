//! A byte counter with a limit: for live bytes (the quota) and the memory of tails.
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A number of bytes with a limit.
#[derive(Debug)]
pub struct ByteBudget {
    used: AtomicU64,
    /// The most, bytes.
    pub limit: u64,
}

impl ByteBudget {
    /// Nothing used yet.
    pub fn new(limit: u64) -> ByteBudget {
        ByteBudget {
            used: AtomicU64::new(0),
            limit,
        }
    }
    /// Bytes in use.
    pub fn used(&self) -> u64 {
        self.used.load(Relaxed)
    }
    /// Takes `n` bytes, or nothing if that is over the limit.
    pub fn try_charge(&self, n: u64) -> bool {
        let fits = |used: u64| used.checked_add(n).filter(|total| *total <= self.limit);
        self.used.fetch_update(Relaxed, Relaxed, fits).is_ok()
    }
    /// Takes `n` bytes, whatever the limit.
    pub fn charge(&self, n: u64) {
        self.used.fetch_add(n, Relaxed);
    }
    /// Gives `n` bytes back.
    pub fn release(&self, n: u64) {
        let before = self.used.fetch_sub(n, Relaxed);
        debug_assert!(before >= n, "gave back more than was taken");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_stops_at_its_limit() {
        let budget = ByteBudget::new(10);
        assert!(budget.try_charge(10) && !budget.try_charge(1));
        budget.release(3);
        assert!(!budget.try_charge(4) && budget.try_charge(3));
        budget.charge(5);
        assert_eq!((budget.used(), budget.limit), (15, 10));
    }
}
