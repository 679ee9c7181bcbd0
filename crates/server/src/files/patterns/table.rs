//! The patterns of one file as its owner knows them: its records, decoded, and what they say of an offset. Pure.
//!
//! # Invariants
//! 1. Parts are in the order of their names, so in the order of their commits.
//! 2. A byte of a part counts if no part of a later commit has it, no hole of its commit or a later one is over it, and no extent of
//!    the index (which all are newer than any pattern there, and are looked at by others).
//! 3. `hidden` of a part is the number of its bytes that do not count. One that has no other bytes is not kept.
//! 4. What a record that cannot be read may have said is `Lost`, never a hole or older bytes.
use super::holes::Holes;
use super::log_ranges::LogRanges;
use super::records::{self, Id};
use crate::files::proto::Hole;
use crate::{Fid, Result};
use bytes::Bytes;
use forebay_pattern::{Found, Map, Patterns, Placed, Segment, Source, decode_all};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

/// A segment as it is stored.
#[derive(Debug, Clone)]
pub(super) struct Part {
    pub id: Id,
    pub segment: Arc<Segment>,
    /// Its log addresses.
    pub runs: Arc<[Range<u64>]>,
    /// Offsets from the lowest to behind the highest byte.
    pub bounds: (u64, u64),
    /// Of all its elements.
    pub bytes: u64,
    /// Of those that do not count any more.
    pub hidden: u64,
    /// Elements lie in the log as in the file.
    pub increasing: bool,
}

impl Part {
    /// A segment of the commit that `id` names.
    pub(super) fn new(id: Id, mut segment: Segment) -> Part {
        (segment.first, segment.last) = (id.seq, id.seq);
        Part {
            id,
            runs: segment.pattern.runs().into(),
            bounds: segment.pattern.bounds(),
            bytes: segment.pattern.bytes(),
            hidden: 0,
            increasing: segment.pattern.is_increasing(),
            segment: Arc::new(segment),
        }
    }

    /// It was decided under this sequence.
    pub(super) fn publish(&mut self, seq: u64) {
        self.id.seq = seq;
        let segment = Arc::make_mut(&mut self.segment);
        (segment.first, segment.last) = (seq, seq);
    }

    pub(super) fn overlaps(&self, range: &Range<u64>) -> bool {
        self.bounds.0 < range.end && range.start < self.bounds.1
    }

    /// The record.
    pub(super) fn value(&self) -> Bytes {
        records::segment_value(self.bounds, &self.segment.encoded())
    }

    fn memory(&self) -> usize {
        size_of::<Part>() + self.segment.memory() + self.runs.len() * size_of::<Range<u64>>()
    }
}

/// A hole as it is stored.
#[derive(Debug, Clone)]
pub(super) struct HoleRecord {
    pub id: Id,
    pub range: Range<u64>,
}

/// A record that cannot be read.
#[derive(Debug, Clone)]
pub(super) struct Lost {
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
pub(super) enum Seen {
    Data(Placed),
    Hole,
    /// A record that cannot be read may have said something here.
    Lost,
}

/// See the head of this file.
#[derive(Debug, Clone, Default)]
pub(in super::super) struct Table {
    pub(super) parts: Vec<Part>,
    pub(super) holes: Vec<HoleRecord>,
    pub(super) lost: Vec<Lost>,
    /// The record of merged patterns, if there is one.
    pub(super) kept: Option<Bytes>,
    /// A count of hidden bytes could not be read: see `recount`.
    pub(super) uncounted: bool,
    map: OnceLock<Arc<Map>>,
    flat: OnceLock<Holes>,
    merged: OnceLock<Arc<[u8]>>,
}

impl Table {
    /// A table of these.
    pub(super) fn new(parts: Vec<Part>, holes: Vec<HoleRecord>, lost: Vec<Lost>) -> Table {
        Table {
            parts,
            holes,
            lost,
            ..Table::default()
        }
    }

    /// From the records of a file, in the order of keys.
    ///
    /// # Errors
    /// When they cannot be listed. One that cannot be read is in `lost`.
    pub(super) fn load(
        fid: Fid,
        entries: impl Iterator<Item = forebay_storage::Result<(Bytes, Bytes)>>,
    ) -> Result<Table> {
        let (mut table, mut hidden, mut merged) = (Table::default(), HashMap::new(), None);
        for entry in entries {
            let (key, value) = entry?;
            if matches!(Id::of(&key), Some((records::MERGED, _))) {
                merged = Some((key, value));
                continue;
            }
            if let Err(lost) = table.read(&key, &value, &mut hidden) {
                let text = records::lost(fid, &key, &lost.text).to_string();
                table.lost.push(Lost { text, ..*lost });
            }
        }
        for part in &mut table.parts {
            part.hidden = hidden.get(&part.id).copied().unwrap_or(0).min(part.bytes);
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
            (whole && segments == self.parts.len() as u64).then(|| Arc::<[u8]>::from(frames))
        };
        match fits(&value) {
            Some(frames) => self.merged = OnceLock::from(frames),
            None => tracing::warn!(
                "the merged patterns of a file do not fit its patterns; they are merged again"
            ),
        }
    }

    /// What readers get: all parts, joined over logs and encoded.
    pub(super) fn merged(&self) -> &Arc<[u8]> {
        self.merged
            .get_or_init(|| Patterns::merged(self.segments()).encoded().into())
    }

