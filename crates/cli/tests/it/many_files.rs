//! Very many files: open at once, and small ones made, listed, looked at, read and removed, with a restart in between.
//!
//! What a file costs in memory and on disk is printed, and the server's memory stays inside its budget (counted as in
//! `memory_budget`). `FOREBAY_TEST_FILES` sets another number of small files.
use crate::common::server_memory::{Mib, ServerMemory};
use crate::common::{Place, command, has_fuse, outcome, run_within};
use forebay_testkit::random::seeded_bytes;
use forebay_testkit::seeds;
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Nodes, and threads that work through one mount each.
const NODES: u64 = 2;
/// Memory budget of one node, with the small files.
const SMALL_MEMORY: u64 = 16 << 20;
const GREAT_MEMORY: u64 = 192 << 20;
/// Files in one directory.
const IN_DIRECTORY: u64 = 10_000;

/// Room for as many open files as asked in this process.
fn allow_open_files(n: u64) {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let now = getrlimit(Resource::Nofile);
    let wanted = Rlimit {
        current: Some(n),
        maximum: now.maximum.map(|most| most.max(n)),
    };
    // Enough already, or only root may have so many: the first file too many says so.
    if now.current.is_some_and(|current| current < n) {
        let _ = setrlimit(Resource::Nofile, wanted);
    }
}

/// Bytes of file `i`: 20 to 200 of them.
fn content(i: u64) -> Vec<u8> {
    seeded_bytes(i, 20 + (i * 7919 % 181) as usize)
}

/// What a directory tree takes on its disk, bytes.
fn disk(dir: &Path) -> u64 {
    let mut sum = 0;
    for entry in std::fs::read_dir(dir).unwrap().map(Result::unwrap) {
        let meta = entry.metadata().unwrap();
        sum += meta.blocks() * 512;
        if meta.is_dir() {
            sum += disk(&entry.path());
        }
    }
    sum
}

#[track_caller]
fn fsck(place: &Place) {
    let limit = Duration::from_secs(seeds::count(90, 1800));
    let (code, out, err) = outcome(&run_within(&mut command(&["fsck", &place.store()]), limit));
    assert_eq!(code, 0, "{out}{err}");
}

#[test]
fn many_files_are_open_at_once() {
    if !has_fuse() {
        return;
    }
    let count = seeds::count(1_000, 10_000);
    allow_open_files(count + 256);
    let place = Place::new();
    place.mount_well(&["--nodes", "2"]);
    let pid = place.pid();
    let before = ServerMemory::of(pid).anonymous;
    let path = |node: u64, i: u64| place.path(&format!("m/{node}/f{i}"));
    let files: Vec<File> = (0..count)
        .map(|i| {
            let mut options = File::options();
            let options = options.read(true).write(true).create_new(true);
            options.open(path(i % NODES, i)).unwrap()
        })
        .collect();
    for (i, file) in files.iter().enumerate() {
        file.write_all_at(&content(i as u64), 0).unwrap();
    }
    let open = ServerMemory::of(pid).anonymous.saturating_sub(before);
    for (i, file) in files.iter().enumerate() {
        let want = content(i as u64);
        let mut found = vec![0; want.len() + 1];
        assert_eq!(file.read_at(&mut found, 0).unwrap(), want.len(), "file {i}");
        assert_eq!(found[..want.len()], want, "file {i}");
    }
    drop(files);
    for i in (0..count).step_by(7) {
        let other = path((i + 1) % NODES, i);
        assert_eq!(std::fs::read(other).unwrap(), content(i), "file {i}");
    }
    println!(
        "{count} files open at once, each written: {} of server memory, {} bytes a file",
        Mib(open),
        open / count
    );
    place.umount_well();
    fsck(&place);
}

/// A tree of small files and the clock of its steps.
struct Tree<'a> {
    place: &'a Place,
    count: u64,
    /// Memory of all nodes, bytes.
    budget: u64,
    pid: u32,
    start: ServerMemory,
}

