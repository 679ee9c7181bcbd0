//! Appending, and writing tails to segments.
//!
//! Order of a write-out: the bytes go to the segment, then the span records to the store in one batch (with the log's
//! own record if it is the first), then readers are told. So a record never names bytes that were not written; after a
//! power loss at durability `process` it may name bytes that the disk lost, which the checksums show.
use super::{
    Inner, LogId,
    free::Place,
    log::{Log, LogState},
    segment::Segment,
    spans::{Span, overlapping},
};
use crate::{Result, keys};
use forebay_storage::Batch;
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Appends of this size go to the segment without a copy.
const DIRECT: usize = 256 << 10;
/// Largest span, bytes.
const SPAN: usize = 1 << 20;
/// Sealed logs that wait for another batch before they get their own.
const SEALS_WAITING: usize = 256;

impl Inner {
    /// A tail is written out at this size.
    fn tail_limit(&self) -> usize {
        ((self.buffers.limit() / 8) as usize).clamp(64 << 10, SPAN)
    }

    pub(super) fn append(&self, id: LogId, bytes: &[u8]) -> Result<u64> {
        self.health.check()?;
        let log = self.logs.get(id)?;
        let len = bytes.len() as u64;
        if !self.live.try_take(len) {
            return Err(Errno::NOSPC.into());
        }
        if !self.accept(len) {
            self.live.give(len);
            return Err(Errno::NOSPC.into());
        }
        let mut state = log.state.lock();
        let appended = match state.sealed {
            true => Err(Errno::BADF.into()),
            false => self.append_locked(&log, &mut state, bytes),
        };
        appended.inspect_err(|_| {
            self.options.room.settle(len);
            self.live.give(len);
        })
    }

    /// Whether the disk has room for `len` more bytes of data.
    fn accept(&self, len: u64) -> bool {
        let take = || self.options.room.try_take(len, || self.segments.disk());
        take() || self.clean_for_space() && take()
    }

    fn append_locked(&self, log: &Arc<Log>, state: &mut LogState, bytes: &[u8]) -> Result<u64> {
        let limit = self.tail_limit();
        if !state.tail.is_empty() && state.tail.bytes().len() + bytes.len() > limit {
            state.busy = true;
            self.write_out(log, state, false)?;
        }
        let addr = state.tail.end();
        if bytes.len() >= DIRECT.min(limit) || !self.make_room(log, state, bytes.len(), limit)? {
            self.write_out(log, state, false)?;
            self.write_direct(log, state, bytes)?;
            self.options.room.settle(bytes.len() as u64);
            return Ok(addr);
        }
        state.tail.push(bytes);
        self.logs.queue(log, state);
        Ok(addr)
    }

