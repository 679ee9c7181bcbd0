//! Settings and counters of a store.
use std::time::Duration;

/// When a batch counts as safe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// Kept in memory until flushed: there is no log, and `sync` flushes.
    None,
    /// Survives a killed process: handed to the operating system before `apply` returns.
    Process,
    /// On disk before `apply` returns.
    Disk,
}

/// Settings of a store. Sizes in bytes.
#[derive(Debug, Clone)]
pub struct Options {
    /// When a batch counts as safe.
    pub durability: Durability,
    /// A MemTable is sealed and flushed at this size. Up to two sealed ones wait.
    pub memtable_bytes: usize,
    /// A log file is ended, and what is in memory sealed, at this size. With two of them after it, engines are asked to
    /// bring what they hold into files.
    pub wal_bytes: u64,
    /// Budget of the block cache.
    pub cache_bytes: usize,
    /// Target size of a block before compression.
    pub block_bytes: usize,
    /// Room kept for logging deletes on a full disk; 0 for none.
    pub wal_reserve_bytes: u64,
    /// Room kept for the tables that those deletes are flushed and compacted to; 0 for none. At least
    /// twice `memtable_bytes`, for tables may keep all of it [twice](crate::Keyspace::FIRST_MIRRORED), or a full disk may not get empty again by
    /// deletes alone.
    pub table_reserve_bytes: u64,
    /// Tables in level 0 that start a compaction.
    pub level0_tables: usize,
    /// Size of level 1; each deeper level may be ten times larger.
    pub level1_bytes: u64,
    /// After this time without a batch, the log's batches are flushed to table files and its files are removed, if they have at least a 32nd of
    /// `wal_bytes`. Needs `background`.
    pub idle: Duration,
    /// Flush and compact in threads of their own. If not, the putting thread does both at the limits, so
    /// that a single-threaded run makes the same I/O calls each time.
    pub background: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            durability: Durability::Process,
            memtable_bytes: 8 << 20,
            wal_bytes: 32 << 20,
            cache_bytes: 8 << 20,
            block_bytes: 4096,
            wal_reserve_bytes: 1 << 20,
            table_reserve_bytes: 18 << 20,
            level0_tables: 4,
            level1_bytes: 32 << 20,
            idle: Duration::from_secs(10),
            background: true,
        }
    }
}

/// Counters of a store, all since it was opened; sizes in bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stats {
    /// Memory of all MemTables, sealed ones included (estimated upwards).
    pub memtable_bytes: u64,
    /// Sealed MemTables that wait to be written to table files.
    pub sealed: u64,
    /// Memory of the block cache.
    pub cache_bytes: u64,
    /// Memory of the open tables' filters and metadata regions.
    pub table_memory_bytes: u64,
    /// Size of all table files in use by the newest state.
    pub table_bytes: u64,
    /// Number of those files.
    pub tables: u64,
    /// Size of all log files, without the reserve.
    pub wal_bytes: u64,
    /// Changes applied (deletes count).
    pub puts: u64,
    /// Lookups.
    pub gets: u64,
    /// MemTables written to table files.
    pub flushes: u64,
    /// Merges of table files.
    pub compactions: u64,
    /// Bytes written to log and table files.
    pub bytes_written: u64,
    /// Time that puts waited for flushes and compactions (the explicit limits), nanoseconds.
    pub stall_nanos: u64,
}
