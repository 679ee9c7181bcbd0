//! Single behaviours: reading, freeing, damage, quota, moving.
use crate::common::{Fixture, is_gone, options, pattern, read_parts};
use forebay_data::{AppendOptions, LogId, LogStoreOptions, READ_BYTES};
use forebay_proto::data::{DataService, FreeRanges, GetUsage, LogPiece, ReadPieces, VerifyRanges};
use forebay_proto::{Error, Fid, LOST_LOG};
use rustix::io::Errno;
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::{Duration, Instant};

fn filled(fixture: &Fixture, len: usize) -> LogId {
    let log = fixture.logs.create_log(Fid(1), Default::default()).unwrap();
    for at in (0..len).step_by(100_000) {
        fixture
            .logs
            .append(log, &pattern(log, at as u64, 100_000.min(len - at)))
            .unwrap();
    }
    fixture.logs.flush(log, false).unwrap();
    log
}

fn open_to_damage(path: &Path) -> File {
    File::options().read(true).write(true).open(path).unwrap()
}

#[test]
fn parts_with_gaps_between_them_are_each_verified() {
    const ROW: u64 = 53_248;
    const WANTED: u64 = 45_056;
    let fixture = Fixture::new(options());
    let log = fixture.logs.create_log(Fid(1), Default::default()).unwrap();
    let other = filled(&fixture, 10_000);
    let rows = |n| (0..n).map(|i| i * ROW..i * ROW + WANTED);
    for row in rows(20) {
        fixture
            .logs
            .append(log, &pattern(log, row.start, ROW as usize))
            .unwrap();
        fixture.logs.flush(log, false).unwrap();
        fixture
            .logs
            .free(&[(log, row.end..row.start + ROW)])
            .unwrap();
    }
    let tail = 20 * ROW;
    fixture
        .logs
        .append(log, &pattern(log, tail, 10_000))
        .unwrap();
    let mut wanted: Vec<_> = rows(20).map(|row| (log, row)).collect();
    // Not whole pieces; not written yet; another log.
    wanted[7].1.end -= 1;
    wanted[8].1.start += 1;
    wanted.extend([(log, tail..tail + 9000), (other, 0..10_000)]);
    read_parts(&fixture.logs, &wanted).unwrap();

    // What is freed is not read with what is around it.
    let gone = (log, 3 * ROW + WANTED..4 * ROW);
    let with_gone: Vec<_> = wanted.iter().cloned().chain([gone]).collect();
    assert!(is_gone(&read_parts(&fixture.logs, &with_gone)));

    // A flipped bit in a gap is nobody's, in a row the row's.
    let path = fixture.segments().pop().unwrap();
    let file = open_to_damage(&path);
    // Where the first part lies in the segment.
    let first = {
        let stored = std::fs::read(&path).unwrap();
        let row = pattern(log, 0, 4096);
        stored.windows(4096).position(|w| w == row).unwrap() as u64
    };
    let flip = |addr: u64| {
        let mut byte = [0];
        file.read_exact_at(&mut byte, first + addr).unwrap();
        file.write_all_at(&[byte[0] ^ 4], first + addr).unwrap();
    };
    flip(5 * ROW + WANTED + 100);
    read_parts(&fixture.logs, &wanted).unwrap();
    flip(5 * ROW + 9000);
    let error = read_parts(&fixture.logs, &wanted).unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, Error::Corrupt(_)), "{text}");
    assert!(text.contains(path.to_str().unwrap()), "{text}");
    wanted.remove(5);
    read_parts(&fixture.logs, &wanted).unwrap();
}

