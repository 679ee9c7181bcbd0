//! Random histories with settling, with and without codecs, of logs that share much and are versions of one thing, with crashes and failing calls at every stage, against a plain model:
//! what was acknowledged is there as the durability says, nothing reads as other bytes than were written, every chunk is counted as
//! often as it is named and has the fingerprint of its bytes, and when all is freed nothing is left.
use crate::common::{options, read_from_elsewhere, settle_options, wave};
use forebay_data::check::{ByteCheck, SegmentFiles, StoredBytes, recount};
use forebay_data::fingerprint::FingerprintKind;
use forebay_data::ranges::{merge, subtract};
use forebay_data::{
    AppendOptions, CodecWhen, LogId, LogStore, LogStoreOptions, SeriesId, SettleOptions, container,
    span,
};
use forebay_proto::{Error, Fid, Result};
use forebay_storage::fault::{FaultIo, Image};
use forebay_storage::{Durability, Io, Options, Store};
use forebay_testkit::random::{Random, seeded_bytes};
use forebay_testkit::seeds::for_each_seed;
use std::io::ErrorKind;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, LazyLock};

/// What logs hold parts of.
static SHARED: LazyLock<Vec<u8>> =
    LazyLock::new(|| [seeded_bytes(7, 200_000), wave(7, 50_000)].concat());

/// Of which logs hold versions, each byte where it is in this: weights, as in checkpoints.
static WEIGHTS: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut weights = seeded_bytes(8, 1 << 20);
    weights.chunks_exact_mut(4).for_each(|word| word[3] = 0x3d);
    weights
});

/// What may be asked of the bytes after a failure.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Promise {
    /// Acknowledged bytes are there, freed bytes are not.
    Kept,
    /// Nothing reads as other bytes; some may be lost.
    NeverWrong,
}

