//! Settling: a background thread turns raw spans into mapped ones, whose bytes are chunks that are kept once (DenKV's deduplication
//! at flush, under the logs).
//!
//! | word | what it means here |
//! |---|---|
//! | **raw** | a span as it is written: its bytes lie in a segment file as they were appended |
//! | **settled** | a span that was raw and is mapped now: its record names parts of containers, or zeros |
//! | **named** | a chunk whose count is above 0: at least one run of a span or base has a byte of it. Also: to raise that count |
//! | **given up** | stored bytes that no record names since a batch was applied. `reclaim` frees their disk space once the batch is on disk |
//!
//! | module | what it does |
//! |---|---|
//! | `backlog` | the raw spans that wait, oldest log first |
//! | `pace` | when settling pauses for the foreground |
//! | `cut` | raw spans that were read, cut into chunks |
//! | `lookup`, `heal` | finds stored chunks with the same bytes; heals damaged ones |
//! | `plan`, `writer` | what becomes of each chunk; new containers, encoded where that makes them shorter |
//! | `base` | the earlier version of a file, against which they may be encoded |
//! | `index` | fills the index of chunks when the store is opened |
//! | `saved` | the index in files while the store is closed |
//! | `room` | writers that wait for settling |
//!
//! The batch itself is in `span_table/settle`, because it changes spans.
//!
//! Order on disk: new containers and adopted raw bytes are synced before the batch that names them is applied. Chunks named by
//! older batches were synced then. Raw bytes are reclaimed only after the batch is on disk. So a crash at any point leaves each
//! byte where some record names it. Before the batch the raw span does, and new containers are bytes without a name, whose space is
//! reclaimed; after the batch the containers do. If a span is freed, overwritten, moved or cut meanwhile, settling leaves it as it is.
//!
//! Invariants: one thread settles at a time; a failed round changes no span and is tried again.
mod backlog;
mod base;
mod cut;
mod heal;
mod index;
mod lookup;
mod pace;
mod plan;
mod room;
pub mod saved;
mod writer;

pub use backlog::SettleBacklog;

use crate::buffer_pool::BufferPool;
use crate::chunk::{AnchorTable, ChunkSize, Cutter};
use crate::cit::{Cit, CitOptions};
use crate::container::{ContainerTable, MAX_CONTAINER_BYTES};
use crate::counter::Counter;
use crate::fingerprint::FingerprintKind;
use crate::foreground::ForegroundCalls;
use crate::poison::Poison;
use crate::reclaim::Reclaimer;
use crate::segment::Segments;
use crate::series::SeriesTable;
use crate::span::Span;
use crate::span_table::SpanTable;
use crate::verified_read;
use cut::ReadSpans;
use forebay_proto::Result;
use forebay_storage::Store;
use heal::VerifiedContainers;
use pace::Pacer;
use parking_lot::Mutex;
use plan::SettlePlan;
use rustix::io::Errno;
use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use writer::SettleEncoder;

/// Raw bytes that are read at once. Also the size of a batch while a writer waits for room.
const READ_BYTES: u64 = 8 << 20;
/// Disk space reserved for settling, so that it can free space on a full disk: chunks are copied before their raw bytes are reclaimed.
pub const SETTLE_RESERVE: u64 = READ_BYTES + MAX_CONTAINER_BYTES;
/// Raw bytes of one batch: each costs a sync of the segments that it names.
const BATCH_BYTES: u64 = 64 << 20;
/// Exponential backoff after a round without progress: the first wait, and the longest one.
const FIRST_RETRY: Duration = Duration::from_millis(500);
const LAST_RETRY: Duration = Duration::from_secs(10);

/// Settings; bytes.
#[derive(Debug, Clone)]
pub struct SettleOptions {
    /// The chunk size.
    pub chunk: ChunkSize,
    /// The kind of their fingerprints.
    pub fingerprint: FingerprintKind,
    /// Memory of the index of chunks.
    pub index_bytes: usize,
    /// Memory of the anchor table.
    pub anchor_bytes: usize,
    /// The bound of the backlog: above it settling does not pause, and writes wait for it.
    pub backlog_bytes: u64,
}

