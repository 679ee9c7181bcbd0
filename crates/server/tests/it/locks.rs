//! Advisory locks between delegates: who gets them, who waits, what a lock shows, and what frees one.
#![allow(
    clippy::needless_range_loop,
    reason = "the index names a node, a file and a handle"
)]
use crate::common::*;
use forebay_fabric::fault::{FaultRates, Faults};
use forebay_server::delegate::{Delegate, Handle, LockOutcome, StalePages, WantedLock};
use forebay_server::proto::locks::{LockMode, LockSpace};
use forebay_server::{Error, Fid, Kind, NewInode, Service};
use forebay_testkit::seeds::is_soak;
use forebay_testkit::wait::until;
use parking_lot::Mutex;
use rustix::io::Errno;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Barrier};
use std::time::Duration;

fn want(owner: u64, start: u64, end: u64, mode: LockMode) -> WantedLock {
    WantedLock {
        owner,
        space: LockSpace::Record,
        start,
        end,
        mode,
        pid: 77,
        detect: true,
    }
}

fn exclusive(owner: u64, start: u64, end: u64) -> WantedLock {
    want(owner, start, end, LockMode::Exclusive)
}

/// Locks, waiting as long as it takes or until told to stop.
fn lock_waiting(
    node: &Delegate,
    handle: Handle,
    wanted: &WantedLock,
    stop: &AtomicBool,
) -> Result<Option<StalePages>, Error> {
    match node.locks.lock_or_wait(handle, wanted)? {
        LockOutcome::Granted(granted) => Ok(granted),
        LockOutcome::Waiting(wait) => node
            .locks
            .wait_for_lock(wait, &mut || stop.load(Ordering::SeqCst)),
    }
}

/// The same on a thread of its own.
fn start_waiting(
    node: &Arc<Delegate>,
    handle: Handle,
    wanted: WantedLock,
) -> (Receiver<Result<(), Errno>>, Arc<AtomicBool>) {
    let (send, receive) = channel();
    let stop = Arc::new(AtomicBool::new(false));
    let (node, told) = (node.clone(), stop.clone());
    std::thread::spawn(move || {
        let got = lock_waiting(&node, handle, &wanted, &told);
        let _ = send.send(got.map(|_| ()).map_err(|e| e.errno()));
    });
    (receive, stop)
}

const LONG: Duration = Duration::from_secs(60);

/// Until so many requests wait in the whole service.
fn until_waiting(service: &Service, wanted: usize) {
    until("the waits come to the number", || {
        let nodes = service.nodes();
        nodes.iter().map(|n| n.locks.counts().1).sum::<usize>() == wanted
    });
}

fn held(service: &Service) -> usize {
    service.nodes().iter().map(|n| n.locks.counts().0).sum()
}

/// A file of member `owner` (directories are spread, files live with theirs), open on every node.
fn open_everywhere(service: &Service, name: &str) -> (Fid, Vec<(Arc<Delegate>, Handle)>) {
    let first = service.delegate(0);
    let (fid, handle) = create(&first, name);
    let mut all = vec![(first, handle)];
    for n in 1..service.nodes().len() as u16 {
        let node = service.delegate(n);
        let handle = node.open(fid, BOTH).unwrap().handle;
        all.push((node, handle));
    }
    (fid, all)
}

