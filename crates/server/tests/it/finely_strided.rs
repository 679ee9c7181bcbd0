//! Reads of files with more pieces than the memory for cached extents holds.
use crate::common::*;
use forebay_server::delegate::{Delegate, SeekTarget};
use forebay_server::{Config, Fid, Service};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

const MIB: usize = 1 << 20;

/// A read that never ends must not keep the test from ending.
fn in_time<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let (done, waits) = channel::<()>();
    let watch = std::thread::spawn(move || {
        if let Err(RecvTimeoutError::Timeout) = waits.recv_timeout(Duration::from_secs(120)) {
            eprintln!("stuck: a call on a finely strided file does not come back");
            std::process::abort();
        }
    });
    let result = work();
    drop(done);
    watch.join().unwrap();
    result
}

fn budgets() -> [Config; 2] {
    let small = config(3);
    let usual = Config {
        memory: Config::default().memory,
        ..small.clone()
    };
    assert!(usual.memory > small.memory);
    [small, usual]
}

/// Writes `record(i)` at `i * stride` for each `i` of `records`, and closes.
fn stride<const N: usize>(
    delegate: &Delegate,
    fid: Fid,
    stride: usize,
    records: impl Iterator<Item = usize>,
) {
    let handle = delegate.open(fid, BOTH).unwrap().handle;
    for i in records {
        let record: [u8; N] = record(i);
        let at = (i * stride) as u64;
        delegate.write(handle, at, &record, ROOT).unwrap();
    }
    delegate.release(handle).unwrap();
}

fn record<const N: usize>(i: usize) -> [u8; N] {
    std::array::from_fn(|k| 1 + ((i * 7 + i / 251 + k) % 255) as u8)
}

fn whole<const N: usize>(stride: usize, count: usize) -> Vec<u8> {
    let mut all = vec![0; count * stride];
    for i in 0..count {
        all[i * stride..][..N].copy_from_slice(&record::<N>(i));
    }
    all.truncate((count - 1) * stride + N);
    all
}

fn new_file(service: &Service, name: &str) -> Fid {
    let (fid, handle) = create(&service.delegate(0), name);
    service.delegate(0).release(handle).unwrap();
    fid
}

#[test]
fn one_read_of_two_byte_records_with_holes_between() {
    let dir = scratch();
    let [small, usual] = budgets();
    let service = start(&dir, small);
    let fid = new_file(&service, "f");
    stride::<2>(&service.delegate(0), fid, 12, 0..MIB / 12);
    let want = whole::<2>(12, MIB / 12);
    read_strided(&service, fid, &want);
    service.stop().unwrap();
    let service = start(&dir, usual);
    read_strided(&service, fid, &want);
}

fn read_strided(service: &Service, fid: Fid, want: &[u8]) {
    in_time(|| {
        let reader = service.delegate(1);
        let handle = reader.open(fid, READ).unwrap().handle;
        assert!(reader.read(handle, 0, MIB as u32).unwrap() == want);
        // Short ones far from a round offset.
        for at in [want.len() - 5, 1_000_002, 524_288] {
            let end = want.len().min(at + 100);
            assert!(reader.read(handle, at as u64, 100).unwrap() == want[at..end]);
        }
    });
}

#[test]
fn one_read_of_dense_records_of_two_nodes() {
    const COUNT: usize = 72 << 10;
    let dir = scratch();
    let [small, usual] = budgets();
    let service = start(&dir, small);
    let fid = new_file(&service, "f");
    for node in 0..2 {
        let mine = (0..COUNT).filter(|i| i % 2 == node);
        stride::<8>(&service.delegate(node as u16), fid, 8, mine);
    }
    let want = whole::<8>(8, COUNT);
    in_time(|| {
        assert!(contents(&service.delegate(0), fid) == want);
        // All data: the first hole is the end of the file.
        let reader = service.delegate(2);
        let handle = reader.open(fid, READ).unwrap().handle;
        let hole = reader.seek(handle, 1, SeekTarget::Hole).unwrap();
        assert_eq!(hole, want.len() as u64);
        assert_eq!(reader.seek(handle, 1, SeekTarget::Data).unwrap(), 1);
    });
    service.stop().unwrap();
    let service = start(&dir, usual);
    in_time(|| assert!(contents(&service.delegate(2), fid) == want));
}

#[test]
fn pending_records_above_committed_ones() {
    for config in budgets() {
        let dir = scratch();
        let service = start(&dir, config);
        let fid = new_file(&service, "f");
        stride::<2>(&service.delegate(1), fid, 8, 0..MIB / 16);
        let mut want = whole::<2>(8, MIB / 16);
        in_time(|| {
            // Fewer than are published early, so that the reader asks for the many gaps between them.
            let own = service.delegate(0);
            let handle = own.open(fid, BOTH).unwrap().handle;
            for i in 0..6000usize {
                let at = i * 80 + 3;
                own.write(handle, at as u64, b"own", ROOT).unwrap();
                want[at..at + 3].copy_from_slice(b"own");
            }
            assert!(own.read(handle, 0, MIB as u32).unwrap() == want);
        });
    }
}

#[test]
fn a_read_shows_one_commit_while_others_are_published() {
    let dir = scratch();
    let service = start(&dir, config(3));
    let fid = new_file(&service, "f");
    // Every record of one commit has one value; each later commit is a whole layer above it.
    const COUNT: usize = 20_000;
    let commit = |delegate: &Delegate, value: u8| {
        let handle = delegate.open(fid, BOTH).unwrap().handle;
        for i in 0..COUNT {
            delegate
                .write(handle, i as u64 * 4, &[value; 2], ROOT)
                .unwrap();
        }
        delegate.release(handle).unwrap();
    };
    commit(&service.delegate(0), 1);
    in_time(|| {
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                for value in 2..8 {
                    commit(&service.delegate(u16::from(value % 2)), value);
                }
            });
            let mut last = 1;
            loop {
                let over = writer.is_finished();
                let reader = service.delegate(2);
                let bytes = contents(&reader, fid);
                let values: Vec<u8> = bytes.chunks(4).map(|c| c[0]).collect();
                assert_eq!(values.len(), COUNT);
                assert!(values.iter().all(|v| *v == values[0]), "a torn read");
                assert!(values[0] >= last);
                last = values[0];
                if over {
                    break;
                }
            }
            assert_eq!(last, 7);
        });
    });
}
