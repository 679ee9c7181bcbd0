//! One delegate's prefetcher: what its handles will read next is put in the queue, and the threads fetch it.
//!
//! Invariant: what is fetched is what a read at that generation of the file would have got; if the generation has
//! moved, nothing is fetched.
use super::cache::{PieceCache, byte_range, committed_part};
use super::handle_state::{ReadWatch, WatchedHandle};
use super::markov::{ChainMemory, MarkovChain};
use super::pool::{FetchJob, FetchPool};
use super::reader::HandleReader;
use super::request_history::RequestHistory;
use super::stats::PrefetchStats;
use crate::delegate::open_file::OpenFile;
use crate::delegate::read::LayerReader;
use crate::prefetch_config::{PrefetchConfig, PrefetchPolicy};
use crate::{Fid, Result};
use bytes::Bytes;
use forebay_pattern::ReadRequest;
use lru::LruCache;
use parking_lot::Mutex;
use std::num::NonZeroUsize;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Files whose steps or chains are remembered. The compiler evaluates it, so it is not 0.
const MAX_REMEMBERED_FILES: NonZeroUsize = NonZeroUsize::new(64).unwrap();
/// Memory of a watched handle, about.
const WATCHED_HANDLE_MEMORY: u64 = 8 << 10;

/// What is remembered of a file beyond its handles.
#[derive(Clone)]
struct FileHistory {
    steps: Arc<RequestHistory>,
    chain: Arc<MarkovChain>,
}

/// All that is fetched ahead for one delegate.
pub struct Prefetcher {
    config: PrefetchConfig,
    /// Not kept alive from here: open handles of its files keep what they watch.
    reader: Weak<LayerReader>,
    cache: Arc<PieceCache>,
    pool: FetchPool,
    files: Mutex<LruCache<Fid, FileHistory>>,
    /// Of all chains.
    room: Arc<ChainMemory>,
}

impl Prefetcher {
    /// The prefetcher of a member with `memory` bytes of memory. `None`: prefetching is off.
    pub fn new(
        config: &PrefetchConfig,
        memory: u64,
        reader: Weak<LayerReader>,
    ) -> Option<Arc<Prefetcher>> {
        (config.policy != PrefetchPolicy::None).then(|| {
            let chains = config.chain_bytes(memory);
            Arc::new(Prefetcher {
                cache: Arc::new(PieceCache::new(config.cache_bytes(memory) - chains)),
                room: Arc::new(ChainMemory::new(chains)),
                config: config.clone(),
                reader,
                pool: FetchPool::default(),
                files: Mutex::new(LruCache::new(MAX_REMEMBERED_FILES)),
            })
        })
    }

    /// Ends the threads.
    pub fn stop(&self) {
        self.pool.stop();
    }

    /// What has become of all.
    pub fn stats(&self) -> PrefetchStats {
        self.cache.pieces.lock().stats
    }

    /// Memory, about, bytes.
    pub fn memory(&self) -> u64 {
        let files = self.files.lock();
        let known = files.iter().map(|(_, m)| m.steps.memory());
        let watched = self.cache.watched.load(Ordering::Relaxed) * WATCHED_HANDLE_MEMORY;
        known.sum::<u64>() + self.room.held() + self.cache.held.load(Ordering::Relaxed) + watched
    }

    /// Reads through what was fetched ahead for the handle of this watch. `read` is the read without that; it is told how long it waits for
    /// other members.
    pub fn read(
        self: &Arc<Prefetcher>,
        file: &Arc<OpenFile>,
        watch: &ReadWatch,
        (offset, len): (u64, u32),
        read: impl FnOnce(&mut Duration) -> Result<Bytes>,
    ) -> Result<Bytes> {
        let len = u64::from(len);
        let request = ReadRequest { offset, len };
        self.queue_predictions(file, watch, request);
        let late = match self.cache.take(file, request) {
            Ok((bytes, waited, late)) => {
                watch.note(waited, bytes.len(), Some(late));
                return Ok(bytes);
            }
            Err(late) => late,
        };
        let mut waited = Duration::ZERO;
        let bytes = {
            let _demand = self.pool.demand();
            read(&mut waited)?
        };
        watch.note(waited, bytes.len(), late.then_some(true));
        Ok(bytes)
    }

    /// What is remembered of the file.
    fn remembered(&self, fid: Fid) -> FileHistory {
        let new = || FileHistory {
            steps: Arc::default(),
            chain: Arc::new(MarkovChain::new(self.room.clone())),
        };
        self.files.lock().get_or_insert(fid, new).clone()
    }

    /// A handle of the file is watched from now on, if anything predicts what it reads.
    fn watch(&self, fid: Fid) -> Option<Box<WatchedHandle>> {
        let memory = || self.remembered(fid);
        let most = self.config.depth as usize;
        let reader = match self.config.policy {
            PrefetchPolicy::None => return None,
            PrefetchPolicy::Readahead => HandleReader::readahead(),
            PrefetchPolicy::Markov => HandleReader::markov(memory().chain, most),
            PrefetchPolicy::Pattern => HandleReader::pattern(memory().steps, most),
            PrefetchPolicy::Perfect => HandleReader::perfect(self.config.future.clone()?, most),
        };
        self.cache.watched.fetch_add(1, Ordering::Relaxed);
        Some(Box::new(WatchedHandle {
            reader,
            fid,
            cache: self.cache.clone(),
        }))
    }

