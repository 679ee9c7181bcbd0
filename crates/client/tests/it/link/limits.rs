//! What a client may take at most, and large and many things.
use super::children::{JobProcess, say};
use crate::backends::{BackendKind, World, over_both_backends};
use forebay_client::link::server::LinkLimits;
use forebay_client::{Client, File, LockMode, LockRange, OpenOptions};
use forebay_server::Config;
use forebay_testkit::random::seeded_bytes;
use forebay_testkit::turns;
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

over_both_backends![
    large_values_long_names_and_whole_directories_come_back,
    threads_do_not_wait_for_each_other,
    a_removed_open_file_lives_and_a_renamed_one_is_the_same,
];

fn large_values_long_names_and_whole_directories_come_back(kind: BackendKind) {
    let world = World::start(2, kind);
    let c = &world.clients[1];
    // Around the ends of packets and of the shared buffer.
    for len in [
        0,
        1,
        65_535,
        65_536,
        65_537,
        1 << 20,
        (1 << 20) + 1,
        3_000_001,
    ] {
        let content = seeded_bytes(len as u64, len);
        c.write("/f", &content).unwrap();
        assert!(c.read("/f").unwrap() == content, "{len}");
        let file = c.open("/f").unwrap();
        let mut tail = vec![0; 70_000];
        let from = len.saturating_sub(66_000);
        let n = file.read_at(&mut tail, from as u64).unwrap();
        assert!(tail[..n] == content[from..], "{len}");
    }
    let value = seeded_bytes(1, 60_000);
    let attributes = c.attributes("/f");
    attributes.set_xattr("user.large", &value).unwrap();
    assert!(attributes.xattr("user.large").unwrap() == value);
    for n in 0..200 {
        let name = format!("user.{n:0>200}");
        if attributes.set_xattr(&name, b"x").is_err() {
            break;
        }
    }
    let names = attributes.list_xattrs().unwrap();
    assert!(names.len() > 1 && names.iter().any(|name| name == "user.large"));
    c.create_dir("/d").unwrap();
    for n in 0..700 {
        // Many fill more than a packet.
        c.create(format!("/d/{n:0>250}")).unwrap().close().unwrap();
    }
    let listed: Vec<_> = c.read_dir("/d").unwrap().map(|e| e.unwrap()).collect();
    assert_eq!(listed.len(), 700);
    assert!(listed.is_sorted_by(|a, b| a.file_name() < b.file_name()));
    let long = format!("/{}", "x/".repeat(2047));
    assert_eq!(c.metadata(&long).unwrap_err().errno(), Errno::NOENT);
    let too_long = "/x".repeat(2100);
    assert_eq!(
        c.metadata(&too_long).unwrap_err().errno(),
        Errno::NAMETOOLONG
    );
    assert!(c.describe("/f").is_ok());
    world.stop();
}

fn threads_do_not_wait_for_each_other(kind: BackendKind) {
    let world = World::start(1, kind);
    let c = &world.clients[0];
    let shared = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .open(c, "/shared")
        .unwrap();
    std::thread::scope(|scope| {
        for thread in 0..8u64 {
            let shared = &shared;
            scope.spawn(move || {
                for n in 0..50u64 {
                    let bytes = seeded_bytes(thread << 8 | n, 5000);
                    let at = (n * 8 + thread) * 5000;
                    shared.write_at(&bytes, at).unwrap();
                    assert!(shared.read_bytes_at(at, 5000).unwrap() == bytes);
                    let path = format!("/{thread}.{n}");
                    c.write(&path, &bytes).unwrap();
                    assert!(c.read(&path).unwrap() == bytes);
                    c.remove_file(&path).unwrap();
                }
            });
        }
    });
    assert_eq!(shared.metadata().unwrap().len(), 8 * 50 * 5000);
    shared.close().unwrap();
    world.stop();
}

