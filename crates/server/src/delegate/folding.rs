//! Folding a layer before its commit: what many extents say in a row becomes a pattern of a few bytes.
//!
//! A layer's puts are taken log by log, in order of log address: so a writer's strides appear as it made them, whatever other
//! logs wrote between. A log's pattern is committed in place of its extents only if that is worth it, for the index and for
//! the readers, who keep a pattern's parts in memory. So small files, and commits of pieces without order, stay extents.
//!
//! Invariant: each byte that was put is put by exactly one of the patterns and the changes that are left, from the same log byte.
use forebay_index::{Change, Extent, MAX_EXTENT, SLICE};
use forebay_pattern::{Folder, Pattern, Segment, Source};

/// Bytes that a record of the index may cost. A pattern must be shorter than its records.
const RECORD_BYTES: u64 = 4;
/// Records that each part of a pattern must stand for: a reader keeps the parts, and looks through them.
const RECORDS_A_PART: u64 = 4;
/// With fewer records no pattern is worth it: its frame alone is longer.
const LEAST_RECORDS: u64 = 4;

/// What is committed of a layer.
#[derive(Debug, Default)]
pub struct Folded {
    /// Encoded segments, one behind the other; no sequence yet.
    pub patterns: Vec<u8>,
    /// What they stand for, in records of the index.
    pub records: u64,
    /// What stays as it was: by offset, disjoint.
    pub changes: Vec<Change>,
}

/// Folds changes that are disjoint.
pub fn fold(changes: Vec<Change>) -> Folded {
    let (mut puts, mut left) = (Vec::new(), Vec::new());
    for change in changes {
        match change {
            Change::Put(extent) => puts.push(extent),
            cut => left.push(cut),
        }
    }
    let mut folded = Folded::default();
    puts.sort_unstable_by_key(|e| (e.member, e.log, e.addr));
    for of_log in puts.chunk_by(|a, b| (a.member, a.log) == (b.member, b.log)) {
        fold_log(of_log, &mut folded, &mut left);
    }
    left.sort_by_key(|change| match change {
        Change::Put(extent) => extent.offset,
        Change::Cut { start, .. } => *start,
    });
    folded.changes = left;
    folded
}

/// Extents of one log, by address.
fn fold_log(extents: &[Extent], folded: &mut Folded, left: &mut Vec<Change>) {
    if extents.iter().map(records).sum::<u64>() < LEAST_RECORDS {
        left.extend(extents.iter().copied().map(Change::Put));
        return;
    }
    let source = Source {
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
    for pattern in folder.finish() {
        let elements = |pattern: &Pattern| {
            let extents = pattern.iter().map(|e| Extent {
                offset: e.offset,
                len: e.len,
                member: source.member,
                log: source.log,
                addr: e.addr,
                seq: 0,
            });
            extents.collect::<Vec<_>>()
        };
        let records = elements(&pattern).iter().map(records).sum::<u64>();
        if records < LEAST_RECORDS.max(RECORDS_A_PART * pattern.nodes() as u64) {
            left.extend(elements(&pattern).into_iter().map(Change::Put));
            continue;
        }
        let segment = Segment::new(source, 0, pattern);
        let bytes = segment.encoded();
        if (bytes.len() as u64) < RECORD_BYTES * records {
            folded.patterns.extend(bytes);
            folded.records += records;
        } else {
            left.extend(elements(&segment.pattern).into_iter().map(Change::Put));
        }
    }
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
