//! The log bytes of one member: logs packed into segment files, checksums, freeing, quota.
//!
//! A **log** is a virtual append-only stream; its addresses and its number are never reused. Appended bytes wait in the
//! log's **tail** (under one memory budget for all logs), then go to a **segment** file, and a **span** record in the store
//! says where they lie and what their checksums are. Freed addresses answer `Gone` for ever.
//!
//! **Architecture invariant:** this crate knows logs, segments and spans. Of files it knows the fid that a log
//! belongs to and, for what may be encoded against an earlier file, which series that is of and where in the file bytes are. It does
//! not know extents, other members, or who asks. Code of a running member knows nothing of segments and spans: it
//! uses [`LogStore`]. Only what works on a stopped store (fsck, rebuild, repair) reads [`span`], [`container`] and
//! [`segment_header`], and looks at bytes through [`check`].
//!
//! | module | what it owns |
//! |---|---|
//! | `log`, `tail`, `tail_memory` | open logs, their buffered ends, and the memory for these |
//! | `write`, `read`, `read_parts`, `verified_read` | the paths of a byte into a segment and out of it |
//! | `direct_read` | out of it by another process of this machine |
//! | `segment`, [`segment_header`] | segment files: space in them, open ones, bringing them to disk; what one looks like |
//! | [`span`], `span_table` | the format of a span record; the records and what they count for |
//! | [`container`] | containers of chunks that spans share: their records, counts and what they count for; encoding and decoding them |
//! | [`pieces`], `record_cache`, `striped_locks` | stored bytes with checksums, of spans and containers alike; decoded records of both in memory; locks of both |
//! | `requests`, [`transfer_form`] | what other members ask of it; how encoded bytes travel to them |
//! | `stored_bytes` | how ranges of logs are stored, by codec |
//! | `reclaim` | reclaiming disk space in the background |
//! | `disk_reserve`, `byte_budget`, `space_signal`, `poison` | what may be stored: disk space left to records, limits, news of freed space, the end after a failed write |
//! | `recover` | what is there when a store is opened |
//! | [`check`] | whether a stopped store holds what it says |
//! | [`chunk`], [`fingerprint`], [`cit`] | cutting log bytes into chunks; what a chunk is known by; where a chunk with a fingerprint is stored |
//! | `inline`, `recode` | encoding bytes when they are written out; again, by another hint |
//! | `series` | files that are versions of one thing, and where each has its bytes |
//! | `settle`, `foreground` | turning raw spans into shared chunks in the background; what it gives way to |
//! | [`analysis`] | what deduplication would save of given bytes |
//! | [`counter`], [`buffer_pool`], [`keyspaces`], [`ranges`] | numbers that never repeat; buffers for reads; whose keyspaces; sets of addresses |
//!
//! Invariants: bytes are in a segment before a span names them; a span is gone from the store, on disk, before its bytes
//! go; bytes leave only after their checksum was right.
pub mod analysis;
pub mod buffer_pool;
mod byte_budget;
pub mod check;
pub mod chunk;
pub mod cit;
pub mod container;
pub mod counter;
mod direct_read;
mod disk_reserve;
pub mod fingerprint;
mod foreground;
mod inline;
pub mod keyspaces;
mod log;
pub mod pieces;
mod poison;
pub mod ranges;
mod read;
mod read_parts;
mod reclaim;
mod recode;
mod record_cache;
mod recover;
mod requests;
mod segment;
mod series;
mod settle;
mod space_signal;
pub mod span;
mod span_table;
mod stored_bytes;
mod striped_locks;
mod tail;
mod tail_memory;
#[cfg(test)]
mod tests;
pub mod transfer_form;
mod verified_read;
mod write;

pub use counter::Counter;
pub use direct_read::StoredRun;
pub use disk_reserve::DiskReserve;
pub use forebay_proto::LogId;
pub use inline::CodecWhen;
pub use read_parts::LogPart;
pub use recover::unsealed_logs;
pub use segment::{SegmentRange, header as segment_header};
pub use series::SeriesId;
pub use settle::saved::{ANCHORS_FILE, INDEX_FILE};
pub use settle::{SETTLE_RESERVE, SettleOptions, SettleStats};
pub use space_signal::SpaceSignal;
pub use write::AppendOptions;

