//! LogGP: what a collective would take on a network of up to thousands of servers, event by event.
//!
//! The ranks run the tree and the state machine of `forebay_fabric::ring`, the same code that runs over real transports; only
//! wires and processors are made up here. Time is in whole nanoseconds, so a run is exact and repeats.

mod best;
mod network;
mod quick;
mod simulator;

pub use best::Best;
pub use network::Network;
pub use quick::quick;
pub use simulator::{OperationOutcome, collective, independent};
