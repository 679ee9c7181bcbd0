//! Crashes and faults of settling and collecting, each at its place: a test for each row of the table of cases.
//!
//! After each, every chunk is counted as often as it is named, and when all is freed nothing is left.
use crate::common::{options, settle_options, wave};
use forebay_data::check::recount;
use forebay_data::container::keys::RecordKind;
use forebay_data::keyspaces::CONTAINERS;
use forebay_data::{CodecWhen, LogId, LogStore, LogStoreOptions, container, span};
use forebay_proto::{Error, Fid};
use forebay_storage::fault::{Call, FaultIo, HookedIo, Image};
use forebay_storage::{Batch, Io, Options, Store};
use forebay_testkit::random::seeded_bytes;
use parking_lot::Mutex;
use rustix::io::Errno;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

const KIB: usize = 1 << 10;

/// What is done at a call of the disk, once.
type AtCall = Box<dyn Fn(&Path, &Call<'_>) -> bool + Send + Sync>;

/// A log store on a disk whose calls a test hears of.
struct Machine {
    disk: FaultIo,
    store: Arc<Store>,
    logs: Arc<LogStore>,
    hook: Arc<Mutex<Option<AtCall>>>,
    /// A file that cannot be read.
    unreadable: Arc<Mutex<Option<PathBuf>>>,
    codec_when: CodecWhen,
}

impl Machine {
    fn new() -> Machine {
        Machine::encoding(CodecWhen::Off)
    }

    fn encoding(codec_when: CodecWhen) -> Machine {
        Machine::on(FaultIo::new(1), codec_when)
    }

    fn on(disk: FaultIo, codec_when: CodecWhen) -> Machine {
        let hook: Arc<Mutex<Option<AtCall>>> = Arc::default();
        let unreadable: Arc<Mutex<Option<PathBuf>>> = Arc::default();
        let hooked = {
            let (hook, unreadable) = (hook.clone(), unreadable.clone());
            HookedIo::new(disk.clone(), move |path, call| {
                if matches!(call, Call::Read { .. }) && unreadable.lock().as_deref() == Some(path) {
                    return Err(io::Error::other("a sector cannot be read"));
                }
                // What it does makes calls of its own, of which it does not hear.
                let at = hook.lock().take();
                if let Some(at) = at
                    && !at(path, &call)
                {
                    hook.lock().get_or_insert(at);
                }
                Ok(())
            })
        };
        let io: Arc<dyn Io> = Arc::new(hooked);
        let records = Options {
            background: false,
            ..Options::default()
        };
        let store = Arc::new(Store::open(io.clone(), Path::new("/m/kv"), records).unwrap());
        let options = LogStoreOptions {
            settle: Some(settle_options()),
            codec_when,
            ..options()
        };
        let logs = LogStore::open(io, Path::new("/m/data"), store.clone(), options).unwrap();
        Machine {
            disk,
            store,
            logs: Arc::new(logs),
            hook,
            unreadable,
            codec_when,
        }
    }

    /// From the next call on, until it says that it was the one.
    fn at(&self, hook: impl Fn(&Path, &Call<'_>) -> bool + Send + Sync + 'static) {
        *self.hook.lock() = Some(Box::new(hook));
    }

    /// Whether what was asked for has happened.
    fn has_happened(&self) -> bool {
        self.hook.lock().is_none()
    }

    fn after_kill(self) -> Machine {
        let image = self.disk.kill();
        self.restart(&image)
    }

    fn after_power_loss(self) -> Machine {
        let image = self.disk.crash();
        self.restart(&image)
    }

    /// As after a stop, with what is done to the disk in between.
    fn after_close(self, meanwhile: impl FnOnce(&FaultIo)) -> Machine {
        self.logs.close().unwrap();
        self.store.close().unwrap();
        let (image, codec_when) = (self.disk.kill(), self.codec_when);
        drop(self);
        let disk = FaultIo::with_image(&image, 2);
        meanwhile(&disk);
        Machine::on(disk, codec_when)
    }

    fn restart(self, image: &Image) -> Machine {
        let codec_when = self.codec_when;
        drop(self);
        let machine = Machine::on(FaultIo::with_image(image, 2), codec_when);
        for (log, _) in machine.logs.unsealed().unwrap() {
            let all = std::slice::from_ref(&(0..u64::MAX));
            machine.logs.retain(log, all).unwrap();
        }
        machine
    }

    /// A log with these bytes in segments, by one write for each of its spans.
    fn written(&self, bytes: &[u8], span: usize) -> LogId {
        let log = self.logs.create_log(Fid(1), Default::default()).unwrap();
        for part in bytes.chunks(span) {
            self.logs.append(log, part).unwrap();
            self.logs.flush(log, false).unwrap();
        }
        log
    }

    fn read(&self, log: LogId, at: usize, len: usize) -> Result<Vec<u8>, Error> {
        let mut buf = vec![0xee; len];
        self.logs.read(log, at as u64, &mut buf).map(|()| buf)
    }

    #[track_caller]
    fn assert_read(&self, log: LogId, bytes: &[u8]) {
        let read = self.read(log, 0, bytes.len());
        assert!(read.unwrap() == bytes, "log {log} reads as something else");
    }

    #[track_caller]
    fn assert_gone(&self, log: LogId, at: usize) {
        let read = self.read(log, at, 1);
        assert!(matches!(read, Err(Error::Gone { .. })), "{read:?}");
    }

    fn segments(&self) -> usize {
        self.disk.list(Path::new("/m/data")).unwrap().len()
    }

    #[track_caller]
    fn assert_counted(&self) {
        recount(&self.store, |r| {
            assert!(r.is_right(), "container {}", r.container.id);
            Ok(())
        })
        .unwrap();
    }

    /// Counts are right, and a full collection of everything leaves nothing.
    #[track_caller]
    fn finish(self) {
        self.assert_counted();
        let mut logs: Vec<LogId> = span::all(&self.store).map(|s| s.unwrap().log).collect();
        logs.dedup();
        let all: Vec<_> = logs.into_iter().map(|log| (log, 0..u64::MAX)).collect();
        self.logs.free(&all).unwrap();
        let stats = self.logs.stats();
        assert_eq!((stats.stored, stats.unique, stats.settled), (0, 0, 0));
        assert_eq!(container::all(&self.store).count(), 0);
        self.logs.close().unwrap();
        assert_eq!(self.segments(), 0);
    }
}

fn is_segment(path: &Path) -> bool {
    path.extension() == Some(OsStr::new("seg"))
}

fn is_log(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().starts_with("wal-")
}

/// Bytes of which a half is in another log too, so that the new half is copied to a container.
fn half_new(shared: &[u8]) -> Vec<u8> {
    half_new_for(CodecWhen::Off, shared)
}

fn half_new_for(codec_when: CodecWhen, shared: &[u8]) -> Vec<u8> {
    let half = shared.len() / 2;
    [&shared[..half], &content(codec_when, 99, half)].concat()
}

/// Bytes that a codec makes short where there is one.
fn content(codec_when: CodecWhen, seed: u64, len: usize) -> Vec<u8> {
    match codec_when {
        CodecWhen::Off => seeded_bytes(seed, len),
        _ => wave(seed, len / 4),
    }
}

#[test]
fn a_container_that_no_batch_names_is_given_back_and_the_raw_bytes_stay() {
    let machine = Machine::new();
    let shared = seeded_bytes(1, 256 * KIB);
    let first = machine.written(&shared, 256 * KIB);
    machine.logs.settle().unwrap();
    let bytes = half_new(&shared);
    let log = machine.written(&bytes, 256 * KIB);
    machine.logs.sync_all().unwrap();
    let segments = machine.segments();
    let disk = machine.disk.clone();
    machine.at(move |path, call| {
        let is_batch = is_log(path) && matches!(call, Call::Write { .. });
        if is_batch {
            disk.stop_after(1);
        }
        is_batch
    });
    assert!(machine.logs.settle().is_err() && machine.has_happened());
    let written = machine.disk.image();
    let machine = machine.restart(&written);
    assert_eq!(
        machine.segments(),
        segments,
        "the container's segment is gone"
    );
    assert_eq!(machine.logs.stats().settled as usize, shared.len());
    machine.assert_read(first, &shared);
    machine.assert_read(log, &bytes);
    machine.logs.settle().unwrap();
    machine.assert_read(log, &bytes);
    machine.finish();
}

#[test]
fn raw_bytes_that_a_killed_process_settled_are_reclaimed_by_the_next_start() {
    let machine = Machine::new();
    let shared = seeded_bytes(1, 1024 * KIB);
    let bytes = half_new(&shared);
    let logs = [
        machine.written(&shared, 1024 * KIB),
        machine.written(&bytes, 1024 * KIB),
    ];
    machine.logs.settle().unwrap();
    let taken = machine.disk.used();
    let machine = machine.after_kill();
    assert_eq!(machine.logs.stats().settled as usize, 2 * shared.len());
    machine.logs.clean(false).unwrap();
    let freed = taken - machine.disk.used();
    assert!(freed as usize > 1000 * KIB, "{freed} bytes came back");
    machine.assert_read(logs[0], &shared);
    machine.assert_read(logs[1], &bytes);
    machine.finish();
}

/// Calls of writing and syncing, in order.
#[derive(Default)]
struct Order(Mutex<Vec<(String, &'static str)>>);

impl Order {
    fn watch(machine: &Machine) -> Arc<Order> {
        let order = Arc::new(Order::default());
        let ears = order.clone();
        machine.at(move |path, call| {
            let what = match call {
                Call::Write { .. } => "write",
                Call::Sync => "sync",
                Call::Punch { .. } => "punch",
                Call::Remove => "remove",
                _ => return false,
            };
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            ears.0.lock().push((name, what));
            false
        });
        order
    }

    /// What was called, in order, and where the batch is that follows the last sync of a segment.
    fn of_batch(&self) -> (Vec<(String, &'static str)>, usize) {
        let calls = self.0.lock().clone();
        let synced = calls
            .iter()
            .rposition(|(n, what)| n.ends_with(".seg") && *what == "sync");
        let synced = synced.unwrap();
        let is_batch = |(n, what): &(String, &str)| n.starts_with("wal-") && *what == "write";
        let batch = synced + calls[synced..].iter().position(is_batch).unwrap();
        (calls, batch)
    }
}

#[test]
fn raw_bytes_go_only_after_the_batch_that_replaces_them_is_on_disk() {
    let machine = Machine::new();
    let shared = seeded_bytes(1, 1024 * KIB);
    let logs = [
        machine.written(&shared, 256 * KIB),
        machine.written(&shared, 256 * KIB),
    ];
    machine.logs.sync_all().unwrap();
    let order = Order::watch(&machine);
    machine.logs.settle().unwrap();
    machine.logs.clean(false).unwrap();
    let (calls, batch) = order.of_batch();
    let is_sync = |(n, what): &(String, &str)| n.starts_with("wal-") && *what == "sync";
    let goes =
        |(n, what): &(String, &str)| n.ends_with(".seg") && ["punch", "remove"].contains(what);
    let synced = batch + calls[batch..].iter().position(is_sync).unwrap();
    assert!(calls.iter().any(goes) && !calls[..synced].iter().any(goes));
    let machine = machine.after_power_loss();
    logs.iter()
        .for_each(|log| machine.assert_read(*log, &shared));
    machine.finish();
}

#[test]
fn a_chunk_is_on_disk_before_a_batch_names_it_so_what_was_synced_is_kept_without_its_raw_bytes() {
    let machine = Machine::new();
    let shared = seeded_bytes(1, 512 * KIB);
    let half = half_new(&shared);
    // Not synced by its writer.
    machine.written(&shared, 256 * KIB);
    let order = Order::watch(&machine);
    machine.logs.settle().unwrap();
    let synced = machine.written(&half, 512 * KIB);
    machine.logs.flush(synced, true).unwrap();
    machine.logs.settle().unwrap();
    let (calls, batch) = order.of_batch();
    let write = |(n, what): &(String, &str)| n.ends_with(".seg") && *what == "write";
    let copied = calls[..batch].iter().rposition(write).unwrap();
    let is_sync = |(n, what): &(String, &str)| *n == calls[copied].0 && *what == "sync";
    assert!(calls[copied..batch].iter().any(is_sync));
    machine.logs.clean(true).unwrap();
    let machine = machine.after_power_loss();
    machine.assert_read(synced, &half);
    machine.finish();
}

/// Settles, and does this once between the lookup of chunks and the batch.
fn settle_meanwhile(machine: &Machine, what: impl Fn(&LogStore) + Send + Sync + 'static) {
    let logs = machine.logs.clone();
    let wal = AtomicBool::new(false);
    machine.at(move |path, call| {
        // Containers, and what is adopted, are brought to disk after all chunks were looked for.
        let is_there = is_segment(path) && matches!(call, Call::Sync) && !wal.swap(true, SeqCst);
        if is_there {
            what(&logs);
        }
        is_there
    });
    machine.logs.settle().unwrap();
    assert!(machine.has_happened());
}

#[test]
fn a_chunk_that_is_found_and_collected_before_the_batch_is_kept_once_more() {
    let machine = Machine::new();
    let shared = seeded_bytes(1, 512 * KIB);
    let first = machine.written(&shared, 512 * KIB);
    machine.logs.settle().unwrap();
    let bytes = half_new(&shared);
    let second = machine.written(&bytes, 256 * KIB);
    settle_meanwhile(&machine, move |logs| {
        logs.free(&[(first, 0..u64::MAX)]).unwrap();
        logs.clean(true).unwrap();
    });
    machine.assert_gone(first, 0);
    machine.assert_read(second, &bytes);
    machine.logs.settle().unwrap();
    let stats = machine.logs.stats();
    assert_eq!((stats.settled, stats.settle.undone), (stats.live, 1));
    machine.assert_read(second, &bytes);
    let machine = machine.after_kill();
    machine.assert_read(second, &bytes);
    machine.finish();
}

#[test]
fn a_span_that_is_freed_while_it_is_settled_stays_freed() {
    let machine = Machine::new();
    let bytes = seeded_bytes(1, 1024 * KIB);
    let logs = [
        machine.written(&bytes, 256 * KIB),
        machine.written(&bytes, 256 * KIB),
    ];
    settle_meanwhile(&machine, move |store| {
        let ranges = [(logs[0], 5000..9000), (logs[1], 0..400_000)];
        store.free(&ranges).unwrap();
    });
    for _ in 0..2 {
        machine.assert_gone(logs[0], 5000);
        machine.assert_gone(logs[0], 8999);
        machine.assert_gone(logs[1], 399_999);
        assert!(machine.read(logs[0], 9000, 500_000).unwrap() == bytes[9000..509_000]);
        assert!(machine.read(logs[1], 400_000, 600_000).unwrap() == bytes[400_000..1_000_000]);
        machine.assert_counted();
        machine.logs.settle().unwrap();
        machine.logs.clean(true).unwrap();
    }
    let stats = machine.logs.stats();
    assert_eq!(stats.settled, stats.live);
    machine.finish();
}

#[test]
fn a_log_that_is_retained_and_one_that_is_moved_while_they_are_settled_are_right() {
    let machine = Machine::new();
    let bytes = seeded_bytes(1, 1024 * KIB);
    let kept = machine.written(&bytes, 256 * KIB);
    let machine = machine.after_kill();
    // Alone in its segment, and mostly dead.
    let moved = machine.written(&bytes, 256 * KIB);
    machine.logs.free(&[(moved, 100_000..u64::MAX)]).unwrap();
    let image = machine.disk.kill();
    drop(machine);
    let machine = Machine::on(FaultIo::with_image(&image, 3), CodecWhen::Off);
    settle_meanwhile(&machine, move |store| {
        let keep = std::slice::from_ref(&(0..300_000));
        store.retain(kept, keep).unwrap();
        store.clean(true).unwrap();
    });
    let stats = machine.logs.stats();
    assert!(stats.settle.undone > 0, "{stats:?}");
    for _ in 0..2 {
        machine.assert_read(kept, &bytes[..300_000]);
        machine.assert_gone(kept, 300_000);
        machine.assert_read(moved, &bytes[..100_000]);
        machine.logs.settle().unwrap();
        machine.logs.clean(true).unwrap();
    }
    machine.finish();
}

#[test]
fn the_pages_of_a_container_that_adopted_raw_bytes_are_never_punched() {
    // Begins and ends inside pages, and so do its neighbours.
    let part = 70_001;
    let machine = Machine::new();
    let zeros = vec![0; 4096];
    let adopted = [
        &seeded_bytes(1, 40_001)[..],
        &zeros,
        &seeded_bytes(2, part - 44_097),
    ]
    .concat();
    let before = machine.written(&seeded_bytes(3, part), part);
    let lane = |log: LogId| log % 4;
    let (mut log, mut others) = (before, Vec::new());
    // The next ones in the same segment.
    while others.len() < 2 {
        log = machine.logs.create_log(Fid(1), Default::default()).unwrap();
        if lane(log) == lane(before) {
            let bytes = if others.is_empty() {
                adopted.clone()
            } else {
                seeded_bytes(4, part)
            };
            machine.logs.append(log, &bytes).unwrap();
            machine.logs.flush(log, false).unwrap();
            others.push(log);
        }
    }
    let _ = log;
    let [middle, after] = others[..] else {
        panic!()
    };
    // The neighbours are settled elsewhere or freed; this one stays.
    machine.logs.settle().unwrap();
    assert!(container::all(&machine.store).count() >= 3);
    machine
        .logs
        .free(&[(before, 0..u64::MAX), (after, 0..u64::MAX)])
        .unwrap();
    machine.logs.clean(false).unwrap();
    machine.assert_read(middle, &adopted);
    // Parts of it, too.
    machine.logs.free(&[(middle, 9000..20_000)]).unwrap();
    machine.logs.clean(false).unwrap();
    assert!(machine.read(middle, 0, 9000).unwrap() == adopted[..9000]);
    assert!(machine.read(middle, 20_000, part - 20_000).unwrap() == adopted[20_000..]);
    let machine = machine.after_kill();
    machine.logs.clean(false).unwrap();
    assert!(machine.read(middle, 0, 9000).unwrap() == adopted[..9000]);
    assert!(machine.read(middle, 20_000, part - 20_000).unwrap() == adopted[20_000..]);
    machine.finish();
}

/// Two logs that share chunks of a container of which little is left, so that it is moved.
fn mostly_dead(codec_when: CodecWhen) -> (Machine, LogId, Vec<u8>) {
    let machine = Machine::encoding(codec_when);
    let bytes = content(codec_when, 1, 1024 * KIB);
    let log = machine.written(&bytes, 256 * KIB);
    machine.logs.settle().unwrap();
    machine.logs.sync_all().unwrap();
    machine.logs.free(&[(log, 50_000..1_000_000)]).unwrap();
    let machine = machine.after_kill();
    (machine, log, bytes)
}

fn assert_mostly_dead(machine: &Machine, log: LogId, bytes: &[u8]) {
    assert!(machine.read(log, 0, 50_000).unwrap() == bytes[..50_000]);
    let rest = machine.read(log, 1_000_000, bytes.len() - 1_000_000);
    assert!(rest.unwrap() == bytes[1_000_000..]);
}

#[test]
fn a_container_whose_move_is_cut_off_anywhere_is_at_its_old_place_or_at_its_new_one() {
    move_cut_off_anywhere(CodecWhen::Off, 1);
}

#[test]
fn an_encoded_container_whose_move_is_cut_off_anywhere_is_at_one_of_its_places() {
    for codec_when in [CodecWhen::Settle, CodecWhen::Inline] {
        move_cut_off_anywhere(codec_when, 3);
    }
}

/// At every call, or at each third one to save time.
fn move_cut_off_anywhere(codec_when: CodecWhen, step: usize) {
    for n in (1..).step_by(step) {
        let (machine, log, bytes) = mostly_dead(codec_when);
        let encodes = codec_when != CodecWhen::Off;
        assert_eq!(machine.logs.stats().encoded > 0, encodes);
        machine.disk.stop_after(n);
        let moved = machine.logs.clean(true).is_ok() && machine.disk.failed_call().is_none();
        let machine = match n % 2 {
            0 => machine.after_kill(),
            _ => machine.after_power_loss(),
        };
        assert_mostly_dead(&machine, log, &bytes);
        machine.logs.clean(true).unwrap();
        assert_mostly_dead(&machine, log, &bytes);
        machine.finish();
        if moved {
            assert!(n > 5, "moving took {n} calls");
            break;
        }
    }
}

#[test]
fn chunks_that_nothing_names_are_reclaimed_although_the_process_was_killed_before() {
    let machine = Machine::new();
    let bytes = seeded_bytes(1, 2048 * KIB);
    let log = machine.written(&bytes, 256 * KIB);
    machine.logs.settle().unwrap();
    machine.logs.clean(false).unwrap();
    machine.logs.free(&[(log, 0..1_500_000)]).unwrap();
    let taken = machine.disk.used();
    let machine = machine.after_kill();
    machine.logs.clean(false).unwrap();
    let freed = taken - machine.disk.used();
    assert!(freed > 1_400_000, "{freed} bytes came back");
    let rest = machine.read(log, 1_500_000, bytes.len() - 1_500_000);
    assert!(rest.unwrap() == bytes[1_500_000..]);
    machine.finish();
}

#[test]
fn a_store_of_mapped_spans_alone_keeps_its_segments_when_it_is_opened() {
    let machine = Machine::new();
    let shared = seeded_bytes(1, 1024 * KIB);
    let half = half_new(&shared);
    let logs = [
        machine.written(&shared, 256 * KIB),
        machine.written(&half, 256 * KIB),
    ];
    machine.logs.settle().unwrap();
    machine.logs.clean(true).unwrap();
    assert!(span::all(&machine.store).all(|s| s.unwrap().raw().is_none()));
    let mut machine = machine;
    for _ in 0..3 {
        let segments = machine.segments();
        machine = machine.after_kill();
        machine.logs.clean(true).unwrap();
        assert!(machine.segments() <= segments && machine.segments() > 0);
        machine.assert_read(logs[0], &shared);
        machine.assert_read(logs[1], &half);
    }
    machine.finish();
}

#[test]
fn while_a_record_of_a_container_is_unreadable_nothing_is_collected_and_it_is_named() {
    let machine = Machine::new();
    let (one, two) = (seeded_bytes(1, 512 * KIB), seeded_bytes(2, 512 * KIB));
    let logs = [
        machine.written(&one, 256 * KIB),
        machine.written(&two, 256 * KIB),
    ];
    machine.logs.settle().unwrap();
    machine.logs.clean(true).unwrap();
    let first = container::all(&machine.store).next().unwrap().unwrap();
    for kind in [RecordKind::Chunks, RecordKind::Counts] {
        // A new process finds it, and reads as much of the others as before.
        let key = kind.key(first.id).to_vec();
        let whole = machine.store.get(CONTAINERS, &key).unwrap().unwrap();
        let put = |store: &Store, value: Vec<u8>| {
            let mut batch = Batch::new();
            batch.put(CONTAINERS, key.clone(), value);
            store.apply(batch).unwrap();
        };
        let image = machine.disk.image();
        let damaged = Machine::on(FaultIo::with_image(&image, 4), CodecWhen::Off);
        put(&damaged.store, vec![9; 30]);
        let damaged = damaged.after_kill();
        let read = damaged.read(logs[0], 0, 1);
        if kind == RecordKind::Chunks {
            let text = read.unwrap_err().to_string();
            assert!(text.contains(&format!("container {}", first.id)), "{text}");
        }
        damaged.assert_read(logs[1], &two);
        // What names it cannot be freed, all else can; no byte of it goes.
        let freed = damaged.logs.free(&[(logs[0], 0..u64::MAX)]);
        let text = freed.unwrap_err().to_string();
        assert!(text.contains(&format!("container {}", first.id)), "{text}");
        damaged.logs.free(&[(logs[1], 0..u64::MAX)]).unwrap();
        damaged.logs.clean(true).unwrap();
        assert!(damaged.segments() > 0);
        put(&damaged.store, whole.to_vec());
        let healed = damaged.after_kill();
        assert_eq!(
            healed.read(logs[0], 0, 256 * KIB).unwrap(),
            one[..256 * KIB]
        );
        healed.assert_gone(logs[0], 256 * KIB);
        healed.assert_gone(logs[1], 0);
        healed.finish();
    }
    machine.finish();
}

#[test]
fn while_a_record_of_a_span_is_unreadable_it_is_named_and_what_it_names_stays() {
    let machine = Machine::new();
    let bytes = seeded_bytes(1, 256 * KIB);
    let logs = [
        machine.written(&bytes, 256 * KIB),
        machine.written(&bytes, 256 * KIB),
    ];
    machine.logs.settle().unwrap();
    machine.logs.clean(true).unwrap();
    let span = span::all(&machine.store).next().unwrap().unwrap();
    assert_eq!(span.log, logs[0]);
    let put = |store: &Store, value: Vec<u8>| {
        let mut batch = Batch::new();
        batch.put(forebay_data::keyspaces::SPANS, span.key().to_vec(), value);
        store.apply(batch).unwrap();
    };
    put(&machine.store, vec![9; 30]);
    let image = machine.disk.kill();
    drop(machine);
    let machine = Machine::on(FaultIo::with_image(&image, 5), CodecWhen::Off);
    let text = machine.read(logs[0], 0, 1).unwrap_err().to_string();
    let expected = format!("the span of log {} that ends at address", logs[0]);
    assert!(text.contains(&expected), "{text}");
    machine.assert_read(logs[1], &bytes);
    machine.logs.free(&[(logs[1], 0..u64::MAX)]).unwrap();
    machine.logs.clean(true).unwrap();
    put(&machine.store, span.value());
    let machine = machine.after_kill();
    machine.assert_read(logs[0], &bytes);
    machine.finish();
}

#[test]
fn a_full_disk_at_any_write_leaves_the_raw_bytes_and_settling_is_tried_again() {
    full_disk_at_any_write(CodecWhen::Off);
}

#[test]
fn a_full_disk_at_any_write_of_settling_that_encodes_leaves_the_raw_bytes() {
    full_disk_at_any_write(CodecWhen::Settle);
}

fn full_disk_at_any_write(codec_when: CodecWhen) {
    for pages in (0..90).step_by(7) {
        let machine = Machine::encoding(codec_when);
        let shared = content(codec_when, 1, 512 * KIB);
        let first = machine.written(&shared, 512 * KIB);
        machine.logs.settle().unwrap();
        let half = half_new_for(codec_when, &shared);
        let log = machine.written(&half, 512 * KIB);
        machine
            .disk
            .set_capacity(machine.disk.used() + pages * 4096);
        let settled = machine.logs.settle();
        if let Err(e) = &settled {
            assert_eq!(e.errno(), Errno::NOSPC, "{e}");
        }
        assert!(pages > 0 || settled.is_err());
        machine.assert_read(first, &shared);
        machine.assert_read(log, &half);
        machine.assert_counted();
        machine.disk.set_capacity(u64::MAX);
        machine.logs.settle().unwrap();
        let stats = machine.logs.stats();
        assert_eq!(stats.settled, stats.live);
        machine.assert_read(first, &shared);
        machine.assert_read(log, &half);
        let machine = machine.after_kill();
        machine.assert_read(log, &half);
        machine.finish();
    }
}

#[test]
fn a_span_that_cannot_be_settled_is_tried_again_later_and_holds_nothing_up() {
    let machine = Machine::new();
    let (shared, other) = (seeded_bytes(1, 512 * KIB), seeded_bytes(2, 512 * KIB));
    machine.written(&shared, 512 * KIB);
    machine.logs.settle().unwrap();
    // What was read whole is not known any more.
    let machine = machine.after_kill();
    let container = container::all(&machine.store).next().unwrap().unwrap();
    let key = RecordKind::Counts.key(container.id).to_vec();
    let whole = machine.store.get(CONTAINERS, &key).unwrap().unwrap();
    let put = |machine: &Machine, value: Vec<u8>| {
        let mut batch = Batch::new();
        batch.put(CONTAINERS, key.clone(), value);
        machine.store.apply(batch).unwrap();
    };
    // Its chunks are found, but by the time of the batch they cannot be counted.
    let again = machine.written(&shared, 512 * KIB);
    let (store, damaged) = (machine.store.clone(), key.clone());
    let name = forebay_data::segment_header::name(container.segment);
    machine.at(move |path, call| {
        let is_read = path.ends_with(&name) && matches!(call, Call::Read { .. });
        if is_read {
            let mut batch = Batch::new();
            batch.put(CONTAINERS, damaged.clone(), vec![9; 30]);
            store.apply(batch).unwrap();
        }
        is_read
    });
    // This returns: what cannot be settled is not tried again at once.
    machine.logs.settle().unwrap();
    assert!(machine.has_happened() && machine.logs.stats().settle.undone > 0);
    let new = machine.written(&other, 512 * KIB);
    machine.logs.settle().unwrap();
    machine.assert_read(again, &shared);
    machine.assert_read(new, &other);
    put(&machine, whole.to_vec());
    machine.logs.settle().unwrap();
    let stats = machine.logs.stats();
    assert_eq!((stats.settled, stats.settle.backlog), (stats.live, 0));
    machine.finish();
}

#[test]
fn a_large_file_is_freed_in_several_batches_and_a_damaged_span_stops_only_itself() {
    let machine = Machine::new();
    // Every other chunk is in the first log already, so each chunk is a run of its own.
    let (mib, pages) = (1024 * KIB, 6 * 1024 * KIB / 4096);
    let shared = seeded_bytes(1, pages * 4096);
    let first = machine.written(&shared, mib);
    machine.logs.settle().unwrap();
    let new = seeded_bytes(2, pages * 4096);
    let mixed: Vec<u8> = (0..pages * 4)
        .flat_map(|i| {
            let from = if i % 2 == 0 { &shared } else { &new };
            let at = (i / 2) % pages * 4096;
            from[at..at + 4096]
                .iter()
                .map(move |b| b ^ u8::from(i >= 2 * pages && i % 2 == 1))
        })
        .collect();
    let log = machine.written(&mixed, mib);
    machine.logs.settle().unwrap();
    let runs = |log: LogId| -> usize {
        let spans = span::overlapping(&machine.store, log, 0..u64::MAX);
        spans
            .map(|s| s.unwrap().runs().unwrap().iter().count())
            .sum()
    };
    assert!(runs(log) > 5000, "{} runs", runs(log));
    // A span that names what its container has not.
    let broken = span::overlapping(&machine.store, log, 0..u64::MAX)
        .nth(7)
        .unwrap()
        .unwrap();
    let ids: Vec<_> = broken
        .runs()
        .unwrap()
        .iter()
        .filter_map(|r| r.in_container())
        .collect();
    let own = ids.iter().map(|(id, _)| *id).max().unwrap();
    let key = RecordKind::Counts.key(own).to_vec();
    let whole = machine.store.get(CONTAINERS, &key).unwrap().unwrap();
    let put = |value: Vec<u8>| {
        let mut batch = Batch::new();
        batch.put(CONTAINERS, key.clone(), value);
        machine.store.apply(batch).unwrap();
    };
    put(vec![9; 30]);
    let error = machine.logs.free(&[(log, 4096..u64::MAX)]).unwrap_err();
    assert!(
        error.to_string().contains(&format!("container {own}")),
        "{error}"
    );
    put(whole.to_vec());
    assert_eq!(machine.read(log, 0, 4096).unwrap(), mixed[..4096]);
    let broken_at = broken.live.start as usize;
    assert!(machine.read(log, broken_at, mib).unwrap() == mixed[broken_at..broken_at + mib]);
    machine.assert_gone(log, mixed.len() - 1);
    machine.assert_counted();
    machine.logs.free(&[(log, 0..u64::MAX)]).unwrap();
    machine.assert_gone(log, broken_at);
    machine.assert_read(first, &shared);
    machine.finish();
}

#[test]
fn a_container_that_cannot_be_read_stops_no_settling() {
    let machine = Machine::new();
    let bytes = seeded_bytes(1, 512 * KIB);
    let log = machine.written(&bytes, 512 * KIB);
    machine.logs.settle().unwrap();
    machine.logs.sync_all().unwrap();
    // What was read whole is not known any more.
    let machine = machine.after_kill();
    let container = container::all(&machine.store).next().unwrap().unwrap();
    let name = forebay_data::segment_header::name(container.segment);
    let again = machine.written(&bytes, 512 * KIB);
    let other = seeded_bytes(2, 512 * KIB);
    let new = machine.written(&other, 512 * KIB);
    *machine.unreadable.lock() = Some(Path::new("/m/data").join(name));
    machine.logs.settle().unwrap();
    let stats = machine.logs.stats();
    // What may be in that container is stored once more.
    let stored = 2 * bytes.len() + other.len();
    assert_eq!((stats.settled, stats.unique as usize), (stats.live, stored));
    *machine.unreadable.lock() = None;
    for (log, bytes) in [(log, &bytes), (again, &bytes), (new, &other)] {
        machine.assert_read(log, bytes);
    }
    machine.finish();
}

#[test]
fn a_container_that_is_moved_while_it_is_read_is_not_taken_for_damaged() {
    let (machine, log, bytes) = mostly_dead(CodecWhen::Off);
    let first = |store: &Store| container::all(store).next().unwrap().unwrap();
    let before = first(&machine.store);
    let again = machine.written(&bytes, 256 * KIB);
    let moved = Arc::new(Mutex::new(None));
    let (logs, store, seen) = (machine.logs.clone(), machine.store.clone(), moved.clone());
    let segment = forebay_data::segment_header::name(before.segment);
    let file = Path::new("/m/data").join(segment);
    machine.at(move |path, call| {
        let is_opened = path == file && matches!(call, Call::Open);
        if is_opened {
            logs.clean(true).unwrap();
            *seen.lock() = Some(first(&store));
        }
        is_opened
    });
    machine.logs.settle().unwrap();
    assert!(machine.has_happened());
    let moved = moved.lock().take().unwrap();
    assert_ne!(moved.segment, before.segment, "it was not moved");
    let now = first(&machine.store);
    assert!(now == moved, "it was moved once more, as what is healed is");
    machine.assert_read(again, &bytes);
    assert_mostly_dead(&machine, log, &bytes);
    machine.finish();
}

/// Flips a bit in the segment that holds the first chunk of the first container; which log bytes it was.
fn flip(machine: &Machine) {
    let container = container::all(&machine.store).next().unwrap().unwrap();
    let place = &container.places(|i| i == 0)[0];
    let path = Path::new("/m/data").join(forebay_data::segment_header::name(place.segment));
    let file = machine.disk.open(&path).unwrap();
    let mut byte = [0];
    file.read_at(&mut byte, place.start + 100).unwrap();
    file.write_at(&[byte[0] ^ 4], place.start + 100).unwrap();
}

#[test]
fn a_flipped_bit_in_a_shared_chunk_is_an_error_at_each_of_its_users_and_the_same_bytes_heal_it() {
    for restart in [false, true] {
        let mut machine = Machine::new();
        let bytes = seeded_bytes(1, 512 * KIB);
        let logs = [0; 3].map(|_| machine.written(&bytes, 512 * KIB));
        machine.logs.settle().unwrap();
        machine.logs.sync_all().unwrap();
        flip(&machine);
        if restart {
            // What was read in vain is not known any more.
            machine = machine.after_kill();
        } else {
            for log in logs {
                let error = machine.read(log, 50, 1).unwrap_err();
                let text = error.to_string();
                assert!(matches!(error, Error::Corrupt(_)), "{text}");
                for word in [
                    "container 1 chunk 0",
                    &format!("log {log}"),
                    ".seg",
                    "at byte",
                ] {
                    assert!(text.contains(word), "{text}");
                }
                assert!(machine.read(log, 4096, 500_000).unwrap() == bytes[4096..504_096]);
            }
        }
        let again = machine.written(&bytes, 512 * KIB);
        machine.logs.settle().unwrap();
        logs.iter()
            .for_each(|log| machine.assert_read(*log, &bytes));
        machine.assert_read(again, &bytes);
        let stats = machine.logs.stats();
        assert_eq!(
            (stats.settled, stats.unique as usize),
            (stats.live, bytes.len())
        );
        machine.logs.clean(true).unwrap();
        let machine = machine.after_kill();
        logs.iter()
            .for_each(|log| machine.assert_read(*log, &bytes));
        machine.finish();
    }
}

#[test]
fn after_a_restart_each_of_those_that_share_may_go_and_the_others_are_whole() {
    let mut machine = Machine::new();
    let bytes = seeded_bytes(1, 512 * KIB);
    let mut logs: Vec<LogId> = (0..5).map(|_| machine.written(&bytes, 128 * KIB)).collect();
    machine.logs.settle().unwrap();
    while let Some(log) = logs.pop() {
        machine = machine.after_kill();
        machine.logs.free(&[(log, 0..u64::MAX)]).unwrap();
        machine.logs.clean(true).unwrap();
        machine.assert_gone(log, 0);
        logs.iter()
            .for_each(|log| machine.assert_read(*log, &bytes));
        machine.assert_counted();
    }
    machine.finish();
}

#[test]
fn settling_that_is_cut_off_at_any_call_leaves_every_byte_readable() {
    settling_cut_off(CodecWhen::Off);
}

#[test]
fn settling_that_encodes_and_is_cut_off_at_any_call_leaves_every_byte_readable() {
    settling_cut_off(CodecWhen::Settle);
}

fn settling_cut_off(codec_when: CodecWhen) {
    for n in 1.. {
        let machine = Machine::encoding(codec_when);
        let shared = content(codec_when, 1, 256 * KIB);
        let half = half_new_for(codec_when, &shared);
        let first = machine.written(&shared, 128 * KIB);
        machine.logs.settle().unwrap();
        let log = machine.written(&half, 256 * KIB);
        machine.logs.sync_all().unwrap();
        machine.disk.stop_after(n);
        let settled = machine
            .logs
            .settle()
            .and_then(|()| machine.logs.clean(true));
        let is_over = settled.is_ok() && machine.disk.failed_call().is_none();
        let machine = match n % 2 {
            0 => machine.after_kill(),
            _ => machine.after_power_loss(),
        };
        machine.assert_read(first, &shared);
        machine.assert_read(log, &half);
        machine.logs.settle().unwrap();
        machine.assert_read(log, &half);
        let encodes = codec_when != CodecWhen::Off;
        assert_eq!(machine.logs.stats().encoded > 0, encodes);
        machine.finish();
        if is_over {
            assert!(n > 8, "settling took {n} calls");
            break;
        }
    }
}

#[test]
fn an_append_that_is_encoded_inline_and_cut_off_at_any_call_leaves_what_was_synced_and_no_wrong_byte()
 {
    for n in 1.. {
        let machine = Machine::encoding(CodecWhen::Inline);
        let (synced, lost) = (wave(1, 64 * KIB), wave(2, 128 * KIB));
        let log = machine.written(&synced, 256 * KIB);
        machine.logs.sync_all().unwrap();
        assert!(machine.logs.stats().encoded > 0);
        machine.disk.stop_after(n);
        let written = machine.logs.append(log, &lost);
        let written = written.and_then(|_| machine.logs.flush(log, true));
        let is_over = written.is_ok() && machine.disk.failed_call().is_none();
        let machine = match n % 2 {
            0 => machine.after_kill(),
            _ => machine.after_power_loss(),
        };
        machine.assert_read(log, &synced);
        match machine.read(log, synced.len(), lost.len()) {
            Ok(read) => assert!(read == lost),
            Err(e) => assert!(!is_over && matches!(e, Error::Gone { .. }), "{n}: {e}"),
        }
        machine.finish();
        if is_over {
            assert!(n > 3, "the append took {n} calls");
            break;
        }
    }
}

#[test]
fn a_failing_call_of_settling_harms_nothing() {
    failing_call_of_settling(CodecWhen::Off);
}

#[test]
fn a_failing_call_of_settling_that_encodes_harms_nothing() {
    failing_call_of_settling(CodecWhen::Settle);
}

fn failing_call_of_settling(codec_when: CodecWhen) {
    for n in 1.. {
        let machine = Machine::encoding(codec_when);
        let shared = content(codec_when, 1, 256 * KIB);
        let half = half_new_for(codec_when, &shared);
        let first = machine.written(&shared, 128 * KIB);
        machine.logs.settle().unwrap();
        let log = machine.written(&half, 256 * KIB);
        machine.logs.sync_all().unwrap();
        machine.disk.fail_after(n, io::ErrorKind::Other);
        let _ = machine
            .logs
            .settle()
            .and_then(|()| machine.logs.clean(true));
        if machine.disk.failed_call().is_none() {
            assert!(n > 8, "settling took {n} calls");
            break;
        }
        machine.assert_read(first, &shared);
        machine.assert_read(log, &half);
        let machine = machine.after_power_loss();
        machine.assert_read(first, &shared);
        machine.assert_read(log, &half);
        machine.finish();
    }
}

#[test]
fn a_saved_index_that_is_torn_old_or_gone_is_made_anew_and_finds_the_same() {
    let index = Path::new("/m/data/chunks.index");
    let read = |disk: &FaultIo| {
        let file = disk.open(index).unwrap();
        let mut bytes = vec![0; file.len().unwrap() as usize];
        file.read_at(&mut bytes, 0).unwrap();
        bytes
    };
    let write = |disk: &FaultIo, bytes: &[u8]| {
        let _ = disk.remove(index);
        disk.create(index).unwrap().write_at(bytes, 0).unwrap();
    };
    let (one, two) = (seeded_bytes(1, 512 * KIB), seeded_bytes(2, 512 * KIB));
    for case in 0..5 {
        let machine = Machine::new();
        let first = machine.written(&one, 512 * KIB);
        machine.logs.settle().unwrap();
        let mut old = Vec::new();
        let machine = machine.after_close(|disk| old = read(disk));
        let second = machine.written(&two, 512 * KIB);
        machine.logs.settle().unwrap();
        machine.logs.free(&[(first, 0..u64::MAX)]).unwrap();
        let machine = match case {
            0 => machine.after_close(|_| {}),
            1 => machine.after_close(|disk| write(disk, &read(disk)[..old.len() / 2])),
            2 => machine.after_close(|disk| {
                let mut bytes = read(disk);
                bytes[old.len() / 2] ^= 1;
                write(disk, &bytes);
            }),
            // Of the time before the last run.
            3 => machine.after_close(|disk| write(disk, &old)),
            // A killed process leaves it as it was, and it is not believed.
            _ => machine.after_kill(),
        };
        // What is there is found, and what is gone is not.
        let again = [
            machine.written(&two, 512 * KIB),
            machine.written(&one, 512 * KIB),
        ];
        machine.logs.settle().unwrap();
        let stats = machine.logs.stats();
        assert_eq!(stats.settled, stats.live, "case {case}");
        assert_eq!(stats.unique as usize, one.len() + two.len(), "case {case}");
        machine.assert_read(second, &two);
        machine.assert_read(again[0], &two);
        machine.assert_read(again[1], &one);
        machine.finish();
    }
}

#[test]
fn a_run_without_settling_makes_a_saved_index_void() {
    let machine = Machine::new();
    let bytes = seeded_bytes(1, 512 * KIB);
    let first = machine.written(&bytes, 512 * KIB);
    machine.logs.settle().unwrap();
    machine.logs.close().unwrap();
    machine.store.close().unwrap();
    let image = machine.disk.kill();
    drop(machine);
    let disk = FaultIo::with_image(&image, 2);
    {
        let io = Arc::new(disk.clone());
        let records = Options::default();
        let store = Arc::new(Store::open(io.clone(), Path::new("/m/kv"), records).unwrap());
        let logs = LogStore::open(io, Path::new("/m/data"), store.clone(), options()).unwrap();
        logs.free(&[(first, 0..u64::MAX)]).unwrap();
        logs.close().unwrap();
        store.close().unwrap();
    }
    let machine = Machine::on(disk, CodecWhen::Off);
    let again = machine.written(&bytes, 512 * KIB);
    machine.logs.settle().unwrap();
    machine.assert_read(again, &bytes);
    assert_eq!(machine.logs.stats().unique as usize, bytes.len());
    machine.finish();
}
