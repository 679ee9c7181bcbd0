//! The log bytes of a member as a whole: one binary, a module for each behaviour.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bases;
mod basics;
mod chunk_chains;
mod chunk_content;
mod chunk_speed;
mod cit_budget;
mod common;
mod encoded;
mod faults;
mod model;
mod no_holes;
mod settle_faults;
mod settle_histories;
mod settle_room;
mod settle_speed;
mod settling;
mod threads;
