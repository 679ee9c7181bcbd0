//! The settings of a server process as values. Their names, defaults and help belong to the command line; between processes they travel as
//! texts.
use crate::metrics::Address;
use std::time::Duration;

/// See the head of this file.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// What the service itself takes.
    pub service: forebay_server::Config,
    /// Other users may use the mount, as far as file modes let them.
    pub allow_other: bool,
    /// The kernel may keep written pages where no other node can see or change them.
    pub write_back: bool,
    /// How long a start may take.
    pub start_limit: Duration,
    /// How long a stop may take.
    pub stop_limit: Duration,
    /// Where each server process serves metrics.
    pub metrics: Option<Address>,
    /// Filter of the log, as `tracing` writes it.
    pub log: String,
}
