//! The logs that are open for appending. A log takes memory only while bytes are in its tail, so 10,000 open logs are cheap.
//!
//! Lock order: a log's state, then span locks (`span_table`), then the small locks below them. A thread that holds one log's state
//! never waits for another's (it uses `try_lock`). Pending appends are counted with the state held, and waited for without it.
use crate::segment::Segment;
use crate::span::StoredHint;
use crate::tail::LogTail;
use forebay_codec::choose::CodecChooser;
use forebay_proto::{Error, Fid, LogId, Result};
use parking_lot::{Condvar, Mutex, RwLock};
use rustix::io::Errno;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const SHARDS: usize = 16;

/// One open log.
pub struct Log {
    /// Its number.
    pub id: LogId,
    /// Whose bytes are in it.
    pub fid: Fid,
    /// How its bytes are to be encoded.
    pub hint: StoredHint,
    /// Where in the file its bytes go is kept.
    pub in_series: bool,
    /// Address of the first byte that may be in the tail; read without the lock.
    written: AtomicU64,
    /// What appends change.
    pub state: Mutex<LogState>,
    /// Appends that have taken their addresses and are not recorded yet, without the state being held.
    pub pending: PendingAppends,
}

/// What appends change.
#[derive(Default)]
pub struct LogState {
    /// The bytes not yet in a segment.
    pub tail: LogTail,
    /// The log has its record in `keyspaces::LOGS`.
    pub recorded: bool,
    /// Place in the queue of logs with a tail (`tail_memory`); 0: not there.
    pub ticket: u64,
    /// No more appends.
    pub sealed: bool,
    /// Wrote a full tail before: the next one will be full too.
    pub fills_tails: bool,
    /// Segments with bytes of this log that may not be on disk.
    pub unsynced: Vec<Arc<Segment>>,
    /// Choosers of codecs for what is encoded inline that no append uses now: as many as appends were encoded at once.
    pub choosers: Vec<CodecChooser>,
}

/// Counts appends of a log that have their addresses and are not recorded yet, while others use the log.
#[derive(Default)]
pub struct PendingAppends {
    count: Mutex<usize>,
    none: Condvar,
}

impl PendingAppends {
    /// Counts one, until the result is dropped. With the log's state held: so `wait` waits for all that have begun before the log was sealed.
    pub fn begin(&self) -> PendingAppend<'_> {
        *self.count.lock() += 1;
        PendingAppend(self)
    }

    /// Waits until there is none. Without the log's state, which they need.
    pub fn wait(&self) {
        let mut count = self.count.lock();
        while *count > 0 {
            self.none.wait(&mut count);
        }
    }
}

/// One such append, counted until this is dropped.
pub struct PendingAppend<'a>(&'a PendingAppends);

impl Drop for PendingAppend<'_> {
    fn drop(&mut self) {
        let mut count = self.0.count.lock();
        *count -= 1;
        if *count == 0 {
            self.0.none.notify_all();
        }
    }
}

impl Log {
    /// Every byte below is in a span of the store, or padding, or of an append that has not returned.
    pub fn written(&self) -> u64 {
        self.written.load(Ordering::Acquire)
    }
    /// Call after the spans are in the store, or when an append has taken the addresses.
    pub fn set_written(&self, addr: u64) {
        self.written.store(addr, Ordering::Release);
    }
}

/// All open logs.
#[derive(Default)]
pub struct OpenLogs {
    shards: [RwLock<HashMap<LogId, Arc<Log>>>; SHARDS],
}

impl OpenLogs {
    fn shard(&self, id: LogId) -> &RwLock<HashMap<LogId, Arc<Log>>> {
        &self.shards[id as usize % SHARDS]
    }
    /// Opens a new log.
    pub fn add(&self, id: LogId, fid: Fid, hint: StoredHint, in_series: bool) {
        let log = Log {
            id,
            fid,
            hint,
            in_series,
            written: AtomicU64::new(0),
            state: Mutex::default(),
            pending: PendingAppends::default(),
        };
        self.shard(id).write().insert(id, Arc::new(log));
    }
    /// The log, if it is open.
    pub fn find(&self, id: LogId) -> Option<Arc<Log>> {
        self.shard(id).read().get(&id).cloned()
    }
    /// The log.
    ///
    /// # Errors
    /// `EBADF` if it is not open.
    pub fn get(&self, id: LogId) -> Result<Arc<Log>> {
        self.find(id).ok_or(Error::Posix(Errno::BADF))
    }
    /// Closes a log.
    pub fn remove(&self, id: LogId) -> Option<Arc<Log>> {
        self.shard(id).write().remove(&id)
    }
    /// Number of open logs.
    pub fn count(&self) -> u64 {
        self.shards.iter().map(|s| s.read().len() as u64).sum()
    }

    /// Copies what the tail of a log holds from `at` on: how many bytes. `None`: `at` is not in a tail.
    ///
    /// # Errors
    /// The first address that is freed, or not appended yet.
    pub fn read_tail(
        &self,
        id: LogId,
        at: u64,
        buf: &mut [u8],
    ) -> std::result::Result<Option<usize>, u64> {
        let Some(log) = self.find(id).filter(|l| at >= l.written()) else {
            return Ok(None);
        };
        let state = log.state.lock();
        if at < state.tail.start() {
            return Ok(None);
        }
        let n = (buf.len() as u64).min(state.tail.end().saturating_sub(at)) as usize;
        if n == 0 {
            return Err(at);
        }
        state.tail.read(at, &mut buf[..n])?;
        Ok(Some(n))
    }

    /// Frees what the tail of a log holds of these ranges: how many bytes were live. They never get a span.
    pub fn free_tail(&self, id: LogId, ranges: &[Range<u64>]) -> u64 {
        let Some(log) = self.find(id) else {
            return 0;
        };
        let mut state = log.state.lock();
        ranges.iter().map(|r| state.tail.free(r)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tail_is_read_from_where_spans_end_and_freed_bytes_are_named() {
        let logs = OpenLogs::default();
        logs.add(7, Fid(1), StoredHint::default(), false);
        let log = logs.get(7).unwrap();
        log.state.lock().tail.advance(100);
        log.state.lock().tail.push(&[5; 50]);
        log.set_written(100);
        let mut buf = [0; 80];
        assert_eq!(logs.read_tail(7, 99, &mut buf), Ok(None));
        assert_eq!(logs.read_tail(7, 120, &mut buf), Ok(Some(30)));
        assert_eq!(logs.read_tail(7, 150, &mut buf), Err(150));
        assert_eq!(logs.free_tail(7, &[0..110, 140..200]), 20);
        assert_eq!(logs.read_tail(7, 120, &mut buf), Err(140));
        assert_eq!(logs.read_tail(7, 110, &mut buf[..30]), Ok(Some(30)));
        assert!(logs.remove(7).is_some() && logs.get(7).is_err());
        assert_eq!(logs.free_tail(7, &[0..100, 110..200]), 0, "closed");
    }
}
