//! The patterns of one file as its owner knows them: its records, decoded, and what they say of an offset. Pure.
//!
//! # Invariants
//! 1. Segments are sorted by their `PatternId`, so by the sequence of their commits.
//! 2. A byte of a segment is visible unless a segment of a later commit has it, a hole of its commit or a later one covers
//!    it, or an extent of the index does. Extents of the index are newer than any pattern there; callers look at them
//!    (`index_overlay`).
//! 3. `hidden` of a segment is the number of its bytes that are not visible. A segment without visible bytes is deleted.
//! 4. What a record that cannot be read may have said is `Lost`, never a hole or older bytes.
use super::holes::Holes;
use super::index_overlay::{IndexOverlay, ReadPage};
use super::join;
use super::records::{self, PatternId};
use super::segment::StoredSegment;
use crate::log_ranges::LogRanges;
use crate::{Fid, Result, keys};
use bytes::Bytes;
use forebay_pattern::{
    LogSource, MapLookup, PatternMap, Patterns, PlacedExtent, Segment, decode_all,
};
use forebay_proto::files::PatternHole;
use forebay_storage::Store;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

/// A hole as it is stored.
#[derive(Debug, Clone)]
pub(super) struct HoleRecord {
    pub id: PatternId,
    pub range: Range<u64>,
}

/// A record that cannot be read.
#[derive(Debug, Clone)]
pub(super) struct UnreadableRecord {
    pub key: Bytes,
    /// It was a hole, else a segment.
    pub hole: bool,
    pub seq: u64,
    /// The bytes that it may have been about.
    pub range: Range<u64>,
    /// Which file, record, and what is wrong.
    pub text: String,
}

/// What is at an offset, extents of the index left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OffsetContent {
    Data(PlacedExtent),
    Hole,
    /// A record that cannot be read may have said something here.
    Lost,
}

/// See the head of this file.
#[derive(Debug, Clone, Default)]
pub(in super::super) struct PatternTable {
    pub(super) segments: Vec<StoredSegment>,
    pub(super) holes: Vec<HoleRecord>,
    pub(super) lost: Vec<UnreadableRecord>,
    /// The record of merged patterns, if there is one.
    pub(super) kept: Option<Bytes>,
    /// A count of hidden bytes could not be read: see `recount`.
    pub(super) uncounted: bool,
    map: OnceLock<Arc<PatternMap>>,
    flat: OnceLock<Holes>,
    merged: OnceLock<Arc<[u8]>>,
}

impl PatternTable {
    /// A table of these.
    pub(super) fn new(
        segments: Vec<StoredSegment>,
        holes: Vec<HoleRecord>,
        lost: Vec<UnreadableRecord>,
    ) -> PatternTable {
        PatternTable {
            segments,
            holes,
            lost,
            ..PatternTable::default()
        }
    }

    /// The table that the store has of a file.
    ///
    /// # Errors
    /// When its records cannot be listed. One that cannot be read is in `lost`.
    pub(super) fn read(store: &Store, fid: Fid) -> Result<PatternTable> {
        let (mut table, mut hidden, mut merged) = (PatternTable::default(), HashMap::new(), None);
        for entry in keys::records_of(store, keys::PATTERNS, fid) {
            let (key, value) = entry?;
            if matches!(PatternId::of(&key), Some((records::MERGED, _))) {
                merged = Some((key, value));
                continue;
            }
            if let Err(lost) = table.add_record(&key, &value, &mut hidden) {
                let text = records::lost(fid, &key, &lost.text).to_string();
                table.lost.push(UnreadableRecord { text, ..*lost });
            }
        }
        for stored in &mut table.segments {
            stored.hidden = hidden
                .get(&stored.id)
                .copied()
                .unwrap_or(0)
                .min(stored.bytes);
        }
        table.keep_merged(merged);
        Ok(table)
    }

    /// Takes the stored merged patterns, if they are what this table's would be.
    fn keep_merged(&mut self, merged: Option<(Bytes, Bytes)>) {
        let Some((key, value)) = merged else {
            return;
        };
        self.kept = Some(key);
        let fits = |value: &Bytes| {
            let (segments, frames) = records::merged_of(value).ok()?;
            let whole = decode_all(frames).1.is_empty() && self.lost.is_empty();
            (whole && segments == self.segments.len() as u64).then(|| Arc::<[u8]>::from(frames))
        };
        match fits(&value) {
            Some(frames) => self.merged = OnceLock::from(frames),
            None => tracing::warn!(
                "the merged patterns of a file do not fit its patterns; they are merged again"
            ),
        }
    }

    /// Whether both are of the same records.
    pub(super) fn same(&self, other: &PatternTable) -> bool {
        let stored = |p: &StoredSegment| (p.id, p.bytes, p.hidden);
        let hole = |h: &HoleRecord| (h.id, h.range.clone());
        self.segments
            .iter()
            .map(stored)
            .eq(other.segments.iter().map(stored))
            && self.holes.iter().map(hole).eq(other.holes.iter().map(hole))
            && self.lost.len() == other.lost.len()
    }

