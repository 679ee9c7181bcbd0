//! The requests about names and attributes that this member answers, and asking those of other members. What members ask each
//! other is a leaf request: answered from the member's own store, so that no answer waits for another one.
use super::Namespace;
use super::attempt::hold_reply;
use super::intents::Intents;
use super::local::LocalNamespace;
use super::participant::IntentParticipant;
use super::remove::RemovedKind;
use crate::inodes::leases::{LeaseChange, LeasedObject};
use crate::{Attr, DirEntry, Error, Fid, Kind, Member, Result};
use forebay_proto::intents::{EntryTarget, IntentId};
use forebay_proto::meta::{
    AbortIntent, AllocateFids, AskIntent, ChangeAttr, Create, CreateReply, FinishIntent, GetAttr,
    GetEntry, GetParent, GetXattr, HoldReply, LeafService, LeasedAttr, Link, ListXattrs,
    LockDirectoryMoves, Lookup, OperationService, PrepareIntent, ReadDir, ReadLink, RecreateInodes,
    RemoveDir, RemoveXattr, Rename, SetXattr, SyncIntents, Unlink,
};
use forebay_proto::{PeerCall, PeerRpc};
use rustix::io::Errno;
use std::sync::Arc;

/// Most fids given to another member at once.
const MAX_FIDS: u32 = 4096;

impl OperationService for Namespace {
    fn lookup(&self, from: Member, r: Lookup) -> Result<LeasedAttr> {
        let lease_to = r.lease.then_some(from);
        self.operations.lookup(r.parent, &r.name, lease_to)
    }
    fn create(&self, from: Member, r: Create) -> Result<CreateReply> {
        self.operations.create(&r, from)
    }
    fn link(&self, from: Member, r: Link) -> Result<Attr> {
        self.operations.link(r.fid, r.parent, &r.name, from)
    }
    fn unlink(&self, from: Member, r: Unlink) -> Result<Fid> {
        let by = (from, r.caller);
        let kind = RemovedKind::NotDirectory(r.fid);
        self.operations.remove(r.parent, &r.name, by, kind)
    }
    fn remove_dir(&self, from: Member, r: RemoveDir) -> Result<Fid> {
        let by = (from, r.caller);
        let kind = RemovedKind::Directory;
        self.operations.remove(r.parent, &r.name, by, kind)
    }
    fn rename(&self, from: Member, r: Rename) -> Result<Vec<Fid>> {
        self.operations.rename(&r, from)
    }
}

/// Answers leaf requests.
pub(crate) struct LeafRequests {
    pub local: Arc<LocalNamespace>,
    pub participant: Arc<IntentParticipant>,
    pub intents: Arc<Intents>,
}

impl LeafRequests {
    /// The attributes of the inode are leased to no kernel until the answer is dropped.
    fn begin_change(&self, by: Member, fid: Fid) -> LeaseChange<'_> {
        let object = LeasedObject::Attributes(fid);
        self.local.inodes.leases.begin_change(Some(by), [object])
    }
}

