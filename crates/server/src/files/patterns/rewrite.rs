//! Rewrites the patterns of a file as fewer records, once more of their bytes are hidden than visible, or there are many holes.
//! So the size of a file's patterns stays in proportion to their visible bytes.
//!
//! Only segments that have lost bytes are written again; each keeps its log and its commit. After that every byte of every
//! segment is visible, so no hole is needed. What readers see does not change, and the index is left as it is; so the file's
//! sequence stays, and the maps that readers have stay right.
use super::index_overlay::{IndexOverlay, ReadPage};
use super::record_writer::RecordWriter;
use super::records::{MERGED, PatternId, SEGMENT, merged_value};
use super::segment::StoredSegment;
use super::store::PatternStore;
use super::table::{HoleRecord, PatternTable, visible};
use crate::inodes::Inode;
use crate::{Error, ExtentLayout, Fid, Result, keys};
use forebay_pattern::{Folder, Segment};
use forebay_storage::Batch;
use std::collections::BTreeMap;
use std::sync::Arc;

/// More holes are not kept.
const MAX_HOLES: usize = 1024;
/// Elements of segments that have lost bytes; with more, these stay as they are.
const MAX_REWRITTEN_ELEMENTS: u64 = 1 << 22;

/// Whether a table should be written anew.
fn needs_rewrite(table: &PatternTable) -> bool {
    let hidden: u64 = table.segments.iter().map(|p| p.hidden).sum();
    let all: u64 = table.segments.iter().map(|p| p.bytes).sum();
    (hidden > all - hidden || table.holes.len() > MAX_HOLES) && can_be_rewritten(table)
}

/// Whether it can be.
fn can_be_rewritten(table: &PatternTable) -> bool {
    let partly = table.segments.iter().filter(|p| p.hidden > 0);
    let elements: u64 = partly.map(|p| p.segment.pattern.elements()).sum();
    // What is lost would be lost for good, and holes hide it.
    table.lost.is_empty() && elements <= MAX_REWRITTEN_ELEMENTS
}

/// The segments of a table of which every byte counts.
fn rewritten(table: &PatternTable, over: &ReadPage<'_>) -> Result<Vec<StoredSegment>> {
    let mut numbers = BTreeMap::new();
    for stored in &table.segments {
        let next = numbers.entry(stored.id.seq).or_insert(0);
        *next = stored.id.number.max(*next);
    }
    let mut segments = Vec::with_capacity(table.segments.len());
    for stored in &table.segments {
        if stored.hidden == 0 {
            segments.push(stored.clone());
            continue;
        }
        let mut id = stored.id;
        let mut bytes = 0;
        for segment in fold_visible_rest(table, stored, over)? {
            let new = StoredSegment::new(id, segment);
            bytes += new.bytes;
            segments.push(new);
            let number = numbers.entry(id.seq).or_default();
            *number += 1;
            id.number = *number;
        }
        if bytes != stored.bytes - stored.hidden {
            let PatternId { seq, number } = stored.id;
            return Err(Error::Corrupt(format!(
                "pattern {number} of commit {seq}: {bytes} bytes of it count, {} expected; run `forebay fsck`",
                stored.bytes - stored.hidden
            )));
        }
    }
    segments.sort_by_key(|p| p.id);
    Ok(segments)
}

/// What counts of a segment, folded anew.
fn fold_visible_rest(
    table: &PatternTable,
    stored: &StoredSegment,
    over: &ReadPage<'_>,
) -> Result<Vec<Segment>> {
    let source = stored.segment.source;
    let mut over = IndexOverlay::new(over, stored.bounds.0..stored.bounds.1);
    let mut folder = Folder::joining();
    let mut failed = None;
    for e in stored.segment.pattern.iter() {
        visible(table.map(), table, e.offset..e.end(), &mut |piece| {
            let own = (piece.source, piece.sequence) == (source, stored.id.seq)
                && piece.addr.wrapping_sub(piece.offset) == e.addr.wrapping_sub(e.offset);
            if own {
                over.uncovered(piece, &mut |p| {
                    if let Err(error) = folder.push_at(p.offset, p.len, p.addr) {
                        failed = Some(error);
                    }
                });
            }
        });
    }
    over.done()?;
    if let Some(error) = failed {
        return Err(Error::Corrupt(error.to_string()));
    }
    let patterns = folder.finish().into_iter();
    Ok(patterns
        .map(|pattern| Segment::new(source, stored.id.seq, pattern))
        .collect())
}

