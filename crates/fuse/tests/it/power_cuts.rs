//! Power cuts under a service that is used through its mounts: the store lies on a recording disk, whose power is cut at
//! points of what was written and flushed. What an fsync promised is there afterwards as it was or as it was later.
//!
//! A test runs in a mount namespace of its own, as root; see `forebay_testkit::disk` for what it needs, and for what is lost.
mod history;
mod rig;

use crate::common::{open_to_write, role_apart};
use forebay_testkit::random::{Random, seeded_bytes};
use forebay_testkit::{seeds, turns};
use rig::{Rig, Served, Setup, serve};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// The work of this module's roles; whether it is one of them.
pub fn run_role(role: &str, args: &[&str]) -> bool {
    match (role, args) {
        ("disk", [at, spool, bytes]) => {
            let bytes = bytes.parse().unwrap();
            forebay_testkit::disk::serve(Path::new(at), Path::new(spool), bytes).unwrap();
        }
        ("service", args) => serve(args),
        ("renames over members", _) => renames_over_members(),
        ("overwrites", [nodes]) => overwrites(nodes.parse().unwrap()),
        ("appends", [nodes]) => appends(nodes.parse().unwrap()),
        ("history", [seed, nodes, disk, cuts]) => {
            let [seed, nodes, disk, cuts] = [seed, nodes, disk, cuts].map(|n| n.parse().unwrap());
            history::run(seed, nodes as u16, disk != 0, cuts);
        }
        _ => return false,
    }
    true
}

/// A role that takes longer is stuck.
const ROLE_LIMIT: Duration = Duration::from_secs(240);

