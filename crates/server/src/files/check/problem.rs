//! What the check of file content can find, as text for people.
use crate::{Fid, Member};
use forebay_index::Extent;

/// One thing that is not as it should be. Offsets and sizes in bytes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ContentProblem {
    /// Two stored extents of one file share bytes of the file.
    #[error(
        "member {member}, file {fid:#x}: extents {} and {} overlap",
        range(first),
        range(second)
    )]
    Overlap {
        /// Whose store.
        member: Member,
        /// The file.
        fid: Fid,
        /// The one before.
        first: Extent,
        /// The one after.
        second: Extent,
    },
    /// An extent that its member does not own, or that crosses a slice's end.
    #[error(
        "member {member}, file {fid:#x}: extent {} does not belong to this member",
        range(extent)
    )]
    Misplaced {
        /// Whose store.
        member: Member,
        /// The file.
        fid: Fid,
        /// The extent.
        extent: Extent,
    },
    /// An extent beyond the end of its file.
    #[error(
        "member {member}, file {fid:#x}: extent {} lies behind the end, {size}",
        range(extent)
    )]
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
    #[error("member {member}: {extents} extents of file {fid:#x}, which does not exist")]
    NoFile {
        /// Whose store.
        member: Member,
        /// The file.
        fid: Fid,
        /// How many there are.
        extents: u64,
    },
    /// The inode counts other bytes than the extents hold.
    #[error("file {fid:#x}: its inode counts {inode} stored bytes, its extents hold {extents}")]
    Bytes {
        /// The file.
        fid: Fid,
        /// What the inode counts.
        inode: u64,
        /// Bytes that the extents hold.
        extents: u64,
    },
    /// Patterns that are not as they should be.
    #[error("member {member}, patterns of file {fid:#x}: {what}")]
    Patterns {
        /// Whose store.
        member: Member,
        /// The file.
        fid: Fid,
        /// What is wrong.
        what: String,
    },
    /// A record that cannot be read.
    #[error("member {member}: {what}")]
    Unreadable {
        /// Whose store.
        member: Member,
        /// Which, and why.
        what: String,
    },
    /// A staged part of a commit: the next start publishes or drops it.
    #[error(
        "member {member}, file {fid:#x}: commit {token} of member {writer} is staged; the next start settles it"
    )]
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
    #[error(
        "file {fid:#x}: commit {seq} is not published by members {members:?} yet; the next start does it"
    )]
    Decided {
        /// The file.
        fid: Fid,
        /// Its sequence.
        seq: u64,
        /// Who has not published it.
        members: Vec<Member>,
    },
    /// A record about commits of a file that is gone.
    #[error("member {member}: a record of commits of file {fid:#x}, which is gone; harmless")]
    Leftover {
        /// Whose store.
        member: Member,
        /// The file.
        fid: Fid,
    },
}

impl ContentProblem {
    /// False for what the next start settles by itself.
    pub fn is_damage(&self) -> bool {
        !matches!(
            self,
            ContentProblem::Staged { .. }
                | ContentProblem::Decided { .. }
                | ContentProblem::Leftover { .. }
        )
    }
}

fn range(extent: &Extent) -> String {
    format!("[{}, {})", extent.offset, extent.end())
}
