//! Advisory locks between mounts: exclusion, waiting, signals, death, deadlock, and what a lock shows.
use crate::common::{Harness, errno, has_program, open, start_role};
use forebay_testkit::wait::{LIMIT, until, until_some};
use forebay_testkit::{seeds, turns};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;

/// The work of this module's roles; whether it is one of them.
pub fn run_role(role: &str, args: &[&str]) -> bool {
    match (role, args) {
        // Locks (kind, start, len), says so, and keeps it until it is told to end.
        ("hold", [kind, path, start, len]) => {
            let f = open(Path::new(path));
            println!("\nWAITING");
            let range = (start.parse().unwrap(), len.parse().unwrap());
            match lock(&f, kind, libc::F_WRLCK, range, true) {
                Ok(()) => println!("\nGOT"),
                Err(e) => println!("\nERROR {}", e.raw_os_error().unwrap()),
            }
            let _ = std::io::stdin().read(&mut [0]);
            true
        }
        // Locks the first byte of one file, says so; told to go on, waits for that of another.
        ("cross", [kind, first, second]) => {
            let (a, b) = (open(Path::new(first)), open(Path::new(second)));
            lock(&a, kind, libc::F_WRLCK, (0, 1), true).unwrap();
            println!("\nHAS");
            let _ = std::io::stdin().read(&mut [0]);
            match lock(&b, kind, libc::F_WRLCK, (0, 1), true) {
                Ok(()) => println!("\nGOT"),
                Err(e) => println!("\nERROR {}", e.raw_os_error().unwrap()),
            }
            let _ = std::io::stdin().read(&mut [0]);
            true
        }
        // A handler without restart: the wait must end with EINTR.
        ("alarm", [path]) => {
            let f = open(Path::new(path));
            extern "C" fn rung(_: i32) {}
            // SAFETY: the handler does nothing; `sigaction` is plain data, and zero is no flags and an empty mask.
            unsafe {
                let mut action: libc::sigaction = std::mem::zeroed();
                action.sa_sigaction = rung as extern "C" fn(i32) as usize;
                assert_eq!(
                    libc::sigaction(libc::SIGALRM, &action, std::ptr::null_mut()),
                    0
                );
            }
            println!("\nWAITING");
            let refused = lock(&f, "posix", libc::F_WRLCK, (0, 1), true).unwrap_err();
            println!("\nERROR {}", refused.raw_os_error().unwrap());
            true
        }
        // Appends numbered records, each under a lock, reading the last one first.
        ("append", [kind, path, name, count]) => {
            let f = open(Path::new(path));
            for n in 0..count.parse::<u64>().unwrap() {
                lock(&f, kind, libc::F_WRLCK, (0, 0), true).unwrap();
                let end = f.metadata().unwrap().len();
                let before = if end == 0 {
                    0
                } else {
                    let mut last = [0; RECORD];
                    f.read_exact_at(&mut last, end - RECORD as u64).unwrap();
                    std::str::from_utf8(&last[..10])
                        .unwrap()
                        .parse::<u64>()
                        .unwrap()
                        + 1
                };
                let text = format!("{before:010} {name:>4} {n:010}");
                let record = format!("{text:<width$}\n", width = RECORD - 1);
                f.write_all_at(record.as_bytes(), end).unwrap();
                lock(&f, kind, libc::F_UNLCK, (0, 0), true).unwrap();
            }
            true
        }
        _ => false,
    }
}

const RECORD: usize = 48;

fn described(typ: i32, (start, len): (i64, i64)) -> libc::flock {
    // SAFETY: `flock` is plain data; zero is valid for every field.
    let mut l: libc::flock = unsafe { std::mem::zeroed() };
    (l.l_type, l.l_whence, l.l_start, l.l_len) = (typ as i16, libc::SEEK_SET as i16, start, len);
    l
}

