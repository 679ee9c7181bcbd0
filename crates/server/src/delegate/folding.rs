//! Folding a layer before its commit: regular sequences of extents are replaced by patterns of a few bytes.
//!
//! A layer's puts are taken log by log, in order of log address: so a writer's strides appear as it made them, whatever other
//! logs wrote between. A log's pattern is committed in place of its extents only if that is worth it, for the index and for
//! the readers, who keep a pattern's parts in memory. So small files, and commits of pieces without order, stay extents.
//!
//! The owner accepts patterns only if it can verify that they do not overlap. Pieces of a layer do not; but if there are very many, and
//! no stride shows it, they stay extents.
//!
//! Invariant: each byte that was put is put by exactly one of the patterns and the changes that are left, from the same log byte.
use crate::files::MAX_COMPARED_PUTS;
use forebay_index::{Change, Extent, MAX_EXTENT, SLICE};
use forebay_pattern::{Folder, LogSource, Segment, all_disjoint};

/// Bytes that a record of the index may cost. A pattern must be shorter than its records.
const RECORD_BYTES: u64 = 4;
/// Records that each part of a pattern must stand for: a reader keeps the parts, and looks through them.
const RECORDS_A_PART: u64 = 4;
/// With fewer records no pattern is worth it: its frame alone is longer.
const MIN_RECORDS: u64 = 4;

/// What is committed of a layer.
#[derive(Debug, Default)]
pub struct FoldedLayer {
    /// Encoded segments, one after the other; no sequence yet.
    pub patterns: Vec<u8>,
    /// What they stand for, in records of the index.
    pub records: u64,
    /// What stays as it was: by offset, disjoint.
    pub changes: Vec<Change>,
}

/// Folds changes that are disjoint.
pub fn fold(changes: Vec<Change>) -> FoldedLayer {
    fold_shown(changes, MAX_COMPARED_PUTS)
}

/// The same; more than `most` elements and extents must show by their strides that they are apart.
fn fold_shown(changes: Vec<Change>, most: u64) -> FoldedLayer {
    let (mut puts, mut left) = (Vec::new(), Vec::new());
    for change in changes {
        match change {
            Change::Put(extent) => puts.push(extent),
            cut => left.push(cut),
        }
    }
    let many = puts.len() as u64 > most;
    let (mut segments, mut records) = (Vec::new(), 0);
    puts.sort_unstable_by_key(|e| (e.member, e.log, e.addr));
    for of_log in puts.chunk_by(|a, b| (a.member, a.log) == (b.member, b.log)) {
        records += fold_log(of_log, &mut segments, &mut left);
    }
    if many && !shown(&segments, &left, most) {
        left.extend(segments.drain(..).flat_map(|s| puts_of(&s)));
        records = 0;
    }
    left.sort_by_key(|change| match change {
        Change::Put(extent) => extent.offset,
        Change::Cut { start, .. } => *start,
    });
    let mut patterns = Vec::new();
    segments.iter().for_each(|s| s.encode(&mut patterns));
    FoldedLayer {
        patterns,
        records,
        changes: left,
    }
}

/// Whether the owner sees that these are apart.
fn shown(segments: &[Segment], left: &[Change], most: u64) -> bool {
    let puts = left.iter().filter_map(|change| match change {
        Change::Put(e) => Some(e.offset..e.end()),
        Change::Cut { .. } => None,
    });
    all_disjoint(segments, &puts.collect::<Vec<_>>(), most) == Some(true)
}

/// Extents of one log, by address. Returns the records that segments stand for.
fn fold_log(extents: &[Extent], segments: &mut Vec<Segment>, left: &mut Vec<Change>) -> u64 {
    if extents.iter().map(records).sum::<u64>() < MIN_RECORDS {
        left.extend(extents.iter().copied().map(Change::Put));
        return 0;
    }
    let source = LogSource {
        member: extents[0].member,
        log: extents[0].log,
    };
    let mut folder = Folder::joining();
    for extent in extents {
        if folder
            .push_at(extent.offset, extent.len, extent.addr)
            .is_err()
        {
            // Further out than patterns reach.
            left.push(Change::Put(*extent));
        }
    }
    let mut all = 0;
    for pattern in folder.finish() {
        let segment = Segment::new(source, 0, pattern);
        let records = extents_of(&segment).map(|e| records(&e)).sum::<u64>();
        let nodes = segment.pattern.nodes() as u64;
        let few = records < MIN_RECORDS.max(RECORDS_A_PART * nodes);
        if few || segment.encoded().len() as u64 >= RECORD_BYTES * records {
            left.extend(puts_of(&segment));
        } else {
            segments.push(segment);
            all += records;
        }
    }
    all
}

fn extents_of(segment: &Segment) -> impl Iterator<Item = Extent> + '_ {
    let LogSource { member, log } = segment.source;
    segment.pattern.iter().map(move |e| Extent {
        offset: e.offset,
        len: e.len,
        member,
        log,
        addr: e.addr,
        seq: 0,
    })
}

fn puts_of(segment: &Segment) -> Vec<Change> {
    extents_of(segment).map(Change::Put).collect()
}

/// Records that the index makes of an extent.
fn records(extent: &Extent) -> u64 {
    let mut records = 0;
    let (mut at, end) = (extent.offset, extent.end());
    while at < end {
        let stop = (at - at % SLICE).saturating_add(SLICE).min(end);
        records += (stop - at).div_ceil(MAX_EXTENT);
        at = stop;
    }
    records
}

#[cfg(test)]
mod tests;
