//! Changing a file with patterns: extents and cuts go to the index, patterns to the table, and what either displaces is given back.
//!
//! Extents of the index are newer than any pattern there. So a commit with patterns cuts the index under their elements; and a
//! cut leaves a hole record over patterns that stay, or what an extent hid would come to light.
use super::super::Shared;
use super::super::commit::total;
use super::displace::{Displaced, New, displaced, joined};
use super::log_ranges::LogRanges;
use super::over::{Over, page};
use super::records::{HIDDEN, HOLE, Id, SEGMENT, hidden_value, hole_value};
use super::table::{HoleRecord, Part, Table};
use crate::inodes::Inode;
use crate::{Fid, Layout, Result, keys};
use forebay_index::Change;
use forebay_pattern::{Map, Segment};
use forebay_storage::Batch;
use std::ops::Range;
use std::sync::Arc;

/// A commit of no more puts is short.
const FEW: usize = 16;

/// What a change did, and the table after it.
pub(in super::super) struct Patterned {
    pub added: u64,
    pub freed: u64,
    pub table: Table,
}

/// What a commit brings, and what it would do to the table that was there when it was looked at.
pub(in super::super) struct Prepared {
    /// Of a commit that has no sequence yet.
    parts: Vec<Part>,
    found: Option<(Arc<Table>, Found)>,
}

/// What a change does to a table.
struct Found {
    gone: Displaced,
    /// Cuts of what the index has under elements.
    under: Vec<Change>,
}

impl Shared {
    /// Finds what a commit displaces: all that takes long. The caller has the file's commit lock, so nothing but a lamination
    /// changes what is found here; nobody has the inode's lock, so others go on.
    pub(in super::super) fn prepare(
        &self,
        fid: Fid,
        own: &[Change],
        segments: Vec<Segment>,
    ) -> Result<Prepared> {
        let parts = segments.into_iter().zip(0..);
        let part = |(segment, number)| Part::new(Id { seq: 0, number }, segment);
        let parts: Vec<Part> = parts.map(part).collect();
        let table = if parts.is_empty() && few(own) && self.tables.get(fid).is_none() {
            // Of most files there is none, and of others this takes no time.
            None
        } else {
            let _inode = self.inodes.lock(fid);
            match self.inodes.get(fid).map(|inode| inode.layout) {
                Ok(Layout::Patterned) if !own.is_empty() || !parts.is_empty() => {
                    Some(self.table(fid)?)
                }
                Ok(Layout::Fresh) if !parts.is_empty() => Some(self.table(fid)?),
                // What is wrong is said where it is decided.
                _ => None,
            }
        };
        let found = match table {
            None => None,
            Some(table) => {
                let found = self.find(fid, &table, own, &parts)?;
                Some((table, found))
            }
        };
        Ok(Prepared { parts, found })
    }

    /// What changes and parts do to a table.
    fn find(&self, fid: Fid, old: &Table, own: &[Change], parts: &[Part]) -> Result<Found> {
        self.step("find")?;
        let mut kept = LogRanges::default();
        for change in own {
            if let Change::Put(e) = change {
                kept.add(super::source(e), e.addr..e.addr.saturating_add(e.len));
            }
        }
        for part in parts {
            let runs = part.runs.iter().cloned();
            runs.for_each(|run| kept.add(part.segment.source, run));
        }
        let kept = kept.sorted();
        let changed = own.iter().map(|change| match change {
            Change::Put(e) => e.offset..e.end(),
            Change::Cut { start, end } => *start..*end,
        });
        let ranges = joined(changed.collect());
        let new = New {
            ranges: &ranges,
            parts,
            kept: &kept,
        };
        let gone = displaced(old, &new, &|range| page(&self.index, fid, range))?;
        let under = self.cut_under(fid, parts)?;
        Ok(Found { gone, under })
    }