/// Counters of settling; bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct SettleStats {
    /// Raw bytes that wait to be settled.
    pub backlog: u64,
    /// Bytes settled since the start.
    pub done: u64,
    /// Spans that changed while they were settled, since the start.
    pub undone: u64,
    /// Memory of the index of chunks.
    pub index_memory: u64,
    /// Chunks in it.
    pub index_chunks: u64,
}

/// What a round did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SettleRound {
    /// Nothing waits.
    Idle,
    /// The backlog got shorter.
    Progress,
    /// All picked spans wait again: they changed meanwhile, cannot be read now, or would name a chunk that is gone.
    NoProgress,
}

/// See the head of this file. Shared by threads.
pub struct Settler {
    options: SettleOptions,
    store: Arc<Store>,
    segments: Arc<Segments>,
    spans: Arc<SpanTable>,
    containers: Arc<ContainerTable>,
    reclaimer: Arc<Reclaimer>,
    poison: Arc<Poison>,
    /// Numbers of containers.
    ids: Arc<Counter>,
    /// Where chunks are stored.
    index: Arc<Cit>,
    /// Earlier versions of files.
    pub series: SeriesTable,
    encodes: bool,
    anchors: Arc<AnchorTable>,
    verified: VerifiedContainers,
    /// What waits.
    pub backlog: SettleBacklog,
    foreground: Arc<ForegroundCalls>,
    /// `None`: there is no thread, callers settle; then settling does not pause.
    pacer: Option<Mutex<Pacer>>,
    index_filled: Mutex<bool>,
    /// Buffers for bytes of containers.
    buffers: BufferPool,
    /// Held by whoever settles.
    settling: Mutex<SettleWork>,
    /// Spans are picked and not settled yet.
    is_at_work: AtomicBool,
    /// The last round made no progress, or failed.
    is_stuck: AtomicBool,
    rounds_without_progress: AtomicU64,
    done: AtomicU64,
    undone: AtomicU64,
}

/// Memory of a round, kept from one to the next.
struct SettleWork {
    read: ReadSpans,
    /// `None`: new containers are plain.
    encoder: Option<SettleEncoder>,
}

/// What a settler works on.
pub struct SettleParts {
    /// Where records are.
    pub store: Arc<Store>,
    /// Where bytes are.
    pub segments: Arc<Segments>,
    /// What is settled.
    pub spans: Arc<SpanTable>,
    /// Where chunks are.
    pub containers: Arc<ContainerTable>,
    /// Frees the disk space of bytes that are given up.
    pub reclaimer: Arc<Reclaimer>,
    /// Closed by a failed write.
    pub poison: Arc<Poison>,
    /// Reads and syncs for which settling pauses.
    pub foreground: Arc<ForegroundCalls>,
    /// Buffers for bytes of containers.
    pub buffers: BufferPool,
    /// Numbers of containers.
    pub ids: Arc<Counter>,
    /// New containers are encoded where that makes them shorter.
    pub encodes: bool,
}

/// What was saved of a store that was closed.
pub struct OpenedIndex {
    /// The index of its chunks. `None`: it is filled from the containers.
    pub index: Option<Cit>,
    /// The anchor table.
    pub anchors: AnchorTable,
}

impl Settler {
    /// A settler of an opened store with `raw` raw bytes. `opened`: what was saved when it was closed.
    ///
    /// # Errors
    /// As the store.
    pub fn new(
        parts: SettleParts,
        options: SettleOptions,
        background: bool,
        opened: OpenedIndex,
        raw: u64,
    ) -> Result<Settler> {
        let is_filled = opened.index.is_some();
        let index = Arc::new(opened.index.unwrap_or_else(|| {
            Cit::new(CitOptions {
                budget: options.index_bytes,
            })
        }));
        parts.containers.keep_index(index.clone());
        let settler = Settler {
            ids: parts.ids,
            store: parts.store,
            segments: parts.segments,
            spans: parts.spans,
            containers: parts.containers,
            reclaimer: parts.reclaimer,
            poison: parts.poison,
            foreground: parts.foreground,
            index,
            series: SeriesTable::default(),
            encodes: parts.encodes,
            anchors: Arc::new(opened.anchors),
            verified: VerifiedContainers::default(),
            backlog: SettleBacklog::default(),
            pacer: background.then(|| Mutex::new(Pacer::new())),
            index_filled: Mutex::new(is_filled),
            buffers: parts.buffers,
            settling: Mutex::new(SettleWork {
                read: ReadSpans::default(),
                encoder: parts.encodes.then(SettleEncoder::new),
            }),
            is_at_work: AtomicBool::new(false),
            is_stuck: AtomicBool::new(false),
            rounds_without_progress: AtomicU64::new(0),
            done: AtomicU64::new(0),
            undone: AtomicU64::new(0),
            options,
        };
        settler.backlog.scan_all(raw);
        Ok(settler)
    }

