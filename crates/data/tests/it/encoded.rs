//! Containers that settling encodes: they read the same, from anywhere, store less, are freed and moved in parts, and damage to them
//! is told and healed.
use crate::common::{Fixture, is_gone, options, read_from_elsewhere, settle_options, wave};
use forebay_codec::{CodecHint, CodecId};
use forebay_data::check::{ByteCheck, SegmentFiles, StoredBytes, recount};
use forebay_data::container::{self, Container};
use forebay_data::pieces::ChecksummedPieces;
use forebay_data::{
    CodecWhen, LogId, LogStore, LogStoreOptions, segment_header, span, transfer_form,
};
use forebay_proto::data::{DataService, LogPiece, ReadPieces};
use forebay_proto::{Error, Fid};
use forebay_storage::fault::{Call, FaultIo, HookedIo};
use forebay_storage::{Io, Options, OsIo, Store};
use forebay_testkit::mutation::fuzz;
use forebay_testkit::random::{Random, seeded_bytes};
use rustix::io::Errno;
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

const MIB: usize = 1 << 20;

pub fn encoding() -> LogStoreOptions {
    LogStoreOptions {
        settle: Some(settle_options()),
        codec_when: CodecWhen::Settle,
        ..options()
    }
}

fn written(fixture: &Fixture, bytes: &[u8], hint: &str, step: usize) -> LogId {
    let hint: CodecHint = hint.parse().unwrap();
    let log = fixture.logs.create_log(Fid(1), hint).unwrap();
    for part in bytes.chunks(step) {
        fixture.logs.append(log, part).unwrap();
    }
    fixture.logs.flush(log, false).unwrap();
    log
}

pub fn containers(fixture: &Fixture) -> Vec<Container> {
    container::all(&fixture.store).map(Result::unwrap).collect()
}

/// Reads everything, and many random parts.
pub fn assert_read(fixture: &Fixture, log: LogId, bytes: &[u8]) {
    assert!(fixture.read(log, 0, bytes.len()).unwrap() == bytes);
    let mut random = Random::new(log);
    for _ in 0..200 {
        let start = random.index(bytes.len());
        let most = [1, 4, 4096, 70_000, 900_000][random.index(5)];
        let len = 1 + random.index(most.min(bytes.len() - start));
        let read = fixture.read(log, start as u64, len).unwrap();
        assert!(read == bytes[start..start + len], "{start}+{len}");
    }
}

pub fn assert_counted(fixture: &Fixture) {
    let (mut stored, mut raw) = (0, 0);
    recount(&fixture.store, |recount| {
        assert!(recount.is_right(), "container {}", recount.container.id);
        if recount.container.encoded().is_some() {
            stored += recount.container.named_len(&recount.counted);
            raw += recount.container.named_raw_len(&recount.counted);
        }
        Ok(())
    })
    .unwrap();
    let stats = fixture.logs.stats();
    assert_eq!((stats.encoded, stats.encoded_from), (stored, raw));
}

pub fn assert_empties(fixture: &Fixture) {
    let logs: Vec<_> = span::all(&fixture.store).map(|s| s.unwrap().log).collect();
    let all: Vec<_> = logs.iter().map(|log| (*log, 0..u64::MAX)).collect();
    fixture.logs.free(&all).unwrap();
    let stats = fixture.logs.stats();
    assert_eq!(
        (
            stats.stored,
            stats.unique,
            stats.encoded,
            stats.encoded_from
        ),
        (0, 0, 0, 0)
    );
    assert_eq!(containers(fixture), []);
    fixture.logs.close().unwrap();
    assert!(fixture.segments().is_empty());
}