    /// Memory for `more` bytes in this tail, inside the budget: other logs' tails are written out, oldest first, then this one's.
    /// `false`: there is none.
    fn make_room(
        &self,
        log: &Arc<Log>,
        state: &mut LogState,
        more: usize,
        limit: usize,
    ) -> Result<bool> {
        if state.busy
            && state.tail.capacity() == 0
            && let Some(buffer) = self.logs.take_spare(limit)
        {
            state.tail.adopt(buffer);
        }
        let grow = |state: &LogState| {
            let want = if state.busy {
                limit
            } else {
                state.tail.capacity_for(more, limit)
            };
            (want, (want - want.min(state.tail.capacity())) as u64)
        };
        let (want, add) = grow(state);
        if self.buffers.try_take(add) {
            state.tail.reserve(want);
            return Ok(true);
        }
        self.buffers.give(self.logs.drop_spares());
        let mut ticket = 0;
        while self.buffers.used() + add > self.buffers.limit() {
            let Some((next, other)) = self.logs.queued_after(ticket) else {
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
            self.drop_buffer(&mut theirs);
        }
        state.busy = false;
        if self.buffers.used() + add > self.buffers.limit() {
            self.write_out(log, state, false)?;
        }
        let (want, add) = grow(state);
        let fits = self.buffers.try_take(add);
        if fits {
            state.tail.reserve(want);
        }
        Ok(fits)
    }

    /// The tail's buffer goes back, and what is in it is forgotten.
    fn drop_buffer(&self, state: &mut LogState) {
        self.logs.unqueue(state);
        let buffer = self.empty_tail(state);
        self.buffers.give(buffer.capacity() as u64);
    }

    /// What is in the tail is in a segment now, or will never be. The emptied buffer.
    fn empty_tail(&self, state: &mut LogState) -> Vec<u8> {
        self.options.room.settle(state.tail.bytes().len() as u64);
        let end = state.tail.end();
        state.tail.advance(end)
    }

    /// Writes `bytes` behind the (empty) tail's end without buffering them.
    fn write_direct(&self, log: &Arc<Log>, state: &mut LogState, bytes: &[u8]) -> Result<()> {
        let start = state.tail.end();
        let mut spans = Vec::with_capacity(bytes.len().div_ceil(SPAN));
        let mut at = start;
        for chunk in bytes.chunks(SPAN) {
            match self.store_bytes(log, state, at, chunk) {
                Ok(span) => spans.push(span),
                Err(e) => {
                    self.unstore(&spans);
                    return Err(e);
                }
            }
            at += chunk.len() as u64;
        }
        self.record(log, state, spans, false)?;
        let buffer = state.tail.advance(at);
        if buffer.capacity() > 0 {
            state.tail.adopt(buffer);
        }
        log.set_written(at);
        Ok(())
    }

    /// Puts bytes into a segment; the span is not recorded yet. Its stored bytes count as live in the segment.
    fn store_bytes(
        &self,
        log: &Log,
        state: &mut LogState,
        addr: u64,
        bytes: &[u8],
    ) -> Result<Span> {
        let (segment, offset) = self.room(log.id, bytes.len() as u64)?;
        let mut written = self.segments.write(&segment, offset, bytes);
        if matches!(&written, Err(e) if e.errno() == Errno::NOSPC) && self.clean_for_space() {
            written = self.segments.write(&segment, offset, bytes);
        }
        if let Err(e) = written {
            self.options.room.revoke();
            self.segments.release(segment.number, bytes.len() as u64);
            return Err(self.health.note(e));
        }
        let span = Span::of(log.id, addr, bytes, segment.number, offset);
        if !state
            .dirty
            .iter()
            .any(|s: &Arc<Segment>| s.number == segment.number)
        {
            state.dirty.push(segment);
        }
        Ok(span)
    }

    pub(super) fn room(&self, lane: u64, len: u64) -> Result<(Arc<Segment>, u32)> {
        let mut room = self.segments.reserve(lane, len);
        if matches!(&room, Err(e) if e.errno() == Errno::NOSPC) && self.clean_for_space() {
            room = self.segments.reserve(lane, len);
        }
        if self.segments.is_ahead() {
            self.work.wake();
        }
        room.map_err(|e| self.health.note(e))
    }

    /// Spans that will not be recorded after all: their room goes back to the disk. (Without that, a writer that tries
    /// again and again on a full disk would fill what deleting frees.)
    pub(super) fn unstore(&self, spans: &[Span]) {
        if spans.is_empty() {
            return;
        }
        let mut places = Vec::with_capacity(spans.len());
        for s in spans {
            self.segments.release(s.segment, s.stored_len());
            let start = u64::from(s.offset);
            places.push(Place {
                segment: s.segment,
                start,
                end: start + s.stored_len(),
            });
        }
        self.work.add(places);
    }

    /// Writes the tail to a segment and records its span. Nothing happens if it is empty. If it fails the tail stays.
    pub(super) fn write_out(&self, log: &Arc<Log>, state: &mut LogState, sync: bool) -> Result<()> {
        if state.tail.is_empty() {
            return Ok(());
        }
        let (start, end, live) = (state.tail.start(), state.tail.end(), state.tail.live());
        if !live.is_empty() {
            let tail = std::mem::take(&mut state.tail);
            let stored = self.store_bytes(log, state, start, tail.bytes());
            state.tail = tail;
            let whole = stored?;
            let parts: Vec<Span> = live.into_iter().map(|l| whole.part(l)).collect();
            // Two parts may both hold the piece between them, so parts can count more than the whole.
            let counted = parts.iter().map(Span::stored_len).sum();
            self.segments
                .recount(whole.segment, whole.stored_len(), counted);
            self.record(log, state, parts, sync)?;
        }
        let buffer = self.empty_tail(state);
        let full = buffer.capacity() >= self.tail_limit();
        if state.busy && full {
            state.tail.adopt(buffer);
        } else {
            let unused = if full {
                self.logs.keep_spare(buffer)
            } else {
                Some(buffer)
            };
            self.buffers.give(unused.map_or(0, |b| b.capacity() as u64));
        }
        log.set_written(end);
        Ok(())
    }

    /// One batch: the spans, the log's own record if it has none, and sealed logs that wait.
    fn record(&self, log: &Log, state: &mut LogState, spans: Vec<Span>, sync: bool) -> Result<()> {
        if sync && let Err(e) = self.sync_segments(state) {
            self.unstore(&spans);
            return Err(e);
        }
        let epoch = self.cache.epoch(log.id);
        let mut batch = Batch::new();
        spans.iter().for_each(|s| s.put(&mut batch));
        if !state.recorded {
            batch.put(
                keys::LOGS,
                log.id.to_be_bytes().to_vec(),
                log.fid.0.to_be_bytes().to_vec(),
            );
        }
        if let Err(e) = self.apply_with_seals(batch) {
            self.unstore(&spans);
            return Err(e);
        }
        state.recorded = true;
        for span in spans {
            self.cache.keep(epoch, Arc::new(span));
        }
        Ok(())
    }

    /// Applies a batch, and with it the removal of sealed logs' records.
    pub(super) fn apply_with_seals(&self, mut batch: Batch) -> Result<()> {
        let sealed = self.logs.take_sealed();
        for id in &sealed {
            batch.delete(keys::LOGS, id.to_be_bytes().to_vec());
        }
        if batch.is_empty() {
            return Ok(());
        }
        self.store.apply(batch).map_err(|e| {
            self.logs.untake_sealed(sealed);
            self.health.note(e.into())
        })
    }

    /// What this log wrote is on disk.
    fn sync_segments(&self, state: &mut LogState) -> Result<()> {
        for segment in &state.dirty {
            self.segments
                .sync(segment)
                .map_err(|e| self.health.note_sync(e))?;
        }
        state.dirty.clear();
        Ok(())
    }

    pub(super) fn flush(&self, id: LogId, sync: bool) -> Result<()> {
        if sync || self.options.sync_each_flush && self.logs.find(id).is_some() {
            self.sync_bytes(id)?;
            return self.sync_records();
        }
        self.health.check()?;
        match self.logs.find(id) {
            Some(log) => self.write_out(&log, &mut log.state.lock(), false),
            None => Ok(()),
        }
    }

    pub(super) fn sync_bytes(&self, id: LogId) -> Result<()> {
        self.health.check()?;
        let Some(log) = self.logs.find(id) else {
            return self.sync_sealed(id);
        };
        let mut state = log.state.lock();
        self.write_out(&log, &mut state, true)?;
        self.sync_segments(&mut state)
    }

    pub(super) fn sync_all(&self) -> Result<()> {
        self.health.check()?;
        let synced = self.segments.sync_written();
        synced.map_err(|e| self.health.note_sync(e))?;
        self.sync_records()
    }

    pub(super) fn sync_records(&self) -> Result<()> {
        let synced = self.store.sync();
        synced.map_err(|e| self.health.note_sync(e.into()))
    }

    /// A sealed log's bytes are in segments already; which ones, its spans say.
    fn sync_sealed(&self, id: LogId) -> Result<()> {
        let segments = overlapping(&self.store, id, 0..u64::MAX).map(|span| Ok(span?.segment));
        let segments = segments.collect::<Result<BTreeSet<u32>>>()?;
        let synced = segments
            .into_iter()
            .try_for_each(|n| self.segments.sync_number(n));
        synced.map_err(|e| self.health.note_sync(e))
    }

    pub(super) fn seal(&self, id: LogId) -> Result<()> {
        let Some(log) = self.logs.remove(id) else {
            return Ok(());
        };
        let mut state = log.state.lock();
        state.sealed = true;
        self.live.give(state.tail.live_len());
        self.drop_buffer(&mut state);
        let wait = state.recorded && self.logs.note_sealed(id) >= SEALS_WAITING;
        drop(state);
        // A record that stays means only that the next start looks at the log once more.
        if wait && self.health.check().is_ok() {
            self.apply_with_seals(Batch::reclaiming())
        } else {
            Ok(())
        }
    }
}
