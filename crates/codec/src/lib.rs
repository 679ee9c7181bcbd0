//! Codecs: regular columns of integers, encoded in few bytes and decoded.
//!
//! | module | what |
//! |---|---|
//! | [`columns`] | a block of records, stored by columns (MetaKV, section III-A) |
//! | `column` | one column: deltas, then LZ77 over the deltas |
//! | [`element`] | floats: types, layouts, integers in their order |
//! | [`field`] | floats in containers of spans, each decoded alone |
//! | [`varint`] | integers of 1 to 10 bytes |
//!
//! What this crate knows: integers and bytes. What it must not know: what a column means, where a block is stored. It does
//! no I/O, and keeps no state between calls but buffers.
//!
//! Invariants: what is encoded comes back exactly; any other bytes are refused or decode to some numbers, without a panic, and
//! without more memory than the caller's limit of rows allows.
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod column;
pub mod columns;
pub mod element;
pub mod field;
#[doc(hidden)]
pub mod varint;

pub use column::LazyColumn;
pub use columns::{Columns, Encoder};
