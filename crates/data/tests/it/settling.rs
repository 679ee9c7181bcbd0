//! What settling makes of written bytes: each chunk once, zeros nowhere; reading, freeing, moving and counting what is settled.
use crate::common::{Fixture, is_gone, options, settle_options};
use forebay_data::check::recount;
use forebay_data::container;
use forebay_data::{LogId, LogStoreOptions, span};
use forebay_proto::Fid;
use forebay_testkit::random::seeded_bytes;
use std::path::PathBuf;

const MIB: usize = 1 << 20;

fn fixture() -> Fixture {
    Fixture::new(LogStoreOptions {
        settle: Some(settle_options()),
        ..options()
    })
}

/// A log with these bytes in segments, in spans that end inside chunks.
fn written(fixture: &Fixture, bytes: &[u8]) -> LogId {
    written_by(fixture, bytes, 300_000)
}

fn written_by(fixture: &Fixture, bytes: &[u8], span: usize) -> LogId {
    let log = fixture.logs.create_log(Fid(1), Default::default()).unwrap();
    for part in bytes.chunks(span) {
        fixture.logs.append(log, part).unwrap();
    }
    fixture.logs.flush(log, false).unwrap();
    log
}

fn assert_read(fixture: &Fixture, log: LogId, bytes: &[u8]) {
    let read = fixture.read(log, 0, bytes.len()).unwrap();
    assert!(read == bytes, "log {log} reads as something else");
    for (at, len) in [
        (0, 1),
        (4095, 2),
        (bytes.len() / 2 - 3, 5000),
        (bytes.len() - 7, 7),
    ] {
        let read = fixture.read(log, at as u64, len).unwrap();
        assert!(read == bytes[at..at + len], "log {log} from {at}");
    }
}

/// What is saved of each chunk's count is what the spans say.
fn assert_counted(fixture: &Fixture) {
    recount(&fixture.store, |recount| {
        assert!(recount.is_right(), "container {}", recount.container.id);
        Ok(())
    })
    .unwrap();
}

/// Nothing is left when all logs are freed.
fn assert_empties(fixture: &Fixture, logs: &[LogId]) {
    let all: Vec<_> = logs.iter().map(|log| (*log, 0..u64::MAX)).collect();
    fixture.logs.free(&all).unwrap();
    let stats = fixture.logs.stats();
    let left = (
        stats.live,
        stats.stored,
        stats.settled,
        stats.zeros,
        stats.unique,
    );
    assert_eq!(left, (0, 0, 0, 0, 0));
    assert_eq!(span::all(&fixture.store).count(), 0);
    assert_eq!(container::all(&fixture.store).count(), 0);
    fixture.logs.close().unwrap();
    assert_eq!(fixture.segments(), Vec::<PathBuf>::new());
}

#[test]
fn the_same_bytes_are_stored_once_and_zeros_not_at_all() {
    let fixture = fixture();
    let (once, zeros) = (seeded_bytes(1, 3 * MIB), vec![0; MIB]);
    let both = [&once[..], &zeros, &once].concat();
    let logs = [written(&fixture, &both), written(&fixture, &once)];
    fixture.logs.settle().unwrap();
    let stats = fixture.logs.stats();
    assert_eq!(stats.live as usize, both.len() + once.len());
    assert_eq!(stats.settled, stats.live);
    assert_eq!(stats.zeros as usize, zeros.len());
    let more = stats.unique as usize - once.len();
    assert!(more < once.len() / 50, "{more} bytes more than once");
    assert_eq!(stats.stored, stats.unique);
    assert_eq!(fixture.logs.space().unwrap().0, stats.stored);
    assert_read(&fixture, logs[0], &both);
    assert_read(&fixture, logs[1], &once);
    assert_counted(&fixture);
    assert_empties(&fixture, &logs);
}

#[test]
fn what_is_new_throughout_stays_where_it_lies() {
    let fixture = fixture();
    let bytes = seeded_bytes(2, 4 * MIB);
    let log = written_by(&fixture, &bytes, MIB / 2);
    let raw: Vec<_> = span::all(&fixture.store)
        .map(|s| s.unwrap().raw().unwrap().segment)
        .collect();
    fixture.logs.settle().unwrap();
    for container in container::all(&fixture.store) {
        assert!(raw.contains(&container.unwrap().segment));
    }
    assert_eq!(fixture.logs.stats().unique as usize, bytes.len());
    assert_read(&fixture, log, &bytes);
    assert_counted(&fixture);
    assert_empties(&fixture, &[log]);
}

#[test]
fn of_two_that_share_either_is_freed_without_the_other() {
    let bytes = seeded_bytes(3, 2 * MIB);
    for first in 0..2 {
        let mut fixture = fixture();
        let logs = [written(&fixture, &bytes), written(&fixture, &bytes)];
        fixture.logs.settle().unwrap();
        fixture.crash();
        fixture.logs.free(&[(logs[first], 0..u64::MAX)]).unwrap();
        fixture.logs.clean(true).unwrap();
        assert!(is_gone(&fixture.read(logs[first], 5, 1)));
        assert_read(&fixture, logs[1 - first], &bytes);
        fixture.crash();
        assert_read(&fixture, logs[1 - first], &bytes);
        assert_counted(&fixture);
        assert_empties(&fixture, &[logs[1 - first]]);
    }
}

#[test]
fn parts_of_a_settled_span_are_freed_byte_by_byte() {
    let fixture = fixture();
    let bytes = seeded_bytes(4, MIB);
    let log = written(&fixture, &bytes);
    fixture.logs.settle().unwrap();
    fixture.logs.free(&[(log, 5000..300_001)]).unwrap();
    assert!(is_gone(&fixture.read(log, 5000, 1)) && is_gone(&fixture.read(log, 300_000, 1)));
    let read = |at: usize, len| fixture.read(log, at as u64, len).unwrap();
    assert!(read(0, 5000) == bytes[..5000]);
    assert!(read(300_001, MIB - 300_001) == bytes[300_001..]);
    assert_counted(&fixture);
    let stats = fixture.logs.stats();
    assert_eq!(stats.live as usize, MIB - 295_001);
    // Chunks of which a byte is live are stored whole.
    let more = stats.stored - stats.live;
    assert!((1..=8192).contains(&more), "{more}");
    assert_empties(&fixture, &[log]);
}
