//! Appending, and writing tails to segments.
//!
//! Order of a write-out: the bytes go to the segment, then the span records to the store in one batch (with the log's
//! own record if it is the first), then readers see it. So a record never names bytes that were not written; after a
//! power loss at durability `process` it may name bytes that the disk lost, which the checksums show.
//!
//! A large append that may be encoded takes its addresses first, and is recorded when it has been written; its log is free for others
//! meanwhile. Until then, and for ever if it fails, its addresses read as gone; nobody else knows them before the append returns.
//!
//! Invariants: an accepted byte counts against the quota until it is freed, and in the disk reserve until it is in a segment or
//! dropped; padding counts in the disk reserve alone. A failed append leaves no bytes behind; a failed write-out leaves the tail as it
//! was.
use crate::byte_budget::ByteBudget;
use crate::container::encoder::RawOrigin;
use crate::disk_reserve::DiskReserve;
use crate::inline::{InlineEncoder, WrittenSpan};
use crate::log::{Log, LogState, OpenLogs};
use crate::pieces::ChecksummedPieces;
use crate::poison::Poison;
use crate::reclaim::Reclaimer;
use crate::segment::{Lane, Segment, SegmentRange, Segments};
use crate::settle::Settler;
use crate::span::{PIECE_BYTES, Span};
use crate::span_table::SpanTable;
use crate::tail::LogTail;
use crate::tail_memory::TailMemory;
use forebay_codec::choose::CodecChooser;
use forebay_proto::{LogId, Result};
use parking_lot::MutexGuard;
use rustix::io::Errno;
use std::sync::Arc;

/// Appends of this size go to the segment without a copy.
const DIRECT_WRITE_BYTES: usize = 256 << 10;
/// An append is aligned only if it is at least this many times as long as the padding.
const MIN_BYTES_PER_PADDING: u64 = 12;
/// Largest span, bytes.
const MAX_SPAN_BYTES: usize = 1 << 20;
/// From so many segments on that a log keeps open, it looks which of them are on disk by now.
const MIN_CHECKED_SEGMENTS: usize = 16;
/// Segments that a log keeps open because they are not on disk, at most: 8 GiB.
const MAX_UNSYNCED_SEGMENTS: usize = 128;

/// How bytes are appended.
#[derive(Debug, Clone, Copy, Default)]
pub struct AppendOptions {
    /// Where there is no room, have settling go on, and wait for what it makes as long as that is something.
    pub settles: bool,
    /// Begin with a piece of the log, unless the append is short against the padding. For bytes that are read and replaced page by page: a
    /// piece of which only a part is wanted is read whole.
    pub aligned: bool,
    /// Where in the log's file the bytes go, for logs of a series.
    pub offset: Option<u64>,
}

/// A log's tail while it is written out. It is put back also after a panic, so that no address is given out twice.
struct TakenTail<'a> {
    state: &'a mut LogState,
    tail: LogTail,
}

impl TakenTail<'_> {
    fn of(state: &mut LogState) -> TakenTail<'_> {
        TakenTail {
            tail: std::mem::take(&mut state.tail),
            state,
        }
    }
}

impl Drop for TakenTail<'_> {
    fn drop(&mut self) {
        std::mem::swap(&mut self.state.tail, &mut self.tail);
    }
}

/// The path of appended bytes to the segments. Shared by threads.
pub struct LogAppender {
    /// Logs that take appends.
    pub logs: Arc<OpenLogs>,
    /// Memory of the tails.
    pub memory: TailMemory,
    /// Where bytes are written.
    pub segments: Arc<Segments>,
    /// The span records.
    pub spans: Arc<SpanTable>,
    /// Live bytes, buffered ones included, against the quota.
    pub live: Arc<ByteBudget>,
    /// The disk space shared with the members that store there too.
    pub reserve: Arc<DiskReserve>,
    /// Makes space on a full disk.
    pub reclaimer: Arc<Reclaimer>,
    /// Closed by a failed write.
    pub poison: Arc<Poison>,
    /// Encodes what is written, if that is on.
    pub inline: Option<InlineEncoder>,
    /// Settles written spans, if settling is on.
    pub settler: Option<Arc<Settler>>,
}

