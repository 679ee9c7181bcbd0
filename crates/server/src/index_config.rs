//! Settings of the index as people give them, and what they become.
//!
//! Invariant: what [`IndexConfig::check`] accepts, the index accepts. Settings may change between starts: every block and table
//! records its own size.
pub use forebay_index::Alpha;
use forebay_index::Settings;
use std::ops::RangeInclusive;

/// Settings of each member's index; sizes in bytes. What is `None` is a share of the member's memory.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct IndexConfig {
    /// The least locality factor of blocks that are read at once.
    pub alpha: Alpha,
    /// A block before compression.
    pub block: u64,
    /// Blocks of a table file.
    pub table_blocks: u64,
    /// A MemTable is sealed at this size. `None`: a 64th of the memory.
    pub memtable: Option<u64>,
    /// The compression buffer is brought to disk at this size. `None`: a 16th.
    pub buffer: Option<u64>,
    /// Compressed blocks of tables that are kept, and their metadata regions. `None`: an eighth.
    pub cache: Option<u64>,
    /// What is known of stored ranges, so that puts need not look. `None`: a 64th.
    pub coverage: Option<u64>,
}

impl Default for IndexConfig {
    fn default() -> IndexConfig {
        IndexConfig {
            alpha: Alpha::default(),
            block: 4096,
            table_blocks: 256,
            memtable: None,
            buffer: None,
            cache: None,
            coverage: None,
        }
    }
}

/// MemTables in memory at once: one being filled, up to three being compressed.
const MEMTABLES: u64 = 4;
const BLOCK_BYTES_RANGE: RangeInclusive<u64> = 512..=1 << 20;
const TABLE_BLOCKS: RangeInclusive<u64> = 1..=65_536;
/// The most a table's blocks hold before compression: a table is written from memory.
const MAX_TABLE_BYTES: u64 = 64 << 20;
/// The least of a budget.
const MIN_BUDGET: u64 = 64 << 10;

