//! Patterns: an index in a few bytes, and reads before they are asked for (Pattern PLFS, improved).
//!
//! | module | what |
//! |---|---|
//! | `fold` | [`Folder`]: a stream of extents becomes nested loops, online, in bounded memory |
//! | `stack`, `cursor`, `shape` | its parts: repeats of closed terms, the open loop, hash-consed loops |
//! | `element`, `pattern` | [`Element`]: one extent; [`Pattern`]: what was found; any element by its number, without decoding |
//! | `within` | its log bytes in a range; whether one has all of another |
//! | `segment`, `encode`, `parse`, `recent`, `frame` | [`Segment`]: a pattern with its log and commits, versioned and checksummed |
//! | `map`, `global`, `merge` | [`PatternMap`]: a file by offset; [`GlobalPattern`]: one shape of many logs; [`merge`] makes them |
//! | `patterns` | [`Patterns`]: all of a file, as they are stored and sent |
//! | `rows`, `pieces` | [`Pieces`]: all of a range in order |
//! | `skip` | past many extents at once |
//! | `disjoint`, `apart` | whether two patterns surely share no byte; whether those of a commit are apart |
//! | `path`, `path_search` | shapes as plain steps to their leaves, and how these tell them apart |
//!
//! What this crate knows: offsets, lengths, log addresses and sequences, as numbers. What it must not know: where segments
//! are stored, who writes them. It does no I/O.
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod apart;
mod column;
mod cursor;
mod disjoint;
mod element;
mod encode;
mod error;
mod explode;
mod fold;
mod frame;
mod global;
mod global_codec;
mod lattice;
mod map;
mod measure;
mod merge;
mod overlay;
mod owners;
mod parse;
mod path;
mod path_search;
mod pattern;
mod patterns;
mod pieces;
mod predict;
mod recent;
mod rows;
mod segment;
mod shape;
mod show;
mod skip;
mod stack;
mod tree;
mod within;

pub use apart::apart;
pub use element::Element;
pub use error::{Error, Result};
pub use fold::Folder;
pub use global::GlobalPattern;
pub use map::{MapLookup, PatternMap};
pub use merge::merge;
pub use pattern::{Elements, Pattern};
pub use patterns::{FrameLoss, Patterns, decode_all};
pub use pieces::Pieces;
pub use predict::{Predictor, ReadRequest};
pub use segment::{LogSource, PlacedExtent, Segment};
