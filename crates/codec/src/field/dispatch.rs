//! The loops over numbers, compiled a second time for processors that shift, mask and count zeros in one instruction each (BMI,
//! LZCNT) and have registers of 32 bytes (AVX2). It is the same code, so that both give the same bytes.
//! Only bits are extracted from a word in another way: compilers do not emit that instruction (BEXTR) by themselves.
use super::FieldError;
use super::decode::WordDecoder;
use super::decode_piece::PieceJob;
use super::lane_decoder::{BitExtraction, PortableExtraction};
use super::plan::{EncodingPlan, FieldContainer};
use crate::container::EncodedContainer;
use crate::element::Word;
use std::ops::Range;

/// Whether the second form can run here.
#[cfg(target_arch = "x86_64")]
fn is_fast() -> bool {
    #[cfg(test)]
    if tests::PORTABLE.get() {
        return false;
    }
    crate::cpu::is_v3()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt")]
fn encode_pieces_fast<T: Word>(
    container: &FieldContainer<'_, T>,
    plan: &EncodingPlan,
    out: &mut EncodedContainer,
) -> bool {
    container.encode_pieces(plan, out)
}

/// Encodes the pieces of a container; `false` if they do not shrink.
pub(super) fn encode_pieces<T: Word>(
    container: &FieldContainer<'_, T>,
    plan: &EncodingPlan,
    out: &mut EncodedContainer,
) -> bool {
    #[cfg(target_arch = "x86_64")]
    if is_fast() {
        // SAFETY: the processor has the features that the function was compiled for.
        return unsafe { encode_pieces_fast(container, plan, out) };
    }
    container.encode_pieces(plan, out)
}

/// By one instruction. Private, and used by [`decode_fast`] only.
#[cfg(target_arch = "x86_64")]
struct BmiExtraction;

#[cfg(target_arch = "x86_64")]
impl BitExtraction for BmiExtraction {
    #[inline(always)]
    fn extract(bits: u64, control: u64) -> u64 {
        // SAFETY: this is called within `decode_fast` only, which is called only if the processor has BMI1.
        unsafe { std::arch::x86_64::_bextr2_u64(bits, control) }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt")]
fn decode_fast<T: Word>(
    job: &PieceJob<'_>,
    decoder: &WordDecoder<T>,
    range: Range<usize>,
    out: &mut [u8],
) -> Result<(), FieldError> {
    job.decode::<T, BmiExtraction>(decoder, range, out)
}

/// Decodes the bytes of a range of a piece.
pub(super) fn decode<T: Word>(
    job: &PieceJob<'_>,
    decoder: &WordDecoder<T>,
    range: Range<usize>,
    out: &mut [u8],
) -> Result<(), FieldError> {
    #[cfg(target_arch = "x86_64")]
    if is_fast() {
        // SAFETY: the processor has the features that the function was compiled for.
        return unsafe { decode_fast(job, decoder, range, out) };
    }
    job.decode::<T, PortableExtraction>(decoder, range, out)
}

#[cfg(test)]
mod tests {
    use super::super::FieldCodec;
    use super::super::tests::{decode, random_bytes, random_layout};
    use crate::OpenedContainer;
    use crate::container::{Codec, EncodedContainer};
    use crate::element::ElementType;
    use forebay_testkit::random::Random;
    use forebay_testkit::seeds::for_each_seed;
    use std::cell::Cell;

    thread_local! {
        /// Whether this thread runs the portable form.
        pub(super) static PORTABLE: Cell<bool> = const { Cell::new(false) };
    }

    /// What a run gives in both forms.
    fn both<T>(mut run: impl FnMut() -> T) -> [T; 2] {
        [true, false].map(|portable| {
            PORTABLE.set(portable);
            let result = run();
            PORTABLE.set(false);
            result
        })
    }

    #[test]
    fn both_forms_give_the_same_bytes_also_of_damaged_pieces() {
        for_each_seed("field_dispatch", (100, 5_000), |seed| {
            let mut random = Random::new(seed);
            let element = *random.pick(&ElementType::ALL);
            let len = random.index(40_000);
            let raw = random_bytes(&mut random, element, len);
            let layout = random_layout(&mut random, element);
            let [a, b] = both(|| {
                let mut encoded = EncodedContainer::new();
                FieldCodec.encode(&layout, &raw, &mut encoded).unwrap();
                encoded
            });
            assert!(a == b);
            let [a_raw, b_raw] = both(|| decode(&a, &[]));
            assert!(a_raw.as_ref() == Ok(&raw) && b_raw == a_raw);
            let opened = OpenedContainer::open(a.head()).unwrap();
            for i in 0..a.pieces() {
                let mut piece = a.piece(i).to_vec();
                random.mutate(&mut piece, a.piece(0));
                let [a, b] = both(|| {
                    let mut out = vec![0; opened.piece_len(i)];
                    opened.decode_piece(i, &piece, &mut out).map(|()| out)
                });
                assert!(a == b);
            }
        });
    }
}