impl LogAppender {
    /// Appends and returns the address of the first byte.
    ///
    /// # Errors
    /// As `LogStore::append`.
    pub fn append(&self, id: LogId, bytes: &[u8], options: AppendOptions) -> Result<u64> {
        self.poison.check()?;
        let log = self.logs.get(id)?;
        let len = bytes.len() as u64;
        if let Some(settler) = &self.settler {
            settler.wait_while_behind(&self.reclaimer.space_freed);
        }
        if !(self.take_room(len) || options.settles && self.settle_for_room(len)) {
            return Err(Errno::NOSPC.into());
        }
        let appended = self.append_charged(&log, bytes, options.aligned);
        let addr = appended.inspect_err(|_| {
            self.reserve.written(len);
            self.live.release(len);
        })?;
        if log.in_series
            && let (Some(settler), Some(offset)) = (&self.settler, options.offset)
        {
            settler.series.appended(id, addr, offset, len);
        }
        Ok(addr)
    }

    /// Takes room for `len` more bytes of data, of quota and disk. `false`: there is none.
    fn take_room(&self, len: u64) -> bool {
        if !self.live.try_charge(len) {
            return false;
        }
        let accepted = self.accept(len);
        if !accepted {
            self.live.release(len);
        }
        accepted
    }

    /// As `take_room`, but waits for settling to make room.
    fn settle_for_room(&self, len: u64) -> bool {
        self.settler.as_ref().is_some_and(|settler| {
            settler.make_room(&self.reclaimer.space_freed, || self.take_room(len))
        })
    }

    /// Whether the disk has room for `len` more bytes of data.
    fn accept(&self, len: u64) -> bool {
        let take = || self.reserve.try_take(len, || self.segments.disk());
        take() || self.reclaimer.reclaim_for_write() && take()
    }

    /// Appends bytes for which there is room.
    fn append_charged(&self, log: &Arc<Log>, bytes: &[u8], aligned: bool) -> Result<u64> {
        let mut state = log.state.lock();
        if state.sealed {
            return Err(Errno::BADF.into());
        }
        match self.inline.is_some() && self.is_direct(bytes.len()) {
            true => self.append_encoded(log, state, bytes, aligned),
            false => self.append_locked(log, &mut state, bytes, aligned),
        }
    }

    /// Whether an append goes to the segment without a copy.
    fn is_direct(&self, len: usize) -> bool {
        len >= DIRECT_WRITE_BYTES.min(self.memory.tail_limit())
    }

    /// As `append_locked`, of a large append where inline encoding is on, encoded or not. The log is free for others meanwhile: only the
    /// addresses are taken, and the spans recorded, with its state held. On a full disk one of several may fail while another one
    /// reclaims, as with several logs.
    fn append_encoded(
        &self,
        log: &Log,
        mut state: MutexGuard<'_, LogState>,
        bytes: &[u8],
        aligned: bool,
    ) -> Result<u64> {
        let padding = padding_before(state.tail.end(), bytes.len(), aligned);
        self.note_full_tail(&mut state, padding + bytes.len());
        self.write_out(log, &mut state, false)?;
        self.pad(log, &mut state, padding);
        let addr = state.tail.end();
        skip_to(log, &mut state, addr + bytes.len() as u64);
        let mut chooser = state.choosers.pop();
        let _pending = log.pending.begin();
        drop(state);
        let (mut spans, mut segments) = (Vec::new(), Vec::new());
        let mut stored = Ok(());
        for (i, chunk) in bytes.chunks(MAX_SPAN_BYTES).enumerate() {
            let at = addr + (i * MAX_SPAN_BYTES) as u64;
            match self.store_bytes(log, &mut chooser, at, chunk) {
                Ok((span, segment)) => {
                    spans.push(span);
                    segments.push(segment);
                }
                Err(e) => {
                    stored = Err(e);
                    break;
                }
            }
        }
        let mut state = log.state.lock();
        state.choosers.extend(chooser);
        let kept = stored.and_then(|()| {
            let mut segments = segments.into_iter();
            segments.try_for_each(|segment| self.keep_unsynced(&mut state, segment))
        });
        if let Err(e) = kept {
            self.discard(&spans);
            return Err(e);
        }
        self.record(log, &mut state, spans, false)?;
        self.reserve.written(bytes.len() as u64);
        Ok(addr)
    }