    /// Whether what is settled is encoded.
    pub fn encodes(&self) -> bool {
        self.encodes
    }

    /// Counters.
    pub fn stats(&self) -> SettleStats {
        let index = self.index.stats();
        SettleStats {
            backlog: self.backlog.bytes(),
            done: self.done.load(Relaxed),
            undone: self.undone.load(Relaxed),
            index_memory: index.memory + self.anchors.memory() as u64,
            index_chunks: index.entries,
        }
    }

    /// Whether to settle a span: it is raw and not shorter than a chunk.
    fn is_wanted(&self, span: &Span) -> bool {
        span.raw().is_some() && span.live_len() >= self.options.chunk.bytes() as u64
    }

    /// Settles one batch of the backlog, oldest log first. One caller at a time.
    ///
    /// # Errors
    /// As disk and store: then the picked spans wait again, except those that were settled before the disk was full.
    pub fn settle_some(&self) -> Result<SettleRound> {
        let mut work = self.settling.lock();
        self.is_at_work.store(true, Relaxed);
        let settled = self.settle_batch(&mut work);
        let is_stuck = matches!(settled, Ok(SettleRound::NoProgress) | Err(_));
        self.is_stuck.store(is_stuck, Relaxed);
        self.rounds_without_progress
            .fetch_add(is_stuck.into(), Relaxed);
        self.is_at_work.store(false, Relaxed);
        if !matches!(settled, Ok(SettleRound::Progress)) {
            work.read.shrink();
        }
        // Also if nothing was given up: who waits for it looks whether more may come.
        self.reclaimer.space_freed.notify();
        settled
    }

    fn settle_batch(&self, work: &mut SettleWork) -> Result<SettleRound> {
        self.poison.check()?;
        self.fill_index()?;
        let picked = Cell::new(0);
        let settled = self.settle_picked(work, &picked);
        self.backlog.done(picked.get());
        settled
    }

    /// The round. `bytes`: counts the picked bytes.
    fn settle_picked(&self, work: &mut SettleWork, bytes: &Cell<u64>) -> Result<SettleRound> {
        let SettleWork { read, encoder } = work;
        let mut plan = SettlePlan::new(self, encoder.as_mut());
        let most = match self.options.fingerprint.needs_compare() {
            true => READ_BYTES,
            false => BATCH_BYTES.min(self.options.backlog_bytes / 4).max(1),
        };
        let (mut failure, picked_before) = (None, RefCell::new(HashSet::new()));
        // Spans that are to be picked again later.
        let mut again = Vec::new();
        while plan.bytes < most {
            // The scan finds spans again that were picked from a noted log.
            let is_new = |span: &Span| {
                let key = (span.log, span.live.end);
                picked_before.borrow_mut().insert(key)
            };
            let is_wanted = |span: &Span| self.is_wanted(span) && is_new(span);
            let picked = self.backlog.pick(&self.store, READ_BYTES, &is_wanted);
            if picked.is_empty() {
                break;
            }
            bytes.set(bytes.get() + picked.iter().map(Span::live_len).sum::<u64>());
            let planned = (self.read(&picked, read, &mut again)).and_then(|()| plan.add(read));
            if let Err(e) = planned {
                self.backlog.put_back(&picked);
                failure = Some(e);
                break;
            }
            if self.backlog.is_urgent() || self.backlog.background.is_stopping() {
                break;
            }
        }
        let spans: Vec<Span> = plan.planned().cloned().collect();
        self.backlog.put_back(&again);
        let again: u64 = again.iter().map(Span::live_len).sum();
        if failure.as_ref().is_some_and(|e| e.errno() != Errno::NOSPC) {
            self.backlog.put_back(&spans);
        } else if !spans.is_empty() {
            // Also on a full disk: spans whose chunks are all stored are settled, which frees space.
            let outcome = (plan.carry_out()).inspect_err(|_| self.backlog.put_back(&spans))?;
            self.done.fetch_add(outcome.settled, Relaxed);
            (self.undone).fetch_add(outcome.undone.len() as u64, Relaxed);
            self.backlog.put_back(&outcome.undone);
            if outcome.settled > 0 {
                return Ok(SettleRound::Progress);
            }
            failure = failure.or(outcome.no_room);
        }
        match failure {
            Some(e) => Err(e),
            None if bytes.get() == 0 => Ok(SettleRound::Idle),
            // Damaged spans were left out for good: the backlog got shorter.
            None if spans.is_empty() && again < bytes.get() => Ok(SettleRound::Progress),
            None => Ok(SettleRound::NoProgress),
        }
    }

