//! Clients that end, are killed at any point, or stop: what they had is given back, what was acknowledged stays, others go on.
use super::children::{JobProcess, step_bytes};
use crate::backends::{BackendKind, World};
use forebay_client::link::server::LinkLimits;
use forebay_client::{Client, LockMode, LockRange, OpenOptions};
use forebay_server::Config;
use forebay_testkit::random::Random;
use forebay_testkit::seeds::count;
use forebay_testkit::turns;
use forebay_testkit::wait::until;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::time::Duration;

/// Nothing of clients is left at the server but that of these.
fn only_left(world: &World, sessions: usize, files: usize) {
    until("what the dead had is given back", || {
        world.link(0).clients() == (sessions, files)
    });
}

/// What a writer (the job `write`) has said of its files: they must be as it said, or further.
#[derive(Default)]
struct AcknowledgedFiles(BTreeMap<u64, WrittenFile>);

impl AcknowledgedFiles {
    /// A line of the writer.
    fn hear(&mut self, line: &str) {
        let words: Vec<&str> = line.split(' ').collect();
        let file = self.0.entry(words[1].parse().unwrap()).or_default();
        match words[0] {
            "wrote" => file.steps = words[2].parse::<u64>().unwrap() + 1,
            _ => file.removed = true,
        }
    }

    /// All lines that it said before it was killed.
    fn hear_rest(&mut self, child: &mut JobProcess) {
        while let Some(line) = child.line() {
            self.hear(&line);
        }
    }

    /// Looks at all files, and that none is locked any more.
    fn check(self, own: &Client, seed: u64) {
        let last = self.0.keys().next_back().copied();
        for (file, written) in self.0 {
            let path = format!("/w{seed}/{file}");
            if written.removed {
                assert!(!own.exists(&path), "{path} was removed");
                continue;
            }
            let expected: Vec<u8> = (0..written.steps)
                .flat_map(|n| step_bytes(file, n))
                .collect();
            let content = match own.read(&path) {
                Ok(content) => content,
                // It may have been removed without a word.
                Err(e) if e.errno() == Errno::NOENT && Some(file) == last => continue,
                Err(e) => panic!("{path} of seed {seed}: {e}"),
            };
            let begin = content.get(..expected.len());
            assert!(begin == Some(&expected[..]), "{path} of seed {seed}");
            let mut options = OpenOptions::new();
            let opened = options.read(true).write(true).open(own, &path).unwrap();
            let free = opened.try_lock(&LockRange::bytes(0..10), LockMode::Exclusive);
            assert!(free.unwrap(), "{path} is still locked");
        }
    }
}

/// What a writer's file must hold.
#[derive(Default)]
struct WrittenFile {
    steps: u64,
    removed: bool,
}

#[test]
fn a_client_killed_at_any_point_loses_nothing_that_was_acknowledged() {
    let _turn = turns::shared();
    let world = World::start(1, BackendKind::Embedded);
    let mut random = Random::new(5);
    let own = &world.clients[0];
    for seed in 0..count(30, 1000) {
        let mut child = JobProcess::start(&format!("write {seed}"), &world.place());
        let lines = random.below(60);
        let mut files = AcknowledgedFiles::default();
        for _ in 0..lines {
            files.hear(&child.line().expect("it writes for ever"));
        }
        std::thread::sleep(Duration::from_micros(random.below(3000)));
        child.kill();
        // What it said before it was killed counts.
        files.hear_rest(&mut child);
        only_left(&world, 0, 0);
        // Killed before its first word, it may not have made its directory.
        let has_begun = !files.0.is_empty() || own.exists(format!("/w{seed}"));
        files.check(own, seed);
        if has_begun && seed % 10 == 0 {
            own.remove_dir_all(format!("/w{seed}")).unwrap();
        }
    }
    let delegate = world.service.delegate(0);
    until("no file is open", || delegate.open_files() == 0);
    world.stop_and_check();
}

