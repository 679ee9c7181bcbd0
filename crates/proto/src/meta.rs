//! Requests about names and attributes: what delegates ask, and the steps of operations that span members. Each goes to the
//! owner of the directory, or of `fid`.
//!
//! Two services: a *leaf* request is answered from the member's own store, at once; it never waits and never calls
//! another member. An *operation* may ask leaf requests of other members. So members that serve the two from separate threads cannot
//! wait for each other in a circle.
use crate::call::service;
use crate::intents::{EntryTarget, IntentId, IntentPart, Precondition};
use crate::{Attr, Caller, DirEntry, Fid, NewNode, RenameFlags, SetAttr};
use serde::{Deserialize, Serialize};

service! {
    /// What a member does with the names in its directories. It may ask leaf requests of other members.
    OperationService, OperationRequest {
        lookup(Lookup) -> Attr;
        create(Create) -> Created;
        link(Link) -> Attr;
        unlink(Unlink) -> ();
        remove_dir(RemoveDir) -> ();
        rename(Rename) -> ();
    }
}

service! {
    /// What a member answers from its own store alone about the names and attributes that it owns.
    LeafService, LeafRequest {
        get_attr(GetAttr) -> Attr;
        change_attr(ChangeAttr) -> Attr;
        read_dir(ReadDir) -> Vec<DirEntry>;
        read_link(ReadLink) -> Vec<u8>;
        get_parent(GetParent) -> Fid;
        get_xattr(GetXattr) -> Vec<u8>;
        set_xattr(SetXattr) -> ();
        list_xattrs(ListXattrs) -> Vec<Vec<u8>>;
        remove_xattr(RemoveXattr) -> ();
        peek_entry(PeekEntry) -> EntryTarget;
        mint_fids(MintFids) -> Vec<Fid>;
        prepare_intent(PrepareIntent) -> HoldReply;
        finish_intent(FinishIntent) -> ();
        abort_intent(AbortIntent) -> ();
        ask_intent(AskIntent) -> bool;
        remake_intent(RemakeIntent) -> ();
        sync_intents(SyncIntents) -> ();
        take_gate(TakeGate) -> HoldReply;
    }
}

/// Attributes of the named inode. Errors: `ENOENT`, `ENOTDIR`, `ESTALE`, `ENAMETOOLONG`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Lookup {
    /// The directory.
    pub parent: Fid,
    /// The name in it.
    pub name: Vec<u8>,
}

/// Attributes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GetAttr {
    /// The inode.
    pub fid: Fid,
}

/// Changes attributes, never the size; answers them as they are then.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ChangeAttr {
    /// The inode.
    pub fid: Fid,
    /// What to change.
    pub set: SetAttr,
    /// Who asks.
    pub caller: Caller,
}

/// To the owner of `parent`. `exclusive`: `EEXIST` if there is one; otherwise answers the existing file.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Create {
    /// The directory.
    pub parent: Fid,
    /// The name in it.
    pub name: Vec<u8>,
    /// What to make.
    pub new: NewNode,
    /// Who asks.
    pub caller: Caller,
    /// Fail if there is one.
    pub exclusive: bool,
}

/// The reply to [`Create`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Created {
    /// The inode that the name names now.
    pub attr: Attr,
    /// This call made it.
    pub made: bool,
}

/// Makes another name for the file. To the owner of `parent`; answers the attributes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Link {
    /// The inode.
    pub fid: Fid,
    /// The directory.
    pub parent: Fid,
    /// The name in it.
    pub name: Vec<u8>,
}

/// Removes a name of something that is no directory.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Unlink {
    /// The directory.
    pub parent: Fid,
    /// The name in it.
    pub name: Vec<u8>,
    /// Who asks.
    pub caller: Caller,
}

/// Removes an empty directory.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RemoveDir {
    /// The directory.
    pub parent: Fid,
    /// The name in it.
    pub name: Vec<u8>,
    /// Who asks.
    pub caller: Caller,
}

/// To the owner of `to`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Rename {
    /// The old directory.
    pub from: Fid,
    /// The name in it.
    pub name: Vec<u8>,
    /// The new directory.
    pub to: Fid,
    /// The new name.
    pub to_name: Vec<u8>,
    /// What may be replaced.
    pub flags: RenameFlags,
    /// Who asks.
    pub caller: Caller,
}

/// Entries after `after` (exclusive; `None` from the start), at most `limit`. `.` and `..` are the delegate's.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ReadDir {
    /// The inode.
    pub fid: Fid,
    /// The last name already seen.
    pub after: Option<Vec<u8>>,
    /// At most so many.
    pub limit: u32,
}

/// Where a symlink leads.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ReadLink {
    /// The inode.
    pub fid: Fid,
}

/// The parent of a directory.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GetParent {
    /// The inode.
    pub fid: Fid,
}

/// The value of an extended attribute.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GetXattr {
    /// The inode.
    pub fid: Fid,
    /// The attribute's name.
    pub name: Vec<u8>,
}

/// Sets an extended attribute. `create`: `EEXIST` if there is one; `replace`: `ENODATA` if there is none.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SetXattr {
    /// The inode.
    pub fid: Fid,
    /// The attribute's name.
    pub name: Vec<u8>,
    /// Its value.
    pub value: Vec<u8>,
    /// Only a new one.
    pub create: bool,
    /// Only one that exists.
    pub replace: bool,
}

/// The names of all extended attributes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ListXattrs {
    /// The inode.
    pub fid: Fid,
}

/// Removes an extended attribute.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RemoveXattr {
    /// The inode.
    pub fid: Fid,
    /// The attribute's name.
    pub name: Vec<u8>,
}

/// Between members: what this name names now.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PeekEntry {
    /// The directory.
    pub dir: Fid,
    /// The name in it.
    pub name: Vec<u8>,
}

/// Between members: `count` unused fids of this member.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct MintFids {
    /// How many.
    pub count: u32,
}

/// Between members: check these needs and hold them for the intent, durably, until [`FinishIntent`] or [`AbortIntent`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PrepareIntent {
    /// Which operation.
    pub intent: IntentId,
    /// Intents of the coordinator under this number are over.
    pub below: u64,
    /// What to check and hold.
    pub needs: Vec<Precondition>,
}

/// The reply to a request that holds something for an intent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum HoldReply {
    /// It is held.
    Held,
    /// Another intent holds what is needed; try again when it is over.
    Busy(IntentId),
    /// An entry is no longer what the asker saw; look again.
    Changed,
}

/// Between members: the intent is decided; do this part of it, once however often it is asked. Every intent of
/// this coordinator with a number under `below` is over.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FinishIntent {
    /// Which operation.
    pub intent: IntentId,
    /// Intents of the coordinator under this number are over.
    pub below: u64,
    /// What to do.
    pub part: IntentPart,
}

/// Between members: the intent did not happen (or is over); release what it holds here.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AbortIntent {
    /// Which operation.
    pub intent: IntentId,
}

/// Between members, to the coordinator: is this intent still going on?
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AskIntent {
    /// Which operation.
    pub intent: IntentId,
}

/// Between members, at a start: the intent is decided; what was made here when it was prepared is made again, if a power
/// cut took it back.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RemakeIntent {
    /// Which operation.
    pub intent: IntentId,
    /// Intents of the coordinator under this number are over.
    pub below: u64,
    /// What was made.
    pub makes: Vec<Precondition>,
}

/// Between members: what this member did for intents so far is on disk when it answers.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SyncIntents;

/// Between members, to the root's owner: the lock of directory moves. [`AbortIntent`] gives it back.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TakeGate {
    /// Which operation.
    pub intent: IntentId,
}
