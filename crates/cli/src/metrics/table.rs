//! Every metric, defined once: its name, what it means, and where its values come from. `docs/monitoring.md` lists the same.
//!
//! Invariants: names follow Prometheus's rules (base units, `_total` for what only grows); a figure that is not known is left
//! out, never zero; the labels tell which member and which peer.
use crate::control::{Health, Member, Process, Status};
use forebay_server::MemberStatus;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

/// A value with its labels.
pub struct Sample {
    labels: Vec<(&'static str, String)>,
    value: Value,
}

/// Whole numbers stay whole.
#[derive(Debug, Clone, Copy)]
enum Value {
    Whole(u64),
    Real(f64),
}

/// One metric.
pub struct Metric {
    /// As its samples are called.
    pub name: &'static str,
    /// One sentence, without the full stop.
    pub help: &'static str,
    /// Names of its labels.
    pub labels: &'static [&'static str],
    read: fn(&Status) -> Vec<Sample>,
}

impl Metric {
    /// It only grows, while the process lives.
    pub fn is_counter(&self) -> bool {
        self.name.ends_with("_total")
    }
}

const MEMBER: &[&str] = &["member"];

fn members(status: &Status, value: impl Fn(&MemberStatus) -> Option<Value>) -> Vec<Sample> {
    let sample = |m: &Member| {
        Some(Sample {
            labels: vec![("member", m.figures.member.to_string())],
            value: value(&m.figures)?,
        })
    };
    status.members.iter().filter_map(sample).collect()
}

