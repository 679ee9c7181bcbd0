//! Requests between the namespaces of members. What members ask each other is a leaf: answered from this member's own store,
//! so that no answer waits for another one.
use super::attempt::{done, stop_reply};
use super::intents::Intents;
use super::links::MetaPeers;
use super::local::LocalNamespace;
use super::participant::IntentParticipant;
use crate::{Error, Member, Result};
use forebay_proto::meta::{MetaReply, MetaRequest};
use std::sync::Arc;

/// Answers leaf requests.
pub(crate) struct LeafRequests {
    pub local: Arc<LocalNamespace>,
    pub participant: Arc<IntentParticipant>,
    pub intents: Arc<Intents>,
}

impl LeafRequests {
    /// Answers a leaf request, from any thread.
    ///
    /// # Errors
    /// The errno of the system call. An operation, which may ask other members, is refused.
    pub fn handle(&self, request: MetaRequest) -> Result<MetaReply> {
        use MetaRequest as R;
        let (local, participant) = (&self.local, &self.participant);
        match request {
            R::GetAttr { fid } => local.getattr(fid).map(MetaReply::Attr),
            R::SetAttr { fid, set, caller } => {
                local.setattr(fid, &set, caller).map(MetaReply::Attr)
            }
            R::ReadDir { fid, after, limit } => local
                .readdir(fid, after.as_deref(), limit)
                .map(MetaReply::Entries),
            R::ReadLink { fid } => local.readlink(fid).map(MetaReply::Bytes),
            R::Parent { fid } => local.parent(fid).map(MetaReply::Parent),
            R::GetXattr { fid, name } => local.getxattr(fid, &name).map(MetaReply::Bytes),
            R::SetXattr {
                fid,
                name,
                value,
                create,
                replace,
            } => local.setxattr(fid, &name, value, create, replace).map(done),
            R::ListXattr { fid } => local.listxattr(fid).map(MetaReply::Names),
            R::RemoveXattr { fid, name } => local.removexattr(fid, &name).map(done),
            R::Peek { dir, name } => local.peek(dir, &name).map(MetaReply::Entry),
            R::Mint { count } => local.mint(count).map(MetaReply::Fids),
            R::Prepare {
                intent,
                below,
                needs,
            } => stop_reply(participant.prepare(intent, below, needs)),
            R::Finish {
                intent,
                below,
                part,
            } => participant.apply_part(intent, below, &part).map(done),
            R::Remake {
                intent,
                below,
                makes,
            } => participant.remake(intent, below, makes).map(done),
            R::Sync => Ok(done(local.store.barrier()?)),
            R::Abort { intent } => participant.abort(intent).map(done),
            R::Ask { intent } => Ok(MetaReply::Live(self.intents.is_live(intent))),
            R::Gate { intent } => stop_reply(participant.gate.take(intent)),
            operation @ (R::Lookup { .. }
            | R::Create { .. }
            | R::Link { .. }
            | R::Unlink { .. }
            | R::Rmdir { .. }
            | R::Rename { .. }) => Err(Error::Refused(format!(
                "{operation:?} is no request that members ask each other; do all members run the same version?"
            ))),
        }
    }
}

/// Asks the namespaces of members: this one by a plain call, never through the fabric.
pub(crate) struct MemberCalls {
    pub peers: Arc<dyn MetaPeers>,
    pub own: LeafRequests,
}

impl MemberCalls {
    /// Asks member `to` a leaf request.
    pub fn call(&self, to: Member, request: MetaRequest) -> Result<MetaReply> {
        if to == self.own.local.member() {
            self.own.handle(request)
        } else {
            self.peers.ask(to, request)
        }
    }
}