impl Tree<'_> {
    fn directories(&self) -> u64 {
        self.count.div_ceil(self.in_directory())
    }

    fn in_directory(&self) -> u64 {
        // At least one directory a thread.
        IN_DIRECTORY.min(self.count.div_ceil(2 * NODES))
    }

    fn directory(&self, node: u64, d: u64) -> PathBuf {
        self.place.path(&format!("m/{node}/d{d}"))
    }

    /// Files of directory `d`.
    fn files(&self, d: u64) -> std::ops::Range<u64> {
        let from = d * self.in_directory();
        from..(from + self.in_directory()).min(self.count)
    }

    /// Runs `work` on every directory, one thread a node; `shift` moves the directories to other nodes.
    fn each(&self, what: &str, shift: u64, work: impl Fn(&Path, std::ops::Range<u64>) + Sync) {
        let begun = Instant::now();
        std::thread::scope(|scope| {
            for node in 0..NODES {
                let work = &work;
                scope.spawn(move || {
                    for d in (node..self.directories()).step_by(NODES as usize) {
                        work(&self.directory((node + shift) % NODES, d), self.files(d));
                    }
                });
            }
        });
        let (took, now) = (begun.elapsed(), ServerMemory::of(self.pid));
        println!(
            "{what:>7}: {:6.1} s, {:6.0} files/s; server memory {}, peak {}",
            took.as_secs_f64(),
            self.count as f64 / took.as_secs_f64(),
            Mib(now.anonymous),
            Mib(now.peak_since(&self.start))
        );
        assert!(
            now.peak_since(&self.start) <= self.budget,
            "{what}: over the budget of {}",
            Mib(self.budget)
        );
    }

    fn name(i: u64) -> String {
        format!("file-{i:07}")
    }

    fn list(&self, shift: u64) {
        self.each("list", shift, |dir, files| {
            let listed = std::fs::read_dir(dir).unwrap();
            let mut names: Vec<String> = listed
                .map(|e| e.unwrap().file_name().into_string().unwrap())
                .collect();
            names.sort_unstable();
            assert!(names.into_iter().eq(files.map(Tree::name)), "{dir:?}");
        });
    }

    fn stat(&self, shift: u64) {
        self.each("stat", shift, |dir, files| {
            for i in files {
                let meta = std::fs::metadata(dir.join(Tree::name(i))).unwrap();
                assert_eq!(meta.len(), content(i).len() as u64, "file {i}");
            }
        });
    }

    /// One file in ten.
    fn read(&self, shift: u64) {
        self.each("read", shift, |dir, files| {
            for i in files.step_by(10) {
                let found = std::fs::read(dir.join(Tree::name(i))).unwrap();
                assert_eq!(found, content(i), "file {i}");
            }
        });
    }
}

#[test]
fn small_files_in_great_number_live_through_a_restart_and_leave_nothing_behind() {
    if !has_fuse() {
        return;
    }
    let asked = std::env::var("FOREBAY_TEST_FILES").ok();
    let count = asked.map_or(seeds::count(5_000, 1_000_000), |n| n.parse().unwrap());
    let place = Place::new();
    let store = place.path("s");
    let memory = if count > 50_000 {
        GREAT_MEMORY
    } else {
        SMALL_MEMORY
    };
    place.mount_well(&["--nodes", "2"]);
    place.umount_well();
    let empty = disk(&store);

    let mount = || {
        let begun = Instant::now();
        place.mount_well(&["--nodes", "2", "--memory", &memory.to_string()]);
        println!("  start: {:6.1} s", begun.elapsed().as_secs_f64());
        let pid = place.pid();
        Tree {
            place: &place,
            count,
            budget: NODES * memory,
            pid,
            start: ServerMemory::of(pid),
        }
    };
    let tree = mount();
    tree.each("create", 0, |dir, files| {
        std::fs::create_dir(dir).unwrap();
        for i in files {
            std::fs::write(dir.join(Tree::name(i)), content(i)).unwrap();
        }
    });
    let made = ServerMemory::of(tree.pid).anonymous;
    let made = made.saturating_sub(tree.start.anonymous);
    tree.list(1);
    tree.stat(1);
    tree.read(1);
    place.umount_well();
    let full = disk(&store).saturating_sub(empty);
    println!(
        "{count} small files: {} bytes of server memory and {} bytes of disk a file",
        made / count,
        full / count
    );
    fsck(&place);

    let tree = mount();
    tree.list(0);
    tree.stat(0);
    tree.read(0);
    tree.each("unlink", 1, |dir, files| {
        for i in files {
            std::fs::remove_file(dir.join(Tree::name(i))).unwrap();
        }
        std::fs::remove_dir(dir).unwrap();
    });
    assert_eq!(std::fs::read_dir(place.path("m/0")).unwrap().count(), 0);
    place.umount_well();
    fsck(&place);
    println!(
        "after removing all: {} of disk more than the empty store",
        Mib(disk(&store).saturating_sub(empty))
    );
}
