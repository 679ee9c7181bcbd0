//! What is leased to a node's kernel is never older there than what another node has been answered.
use crate::common::{Harness, Setup, create_new, errno};
use forebay_testkit::turns;
use std::ffi::CString;
use std::fs::{self, File, OpenOptions, Permissions};
use std::os::fd::FromRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

/// A descriptor whose attributes the kernel shows without looking up a name, and without an open at the server.
fn by_path(path: &Path) -> File {
    let path = CString::new(path.as_os_str().as_bytes()).unwrap();
    // SAFETY: the path ends with a zero byte.
    let fd = unsafe { libc::open(path.as_ptr(), libc::O_PATH | libc::O_CLOEXEC) };
    assert!(fd >= 0, "{}", std::io::Error::last_os_error());
    // SAFETY: it is a new descriptor, and nobody else has it.
    unsafe { File::from_raw_fd(fd) }
}

fn set_seconds(path: &Path, seconds: u64) {
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    File::open(path).unwrap().set_modified(time).unwrap();
}

/// What `stat` says, but for the time of last access.
fn attributes(meta: &fs::Metadata) -> [i64; 8] {
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

/// A change of `file` or of directory `dir`, made through the mount at `root`.
type Change = fn(root: &Path);

const CHANGES: [(&str, Change); 12] = [
    ("chmod", |root| {
        let mode = fs::metadata(root.join("dir/file")).unwrap().mode() ^ 0o11;
        fs::set_permissions(root.join("dir/file"), Permissions::from_mode(mode)).unwrap();
    }),
    ("chmod of a directory", |root| {
        let mode = fs::metadata(root.join("dir")).unwrap().mode() ^ 0o11;
        fs::set_permissions(root.join("dir"), Permissions::from_mode(mode)).unwrap();
    }),
    ("utimens", |root| set_seconds(&root.join("dir/file"), 1234)),
    ("write and close", |root| {
        fs::write(root.join("dir/file"), root.to_string_lossy().as_bytes()).unwrap();
    }),
    ("append", |root| {
        let mut options = OpenOptions::new();
        let file = options.append(true).open(root.join("dir/file")).unwrap();
        std::io::Write::write_all(&mut &file, b"more").unwrap();
    }),
    ("truncate", |root| {
        let mut options = OpenOptions::new();
        let file = options.write(true).open(root.join("dir/file")).unwrap();
        file.set_len(3).unwrap();
    }),
    ("link", |root| {
        fs::hard_link(root.join("dir/file"), root.join("dir/other")).unwrap();
    }),
    ("unlink", |root| {
        fs::remove_file(root.join("dir/other")).unwrap();
    }),
    ("mkdir", |root| {
        fs::create_dir(root.join("dir/sub")).unwrap();
    }),
    ("rmdir", |root| {
        fs::remove_dir(root.join("dir/sub")).unwrap()
    }),
    ("rename away", |root| {
        fs::rename(root.join("dir/file"), root.join("file")).unwrap();
    }),
    ("rename back", |root| {
        fs::rename(root.join("file"), root.join("dir/file")).unwrap();
    }),
];

#[test]
fn attributes_that_a_kernel_keeps_are_those_after_a_change_on_another_node() {
    let _turn = turns::exclusive();
    let Some(h) = Harness::four() else { return };
    let roots = h.all();
    fs::create_dir(roots[0].join("dir")).unwrap();
    fs::write(roots[0].join("dir/file"), "first").unwrap();
    for (round, changer) in [0, 1, 2, 3, 0].into_iter().enumerate() {
        for (name, change) in CHANGES {
            let open = |root: &PathBuf| {
                let file = root.join(match name {
                    "rename back" => "file",
                    _ => "dir/file",
                });
                [by_path(&file), by_path(&root.join("dir"))]
            };
            let held: Vec<[File; 2]> = roots.iter().map(open).collect();
            let shown = |files: &[File; 2]| {
                let attributes = |file: &File| attributes(&file.metadata().unwrap());
                [attributes(&files[0]), attributes(&files[1])]
            };
            // Twice, so that the second answers come from the kernels.
            for files in held.iter().chain(&held) {
                shown(files);
            }
            change(&roots[changer]);
            let after: Vec<_> = held.iter().map(shown).collect();
            for node in 0..roots.len() {
                assert_eq!(
                    after[node], after[changer],
                    "round {round}: after {name} on node {changer}, node {node} shows something else"
                );
            }
        }
    }
}

#[test]
fn names_of_directories_that_a_kernel_keeps_are_those_after_a_change_on_another_node() {
    let _turn = turns::exclusive();
    let Some(h) = Harness::four() else { return };
    let roots = h.all();
    for name in ["a", "b", "a/sub"] {
        fs::create_dir(roots[0].join(name)).unwrap();
    }
    fs::write(roots[0].join("a/sub/file"), "x").unwrap();
    let mut at = "a/sub".to_string();
    for round in 0..24 {
        let (changer, other) = (round % 4, (round + 1) % 4);
        for root in roots.iter().chain(&roots) {
            assert!(root.join(&at).join("file").metadata().unwrap().is_file());
        }
        let to = format!("{}/sub{}", ["a", "b"][round / 2 % 2], round % 3);
        fs::rename(roots[changer].join(&at), roots[changer].join(&to)).unwrap();
        for root in &roots {
            // First: when the kernel finds the directory at its new place, it forgets the old one.
            if at != to {
                assert_eq!(
                    errno(root.join(&at).metadata()),
                    libc::ENOENT,
                    "round {round}"
                );
            }
            assert!(root.join(&to).join("file").metadata().unwrap().is_file());
        }
        at = to;
        // One that is made anew under the same name is another one.
        let again = |root: &Path| root.join("again").metadata().map(|meta| meta.ino());
        fs::create_dir(roots[changer].join("again")).unwrap();
        let first: Vec<u64> = roots.iter().map(|root| again(root).unwrap()).collect();
        fs::remove_dir(roots[other].join("again")).unwrap();
        for root in &roots {
            assert_eq!(errno(again(root)), libc::ENOENT, "round {round}");
        }
        fs::create_dir(roots[changer].join("again")).unwrap();
        for (root, first) in roots.iter().zip(&first) {
            assert_ne!(again(root).unwrap(), *first, "round {round}");
        }
        fs::remove_dir(roots[changer].join("again")).unwrap();
    }
}

#[test]
fn a_directory_that_this_node_has_renamed_is_not_kept_under_its_new_name_when_another_node_renames_it()
 {
    let _turn = turns::exclusive();
    let Some(h) = Harness::four() else { return };
    let (here, there) = (h.mount(0), h.mount(1));
    for round in 0..20 {
        let [first, second, third] = [1, 2, 3].map(|n| format!("d{round}-{n}"));
        fs::create_dir(here.join(&first)).unwrap();
        // The kernel keeps the name, and moves it with what is left of its time.
        assert!(here.join(&first).metadata().unwrap().is_dir());
        fs::rename(here.join(&first), here.join(&second)).unwrap();
        fs::rename(there.join(&second), there.join(&third)).unwrap();
        assert_eq!(
            errno(here.join(&second).metadata()),
            libc::ENOENT,
            "round {round}"
        );
        fs::remove_dir(there.join(&third)).unwrap();
    }
}

/// One thread changes, and says how far it is once it has been answered; on the other nodes others look all the time, and must not
/// see less than was said before they looked.
fn watched(
    steps: u64,
    h: &Harness,
    change: impl Fn(&Path, u64) + Sync,
    look: impl Fn(&Path) -> u64 + Sync,
) {
    let roots = h.all();
    let said = AtomicU64::new(0);
    let begin = Instant::now();
    std::thread::scope(|scope| {
        for root in &roots[1..] {
            let (look, said) = (&look, &said);
            scope.spawn(move || {
                loop {
                    let before = said.load(Ordering::SeqCst);
                    let seen = look(root);
                    assert!(
                        seen >= before,
                        "{}: {seen} after {before} had been answered elsewhere",
                        root.display()
                    );
                    if before == steps {
                        break;
                    }
                }
            });
        }
        for step in 1..=steps {
            change(&roots[0], step);
            said.store(step, Ordering::SeqCst);
            // Leases are given again after a while without changes, which is longer each time, and short again after a long one.
            let pause = match step % 20 {
                0 => 700,
                _ => 7 << (step % 4),
            };
            std::thread::sleep(Duration::from_millis(pause));
        }
    });
    eprintln!("{steps} changes in {:?}", begin.elapsed());
}

#[test]
fn whoever_looks_after_a_change_was_answered_sees_it() {
    let _turn = turns::exclusive();
    let Some(h) = Harness::four() else { return };
    let root = h.mount(0);
    fs::create_dir_all(root.join("outer/dir")).unwrap();
    fs::write(root.join("outer/dir/file"), "").unwrap();
    let seconds = |path: PathBuf| fs::metadata(path).unwrap().mtime() as u64;
    for path in ["outer/dir/file", "outer/dir"] {
        set_seconds(&root.join(path), 0);
        watched(
            80,
            &h,
            |root, step| set_seconds(&root.join(path), step),
            |root| seconds(root.join(path)),
        );
    }
    // By what is made in a directory, and by where it is.
    fs::create_dir(root.join("count")).unwrap();
    let links = |root: &Path| fs::metadata(root.join("count")).unwrap().nlink() - 2;
    let make = |root: &Path, step: u64| fs::create_dir(root.join(format!("count/{step}"))).unwrap();
    watched(60, &h, make, links);
    fs::create_dir(root.join("moved-0")).unwrap();
    let place = |root: &Path, step: u64| root.join(format!("moved-{step}"));
    let moved = |root: &Path, step| fs::rename(place(root, step - 1), place(root, step)).unwrap();
    let look = |root: &Path| {
        (0..=60)
            .rev()
            .find(|n| place(root, *n).exists())
            .unwrap_or(60)
    };
    watched(60, &h, moved, look);
}

#[test]
fn a_new_file_is_shown_to_who_made_it_as_others_change_it() {
    let _turn = turns::exclusive();
    let Some(h) = Harness::four() else { return };
    for round in 0..40usize {
        let name = format!("f{round}");
        let (maker, other) = (h.mount(round % 4), h.mount((round + 1) % 4));
        let made = create_new(&maker.join(&name));
        assert_eq!(made.metadata().unwrap().len(), 0);
        fs::set_permissions(other.join(&name), Permissions::from_mode(0o613)).unwrap();
        assert_eq!(
            made.metadata().unwrap().mode() & 0o777,
            0o613,
            "round {round}"
        );
        fs::write(other.join(&name), "from another node").unwrap();
        assert_eq!(made.metadata().unwrap().len(), 17, "round {round}");
        drop(made);
        // By another handle of the maker's node.
        let name = format!("g{round}");
        let made = create_new(&maker.join(&name));
        let mut options = OpenOptions::new();
        let beside = options.append(true).open(maker.join(&name)).unwrap();
        std::io::Write::write_all(&mut &beside, b"beside").unwrap();
        assert_eq!(made.metadata().unwrap().len(), 6, "round {round}");
        fs::remove_file(other.join(&name)).unwrap();
        assert_eq!(made.metadata().unwrap().nlink(), 0, "round {round}");
    }
}

/// Requests that a server has read so far.
fn reads(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/io")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("syscr: "));
    line.unwrap().parse().unwrap()
}

/// So many requests, and the reads by which the server finds out where their caller runs: one in eight replies at most.
fn with_looks(requests: u64) -> u64 {
    requests + requests / 8
}

#[test]
fn a_path_that_nobody_changes_is_looked_up_by_its_last_name_only() {
    let _turn = turns::exclusive();
    let Some(h) = Harness::start(Setup {
        nodes: 2,
        ..Setup::default()
    }) else {
        return;
    };
    let dir = "outer/middle/inner";
    fs::create_dir_all(h.mount(0).join(dir)).unwrap();
    const FILES: u64 = 500;
    let file = |root: PathBuf, n: u64| root.join(dir).join(n.to_string());
    for n in 0..FILES {
        fs::write(file(h.mount(0), n), "x").unwrap();
    }
    let (before, begin) = (reads(h.server_pid()), Instant::now());
    for n in 0..FILES {
        assert_eq!(fs::metadata(file(h.mount(1), n)).unwrap().len(), 1);
    }
    // Each lease has to be asked for anew now and then: at four inodes' attributes, and three names.
    let anew = 7 * (begin.elapsed().as_millis() as u64 / 40 + 2);
    let asked = reads(h.server_pid()) - before;
    eprintln!("{FILES} files: {asked} requests in {:?}", begin.elapsed());
    assert!(
        asked <= with_looks(FILES * 3 / 2) + anew,
        "{asked} requests, {anew} of them for leases"
    );
    // A create asks for the attributes of its directory, which the last one has changed, looks the name up, makes the file, and
    // closes it in two requests.
    let (before, begin) = (reads(h.server_pid()), Instant::now());
    for n in 0..FILES {
        create_new(&file(h.mount(1), FILES + n));
    }
    let anew = 7 * (begin.elapsed().as_millis() as u64 / 40 + 2);
    let asked = reads(h.server_pid()) - before;
    eprintln!(
        "{FILES} files made: {asked} requests in {:?}",
        begin.elapsed()
    );
    assert!(
        asked <= with_looks(FILES * 11 / 2) + anew,
        "{asked} requests to make files, {anew} of them for leases"
    );
}
