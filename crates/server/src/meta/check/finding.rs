//! What the check of a namespace can find, in words.
use crate::{Fid, Member};

/// One fault of a namespace.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NamespaceFinding {
    /// A record that cannot be read.
    #[error("member {member}: {text}")]
    Damaged {
        /// Whose store.
        member: Member,
        /// What is wrong with it.
        text: String,
    },
    /// Operations over several members that the next start finishes. Not a fault by itself.
    #[error(
        "member {member}: {committed} operations to finish, {prepared} held for others (the next start does it)"
    )]
    Unfinished {
        /// Whose store.
        member: Member,
        /// Decided, not carried out everywhere.
        committed: usize,
        /// Promised to other members, not decided here.
        prepared: usize,
    },
    /// An inode in the store of a member that does not own it.
    #[error("member {member}: inode {fid:#x} belongs to another member")]
    Foreign {
        /// Whose store.
        member: Member,
        /// The inode.
        fid: Fid,
    },
    /// An entry of a directory that does not exist, or is no directory.
    #[error("entry {:?} of {dir:#x}, which is no directory", String::from_utf8_lossy(.name))]
    NoDirectory {
        /// The directory.
        dir: Fid,
        /// The name in it.
        name: Vec<u8>,
    },
    /// An entry whose inode does not exist.
    #[error(
        "entry {:?} of directory {dir:#x}: inode {fid:#x} does not exist",
        String::from_utf8_lossy(.name)
    )]
    NoInode {
        /// The directory.
        dir: Fid,
        /// The name in it.
        name: Vec<u8>,
        /// The inode.
        fid: Fid,
    },
    /// An entry that says another kind than the inode.
    #[error(
        "entry {:?} of directory {dir:#x}: inode {fid:#x} is of another kind",
        String::from_utf8_lossy(.name)
    )]
    WrongKind {
        /// The directory.
        dir: Fid,
        /// The name in it.
        name: Vec<u8>,
        /// The inode.
        fid: Fid,
    },
    /// A directory with a second name.
    #[error(
        "entry {:?} of directory {dir:#x}: directory {fid:#x} has another name",
        String::from_utf8_lossy(.name)
    )]
    TwoNames {
        /// The directory.
        dir: Fid,
        /// The name in it.
        name: Vec<u8>,
        /// The inode.
        fid: Fid,
    },
    /// A directory whose `..` is not where its name is.
    #[error("directory {fid:#x}: parent {parent:#x}, should be {expected:#x}")]
    WrongParent {
        /// The inode.
        fid: Fid,
        /// What its record says.
        parent: Fid,
        /// What the names say.
        expected: Fid,
    },
    /// A link count that does not match the names.
    #[error("inode {fid:#x}: {links} links, should be {expected}")]
    WrongLinks {
        /// The inode.
        fid: Fid,
        /// What is recorded.
        links: u32,
        /// What the names say.
        expected: u32,
    },
    /// An inode without a name that nothing will remove.
    #[error("inode {fid:#x} has no name")]
    Unreachable {
        /// The inode.
        fid: Fid,
    },
    /// A removed directory that still has entries.
    #[error("removed directory {fid:#x} has entries")]
    DeadWithEntries {
        /// The inode.
        fid: Fid,
    },
    /// Directories that hang together but not on the root.
    #[error("directory {fid:#x} has no way to the root")]
    Loop {
        /// The inode.
        fid: Fid,
    },
}
