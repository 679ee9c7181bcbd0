//! A store as a whole: one binary, a module for each behaviour.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod crash;
mod damage;
mod failing_calls;
mod full_disk;
mod log_space;
mod model;
mod panics;
mod support;
