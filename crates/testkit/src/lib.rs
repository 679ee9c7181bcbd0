//! Tools for the tests of several crates: seeds and iteration counts, mutated bytes, a recording disk, and hosts made of namespaces.
//!
//! It is a dependency of tests only. It knows devices, networks and processes; it does not know what Forebay keeps on them,
//! and depends on no crate of the workspace.
pub mod datasets;
pub mod disk;
pub mod hosts;
pub mod mutation;
pub mod prerequisites;
pub mod random;
pub mod seeds;
pub mod stopped;
pub mod tree_compare;
pub mod turns;
pub mod wait;
