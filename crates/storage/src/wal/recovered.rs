//! The result of recovering the log, and which damage a recovery accepts.
use super::OldLog;
use crate::damage::{Damage, LogCut};

/// What the log held.
#[derive(Default)]
pub struct RecoveredLog {
    /// The last batch, flushed ones included.
    pub last: u64,
    /// Through this batch the log is known to have been on disk.
    pub synced: u64,
    /// The files that stay, in order.
    pub files: Vec<OldLog>,
    /// What is damaged, or had to be cut although it is whole.
    pub damage: Vec<Damage>,
    /// Where it was cut, if a crash had torn it. A salvage cuts nothing.
    pub cut: Option<LogCut>,
}

/// What is done about damage that no crash explains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecoveryMode {
    /// The store goes on: it is an error if it costs a batch.
    GoOn,
    /// Whatever is whole is applied, and nothing is changed on disk.
    Salvage,
}
