//! The set of fingerprints seen so far, in a fixed number of bytes: exact while it fits, a sample of them beyond (adaptive
//! sampling).
//!
//! At sampling rate `2^k` only fingerprints whose lowest `k` bits are zero are kept, and each stands for `2^k`. Raising the rate
//! removes those that no longer qualify. So the set is always complete for the fingerprints that qualify, and the estimate of the
//! distinct ones is unbiased. Its relative error is about one over the square root of the fingerprints kept.
use crate::fingerprint::Fingerprint;

/// Slots of an empty set.
const FEWEST_SLOTS: usize = 1 << 10;

/// A set of fingerprints, of which 64 bits are kept: open addressing with linear probing.
#[derive(Debug)]
pub struct SeenFingerprints {
    slots: Vec<u64>,
    len: usize,
    most_slots: usize,
    rate: u32,
}

impl SeenFingerprints {
    /// An empty one that takes at most `budget` bytes, or 24 KiB.
    pub fn new(budget: usize) -> SeenFingerprints {
        // While the set grows, the old slots (half as many) are in memory too.
        let most = (budget / 12).max(2 * FEWEST_SLOTS);
        SeenFingerprints {
            slots: vec![0; FEWEST_SLOTS],
            len: 0,
            most_slots: 1 << most.ilog2(),
            rate: 0,
        }
    }

    /// Adds a fingerprint. The number of new ones that it stands for: 0 if it was seen before, or is outside the sample.
    pub fn see(&mut self, fingerprint: &Fingerprint) -> u64 {
        let [key @ .., _, _, _, _, _, _, _, _, _, _, _, _] = fingerprint.0;
        let key = match u64::from_le_bytes(key) {
            // Zero marks an empty slot.
            0 => 1 << 63,
            key => key,
        };
        if !self.is_looked_at(key) || !insert(&mut self.slots, key) {
            return 0;
        }
        let stands_for = self.rate();
        self.len += 1;
        if self.len * 4 > self.slots.len() * 3 {
            self.make_room();
        }
        stands_for
    }

    /// How many fingerprints each kept one stands for: 1 while all fit.
    pub fn rate(&self) -> u64 {
        1 << self.rate
    }

    fn is_looked_at(&self, key: u64) -> bool {
        key & (self.rate() - 1) == 0
    }

    fn make_room(&mut self) {
        let mut size = self.slots.len() * 2;
        if size > self.most_slots {
            size = self.slots.len();
            self.rate += 1;
        }
        let old = std::mem::replace(&mut self.slots, vec![0; size]);
        self.len = 0;
        for key in old {
            if key != 0 && self.is_looked_at(key) {
                insert(&mut self.slots, key);
                self.len += 1;
            }
        }
    }
}

/// False if the key is there already.
fn insert(slots: &mut [u64], key: u64) -> bool {
    // The lowest bits of all keys are zero in a sample.
    let mut at = (key >> 20) as usize % slots.len();
    while slots[at] != 0 {
        if slots[at] == key {
            return false;
        }
        at = (at + 1) % slots.len();
    }
    slots[at] = key;
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fingerprint::FingerprintKind;

    fn of(n: u64) -> Fingerprint {
        FingerprintKind::Blake3.of(&n.to_le_bytes())
    }

    #[test]
    fn it_counts_exactly_what_fits() {
        let mut seen = SeenFingerprints::new(1 << 20);
        let new: u64 = (0..60_000).map(|n| seen.see(&of(n % 40_000))).sum();
        assert_eq!((new, seen.rate()), (40_000, 1));
    }

    #[test]
    fn beyond_it_estimates_within_some_percent_in_the_same_memory() {
        let mut seen = SeenFingerprints::new(1 << 16);
        let mut new = 0;
        for n in 0..1_000_000u64 {
            // Every third is one of those before.
            new += seen.see(&of(if n % 3 == 2 { n / 2 } else { n }));
            assert!(12 * seen.slots.len() <= 1 << 16);
        }
        // Of those repeated half had been seen when n was below them, or are of numbers that were left out.
        let mut exact = std::collections::HashSet::new();
        exact.extend((0..1_000_000u64).map(|n| if n % 3 == 2 { n / 2 } else { n }));
        let error = new as f64 / exact.len() as f64 - 1.0;
        assert!(
            seen.rate() >= 128 && error.abs() < 0.06,
            "{error} at {}",
            seen.rate()
        );
    }
}
