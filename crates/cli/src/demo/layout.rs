//! The shared file of the demo: which record lies where, whose it is, and what its bytes are.
//!
//! Records of seven sizes follow one another, round and round; record `k` is written by writer `k mod writers` and read
//! by reader `k mod readers`. Seven has no common factor with 16 or 6, so every process writes, or reads, records of
//! every size.
//!
//! Invariant: bytes are derived from (seed, offset) alone, so that any reader can verify any byte.

/// Sizes of records in bytes, from 1 KiB to 1 MiB; one is no multiple of anything, as real programs have it.
const SIZES: [u64; 7] = [
    1 << 10,
    64 << 10,
    4 << 10,
    1 << 20,
    47_008,
    256 << 10,
    16 << 10,
];

/// One cycle of all sizes.
const CYCLE: u64 = SIZES[0] + SIZES[1] + SIZES[2] + SIZES[3] + SIZES[4] + SIZES[5] + SIZES[6];

/// The longest record.
pub const LONGEST: usize = 1 << 20;

/// One record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// Where it starts.
    pub offset: u64,
    /// Its length.
    pub len: u64,
}

/// Record `k` of a file of `size` bytes; `None` past the end. The last one is cut at the end.
pub fn record(size: u64, k: u64) -> Option<Record> {
    let nth = (k % SIZES.len() as u64) as usize;
    let offset = (k / SIZES.len() as u64) * CYCLE + SIZES[..nth].iter().sum::<u64>();
    (offset < size).then(|| Record {
        offset,
        len: SIZES[nth].min(size - offset),
    })
}

/// The records of one of `ranks` processes, in file order.
pub fn records(size: u64, rank: u64, ranks: u64) -> impl Iterator<Item = Record> {
    (0..).map_while(move |i| record(size, rank + i * ranks))
}

/// Fills `bytes` with what belongs at `offset`.
pub fn fill(bytes: &mut [u8], seed: u64, offset: u64) {
    let skip = (offset % 8) as usize;
    let head = if skip == 0 {
        0
    } else {
        (8 - skip).min(bytes.len())
    };
    let (first, rest) = bytes.split_at_mut(head);
    first.copy_from_slice(&word(seed, offset / 8).to_le_bytes()[skip..skip + head]);
    let mut index = (offset + head as u64) / 8;
    let mut words = rest.chunks_exact_mut(8);
    for chunk in &mut words {
        chunk.copy_from_slice(&word(seed, index).to_le_bytes());
        index += 1;
    }
    let tail = words.into_remainder();
    tail.copy_from_slice(&word(seed, index).to_le_bytes()[..tail.len()]);
}

/// The offset in the file of the first byte that is wrong, if any.
pub fn verify(bytes: &[u8], seed: u64, offset: u64, scratch: &mut Vec<u8>) -> Option<u64> {
    scratch.resize(bytes.len(), 0);
    fill(scratch, seed, offset);
    if bytes == scratch.as_slice() {
        return None;
    }
    bytes
        .iter()
        .zip(scratch.iter())
        .position(|(a, b)| a != b)
        .map(|at| offset + at as u64)
}

/// The eight bytes at word `index`: a multiplicative hash, cheap enough not to be what is measured.
fn word(seed: u64, index: u64) -> u64 {
    let x = (index ^ seed).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (x ^ (x >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_records_of_all_ranks_cover_the_file_once() {
        for (size, ranks) in [(1, 16), (10_000_000, 16), (10_000_000, 6), (CYCLE * 3, 5)] {
            let mut all: Vec<Record> = (0..ranks).flat_map(|r| records(size, r, ranks)).collect();
            all.sort_by_key(|r| r.offset);
            let mut end = 0;
            for record in all {
                assert_eq!(record.offset, end);
                assert!(record.len > 0 && record.len <= LONGEST as u64);
                end += record.len;
            }
            assert_eq!(end, size);
        }
    }

    #[test]
    fn bytes_depend_on_their_place_only() {
        let mut whole = vec![0; 1000];
        fill(&mut whole, 7, 3);
        for (from, to) in [(0, 1000), (1, 9), (5, 6), (500, 999)] {
            let mut part = vec![0; to - from];
            fill(&mut part, 7, 3 + from as u64);
            assert_eq!(part, whole[from..to]);
        }
        let mut scratch = Vec::new();
        assert_eq!(verify(&whole, 7, 3, &mut scratch), None);
        whole[400] ^= 1;
        assert_eq!(verify(&whole, 7, 3, &mut scratch), Some(403));
        assert!(verify(&whole[..100], 8, 3, &mut scratch).is_some());
    }
}
