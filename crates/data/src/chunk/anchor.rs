//! Anchors: positions in a byte stream that are chosen by the bytes there alone. The same content has the same anchors wherever it
//! lies.
//!
//! Whether a position is an anchor is decided by its window: the [`WINDOW`] bytes that begin there. Two filters run one after the
//! other.
//!
//! 1. A weighted sum of 64 of the window's 16-bit words, each with its own factor. It is computed for many positions at once, in
//!    four steps. Each step adds to the sum of a position the sums of later positions, times a factor. So the sums grow from 4
//!    words to 8, 16 and 64. One position in 4096 of random bytes passes.
//! 2. A hash of the whole window, for the positions that passed. Hashes below 2^60 pass, one in 16. The hash is the anchor's
//!    identity.
//!
//! ```text
//! words in the sum, by offset in the window
//! 0        8        16       24       32                           248    256
//! [8 bytes]         [8 bytes]         [8 bytes]  ...  [8 bytes]
//! ```
//! The sum covers every second group of 8 bytes: every second number of 8 bytes, or two of every four numbers of 4 bytes. That is
//! enough to tell positions apart in an array with few distinct values.
//!
//! Zeros do not pass the first filter, and other repeating bytes mostly do not. If they pass, the same anchor comes again and again;
//! the caller leaves such repeats out (`cutter`).
//!
//! Invariants: whether a position is an anchor depends only on its window, with one exception that bounds the cost. At most
//! [`MOST_HASHED`] positions of a block of 4 KiB are hashed; later ones of the block are not anchors.

#[cfg(target_arch = "x86_64")]
mod avx512;

/// Bytes that decide whether a place is an anchor.
pub const WINDOW: usize = 256;
/// Positions are searched in blocks of this many, at multiples of it in log addresses.
pub const BLOCK: usize = 4096;
/// Positions of a block that are hashed, at most.
const MOST_HASHED: usize = 8;
/// Positions that are checked together: the sums are compared one by one only if the least of the group passes the first filter.
const GROUP: usize = 128;
/// 16-bit words of a block and the window after it, counted at even or at odd positions only.
const WORDS: usize = (BLOCK + WINDOW) / 2;
/// Factors of the four words of 8 bytes.
const WORD_FACTORS: [i16; 4] = [-0x61C9, -0x7A15, -0x3D4D, 1];
/// The second and third step: the distance in words of the sum that is added, and the factor of the sum that it is added to.
const PAIR_STEPS: [(usize, i16); 2] = [(8, 0x27D5), (16, -0x5C2B)];
/// The last step: the distances in words of the sums that are added, and their factors. No factor is 1: so a difference in low bits
/// alone reaches the high bits, which decide.
const LAST_STEPS: [(usize, i16); 4] = [(0, -0x194B), (32, 0x5C8F), (64, 0x34AD), (96, -0x1D8D)];
/// The largest distance of the last step.
const LAST_WORD: usize = 96;
/// Signed sums below this pass the first filter: 16 of 65536.
const LEAST_SUMS: i16 = i16::MIN + 16;
/// Hashes below this pass the second filter: one in 16.
const LEAST_IDS: u64 = 1 << 60;

/// An anchor: where it is, and the hash of what stands there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Anchor {
    /// Its position: a log address, if the caller counts in these.
    pub addr: u64,
    /// Equal for equal windows; evenly distributed in the low 60 bits.
    pub id: u64,
}

/// Finds anchors; keeps the memory that it needs for that.
#[derive(Debug)]
pub struct AnchorFinder {
    /// Sums at the even positions of a block, and at the odd ones. Apart, because neighbours in each array are whole words apart
    /// in the block, as vector instructions need it.
    sums: Box<[[i16; WORDS]; 2]>,
}

impl AnchorFinder {
    /// A new one.
    pub fn new() -> AnchorFinder {
        AnchorFinder {
            sums: Box::new([[0; WORDS]; 2]),
        }
    }

    /// The anchors in a block at `addr`: `bytes` is the block, or a part of one, and the [`WINDOW`] bytes behind its last
    /// place. There are `bytes.len() - WINDOW` places, at most [`BLOCK`].
    pub fn find(&mut self, addr: u64, bytes: &[u8], found: impl FnMut(Anchor)) {
        #[cfg(target_arch = "x86_64")]
        if let Some(block) = bytes.first_chunk()
            && std::is_x86_feature_detected!("avx512bw")
        {
            // SAFETY: the processor has AVX-512BW, as was just found out; the function asks for nothing else.
            return unsafe { avx512::find(addr, block, found) };
        }
        #[cfg(target_arch = "x86_64")]
        if std::is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has AVX2, as was just found out; the function asks for nothing else.
            return unsafe { find_avx2(&mut self.sums, addr, bytes, found) };
        }
        find(&mut self.sums, addr, bytes, found);
    }
}

/// `find`, compiled for AVX2: vectors of 32 bytes, so half as many instructions.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn find_avx2(sums: &mut [[i16; WORDS]; 2], addr: u64, bytes: &[u8], found: impl FnMut(Anchor)) {
    find(sums, addr, bytes, found);
}