#[test]
fn nodes_exclude_each_other_and_see_what_was_written_under_the_last_lock() {
    let dir = scratch();
    let service = start(&dir, config(3));
    let (_, nodes) = open_everywhere(&service, "f");
    for round in 0..12u64 {
        let (node, handle) = &nodes[round as usize % 3];
        let (other, other_handle) = &nodes[(round as usize + 1) % 3];
        let _ = node.locks.lock(*handle, &exclusive(5, 0, 8)).unwrap();
        // The same owner number on another node is another owner.
        let refused = other
            .locks
            .lock(*other_handle, &exclusive(5, 4, 9))
            .unwrap_err();
        assert_eq!(refused.errno(), Errno::AGAIN);
        let shown = other
            .locks
            .test_lock(*other_handle, &exclusive(5, 4, 9))
            .unwrap()
            .unwrap();
        assert_eq!(
            (shown.range, shown.mode, shown.pid),
            (0..8, LockMode::Exclusive, 0)
        );
        let before = node.read(*handle, 0, 8).unwrap();
        let count = <[u8; 8]>::try_from(&before[..]).map_or(0, u64::from_le_bytes);
        assert_eq!(count, round);
        node.write(*handle, 0, &(round + 1).to_le_bytes(), ROOT)
            .unwrap();
        node.locks
            .unlock(*handle, 5, LockSpace::Record, 0, 8)
            .unwrap();
        assert!(
            other
                .locks
                .test_lock(*other_handle, &exclusive(5, 4, 9))
                .unwrap()
                .is_none()
        );
    }
    assert_eq!(held(&service), 0);
    service.stop().unwrap();
}

#[test]
fn a_grant_names_pages_that_another_node_has_made_old() {
    let dir = scratch();
    let service = start(&dir, config(2));
    let (_, nodes) = open_everywhere(&service, "f");
    let [(a, ah), (b, bh)] = &nodes[..] else {
        panic!()
    };
    let lock = |node: &Delegate, handle| node.locks.lock(handle, &exclusive(1, 0, 1)).unwrap();
    let unlock = |node: &Delegate, handle| {
        node.locks
            .unlock(handle, 1, LockSpace::Record, 0, 1)
            .unwrap()
    };
    assert!(lock(a, *ah).is_none(), "opened just now");
    a.write(*ah, 0, b"one", ROOT).unwrap();
    unlock(a, *ah);
    let granted = lock(b, *bh);
    b.kernel_pages
        .dropped_pages(granted.expect("opened before the write"));
    assert_eq!(&b.read(*bh, 0, 9).unwrap()[..], b"one");
    unlock(b, *bh);
    assert!(lock(b, *bh).is_none(), "nothing was written since");
    b.write(*bh, 0, b"two", ROOT).unwrap();
    unlock(b, *bh);
    assert!(lock(b, *bh).is_none(), "only this node wrote");
    unlock(b, *bh);
    assert!(lock(a, *ah).is_some());
    service.stop().unwrap();
}

#[test]
fn waits_are_granted_interrupted_and_ended_and_leave_nothing() {
    let dir = scratch();
    let service = start(&dir, config(3));
    let (_, nodes) = open_everywhere(&service, "f");
    let _ = nodes[0]
        .0
        .locks
        .lock(nodes[0].1, &exclusive(1, 0, 100))
        .unwrap();
    let (first, _) = start_waiting(&nodes[1].0, nodes[1].1, exclusive(2, 10, 20));
    until_waiting(&service, 1);
    let (second, stop) = start_waiting(&nodes[2].0, nodes[2].1, exclusive(3, 15, 16));
    until_waiting(&service, 2);
    stop.store(true, Ordering::SeqCst);
    assert_eq!(second.recv_timeout(LONG).unwrap(), Err(Errno::INTR));
    assert_eq!(service.nodes()[0].locks.counts(), (1, 1));
    nodes[0]
        .0
        .locks
        .unlock(nodes[0].1, 1, LockSpace::Record, 0, 50)
        .unwrap();
    assert_eq!(first.recv_timeout(LONG).unwrap(), Ok(()));
    assert_eq!(held(&service), 2);
    // A node that stops frees what it held and ends its waits.
    let (third, _) = start_waiting(&nodes[1].0, nodes[1].1, exclusive(2, 60, 70));
    until_waiting(&service, 1);
    nodes[1].0.stop().unwrap();
    assert_eq!(third.recv_timeout(LONG).unwrap(), Err(Errno::INTR));
    assert_eq!(service.nodes()[0].locks.counts(), (1, 0));
    service.stop().unwrap();
}

