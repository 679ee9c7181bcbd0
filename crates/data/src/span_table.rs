//! The span table of a member. It owns three things that must agree: the span records in the store, decoded spans in memory, and
//! the bytes that these count for.
//!
//! Raw spans are recorded here; `settle` turns them into mapped ones, `free` frees them. (Raw and mapped: see [`span`].)
//!
//! Invariants:
//! - Spans of one log never overlap.
//! - A raw span counts in its segment with the bytes that it stores. Each run of a mapped span counts once for each chunk that it
//!   names.
//! - Records of a log are replaced, and counts changed, under the log's lock.
//! - No decoded span outlives its record (`record_cache`).
mod free;
mod settle;

pub use settle::{SettleBatch, SettledSpan};

use crate::byte_budget::ByteBudget;
use crate::container::ContainerTable;
use crate::inline::WrittenSpan;
use crate::keyspaces::{LOGS, SPANS};
use crate::pieces::ChecksummedPieces;
use crate::poison::Poison;
use crate::ranges::{merge, subtract};
use crate::record_cache::{CachedRecord, Epoch, RecordCache};
use crate::segment::{SegmentRange, Segments};
use crate::span::{self, RawBytes, Span, SpanRuns};
use crate::striped_locks::StripedLocks;
use forebay_proto::{Error, Fid, LogId, Result};
use forebay_storage::{Batch, Store};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Sealed logs that wait for another batch before they get their own.
const MAX_DEFERRED_SEALS: usize = 256;

/// Memory of spans that one scan of a log puts into the cache, about, bytes: some 20 of 48 KiB each, or four of 1 MiB.
const SPAN_READAHEAD_BYTES: usize = 4096;

/// A raw span whose bytes are copied to another place.
pub struct SpanMove {
    /// As it was.
    pub old: Span,
    /// As it will be: its bytes are written there already.
    pub new: Span,
}

/// See the head of this file. Shared by threads.
pub struct SpanTable {
    store: Arc<Store>,
    segments: Arc<Segments>,
    containers: Arc<ContainerTable>,
    poison: Arc<Poison>,
    /// Stored bytes of all logs, against the quota. Counted when bytes are appended; those of raw spans are released here.
    live: Arc<ByteBudget>,
    /// Decoded spans in memory.
    pub cache: RecordCache<Span>,
    locks: StripedLocks,
    /// Live bytes of mapped spans, and those of them that are zeros.
    mapped: AtomicU64,
    zeros: AtomicU64,
    /// Sealed, but still in `LOGS`: the next batch deletes these records.
    sealed: Mutex<Vec<LogId>>,
}

impl SpanTable {
    /// Over the records in `store`. `cache_bytes`: most memory for decoded spans.
    pub fn new(
        store: Arc<Store>,
        segments: Arc<Segments>,
        containers: Arc<ContainerTable>,
        poison: Arc<Poison>,
        live: Arc<ByteBudget>,
        cache_bytes: usize,
    ) -> SpanTable {
        SpanTable {
            store,
            segments,
            containers,
            poison,
            live,
            cache: RecordCache::new(cache_bytes),
            locks: StripedLocks::default(),
            mapped: AtomicU64::new(0),
            zeros: AtomicU64::new(0),
            sealed: Mutex::default(),
        }
    }

    /// The span that holds `addr`, if it is live.
    ///
    /// # Errors
    /// As the store, and `Corrupt` for a broken record.
    pub fn find(&self, log: LogId, addr: u64) -> Result<Option<Arc<Span>>> {
        match self.cache.get(log, addr) {
            Some(span) => Ok(Some(span)),
            None => self.load_ahead(log, addr),
        }
    }

    /// As `load`, and caches the spans behind it: readers of a log that has short ones ask for them next, and they come from the
    /// store by the same scan.
    fn load_ahead(&self, log: LogId, addr: u64) -> Result<Option<Arc<Span>>> {
        let epoch = self.cache.epoch(log);
        let spans = span::overlapping(&self.store, log, addr..u64::MAX);
        let (mut first, mut loaded) = (None, 0);
        for span in spans {
            let span = match span {
                Ok(span) => Arc::new(span),
                Err(e) if first.is_none() => return Err(e),
                // Told to whoever reads that one.
                Err(_) => break,
            };
            loaded += span.memory();
            self.cache.keep(epoch, span.clone());
            first.get_or_insert(span);
            if loaded >= SPAN_READAHEAD_BYTES {
                break;
            }
        }
        Ok(first.filter(|span| span.live.start <= addr))
    }

