//! Locks on files: ranges and whole files, waiting, deadlocks.
use crate::backends::{BackendKind, World, over_both_backends};
use forebay_client::{Client, File, LockMode, LockRange, OpenOptions};
use rustix::io::Errno;
use std::time::Duration;

over_both_backends![
    ranges_exclude_each_other_and_whole_files_do_too,
    a_wait_ends_with_the_lock_and_shows_what_was_written_under_it,
    two_that_wait_for_each_other_hear_it,
];

fn open(client: &Client) -> File {
    let mut options = OpenOptions::new();
    let options = options.read(true).write(true).create(true);
    options.open(client, "/f").unwrap()
}

fn ranges_exclude_each_other_and_whole_files_do_too(kind: BackendKind) {
    let world = World::start(2, kind);
    // Two files of one process, and one of another node.
    let all = [
        open(&world.clients[0]),
        open(&world.clients[0]),
        open(&world.clients[1]),
    ];
    let (low, high) = (LockRange::bytes(0..10), LockRange::bytes(10..));
    let get = |file: usize, range: &LockRange, mode| all[file].try_lock(range, mode).unwrap();
    assert!(get(0, &low, LockMode::Exclusive));
    for other in [1, 2] {
        assert!(!get(other, &low, LockMode::Shared));
        let held = all[other]
            .test_lock(&low, LockMode::Shared)
            .unwrap()
            .unwrap();
        assert_eq!((held.range, held.mode), (0..10, LockMode::Exclusive));
    }
    assert!(get(1, &high, LockMode::Shared) && get(2, &high, LockMode::Shared));
    assert!(!get(0, &high, LockMode::Exclusive));
    // They know nothing of each other.
    assert!(get(2, &LockRange::WholeFile, LockMode::Exclusive));
    assert!(!get(0, &LockRange::WholeFile, LockMode::Exclusive));
    all[0].unlock(&LockRange::bytes(0..5)).unwrap();
    assert!(get(1, &LockRange::bytes(0..5), LockMode::Exclusive));
    assert!(!get(1, &LockRange::bytes(5..6), LockMode::Exclusive));
    let empty = all[0].try_lock(&LockRange::bytes(3..3), LockMode::Shared);
    assert_eq!(empty.unwrap_err().errno(), Errno::INVAL);
    drop(all);
    let again = open(&world.clients[1]);
    assert!(
        again
            .try_lock(&LockRange::bytes(..), LockMode::Exclusive)
            .unwrap()
    );
    drop(again);
    world.stop();
}

fn a_wait_ends_with_the_lock_and_shows_what_was_written_under_it(kind: BackendKind) {
    let world = World::start(2, kind);
    let (first, second) = (open(&world.clients[0]), open(&world.clients[1]));
    let range = LockRange::bytes(..);
    first.lock(&range, LockMode::Exclusive).unwrap();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| {
            second.lock(&range, LockMode::Shared).unwrap();
            second.read_bytes_at(0, 100).unwrap()
        });
        std::thread::sleep(Duration::from_millis(100));
        first.write_at(b"under the lock", 0).unwrap();
        assert!(!waits.is_finished());
        first.unlock(&range).unwrap();
        assert_eq!(&waits.join().unwrap()[..], b"under the lock");
    });
    drop((first, second));
    world.stop();
}

fn two_that_wait_for_each_other_hear_it(kind: BackendKind) {
    let world = World::start(1, kind);
    let both = [open(&world.clients[0]), open(&world.clients[0])];
    let ranges = [LockRange::bytes(0..1), LockRange::bytes(1..2)];
    for (file, range) in both.iter().zip(&ranges) {
        file.lock(range, LockMode::Exclusive).unwrap();
    }
    let outcomes = std::thread::scope(|scope| {
        let waits = [(0, 1), (1, 0)].map(|(file, range)| {
            let (file, range) = (&both[file], &ranges[range]);
            scope.spawn(move || {
                let outcome = file.lock(range, LockMode::Exclusive);
                let outcome = outcome.map_err(|e| e.errno());
                // The other one gets what this one wants.
                file.unlock(&LockRange::bytes(..)).unwrap();
                outcome
            })
        });
        waits.map(|wait| wait.join().unwrap())
    });
    assert!(outcomes.contains(&Err(Errno::DEADLK)), "{outcomes:?}");
    drop(both);
    world.stop();
}
