//! The `field` codec: floats by what their neighbours let expect, in spans of 4 KiB that are decoded alone.
//!
//! | module | what |
//! |---|---|
//! | `head` | the head of a container, and its grid |
//! | `span` | the head of a span, and its grid |
//! | `choose_predictor` | how elements become numbers and residuals, by a sample |
//! | `predict` | differences of the first to the third order |
//! | `dictionary` | the sorted values of a container that has few |
//! | `symbols` | a number is a symbol and raw bits |
//! | `huffman` | codes of symbols |
//! | `lanes`, `lane_encoder`, `lane_decoder` | numbers as bits, lanes of which are decoded side by side |
//! | `plan`, `encode` | containers and spans, encoded |
//! | `decode`, `decode_span` | the same, decoded |
//! | `dispatch` | the same loops for processors with more instructions |
//!
//! A *container* is at most 1 MiB of raw bytes of one layout, and its encoded form is a head and *spans* of 4 KiB raw bytes. A
//! *lane* is 128 elements of a span, or 256 of 16 bits.
//!
//! Invariants:
//! * What is encoded comes back, every bit of it, for every layout; a wrong layout costs room only.
//! * A span needs the head and nothing of other spans, and a value its lane and nothing of other lanes.
//! * Encoded, a container has at most 4 bytes more than raw, a span at most one.
//! * Decoding bytes that are damaged gives an error or other bytes, never a panic; it reads nothing outside them, and allocates no
//!   more than the tables of a head: 20 KiB, and a dictionary of at most 128 KiB.

mod choose_predictor;
mod decode;
mod decode_span;
mod dictionary;
mod dispatch;
mod encode;
#[cfg(test)]
mod failures;
mod head;
mod huffman;
mod lane_decoder;
mod lane_encoder;
mod lanes;
mod plan;
mod predict;
mod span;
mod symbols;
#[cfg(test)]
mod tests;

pub use decode::FieldDecoder;
pub use encode::{Encoded, encode, encode_against};
pub use head::CONTAINER;
pub use span::SPAN;

use std::fmt;

/// Why bytes cannot be encoded or decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldError {
    /// More raw bytes than a container may have.
    TooLong,
    /// The base has another length than what is coded against it, or there is none.
    Base,
    /// The range is not within the span, or the output has another length.
    Range,
    /// The bytes end too early.
    Truncated,
    /// The head is of this version, which this program does not know.
    Version(u8),
    /// The head is damaged.
    FieldParameters,
    /// The codes in the head are damaged.
    Code,
    /// The dictionary in the head, or a place in it, is damaged.
    Dictionary,
    /// The span is damaged.
    Span,
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FieldError::TooLong => write!(f, "a container has at most {CONTAINER} bytes"),
            FieldError::Base => {
                f.write_str("the base has not the length of what is coded against it")
            }
            FieldError::Range => f.write_str("the range is not within the span"),
            FieldError::Truncated => f.write_str("encoded floats end too early"),
            FieldError::Version(v) => {
                write!(f, "encoded floats are of version {v}, which is not known")
            }
            FieldError::FieldParameters => f.write_str("the head of encoded floats is damaged"),
            FieldError::Code => f.write_str("the codes of encoded floats are damaged"),
            FieldError::Dictionary => f.write_str("the dictionary of encoded floats is damaged"),
            FieldError::Span => f.write_str("a span of encoded floats is damaged"),
        }
    }
}

impl std::error::Error for FieldError {}