/// Damaged bytes that a full check of the stopped store finds: of containers, and of spans.
pub fn checked(fixture: &Fixture) -> (usize, usize) {
    let data = fixture.data_dir();
    let files = SegmentFiles::new(&OsIo, &data);
    let mut check = StoredBytes::new(&fixture.store, Some(files), ByteCheck::Bytes);
    let bad = containers(fixture).into_iter().map(|c| {
        let counts = container::load_counts(&fixture.store, &c).unwrap();
        let bad = check.check_container(&c, Some(&counts)).len();
        let wrong = check.wrong_fingerprints(&c, Some(&counts)).unwrap();
        assert_eq!(wrong, [], "container {}", c.id);
        bad
    });
    let of_containers = bad.sum();
    let spans = span::all(&fixture.store).map(|s| check.check_span(&s.unwrap()).len());
    (of_containers, spans.sum())
}

/// Flips a bit of a stored part of a container.
pub fn flip(fixture: &Fixture, container: &Container, part: usize) {
    let at = container.segment_offset(container.piece(part).start);
    let path = fixture
        .data_dir()
        .join(segment_header::name(container.segment));
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 4], at).unwrap();
}

#[test]
fn numbers_are_stored_shorter_and_read_the_same() {
    for step in [300_000, MIB / 2, 5 * MIB, 4096] {
        let mut fixture = Fixture::new(encoding());
        let (numbers, noise) = (wave(1, 3 * MIB / 4), seeded_bytes(2, MIB));
        let logs = [
            written(&fixture, &numbers, "auto", step),
            written(&fixture, &noise, "auto", step),
        ];
        fixture.logs.settle().unwrap();
        let stats = fixture.logs.stats();
        assert_eq!(stats.settled as usize, numbers.len() + noise.len());
        assert_eq!(stats.stored, stats.unique);
        // Chunks at the ends of spans may share a container with the others.
        let plain = stats.unique - stats.encoded;
        assert!(
            noise.len() as u64 - plain <= 64 << 10,
            "step {step}: {stats:?}"
        );
        assert!(
            stats.encoded_from as usize >= numbers.len() * 95 / 100,
            "step {step}: {stats:?}"
        );
        assert!(
            stats.encoded * 3 < stats.encoded_from * 2,
            "step {step}: {stats:?}"
        );
        for _ in 0..2 {
            assert_read(&fixture, logs[0], &numbers);
            assert_read(&fixture, logs[1], &noise);
            assert_counted(&fixture);
            assert_eq!(checked(&fixture), (0, 0));
            // What is encoded is read without the setting too.
            fixture.reopen(options());
        }
        assert_empties(&fixture);
    }
}

/// A store that encodes inline, on a disk of which `on_write` hears before more than 10,000 bytes are written to a segment.
fn encoding_on(
    disk: FaultIo,
    on_write: impl Fn() -> std::io::Result<()> + Send + Sync + 'static,
) -> LogStore {
    let disk = HookedIo::new(disk, move |path, call| {
        let is_segment = path.extension().is_some_and(|ext| ext == "seg");
        match call {
            Call::Write { len, .. } if is_segment && len > 10_000 => on_write(),
            _ => Ok(()),
        }
    });
    let disk: Arc<dyn Io> = Arc::new(disk);
    let inline = LogStoreOptions {
        codec_when: CodecWhen::Inline,
        ..options()
    };
    let store = Store::open(disk.clone(), Path::new("/m/kv"), Options::default()).unwrap();
    LogStore::open(disk, Path::new("/m/data"), Arc::new(store), inline).unwrap()
}

fn assert_there(logs: &LogStore, log: LogId, addr: u64, bytes: &[u8]) {
    let mut read = vec![0; bytes.len()];
    logs.read(log, addr, &mut read).unwrap();
    assert!(read == bytes, "at {addr}");
}

fn assert_gone(logs: &LogStore, log: LogId, addr: u64) {
    let read = logs.read(log, addr, &mut [0]);
    assert!(matches!(read, Err(Error::Gone { .. })), "{read:?}");
}