#[test]
fn closing_gives_up_what_belongs_to_the_closer() {
    let dir = scratch();
    let service = start(&dir, config(2));
    let (fid, nodes) = open_everywhere(&service, "f");
    let (node, handle) = &nodes[1];
    let again = node.open(fid, READ).unwrap().handle;
    let flock = WantedLock {
        space: LockSpace::Flock,
        detect: false,
        ..want(90, 0, 1 << 63, LockMode::Shared)
    };
    let _ = node.locks.lock(*handle, &exclusive(1, 0, 10)).unwrap();
    let _ = node.locks.lock(*handle, &exclusive(2, 10, 20)).unwrap();
    let _ = node.locks.lock(again, &flock).unwrap();
    assert_eq!(held(&service), 3);
    node.write(*handle, 0, b"under the lock", ROOT).unwrap();
    // A process closes another descriptor: its record locks go, nobody else's.
    node.locks.close_owner(again, 1).unwrap();
    assert_eq!(held(&service), 2);
    let (other, other_handle) = &nodes[0];
    let _ = other
        .locks
        .lock(*other_handle, &exclusive(1, 0, 10))
        .unwrap();
    assert_eq!(
        &other.read(*other_handle, 0, 99).unwrap()[..],
        b"under the lock"
    );
    other
        .locks
        .unlock(*other_handle, 1, LockSpace::Record, 0, 10)
        .unwrap();
    // The open file goes: its own locks go.
    node.release(again).unwrap();
    assert_eq!(held(&service), 1);
    node.release(*handle).unwrap();
    assert_eq!(held(&service), 0);
    service.stop().unwrap();
}

#[test]
fn flock_gives_the_old_lock_up_before_it_asks_for_another() {
    let dir = scratch();
    let service = start(&dir, config(2));
    let (_, nodes) = open_everywhere(&service, "f");
    let flock = |owner, mode| WantedLock {
        space: LockSpace::Flock,
        detect: false,
        ..want(owner, 0, 1 << 63, mode)
    };
    let (a, b) = (&nodes[0], &nodes[1]);
    let _ = a.0.locks.lock(a.1, &flock(1, LockMode::Shared)).unwrap();
    let _ = b.0.locks.lock(b.1, &flock(1, LockMode::Shared)).unwrap();
    // Both want it alone: the one that asks first waits, the second gives its share up and so lets it in.
    let (first, _) = start_waiting(&a.0, a.1, flock(1, LockMode::Exclusive));
    until_waiting(&service, 1);
    let (second, _) = start_waiting(&b.0, b.1, flock(1, LockMode::Exclusive));
    assert_eq!(first.recv_timeout(LONG).unwrap(), Ok(()));
    // Record locks are another matter.
    let _ = b.0.locks.lock(b.1, &exclusive(1, 0, 1 << 63)).unwrap();
    a.0.locks
        .unlock(a.1, 1, LockSpace::Flock, 0, 1 << 63)
        .unwrap();
    assert_eq!(second.recv_timeout(LONG).unwrap(), Ok(()));
    service.stop().unwrap();
}

