//! Crashes, failing calls and full disks under random histories: what was acknowledged is there as the durability says,
//! and nothing ever reads as other bytes than were written.
use crate::common::{is_gone, options, pattern, read_parts, settle_options};
use forebay_data::ranges::{merge, subtract};
use forebay_data::{LogId, LogStore, LogStoreOptions};
use forebay_proto::{Error, Fid, Result};
use forebay_storage::fault::{Call, FaultIo, HeldSync, HookedIo, Image};
use forebay_storage::{Durability, Io, Options, Store};
use forebay_testkit::random::Random;
use forebay_testkit::seeds::for_each_seed;
use rustix::io::Errno;
use std::io::ErrorKind;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

/// What may be asked of the bytes after a failure.
#[derive(Clone, Copy, PartialEq)]
enum Promise {
    /// Acknowledged bytes are there, freed bytes are not.
    Kept,
    /// Nothing reads as other bytes; some may be lost.
    NeverWrong,
}

#[derive(Default)]
struct Log {
    id: LogId,
    appended: u64,
    flushed: u64,
    sealed: bool,
    freed: Vec<Range<u64>>,
    /// The free that failed: done or not.
    perhaps_freed: Vec<Range<u64>>,
}

struct Machine {
    disk: FaultIo,
    store: Arc<Store>,
    logs: LogStore,
}

fn level(durability: Durability) -> (Options, LogStoreOptions) {
    let store = Options {
        durability,
        memtable_bytes: 16 << 10,
        ..Options::default()
    };
    let sync_each_flush = durability == Durability::Disk;
    (
        store,
        LogStoreOptions {
            buffer_bytes: 64 << 10,
            sync_each_flush,
            ..options()
        },
    )
}

/// Twenty parts with gaps of two freed pages after each, of one log, on a disk that notes reads of segments, and refuses those longer than it
/// is told.
#[test]
fn parts_near_each_other_are_read_by_few_calls_and_one_by_one_if_a_call_fails() {
    const PITCH: u64 = 53_248;
    const LEN: u64 = 45_056;
    let (calls, longest) = (
        Arc::new(AtomicUsize::new(0)),
        Arc::new(AtomicU64::new(u64::MAX)),
    );
    let (count, most) = (calls.clone(), longest.clone());
    let disk = HookedIo::new(FaultIo::new(1), move |path, call| {
        if let Call::Read { len, .. } = call
            && path.extension().is_some_and(|ext| ext == "seg")
        {
            count.fetch_add(1, Relaxed);
            if len > most.load(Relaxed) {
                return Err(Errno::IO.into());
            }
        }
        Ok(())
    });
    let disk: Arc<dyn Io> = Arc::new(disk);
    let store = Store::open(disk.clone(), Path::new("/m/kv"), Options::default()).unwrap();
    let logs = LogStore::open(disk, Path::new("/m/data"), Arc::new(store), options()).unwrap();
    let log = logs.create_log(Fid(1), Default::default()).unwrap();
    let parts: Vec<_> = (0..20).map(|i| (log, i * PITCH..i * PITCH + LEN)).collect();
    for (_, part) in &parts {
        logs.append(log, &pattern(log, part.start, PITCH as usize))
            .unwrap();
        logs.flush(log, false).unwrap();
        logs.free(&[(log, part.end..part.start + PITCH)]).unwrap();
    }
    calls.store(0, Relaxed);
    read_parts(&logs, &parts).unwrap();
    // Five parts are just below 256 KiB.
    assert_eq!(calls.load(Relaxed), 4);
    longest.store(LEN, Relaxed);
    read_parts(&logs, &parts).unwrap();
    assert_eq!(calls.load(Relaxed), 4 + 4 + 20);
    longest.store(LEN - 1, Relaxed);
    assert_eq!(read_parts(&logs, &parts).unwrap_err().errno(), Errno::IO);
}

