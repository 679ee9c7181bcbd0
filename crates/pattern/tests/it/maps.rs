//! Histories of many logs, read back against a plain model: every byte from the newest write, holes exact.

use crate::common::{Stream, stream};
use forebay_pattern::{
    Element, Folder, GlobalPattern, LogSource, MapLookup, PatternMap, PlacedExtent, Segment, merge,
};
use proptest::prelude::*;

/// For each byte: where it is.
type Model = Vec<Option<(LogSource, u64, u64)>>;

const SIZE: usize = 9000;

#[derive(Debug, Clone)]
enum Change {
    /// A commit of a log.
    Write(u8, Stream),
    /// Many logs do the same, each a bit further: the first step, then how many.
    Ranks(Stream, u16, u8),
    Truncate(u16),
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        4 => (0u8..4, stream()).prop_map(|(log, s)| Change::Write(log, s)),
        4 => (stream(), 0u16..60, 2u8..9).prop_map(|(s, step, ranks)| Change::Ranks(s, step, ranks)),
        1 => (3500u16..6000).prop_map(Change::Truncate),
    ]
}

#[derive(Default)]
struct Service {
    segments: Vec<Segment>,
    ends: std::collections::BTreeMap<LogSource, u64>,
    sequence: u64,
    model: Model,
}

impl Service {
    fn new() -> Service {
        Service {
            model: vec![None; SIZE],
            ..Service::default()
        }
    }

    fn write(&mut self, source: LogSource, stream: &Stream, shift: u64) {
        self.sequence += 1;
        let base = self.ends.entry(source).or_default();
        let mut folder = Folder::joining();
        let mut end = *base;
        for e in &stream.0 {
            let (offset, addr) = (e.offset + shift, e.addr + *base);
            folder.push_at(offset, e.len, addr).unwrap();
            for i in 0..e.len {
                self.model[(offset + i) as usize] = Some((source, addr + i, self.sequence));
            }
            end = addr + e.len;
        }
        *base = end;
        let patterns = folder.finish();
        self.segments.extend(
            patterns
                .into_iter()
                .map(|p| Segment::new(source, self.sequence, p)),
        );
    }

    fn apply(&mut self, change: &Change) {
        match change {
            Change::Write(log, stream) => self.write(
                LogSource {
                    member: 1,
                    log: u64::from(*log),
                },
                stream,
                0,
            ),
            Change::Ranks(stream, step, ranks) => {
                for rank in 0..*ranks {
                    let source = LogSource {
                        member: u16::from(rank % 3),
                        log: 100 + u64::from(rank),
                    };
                    self.write(source, stream, u64::from(rank) * u64::from(*step));
                }
            }
            Change::Truncate(size) => {
                self.sequence += 1;
                for segment in &mut self.segments {
                    segment.truncate(u64::from(*size));
                }
                self.model[*size as usize..].fill(None);
            }
        }
    }
}

fn check(map: &PatternMap, model: &Model, from: usize, to: usize) -> Result<(), TestCaseError> {
    let range = from as u64..to as u64;
    let mut pieces = Vec::new();
    map.resolve(range.clone(), &mut pieces);
    let goes_on = |w: &[PlacedExtent]| {
        let same = (w[0].source, w[0].sequence) == (w[1].source, w[1].sequence);
        same && w[0].end() == w[1].offset && w[0].addr + w[0].len == w[1].addr
    };
    prop_assert!(!pieces.windows(2).any(goes_on));
    // In portions: the same, but that a piece may be cut between two.
    let mut portions = map.pieces(range);
    let (mut joined, mut more): (Vec<PlacedExtent>, bool) = (Vec::new(), true);
    while more {
        let mut portion = Vec::new();
        more = portions.fill(1 + joined.len() % 7, &mut portion);
        prop_assert!(portion.len() <= 1 + joined.len() % 7);
        for piece in portion {
            match joined.last_mut() {
                Some(last) if goes_on(&[*last, piece]) => last.len += piece.len,
                _ => joined.push(piece),
            }
        }
        let at = portions.at();
        prop_assert!(!more || joined.last().is_none_or(|p| p.end() <= at));
    }
    prop_assert_eq!(&joined, &pieces);
    let mut found: Model = vec![None; SIZE];
    let mut at = from as u64;
    for p in &pieces {
        prop_assert!(p.offset >= at && p.len > 0 && p.end() <= to as u64);
        at = p.end();
        for i in 0..p.len {
            found[(p.offset + i) as usize] = Some((p.source, p.addr + i, p.sequence));
        }
    }
    if let Some(at) = (from..to).find(|&i| found[i] != model[i]) {
        prop_assert_eq!(found[at], model[at], "at {}", at);
    }
    Ok(())
}

