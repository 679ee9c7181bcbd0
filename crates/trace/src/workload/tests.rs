//! Every workload: calls are what the papers describe, and where ranks must not overlap they do not.

use super::*;
use crate::{Ranges, Stats};

fn accesses(layout: &dyn Layout, rank: u32) -> Vec<CallRange> {
    (0..layout.calls(rank))
        .map(|i| layout.access(rank, i))
        .collect()
}

/// Asserts that no byte is touched twice; returns the bytes touched and the end of the first file.
fn disjoint(layout: &dyn Layout) -> (u64, u64) {
    let mut files = vec![Ranges::default(); layout.files().len()];
    let mut bytes = 0;
    for rank in 0..layout.ranks() {
        for a in accesses(layout, rank) {
            let range = a.offset..a.offset + a.len;
            let file = &mut files[a.file as usize];
            assert_eq!(
                file.get(range.clone()).count(),
                0,
                "rank {rank}: {a:?} touched twice"
            );
            file.set(range, ());
            bytes += a.len;
        }
    }
    (bytes, files[0].end())
}

#[test]
fn every_named_workload_is_in_order_and_writes_what_it_reads() {
    for (name, _) in KINDS {
        let workload = parse(name).unwrap();
        let trace = workload.trace();
        assert!(
            trace
                .ops
                .iter()
                .all(|op| op.rank < trace.ranks && (op.file as usize) < trace.files.len())
        );
        assert!(trace.ops.is_sorted_by_key(|op| op.start), "{name}");
        let stats = Stats::of(&trace);
        assert!(stats.writes.calls >= 40, "{name}");
        assert_eq!(
            (stats.writes.calls, stats.writes.bytes),
            (stats.reads.calls, stats.reads.bytes),
            "{name}"
        );
        if *name != "random-overlap" {
            disjoint(&*workload.layout);
        }
    }
}

#[test]
fn dense_workloads_fill_their_files() {
    for spec in [
        "ior-strided",
        "ior-segmented",
        "tile:x=3,y=2",
        "btio:q=3,grid=13",
        "fs-test",
        "fs-test-segmented",
        "milc-a",
        "milc-b:buffer=1000",
        "milc-c",
        "random",
    ] {
        let (bytes, end) = disjoint(&*parse(spec).unwrap().layout);
        assert_eq!(bytes, end, "{spec}");
    }
}

#[test]
fn pagoda_reads_each_variable_with_its_own_stride() {
    let layout = parse("pagoda:ranks=2,steps=3").unwrap().layout;
    let all = accesses(&*layout, 1);
    assert_eq!(all.len(), 3 * 196);
    let steps: Vec<u64> = all.windows(2).map(|w| w[1].offset - w[0].offset).collect();
    // Rows of 2 ranks' parts; every second row of the second variable.
    assert_eq!(steps[..31], [8192; 31]);
    assert_eq!(steps[32..55], [32768; 23]);
    assert_eq!((all[0].len, all[32].len, all[196].len), (4096, 8192, 4096));
    let step = all[196].offset - all[0].offset;
    assert!((0..392).all(|i| all[i + 196].offset - all[i].offset == step));
}

#[test]
fn other_readers_share_the_calls_out() {
    let trace = parse("ior-strided:ranks=4,calls=5,readers=3")
        .unwrap()
        .trace();
    let reads: Vec<_> = trace
        .ops
        .iter()
        .filter(|op| op.kind == Kind::Read)
        .collect();
    assert_eq!(reads.len(), 20);
    assert!((0..3).all(|r| reads.iter().filter(|op| op.rank == r).count() >= 6));
    let only_reads = parse("ior-strided:write=0").unwrap().trace();
    assert!(only_reads.ops.iter().all(|op| op.kind == Kind::Read));
}

#[test]
fn ior_strides_as_in_the_paper() {
    let ior = parse("ior-strided:ranks=4,calls=3,size=10").unwrap().layout;
    let offsets: Vec<u64> = accesses(&*ior, 1).iter().map(|a| a.offset).collect();
    assert_eq!(offsets, [10, 50, 90]);
}

