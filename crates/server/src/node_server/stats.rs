//! The statistics of a running member: its counters, and what a scan of its store counts.
use super::NodeServer;
use crate::Result;
use crate::cached_stats::StatsScan;
use crate::stats_scans::{RecordCounts, RecordScan};
use crate::status::MemberStatus;
use forebay_index::CompressedEngine;
use forebay_storage::LogEnd;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

impl NodeServer {
    /// What it holds and has done. Counts files and extents by looking at each: not for a tight loop.
    ///
    /// # Errors
    /// When its store cannot be read.
    pub fn status(&self) -> Result<MemberStatus> {
        let go_on = AtomicBool::new(false);
        let counted = RecordScan(self.node().store.clone()).scan(&go_on)?;
        let disk = self.node().data.disk_bytes(&go_on)?;
        Ok(self.stats(Some((counted, Duration::ZERO)), Some(disk)))
    }

    /// The same as often as wanted: what costs a look at everything may be some seconds old, or not known yet. Waits for it
    /// `max_wait` at most.
    ///
    /// # Errors
    /// When its store cannot be read.
    pub fn cached_status(&self, max_wait: Duration) -> Result<MemberStatus> {
        let begun = std::time::Instant::now();
        let counted = self.records.get(max_wait)?;
        let disk = self.disk.get(max_wait.saturating_sub(begun.elapsed()))?;
        let counted = counted.map(|seen| (seen.value, seen.age));
        Ok(self.stats(counted, disk.map(|seen| seen.value)))
    }

    /// See [`MemberStatus::notes`].
    fn opening_notes(&self) -> Vec<String> {
        let end = self.node().store.opened().end;
        let unclean = matches!(end, LogEnd::Unclean { .. }).then(|| end.to_string());
        let superblocks = self.superblock_notes.iter().cloned();
        unclean.into_iter().chain(superblocks).collect()
    }

    fn stats(&self, counted: Option<(RecordCounts, Duration)>, disk: Option<u64>) -> MemberStatus {
        let node = self.node();
        let store = node.store.stats();
        let data = node.data.stats();
        let delegate = self.delegate();
        let index = node
            .store
            .engine::<CompressedEngine>()
            .map(|e| e.stats())
            .unwrap_or_default();
        let own =
            index.memtable_bytes + index.buffer_bytes + index.region_bytes + index.coverage_bytes;
        let index_memory_bytes = store.memtable_bytes + store.table_memory_bytes + own;
        let patterns = node.files.pattern_memory();
        let chunk_index = data.settle.index_memory;
        let places = data.span_cache + chunk_index;
        let cache_memory_bytes = store.cache_bytes + index.cache_bytes + places + patterns;
        let buffer_memory_bytes = data.buffers + delegate.map_or(0, |d| d.memory());
        let (served, serving) = node.served.counts();
        let (asked, asking) = node.peers.load();
        let opened = node.store.opened();
        let teams = delegate.map(|d| d.team.teams.counts()).unwrap_or_default();
        MemberStatus {
            member: node.peers.member(),
            damage: {
                let notes = node.store.damage_notes();
                let opened = opened.damage.iter();
                let all = opened.chain(notes.iter().map(|damage| &**damage));
                all.map(ToString::to_string).collect()
            },
            notes: self.opening_notes(),
            unclean: matches!(opened.end, LogEnd::Unclean { .. }),
            files: counted.map(|(c, _)| c.files),
            logical_bytes: counted.map(|(c, _)| c.logical_bytes),
            extents: counted.map(|(c, _)| c.extents),
            undelivered: counted.map(|(c, _)| c.undelivered),
            patterns: counted.map(|(c, _)| c.patterns),
            pattern_bytes: counted.map(|(c, _)| c.pattern_bytes),
            pattern_extents: counted.map(|(c, _)| c.pattern_extents),
            counted_seconds_ago: counted.map_or(0.0, |(_, age)| age.as_secs_f64()),
            open_files: delegate.map_or(0, |d| d.open_files()) as u64,
            data_bytes: data.live,
            stored_bytes: data.stored,
            settled_bytes: data.settled,
            zero_bytes: data.zeros,
            unique_bytes: data.unique,
            encoded_bytes: data.encoded,
            encoded_from_bytes: data.encoded_from,
            sent_bytes: data.sent,
            sent_from_bytes: data.sent_from,
            settle_backlog_bytes: data.settle.backlog,
            settle_done_bytes: data.settle.done,
            indexed_chunks: data.settle.index_chunks,
            chunk_index_memory_bytes: chunk_index,
            disk_bytes: disk,
            segments: data.segments,
            index,
            index_bytes_per_record: index.bytes_per_record(),
            index_bytes: store.table_bytes + store.wal_bytes + index.table_bytes,
            index_memory_bytes,
            cache_memory_bytes,
            buffer_memory_bytes,
            memory_bytes: index_memory_bytes + cache_memory_bytes + buffer_memory_bytes,
            memory_budget: self.config.memory,
            traffic: delegate.map(|d| d.counters.totals()).unwrap_or_default(),
            prefetch: delegate.map(|d| d.prefetch_stats()).unwrap_or_default(),
            served,
            asked,
            combined: delegate.map_or(0, |d| d.combined()),
            team_calls: teams.calls,
            team_failures: teams.failed,
            working: delegate.map_or(0, |d| d.counters.working()),
            serving,
            asking,
            lock_waits: node.locks.waits.count() as u64,
            unpublished: delegate.map_or(0, |d| d.unpublished()) as u64,
            flushing: store.sealed,
            cleaning: data.cleaning,
        }
    }
}
