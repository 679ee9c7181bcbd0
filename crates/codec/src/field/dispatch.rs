//! The loops over numbers, compiled a second time for processors that shift, mask and count zeros in one instruction each (BMI,
//! LZCNT) and have registers of 32 bytes (AVX2). It is the same code, so that both give the same bytes.
use super::FieldError;
use super::decode::{Decoder, SpanJob};
use super::encode::{Container, Encoded, Plan};
use crate::element::Word;
use std::ops::Range;

/// Whether the second form can run here.
#[cfg(target_arch = "x86_64")]
fn is_fast() -> bool {
    // Each of these is a load of what was found out once.
    is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("bmi1")
        && is_x86_feature_detected!("bmi2")
        && is_x86_feature_detected!("lzcnt")
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt")]
fn encode_spans_fast<T: Word>(
    container: &Container<'_, T>,
    plan: &Plan,
    out: &mut Encoded,
) -> bool {
    container.encode_spans(plan, out)
}

/// Encodes the spans of a container; `false` if they do not shrink.
pub(super) fn encode_spans<T: Word>(
    container: &Container<'_, T>,
    plan: &Plan,
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
    decoder: &Decoder<T>,
    range: Range<usize>,
    out: &mut [u8],
) -> Result<(), FieldError> {
    job.decode(decoder, range, out)
}

/// Decodes the bytes of a range of a span.
pub(super) fn decode<T: Word>(
    job: &SpanJob<'_>,
    decoder: &Decoder<T>,
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