use buffer_pool::BufferPool;
use byte_budget::ByteBudget;
use container::ContainerTable;
use forebay_codec::CodecHint;
use forebay_proto::{Fid, Member, Result};
use forebay_storage::{Io, Store};
use foreground::ForegroundCalls;
use inline::InlineEncoder;
use log::OpenLogs;
use parking_lot::Mutex;
use poison::Poison;
use ranges::{merge, subtract};
use read::{LogReader, SentBytes};
use reclaim::{PunchScope, ReclaimQueue, Reclaimer, SmallHoles};
use segment::Segments;
use settle::{OpenedIndex, SettleParts, Settler};
use span_table::SpanTable;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use tail_memory::TailMemory;
use write::LogAppender;

/// A part of a log: `[addr, addr + len)`, bytes.
pub type LogRange = (LogId, Range<u64>);

/// Most bytes one read request may ask for.
pub const READ_BYTES: u64 = 256 << 20;
/// Steps of giving bases back in one call of `clean`: what changes all the time is left to the next.
const MAX_CLEANING_ROUNDS: usize = 10_000;
/// Ranges that are freed in one batch.
const RANGES_PER_BATCH: usize = 1024;

/// Settings; bytes.
#[derive(Debug, Clone)]
pub struct LogStoreOptions {
    /// Whose data it is.
    pub member: Member,
    /// Most stored bytes, each shared chunk counted once; `None`: what the disk has.
    pub quota: Option<u64>,
    /// Memory for tails of logs. Decoded spans and containers, and of encoded ones parsed heads and decoded pieces, take up to five
    /// eighths of this beside it.
    pub buffer_bytes: u64,
    /// Every flush is one with `sync` (durability `disk`).
    pub sync_each_flush: bool,
    /// The disk space that is left to records, shared with the members that store there too.
    pub reserve: Arc<DiskReserve>,
    /// What is written is settled, in such a way; `None`: nothing is, but what was settled before is there.
    pub settle: Option<SettleOptions>,
    /// When bytes are encoded. With `Settle`, and with `Auto` on a fast disk, nothing is that is not settled.
    pub codec_when: CodecWhen,
    /// Reclaim disk space, and settle, in threads. If not, that is done when `clean` and `settle` are called.
    pub background: bool,
}

/// Counters; bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct LogStoreStats {
    /// Bytes that may be read, buffered ones included.
    pub live: u64,
    /// What is stored for them, which counts against the quota.
    pub stored: u64,
    /// Live bytes that are settled.
    pub settled: u64,
    /// Those of them that are zeros, for which nothing is stored.
    pub zeros: u64,
    /// What is stored of them, each once: encoded bytes of what is encoded.
    pub unique: u64,
    /// Stored bytes of encoded chunks.
    pub encoded: u64,
    /// The raw bytes that these decode to.
    pub encoded_from: u64,
    /// Memory of tails.
    pub buffers: u64,
    /// Memory of decoded spans and containers, and of heads and pieces of encoded ones.
    pub span_cache: u64,
    /// Segment files.
    pub segments: u64,
    /// Logs open for appending.
    pub open_logs: u64,
    /// Freed ranges of segments whose disk space is not reclaimed yet, without those that are kept because they are small.
    pub cleaning: u64,
    /// Bytes that other members have read here since the start.
    pub sent_from: u64,
    /// What was sent for them: less where they are stored encoded.
    pub sent: u64,
    /// Of settling, if there is any.
    pub settle: SettleStats,
}

