//! Fetching what clients will read before they ask (design section 6; `docs/prefetch.md`).
//!
//! ```text
//! read -> [ reader ]  what comes next?  -> [ pieces ]  room for it -> [ pool ]  threads: read as the client would
//!    |                                         |                         |
//!    +------- is it here, or on its way? <-----+-------------------------+
//! ```
//!
//! | file | what |
//! |---|---|
//! | `config` | settings; who predicts |
//! | `reader` | one open handle: what comes next, how far ahead, whether at all |
//! | `steps`, `markov`, `readahead` | sources of predictions, beside the loops of the crate `pattern` |
//! | `watch` | the part of an open handle: its reader, and whether it is watched |
//! | `pieces` | ranges that are here or on their way, in a budget |
//! | `pool` | threads and their queue |
//! | `fetch` | what a thread does: one piece, as the file is at one generation |
//! | `waits` | whether a handle's reads wait for other nodes |
//!
//! Invariants:
//! - A piece holds committed bytes of one generation of a file. A read takes it only while that is the file's generation here and
//!   nothing of this node's own, pending or being committed, lies above the range. Equal generations mean equal bytes: so a
//!   read sees what it would have seen without any of this.
//! - A read never waits for a piece longer than asking itself usually takes, and not at all for one in the queue.
//! - Handles whose reads do not wait for other nodes are not watched. Bytes on this node's own disk are left to the kernel, which
//!   reads ahead in the log: to fetch them here too costs processor time, and saves none.
mod fetch;
mod markov;
mod pieces;
mod pool;
mod readahead;
mod reader;
mod stats;
mod steps;
mod waits;
mod watch;

use super::Delegate;
use super::handles::Open;
use super::open_file::{OpenFile, State};
use crate::prefetch_config::{Policy, PrefetchConfig};
use crate::{Fid, Result};
use bytes::Bytes;
use forebay_pattern::ReadRequest;
use lru::LruCache;
use markov::{Chain, Room};
use parking_lot::{Condvar, Mutex};
use pieces::{Found, Pieces};
use pool::{Job, Pool};
pub use stats::PrefetchStats;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};
use steps::Steps;
pub use watch::Watch;

/// Files whose steps or chains are remembered. The compiler evaluates it, so it is not 0.
const FILES: NonZeroUsize = NonZeroUsize::new(64).unwrap();
/// Memory of a watched handle, about.
const READER: u64 = 8 << 10;

/// What is remembered of a file beyond its handles.
#[derive(Clone)]
struct Memory {
    steps: Arc<Steps>,
    chain: Arc<Chain>,
}

/// All that is fetched ahead for one delegate.
pub struct Prefetch {
    config: PrefetchConfig,
    delegate: OnceLock<Weak<Delegate>>,
    pieces: Mutex<Pieces>,
    /// A piece came, or will not come.
    arrived: Condvar,
    /// Bytes in `pieces`: a look at it tells that there are none.
    held: AtomicU64,
    pool: Pool,
    /// What a fetch takes, nanoseconds, about.
    usual: AtomicU64,
    files: Mutex<LruCache<Fid, Memory>>,
    /// Of all chains.
    room: Arc<Room>,
    watched: AtomicU64,
}

fn range(request: ReadRequest) -> Range<u64> {
    request.offset..request.offset.saturating_add(request.len)
}

/// The generation as of which `range` can be read without this node's own writes, and what of it lies before the end of the file.
fn settled(state: &State, range: &Range<u64>) -> Option<(u64, Range<u64>)> {
    let size = state.attr.size;
    if state.dirty() {
        let committing = state.committing.as_ref().map(|a| &a.layer.intervals);
        let layers = [Some(&state.pending.intervals), committing];
        let above = layers.into_iter().flatten().any(|layer| {
            let (here, next) = layer.segment(range.start);
            here.is_some() || next < range.end
        });
        // A file that grows here shows zeros behind its committed end.
        if above || (state.size() != size && range.end > size) {
            return None;
        }
    }
    let range = range.start..range.end.min(size);
    (!range.is_empty()).then_some((state.attr.generation, range))
}

