//! What patterns take, and that the usual commit looks at no element.
use super::world::*;
use crate::*;
use forebay_index::Change;
use forebay_pattern::{Folder, LogSource, Segment};
use forebay_proto::files::*;
use std::ops::Bound::Unbounded;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// One commit of each of `ranks` writers: `count` records of 4 KiB, those of all in turns.
fn written(world: &World, fid: Fid, ranks: u64, count: u64, first_log: u64) {
    committed(world, fid, ranks, &[0, count], first_log);
}

/// The same in several commits: each writer's records up to each of these numbers.
fn committed(world: &World, fid: Fid, ranks: u64, ends: &[u64], first_log: u64) {
    for rank in 0..ranks {
        for of_commit in ends.windows(2) {
            commit(
                world,
                fid,
                ranks,
                rank,
                of_commit[0]..of_commit[1],
                first_log,
            );
        }
    }
}

fn commit(world: &World, fid: Fid, ranks: u64, rank: u64, records: Range<u64>, first_log: u64) {
    let end = Some(((records.end - 1) * ranks + rank + 1) * 4096);
    let mut folder = Folder::joining();
    for i in records {
        let at = (i * ranks + rank) * 4096;
        folder.push_at(at, 4096, i * 4096).unwrap();
    }
    let (member, log) = (
        (rank % u64::from(world.net.members)) as Member,
        first_log + rank,
    );
    let mut patterns = Vec::new();
    for pattern in folder.finish() {
        Segment::new(LogSource { member, log }, 0, pattern).encode(&mut patterns);
    }
    let attr = CommitAttr {
        end,
        ..Default::default()
    };
    let planned = Planned {
        writer: member,
        fid,
        token: world.token(),
        own: Vec::new(),
        patterns,
        staged: Vec::new(),
        attr,
    };
    world.finish(&planned).unwrap();
}

/// What a reader of member 1 gets: its bytes, and those of the map it makes of them.
fn read_map(world: &World, fid: Fid) -> (usize, forebay_pattern::PatternMap) {
    let PatternsReply {
        bytes,
        holes,
        residual,
        ..
    } = world.ask(1, 0, GetPatterns { fid }).unwrap();
    assert!(holes.is_empty() && residual.is_empty());
    let (patterns, lost) = forebay_pattern::decode_all(&bytes);
    assert!(lost.is_empty());
    (bytes.len(), patterns.map())
}

fn records(world: &World) -> (usize, usize) {
    let all = world.store(0).scan(keys::PATTERNS, Unbounded, Unbounded);
    all.fold((0, 0), |(count, bytes), entry| {
        let (key, value) = entry.unwrap();
        (count + 1, bytes + key.len() + value.len())
    })
}

#[test]
fn many_writers_of_one_file_take_little_room() {
    let world = World::new(2);
    let fid = world.create(0);
    let (ranks, count) = (512, 300);
    written(&world, fid, ranks, count, 1);
    let attr = world.view(0, fid).unwrap();
    assert_eq!(
        (attr.bytes, attr.size),
        (ranks * count * 4096, ranks * count * 4096)
    );
    let (number, bytes) = records(&world);
    assert!(
        number == 512 && bytes < 60_000,
        "{number} records of {bytes} bytes"
    );
    let (bytes, map) = read_map(&world, fid);
    assert!(
        bytes < 4096 && map.memory() <= 6 << 10,
        "{bytes} bytes, {} in memory",
        map.memory()
    );
    // Written again in place by other logs: all that was there goes, and no count of it stays.
    written(&world, fid, ranks, count, 1000);
    assert_eq!(world.view(0, fid).unwrap().bytes, attr.bytes);
    assert_eq!(records(&world).0, 512);
    world.drain();
    assert_eq!(world.freed_bytes(), attr.bytes);
    // What a member that was cut off keeps of its logs.
    let ask = GetNamedRanges {
        fid,
        member: 1,
        from: 0,
    };
    let NamedRanges { ranges, next } = world.ask(1, 0, ask).unwrap();
    assert_eq!(next, None);
    let wanted = (0..ranks)
        .filter(|rank| rank % 2 == 1)
        .map(|rank| (1000 + rank, 0, count * 4096));
    assert_eq!(ranges, wanted.collect::<Vec<_>>());
}

#[test]
fn writers_that_commit_now_and_then_take_no_more() {
    let world = World::new(2);
    let fid = world.create(0);
    let (ranks, ends) = (256, [0, 100, 200, 297, 300]);
    committed(&world, fid, ranks, &ends, 1);
    let (number, bytes) = records(&world);
    assert!(
        number < 270 && bytes < 30_000,
        "{number} records of {bytes} bytes"
    );
    // Also of the first few, which are as they were committed.
    let (bytes, map) = read_map(&world, fid);
    assert!(
        bytes < 2048 && map.memory() <= 4 << 10,
        "{bytes} bytes, {} in memory",
        map.memory()
    );
    for at in (0..ranks * 300).step_by(7) {
        let (rank, i) = (at % ranks, at / ranks);
        let forebay_pattern::MapLookup::Data(piece) = map.lookup(at * 4096) else {
            panic!("nothing at record {at}");
        };
        assert_eq!((piece.source.log, piece.addr), (1 + rank, i * 4096));
    }
}