#[test]
fn an_aligned_append_begins_with_a_piece_and_nothing_is_in_the_padding() {
    for is_written in [false, true] {
        let mut fixture = Fixture::new(options());
        let log = fixture.logs.create_log(Fid(1), Default::default()).unwrap();
        let append = |fixture: &Fixture, at: u64, len: usize| {
            let options = AppendOptions {
                aligned: at != 1888,
                ..AppendOptions::default()
            };
            let bytes = pattern(log, at, len);
            assert_eq!(fixture.logs.append_with(log, &bytes, options).unwrap(), at);
            if is_written {
                fixture.logs.flush(log, false).unwrap();
            }
        };
        append(&fixture, 0, 1888);
        append(&fixture, 1888, 12);
        // Too short for 2,196 bytes of padding.
        append(&fixture, 1900, 8192);
        append(&fixture, 12_288, 53_248);
        // That ended with a piece.
        append(&fixture, 65_536, 100_001);
        append(&fixture, 167_936, 1 << 20);

        let live = 10_092 + 53_248 + 100_001 + (1 << 20);
        assert_eq!(fixture.logs.space().unwrap().0, live);
        let check = |fixture: &Fixture| {
            for (at, len) in [(0, 10_092), (12_288, 153_249), (167_936, 1 << 20)] {
                assert_eq!(fixture.read(log, at, len).unwrap(), pattern(log, at, len));
            }
            for at in [10_092, 12_287, 165_537, 167_935] {
                assert!(is_gone(&fixture.read(log, at, 1)), "{at}");
            }
        };
        check(&fixture);
        fixture.logs.flush(log, false).unwrap();
        check(&fixture);
        fixture.crash();
        check(&fixture);
        fixture.logs.free(&[(log, 0..u64::MAX)]).unwrap();
        assert_eq!(fixture.logs.space().unwrap().0, 0);
    }
}

#[test]
fn what_a_damaged_record_held_is_an_error_at_once() {
    let fixture = Fixture::new(options());
    let read = fixture.read(LOST_LOG, 0, 10);
    assert!(matches!(read, Err(Error::Corrupt(_))), "{read:?}");
}

#[test]
fn a_flipped_bit_is_an_error_that_names_the_place() {
    let fixture = Fixture::new(options());
    let log = filled(&fixture, 20_000);
    let path = fixture.segments().pop().unwrap();
    let file = open_to_damage(&path);
    let mut byte = [0];
    file.read_exact_at(&mut byte, 4096 + 9000).unwrap();
    file.write_all_at(&[byte[0] ^ 4], 4096 + 9000).unwrap();
    let error = fixture.read(log, 8999, 1).unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, Error::Corrupt(_)), "{text}");
    assert!(
        text.contains(path.to_str().unwrap())
            && text.contains("at byte 12288")
            && text.contains("expected"),
        "{text}"
    );
    assert_eq!(error.errno(), Errno::IO);
    // The other pieces are still good.
    assert_eq!(fixture.read(log, 0, 8192).unwrap(), pattern(log, 0, 8192));
    assert_eq!(
        fixture.read(log, 12_288, 7712).unwrap(),
        pattern(log, 12_288, 7712)
    );
}

#[test]
fn a_segment_that_is_not_there_is_an_error_and_the_rest_works() {
    let mut fixture = Fixture::new(options());
    let lost = filled(&fixture, 10_000);
    std::fs::remove_file(fixture.segments().pop().unwrap()).unwrap();
    fixture.crash();
    assert!(matches!(fixture.read(lost, 0, 10), Err(Error::Corrupt(_))));
    let log = filled(&fixture, 10_000);
    assert_eq!(
        fixture.read(log, 0, 10_000).unwrap(),
        pattern(log, 0, 10_000)
    );
}

