//! Corrects a single flipped bit of a block with a checksum: the difference of the CRC-32C tells which bit it was.
//!
//! CRC-32C is linear: the difference between the checksum that a block should have and the one that it has depends on the
//! places of the wrong bits only, not on the block. Of one wrong bit it is `x^(32 + n)` modulo the polynomial, `n` the number
//! of bits after it. These powers repeat only after 2^31 - 1 steps, so in a block up to [`MAX_CORRECTED_BYTES`] each place has
//! a difference of its own, and so has each bit of the stored checksum (a difference with one bit). The search steps through
//! the powers from the last bit of the block to the first: one shift a bit, a 30,000th of a second for 4 KiB, and only where a
//! check has failed.
//!
//! # What other damage does
//! - *Two flipped bits, or any even number*, are never taken for one: the polynomial has the factor `x + 1`, so differences
//!   tell odd from even. Three flipped bits can be taken for one, with twice the chance that follows.
//! - *Anything else* (an overwritten sector) has an odd number of wrong bits in half of the cases, and then some bit fits by
//!   chance: 32,768 differences of 2^32 fit a block of 4 KiB, which is 1 in 131,072, and 1 in 8,192 at [`MAX_CORRECTED_BYTES`].
//!
//! So a corrected block is used only if it then also decodes as it must: to its end, in key order, with the bounds or the count
//! that are recorded elsewhere. Corrections are reported like all damage ([`PossibleLoss::Corrected`](crate::PossibleLoss::Corrected)). Blocks
//! of tables and records of the log are corrected, also while a store is in use: otherwise one flipped bit would make
//! everything in its block unreadable. File data has no structure that could confirm a correction, so it is never corrected.
//!
//! A log record whose checksum is right after one flip was written whole, so no part of an unfinished write comes back with it.
//! Where a crash may have torn the record instead, a store that is opened for use corrects short ones only: of torn records of
//! 4 KiB, 1 in 131,072 fits by chance, and must then also decode.

/// The longest block that is corrected, bytes.
pub const MAX_CORRECTED_BYTES: usize = 64 << 10;

/// The polynomial of CRC-32C, its highest power in bit 0.
const POLYNOMIAL: u32 = 0x82F6_3B78;

/// The one bit that is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlippedBit {
    /// In this byte of the block.
    InBlock {
        /// Counted from the first.
        byte: usize,
        /// Of its eight bits.
        mask: u8,
    },
    /// In the stored checksum.
    InChecksum {
        /// Of its 32 bits.
        mask: u32,
    },
}

/// The one bit whose flip gives a block of `length` bytes, which has the checksum `found`, the stored checksum `expected`. `None`: there is none,
/// nothing is wrong, or the block is longer than [`MAX_CORRECTED_BYTES`].
pub fn flipped_bit(length: usize, expected: u32, found: u32) -> Option<FlippedBit> {
    let difference = expected ^ found;
    if difference == 0 || length > MAX_CORRECTED_BYTES {
        return None;
    }
    if difference.is_power_of_two() {
        return Some(FlippedBit::InChecksum { mask: difference });
    }
    let mut power = POLYNOMIAL;
    for byte in (0..length).rev() {
        for bit in (0..8).rev() {
            if power == difference {
                let mask = 1 << bit;
                return Some(FlippedBit::InBlock { byte, mask });
            }
            power = (power >> 1) ^ (POLYNOMIAL & (power & 1).wrapping_neg());
        }
    }
    None
}

/// Flips the one bit of `block` that makes its checksum `expected`; which byte it is in. `None`: nothing was changed. What it is by its structure is to be
/// checked by the caller. A checksum that is wrong itself must be known by other means, so it is not looked for.
pub fn correct(block: &mut [u8], expected: u32) -> Option<usize> {
    let found = forebay_checksum::crc32c(block);
    match flipped_bit(block.len(), expected, found)? {
        FlippedBit::InBlock { byte, mask } => {
            block[byte] ^= mask;
            Some(byte)
        }
        FlippedBit::InChecksum { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::block::{Block, Entry, encode};
    use proptest::prelude::*;

    fn flip(block: &mut [u8], bit: usize) {
        block[bit / 8] ^= 1 << (bit % 8);
    }

    proptest! {
        #[test]
        fn every_single_flip_is_found(
            block in proptest::collection::vec(any::<u8>(), 1..5000), bit in any::<proptest::sample::Index>(), wrong in 0u32..32,
        ) {
            let sum = forebay_checksum::crc32c(&block);
            let bit = bit.index(block.len() * 8);
            let mut flipped = block.clone();
            flip(&mut flipped, bit);
            prop_assert_eq!(correct(&mut flipped, sum), Some(bit / 8));
            prop_assert_eq!(&flipped, &block);
            let mask = 1 << wrong;
            prop_assert_eq!(flipped_bit(block.len(), sum ^ mask, sum), Some(FlippedBit::InChecksum { mask }));
            prop_assert_eq!(flipped_bit(block.len(), sum, sum), None);
        }

        #[test]
        fn two_flips_are_never_taken_for_one(
            block in proptest::collection::vec(any::<u8>(), 2..5000), bits in any::<[proptest::sample::Index; 2]>(),
        ) {
            let sum = forebay_checksum::crc32c(&block);
            let bits = bits.map(|bit| bit.index(block.len() * 8));
            prop_assume!(bits[0] != bits[1]);
            let mut flipped = block.clone();
            bits.iter().for_each(|bit| flip(&mut flipped, *bit));
            prop_assert_eq!(flipped_bit(block.len(), sum, forebay_checksum::crc32c(&flipped)), None);
        }

        #[test]
        fn other_damage_that_passes_for_one_flip_in_rows_is_not_met(
            values in proptest::collection::vec(any::<u64>(), 10..100), at in any::<proptest::sample::Index>(), garbage in any::<[u8; 32]>(),
        ) {
            let keys: Vec<[u8; 8]> = (0..values.len() as u64).map(|k| (k * 7).to_be_bytes()).collect();
            let values: Vec<[u8; 8]> = values.iter().map(|v| v.to_be_bytes()).collect();
            let rows: Vec<Entry<'_>> = keys.iter().zip(&values).map(|(k, v)| (&k[..], Some(&v[..]))).collect();
            let mut block = Vec::new();
            encode(&rows, &mut block);
            let sum = forebay_checksum::crc32c(&block);
            let mut damaged = block.clone();
            let at = at.index(block.len() - garbage.len());
            damaged[at..at + garbage.len()].copy_from_slice(&garbage);
            prop_assume!(damaged != block);
            if correct(&mut damaged, sum).is_some() {
                // By the chance above; it must then fail by its structure, or be what was written.
                let rows = Block::decode(&damaged);
                let ends = rows.filter(|r| r.key(0) == keys[0] && r.key(r.len() - 1) == keys[keys.len() - 1]);
                prop_assert!(ends.is_none() || damaged == block);
            }
        }
    }

    #[test]
    fn all_bits_of_the_longest_block_have_differences_of_their_own() {
        let mut seen = std::collections::HashSet::new();
        let mut power = POLYNOMIAL;
        for _ in 0..MAX_CORRECTED_BYTES * 8 {
            assert!(!power.is_power_of_two() && seen.insert(power));
            power = (power >> 1) ^ (POLYNOMIAL & (power & 1).wrapping_neg());
        }
        assert_eq!(flipped_bit(MAX_CORRECTED_BYTES + 1, 1, 2), None);
    }
}