/// One sample a member and kind.
fn kinds<const N: usize>(
    status: &Status,
    label: &'static str,
    values: impl Fn(&MemberStatus) -> [(&'static str, Option<u64>); N],
) -> Vec<Sample> {
    let samples = |m: &Member| {
        let member = m.figures.member.to_string();
        values(&m.figures)
            .into_iter()
            .filter_map(move |(kind, value)| {
                Some(Sample {
                    labels: vec![("member", member.clone()), (label, kind.to_string())],
                    value: Value::Whole(value?),
                })
            })
    };
    status.members.iter().flat_map(samples).collect()
}

fn process(status: &Status, value: impl Fn(&Process) -> Value) -> Vec<Sample> {
    let sample = |p: &Process| Sample {
        labels: Vec::new(),
        value: value(p),
    };
    status.processes.iter().take(1).map(sample).collect()
}

fn peers(status: &Status, value: impl Fn(&crate::control::Peer) -> Value) -> Vec<Sample> {
    let mut samples = Vec::new();
    for process in &status.processes {
        for (member, peer) in process
            .members
            .iter()
            .flat_map(|m| process.peers.iter().map(move |p| (m, p)))
        {
            samples.push(Sample {
                labels: vec![
                    ("member", member.to_string()),
                    ("peer", peer.member.to_string()),
                ],
                value: value(peer),
            });
        }
    }
    samples
}

/// A figure of each member.
macro_rules! of_member {
    ($name:literal, $help:literal, |$m:ident| $value:expr) => {
        Metric {
            name: $name,
            help: $help,
            labels: MEMBER,
            read: |status| members(status, |$m| $value),
        }
    };
}

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
        "forebay_counted_age_seconds",
        "How old the counts of files, logical bytes, extents and the outbox are",
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
        "Memory of the member's key-value store: MemTables, filters and indexes of tables",
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
    Metric {
        name: "forebay_index_part_memory_bytes",
        help: "Memory of the member's index, by part: memtable (new records), buffer (compressed blocks), cache (compressed blocks of tables), regions (where blocks are in table files)",
        labels: &["member", "part"],
        read: |status| {
            kinds(status, "part", |m| {
                [
                    ("memtable", Some(m.index.memtable_bytes)),
                    ("buffer", Some(m.index.buffer_bytes)),
                    ("cache", Some(m.index.cache_bytes)),
                    ("regions", Some(m.index.region_bytes)),
                ]
            })
        },
    },
    of_member!(
        "forebay_index_put_records_total",
        "Records put into the member's index, deletes included",
        |m| Some(Value::Whole(m.index.puts))
    ),
    Metric {
        name: "forebay_index_steps_total",
        help: "Background steps of the member's index, by kind: seal (new records compressed), flush (buffer written to disk), compaction (runs merged)",
        labels: &["member", "step"],
        read: |status| {
            kinds(status, "step", |m| {
                [
                    ("seal", Some(m.index.sealed)),
                    ("flush", Some(m.index.flushes)),
                    ("compaction", Some(m.index.compactions)),
                ]
            })
        },
    },
    Metric {
        name: "forebay_index_blocks_total",
        help: "Blocks of the member's index, by what merges did: passed (let through untouched), merged (decompressed), made (compressed)",
        labels: &["member", "kind"],
        read: |status| {
            kinds(status, "kind", |m| {
                [
                    ("passed", Some(m.index.blocks_passed)),
                    ("merged", Some(m.index.blocks_merged)),
                    ("made", Some(m.index.blocks_made)),
                ]
            })
        },
    },
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
    of_member!(
        "forebay_cache_memory_bytes",
        "Memory of the member's caches: blocks of tables, decoded spans",
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
    Metric {
        name: "forebay_requests_total",
        help: "Requests of the member's mount or library, by kind: read, write, or other (names, attributes, opens, closes, syncs, locks)",
        labels: &["member", "kind"],
        read: |status| {
            kinds(status, "kind", |m| {
                [
                    ("read", Some(m.reads)),
                    ("write", Some(m.writes)),
                    ("other", Some(m.others)),
                ]
            })
        },
    },
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
    Metric {
        name: "forebay_queue_length",
        help: "What the member works on or waits for, by queue: mount, served, sent, locks, flush, clean, outbox, unpublished",
        labels: &["member", "queue"],
        read: |status| {
            kinds(status, "queue", |m| {
                [
                    ("mount", Some(m.working)),
                    ("served", Some(m.serving)),
                    ("sent", Some(m.asking)),
                    ("locks", Some(m.lock_waits)),
                    ("flush", Some(m.flushing)),
                    ("clean", Some(m.cleaning)),
                    ("outbox", m.undelivered),
                    ("unpublished", Some(m.unpublished)),
                ]
            })
        },
    },
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
        read: |status| process(status, |p| Value::Whole(p.stage_jobs)),
    },
    Metric {
        name: "forebay_uptime_seconds",
        help: "Time since the process was ready",
        labels: &[],
        read: |status| process(status, |p| Value::Whole(p.uptime_seconds)),
    },
    Metric {
        name: "forebay_process_resident_memory_bytes",
        help: "Memory of the whole process",
        labels: &[],
        read: |status| process(status, |p| Value::Whole(p.memory.resident)),
    },
    Metric {
        name: "forebay_process_peak_memory_bytes",
        help: "The most memory the process ever had",
        labels: &[],
        read: |status| process(status, |p| Value::Whole(p.memory.peak)),
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

/// The metrics of one status as a scrape shows them: OpenMetrics text.
pub fn text(status: &Status) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Scrape(status.clone())));
    let mut text = String::new();
    // Writing to a string cannot fail; a metric that could not be written would be missing from the end on.
    if prometheus_client::encoding::text::encode(&mut text, &registry).is_err() {
        tracing::error!("the metrics could not be written");
    }
    text
}

#[derive(Debug)]
struct Scrape(Status);

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), std::fmt::Error> {
        for metric in METRICS {
            let samples = (metric.read)(&self.0);
            if samples.is_empty() {
                continue;
            }
            // The encoder adds the ending of counters.
            let (name, kind) = match metric.name.strip_suffix("_total") {
                Some(name) => (name, MetricType::Counter),
                None => (metric.name, MetricType::Gauge),
            };
            let mut family = encoder.encode_descriptor(name, metric.help, None, kind)?;
            for sample in samples {
                let labels = sample.labels.as_slice();
                let mut one = family.encode_family(&labels)?;
                match (kind, sample.value) {
                    (MetricType::Counter, Value::Whole(n)) => {
                        one.encode_counter::<NoLabelSet, _, f64>(&n, None)?;
                    }
                    (MetricType::Counter, Value::Real(x)) => {
                        one.encode_counter::<NoLabelSet, _, f64>(&x, None)?;
                    }
                    (_, Value::Whole(n)) => one.encode_gauge(&n)?,
                    (_, Value::Real(x)) => one.encode_gauge(&x)?,
                }
            }
        }
        Ok(())
    }
}
