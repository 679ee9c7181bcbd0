//! A file map against a model that knows of each byte what is newest, and what looking for data or a hole costs.
use super::*;
use forebay_pattern::{Folder, Segment};
use proptest::prelude::*;

/// Where the byte at `at` is (`None`: the owner must be asked), and up to where that holds at least.
fn segment(map: &FileMap, at: u64) -> (Option<ByteSource>, u64) {
    let stale = map.stale_range_from(at);
    if stale.start <= at {
        return (None, stale.end);
    }
    let (source, end) = map.patterns.segment(at);
    (Some(source), end.min(stale.start))
}

const SPACE: usize = 600;

/// What is at each byte: sequence, and where.
type Model = Vec<Option<(u64, Option<ByteSource>)>>;

#[derive(Debug, Clone)]
enum Change {
    /// Start, count, length, stride, log.
    Row(u64, u64, u64, i64, u64),
    Cut(u64, u64),
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        3 => (0..300u64, 1..12u64, 1..20u64, -40..40i64, 0..3u64)
            .prop_map(|(start, count, len, stride, log)| Change::Row(start, count, len, stride, log)),
        1 => (0..500u64, 1..100u64).prop_map(|(start, len)| Change::Cut(start, start + len)),
    ]
}

/// The map of these changes, one a commit, and what it must say.
fn build(changes: &[Change]) -> (Vec<Segment>, Vec<PatternHole>, Model) {
    let (mut segments, mut holes, mut model) = (Vec::new(), Vec::new(), vec![None; SPACE]);
    let mut addrs = [0u64; 3];
    for (seq, change) in (1..).zip(changes) {
        match *change {
            Change::Cut(start, end) => {
                holes.push(PatternHole { seq, start, end });
                model[start as usize..(end as usize).min(SPACE)].fill(Some((seq, None)));
            }
            Change::Row(start, count, len, stride, log) => {
                let mut folder = Folder::joining();
                let base = start as i64
                    + if stride < 0 {
                        -stride * count as i64
                    } else {
                        0
                    };
                for k in 0..count {
                    let at = (base + stride * k as i64) as u64;
                    // Elements of a layer do not overlap.
                    let len = len.min(stride.unsigned_abs()).max(1);
                    if stride == 0 && k > 0 {
                        break;
                    }
                    let addr = &mut addrs[log as usize];
                    folder.push_at(at, len, *addr).unwrap();
                    for i in 0..len {
                        if let Some(byte) = model.get_mut((at + i) as usize) {
                            let addr = *addr + i;
                            *byte = Some((
                                seq,
                                Some(ByteSource::Log {
                                    member: 1,
                                    log,
                                    addr,
                                }),
                            ));
                        }
                    }
                    *addr += len;
                }
                let source = forebay_pattern::LogSource { member: 1, log };
                let found = folder.finish().into_iter();
                segments.extend(found.map(|pattern| Segment::new(source, seq, pattern)));
            }
        }
    }
    (segments, holes, model)
}

proptest! {
    #[test]
    fn agrees_with_a_byte_by_byte_model(
        changes in prop::collection::vec(change(), 1..8),
        stale in prop::collection::vec((0..SPACE as u64, 1..30u64), 0..4),
    ) {
        let (segments, holes, model) = build(&changes);
        let merged = forebay_pattern::Patterns::merged(segments).map();
        let ranges: Vec<_> = stale.iter().map(|(start, len)| *start..start + len).collect();
        let map = FileMap::new(merged, &holes, ranges.clone());
        // A plan of any size says the same, part by part.
        for most in [1, 3, 7, 10_000] {
            let mut at = 0;
            while at < SPACE as u64 {
                let plan = ReadPlan::unknown(at..SPACE as u64);
                let plan = map.fill(plan, most);
                prop_assert!(plan.until > at && plan.found.len() + plan.missing.len() <= most);
                let mut said = vec![None; SPACE];
                for (range, source) in &plan.found {
                    for o in range.clone() {
                        prop_assert!(said[o as usize].is_none());
                        said[o as usize] = Some(Some(source.advance(o - range.start)));
                    }
                }
                for o in plan.missing.iter().flat_map(|m| m.clone()) {
                    prop_assert!(said[o as usize].is_none());
                    said[o as usize] = Some(None);
                }
                for o in 0..SPACE as u64 {
                    let want = (at..plan.until).contains(&o).then(|| segment(&map, o).0);
                    prop_assert_eq!(said[o as usize], want, "byte {}", o);
                }
                at = plan.until;
            }
        }
        for at in 0..SPACE as u64 {
            let (hole, same) = map.hole_at(at);
            prop_assert!(same > at);
            for o in at..same.min(SPACE as u64) {
                let there = segment(&map, o).0;
                prop_assert_eq!(hole, there.map(|s| s == ByteSource::Hole), "{} of {} to {}", o, at, same);
            }
            let (source, until) = segment(&map, at);
            prop_assert!(until > at);
            let asked = ranges.iter().any(|r| r.contains(&at));
            prop_assert_eq!(source.is_none(), asked, "at {}", at);
            prop_assert_eq!(map.stale_range_at(at).is_some_and(|r| r.contains(&at)), asked);
            for o in at..until.min(SPACE as u64) {
                match source {
                    None => prop_assert!(ranges.iter().any(|r| r.contains(&o))),
                    Some(source) => {
                        prop_assert!(!ranges.iter().any(|r| r.contains(&o)));
                        let want = model[o as usize].and_then(|(_, s)| s).unwrap_or(ByteSource::Hole);
                        prop_assert_eq!(source.advance(o - at), want, "byte {} asked at {}", o, at);
                    }
                }
            }
        }
    }
}

