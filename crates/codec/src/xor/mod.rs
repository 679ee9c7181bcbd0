//! The codec of MRC-FS: XOR of each value with its neighbour, and reference points from which decoding begins.
//!
//! Algorithm 1 stores the XOR of neighbours without its leading zeros, the number of these in front, and appends reference points;
//! Algorithm 2 begins at the point before a value and XORs on. Both are here, with these corrections:
//!
//! | as printed | here |
//! |---|---|
//! | one point more is written than there is room for, and one past the end of the file if its size is not a multiple of the distance | a point begins each part of a piece; the last part may be shorter |
//! | the first value is never set | a point is a value coded against zero, and the first is one |
//! | codes of varying length are indexed as if they were of one | counts are apart from bits, four bits each; each point has the offset of its bits |
//! | five bits cannot say 32 leading zeros | four bits name one of 16 widths, which the container chooses |
//! | the model leaves out ratio and decoding time | [`cost`](crate::cost) adds them |
//!
//! ```text
//!  parameters in the head
//!  | spacing 2 | stride 2 | widths 16 x 1 |
//!    spacing   values from one reference point to the next
//!    stride    values from a value to its neighbour, which may be less than the layout's
//!    widths    bits of a value with code 0 to 15; they increase, and the last has a whole element's
//!
//!  a piece of n whole elements in p = ceil(n / spacing) parts
//!  | edges | (p - 1) x 2 | n x 4 bits, two a byte, the first in its low half | bits ... |
//!    edges     bytes that are no whole element
//!    (p-1) x 2 bit at which each part but the first begins in `bits`
//!    bits      each value XOR its neighbour of the same part, or XOR zero if there is none: its low bits, from the low end
//! ```
mod decode;
mod encode;
mod points;

pub(crate) use decode::XorDecoder;
pub use points::ReferencePoints;

use crate::container::{Codec, CodecId, EncodedContainer};
use crate::element::ElementLayout;
use crate::error::CodecError;

/// Widths that codes name.
const WIDTHS: usize = 16;
/// Bytes of the parameters.
const PARAMETERS_LEN: usize = 4 + WIDTHS;
/// The most values from one to its neighbour.
const MAX_STRIDE: usize = 64;

/// The paper's codec.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct XorCodec {
    /// How many reference points a container has.
    pub points: ReferencePoints,
}

impl Codec for XorCodec {
    fn id(&self) -> CodecId {
        CodecId::Xor
    }

    fn encode_pieces(
        &self,
        layout: &ElementLayout,
        src: &[u8],
        out: &mut EncodedContainer,
    ) -> Result<(), CodecError> {
        let spacing = self.points.spacing(layout, src.len());
        // A part begins with `stride` values against zero: few enough of it, or the neighbour is the value before.
        let stride = match layout.stride.max(1) as usize {
            stride if stride <= MAX_STRIDE && 4 * stride <= spacing => stride,
            _ => 1,
        };
        match layout.element.width() {
            2 => encode::container::<2>(layout, spacing, stride, src, out),
            4 => encode::container::<4>(layout, spacing, stride, src, out),
            _ => encode::container::<8>(layout, spacing, stride, src, out),
        }
        Ok(())
    }
}

/// The element of `B` bytes, 2, 4 or 8, at the beginning of `bytes`, which has as many.
#[inline(always)]
fn load<const B: usize>(bytes: &[u8]) -> u64 {
    match B {
        2 => u64::from(u16::from_le_bytes([bytes[0], bytes[1]])),
        4 => u64::from(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])),
        _ => u64::from_le_bytes([
            bytes[0], bytes[1], bytes[2], bytes[3], bytes[4], bytes[5], bytes[6], bytes[7],
        ]),
    }
}