    /// Counts the hidden bytes of all segments by a look at each piece that counts; `index_overlay`: the extents of the index.
    pub(super) fn recount(&mut self, over: &ReadPage<'_>) -> Result<()> {
        let mut counts = vec![0; self.segments.len()];
        let mut over = IndexOverlay::new(over, 0..u64::MAX);
        visible(self.map(), self, 0..u64::MAX, &mut |piece| {
            over.uncovered(piece, &mut |p| {
                if let Some(at) = self.segment_at(p.source, p.sequence, p.addr) {
                    counts[at] += p.len;
                }
            });
        });
        over.done()?;
        for (stored, counts) in self.segments.iter_mut().zip(counts) {
            stored.hidden = stored.bytes.saturating_sub(counts);
        }
        self.uncounted = false;
        Ok(())
    }

    /// The segments of a file whose newest commit has just landed, joined; `None`: nothing should be joined.
    pub(super) fn join(&self) -> Result<Option<Vec<StoredSegment>>> {
        match self.lost.is_empty() {
            true => join::join(&self.segments),
            false => Ok(None),
        }
    }

    /// What readers get: all segments, joined over logs and encoded.
    pub(super) fn merged(&self) -> &Arc<[u8]> {
        self.merged.get_or_init(|| {
            let certain = self.lost.is_empty() && !self.uncounted;
            let joined = join::joined_by_log(&self.segments, certain);
            Patterns::merged(joined).encoded().into()
        })
    }

    fn add_record(
        &mut self,
        key: &Bytes,
        value: &[u8],
        hidden: &mut HashMap<PatternId, u64>,
    ) -> Result<(), Box<UnreadableRecord>> {
        let lost = |hole: bool, seq: u64, range: Range<u64>, text: String| {
            let key = key.clone();
            Box::new(UnreadableRecord {
                key,
                hole,
                seq,
                range,
                text,
            })
        };
        // Nothing is known of it: all that is older than anything may be wrong.
        let all = 0..u64::MAX;
        let Some((kind, id)) = PatternId::of(key) else {
            return Err(lost(false, u64::MAX, all, "it has no such length".into()));
        };
        match kind {
            records::SEGMENT => {
                let (bounds, frame) = records::segment_of(value)
                    .map_err(|text| lost(false, id.seq, all.clone(), text))?;
                let within = |text| lost(false, id.seq, bounds.0..bounds.1, text);
                let mut rest = frame;
                let segment =
                    Segment::decode(&mut rest, 0).map_err(|error| within(error.to_string()))?;
                let stored = StoredSegment::new(id, segment);
                if !rest.is_empty() || stored.bounds != bounds {
                    return Err(within("it does not hold what is written beside it".into()));
                }
                self.segments.push(stored);
            }
            records::HIDDEN => match records::hidden_of(value) {
                Ok(bytes) => {
                    hidden.insert(id, bytes);
                }
                // It only counts, and is counted again.
                Err(text) => {
                    self.uncounted = true;
                    tracing::error!(seq = id.seq, number = id.number, %text, "how many bytes of a pattern are displaced cannot be read; they are counted again")
                }
            },
            records::HOLE => {
                let (start, end) =
                    records::hole_of(value).map_err(|text| lost(true, id.seq, all, text))?;
                self.holes.push(HoleRecord {
                    id,
                    range: start..end,
                });
            }
            kind => {
                let text = format!("kind {kind} is not known; use the newer Forebay that wrote it");
                return Err(lost(false, u64::MAX, all, text));
            }
        }
        Ok(())
    }

    /// Adds all log addresses of the segments.
    pub(in super::super) fn add_log_ranges_to(&self, ranges: &mut LogRanges) {
        self.segments
            .iter()
            .for_each(|stored| stored.add_log_ranges_to(ranges));
    }

    /// A record that cannot be read, and why, if there is one.
    pub(in super::super) fn lost(&self) -> Option<&str> {
        self.lost.first().map(|lost| lost.text.as_str())
    }

    /// Where its extents are.
    pub(super) fn map(&self) -> &Arc<PatternMap> {
        self.map
            .get_or_init(|| Arc::new(map_of(self.segments.iter())))
    }

    /// The map if it was made, else one of these of its segments alone.
    pub(super) fn map_over(&self, places: impl ExactSizeIterator<Item = usize>) -> Arc<PatternMap> {
        match 2 * places.len() >= self.segments.len() || self.map.get().is_some() {
            true => self.map().clone(),
            false => Arc::new(map_of(places.map(|at| &self.segments[at]))),
        }
    }