#[test]
fn a_circle_over_nodes_and_files_fails_for_the_one_that_closes_it() {
    let dir = scratch();
    let service = start(&dir, config(3));
    for size in 2..=3usize {
        // Files of different owners, where directories have spread them.
        let files: Vec<_> = (0..size)
            .map(|i| {
                let name = format!("d{size}-{i}");
                let node = service.delegate(0);
                let new = NewInode::new(Kind::Dir, 0o755);
                let dir = node
                    .names
                    .make(Fid::ROOT, name.as_bytes(), new, ROOT)
                    .unwrap();
                let made = node
                    .create(dir.fid, b"f", 0o644, false, BOTH, ROOT)
                    .unwrap();
                let mut handles = vec![made.handle];
                for n in 1..3 {
                    handles.push(
                        service
                            .delegate(n)
                            .open(made.attr.fid, BOTH)
                            .unwrap()
                            .handle,
                    );
                }
                handles
            })
            .collect();
        let node = |i: usize| service.delegate(i as u16);
        for i in 0..size {
            let _ = node(i)
                .locks
                .lock(files[i][i], &exclusive(8, 0, 10))
                .unwrap();
        }
        let mut waits = Vec::new();
        for i in 0..size - 1 {
            let next = (i + 1) % size;
            waits.push(start_waiting(&node(i), files[next][i], exclusive(8, 5, 6)));
            until_waiting(&service, i + 1);
        }
        let last = size - 1;
        let wanted = exclusive(8, 5, 6);
        let never = AtomicBool::new(false);
        let refused = lock_waiting(&node(last), files[0][last], &wanted, &never).unwrap_err();
        assert_eq!(refused.errno(), Errno::DEADLK);
        until_waiting(&service, size - 1);
        // Whoever does not take part in looking for circles waits.
        let patient = WantedLock {
            detect: false,
            ..wanted
        };
        let (patient, stop) = start_waiting(&node(last), files[0][last], patient);
        until_waiting(&service, size);
        stop.store(true, Ordering::SeqCst);
        assert_eq!(patient.recv_timeout(LONG).unwrap(), Err(Errno::INTR));
        // The last one gives its lock up, and the others get theirs one after the other.
        for i in (0..size).rev() {
            node(i).locks.close_owner(files[i][i], 8).unwrap();
            if i > 0 {
                assert_eq!(waits[i - 1].0.recv_timeout(LONG).unwrap(), Ok(()));
                node(i - 1).locks.close_owner(files[i][i - 1], 8).unwrap();
            }
        }
        assert_eq!(held(&service), 0);
    }
    service.stop().unwrap();
}

#[test]
fn requests_that_close_a_circle_together_do_not_all_wait_and_do_not_all_fail() {
    let dir = scratch();
    let service = start(&dir, config(2));
    close_circles_together(&service, if is_soak() { 2000 } else { 50 });
    service.stop().unwrap();
}

#[test]
fn a_slow_refusal_of_one_request_of_a_circle_fails_no_other() {
    let (dir, faults) = (scratch(), Faults::new(1));
    let service = start_faulty(&dir, config(2), &faults);
    faults.set(FaultRates {
        late: 1000,
        delay: Duration::from_millis(20),
        ..FaultRates::default()
    });
    close_circles_together(&service, if is_soak() { 200 } else { 20 });
    service.stop().unwrap();
}

/// Two nodes wait for each other's locks at once, again and again: each time one is refused and the other served.
fn close_circles_together(service: &Service, rounds: usize) {
    let (_, nodes) = open_everywhere(service, "f");
    for _ in 0..rounds {
        let _ = nodes[0]
            .0
            .locks
            .lock(nodes[0].1, &exclusive(1, 0, 1))
            .unwrap();
        let _ = nodes[1]
            .0
            .locks
            .lock(nodes[1].1, &exclusive(1, 1, 2))
            .unwrap();
        let waits = [
            start_waiting(&nodes[0].0, nodes[0].1, exclusive(1, 1, 2)),
            start_waiting(&nodes[1].0, nodes[1].1, exclusive(1, 0, 1)),
        ];
        let mut ended = Vec::new();
        while ended.len() < 2 {
            for (i, (outcome, _)) in waits.iter().enumerate() {
                if let Ok(outcome) = outcome.recv_timeout(Duration::from_millis(1)) {
                    ended.push(outcome);
                    // Failed or served, the program lets go of everything; the other goes on.
                    nodes[i].0.locks.close_owner(nodes[i].1, 1).unwrap();
                }
            }
        }
        ended.sort_by_key(|outcome| outcome.is_err());
        assert_eq!(ended, [Ok(()), Err(Errno::DEADLK)]);
        assert_eq!(held(service), 0);
    }
}

