//! Reads the patterns of a stopped service for `forebay fsck`.
use super::index_overlay::{IndexOverlay, ReadPage, read_page};
use super::records;
use super::table::{PatternTable, visible};
use crate::log_ranges::LogRanges;
use crate::{Fid, Result, keys};
use forebay_index::{Extent, ExtentIndex};
use forebay_storage::{Batch, Store};
use std::ops::Range;

/// What the patterns of one file hold.
#[derive(Debug)]
pub(crate) struct PatternUsage {
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
pub(crate) fn held(store: &Store, index: &ExtentIndex) -> Result<Vec<PatternUsage>> {
    let mut fids: Vec<Fid> = Vec::new();
    for entry in keys::all(store, keys::PATTERNS) {
        let fid = keys::fid_of(&entry?.0).unwrap_or(Fid(0));
        if fids.last() != Some(&fid) {
            fids.push(fid);
        }
    }
    let one = |fid: Fid| {
        let table = PatternTable::read(store, fid)?;
        of(fid, &table, &|range| read_page(index, fid, range))
    };
    fids.into_iter().map(one).collect()
}

/// Adds to `batch` how many bytes of each pattern of the file are displaced, after extents were laid over them.
///
/// # Errors
/// When the store or the index cannot be read.
pub(crate) fn recount_patterns(
    store: &Store,
    index: &ExtentIndex,
    batch: &mut Batch,
    fid: Fid,
) -> Result<()> {
    let mut table = PatternTable::read(store, fid)?;
    table.recount(&|range| read_page(index, fid, range))?;
    for stored in &table.segments {
        let key = stored.id.key(fid, records::HIDDEN);
        match stored.hidden {
            0 => batch.delete(keys::PATTERNS, key),
            hidden => batch.put(keys::PATTERNS, key, records::hidden_value(hidden)),
        }
    }
    Ok(())
}

/// What the patterns of a file hold, and what is not held.
pub(crate) struct PatternGaps {
    /// Segments of the file that neither its patterns nor its extents hold.
    pub(crate) gaps: Vec<Range<u64>>,
    /// Bytes that the patterns hold.
    pub(crate) bytes: u64,
    /// Log ranges of these. The offsets say nothing.
    pub(crate) extents: Vec<Extent>,
    /// Segments of the file whose log bytes are missing.
    pub(crate) missing: Vec<Range<u64>>,
    /// Where the last byte that patterns show ends.
    pub(crate) end: u64,
}

/// The segments of the file that an extent holds and whose log bytes are not there.
pub(crate) type UnreadableRangesOf<'a> = dyn Fn(&Extent) -> Vec<Range<u64>> + 'a;

/// Looks for gaps in `[0, size)`, at most `most` of them; then all after the last counts as one.
///
/// # Errors
/// When the store or the index cannot be read.
pub(crate) fn pattern_gaps(
    store: &Store,
    index: &ExtentIndex,
    fid: Fid,
    size: u64,
    most: usize,
    missing: &UnreadableRangesOf<'_>,
) -> Result<PatternGaps> {
    let mut unheld = Vec::new();
    let mut ranges = LogRanges::default();
    let table = PatternTable::read(store, fid)?;
    let read = |range| read_page(index, fid, range);
    let mut over = IndexOverlay::new(&read, 0..u64::MAX);
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
            let (extents, all) = read_page(index, fid, from..gap.end)?;
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

fn of(fid: Fid, table: &PatternTable, over: &ReadPage<'_>) -> Result<PatternUsage> {
    let mut held = PatternUsage {
        fid,
        records: (table.segments.len() + table.holes.len()) as u64,
        counted: table.segments.iter().map(|p| p.bytes - p.hidden).sum(),
        lost: table.lost.iter().map(|l| l.text.clone()).collect(),
        bytes: 0,
        end: 0,
        extents: Vec::new(),
    };
    let mut ranges = LogRanges::default();
    let mut over = IndexOverlay::new(over, 0..u64::MAX);
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