#[test]
fn btio_makes_the_papers_number_of_calls() {
    for (q, grid, millions) in [(8, 162, 0.2), (12, 408, 2.0), (20, 1020, 20.8)] {
        let btio = Btio { q, grid, dumps: 1 };
        let calls: u64 = (0..btio.ranks()).map(|r| btio.calls(r)).sum();
        assert_eq!((calls as f64 / 1e5).round() / 10.0, millions, "{calls}");
    }
}

#[test]
fn a_rank_of_btio_has_one_cell_in_every_layer_and_row_and_column() {
    let btio = Btio {
        q: 4,
        grid: 20,
        dumps: 1,
    };
    for rank in 0..btio.ranks() {
        for axis in 0..3 {
            let mut lows: Vec<u64> = btio.cells(rank).map(|c| c.low[axis]).collect();
            lows.sort_unstable();
            assert_eq!(lows, [0, 5, 10, 15]);
        }
    }
}

#[test]
fn tile_makes_the_papers_number_of_calls() {
    let tile = parse("tile:height=32k").unwrap().layout;
    let calls: u64 = (0..tile.ranks()).map(|r| tile.calls(r)).sum();
    assert_eq!(calls, 524_288);
    let wide = parse("tile:x=4,y=2,width=8,height=3,element=2")
        .unwrap()
        .layout;
    assert_eq!(
        wide.access(6, 1),
        CallRange {
            file: 0,
            offset: (4 * 32 + 16) * 2,
            len: 16
        }
    );
}

#[test]
fn milc_in_lattice_order_has_two_strides() {
    let milc = parse("milc-a").unwrap().layout;
    let offsets: Vec<u64> = accesses(&*milc, 5).iter().map(|a| a.offset).collect();
    let mut strides: Vec<u64> = offsets.windows(2).map(|w| w[1] - w[0]).collect();
    strides.sort_unstable();
    strides.dedup();
    // Next row of the block, and from its last row to the next plane.
    assert_eq!(strides, [16 * 288, (16 * 16 - 3 * 16) * 288]);
}

#[test]
fn milc_headers_come_first() {
    let milc = parse("milc-c").unwrap().layout;
    assert_eq!(
        milc.access(3, 0),
        CallRange {
            file: 0,
            offset: 288,
            len: 96
        }
    );
    assert_eq!(milc.access(0, 1).offset, 16 * 96);
}

#[test]
fn nested_levels_step_inside_out() {
    let nested = parse("nested-3d:ranks=2,size=10,inner=3,middle=2,outer=2,gap=5");
    let nested = nested.unwrap().layout;
    let offsets: Vec<u64> = accesses(&*nested, 1).iter().map(|a| a.offset).collect();
    assert_eq!(
        offsets,
        [10, 30, 50, 75, 95, 115, 145, 165, 185, 210, 230, 250]
    );
}

#[test]
fn random_depends_on_its_seed_only() {
    let of = |spec: &str| parse(spec).unwrap().trace().ops;
    assert_eq!(of("random:seed=3"), of("random:seed=3"));
    assert_ne!(of("random:seed=3"), of("random:seed=4"));
}

#[test]
fn a_shuffle_is_a_permutation_of_any_length() {
    for n in [1, 2, 3, 64, 100, 1000] {
        let shuffle = Shuffle { n, seed: 77 };
        let mut seen: Vec<u64> = (0..n).map(|i| shuffle.at(i)).collect();
        seen.sort_unstable();
        assert!(seen.iter().copied().eq(0..n));
    }
}

#[test]
fn wrong_descriptions_say_what_there_is() {
    for (spec, says) in [
        ("ior", "there are: ior-strided"),
        (
            "tile:rank=3",
            "no parameter \"rank\" here; there are: x, y, width",
        ),
        ("tile:x", "not key=value"),
        ("tile:x=many", "not a number"),
        ("tile:width=0", "width must not be 0"),
        ("btio:q=9,grid=3", "smaller than q"),
        ("random:size=9999999g", "too large"),
        ("random:ranks=5m", "from 1 to 1m"),
    ] {
        let error = parse(spec).err().unwrap().to_string();
        assert!(error.contains(says) && error.contains(spec), "{error}");
    }
    assert_eq!(
        parse("fs-test:size=64K").unwrap().layout.access(0, 0).len,
        65_536
    );
}