/// What is passed over at once holds what is said of all of it.
fn check_skips(map: &PatternMap, segments: &[Segment], model: &Model) -> Result<(), TestCaseError> {
    for at in 0..SIZE {
        let filled = map.filled(at as u64);
        prop_assert_eq!(filled.is_some(), model[at].is_some(), "at {}", at);
        if let Some(end) = filled {
            prop_assert!(end > at as u64);
            let all = &model[at..(end as usize).min(SIZE)];
            prop_assert!(all.iter().all(Option::is_some), "from {at} to {end}");
        }
    }
    let newest = segments.iter().map(|s| s.last).max().unwrap_or(0);
    for above in [0, newest / 2, newest] {
        let mut held = vec![0; SIZE];
        for s in segments.iter().filter(|s| s.last > above) {
            for byte in s.pattern.iter().flat_map(|e| e.offset..e.end()) {
                if s.limit.is_none_or(|limit| byte < limit) {
                    held[byte as usize] = s.last.max(held[byte as usize]);
                }
            }
        }
        let mut at = 0;
        while at < SIZE {
            let (sequence, end) = match map.newer(at as u64, above) {
                MapLookup::Data(piece) => (piece.sequence, piece.end() as usize),
                MapLookup::Hole(end) => (0, end as usize),
                MapLookup::End => (0, SIZE),
            };
            prop_assert!(end > at);
            let end = end.min(SIZE);
            prop_assert!(
                held[at..end].iter().all(|h| *h == sequence),
                "{at} to {end}, above {above}"
            );
            at = end;
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(forebay_testkit::seeds::count(80, 100_000)))]

    #[test]
    fn every_byte_is_that_of_the_newest_write(
        changes in proptest::collection::vec(change(), 1..6),
        from in 3000usize..6000,
        len in 0usize..2000,
    ) {
        let mut service = Service::new();
        changes.iter().for_each(|c| service.apply(c));
        let (globals, rest) = merge(service.segments.clone());
        let mut bytes = Vec::new();
        globals.iter().for_each(|g| g.encode(&mut bytes));
        rest.iter().for_each(|s| s.encode(&mut bytes));
        let (back, lost) = forebay_pattern::decode_all(&bytes);
        prop_assert!(lost.is_empty(), "{:?}", lost);
        for map in [
            PatternMap::new(Vec::new(), service.segments.clone()),
            PatternMap::new(globals, rest),
            back.map(),
        ] {
            check(&map, &service.model, 0, SIZE)?;
            check_skips(&map, &service.segments, &service.model)?;
            check(&map, &service.model, from, from + len)?;
            for offset in (0..SIZE as u64).step_by(37) {
                let there = &service.model[offset as usize..];
                match map.lookup(offset) {
                    MapLookup::Data(p) => {
                        prop_assert_eq!((p.offset, Some((p.source, p.addr, p.sequence))), (offset, there[0]));
                    }
                    MapLookup::Hole(end) => {
                        let hole = there.iter().position(Option::is_some);
                        prop_assert_eq!(Some((end - offset) as usize), hole);
                    }
                    MapLookup::End => prop_assert!(there.iter().all(Option::is_none)),
                }
            }
        }
    }
}

#[test]
fn a_cut_loop_that_goes_down_hides_no_lower_extent() {
    let mut service = Service::new();
    let cell = [0i64, 26, 14, -5, -2, 24, 12, -7, -4];
    let elements = (0..27u64).map(|i| Element {
        offset: (4000 + cell[(i % 9) as usize] - i as i64 / 9 * 37) as u64,
        len: 1,
        addr: i,
    });
    service.apply(&Change::Write(0, Stream(elements.collect())));
    check(
        &PatternMap::new(Vec::new(), service.segments.clone()),
        &service.model,
        0,
        SIZE,
    )
    .unwrap();
}

fn one(global: &[GlobalPattern]) -> &GlobalPattern {
    assert_eq!(global.len(), 1);
    &global[0]
}

