//! The words of the namespace: what delegates ask, and the steps of operations that span members.
//!
//! Two classes: a *leaf* request is answered from the member's own store, at once; it never waits and never calls
//! another member. All others may call leaf requests of other members. So members that serve the two classes from
//! separate threads cannot wait for each other in a circle.
use crate::intents::{Entry, Need};
pub use crate::intents::{IntentId, Part};
use crate::{Attr, Caller, DirEntry, Error, Fid, Member, NewNode, RenameFlags, Result, SetAttr};
use serde::{Deserialize, Serialize};

/// Sent to the owner of the directory (or of `fid`).
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum MetaRequest {
    /// Attributes of the named inode. Errors: `ENOENT`, `ENOTDIR`, `ESTALE`, `ENAMETOOLONG`.
    Lookup {
        /// The directory.
        parent: Fid,
        /// The name in it.
        name: Vec<u8>,
    },
    /// Attributes. Leaf.
    GetAttr {
        /// The inode.
        fid: Fid,
    },
    /// Never with `size`. Leaf.
    SetAttr {
        /// The inode.
        fid: Fid,

        /// What to change.
        set: SetAttr,

        /// Who asks.
        caller: Caller,
    },
    /// To the owner of `parent`. `exclusive`: EEXIST if there is one; otherwise answers the existing file.
    Create {
        /// The directory.
        parent: Fid,

        /// The name in it.
        name: Vec<u8>,

        /// What to make.
        new: NewNode,

        /// Who asks.
        caller: Caller,

        /// Fail if there is one.
        exclusive: bool,
    },
    /// Another name for the file. To the owner of `parent`; answers the attributes.
    Link {
        /// The inode.
        fid: Fid,

        /// The directory.
        parent: Fid,

        /// The name in it.
        name: Vec<u8>,
    },
    /// Removes a name of something that is no directory.
    Unlink {
        /// The directory.
        parent: Fid,

        /// The name in it.
        name: Vec<u8>,

        /// Who asks.
        caller: Caller,
    },
    /// Removes an empty directory.
    Rmdir {
        /// The directory.
        parent: Fid,

        /// The name in it.
        name: Vec<u8>,

        /// Who asks.
        caller: Caller,
    },
    /// To the owner of `to`.
    Rename {
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
    },
    /// Entries after `after` (exclusive; `None` from the start), at most `limit`. `.` and `..` are the delegate's. Leaf.
    ReadDir {
        /// The inode.
        fid: Fid,

        /// The last name already seen.
        after: Option<Vec<u8>>,

        /// At most so many.
        limit: u32,
    },
    /// Where a symlink leads. Leaf.
    ReadLink {
        /// The inode.
        fid: Fid,
    },
    /// The parent of a directory. Leaf.
    Parent {
        /// The inode.
        fid: Fid,
    },
    /// Leaf.
    GetXattr {
        /// The inode.
        fid: Fid,
        /// The name in it.
        name: Vec<u8>,
    },
    /// `create`: `EEXIST` if there is one; `replace`: `ENODATA` if there is none. Leaf.
    SetXattr {
        /// The inode.
        fid: Fid,

        /// The name in it.
        name: Vec<u8>,

        /// Its value.
        value: Vec<u8>,

        /// Only a new one.
        create: bool,

        /// Only one that exists.
        replace: bool,
    },
    /// Leaf.
    ListXattr {
        /// The inode.
        fid: Fid,
    },
    /// Leaf.
    RemoveXattr {
        /// The inode.
        fid: Fid,
        /// The name in it.
        name: Vec<u8>,
    },

    /// Between members, leaf: what this name names now.
    Peek {
        /// The directory.
        dir: Fid,
        /// The name in it.
        name: Vec<u8>,
    },
    /// Between members, leaf: `count` unused fids of this member.
    Mint {
        /// How many.
        count: u32,
    },
    /// Between members, leaf: check these needs and hold them for the intent, durably, until `Finish` or `Abort`.
    Prepare {
        /// Which operation.
        intent: IntentId,

        /// Intents of the coordinator under this number are over.
        below: u64,

        /// What to check and hold.
        needs: Vec<Need>,
    },
    /// Between members, leaf: the intent is decided; do this part of it, once however often it is asked. Every intent of
    /// this coordinator with a number under `below` is over.
    Finish {
        /// Which operation.
        intent: IntentId,

        /// Intents of the coordinator under this number are over.
        below: u64,

        /// What to do.
        part: Part,
    },
    /// Between members, leaf: the intent did not happen (or is over); give back what it holds here.
    Abort {
        /// Which operation.
        intent: IntentId,
    },
    /// Between members, leaf, to the coordinator: is this intent still going on?
    Ask {
        /// Which operation.
        intent: IntentId,
    },
    /// Between members, leaf, at a start: the intent is decided; what was made here when it was prepared is made again, if a power
    /// cut took it back.
    Remake {
        /// Which operation.
        intent: IntentId,

        /// Intents of the coordinator under this number are over.
        below: u64,

        /// What was made.
        makes: Vec<Need>,
    },
    /// Between members, leaf: what this member did for intents so far is on disk when it answers.
    Sync,
    /// Between members, leaf, to the root's owner: the lock of directory moves. `Abort` gives it back.
    Gate {
        /// Which operation.
        intent: IntentId,
    },
}

impl MetaRequest {
    /// Only its coordinator prepares and finishes an intent, and says which of its intents are over.
    /// # Errors
    /// `Refused` for any other member.
    pub fn check_sender(&self, from: Member) -> Result<()> {
        match self {
            MetaRequest::Prepare { intent, .. }
            | MetaRequest::Remake { intent, .. }
            | MetaRequest::Finish { intent, .. }
                if intent.coordinator != from =>
            {
                Err(Error::Refused(format!(
                    "member {from} asked for a part of intent {} of member {}; do all members run the same version?",
                    intent.number, intent.coordinator
                )))
            }
            _ => Ok(()),
        }
    }

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