/// Runs a role in a mount namespace of its own, and fails with it.
fn apart(name: &str, args: &[&str]) {
    if !forebay_testkit::disk::can_record() {
        return;
    }
    let _turn = turns::shared();
    let mut child = role_apart(name, args).stdin(Stdio::null()).spawn().unwrap();
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if start.elapsed() > ROLE_LIMIT {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("{name} {args:?} is stuck");
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    assert!(status.success(), "{name} {args:?}: {status}");
}

#[test]
fn renames_over_members_leave_each_synced_file_in_one_place() {
    apart("renames over members", &[]);
}

#[test]
fn overwriting_without_a_sync_leaves_synced_bytes_old_or_new() {
    apart("overwrites", &["1"]);
}

#[test]
fn overwriting_without_a_sync_leaves_synced_bytes_old_or_new_over_members() {
    apart("overwrites", &["4"]);
}

#[test]
fn appending_without_a_sync_leaves_the_synced_end_or_the_bytes() {
    apart("appends", &["1"]);
}

#[test]
fn appending_without_a_sync_leaves_the_synced_end_or_the_bytes_over_members() {
    apart("appends", &["4"]);
}

/// Short form: 2 seeds of each kind with 5 cuts. `SOAK=1`: 500 cuts in all. `FOREBAY_SEED=n` replays one seed.
#[test]
fn what_was_synced_survives_cuts_anywhere() {
    let cuts = seeds::count(5, 13);
    seeds::for_each_seed("power_cuts", (2, 10), |seed| {
        for (nodes, disk) in [(1, 0), (4, 0), (1, 1), (4, 1)] {
            let args = [
                seed.to_string(),
                nodes.to_string(),
                disk.to_string(),
                cuts.to_string(),
            ];
            println!(
                "seed {seed}, {nodes} nodes, durability {}",
                ["process", "disk"][disk]
            );
            apart("history", &args.each_ref().map(|a| a.as_str()));
        }
    });
}

fn put(path: &Path, bytes: &[u8], sync: bool) {
    let mut file = File::create(path).unwrap();
    file.write_all(bytes).unwrap();
    if sync {
        file.sync_all().unwrap();
    }
}

/// A service on a recording disk, and what a test does with it before the cuts.
struct CutTest {
    rig: Rig,
    setup: Setup,
    served: Served,
}

impl CutTest {
    fn start(nodes: u16) -> CutTest {
        let (rig, setup) = (Rig::start(), Setup { nodes, disk: false });
        let served = rig.serve(&rig.store(), setup);
        CutTest { rig, setup, served }
    }

    /// The first member's mount.
    fn first(&self) -> &Path {
        self.served.mount(0)
    }

    /// The last member's: another than the first, if there is one.
    fn last(&self) -> &Path {
        self.served.mount(usize::from(self.setup.nodes - 1))
    }

    /// Brings the directory `name` to disk, with a file beside the one that a test is about.
    fn sync_beside(&self, name: &str, beside: &[u8]) {
        put(&self.first().join(name).join("other"), beside, true);
        sync_directory(&self.first().join(name));
    }

    /// The disk's position, once all names are on it.
    fn begin(&self) -> usize {
        sync_directory(self.first());
        self.rig.position()
    }

    /// The disk's position, and where it is once freed bytes are reclaimed, which happens in the background.
    fn points_until_freed(&self) -> Vec<usize> {
        let end = self.rig.position();
        std::thread::sleep(Duration::from_millis(1500));
        vec![end, self.rig.position()]
    }

    /// Cuts the power behind each of `points`, and then anywhere between `begin` and the last of them. `look` gets what runs
    /// after a cut, and what to say if something is wrong.
    fn cut_each(
        self,
        begin: usize,
        points: &[usize],
        seed: u64,
        mut look: impl FnMut(&Served, &str),
    ) {
        let recording = self.rig.end(self.served);
        let (end, mut random) = (points[points.len() - 1], Random::new(seed));
        for cut in 0..seeds::count(6, 40) {
            let at = match points.get(cut as usize) {
                Some(point) => *point,
                None => begin + random.below((end - begin + 1) as u64) as usize,
            };
            let (loss, after) = self.rig.cut(&recording, at, cut, self.setup);
            let what = format!("cut {cut} at {at}, from {begin} to {points:?}, {loss:?}");
            look(&after, &what);
            let wrong = self.rig.end_of_cut(after);
            assert!(wrong.is_empty(), "{what}: {wrong:#?}");
        }
    }
}

fn sync_directory(path: &Path) {
    File::open(path).unwrap().sync_all().unwrap();
}

fn renames_over_members() {
    let test = CutTest::start(4);
    let m = test.first();
    let bytes = |i: u64| seeded_bytes(i, 3000);
    for i in 0..16 {
        let dir = m.join(format!("d{i}"));
        fs::create_dir(&dir).unwrap();
        put(&dir.join("f"), &bytes(i), true);
        test.sync_beside(&format!("d{i}"), b"as it was");
    }
    let begin = test.begin();
    for i in 0..16 {
        let to = m.join(format!("d{}/g{i}", (i + 5) % 16));
        fs::rename(m.join(format!("d{i}/f")), to).unwrap();
    }
    put(&m.join("d0/other"), b"later", true);
    let end = test.rig.position();
    test.cut_each(begin, &[end], 5, |after, what| {
        let m = after.mount(1);
        let mut wrong = Vec::new();
        for i in 0..16 {
            let places = [format!("d{i}/f"), format!("d{}/g{i}", (i + 5) % 16)].map(|p| m.join(p));
            let found: Vec<_> = places.iter().filter(|p| p.exists()).collect();
            match found[..] {
                [place] => match fs::read(place) {
                    Ok(read) if read == bytes(i) => fs::remove_file(place).unwrap(),
                    read => wrong.push(format!("{i}: {} is {read:?}", place.display())),
                },
                _ => wrong.push(format!("{i}: found at {found:?}")),
            }
            let other = fs::read(m.join(format!("d{i}/other")));
            let whole = matches!(other.as_deref(), Ok(b"as it was")) || i == 0 && other.is_ok();
            if !whole {
                wrong.push(format!("d{i}/other is {other:?}"));
            }
        }
        for i in 0..16 {
            for entry in fs::read_dir(m.join(format!("d{i}"))).unwrap() {
                let entry = entry.unwrap();
                if let Err(e) = entry.metadata() {
                    wrong.push(format!("d{i}/{:?} leads nowhere: {e}", entry.file_name()));
                }
            }
        }
        assert!(wrong.is_empty(), "{what}: {wrong:#?}");
    });
}

/// A file that was synced, what is done to it without a sync, and what it may be then.
struct Overwrite {
    name: &'static str,
    change: fn(&Path),
    /// Bytes that each read must be from, by offset; lengths that the file may have.
    later: Vec<u8>,
}

fn overwrites(nodes: u16) {
    let test = CutTest::start(nodes);
    let m = test.first();
    let old = vec![b'o'; 10_000];
    let half = [vec![b'n'; 5000], vec![b'o'; 5000]].concat();
    let cases = [
        Overwrite {
            name: "in place",
            change: |path| {
                let file = open_to_write(path);
                file.write_all_at(&[b'n'; 5000], 0).unwrap();
            },
            later: half,
        },
        Overwrite {
            name: "truncated and written",
            change: |path| put(path, &[b'n'; 10_000], false),
            later: vec![b'n'; 10_000],
        },
        Overwrite {
            name: "twice",
            change: |path| {
                for _ in 0..2 {
                    let file = open_to_write(path);
                    file.write_all_at(&[b'n'; 3000], 2000).unwrap();
                }
            },
            later: [vec![b'o'; 2000], vec![b'n'; 3000], vec![b'o'; 5000]].concat(),
        },
    ];
    for case in &cases {
        fs::create_dir(m.join(case.name)).unwrap();
        put(&m.join(case.name).join("file"), &old, true);
        test.sync_beside(case.name, b"-");
    }
    let begin = test.begin();
    // By another node than the one that wrote it, if there is one.
    let by = test.last();
    for case in &cases {
        (case.change)(&by.join(case.name).join("file"));
    }
    // What brings records to disk, of the directory's own member and of all.
    for case in &cases {
        put(&m.join(case.name).join("other"), b"+", true);
    }
    sync_directory(m);
    let points = test.points_until_freed();
    test.cut_each(begin, &points, 6, |after, what| {
        for case in &cases {
            let path = after.mount(0).join(case.name).join("file");
            let mut read = Vec::new();
            let result = File::open(&path).unwrap().read_to_end(&mut read);
            let what = format!("{}, {what}", case.name);
            assert!(result.is_ok(), "{what}: {result:?}");
            assert!(
                read.is_empty() && case.name.starts_with("truncated") || read.len() == old.len(),
                "{what}: {} bytes",
                read.len()
            );
            for (i, byte) in read.iter().enumerate() {
                assert!(
                    *byte == old[i] || *byte == case.later[i],
                    "{what}: byte {i} is {byte}"
                );
            }
        }
    });
}

/// A file that was synced up to `start + synced`, and gets more without a sync.
struct Append {
    name: &'static str,
    /// Before that there is a hole.
    start: u64,
    synced: u64,
}

fn appends(nodes: u16) {
    const MORE: u64 = 9000;
    const SLICE: u64 = 64 << 20;
    let test = CutTest::start(nodes);
    let m = test.first();
    let cases = [
        ("within a page", 0, 10_000),
        ("behind a page", 0, 8192),
        ("over members, within a page", SLICE - 5, 5005),
        ("over members, behind a page", SLICE - 5, 8197),
        ("over all members", SLICE - 5, 3 * SLICE - 1000),
    ]
    .map(|(name, start, synced)| Append {
        name,
        start,
        synced,
    });
    for case in &cases {
        fs::create_dir(m.join(case.name)).unwrap();
        let file = File::create(m.join(case.name).join("file")).unwrap();
        file.write_all_at(&[b'o'; 10], case.start).unwrap();
        let end = case.start + case.synced;
        file.write_all_at(&[b'o'; 3000], end - 3000).unwrap();
        file.sync_all().unwrap();
        test.sync_beside(case.name, b"-");
    }
    let begin = test.begin();
    let by = test.last();
    for case in &cases {
        let path = by.join(case.name).join("file");
        let mut file = File::options().append(true).open(path).unwrap();
        file.write_all(&[b'n'; MORE as usize]).unwrap();
    }
    // What brings records to disk, but not these bytes.
    for case in &cases {
        put(&m.join(case.name).join("other"), b"+", true);
    }
    let points = test.points_until_freed();
    let mut shorter = 0;
    test.cut_each(begin, &points, 7, |after, what| {
        for case in &cases {
            let what = format!("{}, {what}", case.name);
            let file = File::open(after.mount(0).join(case.name).join("file")).unwrap();
            let (synced, size) = (case.start + case.synced, file.metadata().unwrap().len());
            assert!(
                size == synced || size == synced + MORE,
                "{what}: {size} bytes"
            );
            shorter += u64::from(size == synced);
            let mut read = vec![0; (size - (synced - 3000)) as usize];
            let result = file.read_exact_at(&mut read, synced - 3000);
            assert!(result.is_ok(), "{what}: {result:?}");
            let (old, new) = read.split_at(3000);
            assert!(old.iter().all(|b| *b == b'o'), "{what}: synced bytes");
            // Of parts of several members one may be lost: a hole.
            let hole = case.name == "over all members";
            let may = |b: &u8| *b == b'n' || hole && *b == 0;
            assert!(new.iter().all(may), "{what}: appended bytes");
            let mut first = [0; 10];
            file.read_exact_at(&mut first, case.start).unwrap();
            assert_eq!(first, [b'o'; 10], "{what}");
        }
    });
    println!("{shorter} files ended where they were synced");
}
