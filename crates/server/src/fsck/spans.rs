//! The spans of one member: their bytes, their order, and which log addresses are live.
use super::{CheckedStore, FsckReport};
use crate::log_ranges::LogRanges;
use crate::paths::{self, InodeNames};
use crate::rebuild::ByteCheck;
use crate::segment_files::SegmentFiles;
use crate::{Fid, Member, Result};
use forebay_data::LogId;
use forebay_data::span::{Span, all, checksums};
use forebay_index::Extent;
use forebay_pattern::LogSource;
use forebay_storage::{Io, Store};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::ops::Range;

/// Where a span lies in a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct SpanLocation {
    pub segment: u32,
    pub start: u64,
    pub end: u64,
    pub log: LogId,
    /// Address of the byte at `start`.
    pub addr: u64,
}

/// What the spans said.
pub struct CheckedSpans {
    /// The log addresses that are stored.
    pub live: LogRanges,
    pub places: Vec<SpanLocation>,
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
    pub fn belong(&mut self, fid: Fid, extent: &Extent) {
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

/// Bytes that the spans of a store stand for.
pub fn stored_bytes(store: &Store) -> Result<u64> {
    // A record that cannot be read is reported by `check`.
    Ok(all(store)
        .filter_map(|s| s.ok())
        .map(|s| s.stored_len())
        .sum())
}

/// Verifies every piece of every span; `progress` hears the bytes done, over all members.
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
    let mut files = SegmentFiles::new(io, &m.data);
    let mut last: Option<(LogId, u64)> = None;
    let mut buffer = Vec::new();
    for span in all(&m.store) {
        let span = match span {
            Ok(span) => span,
            Err(e) => {
                report.problem("data", format!("member {}: {e}", m.member));
                continue;
            }
        };
        report.spans += 1;
        if last.is_some_and(|(log, end)| log == span.log && span.live.start < end) {
            report.problem(
                "data",
                format!(
                    "member {}: spans of log {} overlap at {}",
                    m.member, span.log, span.live.start
                ),
            );
        }
        last = Some((span.log, span.live.end));
        let source = LogSource {
            member: m.member,
            log: span.log,
        };
        checked.live.add(source, span.live.clone());
        let start = u64::from(span.offset);
        let (segment, end) = (span.segment, start + span.stored_len());
        checked.places.push(SpanLocation {
            segment,
            start,
            end,
            log: span.log,
            addr: span.stored.start,
        });
        for (live, text) in verify(&mut files, &span, byte_check, &mut buffer) {
            checked.unreadable.push(UnreadablePiece {
                log: span.log,
                live,
                text,
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

/// What is wrong with the bytes of the span, and with which of its addresses.
fn verify(
    files: &mut SegmentFiles<'_>,
    span: &Span,
    byte_check: ByteCheck,
    buffer: &mut Vec<u8>,
) -> Vec<(Range<u64>, String)> {
    let path = files.path(span.segment);
    let what = path.display();
    let whole = |text: String| vec![(span.live.clone(), text)];
    buffer.clear();
    buffer.resize(span.stored_len() as usize, 0);
    if byte_check == ByteCheck::Lengths {
        let len = files.get(span.segment).and_then(|file| match file {
            Some(file) => file.len(),
            None => Ok(0),
        });
        return match len {
            Ok(len) if len >= u64::from(span.offset) + span.stored_len() => Vec::new(),
            Ok(len) => whole(format!("{what}: the file is missing or ends at byte {len}")),
            Err(e) => whole(format!("{what}: {e}")),
        };
    }
    let read = match files.get(span.segment) {
        Ok(Some(file)) => file.read_at(buffer, u64::from(span.offset)),
        Ok(None) => return whole(format!("{what}: the file is missing")),
        Err(e) => Err(e),
    };
    match read {
        Ok(n) if n == buffer.len() => {}
        Ok(n) => {
            let len = buffer.len();
            let at = u64::from(span.offset);
            let text = format!("{what}: the file ends after {n} of the {len} bytes from {at} on");
            return whole(text);
        }
        Err(e) => return whole(format!("{what}: {e}")),
    }
    let found = checksums(span.stored.start, buffer);
    let pairs = span.crcs.iter().zip(&found).enumerate();
    let damaged = pairs.filter(|(_, (expected, found))| expected != found);
    damaged
        .map(|(i, (expected, found))| {
            let piece = span.piece(i);
            let at = span.segment_offset(piece.start);
            let live = piece.start.max(span.live.start)..piece.end.min(span.live.end);
            let text = format!(
                "{what}: damaged at byte {at} (checksum {found:08x}, expected {expected:08x})"
            );
            (live, text)
        })
        .collect()
}