    /// The handle reads this: what comes next is put in the queue.
    fn queue_predictions(
        self: &Arc<Prefetcher>,
        file: &Arc<OpenFile>,
        watch: &ReadWatch,
        request: ReadRequest,
    ) {
        let mut account = watch.0.lock();
        // Who knows the future is told from the first request on.
        if !account.waits.slow() && self.config.policy != PrefetchPolicy::Perfect {
            account.watched = None;
            return;
        }
        if account.watched.is_none() {
            account.watched = self.watch(file.fid);
        }
        let Some(watched) = &mut account.watched else {
            return;
        };
        let plan = watched.reader.observe(request);
        if self.room.wanted() {
            make_room(&mut self.files.lock(), &self.room);
        }
        self.cache.give_up(file.fid, &plan.give_up);
        if plan.fetch.is_empty() {
            return;
        }
        let (jobs, refused) = self.reserve_missing(file, &plan.fetch);
        if let Some(refused) = refused {
            watched.reader.refused(refused);
        }
        drop(account);
        if jobs.is_empty() {
            return;
        }
        let left = self.pool.add(jobs, || self.start());
        for job in left {
            let none = Duration::ZERO;
            self.cache.fill(file.fid, &job.wanted, None, none, none);
        }
    }

    /// Makes room for these; the first that has none.
    fn reserve_missing(
        &self,
        file: &Arc<OpenFile>,
        requests: &[ReadRequest],
    ) -> (Vec<FetchJob>, Option<ReadRequest>) {
        let parts: Vec<_> = {
            let state = file.state.lock();
            let ranges = requests
                .iter()
                .map(|r| committed_part(&state, &byte_range(*r)));
            ranges.collect()
        };
        let mut jobs = Vec::new();
        let now = Instant::now();
        let mut pieces = self.cache.pieces.lock();
        let mut refused = None;
        for (request, part) in requests.iter().zip(parts) {
            let Some((generation, range)) = part else {
                continue;
            };
            let Some(wanted) = pieces.reserve_missing(file.fid, generation, range, now) else {
                refused = Some(*request);
                break;
            };
            jobs.extend(wanted.into_iter().map(|wanted| FetchJob {
                file: file.clone(),
                generation,
                wanted,
            }));
        }
        self.cache.count(&pieces);
        (jobs, refused)
    }

    fn start(self: &Arc<Prefetcher>) -> Option<JoinHandle<()>> {
        let prefetch = self.clone();
        let thread = std::thread::Builder::new().name("prefetch".into());
        let started = thread.spawn(move || prefetch.run());
        if let Err(e) = &started {
            tracing::debug!(error = %e, "no thread to fetch ahead");
        }
        started.ok()
    }

    /// A thread's life.
    fn run(self: Arc<Prefetcher>) {
        let mut done = false;
        while let Some(job) = self.pool.next(done, || self.start()) {
            done = true;
            let Some(reader) = self.reader.upgrade() else {
                continue;
            };
            let fid = job.file.fid;
            if !self.cache.pieces.lock().begin(fid, &job.wanted) {
                continue;
            }
            let (begun, mut waited) = (Instant::now(), Duration::ZERO);
            let bytes = fetch(&reader, &job, &mut waited);
            drop(reader);
            self.cache
                .fill(fid, &job.wanted, bytes, waited, begun.elapsed());
        }
    }
}

/// One piece as the file is at the job's generation; `None` if it cannot be had as simply as that.
fn fetch(reader: &LayerReader, job: &FetchJob, waited: &mut Duration) -> Option<Bytes> {
    let (file, range) = (&job.file, &job.wanted.range);
    let still = || {
        let state = file.state.lock();
        committed_part(&state, range).is_some_and(|now| now == (job.generation, range.clone()))
    };
    if u32::try_from(range.end - range.start).is_err() || !still() {
        return None;
    }
    let bytes = reader.read_view(file, range.clone(), job.generation, waited);
    let bytes = bytes.ok()?;
    // What a client wrote meanwhile may be in it, and is still pending then, or the generation has moved.
    still().then_some(bytes)
}

/// Evicts chains of files without readers, least recently used first, until chains have some room.
fn make_room(files: &mut LruCache<Fid, FileHistory>, room: &ChainMemory) {
    let idle = |(fid, memory): (&Fid, &FileHistory)| {
        (Arc::strong_count(&memory.chain) == 1).then_some(*fid)
    };
    let oldest: Vec<Fid> = files.iter().rev().filter_map(idle).collect();
    for fid in oldest {
        if room.has_some() {
            break;
        }
        files.pop(&fid);
    }
}

#[cfg(test)]
mod tests;
