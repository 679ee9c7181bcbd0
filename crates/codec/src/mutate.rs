//! Mutations of bytes, and a loop that feeds them to a decoder: the fuzzers of this crate and of others. For tests only.
//!
//! All draws come from the seed, so a seed replays a run. A short run is a number of rounds; with `SOAK=1` it lasts ten minutes (or
//! `FUZZ_SECONDS`), and says at its end how many rounds there were. `FUZZ_SEED` is the first seed, 0 if it is not set.
use std::time::{Duration, Instant};

/// Numbers from a seed (SplitMix64).
#[derive(Debug, Clone)]
pub struct Dice(pub u64);

impl Dice {
    /// A number below `n`; 0 for 0.
    pub fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % (n.max(1) as u64)) as usize
    }

    /// Flips up to `most` different bits. Returns how many.
    pub fn flip(&mut self, bytes: &mut [u8], most: usize) -> usize {
        let mut flipped = Vec::new();
        for _ in 0..1 + self.below(most) {
            let bit = self.below(bytes.len() * 8);
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
        for _ in 0..1 + self.below(4) {
            let at = self.below(bytes.len() + 1);
            let len = self.below((bytes.len() - at).min(24) + 1);
            match self.below(8) {
                0 => {
                    self.flip(bytes, 3);
                }
                1 if at < bytes.len() => bytes[at] = TELLING[self.below(TELLING.len())],
                2 if at < bytes.len() => bytes[at] = self.below(256) as u8,
                3 => bytes.truncate(at),
                4 => drop(bytes.drain(at..at + len)),
                5 => {
                    let copy = bytes[at..at + len].to_vec();
                    let to = self.below(bytes.len() + 1);
                    bytes.splice(to..to, copy);
                }
                6 => {
                    let from = self.below(other.len() + 1);
                    let to = (from + self.below(24)).min(other.len());
                    bytes.splice(at..at + len, other[from..to].iter().copied());
                }
                // A number larger than any.
                _ => {
                    let huge = [0xff; 9];
                    let n = self.below(huge.len() + 1);
                    bytes.splice(at..at + len, huge[..n].iter().copied().chain([1]));
                }
            }
        }
    }
}

/// Feeds mutations of the corpus to `decode`, with the dice for its own draws: `rounds` of them, or for minutes with `SOAK=1`.
pub fn fuzz(
    name: &str,
    rounds: u64,
    corpus: &[Vec<u8>],
    mut decode: impl FnMut(&mut Dice, &[u8], Vec<u8>),
) {
    let soak = std::env::var_os("SOAK").is_some_and(|v| v != "0");
    let number = |name| Some(std::env::var(name).ok()?.parse::<u64>());
    let seconds = number("FUZZ_SECONDS").and_then(Result::ok).unwrap_or(600);
    // Other seeds than wanted would find what was found before.
    let seed = match number("FUZZ_SEED") {
        Some(seed) => seed.unwrap_or_else(|e| panic!("FUZZ_SEED is no number: {e}")),
        None => 0,
    };
    let end = soak.then(|| Instant::now() + Duration::from_secs(seconds));
    let mut round = 0u64;
    loop {
        let more = match end {
            Some(end) => !round.is_multiple_of(1024) || Instant::now() < end,
            None => round < rounds,
        };
        if !more {
            break;
        }
        let mut dice = Dice(seed.wrapping_add(round));
        let first = &corpus[dice.below(corpus.len())];
        let other = &corpus[dice.below(corpus.len())];
        let mut bytes = first.clone();
        dice.mutate(&mut bytes, other);
        decode(&mut dice, first, bytes);
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
            Dice(seed).mutate(&mut bytes, &[7; 30]);
            bytes
        };
        assert_eq!(made(3), made(3));
        let different: std::collections::BTreeSet<Vec<u8>> = (0..200).map(made).collect();
        assert!(different.len() > 150, "{}", different.len());
        let mut bytes = [0; 9];
        let flipped = Dice(1).flip(&mut bytes, 5);
        let set: u32 = bytes.iter().map(|b| b.count_ones()).sum();
        assert_eq!(set as usize, flipped);
    }
}
