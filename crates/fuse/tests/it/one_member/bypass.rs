//! What the library and staging do in the process that serves a mount: programs of the mount see it, and it sees what they wrote.
use super::WAYS;
use super::writer::WriterProcess;
use crate::common::{Setup, create_new, open, role, start_ready};
use forebay_client::stage::{Direction, LocalNode, PathPair, StageOptions, StageOutcome, StageRun};
use forebay_client::{Client, Fallocate, File, LockMode, LockRange, OpenOptions};
use forebay_fuse::{MountOptions, PendingMount};
use forebay_server::{Config, Service};
use forebay_storage::OsIo;
use forebay_testkit::prerequisites::has_fuse;
use forebay_testkit::random::seeded_bytes;
use forebay_testkit::turns::{self, Turn};
use forebay_testkit::wait::until;
use rustix::fs::{FlockOperation, fcntl_lock, flock};
use rustix::io::Errno;
use std::collections::HashMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// The serving process: does what it is told, a line at a time, around its mount; says what became of it.
pub fn serve(store: &Path, mount: &Path, write_back: bool) {
    let config = Config {
        nodes: 1,
        memory: 32 << 20,
        ..Config::default()
    };
    let service = Service::start(Arc::new(OsIo), &store.join("service"), config).unwrap();
    let options = MountOptions {
        write_back,
        ..MountOptions::default()
    };
    let pending = PendingMount::mount(mount, options).unwrap();
    let mounted = pending.answer(service.delegate(0)).unwrap();
    let client = Client::new(service.delegate(0));
    println!("\nREADY");
    let mut open = HashMap::new();
    for line in std::io::stdin().lines() {
        println!("{}", act(&client, store, &mut open, &line.unwrap()));
    }
    drop(open);
    if let Err(error) = mounted.stop() {
        // A process that a test beside this one is just starting may have this one's files.
        eprintln!("{error}");
    }
    service.stop().unwrap();
}

fn act(client: &Client, store: &Path, open: &mut HashMap<String, File>, line: &str) -> String {
    let words: Vec<&str> = line.split(' ').collect();
    let name = words[1];
    let number = |n: usize| words[n].parse::<u64>().unwrap();
    let bytes = |seed, len| seeded_bytes(number(seed), number(len) as usize);
    let done = match words[0] {
        "open" => OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .open(client, name)
            .map(|file| drop(open.insert(name.into(), file))),
        "create" => client
            .create(name)
            .map(|file| drop(open.insert(name.into(), file))),
        "write" => open[name].write_at(&bytes(4, 3), number(2)),
        "cut" => open[name].set_len(number(2)),
        "punch" => {
            let how = Fallocate {
                punch: true,
                zero: false,
                keep_size: true,
            };
            open[name].allocate(how, number(2), number(3))
        }
        "commit" => open[name].commit(),
        "lock" => {
            let locked = open[name].try_lock(&locked(words[2]), LockMode::Exclusive);
            return locked.unwrap().to_string();
        }
        "unlock" => open[name].unlock(&locked(words[2])),
        "count" => (0..number(2)).try_for_each(|_| {
            let (file, range) = (&open[name], locked(words[3]));
            file.lock(&range, LockMode::Exclusive)?;
            let mut counted = [0; 8];
            file.read_at(&mut counted, 0)?;
            file.write_at(&(u64::from_le_bytes(counted) + 1).to_le_bytes(), 0)?;
            file.unlock(&range)
        }),
        "close" => open.remove(name).unwrap().close(),
        "time" => {
            let time = SystemTime::UNIX_EPOCH + Duration::from_secs(number(2));
            client.attributes(name).set_modified(time)
        }
        "mode" => client.attributes(name).set_permissions(number(2) as u32),
        "rename" => client.rename(name, words[2]),
        "len" => return client.metadata(name).unwrap().len().to_string(),
        "mtime" => {
            let modified = client.metadata(name).unwrap().modified().unwrap();
            let since = modified.duration_since(SystemTime::UNIX_EPOCH).unwrap();
            return format!("{} {}", since.as_secs(), since.subsec_nanos());
        }
        "same" => return (client.read(name).unwrap() == bytes(3, 2)).to_string(),
        "in" => return stage(client, store, Direction::In, words[2], name),
        "out" => return stage(client, store, Direction::Out, name, words[2]),
        _ => panic!("{line}"),
    };
    done.map_or_else(|e| e.to_string(), |()| String::from("done"))
}