/// Has an append held while it writes. Others go on; the log is sealed meanwhile, or synced before and after.
fn append_held_up(seals: bool) {
    let (begun, has_begun) = mpsc::channel();
    let (go_on, may_go_on) = mpsc::channel::<()>();
    let (begun, may_go_on) = (Mutex::new(begun), Mutex::new(may_go_on));
    let is_first = AtomicBool::new(true);
    let disk = FaultIo::new(1);
    let logs = encoding_on(disk.clone(), move || {
        if is_first.swap(false, Ordering::Relaxed) {
            begun.lock().unwrap().send(()).unwrap();
            let _ = (may_go_on.lock().unwrap()).recv_timeout(Duration::from_secs(60));
        }
        Ok(())
    });
    let log = logs.create_log(Fid(1), CodecHint::default()).unwrap();
    let (held, other) = (wave(1, MIB / 2), wave(2, MIB / 8));
    let mut others = Vec::new();
    std::thread::scope(|scope| {
        let (logs, held) = (&logs, &held);
        let first = scope.spawn(move || logs.append(log, held));
        has_begun.recv().unwrap();
        // Encoded, and buffered.
        for bytes in [&other[..], &other[..100]] {
            let addr = logs.append(log, bytes).unwrap();
            assert!(addr >= held.len() as u64, "{addr}");
            logs.flush(log, !seals).unwrap();
            assert_there(logs, log, addr, bytes);
            others.push((addr, bytes));
        }
        assert_gone(logs, log, 0);
        let sealing = seals.then(|| scope.spawn(move || logs.seal(log)));
        if let Some(sealing) = &sealing {
            while logs.stats().open_logs > 0 {
                std::thread::yield_now();
            }
            std::thread::sleep(Duration::from_millis(30));
            assert!(!sealing.is_finished());
            assert!(logs.append(log, &other).is_err());
        }
        go_on.send(()).unwrap();
        assert_eq!(first.join().unwrap().unwrap(), 0);
        if let Some(sealing) = sealing {
            sealing.join().unwrap().unwrap();
        }
    });
    others.push((0, &held));
    for (addr, bytes) in &others {
        assert_there(&logs, log, *addr, bytes);
    }
    assert!(logs.stats().encoded > 0);
    logs.flush(log, true).unwrap();
    let image = disk.crash();
    drop(logs);
    let logs = encoding_on(FaultIo::with_image(&image, 2), || Ok(()));
    for (addr, bytes) in &others {
        assert_there(&logs, log, *addr, bytes);
    }
}

#[test]
fn sealing_a_log_waits_for_an_append_that_is_encoded() {
    append_held_up(true);
}

#[test]
fn a_log_is_free_while_an_append_is_encoded_and_a_later_sync_has_that_too() {
    append_held_up(false);
}

#[test]
fn an_encoded_append_that_finds_no_room_leaves_nothing_behind() {
    let writes = Arc::new(AtomicUsize::new(usize::MAX));
    let count = writes.clone();
    // The first write after a reset is made, later ones are not.
    let logs = encoding_on(FaultIo::new(1), move || {
        let nth = count.load(Ordering::Relaxed);
        count.store(nth.saturating_add(1), Ordering::Relaxed);
        match nth {
            0 | usize::MAX => Ok(()),
            _ => Err(std::io::ErrorKind::StorageFull.into()),
        }
    });
    let log = logs.create_log(Fid(1), CodecHint::default()).unwrap();
    let (small, large) = (wave(1, 100), wave(2, MIB * 3 / 4));
    logs.append(log, &small).unwrap();
    logs.flush(log, false).unwrap();
    let stored = |logs: &LogStore| {
        logs.clean(false).unwrap();
        let stats = logs.stats();
        (stats.stored, stats.live, stats.encoded)
    };
    let before = stored(&logs);
    writes.store(0, Ordering::Relaxed);
    let failed = logs.append(log, &large).unwrap_err();
    assert_eq!(failed.errno(), Errno::NOSPC);
    assert!(writes.load(Ordering::Relaxed) >= 2);
    assert_eq!(stored(&logs), before);
    assert_gone(&logs, log, small.len() as u64);
    writes.store(usize::MAX, Ordering::Relaxed);
    let addr = logs.append(log, &large).unwrap();
    assert_eq!(addr, (small.len() + large.len()) as u64);
    assert_there(&logs, log, addr, &large);
    assert_there(&logs, log, 0, &small);
    assert_gone(&logs, log, addr - 1);
    logs.free(&[(log, 0..u64::MAX)]).unwrap();
    assert_eq!(stored(&logs), (0, 0, 0));
    // Sealing does not wait for one that has failed.
    writes.store(1, Ordering::Relaxed);
    assert!(logs.append(log, &large).is_err());
    logs.seal(log).unwrap();
}

