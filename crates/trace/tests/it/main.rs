//! Traces of programs in `../shared`, read and replayed.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod replay_shared;
mod shared_traces;