#[inline(always)]
fn find(sums: &mut [[i16; WORDS]; 2], addr: u64, bytes: &[u8], found: impl FnMut(Anchor)) {
    let places = bytes.len().saturating_sub(WINDOW);
    match bytes.first_chunk() {
        Some(block) => add_up(block, sums),
        None => {
            // A part of a block; sums after its last position are not used.
            let mut block = [0; BLOCK + WINDOW];
            block[..bytes.len()].copy_from_slice(bytes);
            add_up(&block, sums);
        }
    }
    let mut second = SecondFilter::new(addr, bytes, found);
    for first in (0..places).step_by(GROUP) {
        let mut least = i16::MAX;
        for sums in sums.iter() {
            let part = &sums[first / 2..][..GROUP / 2 + LAST_WORD];
            for i in 0..GROUP / 2 {
                least = least.min(last_sum(part, i));
            }
        }
        if least >= LEAST_SUMS {
            continue;
        }
        // Computed again, side by side, and kept this time.
        let mut last = [[0; GROUP / 2]; 2];
        for (last, sums) in last.iter_mut().zip(sums.iter()) {
            let part = &sums[first / 2..][..GROUP / 2 + LAST_WORD];
            for (i, last) in last.iter_mut().enumerate() {
                *last = last_sum(part, i);
            }
        }
        for place in first..places.min(first + GROUP) {
            if last[place % 2][(place - first) / 2] >= LEAST_SUMS {
                continue;
            }
            if !second.check(place) {
                return;
            }
        }
    }
}

/// The second filter, for the positions of a block in their order.
struct SecondFilter<'a, F> {
    addr: u64,
    bytes: &'a [u8],
    found: F,
    hashed: usize,
}

