//! What the file of a raw span says of its content, as its record keeps it until the span is encoded.
//!
//! ```text
//! bits 0..3   codec: 0 auto, 1 raw, 2 xor, 3 field, 4 zstd, 5 lz4, 6 pco
//! bits 3..6   element: 0 not said, 1 f32, 2 f64, 3 bf16, 4 f16
//! bits 6..12  stride, numbers: 0 not said
//! bits 12..16 reference points: n stands for 2^(n-1), the greatest such number that is not above what was said; 0 not said
//! ```
//! A stride that does not fit is not kept, nor the length of rows: both are guessed from the bytes then. A value that means nothing
//! is taken for `auto`, because a hint never decides what bytes are.
use forebay_codec::hint::HintedCodec;
use forebay_codec::{CodecHint, ElementType};

const STRIDE_BITS: u32 = 6;
/// Binary logarithm of the most reference points that can be kept.
const MAX_POINTS_LOG: u32 = 14;

/// See the head of this file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StoredHint(pub u16);

impl From<CodecHint> for StoredHint {
    fn from(hint: CodecHint) -> StoredHint {
        let codec = HintedCodec::ALL.iter().position(|c| *c == hint.codec);
        let element = hint.element.map_or(0, |e| u16::from(e.code()) + 1);
        let stride = hint.stride.filter(|stride| *stride < 1 << STRIDE_BITS);
        let codec = codec.unwrap_or_default() as u16;
        let log = hint.points.and_then(u32::checked_ilog2);
        let points = log.map_or(0, |log| 1 + log.min(MAX_POINTS_LOG) as u16);
        let stride = stride.unwrap_or(0) as u16;
        StoredHint(codec | element << 3 | stride << 6 | points << 12)
    }
}

impl From<StoredHint> for CodecHint {
    fn from(StoredHint(bits): StoredHint) -> CodecHint {
        let codec = HintedCodec::ALL.get(usize::from(bits & 7));
        let element = (bits >> 3 & 7) as u8;
        let stride = u32::from(bits >> 6) & ((1 << STRIDE_BITS) - 1);
        let points = u32::from(bits >> 12);
        CodecHint {
            codec: codec.copied().unwrap_or_default(),
            element: element.checked_sub(1).and_then(ElementType::from_code),
            stride: (stride > 0).then_some(stride),
            row: None,
            points: points.checked_sub(1).map(|log| 1 << log),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_come_back_and_any_bits_are_a_hint() {
        for text in [
            "auto",
            "raw",
            "xor,f64",
            "xor,stride=2,points=512",
            "xor,points=1",
            "field,f32,stride=3",
            "zstd,bf16",
            "lz4",
            "pco,f16,stride=63",
        ] {
            let hint: CodecHint = text.parse().unwrap();
            assert_eq!(CodecHint::from(StoredHint::from(hint)), hint, "{text}");
        }
        let long: CodecHint = "field,stride=64,row=7".parse().unwrap();
        assert_eq!(CodecHint::from(StoredHint::from(long)).to_string(), "field");
        for (text, kept) in [("xor,points=700", 512), ("xor,points=4294967295", 1 << 14)] {
            let hint: CodecHint = text.parse().unwrap();
            let kept_hint = CodecHint::from(StoredHint::from(hint));
            assert_eq!(kept_hint.points, Some(kept), "{text}");
        }
        for bits in 0..=u16::MAX {
            let hint = CodecHint::from(StoredHint(bits));
            assert_eq!(CodecHint::from(StoredHint::from(hint)), hint);
        }
    }
}