/// What of a file is locked, by the word for it: all its bytes, or the file as a whole.
fn locked(what: &str) -> LockRange {
    match what {
        "bytes" => LockRange::bytes(..),
        _ => LockRange::WholeFile,
    }
}

fn stage(client: &Client, store: &Path, direction: Direction, from: &str, to: &str) -> String {
    let pair = PathPair {
        from: from.into(),
        to: to.into(),
    };
    let node = LocalNode {
        node: 0,
        client: client.clone(),
        journals: store.join("journals"),
    };
    let options = StageOptions::default();
    let run = StageRun::new(direction, vec![pair], options, 1, vec![node], "test").unwrap();
    match run.run() {
        StageOutcome::Done => String::from("done"),
        outcome => format!("{outcome:?}"),
    }
}

/// A service of one member, its mount, and the library in its process.
struct MountedLibrary {
    dir: Option<tempfile::TempDir>,
    setup: Setup,
    server: Option<(Child, BufReader<ChildStdout>)>,
    _turn: Turn,
}

impl MountedLibrary {
    fn start(setup: Setup) -> Option<MountedLibrary> {
        if !has_fuse() {
            return None;
        }
        let turn = turns::shared();
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("mount")).unwrap();
        fs::create_dir(dir.path().join("store")).unwrap();
        let mut library = MountedLibrary {
            dir: Some(dir),
            setup,
            server: None,
            _turn: turn,
        };
        library.serve();
        Some(library)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.as_ref().unwrap().path().join(name)
    }

    /// A file of the mount.
    fn file(&self, name: &str) -> PathBuf {
        self.path("mount").join(name)
    }

    fn serve(&mut self) {
        let [store, mount] = ["store", "mount"].map(|name| self.path(name));
        let write_back = self.setup.write_back.to_string();
        let args = [
            store.to_str().unwrap(),
            mount.to_str().unwrap(),
            &write_back,
        ];
        let mut child = start_ready(role("library", &args)).unwrap();
        let said = BufReader::new(child.stdout.take().unwrap());
        self.server = Some((child, said));
    }

    /// Has it do something around the mount; what it says.
    fn ask(&mut self, what: &str) -> String {
        self.tell(what);
        self.answer()
    }

    fn tell(&mut self, what: &str) {
        let (child, _) = self.server.as_mut().unwrap();
        writeln!(child.stdin.as_mut().unwrap(), "{what}").unwrap();
    }

    fn answer(&mut self) -> String {
        let (_, said) = self.server.as_mut().unwrap();
        let mut answer = String::new();
        said.read_line(&mut answer).unwrap();
        answer.trim().to_string()
    }

    #[track_caller]
    fn act(&mut self, what: &str) {
        assert_eq!(self.ask(what), "done", "{what}");
    }

    fn stop(&mut self) {
        if let Some((mut child, _)) = self.server.take() {
            drop(child.stdin.take());
            assert!(child.wait().unwrap().success());
        }
    }

    fn restart(&mut self) {
        self.stop();
        self.serve();
    }
}

impl Drop for MountedLibrary {
    fn drop(&mut self) {
        if let Some((mut child, _)) = self.server.take() {
            drop(child.stdin.take());
            let _ = child.wait();
        }
        let point = fs::canonicalize(self.path("mount")).unwrap_or_else(|_| self.path("mount"));
        let mounted = forebay_fuse::mounts().unwrap();
        if mounted.iter().any(|m| m.point == point) && forebay_fuse::unmount(&point, true).is_err()
        {
            // Never remove files through a mount.
            eprintln!(
                "left behind: {:?}",
                self.dir.take().map(tempfile::TempDir::keep)
            );
        }
    }
}

/// Attributes may be kept for a second: what is shown is right within some.
#[track_caller]
fn shows(path: &Path, what: &str, right: impl Fn(&fs::Metadata) -> bool) {
    until(what, || fs::metadata(path).is_ok_and(|m| right(&m)));
}

