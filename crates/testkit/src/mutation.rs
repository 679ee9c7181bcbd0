//! Mutations of bytes, and a loop that feeds them to a decoder.
//!
//! Each round has a seed of its own, one more than the round before, from which all its draws come. A round that fails prints
//! its seed; with `FOREBAY_SEED` set to it, that round is the first. A short run is a number of rounds; with `SOAK` it lasts
//! [`fuzz_time`], and says at its end how many rounds there were.
use crate::random::Random;
use crate::seeds::{asked_seed, fuzz_time, is_soak, with_seed};
use std::time::Instant;

impl Random {
    /// Flips up to `most` different bits. Returns how many.
    pub fn flip(&mut self, bytes: &mut [u8], most: usize) -> usize {
        let mut flipped = Vec::new();
        for _ in 0..1 + self.index(most) {
            let bit = self.index(bytes.len() * 8);
            if !bytes.is_empty() && !flipped.contains(&bit) {
                bytes[bit / 8] ^= 1 << (bit % 8);
                flipped.push(bit);
            }
        }
        flipped.len()
    }

    /// Changes the bytes in some of the ways that decoders get wrong: bits, bytes, lengths, repetitions, parts of another input.
    pub fn mutate(&mut self, bytes: &mut Vec<u8>, other: &[u8]) {
        const TELLING: [u8; 8] = [0, 1, 0x7f, 0x80, 0x81, 0xfe, 0xff, 0x20];
        for _ in 0..1 + self.index(4) {
            let at = self.index(bytes.len() + 1);
            let len = self.index((bytes.len() - at).min(24) + 1);
            match self.index(8) {
                0 => {
                    self.flip(bytes, 3);
                }
                1 if at < bytes.len() => bytes[at] = TELLING[self.index(TELLING.len())],
                2 if at < bytes.len() => bytes[at] = self.index(256) as u8,
                3 => bytes.truncate(at),
                4 => drop(bytes.drain(at..at + len)),
                5 => {
                    let copy = bytes[at..at + len].to_vec();
                    let to = self.index(bytes.len() + 1);
                    bytes.splice(to..to, copy);
                }
                6 => {
                    let from = self.index(other.len() + 1);
                    let to = (from + self.index(24)).min(other.len());
                    bytes.splice(at..at + len, other[from..to].iter().copied());
                }
                // A number larger than any.
                _ => {
                    let huge = [0xff; 9];
                    let n = self.index(huge.len() + 1);
                    bytes.splice(at..at + len, huge[..n].iter().copied().chain([1]));
                }
            }
        }
    }
}

/// Feeds mutations of the corpus to `decode`, with a generator for its own draws: `rounds` of them, or for minutes with `SOAK`.
pub fn fuzz(
    name: &str,
    rounds: u64,
    corpus: &[Vec<u8>],
    decode: impl FnMut(&mut Random, &[u8], Vec<u8>),
) {
    fuzz_at_least(name, rounds, 0, corpus, decode);
}

/// The same; with `SOAK` for minutes, and at least `soak_rounds` of them.
pub fn fuzz_at_least(
    name: &str,
    rounds: u64,
    soak_rounds: u64,
    corpus: &[Vec<u8>],
    mut decode: impl FnMut(&mut Random, &[u8], Vec<u8>),
) {
    let seed = asked_seed().unwrap_or(0);
    let end = is_soak().then(|| Instant::now() + fuzz_time());
    let mut round = 0u64;
    loop {
        let more = match end {
            Some(end) => round < soak_rounds || !round.is_multiple_of(1024) || Instant::now() < end,
            None => round < rounds,
        };
        if !more {
            break;
        }
        let seed = seed.wrapping_add(round);
        with_seed(name, seed, || {
            let mut random = Random::new(seed);
            let first = &corpus[random.index(corpus.len())];
            let other = &corpus[random.index(corpus.len())];
            let mut bytes = first.clone();
            random.mutate(&mut bytes, other);
            decode(&mut random, first, bytes);
        });
        round += 1;
    }
    println!("{name}: {round} mutations from seed {seed}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_replays_and_seeds_differ() {
        let made = |seed| {
            let mut bytes = (0..50).collect();
            Random::new(seed).mutate(&mut bytes, &[7; 30]);
            bytes
        };
        assert_eq!(made(3), made(3));
        let different: std::collections::BTreeSet<Vec<u8>> = (0..200).map(made).collect();
        assert!(different.len() > 150, "{}", different.len());
        let mut bytes = [0; 9];
        let flipped = Random::new(1).flip(&mut bytes, 5);
        let set: u32 = bytes.iter().map(|b| b.count_ones()).sum();
        assert_eq!(set as usize, flipped);
    }
}
