//! The loops over numbers, compiled a second time for processors that shift, mask and count zeros in one instruction each (BMI,
//! LZCNT) and have registers of 32 bytes (AVX2). It is the same code, so that both give the same bytes.
use super::FieldError;
use super::decode::WordDecoder;
use super::decode_span::SpanJob;
use super::encode::Encoded;
use super::plan::{EncodingPlan, FieldContainer};
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
fn encode_spans_fast<T: Word>(
    container: &FieldContainer<'_, T>,
    plan: &EncodingPlan,
    out: &mut Encoded,
) -> bool {
    container.encode_spans(plan, out)
}

/// Encodes the spans of a container; `false` if they do not shrink.
pub(super) fn encode_spans<T: Word>(
    container: &FieldContainer<'_, T>,
    plan: &EncodingPlan,
    out: &mut Encoded,
) -> bool {
    #[cfg(target_arch = "x86_64")]
    if is_fast() {
        // SAFETY: the processor has the features that the function was compiled for.
        return unsafe { encode_spans_fast(container, plan, out) };
    }
    container.encode_spans(plan, out)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt")]
fn decode_fast<T: Word>(
    job: &SpanJob<'_>,
    decoder: &WordDecoder<T>,
    range: Range<usize>,
    out: &mut [u8],
) -> Result<(), FieldError> {
    job.decode(decoder, range, out)
}

/// Decodes the bytes of a range of a span.
pub(super) fn decode<T: Word>(
    job: &SpanJob<'_>,
    decoder: &WordDecoder<T>,
    range: Range<usize>,
    out: &mut [u8],
) -> Result<(), FieldError> {
    #[cfg(target_arch = "x86_64")]
    if is_fast() {
        // SAFETY: the processor has the features that the function was compiled for.
        return unsafe { decode_fast(job, decoder, range, out) };
    }
    job.decode(decoder, range, out)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{decode, random_bytes, random_layout};
    use super::super::{Encoded, FieldDecoder, encode};
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
    fn both_forms_give_the_same_bytes_also_of_damaged_spans() {
        for_each_seed("field_dispatch", (100, 5_000), |seed| {
            let mut random = Random::new(seed);
            let element = *random.pick(&ElementType::ALL);
            let len = random.index(40_000);
            let raw = random_bytes(&mut random, element, len);
            let layout = random_layout(&mut random, element);
            let [a, b] = both(|| {
                let mut encoded = Encoded::default();
                encode(&layout, &raw, &mut encoded).unwrap();
                encoded
            });
            assert!(a.head == b.head && a.spans == b.spans && a.ends == b.ends);
            let [a_raw, b_raw] = both(|| decode(&a, &[]));
            assert!(a_raw.as_ref() == Ok(&raw) && b_raw == a_raw);
            let opened = FieldDecoder::parse(&a.head).unwrap();
            for i in 0..a.ends.len() {
                let mut span = a.span(i).to_vec();
                random.mutate(&mut span, a.span(0));
                let [a, b] = both(|| {
                    let mut out = vec![0; opened.span_len(i)];
                    opened.decode_span(&span, i, &mut out).map(|()| out)
                });
                assert!(a == b);
            }
        });
    }
}
