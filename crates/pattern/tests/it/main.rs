//! Patterns from the outside: one binary, a module for each behaviour.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bounds;
mod commit_validation;
mod common;
mod cubes;
mod disjoint;
mod faults;
mod folding;
mod maps;
mod segments;
mod within;
