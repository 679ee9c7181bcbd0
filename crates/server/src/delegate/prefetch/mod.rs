//! Fetching what clients will read before they ask (`docs/prefetch.md`).
//!
//! ```text
//! read -> [ reader ]  what comes next?  -> [ fetched_pieces ]  room for it -> [ pool ]  threads: read as the client would
//!    |                                             |                             |
//!    +------- is it here, or on its way? <---------+-----------------------------+
//! ```
//!
//! | file | what |
//! |---|---|
//! | `reader` | one open handle: what comes next, how far ahead, whether at all |
//! | `request_history`, `markov`, `readahead` | sources of predictions, beside the loops of the crate `pattern` |
//! | `handle_state` | the part of an open handle: its reader, and whether it is watched |
//! | `fetched_pieces` | ranges that are here or on their way, in a budget |
//! | `cache` | the same for many threads: waiting for a piece, and what a fetch takes |
//! | `pool` | threads and their queue |
//! | `prefetcher` | composes the above; the work of a fetch thread, which reads one piece at one generation |
//! | `wait_average` | whether a handle's reads wait for other nodes |
//! | `strided_reads` | which pages a handle's next records need: for `page_fills`, whatever is fetched here |
//! | `last_reads` | whether the strided readers of a file together read all of it; for `page_fills` too |
//! | `stats` | what became of the bytes fetched ahead, for status and metrics |
//!
//! Invariants:
//! - A piece holds committed bytes of one generation of a file. A read takes it only while that is the file's generation here and
//!   nothing of this node's own, pending or being committed, lies above the range. Equal generations mean equal bytes: so a
//!   read sees what it would have seen without any of this.
//! - A read never waits for a piece longer than asking itself usually takes, and not at all for one in the queue.
//! - Handles whose reads do not wait for other nodes are not watched. Bytes on this node's own disk are left to the kernel, which
//!   reads ahead in the log: to fetch them here too costs processor time, and saves none.
mod cache;
mod fetched_pieces;
pub(super) mod handle_state;
pub(super) mod last_reads;
mod markov;
mod pool;
mod prefetcher;
mod readahead;
mod reader;
mod request_history;
mod stats;
pub(super) mod strided_reads;
mod wait_average;

pub(super) use prefetcher::Prefetcher;
pub use stats::PrefetchStats;
