//! One replay: a service of two members in this process, far from each other; the readers' node has none of the bytes.

use super::cases::Reads;
use crate::cache::CacheDropping;
use crate::fail::{Context, Failure, Result};
use crate::harness::in_threads;
use forebay_client::{Client, File};
use forebay_fabric::fault::{FaultRates, Faults};
use forebay_pattern::ReadRequest;
use forebay_server::delegate::{FutureReads, PrefetchConfig, PrefetchPolicy, PrefetchStats};
use forebay_server::{Config, Service};
use forebay_storage::OsIo;
use forebay_trace::content::Content;
use std::num::NonZeroU64;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const FILE: &str = "/data";
const READER: u16 = 0;
const WRITER: u16 = 1;

/// What was measured in a replay.
#[derive(Debug, Default)]
pub struct ReplayMeasurement {
    /// How long each read took.
    pub times: Vec<Duration>,
    /// Bytes read.
    pub bytes: u64,
    /// Counters of the prefetcher.
    pub ahead: PrefetchStats,
}

impl ReplayMeasurement {
    /// Time of all reads, seconds.
    pub fn io_time(&self) -> f64 {
        self.times.iter().map(Duration::as_secs_f64).sum()
    }

    /// The time that 99 of 100 reads do not exceed, seconds.
    pub fn p99(&mut self) -> f64 {
        self.times.sort_unstable();
        let place = (self.times.len() * 99).div_ceil(100).max(1) - 1;
        self.times.get(place).map_or(0.0, Duration::as_secs_f64)
    }

    /// Bytes that were fetched and not read.
    pub fn wasted(&self) -> f64 {
        (self.ahead.fetched_bytes - self.ahead.used_bytes) as f64
    }
}

/// Settings of a replay.
#[derive(Debug, Clone, Copy)]
pub struct ReplaySettings {
    /// What predicts the reads.
    pub policy: PrefetchPolicy,
    /// How long a rank sleeps before each read, in place of computing.
    pub delay: Duration,
    /// Between the members, each way of a request and its answer together.
    pub latency: Duration,
}

/// Sleeps are to be as long as they say: the kernel otherwise takes 50 us more, to save wake-ups.
pub fn sleep_exactly() -> Result<()> {
    rustix::thread::set_current_timer_slack(NonZeroU64::new(1)).doing("exact sleeps")
}

fn service(store: &Path, way: ReplaySettings, future: Option<Arc<FutureReads>>) -> Result<Service> {
    let faults = Faults::new(1);
    faults.set(FaultRates {
        latency: way.latency,
        ..FaultRates::default()
    });
    let wrap = |end| faults.wrap(end);
    let config = Config {
        nodes: 2,
        prefetch: PrefetchConfig {
            policy: way.policy,
            future,
            ..PrefetchConfig::default()
        },
        ..Config::default()
    };
    Service::start_over(Arc::new(OsIo), store, config, wrap).doing(store.display())
}

/// Writes all that is read, at the node where nobody reads.
pub fn prepare(store: &Path, reads: &Reads) -> Result<()> {
    let way = ReplaySettings {
        policy: PrefetchPolicy::None,
        delay: Duration::ZERO,
        latency: Duration::ZERO,
    };
    let service = service(store, way, None)?;
    let client = Client::new(service.delegate(WRITER));
    let file = client.create(FILE)?;
    let mut buffer = vec![0; 1 << 20];
    for range in reads.ranges() {
        let mut at = range.start;
        while at < range.end {
            let len = (range.end - at).min(buffer.len() as u64);
            let part = &mut buffer[..len as usize];
            Content::new(0, 1).fill(at, part);
            file.write_at(part, at)?;
            at += len;
        }
    }
    file.close()?;
    service.stop()?;
    Ok(())
}

/// Replays all readers once, cold; who learns from runs has had one before.
pub fn replay(store: &Path, reads: &Reads, way: ReplaySettings) -> Result<ReplayMeasurement> {
    let known = (way.policy == PrefetchPolicy::Perfect).then(|| reads.readers.iter().cloned());
    let future = known.map(|readers| Arc::new(FutureReads::new(readers)));
    let service = service(store, way, future)?;
    let mut before = PrefetchStats::default();
    if way.policy == PrefetchPolicy::Markov {
        run(&service, reads, Duration::ZERO)?;
        before = service.delegate(READER).prefetch_stats();
    }
    CacheDropping::Advised.drop_caches(&[store]);
    let mut found = run(&service, reads, way.delay)?;
    let delegate = service.delegate(READER);
    service.stop()?;
    let after = delegate.prefetch_stats();
    found.ahead = PrefetchStats {
        fetched_bytes: after.fetched_bytes - before.fetched_bytes,
        used_bytes: after.used_bytes - before.used_bytes,
        ..after
    };
    Ok(found)
}

/// Ranks in their order, `together` at a time, a new handle each.
fn run(service: &Service, reads: &Reads, delay: Duration) -> Result<ReplayMeasurement> {
    let client = Client::new(service.delegate(READER));
    let next = AtomicUsize::new(0);
    let work = || -> Result<ReplayMeasurement> {
        let mut all = ReplayMeasurement::default();
        while let Some(requests) = reads.readers.get(next.fetch_add(1, Ordering::Relaxed)) {
            let file = client.open(FILE)?;
            rank(&file, requests, delay, &mut all)?;
            file.close()?;
        }
        Ok(all)
    };
    let mut all = ReplayMeasurement::default();
    for one in in_threads(0..reads.together, |_| work())? {
        all.times.extend(one.times);
        all.bytes += one.bytes;
    }
    Ok(all)
}

fn rank(
    file: &File,
    requests: &[ReadRequest],
    delay: Duration,
    found: &mut ReplayMeasurement,
) -> Result<()> {
    for request in requests {
        if !delay.is_zero() {
            std::thread::sleep(delay);
        }
        let begun = Instant::now();
        let bytes = file.read_bytes_at(request.offset, request.len as u32)?;
        found.times.push(begun.elapsed());
        found.bytes += bytes.len() as u64;
        let right = Content::new(0, 1).verify(request.offset, &bytes).is_ok();
        if bytes.len() as u64 != request.len || !right {
            let ReadRequest { offset, len } = request;
            return Err(Failure::new(format!("wrong bytes: {len} at {offset}")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::cases::CASES;
    use super::*;

    #[test]
    fn every_policy_replays_a_little_of_pagoda_and_reads_the_right_bytes() {
        let dir = tempfile::tempdir().unwrap();
        let reads = CASES[0].work.load(Path::new("none"), 100).unwrap().unwrap();
        let store = dir.path().join("store");
        prepare(&store, &reads).unwrap();
        for policy in PrefetchPolicy::ALL {
            let way = ReplaySettings {
                policy,
                delay: Duration::from_micros(200),
                latency: Duration::from_micros(200),
            };
            let mut found = replay(&store, &reads, way).unwrap();
            assert_eq!(found.times.len(), 400);
            assert!(found.p99() <= found.io_time() && found.wasted() >= 0.0);
            let some = matches!(
                policy,
                PrefetchPolicy::Pattern | PrefetchPolicy::Perfect | PrefetchPolicy::Markov
            );
            assert!(
                found.ahead.hits > 0 || !some,
                "{policy:?} {:?}",
                found.ahead
            );
        }
    }
}