#[test]
fn appends_to_one_log_are_encoded_beside_each_other() {
    let inline = LogStoreOptions {
        codec_when: CodecWhen::Inline,
        ..options()
    };
    let mut fixture = Fixture::new(inline.clone());
    let log = fixture
        .logs
        .create_log(Fid(1), CodecHint::default())
        .unwrap();
    let appended = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (logs, appended) = (&fixture.logs, &appended);
            scope.spawn(move || {
                for i in 0..8 {
                    let len = [MIB / 8, 1000, MIB / 3, 20_000][i % 4];
                    let bytes = wave(thread * 100 + i as u64, len);
                    let addr = logs.append(log, &bytes).unwrap();
                    appended.lock().unwrap().push((addr, bytes));
                }
            });
        }
    });
    let mut appended = appended.into_inner().unwrap();
    appended.sort();
    let overlap = |pair: &[(u64, Vec<u8>)]| pair[0].0 + pair[0].1.len() as u64 > pair[1].0;
    assert!(!appended.windows(2).any(overlap));
    fixture.logs.flush(log, true).unwrap();
    for _ in 0..2 {
        for (addr, bytes) in &appended {
            let read = fixture.read(log, *addr, bytes.len()).unwrap();
            assert!(read == *bytes, "at {addr}");
        }
        let live: usize = appended.iter().map(|a| a.1.len()).sum();
        assert_eq!(fixture.logs.stats().live, live as u64);
        assert_counted(&fixture);
        assert_eq!(checked(&fixture), (0, 0));
        fixture.reopen(inline.clone());
    }
    assert_empties(&fixture);
}

#[test]
fn what_is_encoded_inline_takes_less_of_the_quota_at_once() {
    let inline = LogStoreOptions {
        codec_when: CodecWhen::Inline,
        quota: Some(20 << 20),
        ..options()
    };
    let mut fixture = Fixture::new(inline.clone());
    let mut logs = Vec::new();
    // Twice as many bytes as the quota.
    for i in 0..10 {
        let numbers = wave(i, MIB);
        logs.push((
            written(
                &fixture,
                &numbers,
                "auto",
                [4 * MIB, 300_000, 3 * MIB][i as usize % 3],
            ),
            numbers,
        ));
    }
    let stats = fixture.logs.stats();
    assert!(stats.encoded > 0 && stats.live == 40 << 20, "{stats:?}");
    // In a tail parts may be freed before anything is written out.
    let log = fixture
        .logs
        .create_log(Fid(2), CodecHint::default())
        .unwrap();
    let numbers = wave(11, MIB / 16);
    fixture.logs.append(log, &numbers).unwrap();
    fixture.logs.free(&[(log, 50_000..120_000)]).unwrap();
    fixture.logs.flush(log, true).unwrap();
    for _ in 0..2 {
        assert_counted(&fixture);
        assert_eq!(checked(&fixture), (0, 0));
        for (log, numbers) in &logs {
            assert_read(&fixture, *log, numbers);
        }
        assert!(fixture.read(log, 120_000, 100_000).unwrap() == numbers[120_000..220_000]);
        assert!(is_gone(&fixture.read(log, 119_999, 1)));
        fixture.reopen(inline.clone());
    }
    // A log that is sealed has its containers synced too.
    fixture.logs.flush(logs[0].0, true).unwrap();
    assert_empties(&fixture);
}

