//! The columns of the status of a service: how each figure of a member is called and shown.
//!
//! Invariants: what is not known is a `?`; `docs/monitoring.md` explains each column, and the metrics show the same figures.
use forebay_node::control::MemberEntry;
use forebay_node::units::{count, size};
use forebay_server::MemberStatus;

/// A column: its header, and its cell of one member (or all together).
pub type Column = (&'static str, fn(&MemberEntry) -> String);

fn known(value: Option<u64>, show: fn(u64) -> String) -> String {
    value.map_or_else(|| String::from("?"), show)
}

/// A number of requests a second.
fn rate_text(rate: f64) -> String {
    match rate {
        // What is seldom is not nothing.
        0.001..10.0 => format!("{rate:.1}"),
        _ => count(rate.round() as u64),
    }
}

/// A part of a whole; of nothing there is none.
fn share(part: u64, whole: u64) -> String {
    match whole {
        0 => String::from("-"),
        _ => format!("{:.0} %", part as f64 / whole as f64 * 100.0),
    }
}

/// What deduplication saves.
fn saved(figures: &MemberStatus) -> String {
    let saved = figures.data_bytes.saturating_sub(figures.stored_bytes);
    share(saved, figures.data_bytes)
}

fn bytes(rate: f64) -> String {
    format!("{}/s", size(rate.round() as u64))
}

/// What it holds and uses.
pub const USAGE_COLUMNS: [Column; 9] = [
    ("files", |m| known(m.figures.files, count)),
    ("extents", |m| known(m.figures.extents, count)),
    ("patterns", |m| known(m.figures.patterns, count)),
    ("logical", |m| known(m.figures.logical_bytes, size)),
    ("stored", |m| size(m.figures.stored_bytes)),
    ("saved", |m| saved(&m.figures)),
    ("disk", |m| known(m.figures.disk_bytes, size)),
    ("records", |m| size(m.figures.index_bytes)),
    ("memory", |m| size(m.figures.memory_bytes)),
];

/// What the memory is for, and how much there may be; in the wide form only.
pub const MEMORY: [Column; 4] = [
    ("index mem", |m| size(m.figures.index_memory_bytes)),
    ("cache mem", |m| size(m.figures.cache_memory_bytes)),
    ("buffers", |m| size(m.figures.buffer_memory_bytes)),
    ("budget", |m| size(m.figures.memory_budget)),
];

/// Deduplication; in the wide form only.
pub const SETTLE_COLUMNS: [Column; 9] = [
    ("data", |m| size(m.figures.data_bytes)),
    ("settled", |m| size(m.figures.settled_bytes)),
    ("unique", |m| size(m.figures.unique_bytes)),
    ("enc. from", |m| size(m.figures.encoded_from_bytes)),
    ("encoded", |m| size(m.figures.encoded_bytes)),
    ("zeros", |m| size(m.figures.zero_bytes)),
    ("to settle", |m| size(m.figures.settle_backlog_bytes)),
    ("chunks", |m| count(m.figures.indexed_chunks)),
    ("chunk mem", |m| size(m.figures.chunk_index_memory_bytes)),
];

/// The index, stage by stage; in the wide form only.
pub const INDEX: [Column; 23] = [
    ("new records", |m| size(m.figures.index.memtable_bytes)),
    ("compressed", |m| size(m.figures.index.buffer_bytes)),
    ("cached", |m| size(m.figures.index.cache_bytes)),
    ("regions", |m| size(m.figures.index.region_bytes)),
    ("known", |m| size(m.figures.index.coverage_bytes)),
    ("tables", |m| count(m.figures.index.tables)),
    ("runs", |m| count(m.figures.index.runs)),
    ("in tables", |m| count(m.figures.index.table_records)),
    ("B/record", |m| {
        let each = m.figures.index_bytes_per_record;
        each.map_or_else(|| String::from("-"), |each| format!("{each:.2}"))
    }),
    ("puts", |m| count(m.figures.index.puts)),
    ("seals", |m| count(m.figures.index.sealed)),
    ("flushes", |m| count(m.figures.index.flushes)),
    ("merges", |m| count(m.figures.index.compactions)),
    ("passed", |m| count(m.figures.index.blocks_passed)),
    ("decoded", |m| count(m.figures.index.blocks_merged)),
    ("idx written", |m| size(m.figures.index.bytes_written)),
    ("stalled", |m| {
        format!("{:.1} s", m.figures.index.stall_nanos as f64 / 1e9)
    }),
    ("unlooked", |m| {
        let index = &m.figures.index;
        share(
            index.coverage_hits,
            index.coverage_hits + index.coverage_misses,
        )
    }),
    ("gets", |m| count(m.figures.index.gets)),
    ("found", |m| count(m.figures.index.records_found)),
    ("in cache", |m| {
        share(m.figures.index.cache_hits, m.figures.index.blocks_asked)
    }),
    ("idx reads", |m| count(m.figures.index.rounds)),
    ("idx read", |m| size(m.figures.index.bytes_read)),
];

/// Rows of writes that are kept as patterns, in place of their extents; in the wide form only.
pub const PATTERNS: [Column; 5] = [
    ("stand for", |m| known(m.figures.pattern_extents, count)),
    ("pat bytes", |m| known(m.figures.pattern_bytes, size)),
    ("folded", |m| count(m.figures.traffic.folded)),
    ("folded bytes", |m| size(m.figures.traffic.folded_bytes)),
    ("questions", |m| count(m.figures.traffic.maps)),
];

/// What it does.
pub const ACTIVITY_COLUMNS: [Column; 14] = [
    ("open", |m| count(m.figures.open_files)),
    ("reads/s", |m| rate_text(m.rates.reads)),
    ("read", |m| bytes(m.rates.read_bytes)),
    ("writes/s", |m| rate_text(m.rates.writes)),
    ("written", |m| bytes(m.rates.written_bytes)),
    ("other/s", |m| rate_text(m.rates.others)),
    ("mount", |m| count(m.figures.working)),
    ("served", |m| count(m.figures.serving)),
    ("sent", |m| count(m.figures.asking)),
    ("locks", |m| count(m.figures.lock_waits)),
    ("flush", |m| count(m.figures.flushing)),
    ("clean", |m| count(m.figures.cleaning)),
    ("outbox", |m| known(m.figures.undelivered, count)),
    ("unpub", |m| count(m.figures.unpublished)),
];

/// What was asked together; in the wide form only.
pub const TOTAL_COLUMNS: [Column; 3] = [
    ("combined", |m| count(m.figures.combined)),
    ("team calls", |m| count(m.figures.team_calls)),
    ("failed", |m| count(m.figures.team_failures)),
];

/// What was fetched before it was read; in the wide form only.
pub const PREFETCH_COLUMNS: [Column; 7] = [
    ("predicted", |m| count(m.figures.prefetch.predicted)),
    ("right", |m| count(m.figures.prefetch.right)),
    ("ahead hits", |m| count(m.figures.prefetch.hits)),
    ("fetched", |m| size(m.figures.prefetch.fetched_bytes)),
    ("used", |m| size(m.figures.prefetch.used_bytes)),
    ("wasted", |m| size(m.figures.prefetch.wasted_bytes)),
    ("held", |m| size(m.figures.prefetch.held_bytes)),
];
