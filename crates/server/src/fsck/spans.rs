//! The spans and containers of one member: their bytes, the order of spans, and which log addresses are live.
use super::stored_range::{BytesOwner, StoredRange};
use super::{CheckedStore, FsckReport};
use crate::log_ranges::LogRanges;
use crate::paths::{self, InodeNames};
use crate::{Fid, Member, Result};
use forebay_data::check::{ByteCheck, SegmentFiles, StoredBytes};
use forebay_data::pieces::ChecksummedPieces;
use forebay_data::span::all;
use forebay_data::{LogId, container};
use forebay_index::Extent;
use forebay_pattern::LogSource;
use forebay_storage::{Io, Store};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::ops::Range;

/// What the spans said.
pub struct CheckedSpans {
    /// The log addresses that are stored.
    pub live: LogRanges,
    pub places: Vec<StoredRange>,
    pub unreadable: Vec<UnreadablePiece>,
}

/// A piece of a span whose bytes are not what was written: a problem, unless nobody was told that they are there.
pub struct UnreadablePiece {
    pub log: LogId,
    pub live: Range<u64>,
    text: String,
    /// Which bytes of which files these are.
    files: Vec<(Fid, Range<u64>)>,
}

impl UnreadablePiece {
    /// For people: the place, and the files whose bytes these are.
    pub fn describe(&self, named: &InodeNames) -> String {
        let mut text = self.text.clone();
        for (i, (fid, bytes)) in self.files.iter().enumerate() {
            text.push_str(if i == 0 { "; it holds " } else { ", " });
            let path = paths::path(named, *fid);
            // Writing to a string does not fail.
            let _ = write!(text, "{path} from {} to {}", bytes.start, bytes.end);
        }
        if self.files.is_empty() {
            let (log, start, end) = (self.log, self.live.start, self.live.end);
            let _ = write!(
                text,
                "; no file is known to hold it (log {log} from {start} to {end})"
            );
        }
        text
    }
}

/// Unreadable pieces of all members, by log and address. Pieces of a log do not overlap.
#[derive(Default)]
pub struct UnreadablePieces(BTreeMap<(Member, LogId, u64), UnreadablePiece>);

impl UnreadablePieces {
    /// These of a member.
    pub fn add(&mut self, member: Member, pieces: Vec<UnreadablePiece>) {
        let keyed = pieces
            .into_iter()
            .map(|p| ((member, p.log, p.live.start), p));
        self.0.extend(keyed);
    }

    /// Where this extent of a file has its bytes.
    pub fn attribute_to_file(&mut self, fid: Fid, extent: &Extent) {
        let (member, log, end) = (extent.member, extent.log, extent.addr + extent.len);
        let before = self.0.range(..=(member, log, extent.addr)).next_back();
        let from = before.map_or((member, log, extent.addr), |(key, _)| *key);
        for (key, piece) in self.0.range_mut(from..(member, log, end)) {
            let both = piece.live.start.max(extent.addr)..piece.live.end.min(end);
            if (key.0, key.1) == (member, log) && !both.is_empty() {
                let offset = |addr: u64| extent.offset + (addr - extent.addr);
                let bytes = offset(both.start)..offset(both.end);
                match piece.files.last_mut() {
                    Some((f, last)) if *f == fid && last.end == bytes.start => last.end = bytes.end,
                    _ => piece.files.push((fid, bytes)),
                }
            }
        }
    }

    /// Those of a member.
    pub fn of(&self, member: Member) -> impl Iterator<Item = &UnreadablePiece> {
        self.0
            .range((member, 0, 0)..=(member, LogId::MAX, u64::MAX))
            .map(|(_, piece)| piece)
    }
}

/// Bytes that a check of the store's spans and containers reads.
pub fn stored_bytes(store: &Store) -> u64 {
    // A record that cannot be read is reported by `check`.
    let spans = all(store).filter_map(Result::ok);
    let chunks = container::all(store).filter_map(Result::ok).map(|c| {
        container::load_counts(store, &c).map_or(c.stored_len(), |counts| c.named_len(&counts))
    });
    spans.map(|s| s.stored_len()).sum::<u64>() + chunks.sum::<u64>()
}

/// Verifies every chunk of every container, and every piece of every span; `progress` is called with the bytes done, over all members.
pub fn check(
    io: &dyn Io,
    m: &CheckedStore,
    byte_check: ByteCheck,
    report: &mut FsckReport,
    progress: &mut dyn FnMut(u64),
) -> Result<CheckedSpans> {
    let mut checked = CheckedSpans {
        live: LogRanges::default(),
        places: Vec::new(),
        unreadable: Vec::new(),
    };
    let files = SegmentFiles::new(io, &m.data);
    let mut bytes = StoredBytes::new(&m.store, Some(files), byte_check);
    let problem = |report: &mut FsckReport, e: &dyn std::fmt::Display| {
        report.problem("data", format!("member {}: {e}", m.member));
    };
    for container in container::all_bases_first(&m.store) {
        let container = match container {
            Ok(container) => container,
            Err(e) => {
                problem(report, &e);
                continue;
            }
        };
        report.containers += 1;
        // Missing or wrong counts are reported where they are counted anew.
        let counts = container::load_counts(&m.store, &container).ok();
        let is_named = |i: usize| counts.as_ref().is_none_or(|counts| counts.0[i] > 0);
        bytes.check_container(&container, counts.as_ref());
        let wrong = bytes.wrong_fingerprints(&container, counts.as_ref())?;
        if let Some(first) = wrong.first() {
            let text = format!(
                "member {}: container {}: the fingerprints of {} chunks, the first of them chunk {first}, are not those of their bytes, so \
                 these are stored anew when they are written again; `forebay fsck --repair` removes such fingerprints",
                m.member,
                container.id,
                wrong.len(),
            );
            report.problem("fingerprints", text);
        }
        for stretch in container.stretches(is_named) {
            let (owner, range) = (
                BytesOwner::Container(container.id),
                container.segment_range(&stretch),
            );
            checked
                .places
                .push(StoredRange::new(range, owner, stretch.start));
            report.bytes += stretch.end - stretch.start;
        }
        progress(report.bytes);
    }
    let mut last: Option<(LogId, u64)> = None;
    for span in all(&m.store) {
        let span = match span {
            Ok(span) => span,
            Err(e) => {
                problem(report, &e);
                continue;
            }
        };
        report.spans += 1;
        if last.is_some_and(|(log, end)| log == span.log && span.live.start < end) {
            let (log, start) = (span.log, span.live.start);
            problem(report, &format!("spans of log {log} overlap at {start}"));
        }
        last = Some((span.log, span.live.end));
        let source = LogSource {
            member: m.member,
            log: span.log,
        };
        checked.live.add(source, span.live.clone());
        if let Some(raw) = span.raw() {
            let (owner, range) = (BytesOwner::Log(span.log), raw.segment_range(&raw.stored));
            checked
                .places
                .push(StoredRange::new(range, owner, raw.stored.start));
        }
        for bad in bytes.check_span(&span) {
            checked.unreadable.push(UnreadablePiece {
                log: span.log,
                live: bad.range,
                text: bad.text,
                files: Vec::new(),
            });
        }
        report.bytes += span.stored_len();
        progress(report.bytes);
    }
    checked.places.sort_unstable();
    checked.live = checked.live.sorted();
    Ok(checked)
}
