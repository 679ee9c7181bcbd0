//! Codecs: regular columns of integers, and arrays of floating-point numbers, encoded in few bytes and decoded.
//!
//! | module | what |
//! |---|---|
//! | [`columns`] | a block of records, stored by columns (MetaKV, section III-A) |
//! | `column` | one column: deltas, then LZ77 over the deltas |
//! | [`varint`] | integers of 1 to 10 bytes |
//! | [`container`] | up to 1 MiB of a file, encoded in pieces that decode alone; the trait of all codecs below, and their head |
//! | `opened_container` | decoding pieces of a container, whichever codec it is of |
//! | [`element`] | types of numbers, layouts of containers, integers in the order of floats |
//! | [`field`] | our codec of floats: predicted from their neighbours, in pieces that are decoded alone |
//! | [`xor`] | XOR with reference points (MRC-FS) |
//! | [`general`] | Zstandard, LZ4 and Pcodec, alone or behind a shuffle of bytes |
//! | [`hint`] | what a person says of a file's content |
//! | [`choose`] | which codec, by a hint and a sample |
//! | [`cost`] | what reading and writing cost |
//! | [`analysis`] | what every codec makes of a sample of a file |
//!
//! What this crate knows: integers, floating-point numbers and bytes. What it must not know: what a column means, where a block
//! or a container is stored. It does no I/O, and keeps no state between calls but buffers.
//!
//! Invariants: what is encoded comes back exactly; any other bytes are refused or decode to some numbers, without a panic, and
//! without more memory than the caller's limit of rows, or a container's length, allows.
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod analysis;
pub mod choose;
mod column;
pub mod columns;
pub mod container;
pub mod cost;
mod cpu;
pub mod element;
mod error;
pub mod field;
pub mod general;
pub mod hint;
mod opened_container;
#[doc(hidden)]
pub mod varint;
pub mod xor;

pub use column::LazyColumn;
pub use columns::{Columns, Encoder};
pub use container::{Codec, CodecId, EncodedContainer, StoredForm};
pub use element::{ElementLayout, ElementType};
pub use error::{CodecError, CodecFailure};
pub use field::FieldCodec;
pub use hint::CodecHint;
pub use opened_container::OpenedContainer;
