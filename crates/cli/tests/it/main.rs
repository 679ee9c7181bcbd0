//! The command as users run it: one binary, a module for each behaviour.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bad_input;
mod checkpoint_versions;
mod codec_attribute;
mod common;
mod corrupted_block;
#[cfg(feature = "mpi")]
mod dead_members_mpi;
mod dedup;
mod demo;
mod docs;
mod dxt;
mod few_descriptors;
mod fields;
mod full_quota;
mod help;
mod kill9_under_load;
#[cfg(feature = "mpi")]
mod leases_mpi;
mod lifecycle;
mod many_files;
mod memory_budget;
mod metrics;
mod mmat;
#[cfg(feature = "mpi")]
mod mpi_programs;
mod other_users;
mod run;
#[cfg(feature = "mpi")]
mod run_hosts;
#[cfg(feature = "mpi")]
mod run_mpi;
#[cfg(feature = "mpi")]
mod run_mpi_killed;
mod run_staging;
mod salvage;
mod settings;
#[cfg(feature = "mpi")]
mod slurm;
#[cfg(feature = "mpi")]
mod stage_mpi;
mod staging;
mod stat;
#[cfg(feature = "mpi")]
mod status_mpi;
mod status_tells;
mod strangers;
#[cfg(feature = "mpi")]
mod teams_mpi;
mod trace_plot;
mod trace_record;
#[cfg(feature = "mpi")]
mod trace_record_mpi;
mod traces;