impl Machine {
    fn start(disk: FaultIo, durability: Durability) -> Result<Machine> {
        let (store, data) = level(durability);
        let store = Arc::new(Store::open(
            Arc::new(disk.clone()),
            Path::new("/m/kv"),
            store,
        )?);
        let logs = LogStore::open(
            Arc::new(disk.clone()),
            Path::new("/m/data"),
            store.clone(),
            data,
        )?;
        Ok(Machine { disk, store, logs })
    }
    fn restart(image: &Image, durability: Durability) -> Machine {
        Machine::start(FaultIo::with_image(image, 1), durability).unwrap()
    }
}

/// One random operation. `Err`: it failed, and the log says what may have happened.
fn step(store: &LogStore, logs: &mut Vec<Log>, n: &mut Random) -> Result<()> {
    if logs.len() < 2 || n.below(12) == 0 {
        logs.push(Log {
            id: store.create_log(Fid(5), Default::default())?,
            ..Log::default()
        });
        return Ok(());
    }
    let at = n.below(logs.len() as u64) as usize;
    let log = &mut logs[at];
    match n.below(10) {
        0..=4 if !log.sealed => {
            let len = [50, 4096, 9000, 70_000][n.below(4) as usize];
            store.append(log.id, &pattern(log.id, log.appended, len))?;
            log.appended += len as u64;
        }
        5 | 6 if !log.sealed => {
            store.flush(log.id, n.below(2) == 0)?;
            log.flushed = log.appended;
        }
        7 if !log.sealed && n.below(3) == 0 => {
            store.flush(log.id, false)?;
            log.flushed = log.appended;
            log.sealed = true;
            store.seal(log.id)?;
        }
        8 if log.flushed > 0 => {
            let start = n.below(log.flushed);
            let range = start..(start + 1 + n.below(40_000)).min(log.flushed);
            log.perhaps_freed = vec![range.clone()];
            store.free(&[(log.id, range.clone())])?;
            log.perhaps_freed.clear();
            log.freed.push(range);
        }
        9 => store.clean(n.below(2) == 0)?,
        _ => {}
    }
    Ok(())
}

fn check(store: &LogStore, logs: &[Log], promise: Promise) {
    const STEP: u64 = 1531;
    for log in logs {
        let (freed, perhaps) = (merge(log.freed.clone()), &log.perhaps_freed);
        for start in (0..log.appended).step_by(STEP as usize) {
            let range = start..(start + STEP).min(log.appended);
            let len = (range.end - range.start) as usize;
            let mut buf = vec![0; len];
            let overlaps = |set: &[Range<u64>]| {
                set.iter()
                    .any(|r| r.start < range.end && r.end > range.start)
            };
            let acknowledged = range.end <= log.flushed && !overlaps(&freed) && !overlaps(perhaps);
            match store.read(log.id, start, &mut buf) {
                Ok(()) => {
                    assert!(
                        buf == pattern(log.id, start, len),
                        "log {} {start}+{len}: wrong bytes",
                        log.id
                    );
                    assert!(
                        promise == Promise::NeverWrong || !overlaps(&freed),
                        "log {} {start}: freed bytes came back",
                        log.id
                    );
                }
                Err(Error::Gone { .. } | Error::Corrupt(_))
                    if promise == Promise::NeverWrong || !acknowledged => {}
                Err(e) => panic!(
                    "log {} {start}+{len}, flushed to {}: {e}",
                    log.id, log.flushed
                ),
            }
        }
    }
}

/// After the restart: bytes as promised, no number used again, and work goes on.
fn after(image: &Image, durability: Durability, logs: &mut [Log], promise: Promise) {
    let machine = Machine::restart(image, durability);
    check(&machine.logs, logs, promise);
    for (id, _) in machine.logs.unsealed().unwrap() {
        let log = logs
            .iter_mut()
            .find(|l| l.id == id)
            .expect("a log nobody made");
        let gone = merge(
            log.freed
                .iter()
                .chain(&log.perhaps_freed)
                .cloned()
                .collect(),
        );
        machine
            .logs
            .retain(id, &subtract(0..log.flushed, &gone))
            .unwrap();
        log.appended = log.flushed;
    }
    machine.logs.clean(true).unwrap();
    check(&machine.logs, logs, promise);
    let new = machine.logs.create_log(Fid(6), Default::default()).unwrap();
    assert!(logs.iter().all(|l| l.id < new), "a log number came twice");
    machine.logs.append(new, &pattern(new, 0, 100_000)).unwrap();
    machine.logs.flush(new, true).unwrap();
    let mut buf = vec![0; 100_000];
    machine.logs.read(new, 0, &mut buf).unwrap();
    assert!(buf == pattern(new, 0, 100_000));
    machine.logs.close().unwrap();
    machine.store.close().unwrap();
}