fn lock(f: &File, kind: &str, typ: i32, range: (i64, i64), wait: bool) -> std::io::Result<()> {
    let l = described(typ, range);
    let done = match kind {
        "flock" => {
            let how = match typ {
                libc::F_RDLCK => libc::LOCK_SH,
                libc::F_WRLCK => libc::LOCK_EX,
                _ => libc::LOCK_UN,
            };
            let how = if wait { how } else { how | libc::LOCK_NB };
            // SAFETY: the descriptor is open.
            unsafe { libc::flock(f.as_raw_fd(), how) }
        }
        _ => {
            let command = match (kind, wait) {
                ("ofd", true) => libc::F_OFD_SETLKW,
                ("ofd", false) => libc::F_OFD_SETLK,
                (_, true) => libc::F_SETLKW,
                (_, false) => libc::F_SETLK,
            };
            // SAFETY: the descriptor is open and `l` lives through the call.
            unsafe { libc::fcntl(f.as_raw_fd(), command, &l) }
        }
    };
    match done {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// `(type, start, len, pid)` of the lock in the way.
fn in_the_way(f: &File, range: (i64, i64)) -> (i32, i64, i64, i32) {
    let mut l = described(libc::F_WRLCK, range);
    // SAFETY: the descriptor is open and `l` lives through the call.
    let done = unsafe { libc::fcntl(f.as_raw_fd(), libc::F_GETLK, &mut l) };
    assert_eq!(done, 0);
    (i32::from(l.l_type), l.l_start, l.l_len, l.l_pid)
}

/// Kills a process and waits until it is gone, but not for ever.
fn kill(mut child: Child) -> ExitStatus {
    child.kill().unwrap();
    let what = || "a killed process ends".into();
    until_some(LIMIT, what, || child.try_wait().unwrap())
}

/// Until a thread of the process is inside a call that waits for the mount.
fn until_asleep(child: &Child) {
    let tasks = format!("/proc/{}/task", child.id());
    until("it waits", || {
        std::fs::read_dir(&tasks).unwrap().flatten().any(|task| {
            let chan = std::fs::read_to_string(task.path().join("wchan")).unwrap_or_default();
            let stat = std::fs::read_to_string(task.path().join("stack")).unwrap_or_default();
            chan.contains("fuse") || chan.contains("request_wait") || stat.contains("fuse")
        })
    });
}

#[test]
fn locks_of_two_mounts_exclude_each_other_and_say_who_holds_them() {
    let _turn = turns::exclusive();
    let Some(h) = Harness::four() else { return };
    for kind in ["posix", "flock", "ofd"] {
        let a = open(&h.mount(1).join(kind));
        let b = open(&h.mount(2).join(kind));
        lock(&a, kind, libc::F_WRLCK, (0, 0), false).unwrap();
        assert_eq!(
            errno(lock(&b, kind, libc::F_WRLCK, (0, 0), false)),
            libc::EAGAIN
        );
        assert_eq!(
            errno(lock(&b, kind, libc::F_RDLCK, (0, 0), false)),
            libc::EAGAIN
        );
        // Shared with shared.
        lock(&a, kind, libc::F_RDLCK, (0, 0), false).unwrap();
        lock(&b, kind, libc::F_RDLCK, (0, 0), false).unwrap();
        assert_eq!(
            errno(lock(&b, kind, libc::F_WRLCK, (0, 0), false)),
            libc::EAGAIN
        );
        lock(&a, kind, libc::F_UNLCK, (0, 0), false).unwrap();
        lock(&b, kind, libc::F_WRLCK, (0, 0), false).unwrap();
        drop(b);
        // The release of an open file's locks follows its last close.
        let free = || lock(&a, kind, libc::F_WRLCK, (0, 0), false).is_ok();
        until("what was locked by what is closed is free", free);
    }
    let a = open(&h.mount(0).join("ranges"));
    let b = open(&h.mount(3).join("ranges"));
    lock(&a, "posix", libc::F_WRLCK, (100, 50), false).unwrap();
    lock(&a, "posix", libc::F_RDLCK, (120, 10), false).unwrap();
    // Same process: its own locks are not in its way. Through an open file's lock they are.
    assert_eq!(in_the_way(&a, (0, 0)).0, libc::F_UNLCK);
    lock(&b, "ofd", libc::F_RDLCK, (120, 10), false).unwrap();
    assert_eq!(
        errno(lock(&b, "ofd", libc::F_RDLCK, (119, 2), false)),
        libc::EAGAIN
    );
    assert_eq!(
        errno(lock(&b, "ofd", libc::F_WRLCK, (125, 2), false)),
        libc::EAGAIN
    );
    lock(&b, "ofd", libc::F_WRLCK, (150, 0), false).unwrap();
    // flock and record locks do not know of each other.
    lock(&b, "flock", libc::F_WRLCK, (0, 0), false).unwrap();
}

#[test]
fn a_lock_in_the_way_is_shown_with_its_process_on_this_node_only() {
    let _turn = turns::exclusive();
    let Some(h) = Harness::four() else { return };
    let path = h.mount(1).join("f");
    let (holder, mut lines) = start_role("hold", &["posix", path.to_str().unwrap(), "10", "5"]);
    lines.find(|l| l == "GOT").unwrap();
    let here = open(&path);
    assert_eq!(
        in_the_way(&here, (0, 0)),
        (libc::F_WRLCK, 10, 5, holder.id() as i32)
    );
    let there = open(&h.mount(2).join("f"));
    assert_eq!(in_the_way(&there, (0, 0)), (libc::F_WRLCK, 10, 5, 0));
    assert_eq!(in_the_way(&there, (0, 10)).0, libc::F_UNLCK);
    kill(holder);
    // A process is gone only when its files are closed, and then its locks are free.
    assert_eq!(in_the_way(&there, (0, 0)).0, libc::F_UNLCK);
}

#[test]
fn waits_end_with_the_lock_with_a_signal_or_with_the_waiter() {
    let _turn = turns::exclusive();
    let Some(h) = Harness::four() else { return };
    for kind in ["posix", "flock", "ofd"] {
        let path = h.mount(2).join(kind);
        let there = path.to_str().unwrap();
        let f = open(&h.mount(1).join(kind));
        lock(&f, kind, libc::F_WRLCK, (0, 1), false).unwrap();
        // Killed while it waits: it goes, and nothing is left locked.
        let (waiting, mut lines) = start_role("hold", &[kind, there, "0", "1"]);
        lines.find(|l| l == "WAITING").unwrap();
        until_asleep(&waiting);
        kill(waiting);
        // Another waits until the lock is free, and has it.
        let (holder, mut lines) = start_role("hold", &[kind, there, "0", "1"]);
        lines.find(|l| l == "WAITING").unwrap();
        until_asleep(&holder);
        lock(&f, kind, libc::F_UNLCK, (0, 1), false).unwrap();
        lines.find(|l| l == "GOT").unwrap();
        assert_eq!(
            errno(lock(&f, kind, libc::F_WRLCK, (0, 1), false)),
            libc::EAGAIN
        );
        // Killed with the lock held, while one more waits for it on a third mount: that gets it.
        let third = h.mount(3).join(kind);
        let (next, mut lines) = start_role("hold", &[kind, third.to_str().unwrap(), "0", "1"]);
        lines.find(|l| l == "WAITING").unwrap();
        until_asleep(&next);
        kill(holder);
        lines.find(|l| l == "GOT").unwrap();
        kill(next);
        let free = || lock(&f, kind, libc::F_WRLCK, (0, 1), false).is_ok();
        until("nothing is left locked", free);
    }
}

#[test]
fn a_handled_signal_ends_a_wait() {
    let _turn = turns::exclusive();
    let Some(h) = Harness::four() else { return };
    let f = open(&h.mount(1).join("f"));
    lock(&f, "posix", libc::F_WRLCK, (0, 1), false).unwrap();
    let path = h.mount(2).join("f");
    // Twice: the kernel asks the server about interrupts only the first time.
    for _ in 0..2 {
        let (mut waiting, lines) = start_role("alarm", &[path.to_str().unwrap()]);
        let mut lines = lines.filter(|l| l == "WAITING" || l.starts_with("ERROR"));
        assert_eq!(lines.next().unwrap(), "WAITING");
        until_asleep(&waiting);
        // The first thread of the test executable waits for the one that runs the role: the signal is for that one.
        let tasks = std::fs::read_dir(format!("/proc/{}/task", waiting.id())).unwrap();
        for task in tasks.flatten() {
            let tid: i32 = task.file_name().to_str().unwrap().parse().unwrap();
            if tid != waiting.id() as i32 {
                // SAFETY: a system call on numbers.
                unsafe { libc::syscall(libc::SYS_tgkill, waiting.id() as i32, tid, libc::SIGALRM) };
            }
        }
        assert_eq!(lines.next().unwrap(), format!("ERROR {}", libc::EINTR));
        waiting.wait().unwrap();
    }
    lock(&f, "posix", libc::F_UNLCK, (0, 1), false).unwrap();
    assert_eq!(in_the_way(&open(&path), (0, 0)).0, libc::F_UNLCK);
}

#[test]
fn programs_on_two_mounts_that_wait_for_each_other_are_told() {
    let _turn = turns::exclusive();
    let Some(h) = Harness::four() else { return };
    let paths: Vec<String> = (1..3)
        .map(|n| h.mount(n).to_str().unwrap().to_string())
        .collect();
    let at = |n: usize, name: &str| format!("{}/{name}", paths[n]);
    for kind in ["posix", "ofd", "flock"] {
        let (heard, said) = mpsc::channel();
        let start = |who: usize, first: &str, second: &str| {
            let (child, lines) = start_role("cross", &[kind, &at(who, first), &at(who, second)]);
            let heard = heard.clone();
            std::thread::spawn(move || {
                for line in lines {
                    if matches!(line.split(' ').next(), Some("HAS" | "GOT" | "ERROR")) {
                        let _ = heard.send((who, line));
                    }
                }
            });
            assert_eq!(said.recv_timeout(LIMIT).unwrap(), (who, "HAS".into()));
            child
        };
        let mut both = vec![start(0, "a", "b"), start(1, "b", "a")];
        let go_on = |child: &mut Child| child.stdin.as_mut().unwrap().write_all(b".").unwrap();
        go_on(&mut both[0]);
        until_asleep(&both[0]);
        go_on(&mut both[1]);
        let ended = match kind {
            "posix" => {
                // Whose request comes to the owner last: mostly the second one's.
                let (who, line) = said.recv_timeout(LIMIT).unwrap();
                assert_eq!(line, format!("ERROR {}", libc::EDEADLK));
                who
            }
            // As on a local disk, locks of open files are not looked at.
            _ => {
                until_asleep(&both[1]);
                1
            }
        };
        // It ends, and the other goes on.
        kill(both.remove(ended));
        let other = said.recv_timeout(LIMIT).unwrap();
        assert_eq!(other, (1 - ended, "GOT".into()), "{kind}");
        kill(both.remove(0));
    }
}

#[test]
fn a_service_of_one_member_excludes_as_well() {
    let _turn = turns::exclusive();
    let one = crate::common::Setup {
        nodes: 1,
        ..crate::common::Setup::default()
    };
    let Some(h) = Harness::start(one) else { return };
    for kind in ["posix", "flock", "ofd"] {
        let path = h.mount(0).join(kind);
        let (holder, mut lines) = start_role("hold", &[kind, path.to_str().unwrap(), "0", "1"]);
        lines.find(|l| l == "GOT").unwrap();
        let f = open(&path);
        assert_eq!(
            errno(lock(&f, kind, libc::F_WRLCK, (0, 1), false)),
            libc::EAGAIN
        );
        kill(holder);
        lock(&f, kind, libc::F_WRLCK, (0, 1), false).unwrap();
    }
}

#[test]
fn appends_under_a_lock_from_two_mounts_lose_nothing() {
    let _turn = turns::exclusive();
    let Some(h) = Harness::four() else { return };
    let each = seeds::count(250, 5000);
    for kind in ["posix", "flock", "ofd"] {
        let programs: Vec<_> = [1, 2]
            .map(|n| {
                let path = h.mount(n).join(kind);
                let name = format!("m{n}");
                start_role(
                    "append",
                    &[kind, path.to_str().unwrap(), &name, &each.to_string()],
                )
            })
            .into_iter()
            .collect();
        for (mut program, lines) in programs {
            drop(program.stdin.take());
            let said: Vec<String> = lines.collect();
            assert!(program.wait().unwrap().success(), "{said:?}");
        }
        for n in 0..4 {
            let text = std::fs::read_to_string(h.mount(n).join(kind)).unwrap();
            let mut next = [0u64; 2];
            for (i, line) in text.lines().enumerate() {
                let words: Vec<&str> = line.split_whitespace().collect();
                assert_eq!(words[0].parse::<usize>().unwrap(), i, "mount {n}");
                let writer = usize::from(words[1] == "m2");
                assert_eq!(words[2].parse::<u64>().unwrap(), next[writer]);
                next[writer] += 1;
            }
            assert_eq!(next, [each, each], "mount {n}");
        }
    }
}

/// Adds to a counter and to a list, a transaction each, `count` times.
const SQLITE: &str = r#"
import sqlite3, sys
path, name, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
db = sqlite3.connect(path, timeout=300, isolation_level=None)
assert db.execute("PRAGMA journal_mode=DELETE").fetchone()[0] == "delete"
for n in range(count):
    db.execute("BEGIN IMMEDIATE")
    (v,) = db.execute("SELECT n FROM counter").fetchone()
    db.execute("UPDATE counter SET n = ?", (v + 1,))
    db.execute("INSERT INTO list VALUES (?, ?, ?)", (v, name, n))
    db.execute("COMMIT")
db.close()
"#;

fn sqlite(script: &str, args: &[&str]) -> Child {
    Command::new("python3")
        .args(["-c", script])
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

fn finish(child: Child) -> String {
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn one_sqlite_database_is_used_from_four_mounts() {
    let _turn = turns::exclusive();
    if !has_program("python3") {
        return;
    }
    let Some(h) = Harness::four() else { return };
    let path = |n: usize| h.mount(n).join("db").to_str().unwrap().to_string();
    let make = "import sqlite3, sys\ndb = sqlite3.connect(sys.argv[1])\ndb.executescript('CREATE TABLE counter (n); INSERT INTO counter VALUES (0); CREATE TABLE list (v PRIMARY KEY, name, n);')";
    finish(sqlite(make, &[&path(3)]));
    let (rounds, each) = seeds::count((3, 20), (250, 2250));
    // In turn.
    for round in 0..rounds {
        let n = round % 4;
        finish(sqlite(SQLITE, &[&path(n), &format!("t{round}"), "4"]));
    }
    // At once.
    let all: Vec<Child> = (0..4)
        .map(|n| sqlite(SQLITE, &[&path(n), &format!("m{n}"), &each.to_string()]))
        .collect();
    all.into_iter().for_each(|child| drop(finish(child)));
    let look = "import sqlite3, sys\ndb = sqlite3.connect(sys.argv[1])\nq = lambda s: db.execute(s).fetchone()[0]\nprint(q('PRAGMA integrity_check'), q('SELECT n FROM counter'), q('SELECT count(*) FROM list'), q('SELECT max(v) FROM list'))";
    let total = rounds * 4 + 4 * each;
    for n in 0..4 {
        let shown = finish(sqlite(look, &[&path(n)]));
        assert_eq!(shown.trim(), format!("ok {total} {total} {}", total - 1));
    }
}
