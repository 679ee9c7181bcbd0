//! The logs open for appending. A log takes memory only while bytes are in its tail, so that 10,000 open logs are cheap.
//!
//! Lock order: a log's state, then span locks (`free`), then the small locks below them. Nobody waits for a second
//! log's state while holding one (`try_lock` only).
use super::{LogId, segment::Segment, tail::Tail};
use crate::{Error, Fid, Result};
use parking_lot::{Mutex, RwLock};
use rustix::io::Errno;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const SHARDS: usize = 16;
/// Emptied buffers kept for the next full tail.
const SPARE_BUFFERS: usize = 4;

/// One open log.
pub struct Log {
    pub(super) id: LogId,
    pub(super) fid: Fid,
    /// Address of the first byte not in a recorded span; read without the lock.
    written: AtomicU64,
    pub(super) state: Mutex<LogState>,
}

/// What appends change.
#[derive(Default)]
pub struct LogState {
    pub(super) tail: Tail,
    /// The log is in `keys::LOGS`.
    pub(super) recorded: bool,
    /// Place in the queue of logs with a tail; 0: not there.
    pub(super) ticket: u64,
    /// No more appends.
    pub(super) sealed: bool,
    /// Wrote a full tail before: the next one will be full too.
    pub(super) busy: bool,
    /// Segments with bytes of this log that may not be on disk.
    pub(super) dirty: Vec<Arc<Segment>>,
}

impl Log {
    /// Every byte below is in a span of the store.
    pub fn written(&self) -> u64 {
        self.written.load(Ordering::Acquire)
    }
    /// Call after the spans are in the store.
    pub(super) fn set_written(&self, addr: u64) {
        self.written.store(addr, Ordering::Release);
    }
}

/// Logs by ticket; tickets grow.
#[derive(Default)]
struct Queue {
    logs: BTreeMap<u64, Arc<Log>>,
    last: u64,
}

/// All open logs.
#[derive(Default)]
pub struct Logs {
    shards: [RwLock<HashMap<LogId, Arc<Log>>>; SHARDS],
    /// Logs with a tail, oldest first: whose buffers go first when memory is short.
    queue: Mutex<Queue>,
    spare: Mutex<Vec<Vec<u8>>>,
    /// Sealed, but still in `keys::LOGS`: the next batch takes them along.
    sealed: Mutex<Vec<LogId>>,
}

impl Logs {
    fn shard(&self, id: LogId) -> &RwLock<HashMap<LogId, Arc<Log>>> {
        &self.shards[id as usize % SHARDS]
    }
    /// Opens a new log.
    pub fn add(&self, id: LogId, fid: Fid) {
        let log = Log {
            id,
            fid,
            written: AtomicU64::new(0),
            state: Mutex::default(),
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

    /// The log has a tail now.
    pub(super) fn queue(&self, log: &Arc<Log>, state: &mut LogState) {
        if state.ticket == 0 {
            let mut queue = self.queue.lock();
            queue.last += 1;
            state.ticket = queue.last;
            let ticket = queue.last;
            queue.logs.insert(ticket, log.clone());
        }
    }
    /// The log has no tail any more.
    pub(super) fn unqueue(&self, state: &mut LogState) {
        if state.ticket != 0 {
            self.queue.lock().logs.remove(&state.ticket);
            state.ticket = 0;
        }
    }
    /// The log queued longest of those behind `ticket`, with its ticket.
    pub(super) fn queued_after(&self, ticket: u64) -> Option<(u64, Arc<Log>)> {
        let queue = self.queue.lock();
        queue
            .logs
            .range(ticket + 1..)
            .next()
            .map(|(t, log)| (*t, log.clone()))
    }

    /// A spare buffer of at least this capacity, still counted in the budget.
    pub(super) fn take_spare(&self, capacity: usize) -> Option<Vec<u8>> {
        let mut spare = self.spare.lock();
        let at = spare.iter().position(|b| b.capacity() >= capacity)?;
        Some(spare.swap_remove(at))
    }
    /// Keeps a buffer for reuse; gives it back if there are enough.
    pub(super) fn keep_spare(&self, buffer: Vec<u8>) -> Option<Vec<u8>> {
        let mut spare = self.spare.lock();
        if spare.len() >= SPARE_BUFFERS {
            return Some(buffer);
        }
        spare.push(buffer);
        None
    }
    /// Gives all spare buffers back; returns their bytes.
    pub(super) fn drop_spares(&self) -> u64 {
        std::mem::take(&mut *self.spare.lock())
            .iter()
            .map(|b| b.capacity() as u64)
            .sum()
    }

    /// Remembers a sealed log for the next batch; how many wait.
    pub(super) fn note_sealed(&self, id: LogId) -> usize {
        let mut sealed = self.sealed.lock();
        sealed.push(id);
        sealed.len()
    }
    /// Takes the sealed logs for a batch.
    pub(super) fn take_sealed(&self) -> Vec<LogId> {
        std::mem::take(&mut *self.sealed.lock())
    }
    /// The batch failed: they wait again.
    pub(super) fn untake_sealed(&self, mut ids: Vec<LogId>) {
        self.sealed.lock().append(&mut ids);
    }
}
