//! A running server process: how it starts and stops, what it answers on its control socket, its metrics, its jobs, and what the
//! server processes of one service ask each other.
//!
//! Knows members (`forebay_server`), mounts (`forebay_fuse`), the transport, the staging library and the recorder of traces, and
//! joins them in one process. Must not know the command line, the names of settings, or how figures are shown to people.
//!
//! Invariants: each failure is one line that says what, where and what next ([`failure::Failure`]); no wait is without a limit.

#![warn(clippy::print_stdout, clippy::print_stderr)] // Its words go to the log, or back to who started it.

mod acceptor;
pub mod allocator;
pub mod control;
mod control_service;
pub mod descriptors;
mod events;
pub mod failure;
pub mod limits;
mod links;
mod log;
mod members;
pub mod metrics;
pub mod mount_cleaner;
pub mod mount_table;
mod open_files;
pub mod process_handle;
pub mod processes;
mod rates;
mod recording;
mod server_context;
pub mod server_process;
mod server_rpc;
mod serving;
pub mod settings;
pub mod slurm_steps;
pub mod spec;
mod stage;
pub mod start;
pub mod threads;
pub mod transport;
pub mod units;
pub mod watchdog;
