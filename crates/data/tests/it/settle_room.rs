//! Settling in the background and for room: what fits its quota or disk only after deduplication is written all the same, and the
//! backlog stays in its bound.
use crate::common::{Fixture, options, settle_options};
use forebay_data::chunk::ChunkSize;
use forebay_data::{AppendOptions, LogId, LogStore, LogStoreOptions, SettleOptions};
use forebay_proto::Fid;
use forebay_storage::fault::FaultIo;
use forebay_storage::{Options, Store};
use forebay_testkit::random::seeded_bytes;
use forebay_testkit::wait::until;
use rustix::io::Errno;
use std::path::Path;
use std::sync::Arc;

const MIB: usize = 1 << 20;

fn with_settling(background: bool, quota: Option<u64>) -> LogStoreOptions {
    LogStoreOptions {
        quota,
        background,
        settle: Some(settle_options()),
        ..options()
    }
}

/// Writes all of it to a new log, by pieces.
fn write(logs: &LogStore, bytes: &[u8]) -> forebay_proto::Result<LogId> {
    let log = logs.create_log(Fid(1), Default::default())?;
    let settles = AppendOptions {
        settles: true,
        ..AppendOptions::default()
    };
    for part in bytes.chunks(300_000) {
        logs.append_with(log, part, settles)?;
    }
    logs.flush(log, false)?;
    Ok(log)
}

fn assert_read(logs: &LogStore, log: LogId, bytes: &[u8]) {
    let mut buf = vec![0; bytes.len()];
    logs.read(log, 0, &mut buf).unwrap();
    assert!(buf == bytes);
}

#[test]
fn what_fits_the_quota_only_once_is_written_three_times() {
    for background in [false, true] {
        let quota = 6 * MIB as u64;
        let fixture = Fixture::new(with_settling(background, Some(quota)));
        let bytes = seeded_bytes(1, 4 * MIB);
        let logs = [0; 3].map(|_| write(&fixture.logs, &bytes).unwrap());
        logs.iter()
            .for_each(|log| assert_read(&fixture.logs, *log, &bytes));
        let (used, total, _) = fixture.logs.space().unwrap();
        assert!(used <= total && total == quota);
        assert_eq!(fixture.logs.stats().live as usize, 3 * bytes.len());
        // What does not fit at all is refused still.
        let other = write(&fixture.logs, &seeded_bytes(2, 4 * MIB));
        assert_eq!(other.unwrap_err().errno(), Errno::NOSPC);
        logs.iter()
            .for_each(|log| assert_read(&fixture.logs, *log, &bytes));
    }
}

#[test]
fn without_settling_what_does_not_fit_the_quota_is_refused_at_once() {
    let fixture = Fixture::new(LogStoreOptions {
        settle: None,
        ..with_settling(false, Some(6 * MIB as u64))
    });
    let bytes = seeded_bytes(1, 4 * MIB);
    write(&fixture.logs, &bytes).unwrap();
    let again = write(&fixture.logs, &bytes).unwrap_err();
    assert_eq!(again.errno(), Errno::NOSPC);
}

#[test]
fn what_fits_the_disk_only_once_is_written_three_times() {
    let disk = FaultIo::new(1);
    let io = Arc::new(disk.clone());
    let records = Options {
        background: false,
        table_reserve_bytes: 0,
        ..Options::default()
    };
    let store = Arc::new(Store::open(io.clone(), Path::new("/m/kv"), records).unwrap());
    let logs = LogStore::open(io, Path::new("/m/data"), store, with_settling(false, None)).unwrap();
    // A third of each is new, so settling takes room before it makes some.
    let shared = seeded_bytes(1, 4 * MIB);
    let bytes = |n: u64| [&shared[..], &seeded_bytes(10 + n, MIB / 2)].concat();
    disk.set_capacity(disk.used() + 8 * MIB as u64);
    let written: Vec<_> = (0..4)
        .map(|n| (write(&logs, &bytes(n)).unwrap(), n))
        .collect();
    for (log, n) in &written {
        assert_read(&logs, *log, &bytes(*n));
    }
    let stats = logs.stats();
    assert!(stats.live as usize > 16 * MIB && stats.settled > 0);
}

#[test]
fn the_thread_settles_what_was_written_and_what_a_start_finds() {
    let mut fixture = Fixture::new(with_settling(true, None));
    let bytes = seeded_bytes(1, 4 * MIB);
    let logs = [0; 2].map(|_| write(&fixture.logs, &bytes).unwrap());
    let settled = |fixture: &Fixture, live: usize| {
        until("all is settled", || {
            let stats = fixture.logs.stats();
            stats.live as usize == live && stats.settled == stats.live
        });
    };
    settled(&fixture, 2 * bytes.len());
    // Written while nothing settles, and found by the next start.
    fixture.reopen(LogStoreOptions {
        settle: None,
        ..options()
    });
    let third = write(&fixture.logs, &bytes).unwrap();
    fixture.reopen(with_settling(true, None));
    settled(&fixture, 3 * bytes.len());
    let stats = fixture.logs.stats();
    assert!(stats.unique as usize <= bytes.len() + 100_000, "{stats:?}");
    for log in [logs[0], logs[1], third] {
        assert_read(&fixture.logs, log, &bytes);
    }
    let idle = || fixture.logs.stats().settle.backlog == 0;
    until("nothing waits", idle);
}

#[test]
fn a_burst_without_end_waits_for_settling_at_its_bound() {
    let bound = 8 * MIB as u64;
    let fixture = Fixture::new(LogStoreOptions {
        settle: Some(SettleOptions {
            backlog_bytes: bound,
            ..settle_options()
        }),
        ..with_settling(true, None)
    });
    let bytes = seeded_bytes(1, 2 * MIB);
    let mut most = 0;
    for _ in 0..20 {
        write(&fixture.logs, &bytes).unwrap();
        most = most.max(fixture.logs.stats().settle.backlog);
    }
    // A write that is let through may add itself, and what was picked is not waiting.
    assert!(most <= bound + 2 * MIB as u64, "{most} bytes waited");
    assert!(fixture.logs.stats().settled > 0);
}

#[test]
fn chunks_of_other_sizes_are_found_among_their_like() {
    for size in [8 << 10, 64 << 10] {
        let settle = SettleOptions {
            chunk: ChunkSize::new(size).unwrap(),
            ..settle_options()
        };
        let fixture = Fixture::new(LogStoreOptions {
            settle: Some(settle),
            ..options()
        });
        let bytes = seeded_bytes(1, 2 * MIB);
        let logs = [0; 2].map(|_| write(&fixture.logs, &bytes).unwrap());
        fixture.logs.settle().unwrap();
        let stats = fixture.logs.stats();
        assert!(stats.unique as usize <= bytes.len() + 300_000, "{stats:?}");
        logs.iter()
            .for_each(|log| assert_read(&fixture.logs, *log, &bytes));
    }
}
