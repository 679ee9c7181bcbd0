//! The codecs against changed bytes.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod fuzz;
