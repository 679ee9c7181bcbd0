//! What is stored of chains of checkpoints, cut into chunks and kept once each: five checkpoints in a chain, of each of which 20 % changed
//! since the one before. An exact set of fingerprints says what is stored, so the ratios are those of the cutting alone.
//!
//! The least that can be stored of such a chain is (1 + 4 * 0.2) / 5 = 0.36.
use forebay_data::chunk::{AnchorTable, ChunkSize, Cutter};
use forebay_data::fingerprint::{Fingerprint, FingerprintKind};
use forebay_testkit::random::{Random, seeded_bytes};
use forebay_testkit::seeds::count;
use std::collections::HashSet;
use std::sync::Arc;

/// A checkpoint's size; bytes.
fn checkpoint_bytes() -> usize {
    count(16 << 20, 256 << 20)
}

const CHECKPOINTS: usize = 5;
const PIECE: usize = 1 << 20;
const NO_HEADERS: [usize; CHECKPOINTS] = [0; CHECKPOINTS];
const HEADERS: [usize; CHECKPOINTS] = [137, 512, 4113, 9999, 70_001];

/// A store that has nothing but fingerprints.
pub struct Stored {
    table: Option<Arc<AnchorTable>>,
    size: ChunkSize,
    known: HashSet<Fingerprint>,
    pub logical: u64,
    pub stored: u64,
    pub zero: u64,
    pub chunks: u64,
}

impl Stored {
    pub fn new(size: u32, anchored: bool) -> Stored {
        let size = ChunkSize::new(size).unwrap();
        Stored {
            table: anchored.then(|| Arc::new(AnchorTable::new(size, 1 << 20))),
            size,
            known: HashSet::new(),
            logical: 0,
            stored: 0,
            zero: 0,
            chunks: 0,
        }
    }

    /// A log of these parts.
    pub fn add(&mut self, parts: &[&[u8]]) {
        let mut cutter = match &self.table {
            Some(table) => Cutter::anchored(table.clone()),
            None => Cutter::fixed(self.size),
        };
        let mut chunk = |chunk: forebay_data::chunk::Chunk<'_>| {
            let len = chunk.bytes.len() as u64;
            self.logical += len;
            self.chunks += 1;
            if chunk.zero {
                self.zero += len;
            } else if self.known.insert(FingerprintKind::Blake3.of(chunk.bytes)) {
                self.stored += len;
            }
        };
        let mut addr = 0;
        for part in parts {
            for piece in part.chunks(PIECE) {
                cutter.push(addr, piece, &mut chunk);
                addr += piece.len() as u64;
            }
        }
        cutter.finish(&mut chunk);
    }

    fn ratio(&self) -> f64 {
        self.stored as f64 / self.logical as f64
    }
}

/// Changes 20 % of the bytes, in runs of so many at multiples of that.
fn change(bytes: &mut [u8], run: usize, random: &mut Random) {
    let runs = bytes.len() / run;
    let mut order: Vec<usize> = (0..runs).collect();
    for i in 0..runs / 5 {
        let other = i + random.index(runs - i);
        order.swap(i, other);
        let at = order[i] * run;
        let new = seeded_bytes(random.next(), run);
        bytes[at..at + run].copy_from_slice(&new);
    }
}

/// Stored by logical bytes of a chain whose first checkpoint is `first`.
fn chain(mut first: Vec<u8>, headers: [usize; CHECKPOINTS], run: usize, mut stored: Stored) -> f64 {
    let mut random = Random::new(run as u64);
    for (i, header) in headers.into_iter().enumerate() {
        if i > 0 {
            change(&mut first, run, &mut random);
        }
        stored.add(&[&seeded_bytes(1000 + i as u64, header), &first]);
    }
    stored.ratio()
}

/// Prints a row of the table that this module is for, and returns its ratio.
fn case(name: &str, headers: [usize; CHECKPOINTS], run: usize, size: u32, anchored: bool) -> f64 {
    let first = seeded_bytes(7, checkpoint_bytes());
    let ratio = chain(first, headers, run, Stored::new(size, anchored));
    let cut = if anchored { "anchored" } else { "fixed" };
    println!("{name:20} {:>3} KiB {cut:9} {ratio:.4}", size >> 10);
    ratio
}

#[test]
fn a_chain_in_place_stores_what_changed() {
    for run in [256 << 10, 4 << 10] {
        let name = format!("chain-inplace-{}k", run >> 10);
        assert!(case(&name, NO_HEADERS, run, 4 << 10, true) <= 0.361);
        assert!(case(&name, NO_HEADERS, run, 4 << 10, false) <= 0.361);
    }
}

#[test]
fn a_chain_behind_headers_of_other_lengths_stores_what_changed_and_the_ends_of_runs() {
    let anchored = case("chain-shifted-256k", HEADERS, 256 << 10, 4 << 10, true);
    assert!(anchored <= 0.38, "{anchored}");
    let fixed = case("chain-shifted-256k", HEADERS, 256 << 10, 4 << 10, false);
    assert!(fixed > 0.9, "{fixed}");
}

#[test]
fn a_chain_behind_headers_that_changes_in_single_pages_is_found_between_them() {
    let anchored = case("chain-shifted-4k", HEADERS, 4 << 10, 4 << 10, true);
    assert!(anchored <= 0.50, "{anchored}");
    let fixed = case("chain-shifted-4k", HEADERS, 4 << 10, 4 << 10, false);
    assert!(fixed > 0.9, "{fixed}");
}

#[test]
fn headers_that_come_after_a_checkpoint_without_one_cost_nothing_more() {
    let headers = [0, 137, 512, 4113, 9999];
    let anchored = case("chain-shifted-4k, 0 first", headers, 4 << 10, 4 << 10, true);
    assert!(anchored <= 0.365, "{anchored}");
}

#[test]
fn larger_chunks_keep_what_changes_in_long_runs() {
    for size in [8 << 10, 16 << 10, 32 << 10, 64 << 10] {
        let inplace = case("chain-inplace-256k", NO_HEADERS, 256 << 10, size, true);
        assert!(inplace <= 0.361, "{inplace}");
        let shifted = case("chain-shifted-256k", HEADERS, 256 << 10, size, true);
        assert!(shifted <= 0.42, "{shifted}");
    }
}
