//! Files, staging and teams of a process: one binary, a module for each behaviour.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod backends;
mod damage;
mod direct_reads;
mod files;
mod link;
mod read_ahead;
mod stage;
mod staging;
mod team;
mod team_faults;
mod team_odd;
mod team_users;
mod teams;