impl Prefetch {
    /// Of a member of so much memory; `None` if nothing is ever fetched ahead.
    pub(super) fn new(config: &PrefetchConfig, memory: u64) -> Option<Arc<Prefetch>> {
        (config.policy != Policy::None).then(|| {
            let chains = config.chain_bytes(memory);
            Arc::new(Prefetch {
                pieces: Mutex::new(Pieces::new(config.cache_bytes(memory) - chains)),
                room: Arc::new(Room::new(chains)),
                config: config.clone(),
                delegate: OnceLock::new(),
                arrived: Condvar::new(),
                held: AtomicU64::new(0),
                pool: Pool::default(),
                usual: AtomicU64::new(0),
                files: Mutex::new(LruCache::new(FILES)),
                watched: AtomicU64::new(0),
            })
        })
    }

    /// Whose reads these are. Once, before the first.
    pub(super) fn bind(&self, delegate: &Arc<Delegate>) {
        let _ = self.delegate.set(Arc::downgrade(delegate));
    }

    /// Ends the threads.
    pub(super) fn stop(&self) {
        self.pool.stop();
    }

    /// What has become of all.
    pub(super) fn stats(&self) -> PrefetchStats {
        self.pieces.lock().stats
    }

    /// What is remembered of the file.
    fn remembered(&self, fid: Fid) -> Memory {
        let new = || Memory {
            steps: Arc::default(),
            chain: Arc::new(Chain::new(self.room.clone())),
        };
        self.files.lock().get_or_insert(fid, new).clone()
    }

    /// Memory, about, bytes.
    pub(super) fn memory(&self) -> u64 {
        let files = self.files.lock();
        let known = files.iter().map(|(_, m)| m.steps.memory());
        let watched = self.watched.load(Ordering::Relaxed) * READER;
        known.sum::<u64>() + self.room.held() + self.held.load(Ordering::Relaxed) + watched
    }

    /// The handle reads this: what comes next is put in the queue.
    fn foresee(self: &Arc<Prefetch>, open: &Open, request: ReadRequest) {
        let mut account = open.watch.0.lock();
        // Who knows the future is told from the first request on.
        if !account.waits.slow() && self.config.policy != Policy::Perfect {
            account.watched = None;
            return;
        }
        if account.watched.is_none() {
            account.watched = self.watch(open.file.fid);
        }
        let Some(watched) = &mut account.watched else {
            return;
        };
        let plan = watched.reader.observe(request);
        if self.room.wanted() {
            make_room(&mut self.files.lock(), &self.room);
        }
        self.give_up(open.file.fid, &plan.give_up);
        if plan.fetch.is_empty() {
            return;
        }
        let jobs = match self.promise(&open.file, &plan.fetch) {
            (jobs, None) => jobs,
            (jobs, Some(refused)) => {
                watched.reader.refused(refused);
                jobs
            }
        };
        drop(account);
        if jobs.is_empty() {
            return;
        }
        let left = self.pool.add(jobs, || self.start());
        if !left.is_empty() {
            let mut pieces = self.pieces.lock();
            for job in left {
                pieces.fill(
                    open.file.fid,
                    &job.wanted,
                    None,
                    Duration::ZERO,
                    Instant::now(),
                );
            }
            self.count(&pieces);
        }
    }

