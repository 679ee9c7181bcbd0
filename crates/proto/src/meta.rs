//! Requests about names and attributes: what delegates ask, and the steps of operations that span members. Each goes to the
//! owner of the directory, or of `fid`.
//!
//! Two RPC services: a *leaf* request is answered from the member's own store, at once; it never waits and never calls
//! another member. An *operation* may ask leaf requests of other members. So members that serve the two from separate
//! threads cannot wait for each other in a circle.
use crate::call::service;
use crate::intents::{EntryTarget, IntentId, IntentPart, Precondition};
use crate::{Attr, Caller, DirEntry, Fid, Member, NewInode, RenameFlags, SetAttr};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The longest that a kernel keeps what is leased to its node. Before the owner changes something leased, it has the kernels
/// that may have it drop it.
pub const LEASE_TERM: Duration = Duration::from_millis(50);

service! {
    /// What a member does with the names in its directories. It may ask leaf requests of other members.
    OperationService, OperationRequest {
        /// Attributes of the named inode. Errors: `ENOENT`, `ENOTDIR`, `ESTALE`, `ENAMETOOLONG`.
        lookup(Lookup {
            /// The directory.
            parent: Fid,
            /// The name in it.
            name: Vec<u8>,
            /// The kernel of the asker's node wants to keep the answer.
            lease: bool,
        }) -> LeasedAttr;

        /// To the owner of `parent`. `exclusive`: `EEXIST` if there is one; otherwise answers the existing file.
        create(Create {
            /// The directory.
            parent: Fid,
            /// The name in it.
            name: Vec<u8>,
            /// What to make.
            new: NewInode,
            /// Who asks.
            caller: Caller,
            /// Fail if there is one.
            exclusive: bool,
            /// A file that this makes is open for the asking member, as by [`Open`](crate::files::Open).
            open: Option<NewOpen>,
        }) -> CreateReply;

        /// Makes another name for the file. To the owner of `parent`; answers the attributes.
        link(Link {
            /// The inode.
            fid: Fid,
            /// The directory.
            parent: Fid,
            /// The name in it.
            name: Vec<u8>,
        }) -> Attr;

        /// Removes a name of something that is no directory; answers what lost it.
        unlink(Unlink {
            /// The directory.
            parent: Fid,
            /// The name in it.
            name: Vec<u8>,
            /// The inode that the name must be of; `None`: any.
            fid: Option<Fid>,
            /// Who asks.
            caller: Caller,
        }) -> Fid;

        /// Removes an empty directory; answers which.
        remove_dir(RemoveDir {
            /// The directory.
            parent: Fid,
            /// The name in it.
            name: Vec<u8>,
            /// Who asks.
            caller: Caller,
        }) -> Fid;

        /// To the owner of `to`. Answers what was moved, and what was there before.
        rename(Rename {
            /// The old directory.
            from: Fid,
            /// The name in it.
            name: Vec<u8>,
            /// The new directory.
            to: Fid,
            /// The new name.
            to_name: Vec<u8>,
            /// What may be replaced.
            flags: RenameFlags,
            /// Who asks.
            caller: Caller,
        }) -> Vec<Fid>;
    }
}

