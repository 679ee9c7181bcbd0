//! Settings of a service, with their defaults. The CLI fills this from file, environment and flags.
use forebay_storage::Durability;
use std::time::Duration;

/// When other nodes see a write (design section 4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Consistency { Commit, Posix }

/// Settings of a service; sizes in bytes.
#[derive(Debug, Clone)]
pub struct Config {
    /// Embedded node servers.
    pub nodes: u16,
    pub durability: Durability,
    pub consistency: Consistency,
    /// Most file data a member stores; `None`: what the disk has.
    pub quota: Option<u64>,
    /// Memory budget of one member, caches and buffers together.
    pub memory: u64,
    /// A request to another member fails after this long.
    pub deadline: Duration,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            nodes: 1,
            durability: Durability::Process,
            consistency: Consistency::Commit,
            quota: None,
            memory: 192 << 20,
            deadline: Duration::from_secs(10),
        }
    }
}