#[test]
fn a_file_that_the_library_changes_is_seen_through_the_mount() {
    for setup in WAYS {
        let Some(mut library) = MountedLibrary::start(setup) else {
            return;
        };
        let path = library.file("f");
        // Known to the kernel, with pages, but not open.
        fs::write(&path, seeded_bytes(1, 100_000)).unwrap();
        assert_eq!(fs::read(&path).unwrap().len(), 100_000);
        let mut want = seeded_bytes(2, 150_000);
        library.act("open /f");
        library.act("write /f 0 150000 2");
        library.act("close /f");
        shows(&path, "the new size", |m| m.len() == 150_000);
        assert!(fs::read(&path).unwrap() == want, "{setup:?}");
        // Open for reading meanwhile.
        let reader = fs::File::open(&path).unwrap();
        let mut part = [0; 10];
        reader.read_exact_at(&mut part, 0).unwrap();
        library.act("open /f");
        library.act("write /f 0 10 3");
        want[..10].copy_from_slice(&seeded_bytes(3, 10));
        library.act("commit /f");
        reader.read_exact_at(&mut part, 0).unwrap();
        assert!(part == want[..10], "{setup:?}: pages of an open file");
        for len in [70_001, 120_000] {
            library.act(&format!("cut /f {len}"));
            want.truncate(len);
            want.resize(len, 0);
            shows(&path, "a cut", |m| m.len() == len as u64);
            assert!(fs::read(&path).unwrap() == want, "{setup:?}: cut to {len}");
            until("an open file is as long", || {
                reader.metadata().unwrap().len() == len as u64
            });
        }
        library.act("punch /f 20000 30000");
        library.act("close /f");
        want[20_000..50_000].fill(0);
        assert!(fs::read(&path).unwrap() == want, "{setup:?}: a hole");
        // Its time, and that it was emptied.
        library.act("time /f 1000000007");
        shows(&path, "the time", |m| {
            (m.mtime(), m.mtime_nsec()) == (1_000_000_007, 0)
        });
        library.act("create /f");
        shows(&path, "an empty file", |m| m.len() == 0);
        library.act("close /f");
        drop(reader);
        // What programs then write is right, too.
        open(&path).write_all_at(b"more", 5).unwrap();
        library.restart();
        assert_eq!(fs::read(&path).unwrap(), b"\0\0\0\0\0more", "{setup:?}");
    }
}

#[test]
fn locks_of_the_library_and_of_programs_of_the_mount_exclude_each_other() {
    const TIMES: u64 = 150;
    for (setup, what) in WAYS.into_iter().flat_map(|w| [(w, "bytes"), (w, "whole")]) {
        let Some(mut library) = MountedLibrary::start(setup) else {
            return;
        };
        let path = library.file("f");
        fs::write(&path, [0; 8]).unwrap();
        let file = open(&path);
        let lock = |operation| match what {
            "bytes" => fcntl_lock(&file, operation),
            _ => flock(&file, operation),
        };
        library.act("open /f");
        lock(FlockOperation::LockExclusive).unwrap();
        assert_eq!(
            library.ask(&format!("lock /f {what}")),
            "false",
            "{setup:?}"
        );
        lock(FlockOperation::Unlock).unwrap();
        assert_eq!(library.ask(&format!("lock /f {what}")), "true", "{setup:?}");
        let refused = lock(FlockOperation::NonBlockingLockExclusive);
        assert_eq!(refused, Err(Errno::AGAIN), "{setup:?}");
        library.act(&format!("unlock /f {what}"));

        // What is written under a lock is read under the next, also by the other.
        library.tell(&format!("count /f {TIMES} {what}"));
        let mut counted = [0; 8];
        for _ in 0..TIMES {
            lock(FlockOperation::LockExclusive).unwrap();
            file.read_exact_at(&mut counted, 0).unwrap();
            let more = u64::from_le_bytes(counted) + 1;
            file.write_all_at(&more.to_le_bytes(), 0).unwrap();
            lock(FlockOperation::Unlock).unwrap();
        }
        assert_eq!(library.answer(), "done", "{setup:?}");
        lock(FlockOperation::LockExclusive).unwrap();
        file.read_exact_at(&mut counted, 0).unwrap();
        assert_eq!(u64::from_le_bytes(counted), 2 * TIMES, "{setup:?}, {what}");
    }
}

