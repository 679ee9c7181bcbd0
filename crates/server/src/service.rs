//! A whole service in one process: `nodes` members as threads over `fabric::local` (sketch).
use crate::{Config, Delegate, Result};
use forebay_storage::Io;
use std::path::Path;
use std::sync::Arc;

pub struct Service { _p: () }

/// What `forebay status` shows of one member; sizes in bytes.
#[derive(Debug, Clone, Default, serde::Serialize, serde::Deserialize)]
pub struct MemberStatus {
    pub member: u16,
    pub files: u64,
    pub open_files: u64,
    pub extents: u64,
    pub data_bytes: u64,
    pub index_bytes: u64,
    pub memory_bytes: u64,
    pub memory_budget: u64,
    pub segments: u64,
    pub reads: u64,
    pub writes: u64,
    pub read_bytes: u64,
    pub written_bytes: u64,
}

impl Service {
    /// Opens (or creates) the store of a service and starts its members; recovers what a crash cut off.
    pub fn start(_io: Arc<dyn Io>, _store: &Path, _config: Config) -> Result<Service> { todo!() }
    /// The delegate of member `member`: one per mount.
    pub fn delegate(&self, _member: u16) -> Arc<Delegate> { todo!() }
    pub fn status(&self) -> Result<Vec<MemberStatus>> { todo!() }
    /// Commits what is pending, stops threads, unlocks the store.
    pub fn stop(self) -> Result<()> { todo!() }
}