#[test]
fn where_the_disk_is_slower_than_the_codec_bytes_are_encoded_as_they_are_written() {
    let auto = LogStoreOptions {
        codec_when: CodecWhen::Auto,
        ..options()
    };
    // 25 MB/s.
    let disk = HookedIo::new(FaultIo::new(1), move |path, call| {
        if let Call::Write { len, .. } = call
            && path.starts_with("/data")
        {
            std::thread::sleep(Duration::from_nanos(40 * len));
        }
        Ok(())
    });
    let store = Store::open(Arc::new(disk.clone()), Path::new("/kv"), Options::default());
    let store = Arc::new(store.unwrap());
    let logs = LogStore::open(Arc::new(disk), Path::new("/data"), store, auto).unwrap();
    let log = logs.create_log(Fid(1), CodecHint::default()).unwrap();
    let numbers = wave(1, 6 * MIB);
    let mut encoded_from = 0;
    for (i, part) in numbers.chunks(MIB).enumerate() {
        logs.append(log, part).unwrap();
        logs.flush(log, false).unwrap();
        let stats = logs.stats();
        // Its rate is known after 16 MB.
        match i < 15 {
            true => assert_eq!(stats.encoded_from, 0, "{i}: {stats:?}"),
            false => encoded_from = stats.encoded_from,
        }
    }
    assert!(encoded_from >= 6 << 20, "{encoded_from}");
    let mut read = vec![0; numbers.len()];
    logs.read(log, 0, &mut read).unwrap();
    assert!(read == numbers);
    logs.close().unwrap();
}

#[test]
fn a_log_is_encoded_as_its_file_says() {
    let fixture = Fixture::new(encoding());
    for (i, (hint, codec)) in [
        ("raw", CodecId::Raw),
        ("xor,f32", CodecId::Xor),
        ("field,f32", CodecId::Field),
        ("pco,f32", CodecId::Pco),
        // Wrong, and read the same.
        ("field,f64,stride=7", CodecId::Field),
    ]
    .into_iter()
    .enumerate()
    {
        let numbers = wave(i as u64, MIB / 4);
        let log = written(&fixture, &numbers, hint, MIB);
        fixture.logs.settle().unwrap();
        let last = containers(&fixture).pop().unwrap();
        assert_eq!(last.codec(), codec, "{hint}");
        assert_read(&fixture, log, &numbers);
    }
    assert_counted(&fixture);
    assert_empties(&fixture);
}

#[test]
fn another_member_is_sent_encoded_bytes_and_gets_the_raw_ones() {
    let fixture = Fixture::new(encoding());
    let numbers = wave(9, MIB);
    let zeros = vec![0; MIB];
    let mixed = [&numbers[..], &zeros, &seeded_bytes(4, MIB / 4)].concat();
    let log = written(&fixture, &mixed, "field,f32", MIB);
    let all = |what: &str| {
        let (mut sent, step) = (0, 128 << 10);
        for (i, bytes) in mixed.chunks(step).enumerate() {
            let read = read_from_elsewhere(&fixture.logs, log, (i * step) as u64, bytes.len());
            let (read, len) = read.unwrap();
            assert!(read == bytes, "{what}, {i}");
            sent += len;
        }
        sent
    };
    assert_eq!(all("raw"), mixed.len());
    fixture.logs.settle().unwrap();
    let stats = fixture.logs.stats();
    assert!(stats.encoded_from as usize >= numbers.len() / 8 * 7);
    let sent = all("settled");
    // Heads are sent with each request, raw bytes as they are.
    let most = stats.unique as usize * 11 / 10;
    assert!(sent <= most, "{sent} bytes for {} stored", stats.unique);
    let after = fixture.logs.stats();
    let read = (after.sent_from - stats.sent_from, after.sent - stats.sent);
    assert_eq!(read, (mixed.len() as u64, sent as u64));
    // Short pieces are not worth a head, and go in one request with others.
    let pieces: Vec<_> = [
        (0, 100),
        (5000, 200_000),
        (300_000, 4096),
        (304_096, 65_536),
    ]
    .map(|(addr, len)| LogPiece { log, addr, len })
    .into();
    let request = ReadPieces {
        pieces: pieces.clone(),
    };
    let read = fixture.logs.read_pieces(0, request).unwrap();
    assert_eq!(read.encoded, [1, 3]);
    for (i, (piece, sent)) in pieces.iter().zip(read.buffers).enumerate() {
        let wanted = &mixed[piece.addr as usize..][..piece.len as usize];
        let mut raw = vec![0; wanted.len()];
        match read.encoded.contains(&(i as u32)) {
            true => transfer_form::decode(&sent, &mut raw).unwrap(),
            false => raw.copy_from_slice(&sent),
        }
        assert!(raw == wanted, "{piece:?}");
    }
}

