//! What the check of a namespace can find, in words.
use crate::{Fid, Member};
use std::fmt;

/// One fault of a namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finding {
    /// A record that cannot be read.
    Damaged {
        /// Whose store.
        member: Member,
        /// What is wrong with it.
        text: String,
    },
    /// Operations over several members that the next start finishes. Not a fault by itself.
    Unfinished {
        /// Whose store.
        member: Member,
        /// Decided, not carried out everywhere.
        committed: usize,
        /// Promised to other members, not decided here.
        prepared: usize,
    },
    /// An inode in the store of a member that does not own it.
    Foreign {
        /// Whose store.
        member: Member,
        /// The inode.
        fid: Fid,
    },
    /// An entry of a directory that does not exist, or is no directory.
    NoDirectory {
        /// The directory.
        dir: Fid,
        /// The name in it.
        name: Vec<u8>,
    },
    /// An entry whose inode does not exist.
    NoInode {
        /// The directory.
        dir: Fid,
        /// The name in it.
        name: Vec<u8>,
        /// The inode.
        fid: Fid,
    },
    /// An entry that says another kind than the inode.
    WrongKind {
        /// The directory.
        dir: Fid,
        /// The name in it.
        name: Vec<u8>,
        /// The inode.
        fid: Fid,
    },
    /// A directory with a second name.
    TwoNames {
        /// The directory.
        dir: Fid,
        /// The name in it.
        name: Vec<u8>,
        /// The inode.
        fid: Fid,
    },
    /// A directory whose `..` is not where its name is.
    WrongParent {
        /// The inode.
        fid: Fid,
        /// What its record says.
        parent: Fid,
        /// What the names say.
        expected: Fid,
    },
    /// A link count that does not match the names.
    WrongLinks {
        /// The inode.
        fid: Fid,
        /// What is recorded.
        links: u32,
        /// What the names say.
        expected: u32,
    },
    /// An inode without a name that nothing will remove.
    Unreachable {
        /// The inode.
        fid: Fid,
    },
    /// A removed directory that still has entries.
    DeadWithEntries {
        /// The inode.
        fid: Fid,
    },
    /// Directories that hang together but not on the root.
    Loop {
        /// The inode.
        fid: Fid,
    },
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
        match self {
            Finding::Damaged { member, text } => write!(f, "member {member}: {text}"),
            Finding::Unfinished {
                member,
                committed,
                prepared,
            } => write!(
                f,
                "member {member}: {committed} operations to finish, {prepared} held for others (the next start does it)"
            ),
            Finding::Foreign { member, fid } => write!(
                f,
                "member {member}: inode {:#x} belongs to another member",
                fid.0
            ),
            Finding::NoDirectory { dir, name } => {
                write!(
                    f,
                    "entry {:?} of {:#x}, which is no directory",
                    text(name),
                    dir.0
                )
            }
            Finding::NoInode { dir, name, fid } => {
                write!(
                    f,
                    "entry {:?} of directory {:#x}: inode {:#x} does not exist",
                    text(name),
                    dir.0,
                    fid.0
                )
            }
            Finding::WrongKind { dir, name, fid } => {
                write!(
                    f,
                    "entry {:?} of directory {:#x}: inode {:#x} is of another kind",
                    text(name),
                    dir.0,
                    fid.0
                )
            }
            Finding::TwoNames { dir, name, fid } => {
                write!(
                    f,
                    "entry {:?} of directory {:#x}: directory {:#x} has another name",
                    text(name),
                    dir.0,
                    fid.0
                )
            }
            Finding::WrongParent {
                fid,
                parent,
                expected,
            } => {
                write!(
                    f,
                    "directory {:#x}: parent {:#x}, should be {:#x}",
                    fid.0, parent.0, expected.0
                )
            }
            Finding::WrongLinks {
                fid,
                links,
                expected,
            } => {
                write!(f, "inode {:#x}: {links} links, should be {expected}", fid.0)
            }
            Finding::Unreachable { fid } => write!(f, "inode {:#x} has no name", fid.0),
            Finding::DeadWithEntries { fid } => {
                write!(f, "removed directory {:#x} has entries", fid.0)
            }
            Finding::Loop { fid } => write!(f, "directory {:#x} has no way to the root", fid.0),
        }
    }
}
