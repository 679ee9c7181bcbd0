//! The words of file content.
use crate::*;
use forebay_index::{Change, Extent};
use serde::{Deserialize, Serialize};

/// What a commit publishes to one member's slices.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    pub member: u16,
    pub changes: Vec<Change>,
}

/// What a commit says of the attributes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CommitAttr {
    /// The end of the furthest extent published: the size becomes at least this.
    pub end: Option<u64>,
    /// Truncate and extend: the size becomes exactly this.
    pub size: Option<u64>,
    pub mtime: Option<Time>,
    /// Set-id bits go, as after a write by someone without privilege.
    pub clear_setid: bool,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum FilesRequest {
    /// To the attribute owner. Counts the open; answers attributes. `EROFS`-like rules for laminated files: `EPERM`... see files.
    Open {
        fid: Fid,
        flags: OpenFlags,
    },
    Close {
        fid: Fid,
        flags: OpenFlags,
    },
    /// To the owner: publish these changes as one. The owner's own part goes straight in; parts of other members must have
    /// been staged there under `token` before. Idempotent by `token` (retries answer the same). An error from the owner
    /// means that nothing happened: try again as it is, or `Drop` the parts and plan again with a new token.
    /// `Stale`: plan the parts again from a new view.
    Commit {
        fid: Fid,
        token: u64,
        own: Vec<Change>,
        staged: Vec<u16>,
        attr: CommitAttr,
        sync: bool,
    },
    /// To a slice owner: keep these until the owner of `fid` publishes or drops them.
    Stage {
        fid: Fid,
        token: u64,
        changes: Vec<Change>,
        sync: bool,
    },
    /// Owner to slice owner: make the staged changes visible with this sequence (idempotent).
    Publish {
        fid: Fid,
        writer: u16,
        token: u64,
        seq: u64,
        sync: bool,
    },
    /// Drop staged changes of a commit that did not happen (idempotent). Asks the owner: if it was decided after all, the
    /// changes are published instead; if not, it never will be.
    Drop {
        fid: Fid,
        writer: u16,
        token: u64,
    },
    /// Slice owner to owner: was it decided, and with which sequence? With `abort` (after a crash), the answer `None`
    /// is also a promise that it never will be.
    Decision {
        fid: Fid,
        writer: u16,
        token: u64,
        abort: bool,
    },
    /// To the owner: attributes and the sequence up to which every commit is published everywhere.
    View {
        fid: Fid,
    },
    /// To a slice owner: extents overlapping the range. Answers also the last sequence published here for this file;
    /// if that is above the reader's view, the reader asks again with a newer view.
    Extents {
        fid: Fid,
        start: u64,
        end: u64,
        limit: u32,
    },
    /// To the owner: where the next append of `len` bytes goes.
    Append {
        fid: Fid,
        len: u64,
        pending_end: u64,
    },
    /// Read-only for ever; `EBUSY` while a member holds it open for writing.
    Laminate {
        fid: Fid,
    },
    /// To the owner or a slice owner: everything published of the file before is on disk when it answers. Leaf.
    Sync {
        fid: Fid,
    },
    /// Owner to slice owner: remove all extents of a removed file.
    Remove {
        fid: Fid,
    },
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum FilesReply {
    Done,
    /// Attributes (generation = sequence of the last commit published everywhere).
    Attr(Attr),
    /// The sequence of the commit, and the file's generation just before it (`None`: no longer known). A reader at that
    /// generation knows that nothing foreign came between.
    Committed {
        seq: u64,
        previous: Option<u64>,
        attr: Attr,
    },
    Published {
        added: u64,
        freed: u64,
    },
    Decision(Option<u64>),
    Extents {
        extents: Vec<Extent>,
        published: u64,
        more: bool,
    },
    Offset(u64),
    /// To `Publish`: nothing is staged here under that token.
    Missing,
    /// To `Remove`: not finished, ask again.
    More,
}
