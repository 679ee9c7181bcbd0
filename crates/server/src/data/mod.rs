//! The data plane of one member: logs packed into segment files, checksums, freeing, quota.
//!
//! A **log** is a virtual append-only stream; its addresses and its number are never reused. Appended bytes wait in the
//! log's `tail` (under one memory budget for all logs), then go to a **segment** file, and a **span** record in the store
//! says where they lie and what their checksums are. Freed addresses answer `Gone` for ever. Nothing outside this module
//! knows segments and spans.
//!
//! | module | what it holds |
//! |---|---|
//! | `log`, `tail` | open logs and their buffered ends |
//! | `segment`, `header` | segment files: reservation, cache of open files; what one looks like |
//! | `spans`, `span_cache` | span records, and decoded ones in memory |
//! | `write`, `read`, `free` | the paths |
//! | `clean`, `moves` | punching and removing segments, in the background; emptying mostly dead ones |
//! | `quota` | live bytes, buffer memory, poison |
//! | `room` | what data leaves of the disk to the records |
//! | `recover` | opening |
//! | `requests` | which request of a member is answered by what |
//!
//! Invariants: bytes are in a segment before a span names them; a span is gone from the store, on disk, before its bytes
//! go; bytes leave only after their checksum was right.
mod clean;
mod free;
mod header;
mod log;
mod moves;
mod quota;
mod read;
mod recover;
mod requests;
mod room;
mod segment;
mod span_cache;
pub(crate) mod spans;
mod tail;
#[cfg(test)]
mod tests;
mod write;

pub use forebay_proto::{LogId, data as proto};
pub(crate) use header::{
    HEADER as SEGMENT_HEADER, check_header as check_segment_header, name as segment_name,
    number as segment_number,
};
pub(crate) use recover::unsealed as unsealed_logs;
pub use room::Room;
pub(crate) use tail::{merge, subtract};

use crate::{Fid, Member, Result, buffers::Buffers, counter::Counter};
use clean::Work;
use crossbeam_channel::Sender;
use forebay_storage::{Io, Store};
use log::Logs;
use parking_lot::Mutex;
use quota::{Health, Meter};
use segment::Segments;
use span_cache::SpanCache;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::JoinHandle;

/// A part of a log: `[addr, addr + len)`, bytes.
pub type LogRange = (LogId, Range<u64>);

/// Most bytes one read request may ask for.
pub const READ_BYTES: u64 = 256 << 20;

/// Settings of the data plane; bytes.
#[derive(Debug, Clone)]
pub struct DataOptions {
    /// Whose data it is.
    pub member: Member,
    /// Most live bytes; `None`: what the disk has.
    pub quota: Option<u64>,
    /// Memory for tails of logs. Decoded spans take up to a quarter of this beside it.
    pub buffer_bytes: u64,
    /// Every flush is one with `sync` (durability `disk`).
    pub sync_each_flush: bool,
    /// The room on the disk, shared with the members that store there too.
    pub room: Arc<Room>,
}

/// Counters of the data plane; bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct DataStats {
    /// Bytes that may be read, buffered ones included.
    pub live: u64,
    /// Memory of tails.
    pub buffers: u64,
    /// Memory of decoded spans.
    pub span_cache: u64,
    /// Segment files.
    pub segments: u64,
    /// Logs open for appending.
    pub open_logs: u64,
    /// Lookups of a span answered from memory, since the start.
    pub span_hits: u64,
    /// Lookups that had to ask the store.
    pub span_misses: u64,
    /// Freed places that wait to be given back to the disk.
    pub cleaning: u64,
}

struct Inner {
    store: Arc<Store>,
    options: DataOptions,
    segments: Segments,
    logs: Logs,
    ids: Counter,
    cache: SpanCache,
    locks: free::SpanLocks,
    /// Live bytes, buffered ones included, against the quota.
    live: Meter,
    /// Memory of tails and spare buffers.
    buffers: Meter,
    /// For answers to other members.
    read_buffers: Buffers,
    health: Health,
    work: Work,
    /// Held by whoever cleans.
    cleaning: Mutex<()>,
    /// Logs that a crash left unsealed and nobody has retained yet.
    unsealed: Mutex<Vec<(LogId, Fid)>>,
}