    /// Whether settling may free more space.
    pub fn may_make_room(&self) -> bool {
        self.is_at_work.load(Relaxed) || self.backlog.bytes() > 0
    }

    /// The thread: settles the backlog until it is stopped.
    pub fn run(&self) {
        let mut retry = None;
        while self.backlog.wait(retry) {
            match self.settle_some() {
                Ok(SettleRound::Idle | SettleRound::Progress) => {
                    retry = None;
                    continue;
                }
                Ok(SettleRound::NoProgress) => {}
                Err(error) => tracing::warn!(%error, "could not settle; trying again later"),
            }
            let next = retry.map_or(FIRST_RETRY, |last: Duration| last * 2);
            retry = Some(next.min(LAST_RETRY));
        }
    }

    /// Reads and cuts spans. A damaged one is left out; one that changed since it was picked, or cannot be read now, goes to `again`.
    fn read(&self, picked: &[Span], read: &mut ReadSpans, again: &mut Vec<Span>) -> Result<()> {
        read.clear();
        for span in picked {
            let Some(raw) = span.raw() else { continue };
            self.pause();
            let into = read.room(span.live_len());
            let bad = verified_read::read(&self.segments, raw, span.live.start, into);
            match bad {
                Ok(None) => {
                    read.push(span.clone());
                    continue;
                }
                Ok(Some(_)) if !self.spans.is_current(span)? => again.push(span.clone()),
                Ok(Some(bad)) => {
                    let error = verified_read::damage(&self.segments, raw, "", &bad);
                    tracing::warn!(%error, "these bytes are not settled");
                }
                Err(error) => {
                    tracing::warn!(%error, "these bytes are not settled now");
                    again.push(span.clone());
                }
            }
        }
        let cutter = || Cutter::anchored(self.anchors.clone());
        read.cut(cutter, self.options.fingerprint);
        Ok(())
    }

    /// Settles the whole backlog, as far as it makes progress.
    ///
    /// # Errors
    /// As disk and store.
    pub fn settle_all(&self) -> Result<()> {
        while self.settle_some()? == SettleRound::Progress {}
        Ok(())
    }

    /// Pauses while the foreground is busy, for a bounded time (`pace`).
    fn pause(&self) {
        let Some(pacer) = &self.pacer else { return };
        let mut pacer = pacer.lock();
        loop {
            let load = pace::PacingInput {
                backlog: self.backlog.written_bytes(),
                bound: self.options.backlog_bytes,
                is_urgent: self.backlog.is_urgent() || self.backlog.background.is_stopping(),
                begun: self.backlog.writes() + self.foreground.direct_reads(),
                calls: self.foreground.any(),
            };
            if pacer.may_step(load, Instant::now()) {
                return;
            }
            std::thread::sleep(pace::IDLE_CHECK_INTERVAL);
        }
    }
}
