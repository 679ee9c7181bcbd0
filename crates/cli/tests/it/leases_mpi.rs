//! Four servers that are MPI processes: what the owners lease to the kernels of their nodes is dropped there before a change by another
//! node is answered. Names are made, moved and removed, and attributes changed, through one mount; then the others, whose kernels held
//! what was there before, are asked.
//!
//! Without an `mpirun` the tests say that they skip; with `FOREBAY_REQUIRE_MPI` set they fail.
use crate::common::Place;
use crate::common::left::nothing;
use crate::common::mpi::{N, job_place, logs, server, started};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File, OpenOptions, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, SystemTime};

/// A service over the four mounts of a place, until it is dropped.
struct MpiJob {
    place: Place,
    child: Child,
}

impl MpiJob {
    fn start() -> Option<MpiJob> {
        let place = job_place()?;
        let child = started(&place, &[], "echo ready; sleep 1000; true");
        Some(MpiJob { place, child })
    }

    fn roots(&self) -> [PathBuf; N] {
        std::array::from_fn(|k| self.place.path(&format!("m{k}")))
    }

    fn stop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        self.child.wait().unwrap();
    }
}

impl Drop for MpiJob {
    fn drop(&mut self) {
        self.stop();
        if std::thread::panicking() {
            eprintln!("{}", logs(&self.place));
        }
    }
}

/// A descriptor whose attributes the kernel shows without looking up a name, and without an open at the server.
fn by_path(path: &Path) -> File {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty()).unwrap().into()
}

/// What `stat` says, but for the time of last access.
fn attributes(file: &File) -> [i64; 8] {
    let meta = file.metadata().unwrap();
    [
        meta.mode().into(),
        meta.nlink() as i64,
        meta.uid().into(),
        meta.size() as i64,
        meta.mtime(),
        meta.mtime_nsec(),
        meta.ctime(),
        meta.ctime_nsec(),
    ]
}

/// Requests that a server has read so far.
fn reads(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/io")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("syscr: "));
    line.unwrap().parse().unwrap()
}

/// A change of `dir/file` or of `dir`, through the mount at `root`.
type Change = fn(root: &Path);

const CHANGES: [(&str, Change); 9] = [
    ("chmod", |root| {
        let file = root.join("dir/file");
        let mode = fs::metadata(&file).unwrap().mode() ^ 0o11;
        fs::set_permissions(file, Permissions::from_mode(mode)).unwrap();
    }),
    ("chmod of the directory", |root| {
        let dir = root.join("dir");
        let mode = fs::metadata(&dir).unwrap().mode() ^ 0o11;
        fs::set_permissions(dir, Permissions::from_mode(mode)).unwrap();
    }),
    ("utimens", |root| {
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1234);
        let file = File::open(root.join("dir/file")).unwrap();
        file.set_modified(time).unwrap();
    }),
    ("write and close", |root| {
        fs::write(root.join("dir/file"), root.to_string_lossy().as_bytes()).unwrap();
    }),
    ("truncate", |root| {
        let mut options = OpenOptions::new();
        let file = options.write(true).open(root.join("dir/file")).unwrap();
        file.set_len(3).unwrap();
    }),
    ("create and link", |root| {
        fs::write(root.join("dir/new"), "").unwrap();
        fs::hard_link(root.join("dir/file"), root.join("dir/link")).unwrap();
    }),
    ("unlink", |root| {
        fs::remove_file(root.join("dir/link")).unwrap();
        fs::remove_file(root.join("dir/new")).unwrap();
    }),
    ("mkdir", |root| {
        fs::create_dir(root.join("dir/sub")).unwrap();
    }),
    ("rmdir", |root| {
        fs::remove_dir(root.join("dir/sub")).unwrap();
    }),
];

#[test]
fn attributes_that_a_kernel_keeps_are_those_after_a_change_by_another_process() {
    let Some(mut job) = MpiJob::start() else {
        return;
    };
    let roots = job.roots();
    fs::create_dir(roots[0].join("dir")).unwrap();
    fs::write(roots[0].join("dir/file"), "first").unwrap();
    let mut kept = false;
    for round in 0..2 * N {
        let changer = round % N;
        for (name, change) in CHANGES {
            let open = |root: &PathBuf| ["dir/file", "dir"].map(|path| by_path(&root.join(path)));
            let held: Vec<[File; 2]> = roots.iter().map(open).collect();
            let shown = |files: &[File; 2]| [&files[0], &files[1]].map(attributes);
            // Twice, so that the second answers come from the kernels.
            for files in held.iter().chain(&held) {
                shown(files);
            }
            change(&roots[changer]);
            let after: Vec<_> = held.iter().map(shown).collect();
            for node in 0..N {
                assert_eq!(
                    after[node], after[changer],
                    "round {round}: after {name} on node {changer}, node {node} shows something else"
                );
            }
        }
        // What nobody changes is leased again: then a look at it is no request.
        std::thread::sleep(Duration::from_millis(400));
        let (dir, pid) = (
            by_path(&roots[changer].join("dir")),
            server(&job.place, changer),
        );
        const LOOKS: u64 = 200;
        let before = reads(pid);
        let first = attributes(&dir);
        (1..LOOKS).for_each(|_| assert_eq!(attributes(&dir), first));
        kept |= reads(pid) - before < LOOKS / 2;
    }
    assert!(kept, "the kernels never kept anything");
    job.stop();
    nothing(&job.place);
}

#[test]
fn names_of_directories_that_a_kernel_keeps_are_those_after_a_change_by_another_process() {
    let Some(mut job) = MpiJob::start() else {
        return;
    };
    let roots = job.roots();
    for name in ["a", "b", "a/sub"] {
        fs::create_dir(roots[0].join(name)).unwrap();
    }
    fs::write(roots[0].join("a/sub/file"), "x").unwrap();
    let missing = |path: PathBuf| fs::metadata(path).unwrap_err().raw_os_error();
    let mut at = "a/sub".to_string();
    for round in 0..3 * N {
        let (changer, other) = (round % N, (round + 1) % N);
        for root in roots.iter().chain(&roots) {
            assert!(root.join(&at).join("file").metadata().unwrap().is_file());
        }
        let to = format!("{}/sub{}", ["a", "b"][round / 2 % 2], round % 3);
        fs::rename(roots[changer].join(&at), roots[changer].join(&to)).unwrap();
        for root in &roots {
            if at != to {
                assert_eq!(missing(root.join(&at)), Some(libc::ENOENT), "round {round}");
            }
            assert!(root.join(&to).join("file").metadata().unwrap().is_file());
        }
        at = to;
        // One that is made anew under the same name is another one.
        let again = |root: &PathBuf| fs::metadata(root.join("again")).unwrap().ino();
        fs::create_dir(roots[changer].join("again")).unwrap();
        let first: Vec<u64> = roots.iter().map(again).collect();
        fs::remove_dir(roots[other].join("again")).unwrap();
        for root in &roots {
            let gone = missing(root.join("again"));
            assert_eq!(gone, Some(libc::ENOENT), "round {round}");
        }
        fs::create_dir(roots[changer].join("again")).unwrap();
        for (root, first) in roots.iter().zip(&first) {
            assert_ne!(again(root), *first, "round {round}");
        }
        fs::remove_dir(roots[changer].join("again")).unwrap();
    }
    job.stop();
    nothing(&job.place);
}