fn a_removed_open_file_lives_and_a_renamed_one_is_the_same(kind: BackendKind) {
    let world = World::start(2, kind);
    let (a, b) = (&world.clients[0], &world.clients[1]);
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .open(a, "/f")
        .unwrap();
    file.write_at(b"one", 0).unwrap();
    file.commit().unwrap();
    b.rename("/f", "/g").unwrap();
    file.write_at(b"two", 3).unwrap();
    file.commit().unwrap();
    assert_eq!(b.read("/g").unwrap(), b"onetwo");
    b.remove_file("/g").unwrap();
    file.write_at(b"three", 6).unwrap();
    assert_eq!(&file.read_bytes_at(0, 100).unwrap()[..], b"onetwothree");
    file.close().unwrap();
    assert!(!a.exists("/g"));
    // Emptied at the open, and appended to by two.
    a.write("/h", b"old content").unwrap();
    let mut options = OpenOptions::new();
    let emptied = options.write(true).truncate(true).open(a, "/h").unwrap();
    assert_eq!(a.metadata("/h").unwrap().len(), 0);
    let appends = [a, b].map(|c| OpenOptions::new().append(true).open(c, "/h").unwrap());
    for n in 0..10 {
        appends[n % 2].write_at(b"0123456789", 0).unwrap();
        appends[n % 2].commit().unwrap();
    }
    drop((emptied, appends));
    assert_eq!(b.read("/h").unwrap(), b"0123456789".repeat(10));
    world.stop();
}

#[test]
fn a_server_without_descriptors_says_so_and_serves_those_that_are_there() {
    let _turn = turns::shared();
    let dir = tempfile::tempdir().unwrap();
    let mut server = JobProcess::start("descriptors", dir.path());
    let mut said = Vec::new();
    while let Some(line) = server.line() {
        said.push(line);
    }
    assert!(server.child.wait().unwrap().success(), "{said:?}");
    assert_eq!(said, ["refused", "served", "connected"]);
}

/// The job of a process that is server and client: only its own limit is lowered.
pub fn without_descriptors() {
    let world = World::start(1, BackendKind::Embedded);
    let client = Client::connect(world.place()).unwrap();
    client.write("/f", b"before").unwrap();
    let file = client.open("/f").unwrap();
    let limits = getrlimit(Resource::Nofile);
    // Descriptors that nobody has: numbers below the limit are taken up first.
    let mut taken = Vec::new();
    let lowest = std::fs::File::open("/dev/null").unwrap();
    let limit = std::os::fd::AsRawFd::as_raw_fd(&lowest) as u64 + 20;
    let few = Rlimit {
        current: Some(limit),
        maximum: limits.maximum,
    };
    setrlimit(Resource::Nofile, few).unwrap();
    // Again where the service closed a file of its own meanwhile.
    let error = (0..50).find_map(|_| {
        while let Ok(file) = std::fs::File::open("/dev/null") {
            taken.push(file);
        }
        // One for the client's own end; the server gets none.
        taken.pop();
        Client::connect(world.place()).err()
    });
    let error = error.unwrap();
    assert!(
        matches!(error.errno(), Errno::AGAIN | Errno::MFILE),
        "{error}"
    );
    say(format_args!("refused"));
    for _ in 0..50 {
        assert_eq!(&file.read_bytes_at(0, 100).unwrap()[..], b"before");
        client.metadata("/f").unwrap();
    }
    say(format_args!("served"));
    drop(taken);
    setrlimit(Resource::Nofile, limits).unwrap();
    Client::connect(world.place()).unwrap();
    say(format_args!("connected"));
    drop((file, client));
    world.stop_and_check();
}

#[test]
fn more_connections_and_files_than_may_be_are_refused_with_the_reason() {
    let limits = LinkLimits {
        connections: 6,
        files: 3,
        ..LinkLimits::default()
    };
    let config = Config {
        deadline: Duration::from_secs(2),
        ..Config::default()
    };
    let world = World::with(config, limits, BackendKind::Embedded);
    let client = Client::connect(world.place()).unwrap();
    let open: Vec<_> = (0..3)
        .map(|n| client.create(format!("/{n}")).unwrap())
        .collect();
    assert_eq!(client.create("/more").err().unwrap().errno(), Errno::MFILE);
    assert!(!client.exists("/more"));
    // Two connections are this client's.
    let others: Vec<_> = (0..4)
        .map(|_| Client::connect(world.place()).unwrap())
        .collect();
    let error = Client::connect(world.place()).err().unwrap();
    assert_eq!(error.errno(), Errno::AGAIN, "{error}");
    assert!(error.to_string().contains("6 connections"), "{error}");
    // Those that are there work.
    open[0].write_at(b"x", 0).unwrap();
    drop(others);
    forebay_testkit::wait::until("there is room again", || {
        Client::connect(world.place()).is_ok()
    });
    drop(open);
    client.create("/more").unwrap().close().unwrap();
    drop(client);
    world.stop();
}

