//! Traces of programs in `../shared`, read, folded and replayed.

mod common;
mod patterns;
mod replay_shared;
mod shared_traces;
