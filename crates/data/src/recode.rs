//! Encodes stored bytes again, by another hint: containers at a new place, in place of the old one; raw spans as containers.
//!
//! Where settling is on, raw spans only get the new hint: they are encoded when they settle, after duplicates were found.
//!
//! Order on disk: new bytes are synced before a record names them, and old ones are reclaimed only after the batch is on disk. If a span
//! or container changes while it is encoded, what was encoded is given up and the change stands.
use crate::container::encoder::{ContainerEncoder, RawOrigin};
use crate::container::{ChunkCounts, Container, ContainerId, ContainerMove, NewContainer};
use crate::inline::encoded_span;
use crate::segment::{Lane, SegmentRange};
use crate::span::{self, Span, SpanBytes};
use crate::span_table::{SettleBatch, SettledSpan};
use crate::verified_read::{self, CoalescedReadBuffer, damage};
use crate::{LogRange, LogStore};
use forebay_codec::CodecHint;
use forebay_codec::choose::{CodecChooser, CodecSpeeds, CostGoal, CostModel};
use forebay_codec::hint::HintedCodec;
use forebay_proto::Result;
use forebay_proto::data::RecodeReport;
use std::collections::HashSet;

/// What encodes during one call.
struct RangeRecoder {
    hint: CodecHint,
    encoder: ContainerEncoder,
    chooser: CodecChooser,
    /// Containers that this call has looked at.
    seen: HashSet<ContainerId>,
    report: RecodeReport,
}

/// Whether a new form is taken: it is shorter, or was asked for by name.
fn is_taken(hint: &CodecHint, before: u64, after: u64) -> bool {
    hint.codec != HintedCodec::Auto || after < before
}

impl LogStore {
    /// Encodes what is live of these ranges again, by this hint; with `auto` what becomes shorter. Spans and containers are encoded as a
    /// whole, and each container once. What is in tails only is left alone. It is on disk when this returns.
    ///
    /// # Errors
    /// As disk and store; `Corrupt` for damaged bytes, which stay as they are. What was done before stays done.
    pub fn recode(&self, ranges: &[LogRange], hint: CodecHint) -> Result<RecodeReport> {
        self.writer.poison.check()?;
        let mut recoder = RangeRecoder {
            hint,
            encoder: ContainerEncoder::new(CostModel {
                goal: CostGoal::Bytes,
                speeds: CodecSpeeds::default(),
            }),
            chooser: CodecChooser::new(hint),
            seen: HashSet::new(),
            report: RecodeReport::default(),
        };
        let mut failure = None;
        for (log, range) in ranges {
            for span in span::overlapping(&self.store, *log, range.clone()) {
                let done = span.and_then(|span| self.recode_span(&span, &mut recoder));
                match done {
                    Err(e) if e.is_damage() => failure = failure.or(Some(e)),
                    done => done?,
                }
            }
        }
        self.sync_records()?;
        failure.map_or(Ok(recoder.report), Err)
    }

    fn recode_span(&self, span: &Span, recoder: &mut RangeRecoder) -> Result<()> {
        recoder.report.bytes += span.live_len();
        match &span.bytes {
            SpanBytes::Raw(_) if self.writer.settler.is_some() => {
                recoder.report.before += span.live_len();
                recoder.report.after += span.live_len();
                self.writer.spans.set_hint(span, recoder.hint.into())
            }
            SpanBytes::Raw(_) => self.recode_raw(span, recoder),
            SpanBytes::Mapped(runs) => {
                let mut addr = span.live.start;
                for run in runs.iter() {
                    if let Some((id, positions)) = run.in_container()
                        && recoder.seen.insert(id)
                    {
                        let origin = RawOrigin {
                            log: span.log,
                            // Where position 0 would be: numbers begin there as they do in the log.
                            addr: addr.wrapping_sub(positions.start),
                            hint: recoder.hint,
                        };
                        self.recode_container(id, &origin, recoder)?;
                    }
                    addr += u64::from(run.len);
                }
                Ok(())
            }
        }
    }

    /// A raw span becomes a container, if that is shorter.
    fn recode_raw(&self, span: &Span, recoder: &mut RangeRecoder) -> Result<()> {
        let Some(raw) = span.raw() else { return Ok(()) };
        let before = span.live_len();
        recoder.report.before += before;
        recoder.report.after += before;
        let mut bytes = vec![0; before as usize];
        let segments = &self.writer.segments;
        if let Some(bad) = verified_read::read(segments, raw, span.live.start, &mut bytes)? {
            let is_damaged = self.writer.spans.is_current(span)?;
            return is_damaged
                .then(|| damage(segments, raw, "", &bad))
                .map_or(Ok(()), Err);
        }
        let origin = RawOrigin {
            log: span.log,
            addr: span.live.start,
            hint: recoder.hint,
        };
        let chooser = &mut recoder.chooser;
        let Some((encoded, parts)) = recoder.encoder.encode(chooser, &origin, &bytes) else {
            return self.writer.spans.set_hint(span, recoder.hint.into());
        };
        let id = self.container_ids.next()?;
        let place = self.write_synced(encoded)?;
        let place = (place.segment, place.start as u32);
        let (new, container) = encoded_span(&origin, &bytes, id, parts, place);
        let after = container.container.stored_len();
        let batch = SettleBatch {
            spans: vec![SettledSpan {
                old: span.clone(),
                new,
                adopted_by: None,
            }],
            containers: vec![container.clone()],
        };
        let settled = self.writer.spans.settle(batch);
        let outcome = settled.inspect_err(|_| self.discard_container(&container))?;
        self.writer.reclaimer.queue.add(outcome.dead);
        if outcome.undone.is_empty() {
            recoder.report.after -= before - after.min(before);
        }
        Ok(())
    }

