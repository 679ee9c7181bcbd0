//! The statistics of one member that `forebay status` and the metrics show.
//!
//! Invariant: all statistics but those of [`RecordCounts`](crate::stats_scans::RecordCounts) and the bytes on disk are read from
//! memory in a moment; those cost a scan of every record or segment, and come from
//! [`CachedStats`](crate::cached_stats::CachedStats).
use crate::delegate::{PrefetchStats, Traffic};
use crate::merged_stats::stats;
use forebay_index::Stats;
use std::ops::{Add, BitOr};

stats! {
/// One member's statistics; sizes in bytes. What is counted since the start is of this process.
#[derive(Debug, Clone, Default, serde::Serialize, serde::Deserialize)]
MemberStatus {
    /// Its number.
    member: u16 = first,
    /// What was damaged when it was opened and what reads met since, and what may be lost with it, for people.
    #[serde(default)]
    damage: Vec<String> = concat,
    /// What else was found when it was opened, for people: that it had not been closed, and where its log was cut; superblocks of which
    /// a copy was damaged or missing, and was made again.
    #[serde(default)]
    notes: Vec<String> = concat,
    /// Whether it had not been closed when it was opened: its process or machine had died.
    #[serde(default)]
    unclean: bool = BitOr::bitor,
    /// Inodes it owns, of all kinds, without those of removed directories. `None`: not counted yet.
    files: Option<u64> = known,
    /// Sum of the published sizes of the files it owns. `None`: not counted yet.
    logical_bytes: Option<u64> = known,
    /// Extents in its slices. `None`: not counted yet.
    extents: Option<u64> = known,
    /// Messages to other members, or itself, that free bytes and are not delivered yet. `None`: not counted yet.
    undelivered: Option<u64> = known,
    /// Patterns in its records, each of one log and commit. `None`: not counted yet.
    patterns: Option<u64> = known,
    /// What their records take, holes included, before the store adds its own. `None`: not counted yet.
    pattern_bytes: Option<u64> = known,
    /// Extents that they stand for. `None`: not counted yet.
    pattern_extents: Option<u64> = known,
    /// How old those seven are, seconds.
    counted_seconds_ago: f64 = f64::max,
    /// Files that its delegate holds open.
    open_files: u64 = Add::add,
    /// File data it has, without what was replaced or removed.
    data_bytes: u64 = Add::add,
    /// What is stored for it: less where it is settled, for then what is the same is stored once, and zeros are not. Counts against the
    /// quota.
    #[serde(default)]
    stored_bytes: u64 = Add::add,
    /// File data that is settled.
    #[serde(default)]
    settled_bytes: u64 = Add::add,
    /// That of it which is zeros.
    #[serde(default)]
    zero_bytes: u64 = Add::add,
    /// What is stored for what is settled: each chunk once.
    #[serde(default)]
    unique_bytes: u64 = Add::add,
    /// Those of them that are encoded.
    #[serde(default)]
    encoded_bytes: u64 = Add::add,
    /// What these were before.
    #[serde(default)]
    encoded_from_bytes: u64 = Add::add,
    /// What it sent to other members that read file data here, since the start.
    #[serde(default)]
    sent_bytes: u64 = Add::add,
    /// What they had asked for: more than was sent, if that is stored encoded.
    #[serde(default)]
    sent_from_bytes: u64 = Add::add,
    /// File data that waits to be settled.
    #[serde(default)]
    settle_backlog_bytes: u64 = Add::add,
    /// File data that was settled since the start.
    #[serde(default)]
    settle_done_bytes: u64 = Add::add,
    /// Chunks in the index by which the same are found.
    #[serde(default)]
    indexed_chunks: u64 = Add::add,
    /// Memory of that index, and of what is known of contents that were cut.
    #[serde(default)]
    chunk_index_memory_bytes: u64 = Add::add,
    /// What its segment files take on the disk, garbage included. `None`: not measured yet.
    disk_bytes: Option<u64> = known,
    /// Segment files.
    segments: u64 = Add::add,
    /// Its index: what it has done since the start, and what it holds.
    index: Stats = Stats::and,
    /// What an extent takes in table files. `None`: there are none.
    index_bytes_per_record: Option<f64> = first,
    /// Its key-value store on disk: table files, those of the index too, and write-ahead logs.
    index_bytes: u64 = Add::add,
    /// Memory of the key-value store: MemTables, filters and indexes of tables.
    index_memory_bytes: u64 = Add::add,
    /// Memory of caches: blocks of tables, decoded spans and containers, patterns, the index of chunks.
    cache_memory_bytes: u64 = Add::add,
    /// Memory of buffers: tails of logs, pending writes, known files.
    buffer_memory_bytes: u64 = Add::add,
    /// The three together.
    memory_bytes: u64 = Add::add,
    /// What it may use.
    memory_budget: u64 = Add::add,
    /// What went through its delegate since the start.
    #[serde(flatten)]
    traffic: Traffic = Traffic::and,
    /// What its delegate has fetched before it was asked for, since the start.
    prefetch: PrefetchStats = PrefetchStats::and,
    /// Requests of other members that it has answered since the start.
    served: u64 = Add::add,
    /// Requests it has sent to other members since the start.
    asked: u64 = Add::add,
    /// Requests that another request of its node brought the answer to, so that they cost no message: since the start.
    combined: u64 = Add::add,
    /// Operations that it executed together with the clients of a team, since the start.
    team_calls: u64 = Add::add,
    /// Those of them that failed because a client or a server was missing, slow or of another opinion.
    team_failures: u64 = Add::add,
    /// Requests of its mount or library that it works on now.
    working: u64 = Add::add,
    /// Requests of other members that it works on now.
    serving: u64 = Add::add,
    /// Its requests to other members that wait for an answer now.
    asking: u64 = Add::add,
    /// Requests of its node that wait for a lock now.
    lock_waits: u64 = Add::add,
    /// Files whose writes could not be published at their last close, and are tried again.
    unpublished: u64 = Add::add,
    /// MemTables that wait to be written to table files.
    flushing: u64 = Add::add,
    /// Freed places in segments whose blocks on the disk are not freed yet.
    cleaning: u64 = Add::add,
}
}

/// What is not known of one is not known of both.
fn known(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    Some(a? + b?)
}

fn concat(a: Vec<String>, b: Vec<String>) -> Vec<String> {
    [a, b].concat()
}

fn first<T>(a: T, _: T) -> T {
    a
}

impl MemberStatus {
    /// The sum of the statistics of several members; its number is the first one's. What is not known of one is not known of all.
    pub fn sum<'a>(members: impl IntoIterator<Item = &'a MemberStatus>) -> MemberStatus {
        let sum = members.into_iter().cloned().reduce(MemberStatus::and);
        let sum = sum.unwrap_or_default();
        MemberStatus {
            index_bytes_per_record: sum.index.bytes_per_record(),
            ..sum
        }
    }
}