#[test]
fn a_file_committed_bit_by_bit_leaves_few_records() {
    let world = World::new(1);
    let fid = world.create(0);
    let mut end = 0;
    for commit in 0..200u64 {
        // Rows that go on, and now and then something of another log over what is before them.
        let mut folder = Folder::joining();
        for i in 0..16 {
            let at = (commit * 16 + i) * 200;
            folder.push_at(at, 100, (commit * 16 + i) * 100).unwrap();
            end = at + 100;
        }
        let mut patterns = Vec::new();
        for pattern in folder.finish() {
            Segment::new(LogSource { member: 0, log: 1 }, 0, pattern).encode(&mut patterns);
        }
        let mut own = Vec::new();
        if commit % 50 == 49 {
            own.push(put(0, &(commit * 1000..commit * 1000 + 50), 1000 + commit));
        }
        let attr = CommitAttr {
            end: Some(end),
            ..Default::default()
        };
        let token = world.token();
        let planned = Planned {
            writer: 0,
            fid,
            token,
            own,
            patterns,
            staged: Vec::new(),
            attr,
        };
        world.finish(&planned).unwrap();
    }
    let (number, bytes) = records(&world);
    assert!(
        number <= 24 && bytes < 2500,
        "{number} records of {bytes} bytes"
    );
    assert_eq!(
        super::super::check::check(&world.stores()).unwrap(),
        Vec::new()
    );
    let (_, extents) = world.read(0, fid).unwrap();
    for at in (0..end).step_by(37) {
        let over = at < 200_000 && (49_000..49_050).contains(&(at % 50_000));
        let wanted = match (over, at % 200 < 100) {
            (true, _) => Some((1000 + at / 1000, at % 1000)),
            (false, true) => Some((1, at / 200 * 100 + at % 200)),
            (false, false) => None,
        };
        assert_eq!(byte(&extents, at), wanted, "{at}");
    }
}

#[test]
fn a_large_cut_gives_back_what_lies_between_its_ends() {
    let world = World::new(1);
    let fid = world.create(0);
    let (ranks, count) = (8, 1 << 14);
    written(&world, fid, ranks, count, 1);
    let all = ranks * count * 4096;
    let attr = || world.view(0, fid).unwrap();
    // Both ends inside of a record.
    let hole = 4096 * 1001 + 5..4096 * 40_000 + 9;
    let planned = Planned {
        writer: 0,
        fid,
        token: world.token(),
        own: vec![forebay_index::Change::Cut {
            start: hole.start,
            end: hole.end,
        }],
        patterns: Vec::new(),
        staged: Vec::new(),
        attr: CommitAttr::default(),
    };
    world.finish(&planned).unwrap();
    let left = all - (hole.end - hole.start);
    assert_eq!(attr().bytes, left);
    // Again, and some more: what is gone is not counted twice.
    world
        .finish(&Planned {
            token: world.token(),
            ..planned
        })
        .unwrap();
    assert_eq!(attr().bytes, left);
    let size = all - 4096 * 20_000 - 77;
    world.truncate(0, fid, size).unwrap();
    assert_eq!(attr().bytes, size - (hole.end - hole.start));
    let problems = super::super::check::check(&world.stores()).unwrap();
    assert!(problems.is_empty(), "{problems:?}");
    world.drain();
    assert_eq!(world.freed_bytes(), all - attr().bytes);
}

#[test]
fn tables_in_memory_stay_within_their_budget() {
    let world = World::new(1);
    let budget = 256 << 10;
    world.files(0).set_pattern_memory(budget);
    let fids: Vec<Fid> = (0..60).map(|_| world.create(0)).collect();
    for fid in &fids {
        written(&world, *fid, 8, 50, fid.0 << 8);
    }
    for fid in &fids {
        world.ask(0, 0, GetPatterns { fid: *fid }).unwrap();
        world.read(0, *fid).unwrap();
        assert!(world.files(0).pattern_memory() <= budget);
    }
    assert!(world.files(0).pattern_memory() > budget / 4);
}

#[test]
fn what_a_commit_displaces_is_found_while_others_may_use_the_inode() {
    let world = World::new(1);
    let fid = world.create(0);
    let (free, held) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let owner = world.files(0);
    let (counts, inodes) = ((free.clone(), held.clone()), world.inodes(0));
    owner.components.context.faults.watch(move |step| {
        if step != "find" {
            return;
        }
        let inodes = inodes.clone();
        let (done, wait) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            drop(inodes.lock(fid));
            let _ = done.send(());
        });
        let count = match wait.recv_timeout(Duration::from_secs(20)) {
            Ok(()) => &counts.0,
            Err(_) => &counts.1,
        };
        count.fetch_add(1, Ordering::Relaxed);
    });
    written(&world, fid, 4, 50, 1);
    written(&world, fid, 3, 60, 20);
    let cut = Change::Cut {
        start: 9000,
        end: u64::MAX,
    };
    let attr = CommitAttr {
        size: Some(9000),
        ..Default::default()
    };
    let planned = Planned {
        writer: 0,
        fid,
        token: world.token(),
        own: vec![cut],
        patterns: Vec::new(),
        staged: Vec::new(),
        attr,
    };
    world.finish(&planned).unwrap();
    assert_eq!(world.view(0, fid).unwrap().bytes, 9000);
    let count = |n: &AtomicU64| n.load(Ordering::Relaxed);
    assert_eq!((count(&free), count(&held)), (8, 0));
}
