//! Every metric, defined once: its name, where its values come from, and what it means. `docs/monitoring.md` lists the same.
//!
//! A row says whose value it is (`member`, `peers`, `process`), or `kinds`: one value of a member for each value of a label.
//!
//! Invariants: names follow Prometheus's rules (base units, `_total` for what only grows); every statistic of the index is here.
use super::metric::metrics;
use crate::control::Health;

metrics! {
    member "forebay_files" (|m| m.files)
        "Files, directories and other inodes that the member owns";
    member "forebay_logical_bytes" (|m| m.logical_bytes)
        "Sum of the published sizes of the files that the member owns";
    member "forebay_extents" (|m| m.extents)
        "Extents in the index of the member";
    member "forebay_patterns" (|m| m.patterns)
        "Patterns in the records of the member, each of one log and commit";
    member "forebay_pattern_bytes" (|m| m.pattern_bytes)
        "What the records of patterns take";
    member "forebay_pattern_extents" (|m| m.pattern_extents)
        "Extents that the patterns of the member stand for";
    member "forebay_counted_age_seconds" (|m| m.files.map(|_| m.counted_seconds_ago))
        "How old the counts of files, logical bytes, extents, patterns and the outbox are";
    member "forebay_data_bytes" (|m| m.data_bytes)
        "File data that the member has, without what was replaced or removed";
    member "forebay_stored_bytes" (|m| m.stored_bytes)
        "What the member stores for its file data: of what is settled each chunk once, and no zeros; it counts against the quota";
    member "forebay_settled_bytes" (|m| m.settled_bytes)
        "File data of the member that is settled (deduplicated)";
    member "forebay_zero_bytes" (|m| m.zero_bytes)
        "Settled file data of the member that is zeros, for which nothing is stored";
    member "forebay_unique_bytes" (|m| m.unique_bytes)
        "What the member stores for settled file data: each chunk once";
    member "forebay_encoded_bytes" (|m| m.encoded_bytes)
        "Those of the bytes that the member stores which a codec has encoded";
    member "forebay_encoded_from_bytes" (|m| m.encoded_from_bytes)
        "What the encoded bytes of the member were before: divided by forebay_encoded_bytes, the ratio of its codecs";
    member "forebay_sent_bytes_total" (|m| m.sent_bytes)
        "Bytes that the member sent to other members for what they read: of encoded file data, encoded bytes";
    member "forebay_sent_from_bytes_total" (|m| m.sent_from_bytes)
        "File data that other members read from the member: divided by forebay_sent_bytes_total, what encoding saved the network";
    member "forebay_settle_backlog_bytes" (|m| m.settle_backlog_bytes)
        "File data of the member that waits to be settled";
    member "forebay_settled_bytes_total" (|m| m.settle_done_bytes)
        "File data that the member has settled";
    member "forebay_indexed_chunks" (|m| m.indexed_chunks)
        "Chunks in the index by which the member finds the same ones";
    member "forebay_chunk_index_memory_bytes" (|m| m.chunk_index_memory_bytes)
        "Memory of that index, and of what is known of contents that were cut";
    member "forebay_disk_bytes" (|m| m.disk_bytes)
        "Disk space of the member's segment files, garbage included";
    kinds "forebay_store_findings" ("found", |m|
        "damage" => m.damage.len() as u64,
        "unclean" => u64::from(m.unclean),
        "superblocks" => (m.notes.len() as u64).saturating_sub(u64::from(m.unclean)),
    )
        "What was found in the member's store when it was opened, and by reads since: damage (damaged places), unclean (1: it had not been closed), superblocks (copies of superblocks made again)";
    member "forebay_segments" (|m| m.segments)
        "Segment files of the member";
    member "forebay_index_disk_bytes" (|m| m.index_bytes)
        "Disk space of the member's key-value store: tables, those of the index too, and write-ahead logs";
    member "forebay_index_memory_bytes" (|m| m.index_memory_bytes)
        "Memory of the member's key-value store and index, without caches: MemTables, compression buffer, filters and indexes of tables, known ranges";
    member "forebay_index_table_bytes" (|m| m.index.table_bytes)
        "Table files of the member's index";
    member "forebay_index_tables" (|m| m.index.tables)
        "Number of table files of the member's index";
    member "forebay_index_runs" (|m| m.index.runs)
        "Sorted runs of table files that a lookup in the member's index may have to search";
    member "forebay_index_table_records" (|m| m.index.table_records)
        "Records in table files of the member's index, with replaced ones that are not merged away yet";
    kinds "forebay_index_part_memory_bytes" ("part", |m|
        "memtable" => m.index.memtable_bytes,
        "buffer" => m.index.buffer_bytes,
        "cache" => m.index.cache_bytes,
        "regions" => m.index.region_bytes,
        "coverage" => m.index.coverage_bytes,
    )
        "Memory of the member's index, by part: memtable (new records), buffer (compressed blocks), cache (compressed blocks of tables), regions (where blocks are in table files), coverage (which ranges are stored)";
    member "forebay_index_put_records_total" (|m| m.index.puts)
        "Records put into the member's index, deletes included";
    kinds "forebay_index_steps_total" ("step", |m|
        "seal" => m.index.sealed,
        "flush" => m.index.flushes,
        "compaction" => m.index.compactions,
    )
        "Background steps of the member's index, by kind: seal (new records compressed), flush (buffer written to disk), compaction (runs merged)";
    kinds "forebay_index_blocks_total" ("kind", |m|
        "passed" => m.index.blocks_passed,
        "merged" => m.index.blocks_merged,
        "made" => m.index.blocks_made,
    )
        "Blocks of the member's index, by what merges did: passed (let through untouched), merged (decompressed), made (compressed)";
    member "forebay_index_written_bytes_total" (|m| m.index.bytes_written)
        "Bytes written to table files of the member's index";
    member "forebay_index_stall_seconds_total" (|m| m.index.stall_nanos as f64 / 1e9)
        "Time that writers waited for the member's index";
    kinds "forebay_index_coverage_total" ("kind", |m|
        "hit" => m.index.coverage_hits,
        "miss" => m.index.coverage_misses,
        "load" => m.index.coverage_loads,
    )
        "What puts into the member's index knew of stored ranges, by kind: hit (a piece known to meet nothing stored), miss (a piece for which stored records were looked at), load (1 MiB of a file whose records were read to know)";
    member "forebay_index_gets_total" (|m| m.index.gets)
        "Ranges looked up in the member's index";
    member "forebay_index_found_extents_total" (|m| m.index.records_found)
        "Extents that lookups in the member's index found";
    kinds "forebay_index_lookup_blocks_total" ("kind", |m|
        "asked" => m.index.blocks_asked,
        "cached" => m.index.cache_hits,
        "read" => m.index.blocks_read,
    )
        "Blocks of table files of the member's index, by kind: asked (needed by lookups and scans), cached (of these, found in memory), read (from table files, those beside the asked ones too)";
    member "forebay_index_read_regions_total" (|m| m.index.rounds)
        "Regions of blocks that lookups and scans read from table files of the member's index, each in one I/O";
    member "forebay_index_read_bytes_total" (|m| m.index.bytes_read)
        "Bytes that lookups and scans read from table files of the member's index";
    member "forebay_cache_memory_bytes" (|m| m.cache_memory_bytes)
        "Memory of the member's caches: blocks of tables, decoded spans and containers, patterns, the index of chunks";
    member "forebay_buffer_memory_bytes" (|m| m.buffer_memory_bytes)
        "Memory of the member's buffers: tails of logs, pending writes, known files";
    member "forebay_memory_budget_bytes" (|m| m.memory_budget)
        "What index, caches and buffers of the member may take together";
    member "forebay_open_files" (|m| m.open_files)
        "Files that the member's node holds open";
    kinds "forebay_requests_total" ("kind", |m|
        "read" => m.traffic.reads,
        "write" => m.traffic.writes,
        "other" => m.traffic.others,
    )
        "Requests of the member's mount or library, by kind: read, write, or other (names, attributes, opens, closes, syncs, locks)";
    member "forebay_read_bytes_total" (|m| m.traffic.read_bytes)
        "Bytes read through the member's mount or library";
    member "forebay_written_bytes_total" (|m| m.traffic.written_bytes)
        "Bytes written through the member's mount or library";
    member "forebay_folded_extents_total" (|m| m.traffic.folded)
        "Extents that the member's mount or library committed as patterns";
    member "forebay_folded_bytes_total" (|m| m.traffic.folded_bytes)
        "Bytes of those patterns";
    member "forebay_pattern_questions_total" (|m| m.traffic.maps)
        "Times that the member's mount or library asked for a file's patterns";
    kinds "forebay_prefetch_pieces_total" ("kind", |m|
        "predicted" => m.prefetch.predicted,
        "right" => m.prefetch.right,
    )
        "Pieces of files that were to be fetched before they were read, by kind: predicted (all), right (of these, read)";
    kinds "forebay_prefetch_bytes_total" ("kind", |m|
        "fetched" => m.prefetch.fetched_bytes,
        "used" => m.prefetch.used_bytes,
        "wasted" => m.prefetch.wasted_bytes,
    )
        "Bytes fetched before they were read, by kind: fetched (all), used (of these, read), wasted (thrown away unread)";
    kinds "forebay_prefetch_reads_total" ("kind", |m|
        "hit" => m.prefetch.hits,
        "waited" => m.prefetch.waits,
    )
        "Reads whose bytes had been fetched before, by kind: hit (all), waited (of these, for bytes on their way)";
    member "forebay_prefetch_memory_bytes" (|m| m.prefetch.held_bytes)
        "Memory of bytes fetched ahead, and of room kept for those on their way";
    member "forebay_served_requests_total" (|m| m.served)
        "Requests of other members that the member has answered";
    member "forebay_combined_requests_total" (|m| m.combined)
        "Requests of the member's node that cost no message, because another one of the node brought the answer";
    member "forebay_team_calls_total" (|m| m.team_calls)
        "Operations that the member carried out together with the clients of a team";
    member "forebay_team_failures_total" (|m| m.team_failures)
        "Those of them that failed because a client or server was missing, slow or of another opinion";
    member "forebay_sent_requests_total" (|m| m.asked)
        "Requests that the member has sent to other members";
    kinds "forebay_queue_length" ("queue", |m|
        "mount" => m.working,
        "served" => m.serving,
        "sent" => m.asking,
        "locks" => m.lock_waits,
        "flush" => m.flushing,
        "clean" => m.cleaning,
        "outbox" => m.undelivered,
        "unpublished" => m.unpublished,
    )
        "What the member works on or waits for, by queue: mount, served, sent, locks, flush, clean, outbox, unpublished";
    peers "forebay_peer_alive" (|peer| u64::from(peer.health == Health::Alive))
        "1 if the member in another process was heard in time, 0 if it left or is dead; member is who says so";
    peers "forebay_peer_silent_seconds" (|peer| peer.silent_seconds)
        "Time since the member in another process was last heard; member is who says so";
    process "forebay_stage_jobs" (|p| p.stage_jobs)
        "Stage jobs that run in the process";
    process "forebay_link_clients" (|p| p.link_clients)
        "Processes that are connected to the process over the link";
    process "forebay_link_open_files" (|p| p.link_open_files)
        "Files that these have open";
    process "forebay_uptime_seconds" (|p| p.uptime_seconds)
        "Time since the process was ready";
    process "forebay_process_resident_memory_bytes" (|p| p.memory.map(|memory| memory.resident))
        "Memory of the whole process";
    process "forebay_process_peak_memory_bytes" (|p| p.memory.map(|memory| memory.peak))
        "The most memory the process ever had";
    label "forebay_build_info" ("version", |status| status.program.clone())
        "1, with the version of the program";
}

