//! Every metric, defined once: its name, what it means, and where its values come from. `docs/monitoring.md` lists the same.
//!
//! Invariants: names follow Prometheus's rules (base units, `_total` for what only grows); every figure of the index is here.
use super::metric::{MEMBER, Metric, Sample, Value};
use super::metric::{kinds, members, of_kinds, of_member, peers, process};
use crate::control::Health;

/// All metrics, in the order of the page.
pub const METRICS: &[Metric] = &[
    of_member!(
        "forebay_files",
        "Files, directories and other inodes that the member owns",
        |m| m.files.map(Value::Whole)
    ),
    of_member!(
        "forebay_logical_bytes",
        "Sum of the published sizes of the files that the member owns",
        |m| m.logical_bytes.map(Value::Whole)
    ),
    of_member!(
        "forebay_extents",
        "Extents in the index of the member",
        |m| m.extents.map(Value::Whole)
    ),
    of_member!(
        "forebay_patterns",
        "Patterns in the records of the member, each of one log and commit",
        |m| m.patterns.map(Value::Whole)
    ),
    of_member!(
        "forebay_pattern_bytes",
        "What the records of patterns take",
        |m| m.pattern_bytes.map(Value::Whole)
    ),
    of_member!(
        "forebay_pattern_extents",
        "Extents that the patterns of the member stand for",
        |m| m.pattern_extents.map(Value::Whole)
    ),
    of_member!(
        "forebay_counted_age_seconds",
        "How old the counts of files, logical bytes, extents, patterns and the outbox are",
        |m| m.files.map(|_| Value::Real(m.counted_seconds_ago))
    ),
    of_member!(
        "forebay_stored_bytes",
        "File data that the member stores, without what was replaced or removed",
        |m| Some(Value::Whole(m.data_bytes))
    ),
    of_member!(
        "forebay_disk_bytes",
        "Disk space of the member's segment files, garbage included",
        |m| m.disk_bytes.map(Value::Whole)
    ),
    of_kinds!(
        "forebay_store_findings",
        "found",
        "What was found in the member's store when it was opened, and by reads since: damage (damaged places), unclean (1: it had not been closed), superblocks (copies of superblocks made again)",
        |m| {
            let unclean = u64::from(m.unclean);
            let superblocks = (m.notes.len() as u64).saturating_sub(unclean);
            [
                ("damage", Some(m.damage.len() as u64)),
                ("unclean", Some(unclean)),
                ("superblocks", Some(superblocks)),
            ]
        }
    ),
    of_member!("forebay_segments", "Segment files of the member", |m| Some(
        Value::Whole(m.segments)
    )),
    of_member!(
        "forebay_index_disk_bytes",
        "Disk space of the member's key-value store: tables, those of the index too, and write-ahead logs",
        |m| Some(Value::Whole(m.index_bytes))
    ),
    of_member!(
        "forebay_index_memory_bytes",
        "Memory of the member's key-value store and index, without caches: MemTables, compression buffer, filters and indexes of tables, known ranges",
        |m| Some(Value::Whole(m.index_memory_bytes))
    ),
    of_member!(
        "forebay_index_table_bytes",
        "Table files of the member's index",
        |m| Some(Value::Whole(m.index.table_bytes))
    ),
    of_member!(
        "forebay_index_tables",
        "Number of table files of the member's index",
        |m| Some(Value::Whole(m.index.tables))
    ),
    of_member!(
        "forebay_index_runs",
        "Sorted runs of table files that a lookup in the member's index may have to search",
        |m| Some(Value::Whole(m.index.runs))
    ),
    of_member!(
        "forebay_index_table_records",
        "Records in table files of the member's index, with replaced ones that are not merged away yet",
        |m| Some(Value::Whole(m.index.table_records))
    ),
    of_kinds!(
        "forebay_index_part_memory_bytes",
        "part",
        "Memory of the member's index, by part: memtable (new records), buffer (compressed blocks), cache (compressed blocks of tables), regions (where blocks are in table files), coverage (which ranges are stored)",
        |m| [
            ("memtable", Some(m.index.memtable_bytes)),
            ("buffer", Some(m.index.buffer_bytes)),
            ("cache", Some(m.index.cache_bytes)),
            ("regions", Some(m.index.region_bytes)),
            ("coverage", Some(m.index.coverage_bytes)),
        ]
    ),
    of_member!(
        "forebay_index_put_records_total",
        "Records put into the member's index, deletes included",
        |m| Some(Value::Whole(m.index.puts))
    ),
    of_kinds!(
        "forebay_index_steps_total",
        "step",
        "Background steps of the member's index, by kind: seal (new records compressed), flush (buffer written to disk), compaction (runs merged)",
        |m| [
            ("seal", Some(m.index.sealed)),
            ("flush", Some(m.index.flushes)),
            ("compaction", Some(m.index.compactions)),
        ]
    ),
    of_kinds!(
        "forebay_index_blocks_total",
        "kind",
        "Blocks of the member's index, by what merges did: passed (let through untouched), merged (decompressed), made (compressed)",
        |m| [
            ("passed", Some(m.index.blocks_passed)),
            ("merged", Some(m.index.blocks_merged)),
            ("made", Some(m.index.blocks_made)),
        ]
    ),
    of_member!(
        "forebay_index_written_bytes_total",
        "Bytes written to table files of the member's index",
        |m| Some(Value::Whole(m.index.bytes_written))
    ),
    of_member!(
        "forebay_index_stall_seconds_total",
        "Time that writers waited for the member's index",
        |m| Some(Value::Real(m.index.stall_nanos as f64 / 1e9))
    ),
    of_kinds!(
        "forebay_index_coverage_total",
        "kind",
        "What puts into the member's index knew of stored ranges, by kind: hit (a piece known to meet nothing stored), miss (a piece for which stored records were looked at), load (1 MiB of a file whose records were read to know)",
        |m| [
            ("hit", Some(m.index.coverage_hits)),
            ("miss", Some(m.index.coverage_misses)),
            ("load", Some(m.index.coverage_loads)),
        ]
    ),
    of_member!(
        "forebay_index_gets_total",
        "Ranges looked up in the member's index",
        |m| Some(Value::Whole(m.index.gets))
    ),
    of_member!(
        "forebay_index_found_extents_total",
        "Extents that lookups in the member's index found",
        |m| Some(Value::Whole(m.index.records_found))
    ),
    of_kinds!(
        "forebay_index_lookup_blocks_total",
        "kind",
        "Blocks of table files of the member's index, by kind: asked (needed by lookups and scans), cached (of these, found in memory), read (from table files, those beside the asked ones too)",
        |m| [
            ("asked", Some(m.index.blocks_asked)),
            ("cached", Some(m.index.cache_hits)),
            ("read", Some(m.index.blocks_read)),
        ]
    ),
    of_member!(
        "forebay_index_read_regions_total",
        "Regions of blocks that lookups and scans read from table files of the member's index, each in one I/O",
        |m| Some(Value::Whole(m.index.rounds))
    ),
    of_member!(
        "forebay_index_read_bytes_total",
        "Bytes that lookups and scans read from table files of the member's index",
        |m| Some(Value::Whole(m.index.bytes_read))
    ),
    of_member!(
        "forebay_cache_memory_bytes",
        "Memory of the member's caches: blocks of tables, decoded spans, patterns",
        |m| Some(Value::Whole(m.cache_memory_bytes))
    ),
    of_member!(
        "forebay_buffer_memory_bytes",
        "Memory of the member's buffers: tails of logs, pending writes, known files",
        |m| Some(Value::Whole(m.buffer_memory_bytes))
    ),
    of_member!(
        "forebay_memory_budget_bytes",
        "What index, caches and buffers of the member may take together",
        |m| Some(Value::Whole(m.memory_budget))
    ),
    of_member!(
        "forebay_open_files",
        "Files that the member's node holds open",
        |m| Some(Value::Whole(m.open_files))
    ),
    of_kinds!(
        "forebay_requests_total",
        "kind",
        "Requests of the member's mount or library, by kind: read, write, or other (names, attributes, opens, closes, syncs, locks)",
        |m| [
            ("read", Some(m.reads)),
            ("write", Some(m.writes)),
            ("other", Some(m.others)),
        ]
    ),
    of_member!(
        "forebay_read_bytes_total",
        "Bytes read through the member's mount or library",
        |m| Some(Value::Whole(m.read_bytes))
    ),
    of_member!(
        "forebay_written_bytes_total",
        "Bytes written through the member's mount or library",
        |m| Some(Value::Whole(m.written_bytes))
    ),
    of_member!(
        "forebay_folded_extents_total",
        "Extents that the member's mount or library committed as patterns",
        |m| Some(Value::Whole(m.folded))
    ),
    of_member!(
        "forebay_folded_bytes_total",
        "Bytes of those patterns",
        |m| Some(Value::Whole(m.folded_bytes))
    ),
    of_member!(
        "forebay_pattern_questions_total",
        "Times that the member's mount or library asked for a file's patterns",
        |m| Some(Value::Whole(m.maps))
    ),
    of_kinds!(
        "forebay_prefetch_pieces_total",
        "kind",
        "Pieces of files that were to be fetched before they were read, by kind: predicted (all), right (of these, read)",
        |m| [
            ("predicted", Some(m.prefetch.predicted)),
            ("right", Some(m.prefetch.right)),
        ]
    ),
    of_kinds!(
        "forebay_prefetch_bytes_total",
        "kind",
        "Bytes fetched before they were read, by kind: fetched (all), used (of these, read), wasted (thrown away unread)",
        |m| [
            ("fetched", Some(m.prefetch.fetched_bytes)),
            ("used", Some(m.prefetch.used_bytes)),
            ("wasted", Some(m.prefetch.wasted_bytes)),
        ]
    ),
    of_kinds!(
        "forebay_prefetch_reads_total",
        "kind",
        "Reads whose bytes had been fetched before, by kind: hit (all), waited (of these, for bytes on their way)",
        |m| [
            ("hit", Some(m.prefetch.hits)),
            ("waited", Some(m.prefetch.waits)),
        ]
    ),
    of_member!(
        "forebay_prefetch_memory_bytes",
        "Memory of bytes fetched ahead, and of room kept for those on their way",
        |m| Some(Value::Whole(m.prefetch.held_bytes))
    ),
    of_member!(
        "forebay_served_requests_total",
        "Requests of other members that the member has answered",
        |m| Some(Value::Whole(m.served))
    ),
    of_member!(
        "forebay_combined_requests_total",
        "Requests of the member's node that cost no message, because another one of the node brought the answer",
        |m| Some(Value::Whole(m.combined))
    ),
    of_member!(
        "forebay_team_calls_total",
        "Operations that the member carried out together with the clients of a team",
        |m| Some(Value::Whole(m.team_calls))
    ),
    of_member!(
        "forebay_team_failures_total",
        "Those of them that failed because a client or server was missing, slow or of another opinion",
        |m| Some(Value::Whole(m.team_failures))
    ),
    of_member!(
        "forebay_sent_requests_total",
        "Requests that the member has sent to other members",
        |m| Some(Value::Whole(m.asked))
    ),
    of_kinds!(
        "forebay_queue_length",
        "queue",
        "What the member works on or waits for, by queue: mount, served, sent, locks, flush, clean, outbox, unpublished",
        |m| [
            ("mount", Some(m.working)),
            ("served", Some(m.serving)),
            ("sent", Some(m.asking)),
            ("locks", Some(m.lock_waits)),
            ("flush", Some(m.flushing)),
            ("clean", Some(m.cleaning)),
            ("outbox", m.undelivered),
            ("unpublished", Some(m.unpublished)),
        ]
    ),
    Metric {
        name: "forebay_peer_alive",
        help: "1 if the member in another process was heard in time, 0 if it left or is dead; member is who says so",
        labels: &["member", "peer"],
        read: |status| {
            peers(status, |peer| {
                Value::Whole(u64::from(peer.health == Health::Alive))
            })
        },
    },
    Metric {
        name: "forebay_peer_silent_seconds",
        help: "Time since the member in another process was last heard; member is who says so",
        labels: &["member", "peer"],
        read: |status| peers(status, |peer| Value::Real(peer.silent_seconds)),
    },
    Metric {
        name: "forebay_stage_jobs",
        help: "Stage jobs that run in the process",
        labels: &[],
        read: |status| process(status, |p| Some(Value::Whole(p.stage_jobs))),
    },
    Metric {
        name: "forebay_uptime_seconds",
        help: "Time since the process was ready",
        labels: &[],
        read: |status| process(status, |p| Some(Value::Whole(p.uptime_seconds))),
    },
    Metric {
        name: "forebay_process_resident_memory_bytes",
        help: "Memory of the whole process",
        labels: &[],
        read: |status| process(status, |p| Some(Value::Whole(p.memory?.resident))),
    },
    Metric {
        name: "forebay_process_peak_memory_bytes",
        help: "The most memory the process ever had",
        labels: &[],
        read: |status| process(status, |p| Some(Value::Whole(p.memory?.peak))),
    },
    Metric {
        name: "forebay_build_info",
        help: "1, with the version of the program",
        labels: &["version"],
        read: |status| {
            vec![Sample {
                labels: vec![("version", status.program.clone())],
                value: Value::Whole(1),
            }]
        },
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::{Member, Rates, Status};
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
            members: vec![Member { figures, rates }],
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