#[test]
fn a_temporary_file_of_a_killed_client_loses_its_name() {
    let _turn = turns::shared();
    let world = World::start(2, BackendKind::Link);
    let mut holder = JobProcess::start("hold temporary", &world.place());
    assert_eq!(holder.line().as_deref(), Some("holds"));
    let far = &world.clients[1];
    assert!(far.exists("/temporary"));
    holder.kill();
    until("its name is gone", || !far.exists("/temporary"));
    let published = || far.metadata("/held").unwrap().len() == 4;
    until("its other file is closed", published);
    world.stop_and_check();
}

#[test]
fn locks_and_open_files_of_a_killed_client_go_and_waits_for_them_end() {
    let _turn = turns::shared();
    let world = World::start(1, BackendKind::Link);
    let own = &world.clients[0];
    let mut holder = JobProcess::start("hold lock", &world.place());
    assert_eq!(holder.line().as_deref(), Some("holds"));
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).open(own, "/held").unwrap();
    let range = LockRange::bytes(0..1);
    assert!(!file.try_lock(&range, LockMode::Shared).unwrap());
    let held = file.test_lock(&range, LockMode::Shared).unwrap().unwrap();
    assert_eq!(held.pid, holder.child.id());
    // Another one waits for it, and is killed while it does.
    let mut waiting = JobProcess::start("hold wait", &world.place());
    assert_eq!(waiting.line().as_deref(), Some("waits"));
    std::thread::sleep(Duration::from_millis(100));
    waiting.kill();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| file.lock(&range, LockMode::Exclusive));
        std::thread::sleep(Duration::from_millis(100));
        assert!(!waits.is_finished());
        // Other calls of the process go on meanwhile.
        own.write("/other", b"x").unwrap();
        holder.kill();
        waits.join().unwrap().unwrap();
    });
    assert_eq!(own.read("/held").unwrap(), b"held");
    file.close().unwrap();
    only_left(&world, 1, 0);
    world.stop();
}

#[test]
fn a_place_in_a_team_of_a_killed_client_goes() {
    let _turn = turns::shared();
    let world = World::start(1, BackendKind::Link);
    let own = &world.clients[0];
    let mut holder = JobProcess::start("hold team", &world.place());
    assert_eq!(holder.line().as_deref(), Some("holds"));
    // Another team of the same number is refused as long as somebody is in the first: the one who asks waits for that.
    let other = own.plan_of_all(7, 1);
    std::thread::scope(|scope| {
        let joins = scope.spawn(|| own.team(&other).map(drop));
        std::thread::sleep(Duration::from_millis(200));
        assert!(!joins.is_finished(), "{:?}", joins.join());
        holder.kill();
        joins.join().unwrap().unwrap();
    });
    only_left(&world, 1, 0);
    world.stop();
}

#[test]
fn a_stopped_client_hinders_nobody_and_goes_on_after_longer_than_the_deadline() {
    let _turn = turns::shared();
    let deadline = Duration::from_millis(300);
    let limits = LinkLimits {
        deadline,
        ..LinkLimits::default()
    };
    let world = World::with(Config::default(), limits, BackendKind::Link);
    let own = &world.clients[0];
    let mut writer = JobProcess::start("write 7", &world.place());
    let mut files = AcknowledgedFiles::default();
    for _ in 0..5 {
        files.hear(&writer.line().unwrap());
    }
    writer.stop();
    std::thread::sleep(4 * deadline);
    for n in 0..20 {
        own.write(format!("/{n}"), b"others go on").unwrap();
    }
    writer.resume();
    // All that was in the pipe, and more.
    for _ in 0..200 {
        files.hear(&writer.line().expect("it goes on"));
    }
    writer.kill();
    files.hear_rest(&mut writer);
    only_left(&world, 1, 0);
    files.check(own, 7);
    world.stop_and_check();
}

#[test]
fn a_client_that_goes_leaves_its_files_published() {
    let world = World::start(2, BackendKind::Embedded);
    let linked = Client::connect_member(world.place(), 1).unwrap();
    let file = linked.create("/f").unwrap();
    file.write_at(b"without a close", 0).unwrap();
    assert_eq!(world.clients[0].metadata("/f").unwrap().len(), 0);
    drop((file, linked));
    until("the other node sees it", || {
        world.clients[0].read("/f").unwrap() == b"without a close"
    });
    world.stop();
}
