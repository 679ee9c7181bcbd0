//! Fetching ahead changes when bytes are read, never which: under every policy, while other nodes write, truncate and remove.
use crate::common::*;
use forebay_fabric::fault::{FaultRates, Faults};
use forebay_pattern::ReadRequest;
use forebay_server::delegate::{
    Delegate, FutureReads, Handle, PrefetchConfig, PrefetchPolicy, PrefetchStats,
};
use forebay_server::{Config, Fid, Service, SetAttr};
use forebay_testkit::random::Random;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

const LATE: Duration = Duration::from_micros(300);

/// Members that are far from each other.
fn start_far_as(dir: &TempDir, config: Config) -> (Service, Arc<Faults>) {
    let faults = Faults::new(1);
    faults.set(FaultRates {
        latency: LATE,
        ..FaultRates::default()
    });
    (start_faulty(dir, config, &faults), faults)
}

/// Two of them.
fn start_far(dir: &TempDir, prefetch: PrefetchConfig) -> (Service, Arc<Faults>) {
    let config = config(2);
    start_far_as(dir, Config { prefetch, ..config })
}

/// By this policy; `requests` are known to who knows all.
fn by(policy: PrefetchPolicy, requests: Vec<ReadRequest>) -> PrefetchConfig {
    PrefetchConfig {
        policy,
        future: Some(Arc::new(FutureReads::new([requests]))),
        ..PrefetchConfig::default()
    }
}

fn content(size: u64, seed: u64) -> Vec<u8> {
    Random::new(seed).nonzero_bytes(size as usize)
}

/// A file that member 0 has written.
fn file(service: &Service, bytes: &[u8]) -> (Fid, Handle) {
    let writer = service.delegate(0);
    let (fid, handle) = create(&writer, "f");
    for (n, part) in bytes.chunks(1 << 20).enumerate() {
        writer.write(handle, (n as u64) << 20, part, ROOT).unwrap();
    }
    writer.flush(handle).unwrap();
    (fid, handle)
}

fn strided(count: u64, len: u64, stride: u64) -> Vec<ReadRequest> {
    let request = |k| ReadRequest {
        offset: k * stride,
        len,
    };
    (0..count).map(request).collect()
}

fn read_all(delegate: &Delegate, fid: Fid, requests: &[ReadRequest], bytes: &[u8]) {
    let handle = delegate.open(fid, READ).unwrap().handle;
    for r in requests {
        let found = delegate.read(handle, r.offset, r.len as u32).unwrap();
        let end = (r.offset + r.len).min(bytes.len() as u64).max(r.offset);
        let right = bytes
            .get(r.offset as usize..end as usize)
            .unwrap_or_default();
        assert!(found == right, "at {} {}", r.offset, r.len);
    }
    delegate.release(handle).unwrap();
}

/// Once threads have nothing to do any more.
fn stats_when_idle(delegate: &Delegate) -> PrefetchStats {
    loop {
        let before = delegate.prefetch_stats();
        std::thread::sleep(Duration::from_millis(20));
        if delegate.prefetch_stats() == before {
            return before;
        }
    }
}

#[test]
fn a_strided_reader_finds_its_bytes_there_and_random_reads_cost_nothing() {
    let dir = scratch();
    let (service, _faults) = start_far(&dir, PrefetchConfig::default());
    let bytes = content(4 << 20, 1);
    let (fid, _) = file(&service, &bytes);
    let reader = service.delegate(1);
    read_all(&reader, fid, &strided(400, 3000, 10_000), &bytes);
    let stats = stats_when_idle(&reader);
    assert!(stats.hits > 350, "{stats:?}");
    assert!(
        stats.fetched_bytes - stats.used_bytes <= 64 * 3000,
        "{stats:?}"
    );
    assert!(
        stats.right >= stats.hits && stats.predicted >= stats.right,
        "{stats:?}"
    );

    let mut random = Random::new(5);
    let some = |_| ReadRequest {
        offset: random.below(4 << 20),
        len: 2000,
    };
    let requests: Vec<ReadRequest> = (0..600).map(some).collect();
    read_all(&reader, fid, &requests, &bytes);
    let after = stats_when_idle(&reader);
    assert!(
        after.fetched_bytes - stats.fetched_bytes <= 12_000,
        "{after:?}"
    );
    let figures = &service.status().unwrap()[1];
    assert_eq!(figures.prefetch.fetched_bytes, after.fetched_bytes);
}