/// The data plane. Shared by threads.
pub struct Data {
    inner: Arc<Inner>,
    cleaner: Mutex<Option<(Sender<()>, JoinHandle<()>)>>,
}

impl Data {
    /// Opens (or creates) the data plane. `dir`: a directory for segment files alone.
    ///
    /// # Errors
    /// As disk and store; `Format` for segment files of another member or a newer version.
    pub fn open(
        io: Arc<dyn Io>,
        dir: &Path,
        store: Arc<Store>,
        options: DataOptions,
    ) -> Result<Data> {
        let (data, woken) = Data::open_quiet(io, dir, store, options)?;
        let (stop, stopped) = crossbeam_channel::bounded(0);
        let inner = data.inner.clone();
        let thread = std::thread::Builder::new()
            .name("forebay-clean".into())
            .spawn(move || clean::run(&inner, &woken, &stopped))
            .map_err(|e| quota::io_error("start a thread for", dir, e))?;
        *data.cleaner.lock() = Some((stop, thread));
        Ok(data)
    }

    /// As `open`, without the cleaning thread.
    fn open_quiet(
        io: Arc<dyn Io>,
        dir: &Path,
        store: Arc<Store>,
        options: DataOptions,
    ) -> Result<(Data, crossbeam_channel::Receiver<()>)> {
        let found = recover::recover(&*io, dir, &store, options.member)?;
        let (work, woken) = Work::new();
        if !found.gaps.is_empty() {
            work.add(found.gaps);
        }
        let inner = Inner {
            segments: Segments::new(io, dir, options.member, found.next, found.table),
            logs: Logs::default(),
            ids: Counter::open(store.clone(), b"log", 1)?,
            cache: SpanCache::new((options.buffer_bytes / 4) as usize),
            locks: free::SpanLocks::default(),
            live: Meter::new(options.quota.unwrap_or(u64::MAX)),
            buffers: Meter::new(options.buffer_bytes),
            read_buffers: Buffers::new(options.buffer_bytes / 8),
            health: Health::new(dir),
            work,
            cleaning: Mutex::new(()),
            unsealed: Mutex::new(found.unsealed),
            store,
            options,
        };
        inner.live.take(found.live);
        Ok((
            Data {
                inner: Arc::new(inner),
                cleaner: Mutex::new(None),
            },
            woken,
        ))
    }

    /// A new log for the file. Nothing is on disk until the first flush.
    ///
    /// # Errors
    /// As the store.
    pub fn create_log(&self, fid: Fid) -> Result<LogId> {
        let id = self.inner.ids.next()?;
        self.inner.logs.add(id, fid);
        Ok(id)
    }

    /// Appends; returns the address of the first byte. Buffered: at most the buffer budget, then written out.
    ///
    /// # Errors
    /// `ENOSPC` over the quota, or on a disk that has no more than the records' share (nothing was appended, earlier bytes are intact); `EBADF` for a log that
    /// is not open; `EIO` after a failed write, until the store is opened again.
    pub fn append(&self, log: LogId, bytes: &[u8]) -> Result<u64> {
        self.inner.append(log, bytes)
    }

    /// All appended bytes of the log are in a segment file and found again after a crash of the process;
    /// with `sync` also after a crash of the machine. A sealed log can still be flushed with `sync`.
    ///
    /// # Errors
    /// As `append`. After `ENOSPC` the bytes are still buffered and readable; flush again when there is room.
    pub fn flush(&self, log: LogId, sync: bool) -> Result<()> {
        self.inner.flush(log, sync)
    }

    /// The first half of `flush` with `sync`: the log's bytes are on disk, and the records that find them are in the store,
    /// but perhaps not on disk. They are once `sync_records`, or any later sync of this member's store, is done.
    ///
    /// # Errors
    /// As `flush`.
    pub fn sync_bytes(&self, log: LogId) -> Result<()> {
        self.inner.sync_bytes(log)
    }

