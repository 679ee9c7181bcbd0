//! What the check of file content can find, as text for people.
use crate::{Fid, Member};
use forebay_index::Extent;
use std::fmt;

/// One thing that is not as it should be. Offsets and sizes in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Problem {
    /// Two stored extents of one file share bytes of the file.
    Overlap {
        /// Whose store.
        member: Member,
        /// The file.
        fid: Fid,
        /// The one before.
        first: Extent,
        /// The one behind.
        second: Extent,
    },
    /// An extent that its member does not own, or that crosses a slice's end.
    Misplaced {
        /// Whose store.
        member: Member,
        /// The file.
        fid: Fid,
        /// The extent.
        extent: Extent,
    },
    /// An extent behind the end of its file.
    BehindEnd {
        /// Whose store.
        member: Member,
        /// The file.
        fid: Fid,
        /// The extent.
        extent: Extent,
        /// The file's size.
        size: u64,
    },
    /// Extents of a file that does not exist.
    NoFile {
        /// Whose store.
        member: Member,
        /// The file.
        fid: Fid,
        /// How many there are.
        extents: u64,
    },
    /// The inode counts other bytes than the extents hold.
    Bytes {
        /// The file.
        fid: Fid,
        /// What the inode counts.
        inode: u64,
        /// Bytes that the extents hold.
        extents: u64,
    },
    /// Patterns that are not as they should be.
    Patterns {
        /// Whose store.
        member: Member,
        /// The file.
        fid: Fid,
        /// What is wrong.
        what: String,
    },
    /// A record that cannot be read.
    Unreadable {
        /// Whose store.
        member: Member,
        /// Which, and why.
        what: String,
    },
    /// A staged part of a commit: the next start publishes or drops it.
    Staged {
        /// Whose store.
        member: Member,
        /// The file.
        fid: Fid,
        /// Who staged it.
        writer: Member,
        /// The writer's name for the commit.
        token: u64,
    },
    /// A decided commit not published everywhere: the next start publishes it.
    Decided {
        /// The file.
        fid: Fid,
        /// Its sequence.
        seq: u64,
        /// Who has not published it.
        members: Vec<Member>,
    },
    /// A record about commits of a file that is gone.
    Leftover {
        /// Whose store.
        member: Member,
        /// The file.
        fid: Fid,
    },
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
            Problem::Patterns { member, fid, what } => {
                write!(f, "member {member}, patterns of file {:#x}: {what}", fid.0)
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