    fn append_locked(
        &self,
        log: &Arc<Log>,
        state: &mut LogState,
        bytes: &[u8],
        aligned: bool,
    ) -> Result<u64> {
        let padding = padding_before(state.tail.end(), bytes.len(), aligned);
        let len = padding + bytes.len();
        if self.note_full_tail(state, len) {
            self.write_out(log, state, false)?;
        }
        if self.is_direct(bytes.len()) || !self.make_room(log, state, len)? {
            self.write_out(log, state, false)?;
            self.pad(log, state, padding);
            let addr = state.tail.end();
            self.write_direct(log, state, bytes)?;
            self.reserve.written(bytes.len() as u64);
            return Ok(addr);
        }
        self.pad(log, state, padding);
        let addr = state.tail.end();
        state.tail.push(bytes);
        self.memory.queue(log, state);
        Ok(addr)
    }

    /// Whether the tail has bytes, and no room for `more`; then it is noted that it was full.
    fn note_full_tail(&self, state: &mut LogState, more: usize) -> bool {
        let held = state.tail.bytes().len();
        let is_full = held > 0 && held + more > self.memory.tail_limit();
        state.fills_tails |= is_full;
        is_full
    }

    /// Skips addresses: without bytes if the tail is empty, else with free ones in the tail, which has the memory. Not if the disk has no room
    /// for them.
    fn pad(&self, log: &Log, state: &mut LogState, padding: usize) {
        let len = padding as u64;
        if len == 0 {
            return;
        }
        if state.tail.is_empty() {
            let end = state.tail.end() + len;
            skip_to(log, state, end);
        } else if self.reserve.try_take(len, || self.segments.disk()) {
            state.tail.pad(len);
        }
    }

    /// Memory for `more` bytes in this tail, inside the budget: other logs' tails are written out, oldest first, then this one's.
    /// `false`: there is none.
    fn make_room(&self, log: &Arc<Log>, state: &mut LogState, more: usize) -> Result<bool> {
        self.memory.adopt_spare(state);
        if self.memory.try_grow(state, more) {
            return Ok(true);
        }
        self.memory.drop_spares();
        let mut ticket = 0;
        while self.memory.is_short(state, more) {
            let Some((next, other)) = self.memory.queued_after(ticket) else {
                break;
            };
            ticket = next;
            if Arc::ptr_eq(&other, log) {
                continue;
            }
            // Whoever holds it is busy with it, and not to be waited for with a log locked.
            let Some(mut theirs) = other.state.try_lock() else {
                continue;
            };
            if let Err(e) = self.write_out(&other, &mut theirs, false) {
                // Their bytes stay in memory. If it is a full disk, this append will learn it for itself.
                if e.errno() != Errno::NOSPC {
                    return Err(e);
                }
                break;
            }
            self.drop_tail(&mut theirs);
        }
        let short = self.memory.is_short(state, more);
        state.fills_tails = false;
        if short {
            self.write_out(log, state, false)?;
        }
        Ok(self.memory.try_grow(state, more))
    }

    /// Drops the bytes in the tail, and frees its buffer.
    fn drop_tail(&self, state: &mut LogState) {
        let buffer = self.empty_tail(state);
        self.memory.release(state, buffer);
    }

    /// Empties the tail, whose bytes are in a segment now or were dropped. Returns its buffer.
    fn empty_tail(&self, state: &mut LogState) -> Vec<u8> {
        self.reserve.written(state.tail.bytes().len() as u64);
        let end = state.tail.end();
        state.tail.advance(end)
    }

    /// Writes `bytes` after the (empty) tail's end without buffering them.
    fn write_direct(&self, log: &Log, state: &mut LogState, bytes: &[u8]) -> Result<()> {
        let start = state.tail.end();
        let mut spans = Vec::with_capacity(bytes.len().div_ceil(MAX_SPAN_BYTES));
        let mut at = start;
        for chunk in bytes.chunks(MAX_SPAN_BYTES) {
            match self.store_locked(log, state, at, chunk) {
                Ok(written) => spans.push(written),
                Err(e) => {
                    self.discard(&spans);
                    return Err(e);
                }
            }
            at += chunk.len() as u64;
        }
        self.record(log, state, spans, false)?;
        skip_to(log, state, at);
        Ok(())
    }

    /// As `store_bytes`, with the log's state held.
    fn store_locked(
        &self,
        log: &Log,
        state: &mut LogState,
        addr: u64,
        bytes: &[u8],
    ) -> Result<WrittenSpan> {
        let mut chooser = state.choosers.pop();
        let stored = self.store_bytes(log, &mut chooser, addr, bytes);
        state.choosers.extend(chooser);
        let (written, segment) = stored?;
        if let Err(e) = self.keep_unsynced(state, segment) {
            self.discard(&[written]);
            return Err(e);
        }
        Ok(written)
    }