#[test]
fn nothing_is_lost_or_stuck_over_a_network_that_loses_messages() {
    for seed in 0..if is_soak() { 40 } else { 3 } {
        let (dir, faults) = (scratch(), Faults::new(seed));
        let service = start_faulty(&dir, config(3), &faults);
        let (_, nodes) = open_everywhere(&service, "f");
        faults.set(FaultRates {
            lose_request: 60,
            lose_reply: 60,
            lose_message: 300,
            ..FaultRates::default()
        });
        const ROUNDS: u64 = 15;
        std::thread::scope(|scope| {
            for (node, handle) in &nodes {
                scope.spawn(move || {
                    let never = AtomicBool::new(false);
                    // Requests of another kind have no second try of their own here.
                    let insist = |call: &dyn Fn() -> Result<(), Error>| {
                        while let Err(e) = call() {
                            assert_eq!(e.errno(), Errno::IO, "{e}");
                        }
                    };
                    for _ in 0..ROUNDS {
                        let wanted = exclusive(1, 0, 8);
                        insist(&|| lock_waiting(node, *handle, &wanted, &never).map(|_| ()));
                        let count = std::cell::Cell::new(0);
                        insist(&|| {
                            let bytes = node.read(*handle, 0, 8)?;
                            count
                                .set(<[u8; 8]>::try_from(&bytes[..]).map_or(0, u64::from_le_bytes));
                            Ok(())
                        });
                        let next = (count.get() + 1).to_le_bytes();
                        node.write(*handle, 0, &next, ROOT).unwrap();
                        // Published before the lock is given up: what follows must not undo it.
                        insist(&|| node.flush(*handle));
                        insist(&|| node.locks.unlock(*handle, 1, LockSpace::Record, 0, 8));
                    }
                });
            }
        });
        faults.set(FaultRates::default());
        let (node, handle) = &nodes[0];
        let _ = node.locks.lock(*handle, &exclusive(9, 0, 8)).unwrap();
        let bytes = node.read(*handle, 0, 8).unwrap();
        assert_eq!(
            u64::from_le_bytes(bytes[..].try_into().unwrap()),
            3 * ROUNDS
        );
        node.locks
            .unlock(*handle, 9, LockSpace::Record, 0, 8)
            .unwrap();
        assert_eq!(service.nodes()[0].locks.counts(), (0, 0));
        service.stop().unwrap();
    }
}

/// Numbers of a node in `shared_by_columns`.
const COLUMN: usize = 300;

