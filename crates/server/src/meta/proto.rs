//! The words of the namespace.
use crate::*;
use serde::{Deserialize, Serialize};

/// Sent to the owner of the directory (or of `fid`). Internal steps between members are added by `meta`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum MetaRequest {
    Lookup { parent: Fid, name: Vec<u8> },
    GetAttr { fid: Fid },
    /// Never with `size`.
    SetAttr { fid: Fid, set: SetAttr, caller: Caller },
    /// To the owner of `parent`. `exclusive`: EEXIST if there is one; otherwise answers the existing file.
    Create { parent: Fid, name: Vec<u8>, new: NewNode, caller: Caller, exclusive: bool },
    Link { fid: Fid, parent: Fid, name: Vec<u8> },
    Unlink { parent: Fid, name: Vec<u8>, caller: Caller },
    Rmdir { parent: Fid, name: Vec<u8>, caller: Caller },
    /// To the owner of `to`.
    Rename { from: Fid, name: Vec<u8>, to: Fid, to_name: Vec<u8>, flags: RenameFlags, caller: Caller },
    /// Entries after `after` (exclusive; `None` from the start), at most `limit`. `.` and `..` are the delegate's.
    ReadDir { fid: Fid, after: Option<Vec<u8>>, limit: u32 },
    ReadLink { fid: Fid },
    Parent { fid: Fid },
    GetXattr { fid: Fid, name: Vec<u8> },
    SetXattr { fid: Fid, name: Vec<u8>, value: Vec<u8>, create: bool, replace: bool },
    ListXattr { fid: Fid },
    RemoveXattr { fid: Fid, name: Vec<u8> },
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum MetaReply {
    Done,
    Attr(Attr),
    /// The file, and whether this call made it.
    Created(Attr, bool),
    Entries(Vec<DirEntry>),
    Bytes(Vec<u8>),
    Names(Vec<Vec<u8>>),
    Parent(Fid),
}
