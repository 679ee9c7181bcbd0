//! Tells whether a handle's reads wait for other nodes, so that fetching ahead can save time: an average over a few reads, in
//! which one slow transfer counts little. A read that was answered from bytes fetched ahead counts with the time that their
//! fetch took, so prefetching that helps goes on.
use std::time::Duration;

/// What a read may wait, nanoseconds, and [`TRANSFER_NANOS_PER_BYTE`] for each byte.
const SLOW_NANOS: i64 = 100_000;
/// Nanoseconds that a byte may take on its way. Waiting for many bytes is mostly their transfer, which takes as long if it begins
/// sooner, and which the kernel's readahead overlaps already.
const TRANSFER_NANOS_PER_BYTE: i64 = 4;
/// One read counts as this many times what it may wait, at most: a single long wait is soon forgotten.
const OUTLIER_FACTOR: i64 = 3;
/// The average is over about this many reads.
const AVERAGED_READS: i64 = 8;

/// How long reads waited of late.
#[derive(Debug, Default)]
pub struct ReadWaits {
    /// By how much longer than they may, on average, nanoseconds.
    excess: i64,
}

impl ReadWaits {
    /// Notes how long a read of `len` bytes, or the fetch that replaced it, waited.
    pub fn note(&mut self, waited: Duration, len: usize) {
        let may = SLOW_NANOS + TRANSFER_NANOS_PER_BYTE * len as i64;
        let waited = i64::try_from(waited.as_nanos()).unwrap_or(i64::MAX);
        self.excess += (waited.min(OUTLIER_FACTOR * may) - may - self.excess) / AVERAGED_READS;
    }

    /// Whether that is too long.
    pub fn slow(&self) -> bool {
        self.excess > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(reads: &[(u64, usize)]) -> bool {
        let mut waits = ReadWaits::default();
        let times = reads.iter();
        times.for_each(|(micros, len)| waits.note(Duration::from_micros(*micros), *len));
        waits.slow()
    }

    #[test]
    fn what_is_here_is_not_waited_for() {
        assert!(!after(&[]));
        assert!(!after(&[(0, 4096); 100]));
    }

    #[test]
    fn small_reads_from_afar_are_slow_from_the_first() {
        assert!(after(&[(250, 4096)]));
        assert!(after(&[(250, 4096); 100]));
        // Every third is from here.
        assert!(after(&[(400, 4096), (400, 4096), (0, 4096)].repeat(10)));
    }

    #[test]
    fn a_transfer_is_not_even_with_a_hiccup() {
        assert!(!after(&[(2_000, 1 << 20); 100]));
        let hiccup = [&[(1_000, 1 << 20); 10][..], &[(900_000, 1 << 20)]].concat();
        assert!(!after(&hiccup.repeat(10)));
        assert!(after(&[(9_000, 1 << 20); 3]));
    }
}
