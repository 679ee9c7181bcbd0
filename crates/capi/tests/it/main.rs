//! The interface for C as programs use it: one binary, a module for each behaviour.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;
mod header;
mod installed;
mod interface;
