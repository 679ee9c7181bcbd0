//! The cases: chains of checkpoints that are written and read, and an index that is asked for chunks without bytes.
use super::chain::{ChainShape, ChangedBytes};
use crate::harness::Case;

/// The work of a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DedupWork {
    /// A chain is written, settled, and read.
    Files(ChainShape),
    /// The fingerprint index is filled with so many chunks of the chain `chain-inplace`, metadata only.
    Index {
        /// Chunks that it holds at the end.
        chunks: u64,
    },
}

/// Headers of five checkpoints: no two alike by a multiple of anything that a chunk is long.
const HEADERS: &[u64] = &[137, 512, 4113, 9999, 70_001];
/// One half of the changed bytes in long runs, one half in short ones.
const MIXED: ChangedBytes = ChangedBytes::Runs {
    long: 10,
    short: 10,
};

/// Five checkpoints in place.
pub const CHAIN_INPLACE: ChainShape = ChainShape {
    checkpoints: 5,
    changed: MIXED,
    headers: &[],
};

const fn shifted(long: u64, short: u64) -> DedupWork {
    DedupWork::Files(ChainShape {
        checkpoints: 5,
        changed: ChangedBytes::Runs { long, short },
        headers: HEADERS,
    })
}

/// The cases of `dedup`.
pub const CASES: &[Case<DedupWork>] = &[
    Case::new("chain-inplace", DedupWork::Files(CHAIN_INPLACE)),
    Case::new("chain-shifted-256k", shifted(20, 0)),
    Case::new("chain-shifted-4k", shifted(0, 20)),
    Case::large(
        "chain-20",
        DedupWork::Files(ChainShape {
            checkpoints: 20,
            ..CHAIN_INPLACE
        }),
    ),
    Case::new(
        "unique",
        DedupWork::Files(ChainShape {
            changed: ChangedBytes::All,
            ..CHAIN_INPLACE
        }),
    ),
    Case::new("index-64g", DedupWork::Index { chunks: 16 << 20 }),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_chain_changes_a_fifth_and_the_index_has_64_gib() {
        for case in CASES {
            match case.work {
                DedupWork::Files(ChainShape {
                    changed: ChangedBytes::Runs { long, short },
                    ..
                }) => assert_eq!(long + short, 20, "{}", case.name),
                DedupWork::Files(_) => assert_eq!(case.name, "unique"),
                DedupWork::Index { chunks } => assert_eq!(chunks * 4096, 64 << 30),
            }
        }
    }
}