/// The log bytes of one member. Shared by threads.
pub struct LogStore {
    io: Arc<dyn Io>,
    store: Arc<Store>,
    quota: Option<u64>,
    sync_each_flush: bool,
    ids: Counter,
    container_ids: Arc<Counter>,
    writer: LogAppender,
    reader: LogReader,
    /// Logs that a crash left unsealed and nobody has retained yet.
    unsealed: Mutex<Vec<(LogId, Fid)>>,
}

impl LogStore {
    /// Opens (or creates) the logs of a member. `dir`: a directory for segment files alone; `store`: for their records.
    ///
    /// # Errors
    /// As disk and store; `Format` for segment files of another member or a newer version.
    pub fn open(
        io: Arc<dyn Io>,
        dir: &Path,
        store: Arc<Store>,
        options: LogStoreOptions,
    ) -> Result<LogStore> {
        let found = recover::recover(&*io, dir, &store, options.member)?;
        let poison = Arc::new(Poison::new(dir));
        let segments = Segments::new(
            io.clone(),
            dir,
            options.member,
            found.next,
            found.table,
            poison.clone(),
        );
        let segments = Arc::new(segments);
        let live = Arc::new(ByteBudget::new(options.quota.unwrap_or(u64::MAX)));
        live.charge(found.live);
        let record_cache = (options.buffer_bytes / 8) as usize;
        let containers = Arc::new(ContainerTable::new(
            store.clone(),
            segments.clone(),
            live.clone(),
            record_cache,
        ));
        containers.add_found(found.named, &found.encoded);
        recover::find_holds(&store, &containers)?;
        let buffers = BufferPool::new(options.buffer_bytes / 8);
        let spans = Arc::new(SpanTable::new(
            store.clone(),
            segments.clone(),
            containers.clone(),
            poison.clone(),
            live.clone(),
            record_cache,
        ));
        spans.add_mapped(found.mapped, found.zeros);
        let reclaimer = Arc::new(Reclaimer {
            store: store.clone(),
            segments: segments.clone(),
            spans: spans.clone(),
            containers: containers.clone(),
            poison: poison.clone(),
            buffers: buffers.clone(),
            space_freed: Arc::default(),
            queue: ReclaimQueue::default(),
            reclaiming: Mutex::new(SmallHoles::default()),
            small: AtomicUsize::new(0),
        });
        reclaimer.queue.add(found.gaps);
        let logs = Arc::new(OpenLogs::default());
        let ids = Counter::open(store.clone(), b"log", 1)?;
        let foreground = Arc::<ForegroundCalls>::default();
        let container_ids = Arc::new(Counter::open(store.clone(), b"container", 1)?);
        // Whoever opens the store may change what it says.
        let stamp = settle::saved::take_stamp(&store)?;
        settle::saved::remove_unfinished(&*io, dir)?;
        let settler = options.settle.map(|settle| {
            let opened = OpenedIndex {
                index: settle::saved::load_index(&*io, dir, &settle, stamp),
                anchors: settle::saved::load_anchors(&*io, dir, &settle),
            };
            let parts = SettleParts {
                store: store.clone(),
                segments: segments.clone(),
                spans: spans.clone(),
                containers: containers.clone(),
                reclaimer: reclaimer.clone(),
                poison: poison.clone(),
                foreground: foreground.clone(),
                buffers: buffers.clone(),
                ids: container_ids.clone(),
                encodes: options.codec_when.settles(),
            };
            let raw = found.live.saturating_sub(found.named);
            Settler::new(parts, settle, options.background, opened, raw).map(Arc::new)
        });
        let settler = settler.transpose()?;
        let logs = LogStore {
            reader: LogReader {
                foreground,
                member: options.member,
                logs: logs.clone(),
                spans: spans.clone(),
                containers,
                segments: segments.clone(),
                buffers,
                sent: SentBytes::default(),
            },
            writer: LogAppender {
                logs,
                memory: TailMemory::new(options.buffer_bytes),
                inline: InlineEncoder::new(
                    options.codec_when,
                    segments.clone(),
                    container_ids.clone(),
                ),
                segments,
                spans,
                live,
                reserve: options.reserve,
                reclaimer,
                poison,
                settler,
            },
            io,
            ids,
            container_ids,
            unsealed: Mutex::new(found.unsealed),
            store,
            quota: options.quota,
            sync_each_flush: options.sync_each_flush,
        };
        if options.background {
            // Last: dropping the store ends them.
            let spawned = logs.spawn_background();
            spawned.map_err(|e| poison::io_error("start a thread for", dir, e))?;
        }
        Ok(logs)
    }

