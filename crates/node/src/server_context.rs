//! The context that the services of a running server share: what it serves, and the way to the other servers of its service.
use crate::control::MountStatus;
use crate::members::LocalMembers;
use crate::server_rpc::ServerRpc;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// See the head of this file.
pub struct ServerContext {
    /// The store, absolute.
    pub store: PathBuf,
    /// The settings as texts.
    pub settings: BTreeMap<String, String>,
    /// How long a request to a member may take.
    pub deadline: Duration,
    /// How long a stop may take.
    pub stop_limit: Duration,
    /// The mounts of this process.
    pub mounts: Vec<MountStatus>,
    /// The members of this process; taken out when it stops.
    pub members: Mutex<Option<Box<dyn LocalMembers>>>,
    /// The way to the other servers.
    pub rpc: ServerRpc,
}

impl ServerContext {
    /// Where the mounts are.
    pub fn points(&self) -> Vec<PathBuf> {
        self.mounts.iter().map(|mount| mount.path.clone()).collect()
    }

    /// What `with` gives for the members of this process; `None` if it is stopping.
    pub fn with_members<T>(&self, with: impl FnOnce(&dyn LocalMembers) -> T) -> Option<T> {
        self.members.lock().as_deref().map(with)
    }
}
