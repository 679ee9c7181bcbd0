//! The tests of this crate from outside, in one program.

mod common;
mod conformance;
mod fault;
mod local;
#[cfg(feature = "mpi")]
mod mpi;
mod session;
