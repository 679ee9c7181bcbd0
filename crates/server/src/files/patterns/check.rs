//! What the check of a stopped service wants to know of patterns.
use super::log_ranges::LogRanges;
use super::over::{Over, Read, page};
use super::records;
use super::table::{Table, visible};
use crate::{Fid, Result, keys};
use forebay_index::{Extent, ExtentIndex};
use forebay_storage::Store;
use std::ops::Bound::Unbounded;

/// What the patterns of one file hold.
#[derive(Debug)]
pub(crate) struct Held {
    /// The file.
    pub fid: Fid,
    /// Segments and holes.
    pub records: u64,
    /// Bytes of its content that they hold, by a look at each piece.
    pub bytes: u64,
    /// The same by what is counted beside the segments.
    pub counted: u64,
    /// Behind the last byte that they hold.
    pub end: u64,
    /// Log ranges of these bytes. The offsets say nothing.
    pub extents: Vec<Extent>,
    /// Records that cannot be read.
    pub lost: Vec<String>,
}

/// The patterns of all files that a store has any of, in the order of files.
///
/// # Errors
/// When the store or the index cannot be read. A record that cannot be read is in `lost`.
pub(crate) fn held(store: &Store, index: &ExtentIndex) -> Result<Vec<Held>> {
    let mut fids: Vec<Fid> = Vec::new();
    for entry in store.scan(keys::PATTERNS, Unbounded, Unbounded) {
        let fid = records::fid_of(&entry?.0).unwrap_or(Fid(0));
        if fids.last() != Some(&fid) {
            fids.push(fid);
        }
    }
    let one = |fid: Fid| {
        let table = super::load(store, fid)?;
        of(fid, &table, &|range| page(index, fid, range))
    };
    fids.into_iter().map(one).collect()
}

fn of(fid: Fid, table: &Table, over: &Read<'_>) -> Result<Held> {
    let mut held = Held {
        fid,
        records: (table.parts.len() + table.holes.len()) as u64,
        counted: table.parts.iter().map(|p| p.bytes - p.hidden).sum(),
        lost: table.lost.iter().map(|l| l.text.clone()).collect(),
        bytes: 0,
        end: 0,
        extents: Vec::new(),
    };
    let mut ranges = LogRanges::default();
    let mut over = Over::new(over, 0..u64::MAX);
    visible(table.map(), table, 0..u64::MAX, &mut |piece| {
        over.uncovered(piece, &mut |p| {
            held.bytes += p.len;
            held.end = held.end.max(p.offset + p.len);
            ranges.add(p.source, p.addr..p.addr + p.len);
        });
    });
    over.done()?;
    held.extents = ranges.sorted().extents();
    Ok(held)
}
