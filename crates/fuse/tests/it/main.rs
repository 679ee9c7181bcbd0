//! A service through the kernel: one binary, a module for each behaviour.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cached_writers;
mod coherence;
mod common;
mod conformance;
mod content;
mod extents;
mod file_handles;
mod finely_strided;
mod histories;
mod lamination;
mod leases;
mod lifetime;
mod locks;
mod locks_across;
mod mounting;
mod names;
mod one_member;
mod power_cuts;
mod programs;
mod strided_readers;
mod teams;
mod users;
mod visibility;
mod write_back;
mod write_only;

/// What a process does that a test has started in a role.
#[test]
fn roles() {
    common::run_role(&[
        coherence::run_role,
        locks::run_role,
        locks_across::run_role,
        one_member::run_role,
        power_cuts::run_role,
        teams::run_role,
        write_back::run_role,
    ]);
}