#[test]
fn a_temporary_file_that_was_listed_has_its_size_under_its_name() {
    for setup in WAYS {
        let Some(mut library) = MountedLibrary::start(setup) else {
            return;
        };
        for n in 0..20 {
            let (temporary, name) = (format!(".temporary{n}"), format!("name{n}"));
            library.act(&format!("create /{temporary}"));
            library.act(&format!("write /{temporary} 0 5000 {n}"));
            // As `ls -l` does.
            let m = fs::metadata(library.file(&temporary)).unwrap();
            assert!(m.len() <= 5000);
            library.act(&format!("write /{temporary} 5000 200000 {n}"));
            library.act(&format!("close /{temporary}"));
            library.act(&format!("mode /{temporary} {}", 0o444));
            library.act(&format!("time /{temporary} {}", 1_000_000_000 + n));
            library.act(&format!("rename /{temporary} /{name}"));
            let path = library.file(&name);
            until("it has its name", || path.exists());
            let m = fs::metadata(&path).unwrap();
            assert_eq!(m.len(), 205_000, "{setup:?}: {n}");
            assert_eq!(m.mtime(), 1_000_000_000 + n, "{setup:?}: {n}");
            let read = fs::read(&path).unwrap();
            assert!(
                read[5000..] == seeded_bytes(n as u64, 200_000),
                "{setup:?}: {n}"
            );
        }
    }
}

#[test]
fn what_is_staged_in_while_it_is_listed_is_right_and_what_is_staged_out_is_whole() {
    for setup in WAYS {
        let Some(mut library) = MountedLibrary::start(setup) else {
            return;
        };
        const FILES: u64 = 500;
        let (source, out) = (library.path("source"), library.path("out"));
        fs::create_dir(&source).unwrap();
        for n in 0..FILES {
            fs::write(
                source.join(format!("f{n}")),
                seeded_bytes(n, 30_000 + n as usize),
            )
            .unwrap();
        }
        let within = library.file("in");
        fs::create_dir(&within).unwrap();
        let ended = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let end = ended.clone();
        let lister = std::thread::spawn(move || {
            let mut seen = 0;
            let list = |dir: &Path| fs::read_dir(dir).into_iter().flatten().flatten();
            while !end.load(std::sync::atomic::Ordering::SeqCst) {
                // Names that are not there yet are not asked for: that they are not would be kept for a while.
                for entry in list(&within).flat_map(|dir| list(&dir.path())) {
                    seen += u64::from(entry.metadata().is_ok());
                }
            }
            seen
        });
        library.act(&format!("in /in/tree {}", source.display()));
        ended.store(true, std::sync::atomic::Ordering::SeqCst);
        let seen = lister.join().unwrap();
        println!("{setup:?}: looked at {seen} files meanwhile");
        for n in 0..FILES {
            let name = format!("f{n}");
            let path = library.file("in/tree").join(&name);
            let of = |path: &Path| {
                let m = fs::metadata(path).unwrap();
                (m.len(), m.mtime(), m.mtime_nsec())
            };
            // An answer from before the end may have been on its way to the kernel: looked at again within seconds.
            until(&name, || of(&path) == of(&source.join(&name)));
            assert!(fs::read(&path).unwrap() == seeded_bytes(n, 30_000 + n as usize));
        }
        // Out, while a program holds some of it in the kernel.
        let held = library.file("in/tree/f7");
        let mut writer = WriterProcess::start(&held);
        assert_eq!(writer.write(0, 100_000, 77), 0);
        let time = writer.ask("mtime");
        library.act(&format!("out /in/tree {}", out.display()));
        let copied = out.join("f7");
        assert!(
            fs::read(&copied).unwrap() == seeded_bytes(77, 100_000),
            "{setup:?}"
        );
        let m = fs::metadata(&copied).unwrap();
        assert_eq!(
            format!("{} {}", m.mtime(), m.mtime_nsec()),
            time,
            "{setup:?}"
        );
        assert_eq!(writer.number("close"), 0);
    }
}