#[test]
fn each_policy_reads_the_same_and_never_behind_the_end() {
    let requests: Vec<ReadRequest> = strided(150, 5000, 7000)
        .into_iter()
        .chain(strided(150, 4096, 4096))
        .collect();
    for policy in PrefetchPolicy::ALL {
        let dir = scratch();
        let (service, _faults) = start_far(&dir, by(policy, requests.clone()));
        // The last requests lie over its end, or behind it.
        let bytes = content(600_000, 2);
        let (fid, _) = file(&service, &bytes);
        let reader = service.delegate(1);
        for _ in 0..2 {
            read_all(&reader, fid, &requests, &bytes);
        }
        let stats = stats_when_idle(&reader);
        assert_eq!(
            stats.hits > 60,
            policy != PrefetchPolicy::None,
            "{policy:?} {stats:?}"
        );
        assert!(
            stats.used_bytes <= stats.fetched_bytes,
            "{policy:?} {stats:?}"
        );
    }
}

#[test]
fn memory_stays_in_its_bound_with_many_readers() {
    let dir = scratch();
    let limit = 256 << 10;
    let config = PrefetchConfig {
        cache: Some(limit),
        ..PrefetchConfig::default()
    };
    let (service, _faults) = start_far(&dir, config);
    let bytes = content(8 << 20, 3);
    let (fid, _) = file(&service, &bytes);
    let reader = service.delegate(1);
    std::thread::scope(|scope| {
        for rank in 0..6u64 {
            let (reader, bytes) = (&reader, &bytes);
            scope.spawn(move || {
                let mut requests = strided(60, 20_000, 130_000);
                requests.iter_mut().for_each(|r| r.offset += rank * 20_000);
                read_all(reader, fid, &requests, bytes);
            });
        }
        for _ in 0..200 {
            assert!(reader.prefetch_stats().held_bytes <= limit);
            std::thread::sleep(Duration::from_micros(500));
        }
    });
    let stats = stats_when_idle(&reader);
    assert!(stats.hits > 30, "{stats:?}");
}

/// Another node, and this one, write, truncate and extend, while readers go on.
#[test]
fn what_is_read_is_what_was_published_whatever_was_fetched_before() {
    const SIZE: u64 = 1 << 20;
    for policy in PrefetchPolicy::ALL {
        let requests = strided(100, 3000, 9000);
        let dir = scratch();
        let (service, _faults) = start_far(&dir, by(policy, requests.clone()));
        let mut bytes = content(SIZE, 4);
        let (fid, handle) = file(&service, &bytes);
        let (writer, reader) = (service.delegate(0), service.delegate(1));
        let own = reader.open(fid, BOTH).unwrap().handle;
        let mut random = Random::new(policy as u64 + 1);
        for round in 0..12u64 {
            // Something is fetched ahead, and left where it is: of the generation before the change.
            let open = reader.open(fid, READ).unwrap().handle;
            for r in &requests[..40] {
                reader.read(open, r.offset, r.len as u32).unwrap();
            }
            match random.below(4) {
                0 => {
                    let size = SIZE - random.below(SIZE / 2);
                    let set = SetAttr {
                        size: Some(size),
                        ..SetAttr::default()
                    };
                    writer.names.setattr(fid, &set, Some(handle), ROOT).unwrap();
                    bytes.resize(size as usize, 0);
                }
                1 => {
                    // This node's own writes show at once, before they are published.
                    let (at, new) = (random.below(700_000), random.nonzero_bytes(20_000));
                    reader.write(own, at, &new, ROOT).unwrap();
                    bytes.resize(bytes.len().max(at as usize + new.len()), 0);
                    bytes[at as usize..][..new.len()].copy_from_slice(&new);
                    for r in &requests[40..60] {
                        let found = reader.read(own, r.offset, r.len as u32).unwrap();
                        let end = (r.offset + r.len).min(bytes.len() as u64).max(r.offset);
                        let right = bytes.get(r.offset as usize..end as usize);
                        assert!(found == right.unwrap_or_default(), "{policy:?} {round}");
                    }
                    reader.flush(own).unwrap();
                }
                _ => {
                    let (at, new) = (random.below(700_000), random.nonzero_bytes(50_000));
                    writer.write(handle, at, &new, ROOT).unwrap();
                    writer.flush(handle).unwrap();
                    bytes.resize(bytes.len().max(at as usize + new.len()), 0);
                    bytes[at as usize..][..new.len()].copy_from_slice(&new);
                }
            }
            // Who opens after the change sees it.
            read_all(&reader, fid, &requests, &bytes);
            reader.release(open).unwrap();
        }
        reader.release(own).unwrap();
        writer.release(handle).unwrap();
    }
}