#[test]
fn over_the_quota_nothing_is_appended_and_freeing_makes_room() {
    let fixture = Fixture::new(LogStoreOptions {
        quota: Some(100_000),
        ..options()
    });
    let log = fixture.logs.create_log(Fid(1), Default::default()).unwrap();
    fixture.logs.append(log, &pattern(log, 0, 90_000)).unwrap();
    assert_eq!(
        fixture.logs.append(log, &[1; 10_001]).unwrap_err().errno(),
        Errno::NOSPC
    );
    assert_eq!(fixture.logs.space().unwrap(), (90_000, 100_000, 10_000));
    assert_eq!(
        fixture
            .logs
            .append(log, &pattern(log, 90_000, 10_000))
            .unwrap(),
        90_000
    );
    fixture.logs.flush(log, false).unwrap();
    assert_eq!(
        fixture.read(log, 0, 100_000).unwrap(),
        pattern(log, 0, 100_000)
    );
    fixture
        .logs
        .free(&[(log, 0..50_000), (log, 10..20)])
        .unwrap();
    assert_eq!(
        fixture
            .logs
            .append(log, &pattern(log, 100_000, 50_000))
            .unwrap(),
        100_000
    );
    assert_eq!(
        fixture.logs.append(log, &[1]).unwrap_err().errno(),
        Errno::NOSPC
    );
}

#[test]
fn who_waits_for_space_is_woken_by_a_free_and_by_a_dropped_tail() {
    let fixture = Fixture::new(LogStoreOptions {
        quota: Some(100_000),
        ..options()
    });
    let (log, other) = (filled(&fixture, 60_000), filled(&fixture, 0));
    fixture.logs.append(other, &[1; 40_000]).unwrap();
    let space = fixture.logs.space_freed();
    let far = Instant::now() + Duration::from_secs(60);
    let wait_for = |frees: &(dyn Fn() + Sync)| {
        let seen = space.epoch();
        let refused = fixture.logs.append(log, &[1; 30_000]).unwrap_err();
        assert_eq!(refused.errno(), Errno::NOSPC);
        std::thread::scope(|scope| {
            scope.spawn(frees);
            assert!(space.wait(seen, far));
        });
        fixture.logs.append(log, &[1; 30_000]).unwrap();
    };
    wait_for(&|| {
        fixture
            .logs
            .free(&[(log, 0..30_000), (log, 0..10)])
            .unwrap()
    });
    wait_for(&|| fixture.logs.seal(other).unwrap());
}

#[test]
fn freed_pages_leave_the_disk() {
    let fixture = Fixture::new(options());
    let log = filled(&fixture, 8 << 20);
    let blocks = || {
        fixture
            .segments()
            .iter()
            .map(|p| p.metadata().unwrap().blocks() * 512)
            .sum::<u64>()
    };
    let before = blocks();
    fixture.logs.free(&[(log, 1000..7 << 20)]).unwrap();
    fixture.logs.clean(false).unwrap();
    assert!(blocks() + (6 << 20) < before, "{before} -> {}", blocks());
    assert_eq!(fixture.read(log, 0, 1000).unwrap(), pattern(log, 0, 1000));
    assert_eq!(
        fixture.read(log, 7 << 20, 1 << 20).unwrap(),
        pattern(log, 7 << 20, 1 << 20)
    );
}

#[test]
fn the_last_live_bytes_move_and_their_segment_goes() {
    let mut fixture = Fixture::new(options());
    let log = filled(&fixture, 6 << 20);
    fixture.crash();
    let old = fixture.segments();
    let keep = [100..5000, 3_000_000..3_000_001, (6 << 20) - 1..6 << 20];
    fixture.logs.retain(log, &keep).unwrap();
    for r in keep.clone() {
        fixture
            .read(log, r.start, (r.end - r.start) as usize)
            .unwrap();
    }
    fixture.logs.clean(true).unwrap();
    assert!(
        fixture.segments().iter().all(|p| !old.contains(p)),
        "the old segments are still there"
    );
    for r in keep.clone() {
        let len = (r.end - r.start) as usize;
        assert_eq!(
            fixture.read(log, r.start, len).unwrap(),
            pattern(log, r.start, len)
        );
    }
    fixture.crash();
    for r in keep {
        let len = (r.end - r.start) as usize;
        assert_eq!(
            fixture.read(log, r.start, len).unwrap(),
            pattern(log, r.start, len)
        );
        assert!(is_gone(&fixture.read(log, r.start, len + 1)));
    }
}