impl IndexConfig {
    /// Whether each is possible by itself. The error names the setting.
    ///
    /// # Errors
    /// What is wrong, and what to write.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        if !BLOCK_BYTES_RANGE.contains(&self.block) {
            let text = format!(
                "{} bytes are no size of a block; write 512 to 1MiB",
                self.block
            );
            return Err(("index_block", text));
        }
        if !TABLE_BLOCKS.contains(&self.table_blocks) {
            let text = format!(
                "a table file cannot have {} blocks; write 1 to {}",
                self.table_blocks,
                TABLE_BLOCKS.end()
            );
            return Err(("index_table_blocks", text));
        }
        let budgets = [
            ("index_memtable", self.memtable),
            ("index_buffer", self.buffer),
            ("index_cache", self.cache),
            ("index_coverage", self.coverage),
        ];
        for (name, budget) in budgets {
            if let Some(bytes) = budget.filter(|bytes| *bytes < MIN_BUDGET) {
                let text =
                    format!("{bytes} bytes are too few; write auto, or a size from 64KiB on");
                return Err((name, text));
            }
        }
        Ok(())
    }

    /// Whether they fit each other, and a member of this much memory.
    ///
    /// # Errors
    /// What is wrong, and what to write.
    pub fn fits(&self, memory: u64) -> Result<(), String> {
        if self.table_blocks.saturating_mul(self.block) > MAX_TABLE_BYTES {
            return Err(format!(
                "`index_table_blocks` is {}, too many blocks of {} bytes (`index_block`) for a table file; write at most {}",
                self.table_blocks,
                self.block,
                MAX_TABLE_BYTES / self.block.max(1)
            ));
        }
        let settings = self.settings(memory);
        let all = MEMTABLES
            .saturating_mul(settings.memtable_bytes as u64)
            .saturating_add(settings.buffer_bytes as u64)
            .saturating_add(settings.cache_bytes as u64)
            .saturating_add(settings.coverage_bytes as u64);
        if all <= memory / 2 {
            return Ok(());
        }
        Err(format!(
            "the index would take {all} bytes (four times `index_memtable`, `index_buffer`, `index_cache` and `index_coverage`), more than half of `memory` ({memory}); \
            make them smaller, or `memory` {} or more",
            all.saturating_mul(2)
        ))
    }

    /// What the index of a member of this much memory is opened with. Its share, unless set otherwise: an eighth for its cache, a
    /// sixteenth for its compression buffer, a 64th for each MemTable (one being filled, up to three being compressed), and a 64th
    /// for what is known of stored ranges.
    pub fn settings(&self, memory: u64) -> Settings {
        let share = |given: Option<u64>, part: u64| {
            let bytes = given.unwrap_or(memory / part);
            usize::try_from(bytes).unwrap_or(usize::MAX)
        };
        Settings {
            block_bytes: self.block as usize,
            table_blocks: self.table_blocks as usize,
            memtable_bytes: share(self.memtable, 64),
            buffer_bytes: share(self.buffer, 16),
            cache_bytes: share(self.cache, 8),
            coverage_bytes: share(self.coverage, 64),
            alpha: self.alpha,
            ..Settings::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_defaults_are_the_papers() {
        let (paper, ours) = (
            Settings::default(),
            IndexConfig::default().settings(192 << 20),
        );
        assert_eq!((ours.block_bytes, ours.table_blocks), (4096, 256));
        assert_eq!(
            (ours.block_bytes, ours.table_blocks),
            (paper.block_bytes, paper.table_blocks)
        );
        assert_eq!(ours.alpha.get(), 0.8);
    }

    #[test]
    fn what_is_wrong_is_named() {
        let usual = IndexConfig::default();
        let wrong = [
            ("index_block", IndexConfig { block: 0, ..usual }),
            (
                "index_block",
                IndexConfig {
                    block: 1 << 30,
                    ..usual
                },
            ),
            (
                "index_table_blocks",
                IndexConfig {
                    table_blocks: 0,
                    ..usual
                },
            ),
            (
                "index_memtable",
                IndexConfig {
                    memtable: Some(0),
                    ..usual
                },
            ),
            (
                "index_buffer",
                IndexConfig {
                    buffer: Some(1),
                    ..usual
                },
            ),
            (
                "index_cache",
                IndexConfig {
                    cache: Some(0),
                    ..usual
                },
            ),
            (
                "index_coverage",
                IndexConfig {
                    coverage: Some(0),
                    ..usual
                },
            ),
        ];
        for (name, config) in wrong {
            let (named, text) = config.check().unwrap_err();
            assert_eq!(named, name);
            assert!(text.contains("write"), "{text}");
        }
        let long = IndexConfig {
            block: 1 << 20,
            ..usual
        };
        assert_eq!(long.check(), Ok(()));
        let text = long.fits(192 << 20).unwrap_err();
        assert!(
            text.contains("`index_table_blocks`") && text.contains("at most 64"),
            "{text}"
        );
        let large = IndexConfig {
            cache: Some(u64::MAX),
            ..usual
        };
        assert!(large.fits(192 << 20).unwrap_err().contains("`index_cache`"));
        let large = IndexConfig {
            coverage: Some(96 << 20),
            ..usual
        };
        let text = large.fits(192 << 20).unwrap_err();
        assert!(text.contains("`index_coverage`"), "{text}");
        assert_eq!(usual.fits(crate::LEAST_MEMORY), Ok(()));
    }

    proptest! {
        #[test]
        fn what_is_accepted_the_index_accepts(
            block in prop_oneof![0u64..2000, any::<u64>()], table_blocks in prop_oneof![0u64..2000, any::<u64>()],
            budgets in any::<[Option<u32>; 4]>(), memory in crate::LEAST_MEMORY..1 << 40,
        ) {
            let [memtable, buffer, cache, coverage] = budgets.map(|b| b.map(u64::from));
            let config = IndexConfig { block, table_blocks, memtable, buffer, cache, coverage, ..IndexConfig::default() };
            if config.check().is_ok() {
                prop_assert_eq!(config.settings(memory).check(), Ok(()));
            }
        }
    }
}
