//! The codecs: what comes back, and what changed bytes do.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod arrays;
mod choices;
mod container_damage;
mod containers;
mod fuzz;