    /// Writes bytes to a segment, where they count as live; encoded, if that is on and worth it. The returned span is not recorded
    /// yet, and the log has to keep the segment open.
    fn store_bytes(
        &self,
        log: &Log,
        chooser: &mut Option<CodecChooser>,
        addr: u64,
        bytes: &[u8],
    ) -> Result<(WrittenSpan, Arc<Segment>)> {
        let encoded = match &self.inline {
            None => None,
            Some(inline) => {
                let origin = RawOrigin {
                    log: log.id,
                    addr,
                    hint: log.hint.into(),
                };
                let write = |encoded: &[u8]| self.write_to_segment(log.id, encoded);
                inline.write(&origin, chooser, bytes, write)?
            }
        };
        let written = match encoded {
            Some(written) => written,
            None => {
                let (segment, offset) = self.write_to_segment(log.id, bytes)?;
                let span = Span::of(log.id, addr, bytes, segment.number, offset);
                let written = WrittenSpan {
                    span: span.with_hint(log.hint),
                    container: None,
                };
                (written, segment)
            }
        };
        if self.segments.is_ahead() {
            self.reclaimer.queue.wake();
        }
        Ok(written)
    }

    /// Writes bytes to a segment, where they count as live.
    fn write_to_segment(&self, log: LogId, bytes: &[u8]) -> Result<(Arc<Segment>, u32)> {
        let (segment, offset) = self.reserve_in_segment(log, bytes.len() as u64)?;
        let write = || self.segments.write(&segment, offset, bytes);
        if let Err(e) = self.with_space(write) {
            self.reserve.revoke();
            // A part may be there.
            let place = SegmentRange::new(segment.number, offset, bytes.len() as u64);
            self.reclaimer.discard_bytes(std::iter::once(place));
            return Err(self.poison.note(e));
        }
        Ok((segment, offset))
    }

    /// Gives back the space of spans that will not be recorded.
    fn discard(&self, written: &[WrittenSpan]) {
        let raw = written.iter().filter_map(|w| w.span.raw());
        self.reclaimer
            .discard_bytes(raw.map(|raw| raw.segment_range(&raw.stored)));
        let containers = written.iter().filter_map(|w| w.container.as_ref());
        let places = containers.flat_map(|new| new.container.places(|_| true));
        self.reclaimer.discard_bytes(places);
    }

    /// Tries once more on a full disk, if reclaiming may have helped.
    fn with_space<T>(&self, call: impl Fn() -> Result<T>) -> Result<T> {
        match call() {
            Err(e) if e.errno() == Errno::NOSPC && self.reclaimer.reclaim_for_write_now() => call(),
            done => done,
        }
    }

    fn reserve_in_segment(&self, log: LogId, len: u64) -> Result<(Arc<Segment>, u32)> {
        let reserved = self.with_space(|| self.segments.reserve(Lane::Log(log), len));
        reserved.map_err(|e| self.poison.note(e))
    }

    /// Writes the tail to a segment and records its span. Nothing happens if it is empty. If it fails the tail stays.
    fn write_out(&self, log: &Log, state: &mut LogState, sync: bool) -> Result<()> {
        if state.tail.is_empty() {
            return Ok(());
        }
        let (start, end, live) = (state.tail.start(), state.tail.end(), state.tail.live());
        if !live.is_empty() {
            let taken = TakenTail::of(state);
            let bytes = taken.tail.bytes();
            let stored = self.store_locked(log, taken.state, start, bytes);
            drop(taken);
            let WrittenSpan { span, container } = stored?;
            let mut container = container;
            let parts: Vec<WrittenSpan> = live
                .into_iter()
                .map(|live| WrittenSpan {
                    span: span.part(live),
                    // Recorded once, with the first of them.
                    container: container.take(),
                })
                .collect();
            // Two parts may both hold the piece between them, so parts can count more than the whole.
            let counted = parts.iter().map(|part| part.span.stored_len()).sum();
            if let Some(raw) = span.raw() {
                self.segments
                    .recount(raw.segment, raw.stored_len(), counted);
            }
            self.record(log, state, parts, sync)?;
        }
        let buffer = self.empty_tail(state);
        self.memory.reuse(state, buffer);
        log.set_written(end);
        Ok(())
    }

