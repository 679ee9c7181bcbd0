//! Encodes stored bytes again, by another hint: containers at a new place, in place of the old one; raw spans as containers.
//!
//! Where settling is on, raw spans only get the new hint: they are encoded when they settle, after duplicates were found.
//!
//! Order on disk: new bytes are synced before a record names them, and old ones are reclaimed only after the batch is on disk. If a span
//! or container changes while it is encoded, what was encoded is given up and the change stands.
use crate::container::encoder::{ContainerEncoder, RawOrigin};
use crate::container::{ContainerId, NewContainer};
use crate::inline::encoded_span;
use crate::span::{self, Span, SpanBytes};
use crate::span_table::{SettleBatch, SettledSpan};
use crate::verified_read::{self, damage};
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
        let Some(form) = recoder.encoder.encode(chooser, &origin, &bytes, None) else {
            return self.writer.spans.set_hint(span, recoder.hint.into());
        };
        let id = self.container_ids.next()?;
        let place = self.writer.reclaimer.write_synced(form.bytes)?;
        let place = (place.segment, place.start as u32);
        let (new, container) = encoded_span(&origin, &bytes, id, form.parts, place);
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
        let Some(container) = self.reader.containers.find(id)? else {
            return Ok(());
        };
        let encoding = (&mut recoder.encoder, &mut recoder.chooser);
        let is_taken = |before, after| is_taken(&origin.hint, before, after);
        let reclaimer = &self.writer.reclaimer;
        let recoded = reclaimer.recode_container(&container, origin, encoding, is_taken)?;
        recoder.report.before += recoded.before;
        recoder.report.after += recoded.after;
        Ok(())
    }

    fn discard_container(&self, new: &NewContainer) {
        let places = new.container.places(|_| true);
        self.writer.reclaimer.discard_bytes(places.into_iter());
    }
}
