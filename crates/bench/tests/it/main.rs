//! The program of the benchmarks: one binary, a module for each behaviour.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod dedup;
mod fields;
mod passthrough;
