//! Anchors: places in bytes that are chosen by what stands there alone, so that they are found again wherever it stands.
//!
//! A place is an anchor by the [`WINDOW`] bytes that begin there. Two filters follow each other. The first is a sum of
//! products of 16-bit words, which can be computed for many places at once:
//!
//! ```text
//! sum = k0 (w[0] ^ w[56]) + k1 (w[18] ^ w[122]) + k2 (w[44] ^ w[180]) + k3 (w[78] ^ w[246])    modulo 2^16
//! ```
//! where `w[i]` is the word at byte `i` of the window. The places of a pair are a multiple of 8 bytes apart, so
//! bytes that repeat every 1, 2, 4 or 8, as arrays of one value do, give 0, which does not pass: nothing is an anchor for
//! being constant, and what stands at its ends may be one. Places of the four pairs are spread over the window, and over the bytes
//! of a number of 8 bytes: numbers of any width have bytes that vary there. One place in 4096 of random bytes passes, and then a
//! hash of the window lets one in 16 pass, and is the anchor's identity.
//!
//! Invariants: whether a place is an anchor depends on nothing but its window, and, where more than [`MOST_HASHED`] places
//! of a block of 4 KiB pass the first filter, on those before it in the block: so no content costs more than so many hashes.

/// Bytes that decide whether a place is an anchor.
pub const WINDOW: usize = 256;
/// Places are looked at in blocks of so many, at multiples of it in log addresses.
pub const BLOCK: usize = 4096;
/// Places in a block that are hashed.
const MOST_HASHED: usize = 8;
/// Places that are looked at together.
const GROUP: usize = 128;
/// Bytes that the sums of a group of places are made of.
const GROUP_BYTES: usize = GROUP + WINDOW;
/// Offsets in the window of the two words of each pair.
const PAIRS: [(usize, usize); 4] = [(0, 56), (18, 122), (44, 180), (78, 246)];
const FACTORS: [u16; 4] = [0x9E37, 0x85EB, 0xC2B3, 0x27D5];
/// Sums below it pass, as signed numbers: 16 of 65536.
const LEAST_SUMS: i16 = i16::MIN + 16;
/// Identities below it are those of anchors: one in 16.
const LEAST_IDS: u64 = 1 << 60;

/// An anchor: where it is, and the hash of what stands there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Anchor {
    /// Log address, or whatever the caller counts in.
    pub addr: u64,
    /// Equal for equal windows; evenly distributed in the low 60 bits.
    pub id: u64,
}

/// The anchors in a block at `addr`: `bytes` is the block, or a part of one, and the [`WINDOW`] bytes behind its last place.
/// There are `bytes.len() - WINDOW` places, at most [`BLOCK`].
pub fn find_anchors(addr: u64, bytes: &[u8], found: impl FnMut(Anchor)) {
    #[cfg(target_arch = "x86_64")]
    if std::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2, as was just found out; the function asks for nothing else.
        return unsafe { find_anchors_avx2(addr, bytes, found) };
    }
    find(addr, bytes, found);
}

/// The same in instructions that take 32 bytes at once: half as many of them.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn find_anchors_avx2(addr: u64, bytes: &[u8], found: impl FnMut(Anchor)) {
    find(addr, bytes, found);
}

#[inline(always)]
fn find(addr: u64, bytes: &[u8], mut found: impl FnMut(Anchor)) {
    let places = bytes.len().saturating_sub(WINDOW);
    let mut hashed = 0;
    let mut sums = [0; GROUP];
    for first in (0..places).step_by(GROUP) {
        match bytes[first..].first_chunk() {
            Some(group) if least_sum(group) >= LEAST_SUMS => continue,
            Some(group) => all_sums(group, &mut sums),
            // The last group is short: some places of it lie behind the last place.
            None => {
                let mut group = [0; GROUP_BYTES];
                let rest = &bytes[first..];
                group[..rest.len()].copy_from_slice(rest);
                all_sums(&group, &mut sums);
            }
        }
        let here = GROUP.min(places - first);
        for (place, sum) in sums.iter().enumerate().take(here) {
            if *sum >= LEAST_SUMS {
                continue;
            }
            if hashed == MOST_HASHED {
                return;
            }
            hashed += 1;
            let place = first + place;
            let id = bytes[place..].first_chunk().map_or(u64::MAX, hash);
            if id < LEAST_IDS {
                let addr = addr + place as u64;
                found(Anchor { addr, id });
            }
        }
    }
}

/// The least of the sums at all places of a group.
#[inline(always)]
fn least_sum(group: &[u8; GROUP_BYTES]) -> i16 {
    let mut least = i16::MAX;
    for odd in 0..2 {
        for pair in 0..GROUP / 2 {
            least = least.min(sum(group, pair, odd));
        }
    }
    least
}

#[inline(always)]
fn all_sums(group: &[u8; GROUP_BYTES], sums: &mut [i16; GROUP]) {
    for odd in 0..2 {
        for pair in 0..GROUP / 2 {
            sums[2 * pair + odd] = sum(group, pair, odd);
        }
    }
}

/// The sum at place `2 * pair + odd`. For one value of `odd` the words of places that follow each other lie side by side, as
/// vector instructions want them.
#[inline(always)]
fn sum(group: &[u8; GROUP_BYTES], pair: usize, odd: usize) -> i16 {
    let (words, _) = group[odd..].as_chunks::<2>();
    let word = |at: usize| u16::from_le_bytes(words[pair + at / 2]);
    let mut sum = 0u16;
    for ((near, far), factor) in PAIRS.into_iter().zip(FACTORS) {
        sum = sum.wrapping_add((word(near) ^ word(far)).wrapping_mul(factor));
    }
    sum as i16
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
