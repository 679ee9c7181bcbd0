//! How ranges of logs are stored: which of their bytes lie as they were written, which are zeros, and by which codecs the others are
//! encoded.
//!
//! A chunk that several ranges share is charged in full to each of them. Of an encoded container a range is charged its proportional share
//! of each piece that it overlaps, and of the codec's head.
use crate::container::{Container, EncodedParts};
use crate::span::{self, Run, RunSource, Span, SpanBytes};
use crate::{LogRange, LogStore};
use forebay_proto::Result;
use forebay_proto::data::StorageReport;
use std::ops::Range;

/// What the codec is called of bytes that are encoded against an earlier version of their file.
const AGAINST_BASE: &str = "field-base";

impl LogStore {
    /// How what is live of these ranges is stored. What is in tails only is not counted.
    ///
    /// # Errors
    /// As the store, and `Corrupt` for a broken record.
    pub fn storage_of(&self, ranges: &[LogRange]) -> Result<StorageReport> {
        let mut report = StorageReport::default();
        for (log, range) in ranges {
            for span in span::overlapping(&self.store, *log, range.clone()) {
                self.count_span(&span?, range, &mut report)?;
            }
        }
        Ok(report)
    }

    fn count_span(
        &self,
        span: &Span,
        range: &Range<u64>,
        report: &mut StorageReport,
    ) -> Result<()> {
        match &span.bytes {
            SpanBytes::Raw(_) => report.unsettled += overlap(&span.live, range),
            SpanBytes::Mapped(runs) => {
                let mut at = span.live.start;
                for run in runs.iter() {
                    let addresses = at..at + u64::from(run.len);
                    at = addresses.end;
                    let first = range.start.clamp(addresses.start, addresses.end);
                    let end = range.end.clamp(first, addresses.end);
                    if first < end {
                        // Both are within a run, whose length has 32 bits.
                        let wanted = Run {
                            len: (end - first) as u32,
                            source: run.source.advanced_by((first - addresses.start) as u32),
                        };
                        self.count_run(wanted, report)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn count_run(&self, run: Run, report: &mut StorageReport) -> Result<()> {
        let len = u64::from(run.len);
        let RunSource::Container { id, .. } = run.source else {
            report.zeros += len;
            return Ok(());
        };
        let container = self.reader.containers.find(id)?;
        let encoded = container.as_ref().and_then(|c| Some((c, c.encoded()?)));
        let Some((container, parts)) = encoded else {
            // Plain; or the span was settled anew meanwhile.
            report.raw += len;
            return Ok(());
        };
        let positions = run.in_container().map_or(0..0, |(_, positions)| positions);
        let codec = match container.base() {
            Some(_) => AGAINST_BASE,
            None => parts.codec.name(),
        };
        let codec = report.codecs.entry(codec.into()).or_default();
        codec.bytes += len;
        codec.stored += stored_share(container, parts, &positions);
        Ok(())
    }
}

fn overlap(a: &Range<u64>, b: &Range<u64>) -> u64 {
    let start = a.start.max(b.start);
    a.end.min(b.end).saturating_sub(start)
}

/// Of the stored bytes of an encoded container those that are for these positions.
fn stored_share(container: &Container, parts: &EncodedParts, positions: &Range<u64>) -> u64 {
    if positions.is_empty() || positions.end > container.bytes() {
        return 0;
    }
    let of_part = |part: usize| {
        let raw = EncodedParts::raw_positions(part, container.bytes());
        // No part is longer than a container, so the product has room.
        parts.len(part) * overlap(&raw, positions) / (raw.end - raw.start).max(1)
    };
    let pieces: u64 = EncodedParts::over(positions).map(of_part).sum();
    pieces + of_part(EncodedParts::HEAD)
}