#[derive(Default)]
struct Log {
    id: LogId,
    /// Most of it is nearly what others have at the same place.
    is_version: bool,
    bytes: Vec<u8>,
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

fn kind_of(seed: u64) -> FingerprintKind {
    match seed % 5 {
        0 => FingerprintKind::EightBits,
        1 => FingerprintKind::Sha1,
        _ => FingerprintKind::Blake3,
    }
}

fn when_of(seed: u64) -> CodecWhen {
    [CodecWhen::Off, CodecWhen::Settle, CodecWhen::Inline][(seed % 3) as usize]
}

impl Machine {
    fn start(disk: FaultIo, durability: Durability, seed: u64) -> Result<Machine> {
        let options = LogStoreOptions {
            buffer_bytes: 64 << 10,
            sync_each_flush: durability == Durability::Disk,
            settle: Some(SettleOptions {
                fingerprint: kind_of(seed),
                ..settle_options()
            }),
            codec_when: when_of(seed),
            ..options()
        };
        let records = Options {
            durability,
            memtable_bytes: 16 << 10,
            background: false,
            ..Options::default()
        };
        let (io, data) = (Arc::new(disk.clone()), Path::new("/m/data"));
        let store = Arc::new(Store::open(io.clone(), Path::new("/m/kv"), records)?);
        let logs = LogStore::open(io, data, store.clone(), options)?;
        Ok(Machine { disk, store, logs })
    }
}

/// Bytes to append at an offset: zeros, a part of what others have too or nearly have there, or new ones.
fn content(offset: usize, is_version: bool, n: &mut Random) -> Vec<u8> {
    let len = [50, 4096, 9000, 70_000, 300_000][n.index(5)];
    match n.below(6) {
        _ if is_version && offset + len <= WEIGHTS.len() => {
            let mut version = WEIGHTS[offset..offset + len].to_vec();
            let places = version.iter_mut().zip(offset..);
            let changing = places.filter(|(_, at)| at % 4 == 0);
            changing.for_each(|(byte, _)| *byte ^= n.next() as u8);
            version
        }
        0 => vec![0; len],
        1 if n.chance(50) => wave(n.next(), len.div_ceil(4)),
        1 => seeded_bytes(n.next(), len),
        _ => {
            // Mostly on the grid, and sometimes not.
            let step = if n.chance(80) { 4096 } else { 1 };
            let start = n.index(100_000 / step) * step;
            SHARED[start..start + len].to_vec()
        }
    }
}

/// One random operation. `Err`: it failed, and the log says what may have happened.
fn step(store: &LogStore, logs: &mut Vec<Log>, n: &mut Random) -> Result<()> {
    if logs.len() < 2 || n.below(12) == 0 {
        logs.push(Log {
            // Each of another file.
            id: store.create_log_in(
                Fid(100 + n.below(1 << 20)),
                Default::default(),
                Some(SeriesId(1)),
            )?,
            is_version: n.chance(70),
            ..Log::default()
        });
        return Ok(());
    }
    let at = n.index(logs.len());
    let log = &mut logs[at];
    match n.below(14) {
        0..=4 if !log.sealed => {
            let is_version = log.is_version && n.chance(90);
            let bytes = content(log.bytes.len(), is_version, n);
            let options = AppendOptions {
                offset: Some(log.bytes.len() as u64),
                ..AppendOptions::default()
            };
            store.append_with(log.id, &bytes, options)?;
            log.bytes.extend_from_slice(&bytes);
        }
        5 | 6 if !log.sealed => {
            store.flush(log.id, n.below(2) == 0)?;
            log.flushed = log.bytes.len() as u64;
        }
        7 if !log.sealed && n.below(3) == 0 => {
            store.flush(log.id, false)?;
            log.flushed = log.bytes.len() as u64;
            log.sealed = true;
            store.seal(log.id)?;
        }
        8 if log.flushed > 0 => {
            let start = n.below(log.flushed);
            let len = [1, 5000, 40_000, 1 << 30][n.index(4)];
            let range = start..(start + 1 + n.below(len)).min(log.flushed);
            log.perhaps_freed = vec![range.clone()];
            store.free(&[(log.id, range.clone())])?;
            log.perhaps_freed.clear();
            log.freed.push(range);
        }
        9 => store.clean(n.below(2) == 0)?,
        10..=12 => store.settle()?,
        _ => {}
    }
    Ok(())
}

fn check(machine: &Machine, logs: &[Log], promise: Promise) {
    const STEP: u64 = 6131;
    for log in logs {
        let (freed, perhaps) = (merge(log.freed.clone()), &log.perhaps_freed);
        let all = log.bytes.len() as u64;
        for start in (0..all).step_by(STEP as usize) {
            let range = start..(start + STEP).min(all);
            let len = (range.end - range.start) as usize;
            let mut buf = vec![0xee; len];
            let overlaps = |set: &[Range<u64>]| {
                set.iter()
                    .any(|r| r.start < range.end && r.end > range.start)
            };
            let acknowledged = range.end <= log.flushed && !overlaps(&freed) && !overlaps(perhaps);
            let read = match (start / STEP).is_multiple_of(2) {
                true => machine.logs.read(log.id, start, &mut buf),
                // What follows too, so that it is long enough to travel encoded.
                false => {
                    let longer = (8 * STEP).min(all - start) as usize;
                    let elsewhere = |len| read_from_elsewhere(&machine.logs, log.id, start, len);
                    let read = elsewhere(longer).or_else(|_| elsewhere(len));
                    read.map(|(bytes, _)| buf.copy_from_slice(&bytes[..len]))
                }
            };
            match read {
                Ok(()) => {
                    let written = &log.bytes[start as usize..range.end as usize];
                    assert!(buf == written, "log {} {start}+{len}: wrong bytes", log.id);
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

/// Every chunk is counted as often as it is named, and what counts as stored is what is.
fn check_counts(machine: &Machine) {
    let (mut unique, mut mapped, mut raw) = (0, 0, 0);
    recount(&machine.store, |r| {
        let id = r.container.id;
        assert!(r.is_right(), "container {id} is counted wrong");
        assert!(!r.counted.are_zero(), "nothing names container {id}");
        unique += r.container.named_len(&r.counted);
        Ok(())
    })
    .unwrap();
    for span in span::all(&machine.store) {
        let span = span.unwrap();
        match span.raw() {
            Some(_) => raw += span.live_len(),
            None => mapped += span.live_len(),
        }
    }
    let stats = machine.logs.stats();
    assert_eq!((stats.unique, stats.settled), (unique, mapped));
    // What is in tails counts as stored too.
    assert!(stats.stored >= raw + unique, "{stats:?}, {raw} raw");
    assert!(stats.stored - raw - unique <= stats.buffers);
}

fn check_fingerprints(machine: &Machine) {
    let files = SegmentFiles::new(&machine.disk, Path::new("/m/data"));
    let mut bytes = StoredBytes::new(&machine.store, Some(files), ByteCheck::Bytes);
    bytes.check_containers(|bytes, container, counts| {
        let wrong = bytes.wrong_fingerprints(container, counts).unwrap();
        assert_eq!(wrong, [], "container {}", container.id);
    });
}

/// After the restart: bytes as promised, work goes on, and when all is freed nothing is left.
fn after(image: &Image, durability: Durability, seed: u64, logs: &mut Vec<Log>, promise: Promise) {
    let machine = Machine::start(FaultIo::with_image(image, 1), durability, seed).unwrap();
    check(&machine, logs, promise);
    check_counts(&machine);
    for (id, _) in machine.logs.unsealed().unwrap() {
        let log = logs.iter_mut().find(|l| l.id == id);
        let log = log.expect("a log nobody made");
        let gone = merge([&log.freed[..], &log.perhaps_freed].concat());
        let keep = subtract(0..log.flushed, &gone);
        machine.logs.retain(id, &keep).unwrap();
        log.bytes.truncate(log.flushed as usize);
    }
    check_counts(&machine);
    machine.logs.settle().unwrap();
    machine.logs.clean(true).unwrap();
    check(&machine, logs, promise);
    check_counts(&machine);
    let new = machine.logs.create_log(Fid(6), Default::default()).unwrap();
    assert!(logs.iter().all(|l| l.id < new), "a log number came twice");
    machine.logs.append(new, &SHARED[..100_000]).unwrap();
    machine.logs.flush(new, true).unwrap();
    machine.logs.settle().unwrap();
    let mut buf = vec![0; 100_000];
    machine.logs.read(new, 0, &mut buf).unwrap();
    assert!(buf == SHARED[..100_000]);
    check_counts(&machine);
    check_fingerprints(&machine);
    logs.push(Log {
        id: new,
        ..Log::default()
    });
    let all: Vec<_> = logs.iter().map(|log| (log.id, 0..u64::MAX)).collect();
    machine.logs.free(&all).unwrap();
    machine.logs.clean(true).unwrap();
    let stats = machine.logs.stats();
    assert_eq!((stats.stored, stats.unique, stats.settled), (0, 0, 0));
    assert_eq!(container::all(&machine.store).count(), 0);
    assert_eq!(span::all(&machine.store).count(), 0);
    machine.logs.close().unwrap();
    assert_eq!(machine.disk.list(Path::new("/m/data")).unwrap(), []);
    machine.store.close().unwrap();
}

/// Runs until the disk stops answering; then what is left on it.
fn history(seed: u64, durability: Durability, power: bool) -> (Image, Vec<Log>) {
    let machine = Machine::start(FaultIo::new(seed), durability, seed).unwrap();
    let mut n = Random::new(seed);
    let mut logs = Vec::new();
    // Half of them are cut off while they settle.
    let steps = 20 + n.below(60);
    let stops_at = n.below(steps);
    for i in 0..steps {
        if i == stops_at {
            let most = if n.chance(50) { 20 } else { 200 };
            machine.disk.stop_after(1 + n.below(most));
            if n.chance(50) && machine.logs.settle().is_err() {
                break;
            }
        }
        if step(&machine.logs, &mut logs, &mut n).is_err() || machine.disk.failed_call().is_some() {
            break;
        }
    }
    let image = match power {
        true => machine.disk.crash(),
        false => machine.disk.kill(),
    };
    (image, logs)
}

/// Of each kind of crash.
const SEEDS: (u64, u64) = (8, 2500);

#[test]
fn a_power_loss_at_durability_disk_loses_nothing_acknowledged() {
    for_each_seed("settle_power_disk", SEEDS, |seed| {
        let (image, mut logs) = history(seed, Durability::Disk, true);
        after(&image, Durability::Disk, seed, &mut logs, Promise::Kept);
    });
}

#[test]
fn a_killed_process_loses_nothing_flushed() {
    for_each_seed("settle_killed", SEEDS, |seed| {
        let (image, mut logs) = history(seed, Durability::Process, false);
        after(&image, Durability::Process, seed, &mut logs, Promise::Kept);
    });
}

#[test]
fn a_power_loss_at_durability_process_never_gives_wrong_bytes() {
    for_each_seed("settle_power_process", SEEDS, |seed| {
        let (image, mut logs) = history(seed, Durability::Process, true);
        // The logs' numbers and records may be lost with the rest; what is there must be right.
        let promise = Promise::NeverWrong;
        after(&image, Durability::Process, seed, &mut logs, promise);
    });
}

#[test]
fn any_failing_call_keeps_what_was_acknowledged() {
    for_each_seed("settle_failing", SEEDS, |seed| {
        let machine = Machine::start(FaultIo::new(seed), Durability::Disk, seed).unwrap();
        let (mut n, mut logs) = (Random::new(seed), Vec::new());
        let kind = match seed % 2 {
            0 => ErrorKind::Other,
            _ => ErrorKind::StorageFull,
        };
        machine.disk.fail_after(1 + n.below(400), kind);
        for _ in 0..60 {
            match step(&machine.logs, &mut logs, &mut n) {
                Ok(()) => {}
                Err(e) => {
                    let failed = machine.disk.failed_call();
                    assert!(failed.is_some(), "failed before the disk did: {e}");
                    logs.iter_mut()
                        .for_each(|l| l.freed.extend(std::mem::take(&mut l.perhaps_freed)));
                    break;
                }
            }
        }
        let image = machine.disk.crash();
        for log in &mut logs {
            log.perhaps_freed.append(&mut log.freed);
        }
        after(&image, Durability::Disk, seed, &mut logs, Promise::Kept);
    });
}
