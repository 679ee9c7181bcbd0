//! The extent index as a whole: one binary, a module for each behaviour.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod compaction;
mod damage;
mod descriptors;
mod engine;
mod full_disk;
mod histories;
mod long_log;
mod memory;
mod panics;
mod salvage;
mod support;
