//! Forked children of a client: they connect for themselves, open files again, and never wait for what their parent held.
use super::children::{JobProcess, say};
use crate::backends::{BackendKind, World};
use forebay_client::{Client, File, LockMode, LockRange, OpenOptions};
use forebay_testkit::turns;
use forebay_testkit::wait::until;
use rustix::io::Errno;
use std::io::{Read, Seek, SeekFrom};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

#[test]
fn a_child_uses_the_client_and_the_files_of_its_parent_without_a_hang() {
    let _turn = turns::shared();
    let world = World::start(1, BackendKind::Embedded);
    world.clients[0].write("/f", b"0123456789").unwrap();
    let mut parent = JobProcess::start("fork use", &world.place());
    let mut said = Vec::new();
    while let Some(line) = parent.line() {
        said.push(line);
    }
    assert!(parent.child.wait().unwrap().success(), "{said:?}");
    assert_eq!(said, ["child done", "parent done"]);
    assert_eq!(world.clients[0].read("/child").unwrap(), b"by the child");
    until("all is given back", || world.link(0).clients() == (0, 0));
    world.stop();
}

#[test]
fn what_a_killed_parent_held_is_given_back_though_its_child_lives() {
    let _turn = turns::shared();
    let world = World::start(1, BackendKind::Embedded);
    let own = &world.clients[0];
    let mut parent = JobProcess::start("fork leave", &world.place());
    assert_eq!(parent.line().as_deref(), Some("forked"));
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(own, "/held")
        .unwrap();
    let lock = LockRange::bytes(..);
    assert!(!file.try_lock(&lock, LockMode::Exclusive).unwrap());
    parent.kill();
    until("the lock is given back", || {
        file.try_lock(&lock, LockMode::Exclusive).unwrap()
    });
    until("the session is gone", || world.link(0).clients() == (0, 0));
    drop(file);
    world.stop();
}

#[test]
fn a_child_reads_on_where_its_parent_had_records_on_their_way() {
    let _turn = turns::shared();
    let world = World::start(1, BackendKind::Embedded);
    world.clients[0].write("/records", &records()).unwrap();
    let mut parent = JobProcess::start("fork ahead", &world.place());
    assert_eq!(parent.line().as_deref(), Some("all read"));
    assert!(parent.child.wait().unwrap().success());
    until("all is given back", || world.link(0).clients() == (0, 0));
    world.stop();
}

const RECORD: usize = 4096;
const RECORDS: usize = 400;

/// Bytes of which no two records are alike.
fn records() -> Vec<u8> {
    let record = |n: usize| [n as u8, (n >> 8) as u8].repeat(RECORD / 2);
    (0..RECORDS).flat_map(record).collect()
}

/// Reads small records in a row, so that later ones are always on their way. Forks after each of the first: the child reads on to
/// the end, and after that the parent.
fn read_in_turn(client: &Client) {
    let (file, expected) = (client.open("/records").unwrap(), records());
    let read = |n: usize| {
        let place = n * RECORD..(n + 1) * RECORD;
        let found = file
            .read_bytes_at(place.start as u64, RECORD as u32)
            .unwrap();
        assert!(found[..] == expected[place], "record {n}");
    };
    for n in 0..RECORDS {
        read(n);
        if n % 8 == 7 && n < 100 {
            let ended = ended(forked(|| (n + 1..RECORDS).for_each(read)));
            assert_eq!(ended.exit_status(), Some(0), "{ended:?}");
        }
    }
    file.close().unwrap();
    say(format_args!("all read"));
}

/// Waits for the child.
fn ended(pid: rustix::process::Pid) -> rustix::process::WaitStatus {
    let mut ended = None;
    until("the child ends", || {
        let options = rustix::process::WaitOptions::NOHANG;
        ended = rustix::process::waitpid(Some(pid), options).unwrap();
        ended.is_some()
    });
    ended.unwrap().1
}

/// Forks. The child does its part and ends at once.
fn forked(child: impl FnOnce()) -> rustix::process::Pid {
    // SAFETY: the child calls only this library, which takes no lock that another thread of the parent may hold, and the C
    // library's allocator and output, which are usable after a fork; then it ends without the parent's destructors.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0);
    if pid == 0 {
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(child));
        // SAFETY: ends the process.
        unsafe { libc::_exit(i32::from(done.is_err())) };
    }
    rustix::process::Pid::from_raw(pid).unwrap()
}

/// The job of the process that forks.
pub fn job(client: &Client, what: &str) {
    match what {
        "leave" => {
            let file = client.create("/held").unwrap();
            file.lock(&LockRange::bytes(..), LockMode::Exclusive)
                .unwrap();
            // Lives for a while, and has all descriptors of its parent.
            forked(|| std::thread::sleep(Duration::from_secs(20)));
            say(format_args!("forked"));
            std::thread::sleep(Duration::from_secs(60));
        }
        "ahead" => read_in_turn(client),
        _ => share(client),
    }
}

fn share(client: &Client) {
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(client, "/f")
        .unwrap();
    let unlinked = client.create("/gone").unwrap();
    client.remove_file("/gone").unwrap();
    file.seek(SeekFrom::Start(2)).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Other threads hold locks and connections of the client all the time.
        for thread in 0..4 {
            let (stop, file) = (&stop, &file);
            scope.spawn(move || {
                while !stop.load(Ordering::SeqCst) {
                    client.metadata("/f").unwrap();
                    file.read_bytes_at(thread, 5).unwrap();
                }
            });
        }
        for _ in 0..20 {
            let status = ended(forked(|| in_child(client, &file, &unlinked)));
            assert_eq!(status.exit_status(), Some(0), "{status:?}");
        }
        stop.store(true, Ordering::SeqCst);
    });
    say(format_args!("child done"));
    // The child's position was its own.
    assert_eq!(file.stream_position().unwrap(), 2);
    drop(unlinked);
    file.close().unwrap();
    say(format_args!("parent done"));
}

fn in_child(client: &Client, file: &File, unlinked: &File) {
    let mut text = [0; 3];
    let mut reader = file;
    reader.read_exact(&mut text).unwrap();
    assert_eq!(&text, b"234");
    client.write("/child", b"by the child").unwrap();
    file.write_at(b"0", 0).unwrap();
    // It has a name no more, but the parent still has it open.
    let reopened = unlinked.metadata();
    assert!(reopened.is_ok() || reopened.unwrap_err().errno() == Errno::STALE);
}
