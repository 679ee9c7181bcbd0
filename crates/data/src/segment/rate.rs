//! How fast the disk takes bytes: what writing and syncing segments takes.
//!
//! The rate is bytes by the seconds that threads waited for them, in a window of recent writes. Where the kernel takes bytes into
//! its cache and nobody waits for the disk, that is the rate of memory; this is meant: then nothing is gained by writing less.
use parking_lot::Mutex;
use std::time::Duration;

/// Older writes count half after this many bytes.
const WINDOW_BYTES: f64 = 128e6;
/// Fewer bytes say nothing yet.
const LEAST_BYTES: f64 = 16e6;

#[derive(Default)]
struct RecentWrites {
    bytes: f64,
    seconds: f64,
}

/// See the head of this file. Shared by threads.
#[derive(Default)]
pub struct WriteRate(Mutex<RecentWrites>);

impl WriteRate {
    /// A write of so many bytes, or a sync (of none more), took this long.
    pub fn observe(&self, bytes: usize, took: Duration) {
        let mut recent = self.0.lock();
        recent.bytes += bytes as f64;
        recent.seconds += took.as_secs_f64();
        if recent.bytes > WINDOW_BYTES {
            recent.bytes /= 2.0;
            recent.seconds /= 2.0;
        }
    }

    /// Bytes a second. `None`: not known yet.
    pub fn bytes_per_second(&self) -> Option<f64> {
        let recent = self.0.lock();
        (recent.bytes >= LEAST_BYTES).then(|| recent.bytes / recent.seconds.max(1e-9))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_follows_recent_writes_and_counts_the_wait_for_syncs() {
        let rate = WriteRate::default();
        assert_eq!(rate.bytes_per_second(), None);
        for _ in 0..100 {
            rate.observe(1_000_000, Duration::from_millis(1));
        }
        let near = |wanted: f64| {
            let rate = rate.bytes_per_second().unwrap();
            assert!((wanted * 0.9..wanted * 1.1).contains(&rate), "{rate}");
        };
        near(1e9);
        for _ in 0..2000 {
            rate.observe(1_000_000, Duration::from_millis(1));
            rate.observe(0, Duration::from_millis(4));
        }
        near(2e8);
    }
}