    /// Records stored spans; with `sync`, after their bytes are on disk. If it fails, their space is given back.
    fn record(
        &self,
        log: &Log,
        state: &mut LogState,
        spans: Vec<WrittenSpan>,
        sync: bool,
    ) -> Result<()> {
        let new_log = (!state.recorded).then_some(log.fid);
        let raw: Vec<(u64, u64)> = (spans.iter())
            .filter(|written| written.span.raw().is_some())
            .map(|written| (written.span.live.start, written.span.live_len()))
            .collect();
        let synced = if sync {
            self.sync_segments(state)
        } else {
            Ok(())
        };
        if let Err(e) = synced {
            self.discard(&spans);
            return Err(e);
        }
        match self.spans.record(log.id, new_log, spans) {
            Ok(dead) => self.reclaimer.queue.add(dead),
            Err((e, spans)) => {
                self.discard(&spans);
                return Err(e);
            }
        }
        state.recorded = true;
        if let (Some(settler), Some((from, _))) = (&self.settler, raw.first()) {
            let bytes = raw.iter().map(|(_, bytes)| bytes).sum();
            settler.backlog.note(log.id, *from, bytes);
        }
        Ok(())
    }

    /// What this log wrote is on disk.
    fn sync_segments(&self, state: &mut LogState) -> Result<()> {
        for segment in &state.unsynced {
            self.segments.sync(segment)?;
        }
        state.unsynced.clear();
        Ok(())
    }

    /// A segment has bytes of the log that may not be on disk. It is kept open until they are, for whoever opens it later may not be told
    /// that they are lost.
    fn keep_unsynced(&self, state: &mut LogState, segment: Arc<Segment>) -> Result<()> {
        if state.unsynced.iter().any(|s| s.number == segment.number) {
            return Ok(());
        }
        if state.unsynced.len() >= MIN_CHECKED_SEGMENTS {
            // Full ones are brought to disk in the background.
            state.unsynced.retain(|s| !s.is_synced());
        }
        state.unsynced.push(segment);
        if state.unsynced.len() <= MAX_UNSYNCED_SEGMENTS {
            return Ok(());
        }
        // The disk does not keep up, and descriptors are few.
        self.segments.sync(&state.unsynced[0])?;
        state.unsynced.remove(0);
        Ok(())
    }

    /// What is appended is in a segment, and its records are in the store.
    ///
    /// # Errors
    /// As `LogStore::flush`.
    pub fn flush(&self, id: LogId) -> Result<()> {
        self.poison.check()?;
        match self.logs.find(id) {
            Some(log) => self.write_out(&log, &mut log.state.lock(), false),
            None => Ok(()),
        }
    }

    /// What is appended is on disk, and its records are in the store.
    ///
    /// # Errors
    /// As `LogStore::flush`.
    pub fn sync(&self, id: LogId) -> Result<()> {
        self.poison.check()?;
        if let Some(log) = self.logs.find(id) {
            let mut state = log.state.lock();
            self.write_out(&log, &mut state, true)?;
            return self.sync_segments(&mut state);
        }
        // A sealed log's bytes are in segments already; which ones, its spans say.
        let segments = self.spans.segments_of(id)?;
        let mut segments = segments.into_iter();
        segments.try_for_each(|n| self.segments.sync_number(n))
    }

    /// No more appends; what is not flushed is dropped.
    ///
    /// # Errors
    /// As the store.
    pub fn seal(&self, id: LogId) -> Result<()> {
        let Some(log) = self.logs.remove(id) else {
            return Ok(());
        };
        let mut state = log.state.lock();
        state.sealed = true;
        self.live.release(state.tail.live_len());
        self.drop_tail(&mut state);
        drop(state);
        log.pending.wait();
        if log.state.lock().recorded {
            self.spans.seal(id)
        } else {
            Ok(())
        }
    }
}

/// The (empty) tail goes on at `end`; what is below has its span, or none, or will be recorded.
fn skip_to(log: &Log, state: &mut LogState, end: u64) {
    let buffer = state.tail.advance(end);
    if buffer.capacity() > 0 {
        state.tail.adopt(buffer);
    }
    log.set_written(end);
}

/// Bytes from `end` to the next piece, if an append of `len` bytes is to be `aligned` and long enough for them.
fn padding_before(end: u64, len: usize, aligned: bool) -> usize {
    let padding = end.next_multiple_of(PIECE_BYTES) - end;
    match aligned && padding * MIN_BYTES_PER_PADDING <= len as u64 {
        true => padding as usize,
        false => 0,
    }
}
