//! Advisory locks of programs on one mount, of a service of several members and of one.
use crate::common::{Harness, Setup, errno, open, start_role};
use forebay_testkit::turns;
use rustix::fs::{FlockOperation, fcntl_lock, flock};
use std::fs::File;
use std::path::Path;

/// The work of this module's roles; whether it is one of them.
pub fn run_role(role: &str, args: &[&str]) -> bool {
    match (role, args) {
        // Waits for the lock of a file, says so, and keeps it until it is told to end.
        ("posix" | "flock", [path]) => {
            let f = open(Path::new(path));
            println!("\nWAITING");
            if role == "posix" {
                fcntl_lock(&f, FlockOperation::LockExclusive).unwrap();
            } else {
                flock(&f, FlockOperation::LockExclusive).unwrap();
            }
            println!("\nGOT");
            let _ = std::io::Read::read(&mut std::io::stdin(), &mut [0]);
            true
        }
        _ => false,
    }
}

#[test]
fn locks_exclude_wait_and_end_with_their_process() {
    let _turn = turns::exclusive();
    for (setup, kind) in [Setup::default(), Setup::ALONE]
        .into_iter()
        .flat_map(|setup| [(setup, "posix"), (setup, "flock")])
    {
        let Some(h) = Harness::start(setup) else {
            return;
        };
        let path = h.all().last().unwrap().join(kind);
        let f = open(&path);
        let try_lock = |f: &File| {
            if kind == "posix" {
                fcntl_lock(f, FlockOperation::NonBlockingLockExclusive)
            } else {
                flock(f, FlockOperation::NonBlockingLockExclusive)
            }
        };
        try_lock(&f).unwrap();
        let path = path.to_str().unwrap();
        // One process waits and is killed while it waits: it must go at once and leave nothing behind.
        let (mut waiting, mut lines) = start_role(kind, &[path]);
        lines.find(|l| l == "WAITING").unwrap();
        waiting.kill().unwrap();
        waiting.wait().unwrap();
        // Another waits until the lock is free.
        let (mut next, mut lines) = start_role(kind, &[path]);
        lines.find(|l| l == "WAITING").unwrap();
        drop(f);
        lines.find(|l| l == "GOT").unwrap();
        let g = open(Path::new(path));
        assert_eq!(errno(try_lock(&g)), libc::EAGAIN);
        // Killed with the lock held: the lock goes with it.
        next.kill().unwrap();
        next.wait().unwrap();
        try_lock(&g).unwrap();
    }
}

#[test]
fn closing_any_descriptor_of_a_file_ends_the_process_record_locks() {
    let _turn = turns::exclusive();
    for setup in [Setup::default(), Setup::ALONE, Setup::ALONE_WRITE_THROUGH] {
        let Some(h) = Harness::start(setup) else {
            return;
        };
        let path = h.mount(0).join("f");
        let holder = open(&path);
        fcntl_lock(&holder, FlockOperation::LockExclusive).unwrap();
        let (mut next, mut lines) = start_role("posix", &[path.to_str().unwrap()]);
        lines.find(|l| l == "WAITING").unwrap();
        // One that never locked anything, and reads only: as POSIX has it.
        drop(File::open(&path).unwrap());
        lines.find(|l| l == "GOT").unwrap();
        next.kill().unwrap();
        next.wait().unwrap();
        drop(holder);
    }
}

#[test]
fn locks_of_open_files_exclude_each_other_in_one_process() {
    let _turn = turns::exclusive();
    for setup in [Setup::default(), Setup::ALONE] {
        let Some(h) = Harness::start(setup) else {
            return;
        };
        open_files_exclude_each_other(&h.mount(0).join("ofd"));
    }
}

fn open_files_exclude_each_other(path: &Path) {
    use std::os::fd::AsRawFd;
    let (a, b) = (open(path), open(path));
    let lock = |f: &File, kind: i32, start: i64, len: i64| {
        // SAFETY: `flock` is plain data; zero is valid for every field.
        let mut l: libc::flock = unsafe { std::mem::zeroed() };
        (l.l_type, l.l_whence, l.l_start, l.l_len) =
            (kind as i16, libc::SEEK_SET as i16, start, len);
        // SAFETY: the descriptor is open and `l` lives through the call.
        match unsafe { libc::fcntl(f.as_raw_fd(), libc::F_OFD_SETLK, &l) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        }
    };
    lock(&a, libc::F_WRLCK, 0, 100).unwrap();
    assert_eq!(errno(lock(&b, libc::F_RDLCK, 50, 10)), libc::EAGAIN);
    lock(&b, libc::F_WRLCK, 100, 100).unwrap();
    lock(&a, libc::F_UNLCK, 0, 60).unwrap();
    lock(&b, libc::F_RDLCK, 50, 10).unwrap();
    drop(a);
    lock(&b, libc::F_WRLCK, 0, 0).unwrap();
}