#[cfg(test)]
mod tests {
    use super::super::metric::Value;
    use super::*;
    use crate::control::{MemberEntry, Rates, Status};
    use forebay_server::{IndexStats, MemberStatus};
    use std::collections::{BTreeMap, BTreeSet};

    /// With no process and one member, whose index has these figures.
    fn status(index: IndexStats) -> Status {
        let figures = MemberStatus {
            index,
            ..MemberStatus::default()
        };
        let rates = Rates::default();
        Status {
            store: "/local/s".into(),
            pid: 1,
            program: String::new(),
            uptime_seconds: 0,
            memory: None,
            settings: BTreeMap::new(),
            mounts: Vec::new(),
            members: vec![MemberEntry { figures, rates }],
            missing: BTreeMap::new(),
            processes: Vec::new(),
        }
    }

    #[test]
    fn every_figure_of_the_index_is_a_metric() {
        let figures = IndexStats::default().figures();
        let names = figures.iter().map(|(name, _)| *name);
        // Each its own number; whole seconds of the only time.
        let numbers = (1..).map(|n: u64| n * 1_000_000_000);
        let given: BTreeMap<&str, u64> = names.zip(numbers).collect();
        let json = serde_json::to_value(&given).unwrap();
        let status = status(serde_json::from_value(json).unwrap());
        let mut shown = BTreeSet::new();
        for metric in METRICS {
            for sample in (metric.read)(&status) {
                shown.insert(match sample.value {
                    Value::Whole(n) => n,
                    Value::Real(seconds) => (seconds * 1e9).round() as u64,
                });
            }
        }
        for (name, value) in given {
            assert!(shown.contains(&value), "{name}");
        }
    }
}
