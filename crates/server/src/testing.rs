//! What tests of several crates ask of a service's stores.
//!
//! Not part of the interface; hidden from the documentation.
pub mod stored;