    /// As `find`, but always from the store.
    ///
    /// # Errors
    /// As `find`.
    pub fn load(&self, log: LogId, addr: u64) -> Result<Option<Arc<Span>>> {
        let epoch = self.cache.epoch(log);
        let span = span::find(&self.store, log, addr)?.map(Arc::new);
        if let Some(span) = &span {
            self.cache.keep(epoch, span.clone());
        }
        Ok(span)
    }

    /// The segments that hold bytes of a log, raw or in containers. (What settling made is on disk before a span names it, but not
    /// what was encoded inline.)
    ///
    /// # Errors
    /// As `find`.
    pub fn segments_of(&self, log: LogId) -> Result<BTreeSet<u32>> {
        let mut segments = BTreeSet::new();
        let mut last = None;
        for span in span::overlapping(&self.store, log, 0..u64::MAX) {
            let span = span?;
            segments.extend(span.raw().map(|raw| raw.segment));
            let runs = span.runs().into_iter().flat_map(SpanRuns::iter);
            for (id, _) in runs.filter_map(|run| run.in_container()) {
                if last.replace(id) != Some(id)
                    && let Some(container) = self.containers.find(id)?
                {
                    segments.insert(container.segment);
                }
            }
        }
        Ok(segments)
    }

    /// Records spans of one log whose bytes are in their segments, in one batch, with the containers that some of them name; and the
    /// log itself, if it is the first one (`new_log`). Answers segment ranges that are not needed: of chunks that were freed before.
    ///
    /// # Errors
    /// As the store: then none is recorded, and they come back.
    pub fn record(
        &self,
        log: LogId,
        new_log: Option<Fid>,
        spans: Vec<WrittenSpan>,
    ) -> std::result::Result<Vec<SegmentRange>, (Error, Vec<WrittenSpan>)> {
        match self.try_record(log, new_log, &spans) {
            Ok((epoch, dead)) => {
                let spans = spans.into_iter().map(|written| Arc::new(written.span));
                spans.for_each(|span| self.cache.keep(epoch, span));
                Ok(dead)
            }
            Err(e) => Err((e, spans)),
        }
    }

    fn try_record(
        &self,
        log: LogId,
        new_log: Option<Fid>,
        spans: &[WrittenSpan],
    ) -> Result<(Epoch, Vec<SegmentRange>)> {
        let epoch = self.cache.epoch(log);
        let mut batch = Batch::new();
        let new = || {
            spans
                .iter()
                .filter_map(|written| written.container.as_ref())
        };
        let mut locked = self.containers.lock(new().map(|new| new.container.id));
        new().for_each(|new| locked.create(new.clone()));
        for written in spans {
            if let Some(runs) = written.span.runs() {
                // Of containers that this batch creates: there is none that is gone.
                locked.increment_counts(runs)?;
            }
            written.span.put(&mut batch);
        }
        locked.put(&mut batch)?;
        if let Some(fid) = new_log {
            batch.put(
                LOGS,
                log.to_be_bytes().to_vec(),
                fid.0.to_be_bytes().to_vec(),
            );
        }
        self.apply(batch)?;
        let dead = locked.applied();
        for span in spans.iter().map(|written| &written.span) {
            if span.runs().is_some() {
                // Counted when it was accepted; from now on its container counts.
                self.live.release(span.live_len());
                self.count_mapped(std::slice::from_ref(span));
            }
        }
        Ok((epoch, dead))
    }

    /// Has a later batch delete the record of this log.
    ///
    /// # Errors
    /// As the store.
    pub fn seal(&self, log: LogId) -> Result<()> {
        let waiting = {
            let mut sealed = self.sealed.lock();
            sealed.push(log);
            sealed.len()
        };
        // If the record is not deleted, the next start only checks the log once more.
        if waiting >= MAX_DEFERRED_SEALS && self.poison.check().is_ok() {
            self.apply_seals()
        } else {
            Ok(())
        }
    }

    /// Deletes the records of sealed logs that still wait.
    ///
    /// # Errors
    /// As the store.
    pub fn apply_seals(&self) -> Result<()> {
        // Only deletes: a full disk takes them too.
        self.apply(Batch::reclaiming())
    }