impl<'a, F: FnMut(Anchor)> SecondFilter<'a, F> {
    fn new(addr: u64, bytes: &'a [u8], found: F) -> SecondFilter<'a, F> {
        SecondFilter {
            addr,
            bytes,
            found,
            hashed: 0,
        }
    }

    /// Hashes the window at `place`, which has passed the first filter. `false`: as many were hashed as may be.
    #[inline]
    fn check(&mut self, place: usize) -> bool {
        if self.hashed == MOST_HASHED {
            return false;
        }
        self.hashed += 1;
        let id = self.bytes[place..].first_chunk().map_or(u64::MAX, hash);
        if id < LEAST_IDS {
            let addr = self.addr + place as u64;
            (self.found)(Anchor { addr, id });
        }
        true
    }
}

/// All steps but the last.
#[inline(always)]
fn add_up(block: &[u8; BLOCK + WINDOW], sums: &mut [[i16; WORDS]; 2]) {
    for (odd, part) in sums.iter_mut().enumerate() {
        let (words, _) = block[odd..].as_chunks();
        let word = |i: usize, factor: i16| i16::from_le_bytes(words[i]).wrapping_mul(factor);
        let mut rest = WORDS - 4;
        for (i, sum) in part.iter_mut().take(rest).enumerate() {
            let [a, b, c, d] = WORD_FACTORS;
            let (a, b) = (word(i, a), word(i + 1, b));
            let (c, d) = (word(i + 2, c), word(i + 3, d));
            *sum = a.wrapping_add(b).wrapping_add(c.wrapping_add(d));
        }
        for (behind, factor) in PAIR_STEPS {
            rest -= behind;
            for i in 0..rest {
                part[i] = part[i].wrapping_mul(factor).wrapping_add(part[i + behind]);
            }
        }
    }
}

#[inline(always)]
fn last_sum(part: &[i16], i: usize) -> i16 {
    let terms = LAST_STEPS.map(|(behind, factor)| part[i + behind].wrapping_mul(factor));
    let [a, b, c, d] = terms;
    a.wrapping_add(b).wrapping_add(c.wrapping_add(d))
}

/// A hash of the window by products of 128 bits whose halves are joined (as wyhash does).
fn hash(window: &[u8; WINDOW]) -> u64 {
    let fold = |a: u64, b: u64| {
        let product = u128::from(a) * u128::from(b);
        product as u64 ^ (product >> 64) as u64
    };
    let (words, _) = window.as_chunks::<8>();
    let word = |i: usize| u64::from_le_bytes(words[i]);
    let mut lanes = [0x243F_6A88_85A3_08D3u64, 0x1319_8A2E_0370_7344];
    for i in (0..words.len()).step_by(4) {
        lanes[0] = fold(word(i) ^ 0xA409_3822_299F_31D1, word(i + 1) ^ lanes[0]);
        lanes[1] = fold(word(i + 2) ^ 0x082E_FA98_EC4E_6C89, word(i + 3) ^ lanes[1]);
    }
    fold(
        lanes[0] ^ 0x4528_21E6_38D0_1377,
        lanes[1] ^ 0xBE54_66CF_34E9_0C6C,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_testkit::random::{Random, seeded_bytes};

    /// The anchors of bytes at an address, in blocks.
    fn anchors(addr: u64, bytes: &[u8]) -> Vec<Anchor> {
        let mut finder = AnchorFinder::new();
        let mut found = Vec::new();
        let mut at = 0;
        while at + WINDOW < bytes.len() {
            let block = BLOCK - (addr as usize + at) % BLOCK;
            let to = bytes.len().min(at + block + WINDOW);
            finder.find(addr + at as u64, &bytes[at..to], |a| found.push(a));
            at = to - WINDOW;
        }
        found
    }

    #[test]
    fn anchors_of_random_bytes_are_some_64_kib_apart_and_move_with_them() {
        let bytes = seeded_bytes(1, 8 << 20);
        let found = anchors(0, &bytes);
        assert!((90..170).contains(&found.len()), "{}", found.len());
        for addr in [1, 137, 4095, 10_000] {
            let moved: Vec<Anchor> = anchors(addr, &bytes);
            let back = moved.iter().map(|a| Anchor {
                addr: a.addr - addr,
                ..*a
            });
            assert_eq!(back.collect::<Vec<_>>(), found);
        }
    }

    #[test]
    fn all_instruction_sets_find_the_same() {
        let mut sums = Box::new([[0; WORDS]; 2]);
        let mut count = 0;
        for seed in 0..400 {
            let cut = if seed % 4 == 0 { seed as usize * 10 } else { 0 };
            let mut bytes = seeded_bytes(seed, BLOCK + WINDOW - cut);
            if seed % 3 == 0 {
                bytes.iter_mut().for_each(|byte| *byte &= 1);
            }
            let (mut plain, mut any) = (Vec::new(), Vec::new());
            find(&mut sums, seed, &bytes, |a| plain.push(a));
            AnchorFinder::new().find(seed, &bytes, |a| any.push(a));
            assert_eq!(plain, any, "{seed}");
            #[cfg(target_arch = "x86_64")]
            if std::is_x86_feature_detected!("avx2") {
                let mut vectors = Vec::new();
                // SAFETY: the processor has AVX2.
                unsafe { find_avx2(&mut sums, seed, &bytes, |a| vectors.push(a)) };
                assert_eq!(plain, vectors, "{seed}");
            }
            count += plain.len();
        }
        assert!(count > 10, "{count}");
    }

    #[test]
    fn of_a_block_in_which_every_second_position_passes_few_are_hashed() {
        let mut sums = Box::new([[0; WORDS]; 2]);
        let mut found = |block: &[u8]| {
            let mut plain = Vec::new();
            find(&mut sums, 0, block, |a| plain.push(a));
            plain
        };
        let mut random = Random::new(9);
        let blocks = std::iter::from_fn(|| {
            let period = random.next().to_le_bytes();
            Some(period[..2].repeat((BLOCK + WINDOW) / 2))
        });
        let full = blocks.map(|block| (found(&block), block));
        let (plain, block) = full.take(1 << 20).find(|f| !f.0.is_empty()).unwrap();
        assert_eq!(plain.len(), MOST_HASHED);
        assert!(plain.iter().zip(0..).all(|(a, i)| a.addr / 2 == i));
        let mut any = Vec::new();
        AnchorFinder::new().find(0, &block, |a| any.push(a));
        assert_eq!(plain, any);
    }

    #[test]
    fn every_position_of_a_block_may_be_an_anchor() {
        // The window of an anchor, put at each position of a block.
        let bytes = seeded_bytes(7, 1 << 20);
        let found = anchors(0, &bytes);
        let window = &bytes[found[0].addr as usize..][..WINDOW];
        for place in 0..BLOCK {
            let mut block = vec![0; BLOCK + WINDOW];
            block[place..place + WINDOW].copy_from_slice(window);
            let mut seen = Vec::new();
            AnchorFinder::new().find(0, &block, |a| seen.push(a));
            let here = Anchor {
                addr: place as u64,
                id: found[0].id,
            };
            assert!(seen.contains(&here), "{place}");
        }
    }

    #[test]
    fn arrays_of_few_values_have_anchors_and_constants_at_most_one_identity() {
        let mut random = Random::new(3);
        let mut array = |values: &[f64]| -> Vec<u8> {
            let values = (0..1 << 18).map(|_| *random.pick(values));
            values.flat_map(f64::to_le_bytes).collect()
        };
        for values in [&[1.0, 2.5][..], &[0.0, 1.0], &[0.0, 1.0, 2.0, 3.0, 4.0]] {
            let found = anchors(0, &array(values)).len();
            assert!((4..400).contains(&found), "{found} of {values:?}");
        }
        let counted: Vec<u8> = (0..1u64 << 18).flat_map(u64::to_le_bytes).collect();
        assert!((4..400).contains(&anchors(0, &counted).len()));
        assert_eq!(anchors(0, &vec![0; 1 << 20]), []);
        for byte in 1..=255 {
            let mut ids: Vec<u64> = anchors(0, &vec![byte; 64 << 10])
                .iter()
                .map(|a| a.id)
                .collect();
            assert!(ids.len() <= 16 * MOST_HASHED);
            ids.dedup();
            assert!(ids.len() <= 1);
        }
    }
}
