//! Table files: up to 256 compressed blocks in key order, a metadata region, a footer (MetaKV, figure 4).
//!
//! ```text
//!  | block 0 | block 1 | ... | metadata region | footer, 64 bytes |
//! ```
//!
//! Invariants: a table file is whole and on disk before anything names it; it never changes; the ranges of its blocks ascend
//! and do not overlap.
mod cache;
mod fetch;
mod footer;
mod reader;
mod region;
mod writer;

pub use fetch::{Raw, Reads, Want};
pub use reader::{Shared, Table};
pub use region::Place;
pub use writer::{Meta, Writer};