    /// Applies a batch, and with it the removal of sealed logs' records.
    ///
    /// # Errors
    /// As the store.
    pub fn apply(&self, mut batch: Batch) -> Result<()> {
        let mut sealed = std::mem::take(&mut *self.sealed.lock());
        for id in &sealed {
            batch.delete(LOGS, id.to_be_bytes().to_vec());
        }
        if batch.is_empty() {
            return Ok(());
        }
        self.store.apply(batch).map_err(|e| {
            self.sealed.lock().append(&mut sealed);
            self.poison.note(e.into())
        })
    }

    /// Counts these bytes as being in mapped spans.
    pub fn add_mapped(&self, live: u64, zeros: u64) {
        self.mapped.fetch_add(live, Relaxed);
        self.zeros.fetch_add(zeros, Relaxed);
    }

    fn count_mapped(&self, spans: &[Span]) {
        for (span, runs) in spans.iter().filter_map(|s| Some((s, s.runs()?))) {
            self.add_mapped(span.live_len(), runs.zeros());
        }
    }

    fn uncount_mapped(&self, spans: &[Span]) {
        for (span, runs) in spans.iter().filter_map(|s| Some((s, s.runs()?))) {
            self.mapped.fetch_sub(span.live_len(), Relaxed);
            self.zeros.fetch_sub(runs.zeros(), Relaxed);
        }
    }

    /// Live bytes of mapped spans, and those of them that are zeros.
    pub fn mapped(&self) -> (u64, u64) {
        (self.mapped.load(Relaxed), self.zeros.load(Relaxed))
    }

    /// Whether the record of this span is still what it was.
    ///
    /// # Errors
    /// As the store.
    pub fn is_current(&self, span: &Span) -> Result<bool> {
        let now = self.store.get(SPANS, &span.key())?;
        Ok(now.is_some_and(|value| value[..] == span.value()[..]))
    }

    /// Records spans at their new places, in one batch. A span that changed since it was copied stays where it is and is left in
    /// `moves`: its copy is not used.
    ///
    /// # Errors
    /// As the store: then all of `moves` are left.
    pub fn relocate(&self, moves: &mut Vec<SpanMove>) -> Result<()> {
        let _locks = self.locks.lock(moves.iter().map(|m| m.old.log));
        // The records stay as large as they were, and the old segments go: on a full disk too.
        let mut batch = Batch::reclaiming();
        let mut unchanged = vec![false; moves.len()];
        for (m, unchanged) in moves.iter().zip(&mut unchanged) {
            *unchanged = self.is_current(&m.old)?;
            if *unchanged {
                m.new.put(&mut batch);
            }
        }
        self.apply(batch)?;
        let mut unchanged = unchanged.into_iter();
        moves.retain(|m| {
            let moved = unchanged.next() == Some(true);
            if moved {
                self.cache.forget(m.old.log, m.old.live.end);
                if let Some(raw) = m.old.raw() {
                    self.segments.release(raw.segment, raw.stored_len());
                }
            }
            !moved
        });
        Ok(())
    }
}