    /// What the table before a change has made of its segments, if these are the same.
    pub(super) fn keep_made(&mut self, before: &PatternTable) {
        let same = |(a, b): (&StoredSegment, &StoredSegment)| a.id == b.id;
        let mut pairs = self.segments.iter().zip(&before.segments);
        if self.segments.len() == before.segments.len() && pairs.all(same) {
            self.map = before.map.clone();
            self.merged = before.merged.clone();
        }
    }

    pub(super) fn flat(&self) -> &Holes {
        self.flat.get_or_init(|| {
            let mut flat = Holes::default();
            for hole in &self.holes {
                flat.insert(hole.range.clone(), hole.id.seq);
            }
            flat
        })
    }

    /// As readers get them.
    pub(super) fn hole_list(&self) -> Vec<PatternHole> {
        let hole = |hole: &HoleRecord| PatternHole {
            seq: hole.id.seq,
            start: hole.range.start,
            end: hole.range.end,
        };
        self.holes.iter().map(hole).collect()
    }

    /// What is at `at`, and an offset after it up to where that holds.
    pub(super) fn content_at(&self, at: u64) -> (OffsetContent, u64) {
        let (seen, mut until) = content_of_map(self.map(), self, at);
        if self.lost.is_empty() {
            return (seen, until);
        }
        let (cut, cut_end) = self.flat().at(at);
        until = until.min(cut_end);
        let newest = match seen {
            OffsetContent::Data(piece) => piece.sequence,
            _ => cut.unwrap_or(0),
        };
        let mut lost = false;
        for l in &self.lost {
            if at < l.range.start {
                until = until.min(l.range.start);
            } else if at < l.range.end {
                until = until.min(l.range.end);
                lost |= match (l.hole, seen) {
                    (false, _) => l.seq > newest,
                    (true, OffsetContent::Data(piece)) => l.seq >= piece.sequence,
                    (true, _) => false,
                };
            }
        }
        (if lost { OffsetContent::Lost } else { seen }, until)
    }

    /// The segment that has this log address under this commit.
    pub(super) fn segment_at(&self, source: LogSource, seq: u64, addr: u64) -> Option<usize> {
        let first = self.segments.partition_point(|p| p.id.seq < seq);
        let of_commit = self.segments[first..]
            .iter()
            .take_while(|p| p.id.seq == seq);
        let has = |p: &StoredSegment| {
            let at = p.runs.partition_point(|r| r.end <= addr);
            p.segment.source == source && p.runs.get(at).is_some_and(|r| r.start <= addr)
        };
        of_commit.into_iter().position(has).map(|i| first + i)
    }

    /// How many of what is made when it is first asked for there are.
    pub(super) fn made(&self) -> u8 {
        u8::from(self.map.get().is_some())
            + u8::from(self.flat.get().is_some())
            + u8::from(self.merged.get().is_some())
    }

    /// Bytes of memory held, about.
    pub(super) fn memory(&self) -> usize {
        let segments: usize = self.segments.iter().map(StoredSegment::memory).sum();
        let lost: usize = self.lost.iter().map(|l| l.text.len() + 100).sum();
        segments
            + lost
            + self.holes.len() * size_of::<HoleRecord>()
            + self.map.get().map_or(0, |map| map.memory())
            + self.flat.get().map_or(0, Holes::memory)
            + self.merged.get().map_or(0, |m| m.len())
            + size_of::<PatternTable>()
    }
}

fn map_of<'a>(segments: impl Iterator<Item = &'a StoredSegment>) -> PatternMap {
    let segments = segments.map(|p| Segment::clone(&p.segment));
    PatternMap::new(Vec::new(), segments.collect())
}

/// What a map of segments says of `at`, and up to where.
fn content_of_map(map: &PatternMap, table: &PatternTable, at: u64) -> (OffsetContent, u64) {
    let (cut, until) = table.flat().at(at);
    let newest = table.segments.last().map_or(0, |p| p.id.seq);
    if cut.is_some_and(|seq| newest <= seq) {
        return (OffsetContent::Hole, until);
    }
    match map.lookup(at) {
        MapLookup::End => (OffsetContent::Hole, u64::MAX),
        MapLookup::Hole(end) => (OffsetContent::Hole, end.max(at + 1)),
        MapLookup::Data(piece) => {
            let until = until.min(piece.end());
            if cut.is_some_and(|seq| piece.sequence <= seq) {
                return (OffsetContent::Hole, until);
            }
            let len = until - at;
            (OffsetContent::Data(PlacedExtent { len, ..piece }), until)
        }
    }
}

/// Calls `each` with the pieces of `range` that count, in order. The map has all segments of the table that have bytes there.
pub(super) fn visible(
    map: &PatternMap,
    table: &PatternTable,
    range: Range<u64>,
    each: &mut impl FnMut(PlacedExtent),
) {
    let mut at = range.start;
    while at < range.end {
        let (seen, until) = content_of_map(map, table, at);
        if let OffsetContent::Data(piece) = seen {
            let len = piece.len.min(range.end - at);
            each(PlacedExtent { len, ..piece });
        }
        at = until;
    }
}