/// Runs until the disk stops answering; then what is left on it.
fn history(seed: u64, durability: Durability, power: bool) -> (Image, Vec<Log>) {
    let machine = Machine::start(FaultIo::new(seed), durability).unwrap();
    let mut n = Random::new(seed);
    machine.disk.stop_after(1 + n.below(400));
    let mut logs = Vec::new();
    for _ in 0..200 {
        if step(&machine.logs, &mut logs, &mut n).is_err() || machine.disk.failed_call().is_some() {
            break;
        }
    }
    let image = if power {
        machine.disk.crash()
    } else {
        machine.disk.kill()
    };
    (image, logs)
}

const SEEDS: (u64, u64) = (10, 5000);

#[test]
fn a_power_loss_at_durability_disk_loses_nothing_acknowledged() {
    for_each_seed("log_power_disk", SEEDS, |seed| {
        let (image, mut logs) = history(seed, Durability::Disk, true);
        after(&image, Durability::Disk, &mut logs, Promise::Kept);
    });
}

#[test]
fn a_killed_process_loses_nothing_flushed() {
    for_each_seed("log_killed", SEEDS, |seed| {
        let (image, mut logs) = history(seed, Durability::Process, false);
        after(&image, Durability::Process, &mut logs, Promise::Kept);
    });
}

#[test]
fn a_power_loss_at_durability_process_never_gives_wrong_bytes() {
    for_each_seed("log_power_process", SEEDS, |seed| {
        let (image, mut logs) = history(seed, Durability::Process, true);
        // The logs' numbers and records may be lost with the rest; what is there must be right.
        after(&image, Durability::Process, &mut logs, Promise::NeverWrong);
    });
}

#[test]
fn any_failing_call_keeps_what_was_acknowledged() {
    for_each_seed("log_failing_calls", SEEDS, |seed| {
        let machine = Machine::start(FaultIo::new(seed), Durability::Disk).unwrap();
        let (mut n, mut logs) = (Random::new(seed), Vec::new());
        let kind = if seed % 2 == 0 {
            ErrorKind::Other
        } else {
            ErrorKind::StorageFull
        };
        machine.disk.fail_after(1 + n.below(250), kind);
        let mut failed = false;
        for _ in 0..200 {
            let result = step(&machine.logs, &mut logs, &mut n);
            if let Err(e) = &result {
                let full = e.errno() == Errno::NOSPC;
                assert!(
                    machine.disk.failed_call().is_some(),
                    "failed before the disk did: {e}"
                );
                if !full {
                    failed = true;
                    break;
                }
                // A free that met the full disk may have happened in part; the model does not follow it further.
                logs.iter_mut()
                    .for_each(|l| l.freed.extend(std::mem::take(&mut l.perhaps_freed)));
                break;
            }
        }
        if failed {
            // Poisoned or not, no append is lost silently: it fails or can be flushed later.
            if let Ok(id) = machine.logs.create_log(Fid(7), Default::default()) {
                let mut log = Log {
                    id,
                    ..Log::default()
                };
                if machine.logs.append(id, &pattern(id, 0, 1)).is_ok() {
                    log.appended = 1;
                    log.flushed = u64::from(machine.logs.flush(id, true).is_ok());
                }
                logs.push(log);
            }
        }
        let image = machine.disk.crash();
        for log in &mut logs {
            log.perhaps_freed.append(&mut log.freed);
        }
        after(&image, Durability::Disk, &mut logs, Promise::Kept);
    });
}