fn number(round: u64, part: u64, i: usize) -> u32 {
    let mixed = (round << 40 | part << 32 | i as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    // Never what stands for bytes that were not read.
    (mixed >> 33) as u32
}

/// As a program does that shares a file by columns, with MPI-IO: each node writes a block of its own, which it does not publish; then its
/// column among those of the others, of which it reads all and writes all back, under a lock; then a block again. After all have
/// closed the file, each reads what its neighbour wrote. `wrong`: what is found wrong, because the others would wait for one that panics.
fn shared_by_columns(
    node: &Delegate,
    (rank, ranks): (u64, u64),
    (round, fid): (u64, Fid),
    all: &Barrier,
    wrong: &Mutex<Vec<String>>,
) {
    let block = 4 * COLUMN as u64;
    let (columns, last) = (ranks * block, 2 * ranks * block);
    let bytes = |part: u64| -> Vec<u8> {
        let numbers = (0..COLUMN).map(|i| number(round, part, i));
        numbers.flat_map(u32::to_le_bytes).collect()
    };
    let blocks = node.open(fid, BOTH).unwrap().handle;
    let own = bytes(rank);
    node.write(blocks, rank * block, &own, ROOT).unwrap();
    let handle = node.open(fid, BOTH).unwrap().handle;
    let (start, end) = (columns + 4 * rank, last - 4 * (ranks - 1 - rank));
    let never = AtomicBool::new(false);
    let _ = lock_waiting(node, handle, &exclusive(7, start, end), &never).unwrap();
    let read = node.read(handle, start, (end - start) as u32).unwrap();
    let mut written = vec![0xff; (end - start) as usize];
    written[..read.len()].copy_from_slice(&read);
    for (i, own) in bytes(10 + rank).chunks(4).enumerate() {
        written[i * 4 * ranks as usize..][..4].copy_from_slice(own);
    }
    node.write(handle, start, &written, ROOT).unwrap();
    node.locks
        .unlock(handle, 7, LockSpace::Record, start, end)
        .unwrap();
    let after = bytes(20 + rank);
    node.write(blocks, last + rank * block, &after, ROOT)
        .unwrap();
    for handle in [handle, blocks] {
        node.flush(handle).unwrap();
        node.release(handle).unwrap();
    }
    all.wait();
    let handle = node.open(fid, READ).unwrap().handle;
    let other = (rank + 1) % ranks;
    for (part, at) in [(other, other * block), (20 + other, last + other * block)] {
        let found = node.read(handle, at, block as u32).unwrap();
        if found != bytes(part) {
            wrong
                .lock()
                .push(format!("round {round}: a block of {other}"));
        }
    }
    let found = node.read(handle, columns, (last - columns) as u32).unwrap();
    let column = found.chunks(4).skip(other as usize).step_by(ranks as usize);
    let wanted = bytes(10 + other);
    let pairs = column.zip(wanted.chunks(4));
    let lost = pairs.filter(|(found, wanted)| found != wanted).count();
    if lost > 0 {
        let lost = format!("round {round}: {lost} numbers of {other}, as {rank} reads");
        wrong.lock().push(lost);
    }
    node.release(handle).unwrap();
    all.wait();
}

#[test]
fn nothing_is_lost_of_columns_that_are_written_back_under_locks() {
    for (seed, settles) in [(1, false), (2, true)] {
        let (dir, faults) = (scratch(), Faults::new(seed));
        let config = forebay_server::Config {
            settle: settling(settles),
            ..config(4)
        };
        let service = start_faulty(&dir, config, &faults);
        faults.set(FaultRates {
            late: 300,
            delay: Duration::from_millis(2),
            ..FaultRates::default()
        });
        let rounds = forebay_testkit::seeds::count(40, 3000);
        let files: Vec<Fid> = (0..rounds)
            .map(|round| {
                let node = service.delegate((round % 4) as u16);
                let (fid, handle) = create(&node, &format!("f{round}"));
                node.release(handle).unwrap();
                fid
            })
            .collect();
        let (all, wrong) = (Barrier::new(4), Mutex::default());
        std::thread::scope(|scope| {
            for rank in 0..4u16 {
                let (node, files, all, wrong) = (service.delegate(rank), &files, &all, &wrong);
                scope.spawn(move || {
                    for (round, fid) in files.iter().enumerate() {
                        let file = (round as u64, *fid);
                        shared_by_columns(&node, (rank.into(), 4), file, all, wrong);
                    }
                });
            }
        });
        assert_eq!(wrong.into_inner(), Vec::<String>::new());
        service.stop().unwrap();
    }
}

#[test]
fn a_dead_node_holds_nothing_and_a_node_taken_for_dead_is_told_so() {
    let dir = scratch();
    let faults = Faults::new(1);
    let service = start_faulty(&dir, config(3), &faults);
    let (_, nodes) = open_everywhere(&service, "f");
    let lock = |n: usize| nodes[n].0.locks.lock(nodes[n].1, &exclusive(1, 0, 1));
    let _ = lock(2).unwrap();
    let (wait, _) = start_waiting(&nodes[1].0, nodes[1].1, exclusive(1, 0, 1));
    until_waiting(&service, 1);
    faults.kill(2);
    assert_eq!(wait.recv_timeout(LONG).unwrap(), Ok(()));
    faults.revive(2);
    // It believed that it held the lock; it hears that it does not at its next call about it.
    let told = nodes[2]
        .0
        .locks
        .unlock(nodes[2].1, 1, LockSpace::Record, 0, 1)
        .unwrap_err();
    assert_eq!(told.errno(), Errno::NOLCK);
    assert_eq!(lock(2).unwrap_err().errno(), Errno::AGAIN);
    nodes[1]
        .0
        .locks
        .unlock(nodes[1].1, 1, LockSpace::Record, 0, 1)
        .unwrap();
    let _ = lock(2).unwrap();
    // The keeper itself is dead: an error, and in time.
    faults.kill(0);
    assert_eq!(lock(1).unwrap_err().errno(), Errno::IO);
    faults.revive(0);
    service.stop().unwrap();
}
