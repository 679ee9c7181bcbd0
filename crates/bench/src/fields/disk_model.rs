//! A disk of a given bandwidth, for a store whose files lie in memory: calls wait as long as that disk would take.
//!
//! Like a disk behind the kernel's cache: writes are taken at once while no more than [`DIRTY_BYTES`] wait for the disk, a sync waits
//! for all of them, and of a file that is read in order the disk reads up to [`READ_AHEAD`] bytes ahead. So who encodes while the
//! disk writes, or decodes while it reads, is as fast as the slower of both.
use forebay_storage::fault::{Call, HookedIo};
use forebay_storage::{Io, OsIo};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes that may wait for the disk before a write does.
const DIRTY_BYTES: f64 = 16e6;
/// Bytes that the disk reads ahead.
const READ_AHEAD: u64 = 1 << 20;
/// What a disk reads at once: a read is in order if it begins in the page where the last one ended, or in the one behind.
const PAGE: u64 = 4096;

/// A file that is read in order.
#[derive(Debug, Clone, Copy)]
struct ReadStream {
    /// Where the next read begins.
    next: u64,
    /// What was fetched, up to this offset.
    fetched: u64,
    /// When that was so.
    at: Instant,
}

/// See the head of this file. The caller has the clock: each call returns when it may go on.
#[derive(Debug)]
pub struct DiskModel {
    bytes_per_second: f64,
    /// When all that was written is on the disk.
    written_at: Instant,
    streams: HashMap<PathBuf, ReadStream>,
}

impl DiskModel {
    /// An idle disk.
    pub fn new(bytes_per_second: f64, now: Instant) -> DiskModel {
        DiskModel {
            bytes_per_second,
            written_at: now,
            streams: HashMap::new(),
        }
    }

    fn seconds(&self, bytes: f64) -> Duration {
        Duration::from_secs_f64(bytes / self.bytes_per_second)
    }

    /// A write of so many bytes.
    fn write(&mut self, bytes: u64, now: Instant) -> Instant {
        self.written_at = self.written_at.max(now) + self.seconds(bytes as f64);
        let dirty = self.seconds(DIRTY_BYTES);
        self.written_at
            .checked_sub(dirty)
            .map_or(now, |until| until.max(now))
    }

    /// A read of so many bytes of a file.
    fn read(&mut self, path: &Path, offset: u64, bytes: u64, now: Instant) -> Instant {
        let end = offset + bytes;
        let known = self.streams.get(path).filter(|stream| {
            (stream.next / PAGE..=stream.next / PAGE + 1).contains(&(offset / PAGE))
        });
        let (fetched, since) = match known {
            Some(stream) => {
                let meanwhile = now.saturating_duration_since(stream.at).as_secs_f64();
                let more = (meanwhile * self.bytes_per_second) as u64;
                let fetched = (stream.fetched + more).min(offset + READ_AHEAD);
                (fetched.max(stream.fetched), now)
            }
            // The disk writes first what waits.
            None => (offset, now.max(self.written_at)),
        };
        let missing = end.saturating_sub(fetched);
        let until = since + self.seconds(missing as f64);
        let stream = ReadStream {
            next: end,
            fetched: fetched.max(end),
            at: until,
        };
        self.streams.insert(path.to_owned(), stream);
        until
    }

    /// Calls on the operating system's files that wait for such a disk.
    pub fn over_files(bytes_per_second: f64) -> Arc<dyn Io> {
        let model = Mutex::new(DiskModel::new(bytes_per_second, Instant::now()));
        Arc::new(HookedIo::new(OsIo, move |path: &Path, call: Call<'_>| {
            let now = Instant::now();
            let until = match call {
                Call::Write { len, .. } => model.lock().write(len, now),
                Call::Read { offset, len } => model.lock().read(path, offset, len, now),
                Call::Sync => model.lock().written_at,
                _ => now,
            };
            std::thread::sleep(until.saturating_duration_since(now));
            Ok(())
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn writes_wait_once_the_cache_is_full_and_syncs_for_everything() {
        let start = Instant::now();
        let mut disk = DiskModel::new(16e6, start);
        assert_eq!(disk.write(8_000_000, start), start);
        assert_eq!(disk.write(8_000_000, start), start);
        assert_eq!(disk.write(16_000_000, start), start + SECOND);
        assert_eq!(disk.written_at, start + 2 * SECOND);
        // Idle meanwhile.
        assert_eq!(
            disk.write(16_000_000, start + 9 * SECOND),
            start + 9 * SECOND
        );
        assert_eq!(disk.written_at, start + 10 * SECOND);
    }

    #[test]
    fn a_file_that_is_read_in_order_is_read_ahead() {
        let (start, path) = (Instant::now(), Path::new("a"));
        let mut disk = DiskModel::new((1 << 20) as f64, start);
        assert_eq!(disk.read(path, 0, 1 << 20, start), start + SECOND);
        // Half a second of decoding: half of the next is there, and then no wait is longer than for the rest.
        let later = start + SECOND + SECOND / 2;
        assert_eq!(disk.read(path, 1 << 20, 1 << 20, later), start + 2 * SECOND);
        // However long the reader takes, no more than the window is there.
        let late = start + 60 * SECOND;
        assert_eq!(disk.read(path, 2 << 20, 2 << 20, late), late + SECOND);
        // A few bytes are left out between records, and read all the same.
        let soon = late + 2 * SECOND;
        let skipped = disk.read(path, (4 << 20) + 3000, 1 << 20, soon);
        assert!(skipped < soon + SECOND / 100, "it was read ahead");
        let late = soon + 60 * SECOND;
        // Elsewhere nothing is.
        assert_eq!(disk.read(path, 9 << 20, 1 << 20, late), late + SECOND);
    }
}