#[test]
fn damaged_bytes_in_transfer_form_are_refused_or_decoded_to_something() {
    let fixture = Fixture::new(encoding());
    let codecs = ["field,f32", "xor,f32", "pco,f32", "zstd", "lz4"];
    let len = 80_000;
    let corpus: Vec<Vec<u8>> = codecs
        .into_iter()
        .enumerate()
        .map(|(i, hint)| {
            let numbers = wave(i as u64, MIB / 16);
            let mixed = [&numbers[..], &[0; 9000], &seeded_bytes(i as u64, 20_000)].concat();
            let log = written(&fixture, &mixed, hint, MIB);
            fixture.logs.settle().unwrap();
            let piece = LogPiece {
                log,
                addr: numbers.len() as u64 - 60_000,
                len,
            };
            let pieces = vec![piece];
            let read = fixture.logs.read_pieces(0, ReadPieces { pieces }).unwrap();
            assert_eq!(read.encoded, [0], "{hint}");
            read.buffers[0].to_vec()
        })
        .collect();
    let mut raw = vec![0; len as usize];
    fuzz("transfer form", 20_000, &corpus, |random, first, bytes| {
        transfer_form::decode(first, &mut raw).unwrap();
        // Cut anywhere, it is refused.
        let cut = random.index(first.len());
        assert!(transfer_form::decode(&first[..cut], &mut raw).is_err());
        let longer = [first, &[1]].concat();
        assert!(transfer_form::decode(&longer, &mut raw).is_err());
        let _ = transfer_form::decode(&bytes, &mut raw);
    });
}

#[test]
fn a_span_that_names_chunks_twice_is_read() {
    let fixture = Fixture::new(encoding());
    let numbers = wave(8, MIB / 16);
    // In one span: a part of the chunks again, of which the reads begin at the same places.
    let twice = [&numbers[..], &numbers[..4096], &numbers[..100_000]].concat();
    let log = written(&fixture, &twice, "field,f32", MIB);
    fixture.logs.settle().unwrap();
    assert!(fixture.logs.stats().encoded > 0);
    assert_read(&fixture, log, &twice);
    assert_counted(&fixture);
    assert_empties(&fixture);
}

#[test]
fn duplicates_of_encoded_chunks_are_found() {
    for kind in [
        forebay_data::fingerprint::FingerprintKind::Blake3,
        forebay_data::fingerprint::FingerprintKind::Sha1,
    ] {
        let mut settings = encoding();
        settings.settle.as_mut().unwrap().fingerprint = kind;
        let mut fixture = Fixture::new(settings.clone());
        let numbers = wave(3, MIB / 2);
        let first = written(&fixture, &numbers, "auto", MIB);
        fixture.logs.settle().unwrap();
        let before = fixture.logs.stats().stored;
        // Also of a store that was opened anew, and knows containers by their records alone.
        fixture.reopen(settings);
        let second = written(&fixture, &numbers, "raw", MIB);
        fixture.logs.settle().unwrap();
        assert_eq!(fixture.logs.stats().stored, before);
        fixture.logs.free(&[(first, 0..u64::MAX)]).unwrap();
        assert_read(&fixture, second, &numbers);
        assert_counted(&fixture);
        assert_empties(&fixture);
    }
}