impl PatternStore {
    /// Writes the patterns of a file anew if that is due. The caller has the file's commit lock, and not the inode's.
    pub(in super::super) fn compact(&self, fid: Fid) {
        // After a commit of a file with patterns its table is in memory.
        if self.tables.get(fid).is_none() {
            return;
        }
        let compacted = || {
            let table = {
                let _inode = self.context.inodes.lock(fid);
                match self.context.inodes.get(fid)?.layout {
                    ExtentLayout::Patterned => self.table(fid)?,
                    ExtentLayout::OwnerOnly | ExtentLayout::BySlice => return Ok(()),
                }
            };
            let (segments, holes) = match needs_rewrite(&table) {
                true => (
                    rewritten(&table, &|range| self.page(fid, range))?,
                    Vec::new(),
                ),
                false => match table.join()? {
                    Some(joined) => (joined, table.holes.clone()),
                    None => return Ok(()),
                },
            };
            let _inode = self.context.inodes.lock(fid);
            // A lamination may have been quicker.
            let now = self.table(fid)?;
            match now.same(&table) {
                true => self.replace(fid, &now, segments, holes),
                false => Ok(()),
            }
        };
        if let Err::<(), Error>(error) = compacted() {
            tracing::warn!(fid = fid.0, %error, "the patterns of a file were not written anew; they take more room than they need");
        }
    }

    /// The file was laminated: writes its patterns as few as they can be, and beside them what readers get. The caller has the
    /// inode's lock.
    pub(in super::super) fn finish(&self, fid: Fid, inode: &Inode) {
        if inode.layout != ExtentLayout::Patterned {
            return;
        }
        let finish = || {
            let mut table = self.table(fid)?;
            if can_be_rewritten(&table)
                && (table.segments.iter().any(|p| p.hidden > 0) || !table.holes.is_empty())
            {
                let segments = rewritten(&table, &|range| self.page(fid, range))?;
                self.replace(fid, &table, segments, Vec::new())?;
                table = self.table(fid)?;
            }
            if table.kept.is_none() && table.lost.is_empty() && table.segments.len() > 1 {
                self.keep_merged(fid, inode.seq, &table)?;
            }
            Ok(())
        };
        if let Err(error) = finish() {
            let error: Error = error;
            tracing::warn!(fid = fid.0, %error, "the patterns of a laminated file were not merged on disk; its owner merges them in memory");
        }
    }

    fn keep_merged(&self, fid: Fid, seq: u64, table: &Arc<PatternTable>) -> Result<()> {
        let key = PatternId { seq, number: 0 }.key(fid, MERGED);
        let value = merged_value(table.segments.len() as u64, table.merged());
        let mut batch = Batch::new();
        batch.put(keys::PATTERNS, key.clone(), value);
        self.context.store.apply(batch)?;
        let mut kept = PatternTable::clone(table);
        kept.kept = Some(key);
        self.tables.put(fid, Arc::new(kept));
        Ok(())
    }

    /// Writes these segments in place of those of `old`, which hold the same bytes, and keeps all holes of it or none. The caller has
    /// the inode's lock.
    fn replace(
        &self,
        fid: Fid,
        old: &PatternTable,
        segments: Vec<StoredSegment>,
        holes: Vec<HoleRecord>,
    ) -> Result<()> {
        let mut batch = Batch::new();
        let mut writer = RecordWriter {
            batch: &mut batch,
            fid,
        };
        // One that lost bytes before keeps its name when it is written again.
        let has = |all: &[StoredSegment], s: &StoredSegment| {
            let at = all.binary_search_by_key(&s.id, |p| p.id);
            at.is_ok_and(|at| (all[at].bytes, all[at].hidden) == (s.bytes, s.hidden))
        };
        for stored in old.segments.iter().filter(|s| !has(&segments, s)) {
            writer.delete(stored);
        }
        for stored in segments.iter().filter(|s| !has(&old.segments, s)) {
            writer.put(stored.id, SEGMENT, stored.value());
        }
        if holes.is_empty() {
            writer.drop_holes(&mut old.holes.clone(), |_| true);
        }
        writer.drop_merged(old);
        self.context.step("rewrite")?;
        self.tables.forget(fid);
        self.context.store.apply(batch)?;
        let table = PatternTable::new(segments, holes, Vec::new());
        self.tables.put(fid, Arc::new(table));
        Ok(())
    }
}
