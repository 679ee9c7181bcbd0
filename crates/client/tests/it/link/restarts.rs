//! Servers that end: calls fail at once, and go to the next one.
use super::children::{JobProcess, say};
use crate::backends::{BackendKind, World};
use forebay_client::Client;
use forebay_client::link::server::{LinkLimits, LinkServer};
use forebay_client::link::socket_of;
use forebay_server::Config;
use forebay_testkit::turns;
use forebay_testkit::wait::until;
use rustix::io::Errno;
use std::time::{Duration, Instant};

#[test]
fn files_are_stale_and_calls_on_paths_go_to_the_next_server() {
    let world = World::start(1, BackendKind::Embedded);
    let dir = tempfile::tempdir().unwrap();
    let socket = socket_of(dir.path(), 0);
    let limits = LinkLimits::default();
    let start = || LinkServer::start(&socket, world.service.delegate(0), limits).unwrap();
    let server = start();
    let client = Client::connect(dir.path()).unwrap();
    let file = client.create("/f").unwrap();
    file.write_at(b"written", 0).unwrap();
    let mut team = client.team(&client.plan_of_all(1, 1)).unwrap();
    team.stat("/f").unwrap();
    drop(server);
    let error = client.metadata("/f").unwrap_err();
    assert_eq!(error.errno(), Errno::CONNREFUSED, "{error}");
    assert!(error.to_string().contains("forebay mount"), "{error}");
    let error = file.write_at(b"lost", 0).unwrap_err();
    assert_eq!(error.errno(), Errno::STALE, "{error}");
    assert!(error.to_string().contains("open it again"), "{error}");
    let server = start();
    // What was acknowledged is there: the end of the server closed the file.
    assert_eq!(client.read("/f").unwrap(), b"written");
    assert_eq!(file.metadata().unwrap_err().errno(), Errno::STALE);
    assert_eq!(file.close().unwrap_err().errno(), Errno::STALE);
    assert_eq!(team.stat("/f").unwrap_err().errno(), Errno::STALE);
    let mut team = client.team(&client.plan_of_all(1, 1)).unwrap();
    assert_eq!(team.stat("/f").unwrap().len(), 7);
    drop((team, client));
    server.stop(Duration::from_secs(10));
    world.stop();
}

/// The job of a process that is only a server.
pub fn serve() {
    let limits = LinkLimits {
        deadline: Duration::from_millis(300),
        ..LinkLimits::default()
    };
    let world = World::with(Config::default(), limits, BackendKind::Embedded);
    say(format_args!("{}", world.place().display()));
    std::thread::sleep(Duration::from_secs(600));
}

#[test]
fn a_stopped_server_is_an_error_and_one_that_goes_on_serves() {
    let _turn = turns::shared();
    let nowhere = tempfile::tempdir().unwrap();
    let mut server = JobProcess::start("serve", nowhere.path());
    let client = Client::connect(server.line().unwrap()).unwrap();
    let file = client.create("/f").unwrap();
    server.stop();
    let begun = Instant::now();
    let errors = [
        client.metadata("/f").unwrap_err(),
        file.write_at(b"x", 0).unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.errno(), Errno::TIMEDOUT, "{error}");
        assert!(error.to_string().contains("is stopped"), "{error}");
    }
    assert!(begun.elapsed() < Duration::from_secs(20));
    server.resume();
    until("it serves again", || client.metadata("/f").is_ok());
    file.write_at(b"y", 0).unwrap();
    // Killed: at once, not after a deadline.
    server.kill();
    let error = client.metadata("/f").unwrap_err();
    assert!(
        matches!(error.errno(), Errno::CONNREFUSED | Errno::NOTCONN),
        "{error}"
    );
    assert_eq!(file.close().unwrap_err().errno(), Errno::STALE);
}

#[test]
fn a_call_under_way_ends_with_its_server() {
    let world = World::start(1, BackendKind::Embedded);
    let dir = tempfile::tempdir().unwrap();
    let socket = socket_of(dir.path(), 0);
    let server = LinkServer::start(&socket, world.service.delegate(0), LinkLimits::default());
    let server = server.unwrap();
    let client = Client::connect(dir.path()).unwrap();
    let [first, second] = [(); 2].map(|()| client.create("/f").unwrap());
    let range = forebay_client::LockRange::WholeFile;
    first
        .lock(&range, forebay_client::LockMode::Exclusive)
        .unwrap();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| second.lock(&range, forebay_client::LockMode::Exclusive));
        std::thread::sleep(Duration::from_millis(100));
        server.stop(Duration::from_secs(10));
        let error = waits.join().unwrap().unwrap_err();
        assert_eq!(error.errno(), Errno::NOTCONN, "{error}");
    });
    drop((first, second, client));
    world.stop();
}
