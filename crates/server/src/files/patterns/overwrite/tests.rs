//! Which bytes a change of a patterned file displaces, and that few steps find them.
use super::super::records::PatternId;
use super::super::table::HoleRecord;
use super::*;
use forebay_index::Extent;
use forebay_pattern::{Folder, Segment};

const MANY: u64 = 200_000;

/// A segment of a commit: records of 10 bytes, by default one every 100.
fn stored(seq: u64, log: u64, records: impl IntoIterator<Item = u64>) -> StoredSegment {
    let mut folder = Folder::joining();
    for (k, at) in records.into_iter().enumerate() {
        folder.push_at(at, 10, k as u64 * 10).unwrap();
    }
    let source = LogSource { member: 0, log };
    let pattern = folder.finish().remove(0);
    StoredSegment::new(
        PatternId { seq, number: 0 },
        Segment::new(source, seq, pattern),
    )
}

fn forwards(start: u64) -> impl Iterator<Item = u64> {
    (0..MANY).map(move |k| start + k * 100)
}

fn hole(seq: u64, range: Range<u64>) -> HoleRecord {
    HoleRecord {
        id: PatternId { seq, number: 0 },
        range,
    }
}

fn found(
    table: &PatternTable,
    ranges: &[Range<u64>],
    segments: &[StoredSegment],
    over: &[Extent],
) -> OverwrittenRanges {
    let mut kept = LogRanges::default();
    for stored in segments {
        let runs = stored.runs.iter().cloned();
        runs.for_each(|run| kept.add(stored.segment.source, run));
    }
    let new = IncomingChange {
        ranges,
        segments,
        kept: &kept.sorted(),
    };
    let of = |range: Range<u64>| Ok((over.iter().filter_map(|e| e.clip(&range)).collect(), true));
    overwritten(table, &new, &of).unwrap()
}

fn freed(found: &OverwrittenRanges) -> u64 {
    found.freed.extents().iter().map(|e| e.len).sum()
}

#[test]
fn a_part_that_was_cut_is_cut_again_by_its_ends() {
    let end = MANY * 100;
    let down: Vec<u64> = forwards(0).collect::<Vec<_>>().into_iter().rev().collect();
    for mut old in [stored(1, 1, forwards(0)), stored(1, 1, down)] {
        // Cut before: the last quarter, and a piece of it once more.
        let cut = [end / 4 * 3..u64::MAX, end / 2..end / 2 + 1000];
        old.hidden = (MANY / 4 + 10) * 10;
        let holes = cut.iter().map(|r| hole(5, r.clone())).collect();
        let beside = stored(7, 2, forwards(50));
        let table = PatternTable::new(vec![old, beside], holes, Vec::new());
        // Half of the file, of both segments.
        let range = end / 4..u64::MAX;
        let gone = found(&table, std::slice::from_ref(&range), &[], &[]);
        let (first, second) = ((MANY / 2 - 10) * 10, MANY / 4 * 3 * 10);
        assert_eq!(gone.by_segment, BTreeMap::from([(0, first), (1, second)]));
        assert_eq!(freed(&gone), first + second);
        assert!(gone.steps < 100, "{} steps", gone.steps);
        // With an extent of the index over it, too.
        let mut table = table;
        table.segments[0].hidden += 10;
        let over = Extent {
            offset: end / 2 + 2000,
            len: 10,
            member: 0,
            log: 9,
            addr: 0,
            seq: 9,
        };
        let gone = found(&table, std::slice::from_ref(&range), &[], &[over]);
        assert_eq!(gone.by_segment[&0], first - 10);
        assert!(gone.steps < 100, "{} steps", gone.steps);
    }
}

#[test]
fn records_written_again_in_place_take_few_steps() {
    let mut old = stored(1, 1, forwards(0));
    old.hidden = 10;
    let holes = vec![hole(5, 100..150)];
    let table = PatternTable::new(vec![old, stored(7, 2, forwards(50))], holes, Vec::new());
    // All of them; the first half; from the second half on.
    let again = |records: Range<u64>| stored(9, 3, records.map(|k| k * 100));
    for (records, bytes) in [
        (0..MANY, (MANY - 1) * 10),
        (0..MANY / 2, (MANY / 2 - 1) * 10),
        (MANY / 2..MANY * 2, MANY / 2 * 10),
    ] {
        let gone = found(&table, &[], &[again(records)], &[]);
        assert_eq!(gone.by_segment, BTreeMap::from([(0, bytes)]));
        assert!(gone.steps < 100, "{} steps", gone.steps);
    }
    // Rows of rows in the same places, and a cut beside them that takes some more.
    let nested = |seq: u64, log: u64| {
        let cells = (0..MANY).map(|k| k / 400 * 40_000 + k % 400 / 20 * 1500 + k % 20 * 15);
        stored(seq, log, cells)
    };
    let table = PatternTable::new(
        vec![
            nested(1, 1),
            stored(2, 2, (0..99).map(|k| (1 << 30) + k * 100)),
        ],
        Vec::new(),
        Vec::new(),
    );
    let cut = 1 << 30..(1 << 30) + 505;
    let gone = found(&table, std::slice::from_ref(&cut), &[nested(3, 3)], &[]);
    assert_eq!(gone.by_segment, BTreeMap::from([(0, MANY * 10), (1, 55)]));
    assert!(gone.steps < 100, "{} steps", gone.steps);
}

#[test]
fn what_one_new_part_covers_is_not_forgotten_where_another_must_be_looked_at() {
    let table = PatternTable::new(
        vec![stored(1, 1, (0..200).map(|k| k * 100))],
        Vec::new(),
        Vec::new(),
    );
    let row = stored(3, 3, (0..100).map(|k| k * 100));
    let beside = stored(3, 4, (0..80).map(|k| 10_005 + k * 101));
    let gone = found(&table, &[], &[row, beside.clone()], &[]);
    let shared = |at: u64| {
        let offset = |o: u64| (10_000..20_000).contains(&o) && o % 100 < 10;
        (at..at + 10).filter(|o| offset(*o)).count() as u64
    };
    let other: u64 = beside
        .segment
        .pattern
        .iter()
        .map(|e| shared(e.offset))
        .sum();
    assert!(other > 0);
    assert_eq!(gone.by_segment, BTreeMap::from([(0, 1000 + other)]));
}
