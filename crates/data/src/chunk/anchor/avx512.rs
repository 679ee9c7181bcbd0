//! The search for anchors with AVX-512: all steps but the last in one pass, in vectors of 32 sums.
//!
//! ```text
//! vector v holds the sums of words 32 v ... 32 v + 31 (at even positions, or at odd ones)
//!
//! 8 words:   v * factor + (v and v + 1, from the 9th sum on)
//! 16 words:  v * factor + (v and v + 1, from the 17th sum on)
//! 64 words:  v, v + 1, v + 2, v + 3, each with its factor
//! ```
//! The distances of the last step are whole vectors. So only the sums of 16 words are stored, and loaded again from where vectors begin.
//!
//! Invariant (a test): it finds what the search for any processor finds.
use super::{
    Anchor, BLOCK, LAST_STEPS, LAST_WORD, LEAST_SUMS, PAIR_STEPS, SecondFilter, WINDOW,
    WORD_FACTORS,
};
use std::arch::x86_64::{
    __m512i, _mm512_add_epi16, _mm512_alignr_epi64, _mm512_cmplt_epi16_mask, _mm512_loadu_si512,
    _mm512_mullo_epi16, _mm512_set1_epi16, _mm512_setzero_si512,
};

/// Sums of a vector.
const LANES: usize = 32;
/// Bytes of a vector.
const BYTES: usize = 2 * LANES;
/// Vectors of the positions of a block, of one parity.
const PLACES: usize = BLOCK / BYTES;
/// Vectors that the last step reads: those behind the block too.
const VECTORS: usize = PLACES + LAST_WORD / LANES;
/// Bytes behind the last vector of a block and its window.
const REST: usize = BLOCK + WINDOW - VECTORS * BYTES;

/// As `find` of the module above, of a whole block.
#[target_feature(enable = "avx512bw")]
pub fn find(addr: u64, block: &[u8; BLOCK + WINDOW], found: impl FnMut(Anchor)) {
    let mut sums = [[_mm512_setzero_si512(); VECTORS]; 2];
    for (odd, sums) in sums.iter_mut().enumerate() {
        sum_up_16(block, odd, sums);
    }
    let factors = LAST_STEPS.map(|(_, factor)| _mm512_set1_epi16(factor));
    let least = _mm512_set1_epi16(LEAST_SUMS);
    let mut second = SecondFilter::new(addr, block, found);
    for v in 0..PLACES {
        let passed = [0, 1].map(|odd: usize| {
            let term = |k: usize| {
                let sums = sums[odd][v + LAST_STEPS[k].0 / LANES];
                _mm512_mullo_epi16(sums, factors[k])
            };
            let (near, far) = (
                _mm512_add_epi16(term(0), term(1)),
                _mm512_add_epi16(term(2), term(3)),
            );
            _mm512_cmplt_epi16_mask(_mm512_add_epi16(near, far), least)
        });
        if passed == [0, 0] {
            continue;
        }
        for place in 0..BYTES {
            let has_passed = passed[place % 2] >> (place / 2) & 1 == 1;
            if has_passed && !second.check(v * BYTES + place) {
                return;
            }
        }
    }
}

/// All steps but the last, at even positions or at `odd` ones. Only the upper sums of vectors behind the block depend on the zeros behind the
/// window, and no sum that is stored depends on those.
#[inline]
#[target_feature(enable = "avx512bw")]
fn sum_up_16(block: &[u8; BLOCK + WINDOW], odd: usize, sums: &mut [__m512i; VECTORS]) {
    let [eight, sixteen] = PAIR_STEPS.map(|(_, factor)| _mm512_set1_epi16(factor));
    // What the last vector reads behind the window: zeros.
    let mut end = [0; REST + 2 * BYTES];
    end[..REST].copy_from_slice(&block[VECTORS * BYTES..]);
    let four = |v: usize| {
        let (bytes, at) = match v.checked_sub(VECTORS) {
            None => (&block[..], v * BYTES + odd),
            Some(behind) => (&end[..], behind * BYTES + odd),
        };
        match bytes[at..].first_chunk() {
            Some(words) => sums_of_4(words),
            None => _mm512_setzero_si512(),
        }
    };
    let pair_8 = |sums, next| {
        let behind = _mm512_alignr_epi64::<2>(next, sums);
        _mm512_add_epi16(_mm512_mullo_epi16(sums, eight), behind)
    };
    let pair_16 = |sums, next| {
        let behind = _mm512_alignr_epi64::<4>(next, sums);
        _mm512_add_epi16(_mm512_mullo_epi16(sums, sixteen), behind)
    };
    let (first, mut next_4) = (four(0), four(1));
    let mut of_8 = pair_8(first, next_4);
    for (v, sum) in sums.iter_mut().enumerate() {
        let of_4 = std::mem::replace(&mut next_4, four(v + 2));
        let next_8 = pair_8(of_4, next_4);
        *sum = pair_16(of_8, next_8);
        of_8 = next_8;
    }
}

/// The sums of 4 words, each with its factor.
#[inline]
#[target_feature(enable = "avx512bw")]
fn sums_of_4(bytes: &[u8; BYTES + 6]) -> __m512i {
    let words = |k: usize| {
        bytes[2 * k..]
            .first_chunk()
            .map_or(_mm512_setzero_si512(), |b| load(b))
    };
    let [a, b, c, _] = WORD_FACTORS.map(|factor| _mm512_set1_epi16(factor));
    let near = _mm512_add_epi16(
        _mm512_mullo_epi16(words(0), a),
        _mm512_mullo_epi16(words(1), b),
    );
    // The last factor is 1.
    _mm512_add_epi16(
        near,
        _mm512_add_epi16(_mm512_mullo_epi16(words(2), c), words(3)),
    )
}

#[inline]
#[target_feature(enable = "avx512bw")]
fn load(bytes: &[u8; BYTES]) -> __m512i {
    // SAFETY: reads the 64 bytes of the array; it needs no alignment.
    unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
}
