//! Patterns of the files that this member owns: stored in place of the extents that they describe, resolved together with holes and
//! with what the index has.
//!
//! | module | what |
//! |---|---|
//! | `records` | what is on disk |
//! | `table`, `holes` | the same decoded, and what it says of an offset |
//! | `commit`, `displace`, `cut_out`, `log_ranges` | changes, and what they give back |
//! | `over` | extents of the index over patterns |
//! | `rewrite`, `join` | the same in fewer records |
//! | `resolve` | extents and patterns for readers |
//! | `tables` | decoded tables kept in memory |
//! | `check` | what `forebay fsck` looks at |
//!
//! # Invariants
//! 1. All of a file's records change under the inode's lock, in the batch of the commit. Tables in memory are read and replaced under it.
//!    What takes long is found before: nobody but a lamination changes tables without the file's commit lock, and under the inode's it is
//!    seen whether one did.
//! 2. Where the index has an extent of the file, that is newer than any pattern there.
pub(super) mod check;
mod commit;
mod cut_out;
mod displace;
mod holes;
mod join;
mod log_ranges;
mod over;
mod records;
mod resolve;
mod rewrite;
mod table;
mod tables;

pub(super) use commit::Prepared;
pub(super) use log_ranges::LogRanges;
pub(super) use tables::Tables;

use super::Shared;
use crate::{Fid, Result, keys};
use forebay_index::Extent;
use forebay_pattern::{Segment, Source};
use forebay_storage::{Batch, Store};
use over::page;
use std::ops::Bound;
use std::sync::Arc;
use table::Table;

/// How many extents a record of `keys::PATTERNS` stands for. `None`: it is no pattern, or cannot be read.
pub(crate) fn extents(key: &[u8], value: &[u8]) -> Option<u64> {
    let (kind, _) = records::Id::of(key)?;
    if kind != records::SEGMENT {
        return None;
    }
    let (_, mut frame) = records::segment_of(value).ok()?;
    let segment = Segment::decode(&mut frame, 0).ok()?;
    Some(segment.pattern.elements())
}

fn source(extent: &Extent) -> Source {
    Source {
        member: extent.member,
        log: extent.log,
    }
}

impl Shared {
    /// The table of a file with patterns. The caller has the inode's lock.
    pub(super) fn table(&self, fid: Fid) -> Result<Arc<Table>> {
        if let Some(table) = self.tables.get(fid) {
            return Ok(table);
        }
        let mut table = load(&self.store, fid)?;
        if table.uncounted {
            table.recount(&|range| page(&self.index, fid, range))?;
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

    /// Adds to `batch` the end of all patterns of a file that is removed. Returns whether bytes are given back.
    pub(super) fn remove_patterns(&self, batch: &mut Batch, fid: Fid) -> Result<bool> {
        let table = self.table(fid)?;
        let mut freed = LogRanges::default();
        match table.lost.iter().any(|lost| !lost.hole) {
            // Which bytes a lost record named is not known. A log is one file's alone, so all of those goes that others name.
            true => {
                let sources = table.parts.iter().map(|p| p.segment.source);
                sources.for_each(|source| freed.add(source, 0..u64::MAX));
            }
            false => table.name(&mut freed),
        }
        let freed = freed.sorted().extents();
        self.outbox.add(batch, &freed);
        self.delete_prefix(batch, keys::PATTERNS, &fid.0.to_be_bytes())?;
        Ok(!freed.is_empty())
    }
}

/// The table that the store has.
fn load(store: &Store, fid: Fid) -> Result<Table> {
    let from = fid.0.to_be_bytes();
    let to = keys::behind(&from);
    let to = to.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
    Table::load(fid, store.scan(keys::PATTERNS, Bound::Included(&from), to))
}
