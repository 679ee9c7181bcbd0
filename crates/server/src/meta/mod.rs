//! The namespace and attributes that one member owns: its directories with their entries, and its inodes.
//!
//! Every operation is a plan of preconditions and steps (`steps`). A plan of one member is one batch. A plan that spans members
//! is an intent (`plan`): the directory's owner coordinates, holds what the plan needs at every member, decides with one batch
//! (its own changes and the intent record: the commit point), has the steps done everywhere, and forgets.
//!
//! | component | module | what it guards |
//! |---|---|---|
//! | `NamespaceOperations` | `operations`, `create`, `link`, `remove`, `rename` | looking, planning, and trying again |
//! | `IntentRecovery` | `recover` | what a crash left, and what waits for a member |
//! | `IntentCoordinator` | `coordinator`, `plan` | an operation from its plan to its end; `intents` are those under way |
//! | `LeafRequests`, `MemberCalls` | `requests` | what members ask each other |
//! | `IntentParticipant` | `participant`, `applied`, `directory_move_lock` | this member's part in intents of others |
//! | `LocalNamespace` | `local`, `attrs`, `xattrs`, `steps`, `holds` | this member's records; all that needs no other member |
//!
//! Each calls only those below it in this table. They share `entries` (records of directory entries), `names` (valid
//! names; which member a new directory goes to), `records` (durable records of intents) and `attempt` (why an attempt
//! failed). `check` is `forebay fsck` of the namespace.
//!
//! Invariants:
//! - Entries live at their directory's owner (`fid.owner()`). What is new gets its inode there too, but for directories:
//!   these go to the member that `names::directory_member` says.
//! - No inode lock is held while another member is called.
//! - Before the commit point nothing is visible and everything can be taken back; after it, everything gets done,
//!   across crashes of any member, each step once.
//! - The batch that takes a file's last name removes the file whole (`FilesHook::remove_at_once`), or notes it in
//!   `keys::ORPHANS`; then `files` is notified.
mod applied;
mod attempt;
mod attrs;
pub mod check;
mod coordinator;
mod create;
mod directory_move_lock;
pub(crate) mod entries;
mod holds;
mod intents;
mod link;
mod local;
pub(crate) mod names;
mod operations;
mod participant;
mod plan;
pub(crate) mod records;
mod recover;
mod remove;
mod rename;
mod requests;
pub mod steps;
#[cfg(test)]
mod tests;
mod xattrs;

pub use recover::IntentRecoveryThread;
pub use xattrs::CODEC_XATTR;
pub(crate) use xattrs::parse_codec;

use crate::files::FilesHook;
use crate::inodes::Inodes;
use crate::{Result, Time};
use coordinator::IntentCoordinator;
use forebay_proto::PeerRpc;
use forebay_proto::meta::LeafService;
use forebay_storage::Store;
use intents::Intents;
use local::LocalNamespace;
use operations::NamespaceOperations;
use parking_lot::Mutex;
use participant::IntentParticipant;
use recover::IntentRecovery;
use requests::{LeafRequests, MemberCalls};
use std::sync::Arc;

/// One member's namespace: its owners.
pub struct Namespace {
    members: Arc<MemberCalls>,
    pub(crate) coordinator: Arc<IntentCoordinator>,
    pub(crate) recovery: Arc<IntentRecovery>,
    pub(crate) operations: NamespaceOperations,
}

impl Namespace {
    /// The namespace in `store`. Makes the root directory if this is member 0 and there is none; calls no one.
    ///
    /// # Errors
    /// When the store cannot be read, or is damaged.
    pub fn new(
        store: Arc<Store>,
        inodes: Arc<Inodes>,
        peers: Arc<dyn PeerRpc>,
        files: Arc<dyn FilesHook>,
    ) -> Result<Namespace> {
        let mut local = LocalNamespace::new(store, inodes, peers.member(), files);
        if peers.members() == 1 {
            // The kernel that keeps dirty pages gives files times too: what it does later must not have an earlier time.
            local.clock = Time::last_tick;
        }
        recover::make_root(&local)?;
        Namespace::over(local, peers)
    }

    /// Over the records of this member, which have a root.
    fn over(local: LocalNamespace, peers: Arc<dyn PeerRpc>) -> Result<Namespace> {
        let local = Arc::new(local);
        let intents = Arc::new(Intents::open(&local.store, local.member())?);
        let participant = Arc::new(IntentParticipant::open(local.clone())?);
        let own = LeafRequests {
            local: local.clone(),
            participant: participant.clone(),
            intents: intents.clone(),
        };
        let members = Arc::new(MemberCalls { peers, own });
        let coordinator = Arc::new(IntentCoordinator {
            local: local.clone(),
            members: members.clone(),
            intents,
        });
        Ok(Namespace {
            operations: NamespaceOperations {
                local: local.clone(),
                members: members.clone(),
                coordinator: coordinator.clone(),
                fids: Mutex::default(),
            },
            recovery: Arc::new(IntentRecovery {
                local,
                members: members.clone(),
                participant,
                coordinator: coordinator.clone(),
            }),
            members,
            coordinator,
        })
    }

    /// What it answers from its own store alone.
    pub fn leaf(&self) -> &(dyn LeafService + 'static) {
        &self.members.own
    }
}
