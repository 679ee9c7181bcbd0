//! Counters of the requests of a mount or library: those since the start, and those in progress.
use crate::merged_stats::stats;
use forebay_proto::peers::RequestGauge;
use serde::{Deserialize, Serialize};
use std::ops::Add;
use std::sync::atomic::{AtomicU64, Ordering};

stats! {
/// What went through since the start. Bytes, calls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
Traffic {
    /// Reads that succeeded.
    reads: u64 = Add::add,
    /// Writes that succeeded.
    writes: u64 = Add::add,
    /// All other requests: names, attributes, opens, closes, syncs, locks.
    others: u64 = Add::add,
    /// Bytes read.
    read_bytes: u64 = Add::add,
    /// Bytes written.
    written_bytes: u64 = Add::add,
    /// Extents that commits folded to patterns.
    folded: u64 = Add::add,
    /// Bytes of those patterns.
    folded_bytes: u64 = Add::add,
    /// Files' patterns that were asked for.
    maps: u64 = Add::add,
}
}

/// The same while it is counted.
#[derive(Debug, Default)]
pub struct TrafficCounters {
    reads: AtomicU64,
    writes: AtomicU64,
    others: AtomicU64,
    read_bytes: AtomicU64,
    written_bytes: AtomicU64,
    folded: AtomicU64,
    folded_bytes: AtomicU64,
    maps: AtomicU64,
    at_work: RequestGauge,
}

impl TrafficCounters {
    pub(super) fn read(&self, bytes: usize) {
        self.count_reads(1, bytes as u64);
    }

    pub(super) fn count_reads(&self, reads: u64, bytes: u64) {
        self.reads.fetch_add(reads, Ordering::Relaxed);
        self.read_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn count_write(&self, bytes: usize) {
        self.writes.fetch_add(1, Ordering::Relaxed);
        self.written_bytes
            .fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Counts the extents that a commit replaced by patterns.
    pub(super) fn folded(&self, extents: u64, bytes: usize) {
        self.folded.fetch_add(extents, Ordering::Relaxed);
        self.folded_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(super) fn mapped(&self) {
        self.maps.fetch_add(1, Ordering::Relaxed);
    }

    /// A read or write begins.
    pub(super) fn begin(&self) -> impl Drop + '_ {
        self.at_work.enter()
    }

    /// Any other request begins.
    pub(super) fn other(&self) -> impl Drop + '_ {
        self.others.fetch_add(1, Ordering::Relaxed);
        self.begin()
    }

    /// What went through.
    pub fn totals(&self) -> Traffic {
        let get = |c: &AtomicU64| c.load(Ordering::Relaxed);
        Traffic {
            reads: get(&self.reads),
            writes: get(&self.writes),
            others: get(&self.others),
            read_bytes: get(&self.read_bytes),
            written_bytes: get(&self.written_bytes),
            folded: get(&self.folded),
            folded_bytes: get(&self.folded_bytes),
            maps: get(&self.maps),
        }
    }

    /// Requests being worked on now.
    pub fn working(&self) -> u64 {
        self.at_work.counts().1
    }
}