#[test]
fn a_full_disk_refuses_and_deleting_makes_room() {
    let machine = Machine::start(FaultIo::new(3), Durability::Process).unwrap();
    let first = machine.logs.create_log(Fid(1), Default::default()).unwrap();
    machine
        .logs
        .append(first, &pattern(first, 0, 3 << 20))
        .unwrap();
    machine.logs.flush(first, false).unwrap();
    machine.disk.set_capacity(machine.disk.used() + (2 << 20));
    let log = machine.logs.create_log(Fid(1), Default::default()).unwrap();
    let (mut at, mut refused) = (0, 0);
    while refused < 3 {
        match machine.logs.append(log, &pattern(log, at, 50_000)) {
            Ok(addr) => {
                assert_eq!((addr, refused), (at, 0), "an append after a refused one");
                at += 50_000;
            }
            Err(e) => {
                assert_eq!(e.errno(), Errno::NOSPC, "{e}");
                refused += 1;
            }
        }
    }
    let read = |log, addr, len: usize| {
        let mut buf = vec![0; len];
        machine.logs.read(log, addr, &mut buf).map(|()| buf)
    };
    assert!(at > 1 << 20, "the disk was full after {at} bytes");
    assert!(read(first, 0, 3 << 20).unwrap() == pattern(first, 0, 3 << 20));
    assert!(read(log, 0, at as usize).unwrap() == pattern(log, 0, at as usize));
    machine.logs.free(&[(first, 0..2 << 20)]).unwrap();
    // No cleaning by hand: the refused write does it.
    assert_eq!(
        machine.logs.append(log, &pattern(log, at, 50_000)).unwrap(),
        at
    );
    machine.logs.flush(log, true).unwrap();
    assert!(read(log, 0, at as usize + 50_000).unwrap() == pattern(log, 0, at as usize + 50_000));
    assert!(is_gone(&read(first, 0, 1)));
}

/// Logs on a disk whose next sync of a segment can be held.
fn held_logs() -> (LogStore, Arc<HeldSync>) {
    let is_segment = |path: &Path| path.parent().is_some_and(|dir| dir.ends_with("data"));
    let (disk, held) = HeldSync::of(FaultIo::new(5), is_segment);
    let io: Arc<dyn forebay_storage::Io> = Arc::new(disk);
    let store = Store::open(io.clone(), Path::new("/store"), Options::default()).unwrap();
    let logs = LogStore::open(io, Path::new("/data"), Arc::new(store), options());
    (logs.unwrap(), held)
}

fn filled_log(logs: &LogStore, len: usize) -> LogId {
    let log = logs.create_log(Fid(1), Default::default()).unwrap();
    logs.append(log, &pattern(log, 0, len)).unwrap();
    logs.flush(log, false).unwrap();
    log
}

#[test]
fn logs_of_one_segment_and_all_logs_hear_of_a_sync_that_failed_for_another_one() {
    let (logs, held) = held_logs();
    // Every fourth log goes to the same segment.
    let all: Vec<LogId> = (0..9).map(|_| filled_log(&logs, 300_000)).collect();
    let (first, same_segment) = (all[0], [all[4], all[8]]);
    held.arm();
    std::thread::scope(|scope| {
        let (logs, held) = (&logs, &held);
        let failing = scope.spawn(move || logs.flush(first, true));
        held.wait_reached();
        let others = same_segment.map(|log| scope.spawn(move || logs.flush(log, true)));
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert!(others.iter().all(|other| !other.is_finished()));
        held.fail();
        assert!(failing.join().unwrap().is_err());
        for other in others {
            assert!(other.join().unwrap().is_err());
        }
    });
    for log in all {
        assert!(logs.flush(log, true).is_err());
    }
    assert!(logs.sync_all().is_err());
}

#[test]
fn a_segment_that_is_opened_for_a_sync_waits_for_one_that_fails() {
    // The disk tells the first sync alone that bytes are lost, as a kernel does if files are opened after that.
    let (logs, held) = held_logs();
    let all: Vec<LogId> = (0..5).map(|_| filled_log(&logs, 300_000)).collect();
    let (first, sealed) = (all[0], all[4]);
    logs.seal(sealed).unwrap();
    held.arm();
    std::thread::scope(|scope| {
        let (logs, held) = (&logs, &held);
        let failing = scope.spawn(move || logs.flush(first, true));
        held.wait_reached();
        // Its segment is opened by number.
        let other = scope.spawn(move || logs.flush(sealed, true));
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert!(!other.is_finished());
        held.fail();
        assert!(failing.join().unwrap().is_err());
        assert!(other.join().unwrap().is_err());
    });
    assert!(logs.flush(sealed, true).is_err() && logs.sync_all().is_err());
}

