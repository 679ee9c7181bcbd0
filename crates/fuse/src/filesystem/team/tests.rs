//! Who gets the handles that a team has opened, what becomes of those that are not taken, and whose permissions are checked.
use super::*;
use crate::options::MountOptions;
use forebay_client::{Client, OpenOptions};
use forebay_server::{Config, Service};

const RANK: Caller = Caller { uid: 0, gid: 0 };
const THREAD: u32 = 77;

fn service(dir: &tempfile::TempDir) -> Service {
    let config = Config {
        memory: 16 << 20,
        // So long a process waits for a place in the team.
        deadline: Duration::from_secs(2),
        ..Config::default()
    };
    let io = Arc::new(forebay_storage::OsIo);
    Service::start(io, &dir.path().join("s"), config).unwrap()
}

fn teams(service: &Service) -> Arc<TeamDirectory> {
    TeamDirectory::new(MountContext::new(
        service.delegate(0),
        &MountOptions::default(),
    ))
}

fn join(number: u32) -> TeamOp {
    TeamOp::Join {
        number,
        here: 1,
        members: vec![],
    }
}

/// Opens `/f` for reading and writing, making it if there is none.
fn open(teams: &TeamDirectory, directory: u64) -> Fid {
    let op = TeamOp::Open {
        path: b"/f".to_vec(),
        options: options(true, true).create(true).clone(),
    };
    let mut team = teams
        .processes
        .lock()
        .get_mut(&directory)
        .unwrap()
        .team
        .take()
        .unwrap();
    let shown = teams.call(&mut team, directory, &op, THREAD).unwrap();
    teams.processes.lock().get_mut(&directory).unwrap().team = Some(team);
    Fid(shown.ino)
}

fn options(read: bool, write: bool) -> OpenOptions {
    OpenOptions::new()
        .read(read)
        .write(write)
        .mode(0o600)
        .clone()
}

fn flags(read: bool, write: bool) -> OpenFlags {
    OpenFlags {
        read,
        write,
        ..OpenFlags::default()
    }
}

#[test]
fn only_the_thread_that_asked_finds_the_handle_and_once() {
    let dir = tempfile::tempdir().unwrap();
    let service = service(&dir);
    let teams = teams(&service);
    teams.join(1, &join(3), RANK, vec![]).unwrap();
    let fid = open(&teams, 1);
    assert!(teams.attr(fid, THREAD + 1).is_none());
    assert!(teams.take(fid, flags(true, true), THREAD + 1).is_none());
    // Another open than the team's is one of its own.
    assert!(teams.take(fid, flags(true, false), THREAD).is_none());
    assert_eq!(
        teams.attr(fid, THREAD).map(|a| a.mode & 0o7777),
        Some(0o600)
    );
    let opened = teams.take(fid, flags(true, true), THREAD).unwrap();
    assert!(teams.attr(fid, THREAD).is_none());
    assert!(teams.take(fid, flags(true, true), THREAD).is_none());
    // Taken: it is the kernel's to release, not the directory's.
    teams.leave(1);
    assert_eq!(service.nodes()[0].files.open_files(), 1);
    service.delegate(0).release(opened.handle).unwrap();
    assert_eq!(service.nodes()[0].files.open_files(), 0);
    service.stop().unwrap();
}

#[test]
fn what_nobody_takes_goes_with_the_directory() {
    let dir = tempfile::tempdir().unwrap();
    let service = service(&dir);
    let teams = teams(&service);
    teams.join(1, &join(3), RANK, vec![]).unwrap();
    assert_eq!(
        teams.join(1, &join(3), RANK, vec![]).unwrap_err(),
        Errno::ISCONN
    );
    assert_eq!(
        teams.join(2, &join(3), RANK, vec![]).unwrap_err(),
        Errno::BUSY
    );
    open(&teams, 1);
    let fid = open(&teams, 1);
    assert_eq!(service.nodes()[0].files.open_files(), 1);
    teams.leave(1);
    teams.leave(1);
    assert!(teams.take(fid, flags(true, true), THREAD).is_none());
    assert_eq!(service.nodes()[0].files.open_files(), 0);
    // The place in the team is free again, and a process that comes too late for what was opened for it gets nothing.
    teams.join(2, &join(3), RANK, vec![]).unwrap();
    let op = TeamOp::Open {
        path: b"/f".to_vec(),
        options: options(true, false),
    };
    let mut team = teams
        .processes
        .lock()
        .get_mut(&2)
        .unwrap()
        .team
        .take()
        .unwrap();
    teams.leave(2);
    teams.call(&mut team, 2, &op, THREAD).unwrap();
    assert_eq!(service.nodes()[0].files.open_files(), 0);
    drop(team);
    service.stop().unwrap();
}

#[test]
fn a_rank_gets_where_its_user_and_groups_may() {
    let dir = tempfile::tempdir().unwrap();
    let service = service(&dir);
    let root = Client::new(service.delegate(0));
    root.create_dir("/d").unwrap();
    root.write("/d/f", b"x").unwrap();
    root.attributes("/d").set_owner(Some(7), Some(9)).unwrap();
    root.attributes("/d").set_permissions(0o750).unwrap();
    let teams = teams(&service);
    let user = Caller { uid: 8, gid: 8 };
    let refused = Some(rustix::io::Errno::ACCESS);
    let cases = [
        (RANK, vec![], [None, None]),
        (user, vec![4, 9], [None, refused]),
        (user, vec![4], [refused, refused]),
    ];
    for (number, (caller, groups, expected)) in (1..).zip(cases) {
        let directory = u64::from(number);
        teams
            .join(directory, &join(number), caller, groups)
            .unwrap();
        let mut processes = teams.processes.lock();
        let mut team = processes.get_mut(&directory).unwrap().team.take().unwrap();
        drop(processes);
        let stat = TeamOp::Stat {
            path: b"/d/f".to_vec(),
        };
        let make = TeamOp::Open {
            path: format!("/d/{number}").into_bytes(),
            options: options(false, true).create(true).clone(),
        };
        let got = [stat, make].map(|op| teams.call(&mut team, directory, &op, THREAD));
        assert_eq!(got.map(|g| g.err().map(|e| e.errno())), expected);
        teams.leave(directory);
    }
    let names = root
        .read_dir("/d")
        .unwrap()
        .map(|e| e.unwrap().file_name().to_owned());
    assert_eq!(names.count(), 2);
    service.stop().unwrap();
}
