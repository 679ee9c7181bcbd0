//! The tests of this crate from outside, in one program.
#![cfg(feature = "mpi")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../../../fabric/tests/it/common.rs"]
#[allow(dead_code, reason = "other transports use all of it")]
mod common;
#[path = "../../../fabric/tests/it/conformance/mod.rs"]
#[allow(dead_code, unused_imports, reason = "other transports use all of it")]
mod conformance;
mod mpi;
