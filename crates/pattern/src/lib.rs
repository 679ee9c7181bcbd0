//! Patterns: nested loops that stand for many extents, to compress the index and to predict reads (Pattern PLFS, improved;
//! `ARCHITECTURE.md` lists the papers).
//!
//! # Words
//! - **Element**: one extent of a log: offset in the file, length, log address.
//! - **Shape**: a nest of loops without a start; its innermost parts are **leaves**, each a length.
//! - **Term**: a shape at a start offset and a log address.
//! - **Pattern**: the terms found in one log, in log order.
//! - **Segment**: a pattern with its log, the commits that made it, and where the file was truncated. It is what is committed,
//!   stored and sent.
//! - **Global pattern**: one shape at many places of a file, each a **slot** with its own log, sequence and log address. Its
//!   loops and the steps from slot to slot are its **axes**.
//! - **Lattice**: a shape in which each stride leaves room for everything inside, so an offset is found by one division a loop. Its
//!   innermost part is a **cell**.
//! - **Row**: elements of one length and one stride, one after the other. **Piece**: bytes of one log that a lookup answers.
//! - **Open loop**: the loop at the end of a stream, which the next extent may continue. **Closed term**: one before it.
//! - **Item**: a shape in a loop, at its distance (`rel`) from the start of an iteration; a loop's **body** is its items.
//!   **Gap**: log bytes skipped after each iteration of a loop. **Break**: log bytes skipped between two terms.
//! - **Grain**: the unit in which the encoded form (**encoded body**) of a pattern is written: the largest of which all its
//!   distances and strides are multiples, and another for its lengths. **Frame**: kind, version, length and checksum around
//!   what is encoded.
//!
//! # Modules
//! | module | what |
//! |---|---|
//! | `fold` | [`Folder`]: a stream of extents becomes nested loops, online, in bounded memory |
//! | `stack`, `cursor`, `shape`, `measure` | its parts: repeats of closed terms, the open loop, hash-consed loops, derived properties of a loop |
//! | `predict` | [`Predictor`]: what a reader asks for next |
//! | `element`, `pattern` | [`Element`]: one extent; [`Pattern`]: what was found; any element by its number, without decoding |
//! | `range_query`, `shape_lookup` | a pattern's log bytes in a range, and whether it has all bytes of another; an offset in any shape |
//! | `segment`, `encode`, `parse`, `shape_cache`, `frame` | [`Segment`]: a pattern with its log and commits; its versioned and checksummed form |
//! | `map`, `global`, `merge` | [`PatternMap`]: a file by offset; [`GlobalPattern`]: one shape of many logs; [`merge()`] makes them |
//! | `lattice`, `slot_writers`, `loop_distribution` | an offset by division; who wrote the slots; a loop split into one for each item, for merging |
//! | `global_codec`, `column` | the encoded form of a global pattern; of a column of its numbers |
//! | `patterns` | [`Patterns`]: all of a file, as they are stored and sent |
//! | `range_iterator`, `row_iterator` | [`SourceRanges`]: all extents of a range of a map, in order; those of a global pattern, a row at a time |
//! | `range_map`, `extent_skip` | [`RangeMap`]: an ordered map from ranges to values; where bytes without a hole end |
//! | `disjoint`, `commit_validation` | whether two patterns surely share no byte; whether all elements of a commit are disjoint |
//! | `path`, `path_search` | shapes as plain steps to their leaves, and whether two such paths have a byte in common |
//! | `display`, `error` | patterns as text; what can be wrong |
//!
//! What this crate knows: offsets, lengths, log addresses and sequences, as numbers. What it must not know: where segments
//! are stored, who writes them. It does no I/O.
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod column;
mod commit_validation;
mod cursor;
mod disjoint;
mod display;
mod element;
mod encode;
mod error;
mod extent_skip;
mod fold;
mod frame;
mod global;
mod global_codec;
mod lattice;
mod loop_distribution;
mod map;
mod measure;
mod merge;
mod parse;
mod path;
mod path_search;
mod pattern;
mod patterns;
mod predict;
mod range_iterator;
mod range_map;
mod range_query;
mod row_iterator;
mod segment;
mod shape;
mod shape_cache;
mod shape_lookup;
mod slot_writers;
mod stack;

pub use commit_validation::all_disjoint;
pub use element::Element;
pub use error::{Error, Result};
pub use fold::Folder;
pub use global::GlobalPattern;
pub use map::{MapLookup, PatternMap};
pub use merge::merge;
pub use pattern::{Elements, Pattern};
pub use patterns::{FrameLoss, Patterns, decode_all};
pub use predict::{Predictor, ReadRequest};
pub use range_iterator::SourceRanges;
pub use range_map::{RangeMap, RangeValue};
pub use segment::{LogSource, PlacedExtent, Segment};
