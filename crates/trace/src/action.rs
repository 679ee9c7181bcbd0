//! What calls do, by number and by name.

use crate::Kind;

/// What a call did. The numbers are in users' files: they never change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Action {
    /// Bytes to the program: `offset`, and `len` as many as it got.
    Read = 0,
    /// Bytes from the program: `offset`, `len`.
    Write = 1,
    /// A file opened; `offset` holds the flags of `open(2)`.
    Open = 2,
    /// A file made and opened; `offset` as for `Open`.
    Create = 3,
    /// The last descriptor of an opened file was closed.
    Close = 4,
    /// One descriptor was closed: what publishes writes.
    Flush = 5,
    /// `fsync` or `fdatasync`.
    Sync = 6,
    /// The size set; `len` is the new one.
    Truncate = 7,
    /// Attributes changed.
    SetAttributes = 8,
    /// Attributes asked for.
    Stat = 9,
    /// A name looked up.
    Lookup = 10,
    /// A directory made.
    MakeDirectory = 11,
    /// A file removed.
    Unlink = 12,
    /// A directory removed.
    RemoveDirectory = 13,
    /// A file or directory renamed.
    Rename = 14,
    /// Another name made for a file.
    Link = 15,
    /// A symbolic link made.
    Symlink = 16,
    /// A symbolic link read.
    ReadLink = 17,
    /// A FIFO, socket or file made by `mknod`.
    MakeNode = 18,
    /// A directory opened.
    OpenDirectory = 19,
    /// A part of a directory listed.
    List = 20,
    /// A directory closed.
    CloseDirectory = 21,
    /// A directory synced.
    SyncDirectory = 22,
    /// A lock taken, given up or tested; `offset` and `len` are its range (`len` 0: to the end).
    Lock = 23,
    /// Room made or holes cut: `offset`, `len`.
    Allocate = 24,
    /// Data or a hole looked for; `offset` is where from.
    Seek = 25,
    /// Bytes copied to another file inside the file system: `offset`, `len`. Its other half is a `CopyTo`.
    Copy = 26,
    /// An extended attribute read, listed, set or removed.
    Attribute = 27,
    /// The file system's size asked for.
    StatFs = 28,
    /// Bytes that came from another file inside the file system: `offset`, `len`.
    CopyTo = 29,
}

impl Action {
    /// All, each at the place of its number.
    pub const ALL: [Action; 30] = [
        Action::Read,
        Action::Write,
        Action::Open,
        Action::Create,
        Action::Close,
        Action::Flush,
        Action::Sync,
        Action::Truncate,
        Action::SetAttributes,
        Action::Stat,
        Action::Lookup,
        Action::MakeDirectory,
        Action::Unlink,
        Action::RemoveDirectory,
        Action::Rename,
        Action::Link,
        Action::Symlink,
        Action::ReadLink,
        Action::MakeNode,
        Action::OpenDirectory,
        Action::List,
        Action::CloseDirectory,
        Action::SyncDirectory,
        Action::Lock,
        Action::Allocate,
        Action::Seek,
        Action::Copy,
        Action::Attribute,
        Action::StatFs,
        Action::CopyTo,
    ];

    /// The action of this number.
    pub fn from_code(code: u8) -> Option<Action> {
        Action::ALL.get(usize::from(code)).copied()
    }

    /// Its number.
    pub fn code(self) -> u8 {
        self as u8
    }

    /// Its name in CSV files and tables.
    pub fn name(self) -> &'static str {
        match self {
            Action::Read => "read",
            Action::Write => "write",
            Action::Open => "open",
            Action::Create => "create",
            Action::Close => "close",
            Action::Flush => "flush",
            Action::Sync => "fsync",
            Action::Truncate => "truncate",
            Action::SetAttributes => "setattr",
            Action::Stat => "stat",
            Action::Lookup => "lookup",
            Action::MakeDirectory => "mkdir",
            Action::Unlink => "unlink",
            Action::RemoveDirectory => "rmdir",
            Action::Rename => "rename",
            Action::Link => "link",
            Action::Symlink => "symlink",
            Action::ReadLink => "readlink",
            Action::MakeNode => "mknod",
            Action::OpenDirectory => "opendir",
            Action::List => "readdir",
            Action::CloseDirectory => "closedir",
            Action::SyncDirectory => "fsyncdir",
            Action::Lock => "lock",
            Action::Allocate => "fallocate",
            Action::Seek => "lseek",
            Action::Copy => "copy",
            Action::Attribute => "xattr",
            Action::StatFs => "statfs",
            Action::CopyTo => "copyto",
        }
    }

    /// The action of this name.
    pub fn from_name(name: &str) -> Option<Action> {
        Action::ALL.into_iter().find(|a| a.name() == name)
    }
}

impl From<Kind> for Action {
    fn from(kind: Kind) -> Action {
        match kind {
            Kind::Read => Action::Read,
            Kind::Write => Action::Write,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_action_has_its_number_and_a_name_of_its_own() {
        for (code, action) in (0u8..).zip(Action::ALL) {
            assert_eq!(action.code(), code);
            assert_eq!(Action::from_code(code), Some(action));
            assert_eq!(Action::from_name(action.name()), Some(action));
        }
        assert_eq!(Action::from_code(30), None);
    }
}
