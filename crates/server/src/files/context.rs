//! The context that every component of `files` is given: this member's store and inodes, and calls to the other members.
use crate::inodes::Inodes;
use crate::{Member, Result};
use forebay_proto::PeerRpc;
use forebay_proto::placement::SliceMap;
use forebay_storage::{Durability, Store};
use std::sync::Arc;

/// See the head of this file. Holds no state of its own.
pub(super) struct MemberContext {
    pub store: Arc<Store>,
    pub inodes: Arc<Inodes>,
    pub peers: Arc<dyn PeerRpc>,
    #[cfg(test)]
    pub faults: super::tests::Faults,
}

impl MemberContext {
    pub fn new(store: Arc<Store>, inodes: Arc<Inodes>, peers: Arc<dyn PeerRpc>) -> MemberContext {
        MemberContext {
            store,
            inodes,
            peers,
            #[cfg(test)]
            faults: super::tests::Faults::default(),
        }
    }

    /// This member.
    pub fn member(&self) -> Member {
        self.peers.member()
    }

    /// Which member owns which slice.
    pub fn map(&self) -> SliceMap {
        SliceMap {
            members: self.peers.members(),
        }
    }

    /// Whether the store brings to disk first what must be there first.
    pub fn is_ordered(&self) -> bool {
        self.store.durability() != Durability::None
    }

    /// A place where tests cut the work off.
    #[cfg(test)]
    pub fn step(&self, name: &'static str) -> Result<()> {
        self.faults.step(name)
    }
    #[cfg(not(test))]
    #[inline(always)]
    pub fn step(&self, _name: &'static str) -> Result<()> {
        Ok(())
    }
}