#[test]
fn parts_are_freed_and_what_is_left_moves_without_them() {
    let mut fixture = Fixture::new(encoding());
    let numbers = wave(4, MIB);
    let log = written(&fixture, &numbers, "field,f32", MIB);
    fixture.logs.settle().unwrap();
    let before = fixture.logs.stats();
    let (gone, kept) = (10_000..3_900_000u64, 3_900_000..4_100_000usize);
    fixture.logs.free(&[(log, gone.clone())]).unwrap();
    let stats = fixture.logs.stats();
    assert!(stats.stored < before.stored / 8, "{before:?} {stats:?}");
    assert_counted(&fixture);
    fixture.logs.clean(true).unwrap();
    fixture.crash();
    fixture.logs.clean(true).unwrap();
    assert_counted(&fixture);
    for start in (kept.start..kept.end - 5000).step_by(3001) {
        let read = fixture.read(log, start as u64, 5000).unwrap();
        assert!(read == numbers[start..start + 5000]);
    }
    assert!(fixture.read(log, 0, 10_000).unwrap() == numbers[..10_000]);
    assert!(
        is_gone(&fixture.read(log, gone.start, 1)) && is_gone(&fixture.read(log, gone.end - 1, 1))
    );
    let moved = containers(&fixture)
        .into_iter()
        .any(|c| c.chunks().any(|chunk| chunk.crc.is_none()));
    assert!(moved, "no container was moved without what was freed");
    assert_eq!(checked(&fixture), (0, 0));
    assert_empties(&fixture);
}

#[test]
fn a_flipped_bit_is_an_error_that_names_the_part_and_the_same_bytes_heal_it() {
    for part in [0, 1, 100] {
        let mut fixture = Fixture::new(encoding());
        let numbers = wave(5, MIB / 4);
        let log = written(&fixture, &numbers, "field,f32", MIB);
        fixture.logs.settle().unwrap();
        // Without what is in memory of its head.
        fixture.crash();
        let container = containers(&fixture).remove(0);
        flip(&fixture, &container, part);
        let (at, name) = match part {
            0 => (500_000, "head (field)".to_owned()),
            piece => (
                4096 * (piece - 1) + 7,
                format!("piece {} (field)", piece - 1),
            ),
        };
        let refused = fixture.read(log, at as u64, 1).unwrap_err();
        assert!(
            matches!(&refused, Error::Corrupt(text) if text.contains(&name)),
            "{refused}"
        );
        let other = fixture.read(log, 300_000, 100);
        assert_eq!(other.is_ok(), part != 0, "{other:?}");
        let (of_containers, of_spans) = checked(&fixture);
        assert!(of_containers == 1 && of_spans == 1);
        let again = written(&fixture, &numbers, "field,f32", MIB);
        fixture.logs.settle().unwrap();
        assert_read(&fixture, log, &numbers);
        assert_read(&fixture, again, &numbers);
        fixture.crash();
        assert_eq!(checked(&fixture), (0, 0));
        assert_read(&fixture, log, &numbers);
        assert_counted(&fixture);
        assert_empties(&fixture);
    }
}

#[test]
fn how_ranges_are_stored_is_told_by_codec() {
    let fixture = Fixture::new(encoding());
    let numbers = wave(5, MIB / 4);
    let log = written(&fixture, &numbers, "field,f32", 70_000);
    let len = numbers.len() as u64;
    let told = |range: std::ops::Range<u64>| fixture.logs.storage_of(&[(log, range)]).unwrap();
    let before = told(0..u64::MAX);
    assert_eq!((before.unsettled, before.stored()), (len, len));
    assert_eq!(told(100..300).unsettled, 200);
    assert_eq!(
        fixture.logs.storage_of(&[(log + 1, 0..9)]).unwrap().bytes(),
        0
    );
    fixture.logs.settle().unwrap();
    let all = told(0..u64::MAX);
    let field = all.codecs["field"];
    assert_eq!((all.bytes(), all.unsettled), (len, 0));
    assert!(
        field.bytes > len / 2 && field.stored < field.bytes,
        "{all:?}"
    );
    // Shares are rounded down, once a piece and twice a run.
    let stats = fixture.logs.stats();
    let told_encoded: u64 = all.codecs.values().map(|of| of.stored).sum();
    let least = stats.encoded - stats.encoded / 50;
    assert!(
        (least..=stats.encoded).contains(&told_encoded),
        "{told_encoded}, {stats:?}"
    );
    let half = told(0..len / 2);
    assert_eq!(half.bytes(), len / 2);
    assert!(half.stored() < all.stored());
    fixture.logs.free(&[(log, 0..len / 2)]).unwrap();
    assert_eq!(told(0..u64::MAX).bytes(), len - len / 2);
    let zeros = written(&fixture, &[0; 1 << 20], "auto", 1 << 20);
    let noise = written(&fixture, &seeded_bytes(9, MIB), "raw", MIB);
    fixture.logs.settle().unwrap();
    let mib = 0..MIB as u64;
    let report = fixture
        .logs
        .storage_of(&[(zeros, mib.clone()), (noise, mib.clone())])
        .unwrap();
    assert_eq!((report.zeros, report.raw), (mib.end, mib.end));
    assert_eq!(report.codecs.len(), 0);
}