    fn spawn_background(&self) -> std::io::Result<()> {
        let reclaimer = self.writer.reclaimer.clone();
        let work = &self.writer.reclaimer.queue.background;
        work.spawn("forebay-clean", move || reclaimer.run())?;
        let Some(settler) = &self.writer.settler else {
            return Ok(());
        };
        let shared = settler.clone();
        let work = &settler.backlog.background;
        work.spawn("forebay-settle", move || shared.run())
    }

    /// A new log for the file. Nothing is on disk until the first flush. `hint`: how its bytes are to be encoded.
    ///
    /// # Errors
    /// As the store.
    pub fn create_log(&self, fid: Fid, hint: CodecHint) -> Result<LogId> {
        self.create_log_in(fid, hint, None)
    }

    /// As `create_log`, for a file of a series: what settles of it may be encoded against an earlier file of the series. Appends say where
    /// in the file their bytes go ([`AppendOptions::offset`]).
    ///
    /// # Errors
    /// As `create_log`.
    pub fn create_log_in(
        &self,
        fid: Fid,
        hint: CodecHint,
        series: Option<SeriesId>,
    ) -> Result<LogId> {
        let id = self.ids.next()?;
        let settler = self.writer.settler.as_ref().filter(|s| s.encodes());
        let series = settler.zip(series);
        if let Some((settler, series)) = series {
            settler.series.add_log(id, fid, series);
        }
        let in_series = series.is_some();
        self.writer.logs.add(id, fid, hint.into(), in_series);
        Ok(id)
    }

    /// Appends; returns the address of the first byte. Buffered: at most the buffer budget, then written out.
    ///
    /// # Errors
    /// `ENOSPC` over the quota, or on a disk that has no more than the records' share (nothing was appended, earlier bytes are intact); `EBADF` for a log that
    /// is not open; `EIO` after a failed write, until the store is opened again.
    pub fn append(&self, log: LogId, bytes: &[u8]) -> Result<u64> {
        self.writer.append(log, bytes, AppendOptions::default())
    }

    /// As `append`, with options.
    ///
    /// # Errors
    /// As `append`.
    pub fn append_with(&self, log: LogId, bytes: &[u8], options: AppendOptions) -> Result<u64> {
        self.writer.append(log, bytes, options)
    }

    /// All appended bytes of the log are in a segment file and found again after a crash of the process;
    /// with `sync` also after a crash of the machine. A sealed log can still be flushed with `sync`.
    ///
    /// # Errors
    /// As `append`. After `ENOSPC` the bytes are still buffered and readable; flush again when there is room.
    pub fn flush(&self, log: LogId, sync: bool) -> Result<()> {
        if sync || self.sync_each_flush && self.writer.logs.find(log).is_some() {
            self.sync_bytes(log)?;
            return self.sync_records();
        }
        self.writer.flush(log)
    }

    /// The first half of `flush` with `sync`: the log's bytes are on disk, and the records that find them are in the store,
    /// but perhaps not on disk. They are once `sync_records`, or any later sync of this member's store, is done.
    ///
    /// # Errors
    /// As `flush`.
    pub fn sync_bytes(&self, log: LogId) -> Result<()> {
        let _call = self.reader.foreground.begin();
        self.writer.sync(log)
    }

    /// The second half of `flush` with `sync`, for any number of logs.
    ///
    /// # Errors
    /// As the store.
    pub fn sync_records(&self) -> Result<()> {
        let _call = self.reader.foreground.begin();
        let synced = self.store.sync();
        synced.map_err(|e| self.writer.poison.note_sync(e.into()))
    }

