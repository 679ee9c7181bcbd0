//! The bloom filter of a table: answers "surely not here" without reading a block.
//!
//! ```text
//!  0        4
//!  +--------+------------------------------+
//!  | probes | bits, 8 per byte, low first  |
//!  +--------+------------------------------+
//! ```
//! `probes` bits are set per key, at `h1 + i * h2` modulo the number of bits; `h1` and `h2` are the halves of a
//! 64-bit hash that is part of the format. Ten bits a key and seven probes: 1 % false alarms.
use crate::encoding::{u32_at, u64_at};

const BITS_PER_KEY: usize = 10;
const PROBES: u32 = 7;

/// The hash of a key, fixed for ever by the format: multiply and fold, eight bytes at a time.
pub fn hash(key: &[u8]) -> u64 {
    const A: u64 = 0x9e37_79b9_7f4a_7c15;
    const B: u64 = 0xd6e8_feb8_6659_fd93;
    let fold = |x: u64, y: u64| {
        let product = u128::from(x) * u128::from(y);
        product as u64 ^ (product >> 64) as u64
    };
    let mut state = key.len() as u64 ^ B;
    let mut chunks = key.chunks_exact(8);
    for chunk in &mut chunks {
        state = fold(state ^ u64_at(chunk, 0), A) ^ state.rotate_left(29);
    }
    let mut last = [0; 8];
    last[..chunks.remainder().len()].copy_from_slice(chunks.remainder());
    state = fold(state ^ u64::from_le_bytes(last), A) ^ state.rotate_left(29);
    fold(state ^ A, B)
}

/// Builds the filter for keys with these hashes.
pub fn build(hashes: &[u64]) -> Vec<u8> {
    let bytes = (hashes.len() * BITS_PER_KEY).div_ceil(8).max(8);
    let mut out = vec![0; 4 + bytes];
    out[..4].copy_from_slice(&PROBES.to_le_bytes());
    for h in hashes {
        for bit in probes(*h, PROBES, bytes * 8) {
            out[4 + bit / 8] |= 1 << (bit % 8);
        }
    }
    out
}

/// Whether a key with this hash may be there. A malformed filter answers yes.
pub fn may_contain(filter: &[u8], hash: u64) -> bool {
    if filter.len() < 5 {
        return true;
    }
    let bits = &filter[4..];
    probes(hash, u32_at(filter, 0).min(64), bits.len() * 8)
        .all(|bit| bits[bit / 8] & (1 << (bit % 8)) != 0)
}

fn probes(hash: u64, probes: u32, bits: usize) -> impl Iterator<Item = usize> {
    let (h1, h2) = (hash & 0xffff_ffff, (hash >> 32) | 1);
    (0..u64::from(probes)).map(move |i| ((h1 + i * h2) % bits as u64) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_key_is_missed_and_few_strangers_pass() {
        let key = |i: u64| [&[3u8][..], &i.to_be_bytes()].concat();
        let hashes: Vec<u64> = (0..20_000).map(|i| hash(&key(i))).collect();
        let filter = build(&hashes);
        assert!(hashes.iter().all(|h| may_contain(&filter, *h)));
        let wrong = (20_000..40_000)
            .filter(|i| may_contain(&filter, hash(&key(*i))))
            .count();
        assert!(wrong < 600, "{wrong} of 20000 strangers passed");
    }

    #[test]
    fn the_hash_is_part_of_the_format() {
        // Changing these values makes every filter on disk wrong.
        assert_eq!(
            [hash(b""), hash(b"forebay"), hash(b"0123456789abcdef")],
            FIXED
        );
    }

    const FIXED: [u64; 3] = [
        2_110_581_224_273_621_871,
        2_517_390_365_129_443_709,
        16_896_431_436_763_379_427,
    ];

    #[test]
    fn an_empty_filter_holds_nothing_and_a_malformed_one_all() {
        assert!(!may_contain(&build(&[]), hash(b"x")));
        assert!(may_contain(&[1, 2], hash(b"x")));
    }
}
