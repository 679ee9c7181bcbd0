//! The tests of this crate from outside, in one program.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;
mod conformance;
mod fault;
mod local;
mod session;
