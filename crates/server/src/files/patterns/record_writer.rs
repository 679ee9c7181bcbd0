//! Writes the records that a change of a table adds, and deletes those that it replaces.
use super::overwrite::OverwrittenRanges;
use super::records::{HIDDEN, HOLE, PatternId, SEGMENT, hidden_value, hole_value};
use super::segment::StoredSegment;
use super::table::{HoleRecord, PatternTable, UnreadableRecord};
use crate::{Fid, keys};
use forebay_storage::Batch;
use std::ops::Range;

/// Writes what became of a table.
pub(super) struct RecordWriter<'a> {
    pub batch: &'a mut Batch,
    pub fid: Fid,
}

impl RecordWriter<'_> {
    /// The table after a change: `before` is the sequence before it.
    pub(super) fn write(
        &mut self,
        old: &PatternTable,
        new: Vec<StoredSegment>,
        gone: &OverwrittenRanges,
        cuts: &[Range<u64>],
        before: u64,
    ) -> PatternTable {
        let mut segments = Vec::with_capacity(old.segments.len() + new.len());
        for (at, stored) in old.segments.iter().enumerate() {
            let Some(bytes) = gone.by_segment.get(&at) else {
                segments.push(stored.clone());
                continue;
            };
            let hidden = stored.hidden + bytes;
            if hidden < stored.bytes {
                self.put(stored.id, HIDDEN, hidden_value(hidden));
                segments.push(StoredSegment {
                    hidden,
                    ..stored.clone()
                });
            } else {
                self.delete(stored);
            }
        }
        self.drop_merged(old);
        let mut holes = old.holes.clone();
        let mut lost = old.lost.clone();
        if cuts.contains(&(0..u64::MAX)) {
            // All that they may have been about is gone.
            lost.drain(..)
                .for_each(|l| self.batch.delete(keys::PATTERNS, l.key));
        }
        for (range, number) in cuts.iter().zip(0..) {
            let inside =
                |hole: &HoleRecord| range.start <= hole.range.start && hole.range.end <= range.end;
            self.drop_holes(&mut holes, inside);
            let id = PatternId {
                seq: before,
                number,
            };
            let hole = HoleRecord {
                id,
                range: range.clone(),
            };
            if needed(&hole, &segments, &lost) {
                self.put(id, HOLE, hole_value(range.start, range.end));
                holes.push(hole);
            }
        }
        if segments.len() < old.segments.len() || lost.len() < old.lost.len() {
            self.drop_holes(&mut holes, |hole| !needed(hole, &segments, &lost));
        }
        for stored in &new {
            self.put(stored.id, SEGMENT, stored.value());
        }
        segments.extend(new);
        let mut table = PatternTable::new(segments, holes, lost);
        table.keep_made(old);
        table
    }

    pub(super) fn put(&mut self, id: PatternId, kind: u8, value: bytes::Bytes) {
        self.batch
            .put(keys::PATTERNS, id.key(self.fid, kind), value);
    }

    pub(super) fn delete(&mut self, stored: &StoredSegment) {
        self.batch
            .delete(keys::PATTERNS, stored.id.key(self.fid, SEGMENT));
        if stored.hidden > 0 {
            self.batch
                .delete(keys::PATTERNS, stored.id.key(self.fid, HIDDEN));
        }
    }

    pub(super) fn drop_merged(&mut self, table: &PatternTable) {
        if let Some(key) = &table.kept {
            self.batch.delete(keys::PATTERNS, key.clone());
        }
    }

    pub(super) fn drop_holes(
        &mut self,
        holes: &mut Vec<HoleRecord>,
        drop: impl Fn(&HoleRecord) -> bool,
    ) {
        holes.retain(|hole| {
            let dropped = drop(hole);
            if dropped {
                let key = hole.id.key(self.fid, HOLE);
                self.batch.delete(keys::PATTERNS, key);
            }
            !dropped
        });
    }
}

/// Whether a hole is over anything that it takes bytes of.
fn needed(hole: &HoleRecord, segments: &[StoredSegment], lost: &[UnreadableRecord]) -> bool {
    let mut older = segments.iter().filter(|p| p.id.seq <= hole.id.seq);
    !lost.is_empty() || older.any(|p| p.overlaps(&hole.range))
}