fn open(client: &Client, path: &str) -> File {
    let mut options = OpenOptions::new();
    let options = options.read(true).write(true).create(true);
    options.open(client, path).unwrap()
}

#[test]
fn threads_that_wait_for_a_lock_leave_connections_to_the_one_that_holds_it() {
    let world = World::start(1, BackendKind::Link);
    let client = &world.clients[0];
    let range = LockRange::bytes(..);
    // Files whose next bytes are on their way: they keep connections too.
    client.write("/ahead", &seeded_bytes(1, 4 << 20)).unwrap();
    let ahead: Vec<File> = (0..10).map(|_| client.open("/ahead").unwrap()).collect();
    for file in &ahead {
        for n in 0..40 {
            file.read_bytes_at(n * 4096, 4096).unwrap();
        }
    }
    let files: Vec<File> = (0..140).map(|_| open(client, "/f")).collect();
    let begun = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let held = open(client, "/f");
        held.lock(&range, LockMode::Exclusive).unwrap();
        for file in &files {
            scope.spawn(|| {
                begun.fetch_add(1, Ordering::SeqCst);
                file.lock(&range, LockMode::Exclusive).unwrap();
                file.unlock(&range).unwrap();
            });
        }
        forebay_testkit::wait::until("all wait, or soon do", || {
            begun.load(Ordering::SeqCst) == files.len()
        });
        std::thread::sleep(Duration::from_millis(300));
        held.write_at(b"under the lock", 0).unwrap();
        assert_eq!(&held.read_bytes_at(0, 5).unwrap()[..], b"under");
        client.metadata("/f").unwrap();
        held.close().unwrap();
    });
    drop((files, ahead));
    world.stop();
}

#[test]
fn a_file_that_could_not_be_closed_is_closed_by_the_next_call() {
    let limits = LinkLimits {
        connections: 3,
        ..LinkLimits::default()
    };
    let world = World::with(Config::default(), limits, BackendKind::Embedded);
    let (here, client) = (&world.clients[0], Client::connect(world.place()).unwrap());
    let range = LockRange::bytes(..);
    let (mine, theirs) = (open(&client, "/mine"), open(here, "/theirs"));
    mine.lock(&range, LockMode::Exclusive).unwrap();
    theirs.lock(&range, LockMode::Exclusive).unwrap();
    let waiting = [open(&client, "/theirs"), open(&client, "/theirs")];
    std::thread::scope(|scope| {
        for file in &waiting {
            scope.spawn(|| {
                // The other calls may have taken the connections first.
                forebay_testkit::wait::until("it has a connection", || {
                    let locked = file.lock(&range, LockMode::Exclusive);
                    locked
                        .map_err(|e| assert_eq!(e.errno(), Errno::AGAIN))
                        .is_ok()
                });
                file.unlock(&range).unwrap();
            });
        }
        // Both have a connection, and there are no more.
        forebay_testkit::wait::until("there is no connection left", || {
            let call = client.metadata("/mine");
            call.is_err_and(|e| e.errno() == Errno::AGAIN)
        });
        let error = mine.close().unwrap_err();
        assert_eq!(error.errno(), Errno::AGAIN, "{error}");
        let again = open(here, "/mine");
        assert!(!again.try_lock(&range, LockMode::Exclusive).unwrap());
        theirs.unlock(&range).unwrap();
        forebay_testkit::wait::until("its lock is free", || {
            again.try_lock(&range, LockMode::Exclusive).unwrap()
        });
    });
    drop((waiting, client));
    world.stop();
}