    /// The second half of `flush` with `sync`, for any number of logs.
    ///
    /// # Errors
    /// As the store.
    pub fn sync_records(&self) -> Result<()> {
        self.inner.sync_records()
    }

    /// As `flush` with `sync`, for all logs, but for what is only buffered.
    ///
    /// # Errors
    /// As `flush`.
    pub fn sync_all(&self) -> Result<()> {
        self.inner.sync_all()
    }

    /// No more appends; what is not flushed is dropped.
    ///
    /// # Errors
    /// As the store.
    pub fn seal(&self, log: LogId) -> Result<()> {
        self.inner.seal(log)
    }

    /// Fills `buf` from one log, verified; sees buffered bytes.
    ///
    /// # Errors
    /// `Gone` if any byte was freed (or never written), `Corrupt` if damaged.
    pub fn read(&self, log: LogId, addr: u64, buf: &mut [u8]) -> Result<()> {
        self.inner.read(log, addr, buf)
    }

    /// Gives bytes back (idempotent). Addresses not appended yet are left alone.
    ///
    /// # Errors
    /// As the store; then some of the ranges may be freed already.
    pub fn free(&self, ranges: &[LogRange]) -> Result<()> {
        self.inner.free(ranges)
    }

    /// Logs that a crash left unsealed, with their files: the service keeps what extents name and frees the rest.
    ///
    /// # Errors
    /// None today.
    pub fn unsealed(&self) -> Result<Vec<(LogId, Fid)>> {
        Ok(self.inner.unsealed.lock().clone())
    }

    /// Frees every byte of an unsealed log outside `keep` and seals it.
    ///
    /// # Errors
    /// As the store.
    pub fn retain(&self, log: LogId, keep: &[Range<u64>]) -> Result<()> {
        let drop = tail::subtract(0..u64::MAX, &tail::merge(keep.to_vec()));
        self.inner.free_spans(&[(log, drop)], &[log])?;
        self.inner.unsealed.lock().retain(|(l, _)| *l != log);
        Ok(())
    }

    /// `(live bytes, quota or disk total, free)`. Free is what data may still take: not what is kept for the records.
    ///
    /// # Errors
    /// As the disk.
    pub fn space(&self) -> Result<(u64, u64, u64)> {
        let live = self.inner.live.used();
        let (free, total) = self.inner.segments.disk()?;
        let free = self.inner.options.room.free((free, total));
        Ok(match self.inner.options.quota {
            Some(quota) => (live, quota, quota.saturating_sub(live).min(free)),
            None => (live, total, free),
        })
    }

    /// Counters.
    pub fn stats(&self) -> DataStats {
        let (span_hits, span_misses) = self.inner.cache.counts();
        DataStats {
            span_hits,
            span_misses,
            live: self.inner.live.used(),
            buffers: self.inner.buffers.used(),
            span_cache: self.inner.cache.bytes(),
            segments: self.inner.segments.count(),
            open_logs: self.inner.logs.count(),
            cleaning: self.inner.work.places(),
        }
    }

    /// What the segment files take on the disk, garbage included. Looks at each: not for a tight loop. Ends early, with less,
    /// once `stop` is set.
    ///
    /// # Errors
    /// As the disk.
    pub fn disk_bytes(&self, stop: &AtomicBool) -> Result<u64> {
        self.inner.segments.disk_bytes(stop)
    }

    /// Stops the cleaning thread and settles what waits. Flush logs first: what is only buffered is lost.
    ///
    /// # Errors
    /// As the store.
    pub fn close(&self) -> Result<()> {
        self.stop_cleaner();
        self.inner.health.check()?;
        // Only deletes: a full disk takes them too.
        self.inner
            .apply_with_seals(forebay_storage::Batch::reclaiming())?;
        self.inner.segments.seal_all();
        self.inner.clean(false)
    }

    fn stop_cleaner(&self) {
        if let Some((stop, thread)) = self.cleaner.lock().take() {
            drop(stop);
            // A panic there was reported by the panic hook; there is nothing to add.
            let _ = thread.join();
        }
    }
}

impl Drop for Data {
    fn drop(&mut self) {
        self.stop_cleaner();
    }
}