service! {
    /// What a member answers from its own store alone about the names and attributes that it owns.
    LeafService, LeafRequest {
        /// Attributes.
        get_attr(GetAttr {
            /// The inode.
            fid: Fid,
            /// The member whose node's kernel wants to keep them.
            lease_to: Option<Member>,
        }) -> LeasedAttr;

        /// Changes attributes, never the size; answers them as they are then.
        change_attr(ChangeAttr {
            /// The inode.
            fid: Fid,
            /// What to change.
            set: SetAttr,
            /// Who asks.
            caller: Caller,
        }) -> Attr;

        /// Entries after `after` (exclusive; `None` from the start), at most `limit`. `.` and `..` are the delegate's.
        read_dir(ReadDir {
            /// The inode.
            fid: Fid,
            /// The last name already seen.
            after: Option<Vec<u8>>,
            /// Entries in the reply, at most.
            limit: u32,
        }) -> Vec<DirEntry>;

        /// Where a symlink leads.
        read_link(ReadLink {
            /// The inode.
            fid: Fid,
        }) -> Vec<u8>;

        /// The parent of a directory.
        get_parent(GetParent {
            /// The inode.
            fid: Fid,
        }) -> Fid;

        /// The value of an extended attribute.
        get_xattr(GetXattr {
            /// The inode.
            fid: Fid,
            /// The attribute's name.
            name: Vec<u8>,
        }) -> Vec<u8>;

        /// Sets an extended attribute. `create`: `EEXIST` if there is one; `replace`: `ENODATA` if there is none.
        set_xattr(SetXattr {
            /// The inode.
            fid: Fid,
            /// The attribute's name.
            name: Vec<u8>,
            /// Its value.
            value: Vec<u8>,
            /// Only a new one.
            create: bool,
            /// Only one that exists.
            replace: bool,
        }) -> ();

        /// The names of all extended attributes.
        list_xattrs(ListXattrs {
            /// The inode.
            fid: Fid,
        }) -> Vec<Vec<u8>>;

        /// Removes an extended attribute.
        remove_xattr(RemoveXattr {
            /// The inode.
            fid: Fid,
            /// The attribute's name.
            name: Vec<u8>,
        }) -> ();

        /// Between members: what this name names now.
        get_entry(GetEntry {
            /// The directory.
            dir: Fid,
            /// The name in it.
            name: Vec<u8>,
        }) -> EntryTarget;

        /// Between members: `count` unused fids of this member.
        allocate_fids(AllocateFids {
            /// How many.
            count: u32,
        }) -> Vec<Fid>;

        /// Between members: check these preconditions and hold them for the intent, durably, until [`FinishIntent`] or [`AbortIntent`].
        prepare_intent(PrepareIntent {
            /// Which operation.
            intent: IntentId,
            /// Intents of the coordinator under this number are over.
            below: u64,
            /// What to check and hold.
            preconditions: Vec<Precondition>,
            /// Whose request the operation is, if that is known: its kernel hears of the change by the answer.
            by: Option<Member>,
        }) -> HoldReply;

        /// Between members: the intent is decided; do this part of it, once however often it is asked. Every intent of
        /// this coordinator with a number under `below` is over.
        finish_intent(FinishIntent {
            /// Which operation.
            intent: IntentId,
            /// Intents of the coordinator under this number are over.
            below: u64,
            /// What to do.
            part: IntentPart,
            /// As of [`PrepareIntent`].
            by: Option<Member>,
        }) -> ();

        /// Between members: the intent did not happen (or is over); release what it holds here.
        abort_intent(AbortIntent {
            /// Which operation.
            intent: IntentId,
        }) -> ();

        /// Between members, to the coordinator: is this intent still going on?
        ask_intent(AskIntent {
            /// Which operation.
            intent: IntentId,
        }) -> bool;

        /// Between members, at a start: the intent is decided; what was made here when it was prepared is made again, if a power
        /// cut took it back.
        recreate_inodes(RecreateInodes {
            /// Which operation.
            intent: IntentId,
            /// Intents of the coordinator under this number are over.
            below: u64,
            /// What was made.
            makes: Vec<Precondition>,
        }) -> ();

        /// Between members: what this member did for intents so far is on disk when it answers.
        sync_intents(SyncIntents) -> ();

        /// Between members, to the root's owner: the lock of directory moves. [`AbortIntent`] releases it.
        lock_directory_moves(LockDirectoryMoves {
            /// Which operation.
            intent: IntentId,
        }) -> HoldReply;
    }
}

/// Attributes, and how far the asking node's kernel may keep them: see [`LEASE_TERM`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeasedAttr {
    /// Attributes.
    pub attr: Attr,
    /// They are leased.
    pub leased: bool,
    /// The name that was looked up is leased too.
    pub entry_leased: bool,
}

/// The reply to [`Create`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreateReply {
    /// The inode that the name names now.
    pub attr: Attr,
    /// This call made it.
    pub made: bool,
    /// And counted the open.
    pub opened: bool,
    /// The attributes are leased.
    pub leased: bool,
}

/// How a file is opened in the step that makes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewOpen {
    /// For writing.
    pub write: bool,
    /// Names the open; the asking member never uses it again for another.
    pub token: u64,
    /// The kernel of the asker's node wants to keep the attributes.
    pub lease: bool,
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