    /// Adds to `batch` changes and what was prepared of the commit, under sequence `seq`, and the freed bytes. The caller has the
    /// commit lock and the inode's; `inode` is as it is stored.
    pub(in super::super) fn change_patterned(
        &self,
        batch: &mut Batch,
        fid: Fid,
        inode: &Inode,
        own: &mut Vec<Change>,
        prepared: Prepared,
        seq: u64,
    ) -> Result<Patterned> {
        let old = self.table(fid)?;
        let mut parts = prepared.parts;
        let Found { gone, under } = match prepared.found {
            Some((table, found)) if table.same(&old) => found,
            _ => self.find(fid, &old, own, &parts)?,
        };
        let (mut added, mut cuts) = (0, Vec::new());
        for change in own.iter_mut() {
            match change {
                Change::Put(e) => {
                    e.seq = seq;
                    added += e.len;
                }
                Change::Cut { start, end } => cuts.push(*start..*end),
            }
        }
        let mut named = LogRanges::default();
        for part in &mut parts {
            part.publish(seq);
            added += part.bytes;
            let runs = part.runs.iter().cloned();
            runs.for_each(|run| named.add(part.segment.source, run));
        }
        own.extend(under);
        let index_freed = self.index.change(batch, fid.0, own)?;
        let freed = total(&index_freed).saturating_add(gone.bytes());
        // No log byte is given back that the change names, wherever it stood before.
        let mut of_index = LogRanges::default();
        for e in &index_freed {
            of_index.add(super::source(e), e.addr..e.addr.saturating_add(e.len));
        }
        let of_index = of_index.sorted().without(&named.sorted());
        self.outbox.add(batch, &of_index.extents());
        self.outbox.add(batch, &gone.freed.extents());
        let table = Writer { batch, fid }.write(&old, parts, &gone, &cuts, inode.seq);
        Ok(Patterned {
            added,
            freed,
            table,
        })
    }

    /// The cuts of what the index has under elements of these parts.
    fn cut_under(&self, fid: Fid, parts: &[Part]) -> Result<Vec<Change>> {
        let bounds = parts.iter().map(|p| p.bounds.0..p.bounds.1);
        let (mut map, mut cuts) = (None, Vec::new());
        for range in joined(bounds.collect()) {
            let read = |range| page(&self.index, fid, range);
            let (mut over, mut at) = (Over::new(&read, range.clone()), range.start);
            while at < range.end {
                let (extents, until) = over.at(at)?;
                for extent in extents {
                    let map = map.get_or_insert_with(|| {
                        let segments = parts.iter().map(|p| Segment::clone(&p.segment));
                        Map::new(Vec::new(), segments.collect())
                    });
                    let mut under = Vec::new();
                    map.resolve(extent.offset..extent.end(), &mut under);
                    cuts.extend(under.iter().map(|p| Change::Cut {
                        start: p.offset,
                        end: p.end(),
                    }));
                }
                at = until;
            }
        }
        Ok(cuts)
    }
}

/// Whether these are some puts and nothing else.
fn few(own: &[Change]) -> bool {
    own.len() <= FEW && own.iter().all(|c| matches!(c, Change::Put(_)))
}

/// Writes what became of a table.
pub(super) struct Writer<'a> {
    pub batch: &'a mut Batch,
    pub fid: Fid,
}

impl Writer<'_> {
    /// The table after a change: `before` is the sequence before it.
    fn write(
        &mut self,
        old: &Table,
        new: Vec<Part>,
        gone: &Displaced,
        cuts: &[Range<u64>],
        before: u64,
    ) -> Table {
        let mut parts = Vec::with_capacity(old.parts.len() + new.len());
        for (at, part) in old.parts.iter().enumerate() {
            let Some(bytes) = gone.by_part.get(&at) else {
                parts.push(part.clone());
                continue;
            };
            let hidden = part.hidden + bytes;
            if hidden < part.bytes {
                self.put(part.id, HIDDEN, hidden_value(hidden));
                parts.push(Part {
                    hidden,
                    ..part.clone()
                });
            } else {
                self.delete(part);
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
            let id = Id {
                seq: before,
                number,
            };
            let hole = HoleRecord {
                id,
                range: range.clone(),
            };
            if needed(&hole, &parts, &lost) {
                self.put(id, HOLE, hole_value(range.start, range.end));
                holes.push(hole);
            }
        }
        if parts.len() < old.parts.len() || lost.len() < old.lost.len() {
            self.drop_holes(&mut holes, |hole| !needed(hole, &parts, &lost));
        }
        for part in &new {
            self.put(part.id, SEGMENT, part.value());
        }
        parts.extend(new);
        let mut table = Table::new(parts, holes, lost);
        table.keep_made(old);
        table
    }

    pub(super) fn put(&mut self, id: Id, kind: u8, value: bytes::Bytes) {
        self.batch
            .put(keys::PATTERNS, id.key(self.fid, kind), value);
    }

    pub(super) fn delete(&mut self, part: &Part) {
        self.batch
            .delete(keys::PATTERNS, part.id.key(self.fid, SEGMENT));
        if part.hidden > 0 {
            self.batch
                .delete(keys::PATTERNS, part.id.key(self.fid, HIDDEN));
        }
    }

    pub(super) fn drop_merged(&mut self, table: &Table) {
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
fn needed(hole: &HoleRecord, parts: &[Part], lost: &[super::table::Lost]) -> bool {
    let mut older = parts.iter().filter(|p| p.id.seq <= hole.id.seq);
    !lost.is_empty() || older.any(|p| p.overlaps(&hole.range))
}
