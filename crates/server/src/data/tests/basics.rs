//! Single behaviours: freeing under readers, damage, quota, moving.
use super::*;
use crate::data::proto::{DataReply, DataRequest, Piece};
use rustix::io::Errno;
use std::os::unix::fs::{FileExt, MetadataExt};

fn filled(bench: &Bench, len: usize) -> LogId {
    let log = bench.data.create_log(Fid(1)).unwrap();
    for at in (0..len).step_by(100_000) {
        bench
            .data
            .append(log, &pattern(log, at as u64, 100_000.min(len - at)))
            .unwrap();
    }
    bench.data.flush(log, false).unwrap();
    log
}

#[test]
fn what_a_damaged_record_held_is_an_error_at_once() {
    let bench = Bench::new(options());
    let read = bench.read(crate::LOST_LOG, 0, 10);
    assert!(matches!(read, Err(Error::Corrupt(_))), "{read:?}");
}

#[test]
fn a_cached_span_of_reclaimed_bytes_answers_gone_and_never_zeros() {
    let bench = Bench::new(options());
    let log = filled(&bench, 1 << 20);
    assert!(bench.read(log, 0, 1 << 20).is_ok());
    // A reader that found the span before it was freed, and reads after its bytes are gone from the disk.
    let span = bench.data.inner.cache.get(log, 0).unwrap();
    bench.data.free(&[(log, 0..512 << 10)]).unwrap();
    let file = bench
        .data
        .inner
        .segments
        .file(span.segment)
        .unwrap()
        .unwrap();
    file.punch(4096, 256 << 10).unwrap();
    bench
        .data
        .inner
        .cache
        .keep(bench.data.inner.cache.epoch(log), span);
    assert!(is_gone(&bench.read(log, 0, 4096)));
    assert!(is_gone(&bench.read(log, 0, 1 << 20)));
    assert_eq!(
        bench.read(log, 512 << 10, 4096).unwrap(),
        pattern(log, 512 << 10, 4096)
    );
}

#[test]
fn a_flipped_bit_is_an_error_that_names_the_place() {
    let bench = Bench::new(options());
    let log = filled(&bench, 20_000);
    let path = bench.segments().pop().unwrap();
    let file = std::fs::File::options()
        .read(true)
        .write(true)
        .open(&path)
        .unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, 4096 + 9000).unwrap();
    file.write_all_at(&[byte[0] ^ 4], 4096 + 9000).unwrap();
    let error = bench.read(log, 8999, 1).unwrap_err();
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
    assert_eq!(bench.read(log, 0, 8192).unwrap(), pattern(log, 0, 8192));
    assert_eq!(
        bench.read(log, 12_288, 7712).unwrap(),
        pattern(log, 12_288, 7712)
    );
}

#[test]
fn a_segment_that_is_not_there_is_an_error_and_the_rest_works() {
    let mut bench = Bench::new(options());
    let lost = filled(&bench, 10_000);
    std::fs::remove_file(bench.segments().pop().unwrap()).unwrap();
    bench.crash();
    assert!(matches!(bench.read(lost, 0, 10), Err(Error::Corrupt(_))));
    let log = filled(&bench, 10_000);
    assert_eq!(bench.read(log, 0, 10_000).unwrap(), pattern(log, 0, 10_000));
}

#[test]
fn over_the_quota_nothing_is_appended_and_freeing_makes_room() {
    let bench = Bench::new(DataOptions {
        quota: Some(100_000),
        ..options()
    });
    let log = bench.data.create_log(Fid(1)).unwrap();
    bench.data.append(log, &pattern(log, 0, 90_000)).unwrap();
    assert_eq!(
        bench.data.append(log, &[1; 10_001]).unwrap_err().errno(),
        Errno::NOSPC
    );
    assert_eq!(bench.data.space().unwrap(), (90_000, 100_000, 10_000));
    assert_eq!(
        bench
            .data
            .append(log, &pattern(log, 90_000, 10_000))
            .unwrap(),
        90_000
    );
    bench.data.flush(log, false).unwrap();
    assert_eq!(
        bench.read(log, 0, 100_000).unwrap(),
        pattern(log, 0, 100_000)
    );
    bench.data.free(&[(log, 0..50_000), (log, 10..20)]).unwrap();
    assert_eq!(
        bench
            .data
            .append(log, &pattern(log, 100_000, 50_000))
            .unwrap(),
        100_000
    );
    assert_eq!(
        bench.data.append(log, &[1]).unwrap_err().errno(),
        Errno::NOSPC
    );
}