/// The segment ranges of raw bytes that are given up and that none of the `kept` spans needs.
fn unneeded<'a>(old: &RawBytes, kept: impl Iterator<Item = &'a Span>) -> Vec<SegmentRange> {
    let SegmentRange {
        segment,
        start,
        end,
    } = old.segment_range(&old.stored);
    let kept = kept.filter_map(Span::raw).filter(|k| k.segment == segment);
    let needed = kept.map(|k| {
        let SegmentRange { start, end, .. } = k.segment_range(&k.stored);
        start..end
    });
    let unneeded = subtract(start..end, &merge(needed.collect())).into_iter();
    let range = |r: Range<u64>| SegmentRange {
        segment,
        start: r.start,
        end: r.end,
    };
    unneeded.map(range).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::Lane;
    use forebay_storage::OsIo;
    use std::collections::HashMap;
    use tempfile::TempDir;

    struct Fixture {
        _dir: TempDir,
        segments: Arc<Segments>,
        live: Arc<ByteBudget>,
        table: SpanTable,
    }

    impl Fixture {
        fn new() -> Fixture {
            let dir = tempfile::tempdir().unwrap();
            let (io, records) = (Arc::new(OsIo), dir.path().join("store"));
            let store = Arc::new(Store::open(io.clone(), &records, Default::default()).unwrap());
            let poison = Arc::new(Poison::new(dir.path()));
            let table = HashMap::new();
            let segments = Segments::new(io, dir.path(), 0, 1, table, poison.clone());
            let segments = Arc::new(segments);
            let live = Arc::new(ByteBudget::new(u64::MAX));
            let containers =
                ContainerTable::new(store.clone(), segments.clone(), live.clone(), 1 << 20);
            let table = SpanTable::new(
                store,
                segments.clone(),
                Arc::new(containers),
                poison,
                live.clone(),
                1 << 20,
            );
            Fixture {
                _dir: dir,
                segments,
                live,
                table,
            }
        }

        /// Space for a span of log 7, counted as its writer does.
        fn reserve(&self, addr: u64, len: usize) -> Span {
            let (segment, offset) = self.segments.reserve(Lane::Log(7), len as u64).unwrap();
            Span::of(7, addr, &vec![1; len], segment.number, offset)
        }

        fn record(&self, addr: u64, len: usize) -> Span {
            let span = self.reserve(addr, len);
            self.live.charge(len as u64);
            let written = WrittenSpan {
                span: span.clone(),
                container: None,
            };
            let recorded = self.table.record(7, None, vec![written]);
            assert!(recorded.is_ok_and(|dead| dead.is_empty()));
            span
        }

        fn stored(&self, span: &Span) -> u64 {
            let segment = span.raw().unwrap().segment;
            self.segments.usage(segment).unwrap().live
        }
    }

    #[test]
    fn what_is_freed_is_not_found_and_counts_no_more_and_whole_pieces_are_dead() {
        let fixture = Fixture::new();
        let span = fixture.record(0, 20_000);
        assert_eq!(fixture.table.find(7, 0).unwrap().as_deref(), Some(&span));
        let free = |range: Range<u64>| {
            let ranges = std::iter::once(range).collect();
            let mut dead = Vec::new();
            fixture.table.free(&[(7, ranges)], &[], &mut dead).unwrap();
            dead
        };
        let dead = free(5000..10_000);
        assert!(fixture.table.find(7, 5000).unwrap().is_none());
        assert!(fixture.table.find(7, 10_000).unwrap().is_some());
        // Pieces 1 and 2 hold live bytes too.
        assert_eq!((dead, fixture.live.used()), (Vec::new(), 15_000));
        assert_eq!(fixture.stored(&span), 8192 + (20_000 - 8192));
        let dead = free(4096..12_288);
        let at = u64::from(span.raw().unwrap().offset);
        // One of what each of the two spans lost.
        let places: Vec<_> = dead.iter().map(|r| r.start - at..r.end - at).collect();
        assert_eq!(places, [4096..8192, 8192..12_288]);
        assert_eq!(fixture.stored(&span), 20_000 - 8192);
        free(0..u64::MAX);
        assert_eq!((fixture.live.used(), fixture.stored(&span)), (0, 0));
    }

    #[test]
    fn a_span_that_changed_since_it_was_copied_stays_where_it_is() {
        let fixture = Fixture::new();
        let spans = [fixture.record(0, 8192), fixture.record(8192, 8192)];
        let copy = |old: &Span| SpanMove {
            old: old.clone(),
            new: fixture.reserve(old.live.start, 8192),
        };
        let mut moves: Vec<SpanMove> = spans.iter().map(copy).collect();
        let moved = moves[1].new.clone();
        fixture
            .table
            .free(&[(7, vec![0..10, 20..30])], &[], &mut Vec::new())
            .unwrap();
        fixture.table.relocate(&mut moves).unwrap();
        assert_eq!(moves.len(), 1, "the first one has changed");
        assert_eq!(moves[0].old, spans[0]);
        let offset = |span: &Span| span.raw().unwrap().offset;
        let found = |addr| offset(&fixture.table.find(7, addr).unwrap().unwrap());
        assert_eq!(found(8192), offset(&moved));
        assert_eq!(found(10), offset(&spans[0]));
        // The unused copy counts until it is discarded.
        assert_eq!(fixture.stored(&moved), 2 * 4096 + 4096 + 8192 + 8192);
    }
}