#[test]
fn layers_above_stay_in_place() {
    let (segments, holes, _) = build(&[Change::Row(0, 10, 5, 10, 1)]);
    let map = FileMap::new(
        forebay_pattern::Patterns::merged(segments).map(),
        &holes,
        [],
    );
    let above = ByteSource::Log {
        member: 9,
        log: 9,
        addr: 9,
    };
    let plan = || ReadPlan {
        found: vec![(12..22, above), (40..50, ByteSource::Hole)],
        missing: vec![0..12, 22..40],
        until: 50,
    };
    let all = map.fill(plan(), 100);
    let ranges: Vec<_> = all.found.iter().map(|(range, _)| range.clone()).collect();
    assert_eq!(
        ranges,
        [0..5, 5..10, 10..12, 12..22, 22..25, 25..30, 30..35, 35..50]
    );
    let some = map.fill(plan(), 4);
    assert_eq!((some.found.len(), some.until), (4, 22));
}

#[test]
fn many_stale_ranges_are_joined_where_they_are_nearest() {
    let mut map = FileMap::default();
    for k in 0..MAX_STALE_RANGES as u64 {
        map.mark_stale(k * 100..k * 100 + 10);
    }
    assert_eq!(map.stale_ranges.len(), MAX_STALE_RANGES);
    map.mark_stale(515..520);
    assert_eq!(map.stale_ranges.len(), MAX_STALE_RANGES);
    assert_eq!(map.stale_range_at(512), Some(500..520));
    map.mark_stale(0..u64::MAX);
    assert_eq!(segment(&map, 7), (None, u64::MAX));
    assert_eq!(map.stale_ranges.len(), 1);
}

/// 64 logs that write records in turns, and what of it is cut away.
fn in_turns(count: u64, holes: &[PatternHole]) -> FileMap {
    let of = |rank: u64| {
        let mut folder = Folder::joining();
        for k in 0..count {
            let at = (k * 64 + rank) * 100;
            folder.push_at(at, 100, k * 100).unwrap();
        }
        let source = forebay_pattern::LogSource {
            member: 1,
            log: rank,
        };
        Segment::new(source, 1 + rank, folder.finish().remove(0))
    };
    let merged = forebay_pattern::Patterns::merged((0..64).map(of).collect());
    FileMap::new(merged.map(), holes, std::iter::empty())
}

#[test]
fn a_look_for_data_or_a_hole_takes_no_step_a_piece() {
    let (count, end) = (2000, 2000 * 6400);
    let cut = |seq: u64, start: u64, end: u64| PatternHole { seq, start, end };
    // Steps from the first byte to `to`, all of them alike.
    let steps = |map: &FileMap, to: u64, hole: bool| {
        let (mut at, mut steps) = (0, 0);
        while at < to {
            let (found, until) = map.patterns.hole_at(at);
            assert_eq!(found, hole, "at {at}");
            (at, steps) = (until, steps + 1);
        }
        steps
    };
    assert_eq!(steps(&in_turns(count, &[]), end, false), 1);
    let all = in_turns(count, &[cut(70, 0, end - 5)]);
    assert_eq!(steps(&all, end - 5, true), 1);
    assert_eq!(segment(&all, end - 5).1, end);
    let two = in_turns(count, &[cut(70, 0, 5000), cut(90, 5000, u64::MAX)]);
    assert!(steps(&two, end, true) <= 3);
    // What is newer than the hole is seen in it.
    let newer = in_turns(count, &[cut(63, 0, u64::MAX)]);
    assert_eq!(newer.hole_at(0), (Some(true), 6300));
    assert_eq!(newer.hole_at(6300), (Some(false), 6400));
}
