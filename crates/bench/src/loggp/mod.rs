//! LogGP: what a collective would take on a network of up to thousands of servers.
//!
//! The trees are those of `forebay_fabric::ring`, the same code that runs over real transports; only wires and processors are
//! made up here. A test simulates its state machine on them, event by event, and finds the same times. Time is in whole
//! nanoseconds, so a run is exact and repeats.

mod best;
mod collective;
mod network;
#[cfg(test)]
mod tests;

pub use best::OptimalTreeTimes;
pub use collective::{OperationOutcome, collective, independent};
pub use network::Network;