#[test]
fn what_is_stored_is_encoded_again_by_another_hint() {
    for settles in [true, false] {
        let settings = LogStoreOptions {
            settle: settles.then(settle_options),
            codec_when: CodecWhen::Off,
            ..options()
        };
        let mut fixture = Fixture::new(settings.clone());
        let (numbers, noise) = (wave(6, MIB / 2), seeded_bytes(6, MIB));
        let logs = [
            (written(&fixture, &numbers, "auto", 300_000), &numbers),
            (written(&fixture, &noise, "auto", MIB), &noise),
            (written(&fixture, &numbers, "auto", MIB), &numbers),
        ];
        fixture.logs.settle().unwrap();
        fixture.logs.free(&[(logs[0].0, 100_000..200_000)]).unwrap();
        let all: Vec<_> = logs.iter().map(|(log, _)| (*log, 0..u64::MAX)).collect();
        let mut stored = vec![fixture.logs.stats().stored];
        for hint in ["field,f32", "xor,f32", "auto", "raw", "auto"] {
            let before = fixture.logs.stats().stored;
            let report = fixture.logs.recode(&all, hint.parse().unwrap()).unwrap();
            let after = fixture.logs.stats().stored;
            assert_eq!(report.bytes, fixture.logs.stats().live, "{hint}");
            assert_eq!(
                (report.before, report.after),
                (before, after),
                "{hint}, settles: {settles}"
            );
            stored.push(after);
            assert_counted(&fixture);
            assert_eq!(checked(&fixture), (0, 0));
            let names: Vec<_> = fixture
                .logs
                .storage_of(&all)
                .unwrap()
                .codecs
                .into_keys()
                .collect();
            let expected: &[&str] = match hint {
                "field,f32" | "auto" => &["field"],
                "xor,f32" => &["xor"],
                _ => &[],
            };
            assert_eq!(names, expected);
            for (log, bytes) in &logs[1..] {
                assert_read(&fixture, *log, bytes);
            }
            assert!(is_gone(&fixture.read(logs[0].0, 150_000, 1)));
            assert!(
                fixture.read(logs[0].0, 200_000, 400_000).unwrap() == numbers[200_000..600_000]
            );
            fixture.logs.clean(true).unwrap();
            fixture.crash();
        }
        assert!(
            stored[1] < stored[0] * 9 / 10 && stored[2] < stored[0],
            "{stored:?}"
        );
        assert!(
            stored[3] <= stored[2] && stored[4] > stored[3] && stored[5] == stored[3],
            "{stored:?}"
        );
        assert_empties(&fixture);
    }
}

#[test]
fn raw_spans_that_will_settle_get_the_new_hint() {
    let fixture = Fixture::new(encoding());
    let numbers = wave(7, MIB / 4);
    let log = written(&fixture, &numbers, "raw", MIB);
    fixture
        .logs
        .recode(&[(log, 0..u64::MAX)], "xor".parse().unwrap())
        .unwrap();
    assert_eq!(containers(&fixture), []);
    fixture.logs.settle().unwrap();
    assert_eq!(containers(&fixture)[0].codec(), CodecId::Xor);
    assert_read(&fixture, log, &numbers);
    assert_empties(&fixture);
}
