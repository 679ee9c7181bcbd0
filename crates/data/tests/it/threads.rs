//! Threads appending, reading, freeing and cleaning at once: a read gives the right bytes or `Gone`, and `Gone` only for
//! bytes that somebody has begun to free.
use crate::common::{Fixture, is_gone, options, read_from_elsewhere, settle_options};
use forebay_data::{CodecWhen, LogId, LogPart, LogStoreOptions};
use forebay_proto::{Error, Fid};
use forebay_testkit::random::Random;
use parking_lot::RwLock;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};

/// Bytes that say where they are. Every third log holds the same ones, and some of all are zeros.
fn pattern(log: LogId, addr: u64, len: usize) -> Vec<u8> {
    let byte = |at: u64| match at >> 13 & 7 {
        5 => 0,
        _ => (at.wrapping_mul(0x9E37_79B9).wrapping_add(log % 3 * 77) >> 11) as u8,
    };
    (addr..addr + len as u64).map(byte).collect()
}

/// What the readers know of a log.
struct Known {
    id: LogId,
    end: AtomicU64,
    /// Below this, freeing may have begun.
    freed: AtomicU64,
}

/// One of the logs, if there is one.
fn any_of(known: &RwLock<Vec<Arc<Known>>>, numbers: &mut Random) -> Option<Arc<Known>> {
    let known = known.read();
    known.get(numbers.index(known.len())).cloned()
}

fn write(fixture: &Fixture, known: &RwLock<Vec<Arc<Known>>>, seed: u64, bytes: u64) {
    let mut numbers = Random::new(seed);
    let mut written = 0;
    while written < bytes {
        let hint = ["auto", "zstd", "raw"][numbers.index(3)].parse();
        let id = fixture.logs.create_log(Fid(1), hint.unwrap()).unwrap();
        let log = Arc::new(Known {
            id,
            end: AtomicU64::new(0),
            freed: AtomicU64::new(0),
        });
        known.write().push(log.clone());
        for _ in 0..numbers.below(60) + 1 {
            let len = [100, 4096, 47_008, 300_000][numbers.below(4) as usize];
            let at = fixture
                .logs
                .append(id, &pattern(id, log.end.load(SeqCst), len))
                .unwrap();
            assert_eq!(at, log.end.fetch_add(len as u64, SeqCst));
            written += len as u64;
            if numbers.below(8) == 0 {
                fixture.logs.flush(id, false).unwrap();
            }
        }
        fixture.logs.flush(id, false).unwrap();
        fixture.logs.seal(id).unwrap();
    }
}

fn read(fixture: &Fixture, known: &RwLock<Vec<Arc<Known>>>, seed: u64, stop: &AtomicBool) -> usize {
    let mut numbers = Random::new(seed);
    let mut reads = 0;
    while !stop.load(SeqCst) || reads < 100 {
        let Some(log) = any_of(known, &mut numbers) else {
            continue;
        };
        let end = log.end.load(SeqCst);
        let at = numbers.below(end);
        let len = (numbers.below(60_000) + 1).min(end - at) as usize;
        let mut buf = vec![0xee; len];
        let read = match reads % 3 {
            0 => fixture.logs.read(log.id, at, &mut buf).map(|()| buf),
            1 => read_parts(fixture, log.id, at, &mut buf, &mut numbers).map(|()| buf),
            _ => read_from_elsewhere(&fixture.logs, log.id, at, len).map(|(bytes, _)| bytes),
        };
        match read {
            Ok(bytes) => assert!(
                bytes == pattern(log.id, at, len),
                "wrong bytes at {at}+{len}"
            ),
            Err(Error::Gone { .. }) => assert!(
                at < log.freed.load(SeqCst),
                "log {} {at}+{len} is gone too early",
                log.id
            ),
            Err(e) => panic!("log {} {at}+{len}: {e}", log.id),
        }
        reads += 1;
    }
    reads
}

/// Reads some pages of a range by one call, leaves others out, and fills those in by the pattern.
fn read_parts(
    fixture: &Fixture,
    log: LogId,
    at: u64,
    buf: &mut [u8],
    numbers: &mut Random,
) -> forebay_proto::Result<()> {
    let mut parts = Vec::new();
    let (mut addr, mut rest) = (at, buf);
    while !rest.is_empty() {
        let page = (4096 - addr % 4096).min(rest.len() as u64);
        let (into, behind) = rest.split_at_mut(page as usize);
        match numbers.below(4) {
            0 => into.copy_from_slice(&pattern(log, addr, into.len())),
            _ => parts.push(LogPart { log, addr, into }),
        }
        (addr, rest) = (addr + page, behind);
    }
    fixture.logs.read_parts(&mut parts)
}