    /// Makes room for these; the first that has none.
    fn promise(
        &self,
        file: &Arc<OpenFile>,
        requests: &[ReadRequest],
    ) -> (Vec<Job>, Option<ReadRequest>) {
        let settled: Vec<_> = {
            let state = file.state.lock();
            let ranges = requests.iter().map(|r| settled(&state, &range(*r)));
            ranges.collect()
        };
        let mut jobs = Vec::new();
        let now = Instant::now();
        let mut pieces = self.pieces.lock();
        let mut refused = None;
        for (request, settled) in requests.iter().zip(settled) {
            let Some((generation, range)) = settled else {
                continue;
            };
            let Some(wanted) = pieces.promise(file.fid, generation, range, now) else {
                refused = Some(*request);
                break;
            };
            jobs.extend(wanted.into_iter().map(|wanted| Job {
                file: file.clone(),
                generation,
                wanted,
            }));
        }
        self.count(&pieces);
        (jobs, refused)
    }

    fn count(&self, pieces: &Pieces) {
        self.held.store(pieces.stats.held_bytes, Ordering::Relaxed);
    }

    fn give_up(&self, fid: Fid, requests: &[ReadRequest]) {
        if requests.is_empty() {
            return;
        }
        let mut pieces = self.pieces.lock();
        requests
            .iter()
            .for_each(|r| pieces.give_up(fid, &range(*r)));
        self.count(&pieces);
    }

    /// What is read now, if it was fetched ahead, and how long that waited; or whether it was to be.
    fn take(&self, file: &OpenFile, request: ReadRequest) -> Result<(Bytes, Duration, bool), bool> {
        if self.held.load(Ordering::Relaxed) == 0 {
            return Err(false);
        }
        let now = settled(&file.state.lock(), &range(request));
        let Some((generation, range)) = now else {
            return Err(false);
        };
        let mut pieces = self.pieces.lock();
        let mut until = None;
        loop {
            match pieces.find(file.fid, generation, &range) {
                Found::Here(bytes, waited) => {
                    pieces.stats.hits += 1;
                    pieces.stats.waits += u64::from(until.is_some());
                    return Ok((bytes, waited, until.is_some()));
                }
                Found::No { queued } => {
                    self.count(&pieces);
                    return Err(queued || until.is_some());
                }
                Found::Coming => {
                    let usual = Duration::from_nanos(self.usual.load(Ordering::Relaxed));
                    let until = *until.get_or_insert_with(|| Instant::now() + usual);
                    if self.arrived.wait_until(&mut pieces, until).timed_out() {
                        return Err(true);
                    }
                }
            }
        }
    }
}

/// Forgets files that nobody reads now, those first that were not used for longest, until chains have some room.
fn make_room(files: &mut LruCache<Fid, Memory>, room: &Room) {
    let idle =
        |(fid, memory): (&Fid, &Memory)| (Arc::strong_count(&memory.chain) == 1).then_some(*fid);
    let oldest: Vec<Fid> = files.iter().rev().filter_map(idle).collect();
    for fid in oldest {
        if room.has_some() {
            break;
        }
        files.pop(&fid);
    }
}

impl Delegate {
    /// Reads through what was fetched ahead.
    pub(super) fn read_ahead(&self, open: &Open, offset: u64, len: u32) -> Result<Bytes> {
        let Some(prefetch) = &self.prefetch else {
            return self
                .reader
                .read_file(&open.file, offset, len, &mut Duration::default());
        };
        let request = ReadRequest {
            offset,
            len: u64::from(len),
        };
        prefetch.foresee(open, request);
        let late = match prefetch.take(&open.file, request) {
            Ok((bytes, waited, late)) => {
                open.watch.note(waited, bytes.len(), Some(late));
                return Ok(bytes);
            }
            Err(late) => late,
        };
        let mut waited = Duration::ZERO;
        let bytes = {
            let _demand = prefetch.pool.demand();
            self.reader
                .read_file(&open.file, offset, len, &mut waited)?
        };
        open.watch.note(waited, bytes.len(), late.then_some(true));
        Ok(bytes)
    }

    /// What has become of bytes fetched ahead.
    pub fn prefetch_stats(&self) -> PrefetchStats {
        self.prefetch
            .as_ref()
            .map(|p| p.stats())
            .unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