    /// A container is stored in another form.
    fn recode_container(
        &self,
        id: ContainerId,
        origin: &RawOrigin,
        recoder: &mut RangeRecoder,
    ) -> Result<()> {
        let containers = &self.reader.containers;
        // One that is gone, or that changes meanwhile, belongs to spans that have changed.
        let Some((old, counts)) = containers.find_counted(id)? else {
            return Ok(());
        };
        let before = old.named_len(&counts);
        recoder.report.before += before;
        recoder.report.after += before;
        let mut buffer = CoalescedReadBuffer::of(&self.reader.buffers);
        let raw = match containers.read_named(&old, |i| counts.0[i] > 0, &mut buffer)? {
            Ok(raw) => raw,
            Err(bad) => {
                // Bytes of a chunk that was freed meanwhile may be punched away.
                let now = containers.find_counted(id)?;
                let is_same = now.is_some_and(|(c, n)| c == old && n == counts);
                let error = damage(&self.writer.segments, &*old, "", &bad);
                return is_same.then_some(error).map_or(Ok(()), Err);
            }
        };
        let chooser = &mut recoder.chooser;
        let encoded = recoder.encoder.encode(chooser, origin, &raw);
        let (new, place) = match encoded {
            Some((bytes, parts)) => {
                if !is_taken(&origin.hint, before, bytes.len() as u64) {
                    return Ok(());
                }
                let place = self.write_synced(bytes)?;
                let moved = old.moved(&counts, place.segment, place.start as u32);
                (moved.into_plain().into_encoded(parts), place)
            }
            None if old.encoded().is_none() => return Ok(()),
            None => {
                if !is_taken(&origin.hint, before, old.named_raw_len(&counts)) {
                    return Ok(());
                }
                let place = self.write_synced(&named_bytes(&old, &counts, &raw))?;
                let moved = old.moved(&counts, place.segment, place.start as u32);
                (moved.into_plain(), place)
            }
        };
        let after = new.named_len(&counts);
        let mut moves = vec![ContainerMove {
            old: (*old).clone(),
            new,
        }];
        let apply = |batch| self.writer.spans.apply(batch);
        let moved = containers.relocate(&mut moves, apply);
        if !moves.is_empty() {
            // All that was written, also parts that only dropped chunks have bytes in.
            let place = std::iter::once(place);
            self.writer.reclaimer.discard_bytes(place);
        } else {
            let old = old.places(|i| counts.0[i] > 0);
            self.writer.reclaimer.queue.add(old);
            recoder.report.after = recoder.report.after + after - before;
        }
        self.writer.reclaimer.queue.add(moved?);
        Ok(())
    }

    /// Writes bytes to a segment, and syncs it.
    fn write_synced(&self, bytes: &[u8]) -> Result<SegmentRange> {
        let (segments, reclaimer) = (&self.writer.segments, &self.writer.reclaimer);
        let poison = &self.writer.poison;
        let (segment, offset) = segments.reserve(Lane::Containers, bytes.len() as u64)?;
        let written = segments.write(&segment, offset, bytes);
        let synced = written.map_err(|e| poison.note(e)).and_then(|()| {
            let synced = segments.sync(&segment);
            synced.map_err(|e| poison.note_sync(e))
        });
        // The kernel reports a failed write-back once: another thread may have got the error.
        let place = SegmentRange::new(segment.number, offset, bytes.len() as u64);
        if let Err(e) = synced.and_then(|()| poison.check()) {
            reclaimer.discard_bytes(std::iter::once(place));
            return Err(e);
        }
        Ok(place)
    }

    fn discard_container(&self, new: &NewContainer) {
        let places = new.container.places(|_| true);
        self.writer.reclaimer.discard_bytes(places.into_iter());
    }
}

/// The raw bytes of named chunks, one behind the other.
fn named_bytes(container: &Container, counts: &ChunkCounts, raw: &[u8]) -> Vec<u8> {
    let mut named = Vec::with_capacity(container.named_raw_len(counts) as usize);
    for i in (0..container.count()).filter(|i| counts.0[*i] > 0) {
        let positions = container.positions(i);
        named.extend_from_slice(&raw[positions.start as usize..positions.end as usize]);
    }
    named
}
