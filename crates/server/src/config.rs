//! Settings of a service, with their defaults. The CLI fills this from file, environment and flags.
use crate::prefetch_config::PrefetchConfig;
use crate::{CodecConfig, CodecWhen, Error, IndexConfig, Member, Result, SettleConfig};
use forebay_data::{DiskReserve, LogStoreOptions, SETTLE_RESERVE};
use forebay_storage::{Durability, Options};
use std::sync::Arc;
use std::time::Duration;

/// When other nodes see a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Consistency {
    /// After the writer's fsync or close.
    Commit,
    /// When the write returns.
    Posix,
}

/// Settings of a service; sizes in bytes.
#[derive(Debug, Clone)]
pub struct Config {
    /// Embedded node servers.
    pub nodes: u16,
    /// What survives which crash.
    pub durability: Durability,
    /// When other nodes see a write.
    pub consistency: Consistency,
    /// Most file data a member stores; `None`: what the disk has.
    pub quota: Option<u64>,
    /// Memory budget of one member, caches and buffers together.
    pub memory: u64,
    /// A request to another member fails after this long.
    pub deadline: Duration,
    /// Commits fold rows of writes to patterns. Files that have patterns stay as they are without it too.
    pub patterns: bool,
    /// The index.
    pub index: IndexConfig,
    /// What is fetched before it is asked for.
    pub prefetch: PrefetchConfig,
    /// Deduplication of what is stored.
    pub settle: SettleConfig,
    /// Encoding of what is stored.
    pub codec: CodecConfig,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            nodes: 1,
            durability: Durability::Process,
            consistency: Consistency::Commit,
            quota: None,
            memory: 192 << 20,
            deadline: Duration::from_secs(10),
            patterns: true,
            index: IndexConfig::default(),
            prefetch: PrefetchConfig::default(),
            settle: SettleConfig::default(),
            codec: CodecConfig::default(),
        }
    }
}

/// The least memory a member works with, bytes.
pub const LEAST_MEMORY: u64 = 16 << 20;

impl Config {
    /// # Errors
    /// `Refused`, naming the setting.
    pub fn check(&self) -> Result<()> {
        if self.memory < LEAST_MEMORY {
            return Err(Error::Refused(format!(
                "`memory` is {} bytes; a member needs at least {} MiB",
                self.memory,
                LEAST_MEMORY >> 20
            )));
        }
        let checked = self.index.check();
        let checked = checked.and_then(|()| self.prefetch.check(self.memory));
        checked.map_err(|(name, text)| Error::Refused(format!("`{name}`: {text}")))?;
        if self.codec.when == CodecWhen::Settle && !self.settle.enabled {
            return Err(Error::Refused(
                "`codec_when` is settle and `settle` is off, so nothing would ever be encoded; set `settle` to auto".into(),
            ));
        }
        self.index.fits(self.memory).map_err(Error::Refused)
    }

    /// The key-value store's share of the memory: an eighth for its cache, and a 32nd for each MemTable (one being
    /// filled, up to three waiting for the disk).
    pub(crate) fn store_options(&self) -> Options {
        Options {
            durability: self.durability,
            memtable_bytes: (self.memory / 32) as usize,
            cache_bytes: (self.memory / 8) as usize,
            ..Options::default()
        }
    }

    /// The log store's share: a sixth for tails of logs, and a quarter of that for decoded spans and containers; a 16th for what
    /// settling knows of chunks. What is left is the delegate's (pending writes, windows, what is fetched ahead). `disk`: its size, if it
    /// says so; bytes.
    pub(crate) fn log_store_options(
        &self,
        member: Member,
        reserve: Arc<DiskReserve>,
        disk: Option<u64>,
    ) -> LogStoreOptions {
        let disk = disk.map(|total| total / u64::from(self.nodes.max(1)));
        let room = self.quota.or(disk);
        LogStoreOptions {
            settle: self.settle.options(self.memory, room),
            member,
            quota: self.quota,
            buffer_bytes: self.memory / 6,
            sync_each_flush: self.durability == Durability::Disk,
            reserve,
            codec_when: self.codec.when,
            background: true,
        }
    }

    /// For decoded patterns of the files that a member owns: a 32nd.
    pub(crate) fn pattern_memory(&self) -> u64 {
        self.memory / 32
    }

    /// The disk space that the `members` of this process leave to their records: for each as much as two MemTables and their
    /// log may need until they are in tables; and to settling, which needs some before it makes some.
    pub(crate) fn disk_reserve(&self, members: u16) -> DiskReserve {
        let store = self.store_options();
        let settling = if self.settle.enabled {
            SETTLE_RESERVE
        } else {
            0
        };
        let each = 2 * store.memtable_bytes as u64 + store.wal_reserve_bytes + settling;
        DiskReserve::new(u64::from(members) * each)
    }
}
