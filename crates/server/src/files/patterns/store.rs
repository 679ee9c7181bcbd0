//! The patterns of this member's files: their records, and the decoded tables in memory.
use super::index_overlay::read_page;
use super::table::PatternTable;
use super::table_cache::TableCache;
use crate::files::context::MemberContext;
use crate::files::slice_index::SliceIndex;
use crate::log_ranges::LogRanges;
use crate::{Fid, Result, keys};
use forebay_index::Extent;
use forebay_storage::Batch;
use std::ops::Range;
use std::sync::Arc;

/// See the head of this file, and `patterns` for its invariants.
pub(in super::super) struct PatternStore {
    pub(super) context: Arc<MemberContext>,
    pub(super) slices: Arc<SliceIndex>,
    pub tables: TableCache,
}

impl PatternStore {
    pub fn new(context: Arc<MemberContext>, slices: Arc<SliceIndex>) -> PatternStore {
        PatternStore {
            context,
            slices,
            tables: TableCache::default(),
        }
    }

    /// A page of the extents that lie over the file's patterns.
    pub(super) fn page(&self, fid: Fid, range: Range<u64>) -> Result<(Vec<Extent>, bool)> {
        read_page(&self.slices.index, fid, range)
    }

    /// The table of a file with patterns. The caller has the inode's lock.
    pub fn table(&self, fid: Fid) -> Result<Arc<PatternTable>> {
        if let Some(table) = self.tables.get(fid) {
            return Ok(table);
        }
        let mut table = PatternTable::read(&self.context.store, fid)?;
        if table.uncounted {
            table.recount(&|range| self.page(fid, range))?;
        }
        let table = Arc::new(table);
        for lost in &table.lost {
            tracing::error!(
                error = lost.text,
                "a record of a file's patterns cannot be read; what it may have held is EIO; run `forebay fsck`"
            );
        }
        self.tables.put(fid, table.clone());
        Ok(table)
    }

    /// How many segments a file with patterns has. The caller has the inode's lock.
    pub fn count_segments(&self, fid: Fid) -> Result<usize> {
        Ok(self.table(fid)?.segments.len())
    }

    /// Adds to `batch` the end of all patterns of a file that is removed. Returns whether bytes are freed. The caller has
    /// the inode's lock.
    pub fn remove(&self, batch: &mut Batch, fid: Fid) -> Result<bool> {
        let table = self.table(fid)?;
        let mut freed = LogRanges::default();
        match table.lost.iter().any(|lost| !lost.hole) {
            // Which bytes a lost record named is not known. A log is one file's alone, so all of those goes that others name.
            true => {
                let sources = table.segments.iter().map(|p| p.segment.source);
                sources.for_each(|source| freed.add(source, 0..u64::MAX));
            }
            false => table.add_log_ranges_to(&mut freed),
        }
        let freed = freed.sorted().extents();
        self.slices.outbox.add(batch, &freed);
        self.delete_records(batch, fid)?;
        Ok(!freed.is_empty())
    }

    /// Adds to `batch` the end of all records of the file's patterns.
    pub fn delete_records(&self, batch: &mut Batch, fid: Fid) -> Result<()> {
        let prefix = fid.0.to_be_bytes();
        keys::delete_prefix(&self.context.store, batch, keys::PATTERNS, &prefix)
    }
}
