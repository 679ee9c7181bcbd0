//! What every component of `files` is given: this member's store and inodes, and calls to the other members.
use crate::inodes::Inodes;
use crate::{Fid, Member, Result, keys};
use forebay_proto::PeerRpc;
use forebay_proto::placement::SliceMap;
use forebay_storage::{Batch, Durability, Keyspace, Store};
use std::ops::Bound;
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

    /// Files of this member without a name.
    pub fn orphans(&self) -> Result<Vec<Fid>> {
        let mut orphans = Vec::new();
        let records = self
            .store
            .scan(keys::ORPHANS, Bound::Unbounded, Bound::Unbounded);
        for entry in records {
            orphans.extend(keys::fid_of(&entry?.0));
        }
        Ok(orphans)
    }

    /// Adds to `batch` the removal of every key that starts with `prefix`, which ends with a fid.
    pub fn delete_prefix(
        &self,
        batch: &mut Batch,
        keyspace: Keyspace,
        prefix: &[u8],
    ) -> Result<()> {
        let end = keys::behind(prefix);
        let to = end.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        // Without the upper end a scan would step over the deletes of all files after this one.
        for entry in self.store.scan(keyspace, Bound::Included(prefix), to) {
            batch.delete(keyspace, entry?.0);
        }
        Ok(())
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
