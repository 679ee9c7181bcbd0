//! A cube of uneven blocks, dealt out in diagonals as BT does: its ranks' patterns become no more than blocks have shapes.

use forebay_pattern::{Folder, LogSource, MapLookup, PatternMap, Segment, merge};
use std::ops::Range;

/// Points of the cube along an axis, blocks along it, bytes of a point.
const GRID: u64 = 34;
const BLOCKS: u64 = 8;
const POINT: u64 = 40;

/// The points of block `at` along an axis.
fn points(at: u64) -> Range<u64> {
    let (size, larger) = (GRID / BLOCKS, GRID % BLOCKS);
    let start = |at: u64| at * size + at.min(larger);
    start(at)..start(at + 1)
}

/// The lines of rank `p`, block by block.
fn lines(p: u64) -> Vec<(u64, u64)> {
    let mut lines = Vec::new();
    for c in 0..BLOCKS {
        let x = points((p % BLOCKS + c) % BLOCKS);
        for z in points(c) {
            for y in points((p / BLOCKS + BLOCKS - c) % BLOCKS) {
                let first = x.start + GRID * (y + GRID * z);
                lines.push((first * POINT, (x.end - x.start) * POINT));
            }
        }
    }
    lines
}

#[test]
fn a_cube_of_uneven_blocks_takes_no_more_patterns_than_blocks_have_shapes() {
    let mut segments = Vec::new();
    for p in 0..BLOCKS * BLOCKS {
        let mut folder = Folder::joining();
        for (offset, len) in lines(p) {
            folder.push(offset, len).unwrap();
        }
        let source = LogSource { member: 0, log: p };
        let found = folder.finish().into_iter();
        segments.extend(found.map(|pattern| Segment::new(source, p + 1, pattern)));
    }
    // Each rank's is seen to be apart from all others, however its diagonals were folded.
    for (i, one) in segments.iter().enumerate() {
        assert!(segments[..i].iter().all(|s| s.surely_disjoint(one)));
        assert!(!one.surely_disjoint(one));
    }
    let (globals, rest) = merge(segments);
    assert!(rest.is_empty());
    assert!(globals.len() <= 8, "{}", globals.len());
    let map = PatternMap::new(globals, rest);
    assert!(map.memory() <= 11 << 10, "{} bytes", map.memory());
    for p in 0..BLOCKS * BLOCKS {
        let mut addr = 0;
        for (offset, len) in lines(p) {
            let MapLookup::Data(piece) = map.lookup(offset) else {
                panic!("nothing at {offset}")
            };
            let found = (piece.source.log, piece.addr, piece.len, piece.sequence);
            assert_eq!(found, (p, addr, len, p + 1));
            addr += len;
        }
    }
    let end = GRID * GRID * GRID * POINT;
    assert_eq!(map.lookup(end), MapLookup::End);
}