#[test]
fn many_open_logs_stay_inside_the_budget() {
    let fixture = Fixture::new(LogStoreOptions {
        buffer_bytes: 1 << 20,
        ..options()
    });
    let logs: Vec<LogId> = (0..2000)
        .map(|_| fixture.logs.create_log(Fid(1), Default::default()).unwrap())
        .collect();
    for round in 0..3u64 {
        for log in &logs {
            assert_eq!(
                fixture
                    .logs
                    .append(*log, &pattern(*log, round * 1000, 1000))
                    .unwrap(),
                round * 1000
            );
        }
        assert!(fixture.logs.stats().buffers <= 1 << 20);
    }
    for log in &logs {
        assert_eq!(fixture.read(*log, 0, 3000).unwrap(), pattern(*log, 0, 3000));
        fixture.logs.seal(*log).unwrap();
    }
    assert_eq!(
        (fixture.logs.stats().buffers, fixture.logs.stats().open_logs),
        (0, 0)
    );
}

#[test]
fn pieces_come_one_buffer_each_in_order_or_not_at_all() {
    let fixture = Fixture::new(options());
    let (a, b) = (filled(&fixture, 50_000), filled(&fixture, 50_000));
    let piece = |log, addr, len| LogPiece { log, addr, len };
    let pieces = vec![
        piece(a, 0, 10),
        piece(a, 10, 9000),
        piece(b, 5, 1),
        piece(a, 0, 0),
        piece(a, 77, 40_000),
    ];
    let read = |pieces: &[LogPiece]| {
        let pieces = pieces.to_vec();
        let read = fixture.logs.read_pieces(0, ReadPieces { pieces });
        read.map(|read| read.buffers)
    };
    let bulk = read(&pieces).unwrap();
    assert_eq!(bulk.len(), pieces.len());
    for (p, bytes) in pieces.iter().zip(&bulk) {
        assert_eq!(bytes, &pattern(p.log, p.addr, p.len as usize));
    }
    let ranges = vec![(a, 5, 6)];
    fixture.logs.free_ranges(0, FreeRanges { ranges }).unwrap();
    assert!(is_gone(&read(&pieces)));
    assert_eq!(fixture.logs.get_usage(0, GetUsage).unwrap().live, 99_994);
    let most = u32::try_from(READ_BYTES).unwrap();
    let huge = read(&[piece(b, 0, most), piece(b, 0, 1)]);
    assert_eq!(huge.unwrap_err().errno(), Errno::INVAL);
    assert!(is_gone(&fixture.read(a, u64::MAX - 3, 10)));
}

#[test]
fn a_range_is_readable_if_all_of_it_is_there() {
    let fixture = Fixture::new(options());
    let log = filled(&fixture, 3 << 20);
    let readable = |addr, len| {
        let ranges = vec![(log, addr, len)];
        let answer = fixture.logs.verify_ranges(0, VerifyRanges { ranges });
        answer.unwrap()[0]
    };
    assert!(readable(0, 3 << 20) && readable(5, 0) && !readable(1, 3 << 20));
    fixture.logs.free(&[(log, 2_500_000..2_500_001)]).unwrap();
    assert!(!readable(0, 3 << 20) && readable(0, 2_500_000));
    assert!(!readable(0, u64::MAX) && !readable(u64::MAX - 1, 10));
}

#[test]
fn sealed_logs_leave_nothing_in_memory() {
    let fixture = Fixture::new(options());
    let baseline = fixture.logs.stats();
    for _ in 0..500 {
        let log = fixture.logs.create_log(Fid(1), Default::default()).unwrap();
        fixture.logs.append(log, b"small").unwrap();
        fixture.logs.flush(log, false).unwrap();
        fixture.logs.seal(log).unwrap();
    }
    let stats = fixture.logs.stats();
    assert_eq!((stats.buffers, stats.open_logs), (baseline.buffers, 0));
}