#[test]
fn the_library_sees_what_programs_have_just_written() {
    for setup in WAYS {
        let Some(mut library) = MountedLibrary::start(setup) else {
            return;
        };
        let path = library.file("f");
        let f = create_new(&path);
        f.write_all_at(&seeded_bytes(1, 300_000), 0).unwrap();
        assert_eq!(library.ask("len /f"), "300000", "{setup:?}");
        assert_eq!(library.ask("same /f 300000 1"), "true", "{setup:?}");
        let m = f.metadata().unwrap();
        assert_eq!(
            library.ask("mtime /f"),
            format!("{} {}", m.mtime(), m.mtime_nsec())
        );
        // Over it, then beneath it: the later write stays, whoever made it.
        let mut want = seeded_bytes(1, 300_000);
        f.write_all_at(&[7; 9000], 10_000).unwrap();
        want[10_000..19_000].fill(7);
        library.act("open /f");
        library.act("write /f 12000 3000 5");
        want[12_000..15_000].copy_from_slice(&seeded_bytes(5, 3000));
        library.act("commit /f");
        let mut seen = vec![0; 300_000];
        f.read_exact_at(&mut seen, 0).unwrap();
        assert!(seen == want, "{setup:?}");
        f.write_all_at(&[8; 1000], 13_000).unwrap();
        want[13_000..14_000].fill(8);
        // Made longer by the library while a program has it open for writing: shown at the last close at the latest.
        library.act("write /f 300000 5000 6");
        want.extend(seeded_bytes(6, 5000));
        library.act("close /f");
        f.write_all_at(&[9; 10], 0).unwrap();
        want[..10].fill(9);
        drop(f);
        shows(&path, "the size", |m| m.len() == 305_000);
        assert!(fs::read(&path).unwrap() == want, "{setup:?}");
        library.restart();
        assert!(
            fs::read(&path).unwrap() == want,
            "{setup:?}: after a restart"
        );
    }
}

#[test]
fn a_program_that_writes_loses_nothing_while_the_library_does() {
    for setup in WAYS {
        let Some(mut library) = MountedLibrary::start(setup) else {
            return;
        };
        const PIECES: usize = 300;
        // Whole pages: the kernel writes back no less, so what shares a page with a program's bytes may go with it.
        const PIECE: usize = 8192;
        let path = library.file("f");
        fs::write(&path, vec![1; PIECES * PIECE]).unwrap();
        // A program writes every other piece, each through a handle of its own; the library the others, with a commit each.
        let program = path.clone();
        let writer = std::thread::spawn(move || {
            for n in (0..PIECES).step_by(2) {
                let f = crate::common::open_to_write(&program);
                f.write_all_at(&[2; PIECE], (n * PIECE) as u64).unwrap();
                // And behind the end.
                f.write_all_at(&[4; 10], ((PIECES + n) * PIECE) as u64)
                    .unwrap();
            }
        });
        library.act("open /f");
        for n in (1..PIECES).step_by(2) {
            library.act(&format!("write /f {} {PIECE} 3", n * PIECE));
            library.act("commit /f");
        }
        writer.join().unwrap();
        library.act("close /f");
        let seeded = seeded_bytes(3, PIECE);
        for (n, piece) in want_pieces(&path, PIECES, PIECE).into_iter().enumerate() {
            let right = match n % 2 {
                0 => piece == [2; PIECE],
                _ => piece == seeded,
            };
            assert!(right, "{setup:?}: piece {n}");
        }
        let all = fs::read(&path).unwrap();
        assert_eq!(all.len(), (2 * PIECES - 2) * PIECE + 10, "{setup:?}");
        for n in (0..PIECES).step_by(2) {
            assert_eq!(all[(PIECES + n) * PIECE..][..10], [4; 10], "{setup:?}: {n}");
        }
        library.restart();
        assert!(
            fs::read(&path).unwrap() == all,
            "{setup:?}: after a restart"
        );
    }
}

fn want_pieces(path: &Path, pieces: usize, len: usize) -> Vec<Vec<u8>> {
    let file = fs::File::open(path).unwrap();
    let piece = |n: usize| {
        let mut bytes = vec![0; len];
        file.read_exact_at(&mut bytes, (n * len) as u64).unwrap();
        bytes
    };
    (0..pieces).map(piece).collect()
}