fn free(fixture: &Fixture, known: &RwLock<Vec<Arc<Known>>>, stop: &AtomicBool) {
    let mut numbers = Random::new(99);
    while !stop.load(SeqCst) {
        let Some(log) = any_of(known, &mut numbers) else {
            continue;
        };
        let start = log.freed.load(SeqCst);
        let end = start + numbers.below(log.end.load(SeqCst) - start + 1);
        log.freed.store(end, SeqCst);
        fixture.logs.free(&[(log.id, start..end)]).unwrap();
        assert!(end == start || is_gone(&fixture.read(log.id, end - 1, 1)));
        if numbers.below(20) == 0 {
            fixture.logs.clean(true).unwrap();
        }
    }
}

#[test]
fn readers_see_the_right_bytes_while_others_write_free_and_clean() {
    all_at_once(LogStoreOptions {
        buffer_bytes: 1 << 20,
        ..options()
    });
}

#[test]
fn readers_see_the_right_bytes_while_others_write_free_clean_and_settle() {
    all_at_once(LogStoreOptions {
        buffer_bytes: 1 << 20,
        settle: Some(settle_options()),
        ..options()
    });
}

#[test]
fn readers_see_the_right_bytes_while_others_write_free_clean_settle_and_encode() {
    for codec_when in [CodecWhen::Settle, CodecWhen::Inline] {
        all_at_once(LogStoreOptions {
            buffer_bytes: 1 << 20,
            settle: Some(settle_options()),
            codec_when,
            ..options()
        });
    }
}

/// Settles whatever is there, again and again, and encodes logs anew.
fn settle(fixture: &Fixture, known: &RwLock<Vec<Arc<Known>>>, stop: &AtomicBool) {
    let mut numbers = Random::new(77);
    while !stop.load(SeqCst) {
        fixture.logs.settle().unwrap();
        if let Some(log) = any_of(known, &mut numbers) {
            let hint = ["auto", "zstd", "lz4", "raw"][numbers.index(4)].parse();
            let range = (log.id, 0..u64::MAX);
            fixture.logs.recode(&[range], hint.unwrap()).unwrap();
        }
        std::thread::yield_now();
    }
}

fn all_at_once(options: LogStoreOptions) {
    let bytes: u64 = forebay_testkit::seeds::count(40 << 20, 1 << 30);
    let settles = options.settle.is_some();
    let encodes = options.codec_when.settles();
    let fixture = Fixture::new(options);
    let (known, stop, reads) = (
        RwLock::new(Vec::new()),
        AtomicBool::new(false),
        AtomicUsize::new(0),
    );
    std::thread::scope(|scope| {
        let writers: Vec<_> = (1..4)
            .map(|i| {
                scope.spawn({
                    let (f, k) = (&fixture, &known);
                    move || write(f, k, i * 7919, bytes / 3)
                })
            })
            .collect();
        for i in 1..3 {
            let (f, k, s, r) = (&fixture, &known, &stop, &reads);
            scope.spawn(move || r.fetch_add(read(f, k, i * 104_729, s), SeqCst));
        }
        scope.spawn(|| free(&fixture, &known, &stop));
        if settles {
            scope.spawn(|| settle(&fixture, &known, &stop));
        }
        let done: Vec<_> = writers
            .into_iter()
            .map(std::thread::ScopedJoinHandle::join)
            .collect();
        stop.store(true, SeqCst);
        assert!(done.iter().all(|d| d.is_ok()), "a writer failed");
    });
    assert!(reads.into_inner() >= 200);
    let mut live = 0;
    for log in known.read().iter() {
        let (at, end) = (log.freed.load(SeqCst), log.end.load(SeqCst));
        live += end - at;
        assert!(
            fixture.read(log.id, at, (end - at) as usize).unwrap()
                == pattern(log.id, at, (end - at) as usize)
        );
    }
    assert_eq!(fixture.logs.stats().live, live);
    if encodes {
        // The last to encode a log may have left it raw.
        fixture.logs.settle().unwrap();
        for log in known.read().iter() {
            let range = (log.id, 0..u64::MAX);
            fixture
                .logs
                .recode(&[range], "zstd".parse().unwrap())
                .unwrap();
        }
        assert!(live == 0 || fixture.logs.stats().encoded > 0);
    }
}
