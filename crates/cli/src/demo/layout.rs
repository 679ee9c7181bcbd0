//! The shared file of the demo: which record lies where, and whose it is.
//!
//! Records of seven sizes follow one another, round and round; record `k` is written by writer `k mod writers` and read
//! by reader `k mod readers`. Seven has no common factor with 16 or 6, so every process writes, or reads, records of
//! every size.

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
pub const MAX_RECORD_BYTES: usize = 1 << 20;

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
                assert!(record.len > 0 && record.len <= MAX_RECORD_BYTES as u64);
                end += record.len;
            }
            assert_eq!(end, size);
        }
    }
}
