//! The words of the namespace: what delegates ask, and the steps of operations that span members.
//!
//! Two classes: a *leaf* request is answered from the member's own store, at once; it never waits and never calls
//! another member. All others may call leaf requests of other members. So members that serve the two classes from
//! separate threads cannot wait for each other in a circle.
use super::steps::{Entry, Need, Step};
use crate::*;
use serde::{Deserialize, Serialize};

/// The name of an operation that spans members: who coordinates it, and its number there. Never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct IntentId {
    /// The member that decides and remembers it.
    pub coordinator: Member,
    /// Grows with every intent of this coordinator.
    pub number: u64,
}

/// Sent to the owner of the directory (or of `fid`).
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum MetaRequest {
    /// Attributes of the named inode. Errors: `ENOENT`, `ENOTDIR`, `ESTALE`, `ENAMETOOLONG`.
    Lookup { parent: Fid, name: Vec<u8> },
    /// Attributes. Leaf.
    GetAttr { fid: Fid },
    /// Never with `size`. Leaf.
    SetAttr {
        fid: Fid,
        set: SetAttr,
        caller: Caller,
    },
    /// To the owner of `parent`. `exclusive`: EEXIST if there is one; otherwise answers the existing file.
    Create {
        parent: Fid,
        name: Vec<u8>,
        new: NewNode,
        caller: Caller,
        exclusive: bool,
    },
    /// Another name for the file. To the owner of `parent`; answers the attributes.
    Link {
        fid: Fid,
        parent: Fid,
        name: Vec<u8>,
    },
    /// Removes a name of something that is no directory.
    Unlink {
        parent: Fid,
        name: Vec<u8>,
        caller: Caller,
    },
    /// Removes an empty directory.
    Rmdir {
        parent: Fid,
        name: Vec<u8>,
        caller: Caller,
    },
    /// To the owner of `to`.
    Rename {
        from: Fid,
        name: Vec<u8>,
        to: Fid,
        to_name: Vec<u8>,
        flags: RenameFlags,
        caller: Caller,
    },
    /// Entries after `after` (exclusive; `None` from the start), at most `limit`. `.` and `..` are the delegate's. Leaf.
    ReadDir {
        fid: Fid,
        after: Option<Vec<u8>>,
        limit: u32,
    },
    /// Where a symlink leads. Leaf.
    ReadLink { fid: Fid },
    /// The parent of a directory. Leaf.
    Parent { fid: Fid },
    /// Leaf.
    GetXattr { fid: Fid, name: Vec<u8> },
    /// `create`: `EEXIST` if there is one; `replace`: `ENODATA` if there is none. Leaf.
    SetXattr {
        fid: Fid,
        name: Vec<u8>,
        value: Vec<u8>,
        create: bool,
        replace: bool,
    },
    /// Leaf.
    ListXattr { fid: Fid },
    /// Leaf.
    RemoveXattr { fid: Fid, name: Vec<u8> },

    /// Between members, leaf: what this name names now.
    Peek { dir: Fid, name: Vec<u8> },
    /// Between members, leaf: `count` unused fids of this member.
    Mint { count: u32 },
    /// Between members, leaf: check these needs and hold them for the intent, durably, until `Finish` or `Abort`.
    Prepare {
        intent: IntentId,
        below: u64,
        needs: Vec<Need>,
    },
    /// Between members, leaf: the intent is decided; do these steps, once however often it is asked. Every intent of
    /// this coordinator with a number under `below` is over.
    Finish {
        intent: IntentId,
        below: u64,
        steps: Vec<Step>,
    },
    /// Between members, leaf: the intent did not happen (or is over); give back what it holds here.
    Abort { intent: IntentId },
    /// Between members, leaf, to the coordinator: is this intent still going on?
    Ask { intent: IntentId },
    /// Between members, leaf, to the root's owner: the lock of directory moves. `Abort` gives it back.
    Gate { intent: IntentId },
}

impl MetaRequest {
    /// Answered at once from this member's store: never waits, never calls another member.
    pub fn is_leaf(&self) -> bool {
        !matches!(
            self,
            MetaRequest::Lookup { .. }
                | MetaRequest::Create { .. }
                | MetaRequest::Link { .. }
                | MetaRequest::Unlink { .. }
                | MetaRequest::Rmdir { .. }
                | MetaRequest::Rename { .. }
        )
    }
}

/// Answers to `MetaRequest`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum MetaReply {
    /// It is done.
    Done,
    /// Attributes.
    Attr(Attr),
    /// The file, and whether this call made it.
    Created(Attr, bool),
    /// A page of a directory.
    Entries(Vec<DirEntry>),
    /// A symlink's target, or an attribute's value.
    Bytes(Vec<u8>),
    /// Names of extended attributes.
    Names(Vec<Vec<u8>>),
    /// The parent directory.
    Parent(Fid),
    /// What a name names.
    Entry(Entry),
    /// Unused fids.
    Fids(Vec<Fid>),
    /// Another intent holds what is needed; try again when it is over.
    Busy(IntentId),
    /// The entry is no longer what the asker saw; look again.
    Changed,
    /// Whether the intent is still going on.
    Live(bool),
}
