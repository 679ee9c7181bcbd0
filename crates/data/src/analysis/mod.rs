//! How much deduplication would save on given bytes: they are cut in several ways at once and counted in bounded memory; nothing is
//! stored. The analysis of the paper's Table I.
//!
//! A **cut** is a chunk size, on the fixed grid or on the grid that content chooses ([`chunk`](crate::chunk)). Each cut has its own
//! set of the fingerprints seen: exact while it fits in memory, a sample beyond (`seen`).
use crate::chunk::{AnchorTable, Chunk, ChunkSize, Cutter};
use crate::fingerprint::FingerprintKind;
use seen::SeenFingerprints;
use std::sync::Arc;

mod seen;

/// Memory for the anchors of a cut: about a million, those of 64 GiB of distinct content. Beyond that only a part is kept.
const ANCHOR_BYTES: usize = 4 << 20;

/// A way to cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct CutKind {
    /// The size of chunks.
    pub size: ChunkSize,
    /// On the grid that content chooses, not at multiples of the size.
    pub anchored: bool,
}

/// What was counted; bytes. What is neither zero nor unique is duplicate.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DedupCounts {
    /// All bytes.
    pub logical: u64,
    /// Bytes of chunks of zeros.
    pub zero: u64,
    /// Bytes of chunks that were seen for the first time; an estimate if not all fingerprints are kept.
    pub unique: u64,
    /// Number of chunks.
    pub chunks: u64,
}

impl DedupCounts {
    /// Bytes of chunks that were seen before.
    pub fn duplicate(&self) -> u64 {
        // An estimate may be too large.
        self.logical.saturating_sub(self.zero + self.unique)
    }

    /// The counts since `before`.
    #[must_use]
    pub fn since(&self, before: &DedupCounts) -> DedupCounts {
        DedupCounts {
            logical: self.logical - before.logical,
            zero: self.zero - before.zero,
            unique: self.unique - before.unique,
            chunks: self.chunks - before.chunks,
        }
    }
}

/// The bytes of one file after the other, cut in one way.
#[derive(Debug)]
pub struct CutAnalysis {
    kind: CutKind,
    table: Option<Arc<AnchorTable>>,
    cutter: Cutter,
    tally: DedupTally,
    addr: u64,
}

#[derive(Debug)]
struct DedupTally {
    seen: SeenFingerprints,
    counts: DedupCounts,
}

impl CutAnalysis {
    /// One analysis for each way to cut. Together they take at most `budget` bytes for fingerprints, and each 5 MiB besides. They share
    /// no memory, so each may run in its own thread.
    pub fn of(kinds: &[CutKind], budget: usize) -> Vec<CutAnalysis> {
        // Half the size has twice the chunks: all become samples at about the same number of bytes.
        let share = |kind: &CutKind| 1.0 / kind.size.bytes() as f64;
        let shares: f64 = kinds.iter().map(share).sum();
        let one = |kind: &CutKind| {
            let anchors = || Arc::new(AnchorTable::new(kind.size, ANCHOR_BYTES));
            let table = kind.anchored.then(anchors);
            CutAnalysis {
                kind: *kind,
                cutter: cutter(*kind, table.as_ref()),
                table,
                tally: DedupTally {
                    seen: SeenFingerprints::new((budget as f64 * share(kind) / shares) as usize),
                    counts: DedupCounts::default(),
                },
                addr: 0,
            }
        };
        kinds.iter().map(one).collect()
    }

    /// The next bytes of the file.
    pub fn push(&mut self, bytes: &[u8]) {
        let tally = &mut self.tally;
        self.cutter.push(self.addr, bytes, |chunk| tally.add(chunk));
        self.addr += bytes.len() as u64;
    }

    /// The file ends; another may follow.
    pub fn end_file(&mut self) {
        let tally = &mut self.tally;
        self.cutter.finish(|chunk| tally.add(chunk));
        self.cutter = cutter(self.kind, self.table.as_ref());
        self.addr = 0;
    }

    /// How it cuts.
    pub fn kind(&self) -> CutKind {
        self.kind
    }

    /// What was counted of files that ended, and perhaps of the present one.
    pub fn counts(&self) -> DedupCounts {
        self.tally.counts
    }

    /// One in this many fingerprints is kept; 1: the counts are exact.
    pub fn sampling_rate(&self) -> u64 {
        self.tally.seen.rate()
    }
}

impl DedupTally {
    fn add(&mut self, chunk: Chunk<'_>) {
        let len = chunk.bytes.len() as u64;
        self.counts.logical += len;
        self.counts.chunks += 1;
        match chunk.zero {
            true => self.counts.zero += len,
            false => {
                let fingerprint = FingerprintKind::Blake3.of(chunk.bytes);
                self.counts.unique += len * self.seen.see(&fingerprint);
            }
        }
    }
}

fn cutter(kind: CutKind, table: Option<&Arc<AnchorTable>>) -> Cutter {
    match table {
        Some(table) => Cutter::anchored(table.clone()),
        None => Cutter::fixed(kind.size),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_testkit::random::seeded_bytes;

    fn kinds() -> Vec<CutKind> {
        let sizes = [4096, 65_536].map(|bytes| ChunkSize::new(bytes).unwrap());
        let both = |size| [false, true].map(|anchored| CutKind { size, anchored });
        sizes.into_iter().flat_map(both).collect()
    }

    #[test]
    fn the_second_of_two_equal_files_is_duplicate_and_holes_are_zero() {
        let mut file = seeded_bytes(1, 1 << 20);
        file.resize(2 << 20, 0);
        for mut cut in CutAnalysis::of(&kinds(), 1 << 20) {
            cut.push(&file);
            cut.end_file();
            let first = cut.counts();
            file.chunks(100_000).for_each(|part| cut.push(part));
            cut.end_file();
            let second = cut.counts().since(&first);
            assert_eq!(
                (first.unique, first.zero, first.duplicate()),
                (1 << 20, 1 << 20, 0)
            );
            assert_eq!(
                (second.unique, second.zero, second.duplicate()),
                (0, 1 << 20, 1 << 20)
            );
            assert_eq!(cut.sampling_rate(), 1);
        }
    }

    #[test]
    fn little_memory_makes_an_estimate() {
        let file = seeded_bytes(2, 64 << 20);
        for mut cut in CutAnalysis::of(&kinds()[..2], 100_000) {
            for _ in 0..2 {
                cut.push(&file);
                cut.end_file();
            }
            let counts = cut.counts();
            let half = counts.duplicate() as f64 / counts.logical as f64;
            assert!(
                cut.sampling_rate() > 1 && (0.47..0.53).contains(&half),
                "{half}"
            );
        }
    }
}
