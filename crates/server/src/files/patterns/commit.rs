//! Changing a file with patterns: extents and cuts (truncates, holes) go to the index, patterns to the table, and what
//! either displaces is freed.
//!
//! Extents of the index are newer than any pattern there. So a commit with patterns cuts the index under their elements;
//! and a cut leaves a hole record over patterns that stay; otherwise older pattern bytes under a removed extent would
//! become visible.
use super::index_overlay::IndexOverlay;
use super::overwrite::{IncomingChange, OverwrittenRanges, overwritten};
use super::record_writer::RecordWriter;
use super::records::PatternId;
use super::segment::StoredSegment;
use super::store::PatternStore;
use super::table::PatternTable;
use crate::files::slice_index::stored_bytes;
use crate::inodes::Inode;
use crate::log_ranges::LogRanges;
use crate::{ExtentLayout, Fid, Result};
use forebay_data::ranges::merge;
use forebay_index::Change;
use forebay_pattern::{PatternMap, Segment};
use forebay_storage::Batch;
use std::sync::Arc;

/// A commit of no more puts is short.
const SHORT_COMMIT_PUTS: usize = 16;

/// What a change did, and the table after it.
pub(in super::super) struct PatternedChange {
    pub added: u64,
    pub freed: u64,
    pub table: PatternTable,
}

/// What a commit brings, and what it would do to the table that was there when it was looked at.
pub(in super::super) struct PreparedPatterns {
    /// Of a commit that has no sequence yet.
    segments: Vec<StoredSegment>,
    found: Option<(Arc<PatternTable>, TableChange)>,
}

/// What a change does to a table.
struct TableChange {
    gone: OverwrittenRanges,
    /// Cuts of what the index has under elements.
    under: Vec<Change>,
}

impl PatternStore {
    /// Finds what a commit displaces: all that takes long. The caller has the file's commit lock, so nothing but a lamination
    /// changes what is found here; nobody has the inode's lock, so others go on.
    pub(in super::super) fn prepare(
        &self,
        fid: Fid,
        own: &[Change],
        segments: Vec<Segment>,
    ) -> Result<PreparedPatterns> {
        let segments = segments.into_iter().zip(0..);
        let stored = |(segment, number)| StoredSegment::new(PatternId { seq: 0, number }, segment);
        let segments: Vec<StoredSegment> = segments.map(stored).collect();
        let table = if segments.is_empty() && is_short(own) && self.tables.get(fid).is_none() {
            // Of most files there is none, and of others this takes no time.
            None
        } else {
            let _inode = self.context.inodes.lock(fid);
            match self.context.inodes.get(fid).map(|inode| inode.layout) {
                Ok(ExtentLayout::Patterned) if !own.is_empty() || !segments.is_empty() => {
                    Some(self.table(fid)?)
                }
                Ok(ExtentLayout::OwnerOnly) if !segments.is_empty() => Some(self.table(fid)?),
                // What is wrong is said where it is decided.
                _ => None,
            }
        };
        let found = match table {
            None => None,
            Some(table) => {
                let found = self.find(fid, &table, own, &segments)?;
                Some((table, found))
            }
        };
        Ok(PreparedPatterns { segments, found })
    }

    /// What changes and segments do to a table.
    fn find(
        &self,
        fid: Fid,
        old: &PatternTable,
        own: &[Change],
        segments: &[StoredSegment],
    ) -> Result<TableChange> {
        self.context.step("find")?;
        let mut kept = LogRanges::default();
        for change in own {
            if let Change::Put(e) = change {
                kept.add_extent(e);
            }
        }
        for stored in segments {
            stored.add_log_ranges_to(&mut kept);
        }
        let kept = kept.sorted();
        let changed = own.iter().map(|change| match change {
            Change::Put(e) => e.offset..e.end(),
            Change::Cut { start, end } => *start..*end,
        });
        let ranges = merge(changed.collect());
        let new = IncomingChange {
            ranges: &ranges,
            segments,
            kept: &kept,
        };
        let gone = overwritten(old, &new, &|range| self.page(fid, range))?;
        let under = self.cut_under(fid, segments)?;
        Ok(TableChange { gone, under })
    }

    /// Adds to `batch` changes and what was prepared of the commit, under sequence `seq`, and the freed bytes. The caller has the
    /// commit lock and the inode's; `inode` is as it is stored.
    pub(in super::super) fn change(
        &self,
        batch: &mut Batch,
        fid: Fid,
        inode: &Inode,
        own: &mut Vec<Change>,
        prepared: PreparedPatterns,
        seq: u64,
    ) -> Result<PatternedChange> {
        let old = self.table(fid)?;
        let mut segments = prepared.segments;
        let TableChange { gone, under } = match prepared.found {
            Some((table, found)) if table.same(&old) => found,
            _ => self.find(fid, &old, own, &segments)?,
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
        for stored in &mut segments {
            stored.publish(seq);
            added += stored.bytes;
            stored.add_log_ranges_to(&mut named);
        }
        own.extend(under);
        let index_freed = self.slices.index.change(batch, fid.0, own)?;
        let freed = stored_bytes(&index_freed).saturating_add(gone.bytes());
        // No log byte is freed that the change names, wherever it stood before.
        let mut of_index = LogRanges::default();
        index_freed.iter().for_each(|e| of_index.add_extent(e));
        let of_index = of_index.sorted().without(&named.sorted());
        self.slices.outbox.add(batch, &of_index.extents());
        self.slices.outbox.add(batch, &gone.freed.extents());
        let table = RecordWriter { batch, fid }.write(&old, segments, &gone, &cuts, inode.seq);
        Ok(PatternedChange {
            added,
            freed,
            table,
        })
    }

    /// The cuts of what the index has under elements of these segments.
    fn cut_under(&self, fid: Fid, segments: &[StoredSegment]) -> Result<Vec<Change>> {
        let bounds = segments.iter().map(|p| p.bounds.0..p.bounds.1);
        let (mut map, mut cuts) = (None, Vec::new());
        for range in merge(bounds.collect()) {
            let read = |range| self.page(fid, range);
            let (mut over, mut at) = (IndexOverlay::new(&read, range.clone()), range.start);
            while at < range.end {
                let (extents, until) = over.at(at)?;
                for extent in extents {
                    let map = map.get_or_insert_with(|| {
                        let segments = segments.iter().map(|p| Segment::clone(&p.segment));
                        PatternMap::new(Vec::new(), segments.collect())
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
fn is_short(own: &[Change]) -> bool {
    own.len() <= SHORT_COMMIT_PUTS && own.iter().all(|c| matches!(c, Change::Put(_)))
}