/// Under `posix`, each write is seen by the next read, whatever was fetched before it.
#[test]
fn posix_consistency_holds_while_bytes_are_fetched_ahead() {
    let dir = scratch();
    let config = Config {
        consistency: forebay_server::Consistency::Posix,
        // So few that some are fetched after each write.
        prefetch: PrefetchConfig {
            depth: 4,
            ..PrefetchConfig::default()
        },
        ..config(2)
    };
    let (service, _) = start_far_as(&dir, config);
    let mut bytes = content(1 << 20, 8);
    let (fid, handle) = file(&service, &bytes);
    let (writer, reader) = (service.delegate(0), service.delegate(1));
    let open = reader.open(fid, READ).unwrap().handle;
    for (n, r) in strided(100, 3000, 9000).iter().enumerate() {
        if n % 7 == 6 {
            // What is read next, and was fetched with what follows it.
            let (at, new) = (r.offset as usize + 100, [n as u8; 500]);
            writer.write(handle, at as u64, &new, ROOT).unwrap();
            bytes[at..at + 500].copy_from_slice(&new);
        }
        let found = reader.read(open, r.offset, r.len as u32).unwrap();
        assert!(found == bytes[r.offset as usize..][..3000], "read {n}");
        if n % 7 >= 4 {
            // What is read next is here: read 5 of each 7 takes it, and what read 6 would take is old by then.
            stats_when_idle(&reader);
        }
    }
    let stats = stats_when_idle(&reader);
    assert!(stats.hits >= 10, "{stats:?}");
    assert!(stats.wasted_bytes > 0, "{stats:?}");
}

#[test]
fn a_file_closed_and_removed_with_fetches_on_their_way_leaves_nothing() {
    let dir = scratch();
    let (service, faults) = start_far(&dir, PrefetchConfig::default());
    let bytes = content(2 << 20, 6);
    let (fid, handle) = file(&service, &bytes);
    let (writer, reader) = (service.delegate(0), service.delegate(1));
    writer.release(handle).unwrap();
    let open = reader.open(fid, READ).unwrap().handle;
    for r in strided(50, 2000, 5000) {
        reader.read(open, r.offset, r.len as u32).unwrap();
    }
    faults.set(FaultRates {
        latency: Duration::from_millis(30),
        ..FaultRates::default()
    });
    for r in &strided(60, 2000, 5000)[50..] {
        reader.read(open, r.offset, r.len as u32).unwrap();
    }
    reader.release(open).unwrap();
    writer.names.unlink(Fid::ROOT, b"f", ROOT).unwrap();
    faults.set(FaultRates::default());
    stats_when_idle(&reader);
    wait_until_empty(&service);
    service.stop().unwrap();
}

#[test]
fn a_member_that_dies_is_an_error_of_reads_and_ends_nothing_else() {
    let dir = scratch();
    let (service, faults) = start_far(&dir, PrefetchConfig::default());
    let bytes = content(1 << 20, 7);
    let (fid, _) = file(&service, &bytes);
    let reader = service.delegate(1);
    let open = reader.open(fid, READ).unwrap().handle;
    let requests = strided(100, 2000, 9000);
    for r in &requests[..30] {
        reader.read(open, r.offset, r.len as u32).unwrap();
    }
    stats_when_idle(&reader);
    faults.kill(0);
    // What is here may still be read; what is not is an error, not a wait.
    let failed = requests[30..]
        .iter()
        .filter(|r| reader.read(open, r.offset, r.len as u32).is_err());
    assert!(failed.count() > 0);
    faults.revive(0);
    for r in &requests[30..] {
        let found = reader.read(open, r.offset, r.len as u32).unwrap();
        assert!(found == bytes[r.offset as usize..][..r.len as usize]);
    }
}
