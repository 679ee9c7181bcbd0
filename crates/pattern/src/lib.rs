//! Patterns: an index in a few bytes, and reads before they are asked for (Pattern PLFS, improved).
//!
//! | module | what |
//! |---|---|
//! | `fold` | [`Folder`]: a stream of extents becomes nested loops, online, in bounded memory |
//! | `stack`, `cursor`, `shape` | its parts: repeats of closed terms, the open loop, hash-consed loops |
//! | `pattern` | [`Pattern`]: what was found; any element by its number, without decoding |
//!
//! What this crate knows: offsets, lengths, log addresses and sequences, as numbers. What it must not know: where segments
//! are stored, who writes them. It does no I/O.
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod cursor;
mod element;
mod error;
mod fold;
mod pattern;
mod shape;
mod stack;

pub use element::Element;
pub use error::{Error, Result};
pub use fold::Folder;
pub use pattern::{Elements, Pattern};
