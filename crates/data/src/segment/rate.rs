//! How fast the disk takes bytes: what writing and syncing segments takes.
//!
//! Throughput is estimated from bytes over *busy time*: that of back-to-back calls, with the gaps between them. If most of the busy time was spent
//! blocked, the sample is the disk's rate. Otherwise the writer had other work, such as encoding, and the sample is a lower bound: it
//! may raise the estimate but not lower it.
//!
//! If the page cache absorbs the writes, the measured rate is that of memory. This is intended: the disk is then not the bottleneck, and
//! compression would not make writes faster.
use parking_lot::Mutex;
use std::time::{Duration, Instant};

/// Older writes count half after this many bytes.
const WINDOW_BYTES: f64 = 128e6;
/// Fewer bytes say nothing yet.
const LEAST_BYTES: f64 = 16e6;
/// After a longer gap the writer had nothing to write.
const MAX_WRITE_GAP: Duration = Duration::from_millis(10);
/// The part of the busy time that must be waiting, for the rate to be the disk's.
const MOSTLY_WAITING: f64 = 0.7;

#[derive(Default)]
struct RecentWrites {
    bytes: f64,
    /// Seconds in which writes were made, and those of them in which somebody waited.
    busy: f64,
    waited: f64,
    /// The end of the last call.
    last: Option<Instant>,
    rate: Option<f64>,
}

/// See the head of this file. Shared by threads.
#[derive(Default)]
pub struct WriteRate(Mutex<RecentWrites>);

impl WriteRate {
    /// A write of so many bytes, or a sync (of none more), began then and has ended.
    pub fn observe(&self, bytes: usize, begin: Instant) {
        self.observe_until(bytes, begin, Instant::now());
    }

    fn observe_until(&self, bytes: usize, begin: Instant, end: Instant) {
        let mut recent = self.0.lock();
        // Threads that wait at once wait for the same disk.
        let last = recent.last.map_or(begin, |last| last.min(end));
        let waited = end.saturating_duration_since(begin.max(last));
        let gap = begin.saturating_duration_since(last);
        let gap = if gap <= MAX_WRITE_GAP {
            gap
        } else {
            Duration::ZERO
        };
        recent.last = Some(recent.last.map_or(end, |last| last.max(end)));
        recent.bytes += bytes as f64;
        recent.waited += waited.as_secs_f64();
        recent.busy += (waited + gap).as_secs_f64();
        if recent.bytes < LEAST_BYTES {
            return;
        }
        let seen = recent.bytes / recent.busy.max(1e-9);
        let is_the_disks = recent.waited >= MOSTLY_WAITING * recent.busy;
        recent.rate = Some(match recent.rate {
            Some(known) if !is_the_disks => known.max(seen),
            _ => seen,
        });
        if recent.bytes > WINDOW_BYTES {
            recent.bytes /= 2.0;
            recent.busy /= 2.0;
            recent.waited /= 2.0;
        }
    }

    /// Bytes a second. `None`: not known yet.
    pub fn bytes_per_second(&self) -> Option<f64> {
        self.0.lock().rate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls that follow each other.
    struct CallClock(Instant);

    impl CallClock {
        fn call(&mut self, rate: &WriteRate, bytes: usize, micros: u64) {
            let begin = self.0;
            self.0 += Duration::from_micros(micros);
            rate.observe_until(bytes, begin, self.0);
        }
    }

    fn is_near(rate: &WriteRate, wanted: f64) {
        let rate = rate.bytes_per_second().unwrap();
        assert!((wanted * 0.8..wanted * 1.2).contains(&rate), "{rate}");
    }

    #[test]
    fn the_rate_follows_recent_writes_and_counts_the_wait_for_syncs() {
        let (rate, mut clock) = (WriteRate::default(), CallClock(Instant::now()));
        assert_eq!(rate.bytes_per_second(), None);
        for _ in 0..100 {
            clock.call(&rate, 1_000_000, 1000);
        }
        is_near(&rate, 1e9);
        for _ in 0..2000 {
            clock.call(&rate, 1_000_000, 1000);
            clock.call(&rate, 0, 4000);
        }
        is_near(&rate, 2e8);
    }

    #[test]
    fn a_writer_with_other_work_does_not_make_the_disk_look_fast_or_slow() {
        let (rate, mut clock) = (WriteRate::default(), CallClock(Instant::now()));
        for _ in 0..100 {
            clock.call(&rate, 1_000_000, 5000);
        }
        is_near(&rate, 2e8);
        // It encodes: the disk takes what comes at once, and half as much would be enough.
        for _ in 0..500 {
            clock.0 += Duration::from_millis(10);
            clock.call(&rate, 1_000_000, 100);
        }
        is_near(&rate, 2e8);
        // The disk takes three times as much.
        for _ in 0..500 {
            clock.0 += Duration::from_micros(1500);
            clock.call(&rate, 1_000_000, 100);
        }
        is_near(&rate, 6e8);
    }

    #[test]
    fn pauses_do_not_count_and_threads_that_wait_at_once_share_the_disk() {
        let (rate, mut clock) = (WriteRate::default(), CallClock(Instant::now()));
        for _ in 0..50 {
            clock.0 += Duration::from_secs(1);
            let begin = clock.0;
            clock.call(&rate, 1_000_000, 10_000);
            rate.observe_until(1_000_000, begin, clock.0);
        }
        is_near(&rate, 2e8);
    }
}