    fn read(
        &mut self,
        key: &Bytes,
        value: &[u8],
        hidden: &mut HashMap<Id, u64>,
    ) -> Result<(), Box<Lost>> {
        let lost = |hole: bool, seq: u64, range: Range<u64>, text: String| {
            let key = key.clone();
            Box::new(Lost {
                key,
                hole,
                seq,
                range,
                text,
            })
        };
        // Nothing is known of it: all that is older than anything may be wrong.
        let all = 0..u64::MAX;
        let Some((kind, id)) = Id::of(key) else {
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
                let part = Part::new(id, segment);
                if !rest.is_empty() || part.bounds != bounds {
                    return Err(within("it does not hold what is written beside it".into()));
                }
                self.parts.push(part);
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

    /// Adds all log addresses of the parts.
    pub(in super::super) fn name(&self, ranges: &mut LogRanges) {
        for part in &self.parts {
            let runs = part.runs.iter().cloned();
            runs.for_each(|run| ranges.add(part.segment.source, run));
        }
    }

    /// A record that cannot be read, and why, if there is one.
    pub(in super::super) fn lost(&self) -> Option<&str> {
        self.lost.first().map(|lost| lost.text.as_str())
    }

    /// How many parts there are.
    pub(in super::super) fn parts(&self) -> usize {
        self.parts.len()
    }

    /// Where its extents are.
    pub(super) fn map(&self) -> &Arc<Map> {
        self.map.get_or_init(|| Arc::new(map_of(self.parts.iter())))
    }

    /// The map if it was made, else one of these of its parts alone.
    pub(super) fn map_over(&self, places: impl ExactSizeIterator<Item = usize>) -> Arc<Map> {
        match 2 * places.len() >= self.parts.len() || self.map.get().is_some() {
            true => self.map().clone(),
            false => Arc::new(map_of(places.map(|at| &self.parts[at]))),
        }
    }

    /// What the table before a change has made of its parts, if these are the same.
    pub(super) fn keep_made(&mut self, before: &Table) {
        let same = |(a, b): (&Part, &Part)| a.id == b.id;
        let mut pairs = self.parts.iter().zip(&before.parts);
        if self.parts.len() == before.parts.len() && pairs.all(same) {
            self.map = before.map.clone();
            self.merged = before.merged.clone();
        }
    }

    pub(super) fn flat(&self) -> &Holes {
        self.flat.get_or_init(|| {
            let mut flat = Holes::default();
            for hole in &self.holes {
                flat.lay(hole.range.clone(), hole.id.seq);
            }
            flat
        })
    }

    /// As readers get them.
    pub(super) fn hole_list(&self) -> Vec<Hole> {
        let hole = |hole: &HoleRecord| Hole {
            seq: hole.id.seq,
            start: hole.range.start,
            end: hole.range.end,
        };
        self.holes.iter().map(hole).collect()
    }

    /// What is at `at`, and an offset behind it up to where that holds.
    pub(super) fn look(&self, at: u64) -> (Seen, u64) {
        let (seen, mut until) = look(self.map(), self, at);
        if self.lost.is_empty() {
            return (seen, until);
        }
        let (cut, cut_end) = self.flat().at(at);
        until = until.min(cut_end);
        let newest = match seen {
            Seen::Data(piece) => piece.sequence,
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
                    (true, Seen::Data(piece)) => l.seq >= piece.sequence,
                    (true, _) => false,
                };
            }
        }
        (if lost { Seen::Lost } else { seen }, until)
    }

    /// The part that has this log address under this commit.
    pub(super) fn part_of(&self, source: Source, seq: u64, addr: u64) -> Option<usize> {
        let first = self.parts.partition_point(|p| p.id.seq < seq);
        let of_commit = self.parts[first..].iter().take_while(|p| p.id.seq == seq);
        let has = |p: &Part| {
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
        let parts: usize = self.parts.iter().map(Part::memory).sum();
        let lost: usize = self.lost.iter().map(|l| l.text.len() + 100).sum();
        parts
            + lost
            + self.holes.len() * size_of::<HoleRecord>()
            + self.map.get().map_or(0, |map| map.memory())
            + self.flat.get().map_or(0, Holes::memory)
            + self.merged.get().map_or(0, |m| m.len())
            + size_of::<Table>()
    }
}

fn map_of<'a>(parts: impl Iterator<Item = &'a Part>) -> Map {
    let segments = parts.map(|p| Segment::clone(&p.segment));
    Map::new(Vec::new(), segments.collect())
}

/// What a map of parts says of `at`, and up to where.
fn look(map: &Map, table: &Table, at: u64) -> (Seen, u64) {
    let (cut, until) = table.flat().at(at);
    let newest = table.parts.last().map_or(0, |p| p.id.seq);
    if cut.is_some_and(|seq| newest <= seq) {
        return (Seen::Hole, until);
    }
    match map.lookup(at) {
        Found::End => (Seen::Hole, u64::MAX),
        Found::Hole(end) => (Seen::Hole, end.max(at + 1)),
        Found::Data(piece) => {
            let until = until.min(piece.end());
            if cut.is_some_and(|seq| piece.sequence <= seq) {
                return (Seen::Hole, until);
            }
            let len = until - at;
            (Seen::Data(Placed { len, ..piece }), until)
        }
    }
}

/// Calls `each` with the pieces of `range` that count, in order. The map has all parts of the table that have bytes there.
pub(super) fn visible(map: &Map, table: &Table, range: Range<u64>, each: &mut impl FnMut(Placed)) {
    let mut at = range.start;
    while at < range.end {
        let (seen, until) = look(map, table, at);
        if let Seen::Data(piece) = seen {
            let len = piece.len.min(range.end - at);
            each(Placed { len, ..piece });
        }
        at = until;
    }
}