/// `ranks` logs, each folded alone.
fn ranks(ranks: u64, mut extents: impl FnMut(u64) -> Vec<(u64, u64)>) -> Vec<Segment> {
    (0..ranks)
        .flat_map(|rank| {
            let mut folder = Folder::joining();
            for (offset, len) in extents(rank) {
                folder.push(offset, len).unwrap();
            }
            let source = LogSource {
                member: rank as u16 / 8,
                log: 1000 + rank,
            };
            folder
                .finish()
                .into_iter()
                .map(move |p| Segment::new(source, 5 + rank, p))
        })
        .collect()
}

#[test]
fn tiles_are_one_global_pattern() {
    // 4 x 4 tiles of 32 rows of 64 bytes.
    let tile = |rank: u64| {
        let (x, y) = (rank % 4, rank / 4);
        (0..32)
            .map(|row| (((y * 32 + row) * 4 + x) * 64, 64))
            .collect()
    };
    let (globals, rest) = merge(ranks(16, tile));
    assert!(rest.is_empty());
    assert_eq!(one(&globals).elements(), 16 * 32);
    let map = PatternMap::new(globals, rest);
    for offset in (0..16 * 32 * 64).step_by(13) {
        let (x, y, row) = (offset / 64 % 4, offset / 256 / 32, offset / 256 % 32);
        let MapLookup::Data(p) = map.lookup(offset) else {
            panic!("nothing at {offset}")
        };
        let rank = y * 4 + x;
        assert_eq!(
            (p.source.log, p.addr, p.sequence),
            (1000 + rank, row * 64 + offset % 64, 5 + rank)
        );
    }
}

#[test]
fn uneven_ranks_join_with_a_table_and_headers_of_any_length_are_nothing_special() {
    let bases = [0u64, 100, 250, 300, 420, 600, 777];
    // A header of another length for each rank, then a stride.
    let extents = |rank: u64| {
        let mut all = vec![(1_000_000 + rank * 100, rank + 1)];
        all.extend((0..50).map(|k| (bases[rank as usize] + k * 1000, 50)));
        all
    };
    let (globals, rest) = merge(ranks(7, extents));
    assert_eq!(one(&globals).slots(), 7);
    let map = PatternMap::new(globals, rest);
    for (rank, base) in bases.iter().enumerate() {
        for k in 0..50 {
            let MapLookup::Data(p) = map.lookup(base + k * 1000 + 3) else {
                panic!()
            };
            assert_eq!(
                (p.source.log, p.addr, p.len),
                (1000 + rank as u64, rank as u64 + 1 + k * 50 + 3, 47)
            );
        }
    }
    assert_eq!(map.lookup(50), MapLookup::Hole(100));
    assert_eq!(map.lookup(49_827), MapLookup::Hole(1_000_000));
    assert_eq!(map.lookup(2_000_000), MapLookup::End);
    let mut pieces: Vec<PlacedExtent> = Vec::new();
    map.resolve(0..2_000_000, &mut pieces);
    assert_eq!(pieces.len(), 7 * 51);
}

#[test]
fn a_checkpoint_in_several_commits_takes_a_reader_few_bytes() {
    // 512 logs of 4 members, numbered as their writers came; each commits four times, in an order that depends on who was quick.
    let (writes, parts) = (4u64 << 10, 4u64);
    let mut segments = Vec::new();
    for rank in 0..512u64 {
        let source = LogSource {
            member: (rank % 4) as u16,
            log: 1000 + rank / 4 + (rank % 4) * 7,
        };
        for part in 0..parts {
            let mut folder = Folder::joining();
            for k in part * writes / parts..(part + 1) * writes / parts {
                folder
                    .push_at((k * 512 + rank) * 4096, 4096, k * 4096)
                    .unwrap();
            }
            let jitter = (rank * 2_654_435_761 + part * 40_503) % 9;
            let sequence = (rank / 4 * parts + part) * 4 + jitter;
            let pattern = folder.finish().remove(0);
            segments.push(Segment::new(source, sequence, pattern));
        }
    }
    let (globals, rest) = merge(segments);
    assert!(rest.is_empty() && globals.len() == 1);
    let map = PatternMap::new(globals, rest);
    assert!(map.memory() <= 6 << 10, "{} bytes", map.memory());
    let at = (3000 * 512 + 77) * 4096;
    let MapLookup::Data(p) = map.lookup(at) else {
        panic!("nothing there")
    };
    assert_eq!((p.source.log, p.addr), (1000 + 19 + 7, 3000 * 4096));
}
