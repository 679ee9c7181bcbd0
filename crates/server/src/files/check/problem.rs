//! What the check of file content can find, as text for people.
use crate::{Fid, Member};
use forebay_index::Extent;
use std::fmt;

/// One thing that is not as it should be. Offsets and sizes in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Problem {
    /// Two stored extents of one file share bytes of the file.
    Overlap {
        member: Member,
        fid: Fid,
        first: Extent,
        second: Extent,
    },
    /// An extent that its member does not own, or that crosses a slice's end.
    Misplaced {
        member: Member,
        fid: Fid,
        extent: Extent,
    },
    /// An extent behind the end of its file.
    BehindEnd {
        member: Member,
        fid: Fid,
        extent: Extent,
        size: u64,
    },
    /// Extents of a file that does not exist.
    NoFile {
        member: Member,
        fid: Fid,
        extents: u64,
    },
    /// The inode counts other bytes than the extents hold.
    Bytes { fid: Fid, inode: u64, extents: u64 },
    /// A record that cannot be read.
    Unreadable { member: Member, what: String },
    /// A staged part of a commit: the next start publishes or drops it.
    Staged {
        member: Member,
        fid: Fid,
        writer: Member,
        token: u64,
    },
    /// A decided commit not published everywhere: the next start publishes it.
    Decided {
        fid: Fid,
        seq: u64,
        members: Vec<Member>,
    },
    /// A record about commits of a file that is gone.
    Leftover { member: Member, fid: Fid },
}

impl Problem {
    /// False for what the next start settles by itself.
    pub fn is_damage(&self) -> bool {
        !matches!(
            self,
            Problem::Staged { .. } | Problem::Decided { .. } | Problem::Leftover { .. }
        )
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let range = |e: &Extent| format!("[{}, {})", e.offset, e.end());
        match self {
            Problem::Overlap {
                member,
                fid,
                first,
                second,
            } => {
                write!(
                    f,
                    "member {member}, file {:#x}: extents {} and {} overlap",
                    fid.0,
                    range(first),
                    range(second)
                )
            }
            Problem::Misplaced {
                member,
                fid,
                extent,
            } => {
                write!(
                    f,
                    "member {member}, file {:#x}: extent {} does not belong to this member",
                    fid.0,
                    range(extent)
                )
            }
            Problem::BehindEnd {
                member,
                fid,
                extent,
                size,
            } => {
                write!(
                    f,
                    "member {member}, file {:#x}: extent {} lies behind the end, {size}",
                    fid.0,
                    range(extent)
                )
            }
            Problem::NoFile {
                member,
                fid,
                extents,
            } => {
                write!(
                    f,
                    "member {member}: {extents} extents of file {:#x}, which does not exist",
                    fid.0
                )
            }
            Problem::Bytes {
                fid,
                inode,
                extents,
            } => {
                write!(
                    f,
                    "file {:#x}: its inode counts {inode} stored bytes, its extents hold {extents}",
                    fid.0
                )
            }
            Problem::Unreadable { member, what } => write!(f, "member {member}: {what}"),
            Problem::Staged {
                member,
                fid,
                writer,
                token,
            } => {
                write!(
                    f,
                    "member {member}, file {:#x}: commit {token} of member {writer} is staged; the next start settles it",
                    fid.0
                )
            }
            Problem::Decided { fid, seq, members } => {
                write!(
                    f,
                    "file {:#x}: commit {seq} is not published by members {members:?} yet; the next start does it",
                    fid.0
                )
            }
            Problem::Leftover { member, fid } => {
                write!(
                    f,
                    "member {member}: a record of commits of file {:#x}, which is gone; harmless",
                    fid.0
                )
            }
        }
    }
}
