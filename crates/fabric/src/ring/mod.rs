//! Log-ring collectives: many ranks ask one rank the same thing at once, and it receives at most `ceil(log2 n)` messages for it
//! (in the shapes `Ring` and `Fitted`; the others of [`TreeShape`] are to compare with).
//!
//! - [`topology`]: the next hop to a root, by bit operations on the distance. Pure.
//! - [`Tree`]: the tree below any root as a table, in one of the [`TreeShape`]s. Pure.
//! - [`Group`]: the ranks that act together, on a ring of their own.
//! - [`Reduction`]: what one rank does in one collective. Pure; a test of `bench` simulates it on a network.
//! - [`Collectives`]: collectives over any [`Fabric`](crate::Fabric).
//! - [`Combiner`]: requests of one rank that ask the same thing while one is under way.

mod collective;
mod combine;
mod fitted;
#[cfg(test)]
mod fuzz;
mod group;
mod reduction;
pub mod topology;
mod tree;
mod wire;

pub use collective::{CollectiveCounts, Collectives, MemoryBounds, Operation};
pub use combine::{Combiner, SenderPanicked};
pub use fitted::{NetworkCost, arrival_times};
pub use group::{CollectiveTimeouts, Group, GroupError};
pub use reduction::{Reduction, ReductionError, ReductionStep};
pub use tree::{Tree, TreeShape};
pub use wire::CollectiveFailure;
