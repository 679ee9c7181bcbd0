//! The tests of this crate from outside, in one program.
#![cfg(feature = "mpi")]

mod mpi;