impl LeafService for LeafRequests {
    fn get_attr(&self, _: Member, r: GetAttr) -> Result<LeasedAttr> {
        let object = LeasedObject::Attributes(r.fid);
        let leases = &self.local.inodes.leases;
        let leased = r
            .lease_to
            .is_some_and(|member| leases.grant(object, member));
        Ok(LeasedAttr {
            attr: self.local.inodes.get(r.fid)?.attr(r.fid),
            leased,
            entry_leased: false,
        })
    }
    fn change_attr(&self, from: Member, r: ChangeAttr) -> Result<Attr> {
        let _change = self.begin_change(from, r.fid);
        self.local.setattr(r.fid, &r.set, r.caller)
    }
    fn read_dir(&self, _: Member, r: ReadDir) -> Result<Vec<DirEntry>> {
        self.local.readdir(r.fid, r.after.as_deref(), r.limit)
    }
    fn read_link(&self, _: Member, r: ReadLink) -> Result<Vec<u8>> {
        let inode = self.local.inodes.get(r.fid)?;
        match inode.kind {
            Kind::Symlink => Ok(inode.target),
            _ => Err(Errno::INVAL.into()),
        }
    }
    fn get_parent(&self, _: Member, r: GetParent) -> Result<Fid> {
        let inode = self.local.inodes.get(r.fid)?;
        match inode.kind {
            Kind::Dir => Ok(inode.parent),
            _ => Err(Errno::NOTDIR.into()),
        }
    }
    fn get_xattr(&self, _: Member, r: GetXattr) -> Result<Vec<u8>> {
        self.local.getxattr(r.fid, &r.name)
    }
    fn set_xattr(&self, from: Member, r: SetXattr) -> Result<()> {
        let _change = self.begin_change(from, r.fid);
        self.local
            .setxattr(r.fid, &r.name, r.value, r.create, r.replace)
    }
    fn list_xattrs(&self, _: Member, r: ListXattrs) -> Result<Vec<Vec<u8>>> {
        self.local.listxattr(r.fid)
    }
    fn remove_xattr(&self, from: Member, r: RemoveXattr) -> Result<()> {
        let _change = self.begin_change(from, r.fid);
        self.local.removexattr(r.fid, &r.name)
    }
    fn get_entry(&self, _: Member, r: GetEntry) -> Result<EntryTarget> {
        self.local.get_entry(r.dir, &r.name)
    }
    fn allocate_fids(&self, _: Member, r: AllocateFids) -> Result<Vec<Fid>> {
        let allocate = |_| self.local.inodes.allocate_fid();
        (0..r.count.min(MAX_FIDS)).map(allocate).collect()
    }
    fn prepare_intent(&self, from: Member, r: PrepareIntent) -> Result<HoldReply> {
        check_coordinator(from, r.intent)?;
        hold_reply(
            self.participant
                .prepare(r.intent, r.below, r.preconditions, r.by),
        )
    }
    fn finish_intent(&self, from: Member, r: FinishIntent) -> Result<()> {
        check_coordinator(from, r.intent)?;
        self.participant
            .apply_part(r.intent, r.below, &r.part, r.by)
    }
    fn abort_intent(&self, _: Member, r: AbortIntent) -> Result<()> {
        self.participant.abort(r.intent)
    }
    fn ask_intent(&self, _: Member, r: AskIntent) -> Result<bool> {
        Ok(self.intents.is_live(r.intent))
    }
    fn recreate_inodes(&self, from: Member, r: RecreateInodes) -> Result<()> {
        check_coordinator(from, r.intent)?;
        self.participant.remake(r.intent, r.below, r.makes)
    }
    fn sync_intents(&self, _: Member, _: SyncIntents) -> Result<()> {
        Ok(self.local.store.barrier()?)
    }
    fn lock_directory_moves(&self, _: Member, r: LockDirectoryMoves) -> Result<HoldReply> {
        hold_reply(self.participant.move_lock.take(r.intent))
    }
}

/// Only its coordinator prepares and finishes an intent, and says which of its intents are over.
fn check_coordinator(from: Member, intent: IntentId) -> Result<()> {
    if intent.coordinator == from {
        return Ok(());
    }
    Err(Error::Refused(format!(
        "member {from} asked for a part of intent {} of member {}; do all members run the same version?",
        intent.number, intent.coordinator
    )))
}

/// Asks the namespaces of members: this one by a plain call, never through the fabric.
pub(crate) struct MemberCalls {
    pub peers: Arc<dyn PeerRpc>,
    pub own: LeafRequests,
}

impl MemberCalls {
    /// Asks member `to` a leaf request.
    pub fn call<C>(&self, to: Member, request: C) -> Result<C::Reply>
    where
        C: PeerCall<Service = dyn LeafService>,
    {
        if to == self.own.local.member() {
            C::serve(request, &self.own, to)
        } else {
            self.peers.call(to, request)
        }
    }
}