#[test]
fn nothing_moves_to_a_segment_whose_bytes_may_be_lost() {
    let (logs, held) = held_logs();
    // A full segment, most of which is freed, and the one that all of a lane go to now.
    let full = filled_log(&logs, 70 << 20);
    logs.flush(full, true).unwrap();
    logs.seal(full).unwrap();
    let others: Vec<LogId> = (0..4).map(|_| filled_log(&logs, 100_000)).collect();
    logs.free(&[(full, 1 << 20..40 << 20), (full, 41 << 20..70 << 20)])
        .unwrap();
    held.arm();
    std::thread::scope(|scope| {
        let failing = scope.spawn(|| logs.flush(others[3], true));
        held.wait_reached();
        held.fail();
        assert!(failing.join().unwrap().is_err());
    });
    let before = logs.stats().segments;
    assert!(logs.clean(true).is_err());
    assert_eq!(
        logs.stats().segments,
        before,
        "a segment that holds bytes is gone"
    );
    let mut bytes = vec![0; 1 << 20];
    logs.read(full, 40 << 20, &mut bytes).unwrap();
    assert!(bytes == pattern(full, 40 << 20, 1 << 20));
}

#[test]
fn an_open_that_fails_leaves_no_thread_behind() {
    let (calls, refused) = (
        Arc::new(AtomicUsize::new(0)),
        Arc::new(AtomicUsize::new(usize::MAX)),
    );
    let (count, nth) = (calls.clone(), refused.clone());
    let disk = HookedIo::new(FaultIo::new(1), move |_, _| {
        match count.fetch_add(1, Relaxed) == nth.load(Relaxed) {
            true => Err(Errno::IO.into()),
            false => Ok(()),
        }
    });
    let io: Arc<dyn Io> = Arc::new(disk);
    let open = |store: &Arc<Store>| {
        let options = LogStoreOptions {
            settle: Some(settle_options()),
            background: true,
            ..options()
        };
        LogStore::open(io.clone(), Path::new("/m/data"), store.clone(), options)
    };
    let mut failed = 0;
    for n in 0.. {
        refused.store(usize::MAX, Relaxed);
        let store =
            Arc::new(Store::open(io.clone(), Path::new("/m/kv"), Options::default()).unwrap());
        calls.store(0, Relaxed);
        refused.store(n, Relaxed);
        if open(&store).is_ok() && calls.load(Relaxed) <= n {
            break;
        }
        failed += 1;
        assert_eq!(Arc::strong_count(&store), 1, "call {n}: a thread has it");
    }
    assert!(failed > 3, "{failed}");
}

#[test]
fn a_removed_segment_gives_its_space_back_also_while_a_log_is_not_on_disk() {
    let dir = tempfile::tempdir().unwrap();
    let io: Arc<dyn forebay_storage::Io> = Arc::new(forebay_storage::OsIo);
    let store = Store::open(io.clone(), &dir.path().join("store"), Options::default()).unwrap();
    let logs = LogStore::open(io, &dir.path().join("data"), Arc::new(store), options()).unwrap();
    let log = logs.create_log(Fid(1), Default::default()).unwrap();
    // Written over again and again, never synced.
    let piece = vec![7; 16 << 20];
    for n in 0..12u64 {
        logs.append(log, &piece).unwrap();
        logs.flush(log, false).unwrap();
        logs.free(&[(log, 0..n * piece.len() as u64)]).unwrap();
        logs.clean(false).unwrap();
    }
    let open = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let removed = open.filter_map(|fd| {
        let to = std::fs::read_link(fd.path()).ok()?;
        let is_removed = to.starts_with(dir.path()) && to.to_string_lossy().ends_with("(deleted)");
        let found = std::fs::metadata(fd.path()).ok()?;
        is_removed.then(|| std::os::unix::fs::MetadataExt::blocks(&found))
    });
    assert_eq!(removed.sum::<u64>(), 0);
}
