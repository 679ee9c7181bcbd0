//! A service that may have few open files, or suddenly none more: what it acknowledges is there, it is not closed for writes, and it
//! can be stopped.
use crate::common::{Place, assert_fails, command, forebay, has_fuse, outcome, run};
use forebay_testkit::random::seeded_bytes;
use forebay_testkit::wait::{LIMIT, until, until_or};
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use std::fs::File;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::process::Command;

/// A segment is full with a file of this size, so each takes another one.
const FILE: usize = 64 << 20;

/// Starts the service under `ulimit` with these arguments.
fn mount_under(place: &Place, ulimit: &str, args: &[&str]) -> (i32, String, String) {
    let (store, point) = (place.store(), place.mount_point());
    let program = command(&[]).get_program().to_owned();
    let mut shell = Command::new("bash");
    shell
        .arg("-c")
        .arg(format!("ulimit {ulimit} && exec \"$@\""))
        .arg("bash");
    shell
        .arg(program)
        .args(["mount", &store, &point])
        .args(args);
    shell
        .env("XDG_CONFIG_HOME", "/nonexistent")
        .stdin(std::process::Stdio::null());
    outcome(&run(&mut shell))
}

fn soft_limit(pid: u32) -> u64 {
    let limits = std::fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
    let line = limits
        .lines()
        .find(|l| l.starts_with("Max open files"))
        .unwrap();
    line.split_whitespace().nth(3).unwrap().parse().unwrap()
}

fn open_files(pid: u32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/fd"))
        .unwrap()
        .count()
}

/// Files of 64 MiB are written, read back, and still there after a restart.
fn files_come_back(place: &Place, count: u64) {
    let path = |i: u64| place.path(&format!("m/f{i}"));
    for i in 0..count {
        std::fs::write(path(i), seeded_bytes(i, FILE))
            .unwrap_or_else(|e| panic!("file {i}: {e}\n{}", place.log()));
    }
    for i in 0..count {
        assert!(
            std::fs::read(path(i)).unwrap() == seeded_bytes(i, FILE),
            "file {i}"
        );
    }
}

#[track_caller]
fn is_sound(place: &Place) {
    let (code, out, err) = forebay(&["fsck", &place.store()]);
    assert_eq!(code, 0, "{out}{err}");
}

#[test]
fn the_soft_limit_is_raised_to_the_hard_one() {
    let Some(place) = Place::mountable() else {
        return;
    };
    let (code, out, err) = mount_under(&place, "-Sn 24", &[]);
    assert_eq!(code, 0, "{out}{err}");
    assert!(soft_limit(place.pid()) >= 1024);
    files_come_back(&place, 4);
    place.umount_well();
    is_sound(&place);
}

#[test]
fn a_low_hard_limit_and_idle_connections_stop_no_write() {
    if !has_fuse() {
        return;
    }
    for limit in [48, 64] {
        let place = Place::new();
        let (code, out, err) = mount_under(
            &place,
            &format!("-n {limit}"),
            &["--metrics", "127.0.0.1:0"],
        );
        assert_eq!(code, 0, "{out}{err}");
        let pid = place.pid();
        let control: Vec<_> = (0..100)
            .map(|_| UnixStream::connect(place.path("s/control")))
            .collect();
        assert!(control.iter().any(Result::is_ok));
        files_come_back(&place, 4);
        assert!(open_files(pid) < limit, "{} of {limit}", open_files(pid));
        drop(control);
        unmounts_once_connections_are_gone(&place);
        place.mount_well(&[]);
        assert!(std::fs::read(place.path("m/f3")).unwrap() == seeded_bytes(3, FILE));
        place.umount_well();
        is_sound(&place);
    }
}

/// The server sees the end of connections a moment later.
#[track_caller]
fn unmounts_once_connections_are_gone(place: &Place) {
    until("nobody is connected", || {
        let (code, out, err) = forebay(&["umount", &place.store()]);
        assert!(code == 0 || err.contains("connected"), "{out}{err}");
        code == 0
    });
}

#[test]
fn too_few_for_the_nodes_are_refused_before_there_is_a_store() {
    let place = Place::new();
    let refused = mount_under(&place, "-n 48", &["--nodes", "8"]);
    assert_fails(&refused, 1, &["8 nodes", "open files", "48", "ulimit -n"]);
    assert!(!place.path("s/superblock").exists());
}

/// Sets the limit of a running process; gives the one before.
fn limit_to(pid: u32, current: Option<u64>) -> Option<u64> {
    let pid = Pid::from_raw(pid as i32);
    let now = rustix::process::getrlimit(Resource::Nofile);
    let new = Rlimit {
        current,
        maximum: now.maximum,
    };
    prlimit(pid, Resource::Nofile, new).unwrap().current
}

#[test]
fn while_there_are_no_descriptors_nothing_is_lost_and_afterwards_all_goes_on() {
    let Some(place) = Place::mountable() else {
        return;
    };
    place.mount_well(&[]);
    let pid = place.pid();
    let path = |i: u64| place.path(&format!("m/f{i}"));
    let (small, large) = (seeded_bytes(9, 3000), 5 << 20);
    std::fs::write(path(0), &small).unwrap();
    let mut acknowledged = vec![(0, 3000)];
    // Fewer than are open: every call that needs one more fails.
    let before = limit_to(pid, Some(3));
    let mut refused = 0;
    for i in 1..40 {
        let bytes = seeded_bytes(i, large);
        let done = File::create(path(i))
            .and_then(|mut file| file.write_all(&bytes).and_then(|()| file.sync_all()));
        match done {
            Ok(()) => acknowledged.push((i, large)),
            Err(e) => {
                assert_eq!(
                    e.raw_os_error(),
                    Some(rustix::io::Errno::NFILE.raw_os_error()),
                    "file {i}: {e}\n{}",
                    place.log()
                );
                refused += 1;
            }
        }
    }
    assert!(refused > 0, "the limit was not felt");
    limit_to(pid, before);
    std::fs::write(path(99), seeded_bytes(99, FILE))
        .unwrap_or_else(|e| panic!("{e}\n{}", place.log()));
    acknowledged.push((99, FILE));
    place.umount_well();
    is_sound(&place);
    place.mount_well(&[]);
    for (i, len) in acknowledged {
        let want = if i == 0 {
            small.clone()
        } else {
            seeded_bytes(i, len)
        };
        assert!(std::fs::read(path(i)).unwrap() == want, "file {i}");
    }
    place.umount_well();
}

#[test]
fn a_service_that_cannot_close_its_store_leaves_no_mount() {
    let Some(place) = Place::mountable() else {
        return;
    };
    place.mount_well(&[]);
    let pid = place.pid();
    std::fs::write(place.path("m/f"), "there").unwrap();
    limit_to(pid, Some(3));
    rustix::process::kill_process(
        Pid::from_raw(pid as i32).unwrap(),
        rustix::process::Signal::TERM,
    )
    .unwrap();
    until_or(
        LIMIT,
        || place.log(),
        || !forebay_node::processes::is_alive(pid),
    );
    let mounts = || {
        let all = forebay_node::mount_table::all().unwrap();
        let point = place.path("m");
        all.iter().filter(|m| m.point == point).count()
    };
    assert_eq!(mounts(), 0, "{}", place.log());
    place.mount_well(&[]);
    assert_eq!(mounts(), 1);
    assert_eq!(std::fs::read_to_string(place.path("m/f")).unwrap(), "there");
    place.umount_well();
    assert_eq!(mounts(), 0);
}