    /// As `flush` with `sync`, for all logs, but for what is only buffered.
    ///
    /// # Errors
    /// As `flush`.
    pub fn sync_all(&self) -> Result<()> {
        self.writer.poison.check()?;
        let _call = self.reader.foreground.begin();
        self.writer.segments.sync_written()?;
        self.sync_records()
    }

    /// No more appends; what is not flushed is dropped.
    ///
    /// # Errors
    /// As the store.
    pub fn seal(&self, log: LogId) -> Result<()> {
        let sealed = self.writer.seal(log);
        self.space_freed().notify();
        sealed
    }

    /// Fills `buf` from one log, verified; sees buffered bytes.
    ///
    /// # Errors
    /// `Gone` if any byte was freed (or never written), `Corrupt` if damaged.
    pub fn read(&self, log: LogId, addr: u64, buf: &mut [u8]) -> Result<()> {
        self.reader.read(log, addr, buf)
    }

    /// Fills parts of logs, sorted by log and address, none overlapping the next; as `read` of each, in fewer calls.
    ///
    /// # Errors
    /// As `read`.
    pub fn read_parts(&self, parts: &mut [LogPart<'_>]) -> Result<()> {
        self.reader.read_parts(parts)
    }

    /// Frees bytes (idempotent). Addresses not appended yet are left alone.
    ///
    /// # Errors
    /// As the store; then some of the ranges may be freed already. `Corrupt` where records are damaged: all else is freed.
    pub fn free(&self, ranges: &[LogRange]) -> Result<()> {
        let mut damage = None;
        for ranges in ranges.chunks(RANGES_PER_BATCH) {
            let mut logs: BTreeMap<LogId, Vec<Range<u64>>> = BTreeMap::new();
            for (log, range) in ranges {
                logs.entry(*log).or_default().push(range.clone());
            }
            let logs: Vec<_> = logs
                .into_iter()
                .map(|(log, ranges)| (log, merge(ranges)))
                .collect();
            for (log, ranges) in &logs {
                self.writer
                    .live
                    .release(self.writer.logs.free_tail(*log, ranges));
            }
            let mut dead = Vec::new();
            let freed = self.writer.spans.free(&logs, &[], &mut dead);
            self.writer.reclaimer.queue.add(dead);
            self.writer.reclaimer.wake_for_bases();
            self.space_freed().notify();
            match freed {
                Err(e) if e.is_damage() => damage = damage.or(Some(e)),
                freed => freed?,
            }
        }
        damage.map_or(Ok(()), Err)
    }

    /// Logs that a crash left unsealed, with their files: the service keeps what extents name and frees the rest.
    ///
    /// # Errors
    /// None today.
    pub fn unsealed(&self) -> Result<Vec<(LogId, Fid)>> {
        Ok(self.unsealed.lock().clone())
    }

    /// Frees every byte of an unsealed log outside `keep` and seals it.
    ///
    /// # Errors
    /// As the store.
    pub fn retain(&self, log: LogId, keep: &[Range<u64>]) -> Result<()> {
        let drop = subtract(0..u64::MAX, &merge(keep.to_vec()));
        let mut dead = Vec::new();
        let freed = self.writer.spans.free(&[(log, drop)], &[log], &mut dead);
        self.writer.reclaimer.queue.add(dead);
        self.writer.reclaimer.wake_for_bases();
        freed?;
        self.unsealed.lock().retain(|(l, _)| *l != log);
        Ok(())
    }

    /// `(stored bytes, quota or disk total, free)`. Free is what data may still take: not what is kept for the records.
    ///
    /// # Errors
    /// As the disk.
    pub fn space(&self) -> Result<(u64, u64, u64)> {
        let live = self.writer.live.used();
        let (free, total) = self.writer.segments.disk()?;
        let free = self.writer.reserve.free((free, total));
        Ok(match self.quota {
            Some(quota) => (live, quota, quota.saturating_sub(live).min(free)),
            None => (live, total, free),
        })
    }

    /// Wakes those that wait until an append that met `ENOSPC` may succeed: bytes were freed, or their disk space reclaimed.
    pub fn space_freed(&self) -> &Arc<SpaceSignal> {
        &self.writer.reclaimer.space_freed
    }

    /// Counters.
    pub fn stats(&self) -> LogStoreStats {
        let (settled, zeros) = self.writer.spans.mapped();
        let (stored, unique) = (self.writer.live.used(), self.reader.containers.named());
        LogStoreStats {
            live: (stored + settled).saturating_sub(unique),
            stored,
            settled,
            zeros,
            unique,
            encoded: self.reader.containers.encoded().stored(),
            encoded_from: self.reader.containers.encoded().raw(),
            buffers: self.writer.memory.used(),
            span_cache: self.writer.spans.cache.bytes() + self.reader.containers.cache_bytes(),
            segments: self.writer.segments.count(),
            open_logs: self.writer.logs.count(),
            cleaning: self.writer.reclaimer.queue.len() as u64,
            sent_from: self.reader.sent.raw.load(Relaxed),
            sent: self.reader.sent.sent.load(Relaxed),
            settle: (self.writer.settler.as_ref()).map_or_else(SettleStats::default, |s| s.stats()),
        }
    }

    /// What the segment files take on the disk, garbage included. Looks at each: not for a tight loop. Ends early, with less,
    /// once `stop` is set.
    ///
    /// # Errors
    /// As the disk.
    pub fn disk_bytes(&self, stop: &AtomicBool) -> Result<u64> {
        self.writer.segments.disk_bytes(stop)
    }

    /// Reclaims what is free; with `evacuate`, also gives back what removed files were a base for, and moves the last live bytes out of mostly
    /// dead segments. What the reclaiming
    /// thread does, for those that do without it.
    ///
    /// # Errors
    /// The first failure of disk or store; all else was done.
    pub fn clean(&self, evacuate: bool) -> Result<()> {
        let reclaimer = &self.writer.reclaimer;
        let mut given_back = Ok(());
        for _ in 0..MAX_CLEANING_ROUNDS {
            let is_left = self.reader.containers.bases.has_work();
            if !evacuate || given_back.is_err() || !is_left {
                break;
            }
            given_back = reclaimer.give_back_bases();
            given_back = given_back.and(reclaimer.reclaim_all(PunchScope::All, false));
        }
        let reclaimed = reclaimer.reclaim_all(PunchScope::All, evacuate);
        given_back.and(reclaimed)
    }

    /// Settles all that waits. What the settling thread does, for those that do without it. Nothing if nothing is settled.
    ///
    /// # Errors
    /// As disk and store; what is not settled is as it was.
    pub fn settle(&self) -> Result<()> {
        let settler = self.writer.settler.as_ref();
        settler.map_or(Ok(()), |settler| settler.settle_all())
    }

    /// Stops the threads and does what waits for the one that reclaims. Flush logs first: what is only buffered is lost.
    ///
    /// # Errors
    /// As the store.
    pub fn close(&self) -> Result<()> {
        self.stop_threads();
        self.writer.poison.check()?;
        self.writer.spans.apply_seals()?;
        self.writer.segments.seal_all();
        // Bases that are still needed, and gaps that are small, are found again.
        let released = self.writer.reclaimer.release_idle_holds();
        let reclaimer = &self.writer.reclaimer;
        reclaimer.reclaim_all(PunchScope::Large, false)?;
        if let Some(settler) = &self.writer.settler {
            settler.save(&*self.io);
        }
        released
    }

    fn stop_threads(&self) {
        let reclaimer = &self.writer.reclaimer;
        if let Some(settler) = &self.writer.settler {
            settler.backlog.stop(&reclaimer.segments.dir);
        }
        reclaimer.queue.background.stop(&reclaimer.segments.dir);
    }
}

impl Drop for LogStore {
    fn drop(&mut self) {
        self.stop_threads();
    }
}
