//! What the check of a stopped service wants to know of patterns.
use super::log_ranges::LogRanges;
use super::over::{Over, Read, page};
use super::records;
use super::table::{Table, visible};
use crate::files::check::{Missing, PatternGaps};
use crate::{Fid, Result, keys};
use forebay_index::{Extent, ExtentIndex};
use forebay_storage::{Batch, Store};
use std::ops::Bound::Unbounded;
use std::ops::Range;

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

/// See [`recount_patterns`](crate::files::check::recount_patterns).
pub(crate) fn recount(
    store: &Store,
    index: &ExtentIndex,
    batch: &mut Batch,
    fid: Fid,
) -> Result<()> {
    let mut table = super::load(store, fid)?;
    table.recount(&|range| page(index, fid, range))?;
    for part in &table.parts {
        let key = part.id.key(fid, records::HIDDEN);
        match part.hidden {
            0 => batch.delete(keys::PATTERNS, key),
            hidden => batch.put(keys::PATTERNS, key, records::hidden_value(hidden)),
        }
    }
    Ok(())
}

/// See [`pattern_gaps`](crate::files::check::pattern_gaps).
pub(crate) fn gaps(
    store: &Store,
    index: &ExtentIndex,
    fid: Fid,
    size: u64,
    most: usize,
    missing: &Missing<'_>,
) -> Result<PatternGaps> {
    let mut unheld = Vec::new();
    let mut ranges = LogRanges::default();
    let table = super::load(store, fid)?;
    let read = |range| page(index, fid, range);
    let mut over = Over::new(&read, 0..u64::MAX);
    let (mut gaps, mut at, mut bytes) = (Vec::<Range<u64>>::new(), 0, 0);
    let mut last = 0;
    visible(table.map(), &table, 0..u64::MAX, &mut |piece| {
        last = last.max(piece.offset + piece.len);
        let end = (piece.offset + piece.len).min(size);
        if piece.offset > at && at < size && gaps.len() < most {
            gaps.push(at..piece.offset.min(size));
        }
        at = match gaps.len() < most {
            true => at.max(end),
            false => at,
        };
        over.uncovered(piece, &mut |p| {
            bytes += p.len;
            ranges.add(p.source, p.addr..p.addr + p.len);
            unheld.extend(missing(&Extent {
                offset: p.offset,
                len: p.len,
                member: p.source.member,
                log: p.source.log,
                addr: p.addr,
                seq: p.sequence,
            }));
        });
    });
    over.done()?;
    if at < size {
        gaps.push(at..size);
    }
    // What the index holds is no gap.
    let mut left = Vec::new();
    for gap in gaps {
        let mut from = gap.start;
        while from < gap.end {
            let (extents, all) = page(index, fid, from..gap.end)?;
            for extent in &extents {
                if extent.offset > from {
                    left.push(from..extent.offset);
                }
                from = from.max(extent.end());
            }
            if all {
                if from < gap.end {
                    left.push(from..gap.end);
                }
                break;
            }
        }
    }
    Ok(PatternGaps {
        gaps: left,
        bytes,
        end: last,
        extents: ranges.sorted().extents(),
        missing: unheld,
    })
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
