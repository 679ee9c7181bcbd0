//! What `forebay status` and the metrics show of one member.
//!
//! Invariant: all figures but those of [`RecordCounts`](crate::stats_scans::RecordCounts) and the bytes on disk are read from memory in a moment; those cost a scan
//! of every record or segment, and come from [`CachedStats`](crate::cached_stats::CachedStats).
use crate::delegate::PrefetchStats;
use forebay_index::Stats;
use std::ops::Add;

/// One member's figures; sizes in bytes. What is counted since the start is of this process.
#[derive(Debug, Clone, Default, serde::Serialize, serde::Deserialize)]
pub struct MemberStatus {
    /// Its number.
    pub member: u16,
    /// What was damaged when it was opened and what reads met since, and what may be lost with it, for people.
    #[serde(default)]
    pub damage: Vec<String>,
    /// What else was found when it was opened, for people: that it had not been closed, and where its log was cut; superblocks of which
    /// a copy was damaged or missing, and was made again.
    #[serde(default)]
    pub notes: Vec<String>,
    /// Whether it had not been closed when it was opened: its process or machine had died.
    #[serde(default)]
    pub unclean: bool,
    /// Inodes it owns, of all kinds, without those of removed directories. `None`: not counted yet.
    pub files: Option<u64>,
    /// Sum of the published sizes of the files it owns. `None`: not counted yet.
    pub logical_bytes: Option<u64>,
    /// Extents in its slices. `None`: not counted yet.
    pub extents: Option<u64>,
    /// Messages to other members, or itself, that free bytes and are not delivered yet. `None`: not counted yet.
    pub undelivered: Option<u64>,
    /// Patterns in its records, each of one log and commit. `None`: not counted yet.
    pub patterns: Option<u64>,
    /// What their records take, holes included, before the store adds its own. `None`: not counted yet.
    pub pattern_bytes: Option<u64>,
    /// Extents that they stand for. `None`: not counted yet.
    pub pattern_extents: Option<u64>,
    /// How old those seven are, seconds.
    pub counted_seconds_ago: f64,
    /// Files that its delegate holds open.
    pub open_files: u64,
    /// File data it stores, without what was replaced or removed.
    pub data_bytes: u64,
    /// What its segment files take on the disk, garbage included. `None`: not measured yet.
    pub disk_bytes: Option<u64>,
    /// Segment files.
    pub segments: u64,
    /// Its index: what it has done since the start, and what it holds.
    pub index: Stats,
    /// What an extent takes in table files. `None`: there are none.
    pub index_bytes_per_record: Option<f64>,
    /// Its key-value store on disk: table files, those of the index too, and write-ahead logs.
    pub index_bytes: u64,
    /// Memory of the key-value store: MemTables, filters and indexes of tables.
    pub index_memory_bytes: u64,
    /// Memory of caches: blocks of tables, decoded spans, patterns.
    pub cache_memory_bytes: u64,
    /// Memory of buffers: tails of logs, pending writes, known files.
    pub buffer_memory_bytes: u64,
    /// The three together.
    pub memory_bytes: u64,
    /// What it may use.
    pub memory_budget: u64,
    /// Reads through its delegate since the start.
    pub reads: u64,
    /// Writes through its delegate since the start.
    pub writes: u64,
    /// All other requests through its delegate since the start: names, attributes, opens, closes, syncs, locks.
    pub others: u64,
    /// Bytes read through its delegate since the start.
    pub read_bytes: u64,
    /// Bytes written through its delegate since the start.
    pub written_bytes: u64,
    /// What its delegate has fetched before it was asked for, since the start.
    pub prefetch: PrefetchStats,
    /// Extents that its delegate committed as patterns since the start.
    pub folded: u64,
    /// Bytes of those patterns.
    pub folded_bytes: u64,
    /// Times that its delegate asked for a file's patterns since the start.
    pub maps: u64,
    /// Requests of other members that it has answered since the start.
    pub served: u64,
    /// Requests it has sent to other members since the start.
    pub asked: u64,
    /// Requests that another request of its node brought the answer to, so that they cost no message: since the start.
    pub combined: u64,
    /// Operations that it executed together with the clients of a team, since the start.
    pub team_calls: u64,
    /// Those of them that failed because a client or a server was missing, slow or of another opinion.
    pub team_failures: u64,
    /// Requests of its mount or library that it works on now.
    pub working: u64,
    /// Requests of other members that it works on now.
    pub serving: u64,
    /// Its requests to other members that wait for an answer now.
    pub asking: u64,
    /// Requests of its node that wait for a lock now.
    pub lock_waits: u64,
    /// Files whose writes could not be published at their last close, and are tried again.
    pub unpublished: u64,
    /// MemTables that wait to be written to table files.
    pub flushing: u64,
    /// Freed places in segments whose blocks on the disk are not freed yet.
    pub cleaning: u64,
}

impl MemberStatus {
    /// The sum of the figures of several members; its number is the first one's. What is not known of one is not known of all.
    pub fn sum<'a>(members: impl IntoIterator<Item = &'a MemberStatus>) -> MemberStatus {
        let mut members = members.into_iter();
        let mut sum = members.next().cloned().unwrap_or_default();
        let both = |a: Option<u64>, b: Option<u64>| Some(a? + b?);
        for m in members {
            macro_rules! add {
                ($add:expr; $($figure:ident),*) => {
                    $(sum.$figure = $add(sum.$figure, m.$figure);)*
                };
            }
            add!(both;
                files, logical_bytes, extents, undelivered, patterns, pattern_bytes,
                pattern_extents, disk_bytes);
            add!(u64::add;
                open_files, data_bytes, segments, index_bytes, index_memory_bytes,
                cache_memory_bytes, buffer_memory_bytes, memory_bytes, memory_budget, reads,
                writes, others, read_bytes, written_bytes, folded, folded_bytes, maps, served,
                asked, combined, team_calls, team_failures, working, serving, asking,
                lock_waits, unpublished, flushing, cleaning);
            add!(f64::max; counted_seconds_ago);
            add!(Stats::and; index);
            add!(PrefetchStats::and; prefetch);
            sum.index_bytes_per_record = sum.index.bytes_per_record();
            sum.damage.extend_from_slice(&m.damage);
            sum.notes.extend_from_slice(&m.notes);
            sum.unclean |= m.unclean;
        }
        sum
    }
}
