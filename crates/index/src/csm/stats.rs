//! Statistics of the engine, and the counters behind them.
//!
//! Invariant: every figure is in the one list below, so that none is missing from the sum of several indexes or from where figures
//! are shown.
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! stats {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters since the engine was opened, and sizes; in bytes where not said otherwise.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(default)]
        pub struct Stats {
            $($(#[$doc])* pub $name: u64,)*
        }

        /// The same, counted by many threads. Sizes stay 0 here.
        #[derive(Debug, Default)]
        pub struct Counters {
            $($(#[$doc])* pub $name: AtomicU64,)*
        }

        impl Counters {
            /// As of now.
            pub fn load(&self) -> Stats {
                Stats { $($name: self.$name.load(Ordering::Relaxed),)* }
            }
        }

        impl Stats {
            /// All figures with their names.
            pub fn figures(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name)),*]
            }

            /// The figures of both together.
            pub fn and(self, other: Stats) -> Stats {
                Stats { $($name: self.$name + other.$name,)* }
            }
        }
    };
}

stats! {
    /// Records put or deleted.
    puts,
    /// MemTables, sealed ones included.
    memtable_bytes,
    /// The compression buffer.
    buffer_bytes,
    /// Blocks of table files that are kept, compressed.
    cache_bytes,
    /// What is known of stored ranges.
    coverage_bytes,
    /// Pieces put or cut that were known to meet nothing stored.
    coverage_hits,
    /// Those for which stored records were read.
    coverage_misses,
    /// Pages of 1 MiB of a file whose records were read to know what is stored there.
    coverage_loads,
    /// Metadata regions of table files that are kept.
    region_bytes,
    /// Table files.
    table_bytes,
    /// Number of these.
    tables,
    /// Records in them.
    table_records,
    /// Sorted runs on disk.
    runs,
    /// MemTables compressed.
    sealed,
    /// Times the buffer was brought to disk.
    flushes,
    /// Merges of runs.
    compactions,
    /// Blocks that merges let through untouched, in memory and on disk.
    blocks_passed,
    /// Blocks that merges decompressed.
    blocks_merged,
    /// Blocks compressed, those of merges included.
    blocks_made,
    /// Written to table files.
    bytes_written,
    /// Nanoseconds that writers waited for room.
    stall_nanos,
    /// Ranges looked up.
    gets,
    /// Extents found for them.
    records_found,
    /// Regions of blocks read from table files, each in one I/O, for whoever waited for some of them.
    rounds,
    /// Blocks in these regions.
    blocks_read,
    /// Blocks of table files that lookups and scans needed, counted once for each of them.
    blocks_asked,
    /// Of these, found in memory.
    cache_hits,
    /// Bytes of regions read.
    bytes_read,
}

/// Adds to a counter.
pub fn count(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}

impl Stats {
    /// What a record takes in table files, bytes. `None`: there are no records there.
    pub fn bytes_per_record(&self) -> Option<f64> {
        (self.table_records > 0).then(|| self.table_bytes as f64 / self.table_records as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_two_are_added_one_by_one() {
        let a = Stats {
            puts: 1,
            table_bytes: 30,
            table_records: 20,
            ..Stats::default()
        };
        let b = Stats {
            puts: 2,
            stall_nanos: 5,
            ..Stats::default()
        };
        let both = a.and(b);
        for (((name, a), (_, b)), (_, sum)) in
            a.figures().into_iter().zip(b.figures()).zip(both.figures())
        {
            assert_eq!(a + b, sum, "{name}");
        }
        assert_eq!(both.bytes_per_record(), Some(1.5));
        assert_eq!(b.bytes_per_record(), None);
    }
}
