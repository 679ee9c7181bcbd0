//! The `field` codec: predicts each float from its neighbours and stores the residual, in pieces of 4 KiB that are decoded alone.
//!
//! | module | what |
//! |---|---|
//! | `field_codec` | the codec of containers |
//! | `parameters` | what the head of a container says of it, and its grid |
//! | `piece` | the head of a piece, and its grid |
//! | `choose_predictor` | how elements become numbers and residuals, by a sample |
//! | `predict` | differences of the first to the third order, and from the row before |
//! | `dictionary` | the sorted values of a container that has few |
//! | `symbols` | a number is a symbol and raw bits |
//! | `huffman` | codes of symbols |
//! | `base_tables` | tables that a base chooses |
//! | `lanes`, `lane_encoder`, `lane_decoder` | numbers as bits, lanes of which are decoded side by side |
//! | `plan`, `encode` | containers and pieces, encoded |
//! | `decode`, `decode_piece` | the same, decoded |
//! | `dispatch` | the same loops for processors with more instructions |
//!
//! A *lane* is 128 elements of a piece, or 256 of 16 bits.
//!
//! Invariants:
//! * What is encoded comes back, every bit of it, for every layout; a wrong layout costs room only.
//! * A piece needs the head and nothing of other pieces, and a value its lane and nothing of other lanes; with a row, its piece.
//! * Decoding bytes that are damaged gives an error or other bytes, never a panic; it reads nothing outside them, and allocates no
//!   more than the tables of a head: at most 24 KiB, and a dictionary of at most 128 KiB.

mod base_tables;
mod choose_predictor;
mod decode;
mod decode_piece;
mod dictionary;
mod dispatch;
mod encode;
#[cfg(test)]
mod failures;
mod field_codec;
mod huffman;
mod lane_decoder;
mod lane_encoder;
mod lanes;
mod parameters;
mod piece;
mod plan;
mod predict;
mod symbols;
#[cfg(test)]
mod tests;

pub(crate) use decode::FieldDecoder;
pub use field_codec::FieldCodec;

use thiserror::Error;

/// Why bytes cannot be decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum FieldError {
    /// The bytes end too early.
    #[error("encoded floats end too early")]
    Truncated,
    /// The parameters are damaged.
    #[error("the parameters of encoded floats are damaged")]
    Parameters,
    /// The codes in the head are damaged.
    #[error("the codes of encoded floats are damaged")]
    Code,
    /// The dictionary in the head, or a place in it, is damaged.
    #[error("the dictionary of encoded floats is damaged")]
    Dictionary,
    /// The piece is damaged.
    #[error("a piece of encoded floats is damaged")]
    Piece,
}