#[test]
fn freed_pages_leave_the_disk() {
    let bench = Bench::new(options());
    let log = filled(&bench, 8 << 20);
    let blocks = || {
        bench
            .segments()
            .iter()
            .map(|p| p.metadata().unwrap().blocks() * 512)
            .sum::<u64>()
    };
    let before = blocks();
    bench.data.free(&[(log, 1000..7 << 20)]).unwrap();
    bench.data.inner.clean(false).unwrap();
    assert!(blocks() + (6 << 20) < before, "{before} -> {}", blocks());
    assert_eq!(bench.read(log, 0, 1000).unwrap(), pattern(log, 0, 1000));
    assert_eq!(
        bench.read(log, 7 << 20, 1 << 20).unwrap(),
        pattern(log, 7 << 20, 1 << 20)
    );
}

#[test]
fn leftovers_move_and_their_segment_goes() {
    let mut bench = Bench::new(options());
    let log = filled(&bench, 6 << 20);
    bench.crash();
    let old = bench.segments();
    let keep = [100..5000, 3_000_000..3_000_001, (6 << 20) - 1..6 << 20];
    bench.data.retain(log, &keep).unwrap();
    for r in keep.clone() {
        bench
            .read(log, r.start, (r.end - r.start) as usize)
            .unwrap();
    }
    bench.data.inner.clean(true).unwrap();
    assert!(
        bench.segments().iter().all(|p| !old.contains(p)),
        "the old segments are still there"
    );
    for r in keep.clone() {
        let len = (r.end - r.start) as usize;
        assert_eq!(
            bench.read(log, r.start, len).unwrap(),
            pattern(log, r.start, len)
        );
    }
    bench.crash();
    for r in keep {
        let len = (r.end - r.start) as usize;
        assert_eq!(
            bench.read(log, r.start, len).unwrap(),
            pattern(log, r.start, len)
        );
        assert!(is_gone(&bench.read(log, r.start, len + 1)));
    }
}

#[test]
fn many_open_logs_stay_inside_the_budget() {
    let bench = Bench::new(DataOptions {
        buffer_bytes: 1 << 20,
        ..options()
    });
    let logs: Vec<LogId> = (0..2000)
        .map(|_| bench.data.create_log(Fid(1)).unwrap())
        .collect();
    for round in 0..3u64 {
        for log in &logs {
            assert_eq!(
                bench
                    .data
                    .append(*log, &pattern(*log, round * 1000, 1000))
                    .unwrap(),
                round * 1000
            );
        }
        assert!(bench.data.stats().buffers <= 1 << 20);
    }
    for log in &logs {
        assert_eq!(bench.read(*log, 0, 3000).unwrap(), pattern(*log, 0, 3000));
        bench.data.seal(*log).unwrap();
    }
    assert_eq!(
        (bench.data.stats().buffers, bench.data.stats().open_logs),
        (0, 0)
    );
}

#[test]
fn the_words_of_other_members_are_answered() {
    let bench = Bench::new(options());
    let (a, b) = (filled(&bench, 50_000), filled(&bench, 50_000));
    let piece = |log, addr, len| Piece { log, addr, len };
    let pieces = vec![
        piece(a, 0, 10),
        piece(a, 10, 9000),
        piece(b, 5, 1),
        piece(a, 0, 0),
        piece(a, 77, 40_000),
    ];
    let (reply, bulk) = bench
        .data
        .handle(DataRequest::Read {
            pieces: pieces.clone(),
        })
        .unwrap();
    assert!(matches!(reply, DataReply::Read));
    assert_eq!(bulk.len(), pieces.len());
    for (p, bytes) in pieces.iter().zip(&bulk) {
        assert_eq!(bytes, &pattern(p.log, p.addr, p.len as usize));
    }
    bench
        .data
        .handle(DataRequest::Free {
            ranges: vec![(a, 5, 6)],
        })
        .unwrap();
    assert!(is_gone(&bench.data.handle(DataRequest::Read { pieces })));
    let (space, _) = bench.data.handle(DataRequest::Space).unwrap();
    assert!(matches!(space, DataReply::Space { live: 99_994, .. }));
    let huge = vec![piece(a, 0, u32::MAX); 2];
    assert_eq!(
        bench
            .data
            .handle(DataRequest::Read { pieces: huge })
            .unwrap_err()
            .errno(),
        Errno::INVAL
    );
    assert!(is_gone(&bench.read(a, u64::MAX - 3, 10)));
}

#[test]
fn sealed_logs_leave_nothing_in_memory() {
    let bench = Bench::new(options());
    let baseline = bench.data.stats();
    for _ in 0..500 {
        let log = bench.data.create_log(Fid(1)).unwrap();
        bench.data.append(log, b"small").unwrap();
        bench.data.flush(log, false).unwrap();
        bench.data.seal(log).unwrap();
    }
    let stats = bench.data.stats();
    assert_eq!((stats.buffers, stats.open_logs), (baseline.buffers, 0));
    assert!(
        bench.data.inner.logs.queued_after(0).is_none(),
        "a sealed log is still queued"
    );
}
