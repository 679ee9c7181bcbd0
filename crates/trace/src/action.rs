//! The kinds of calls (open, read, write ...), as numbers and names.

use crate::Kind;

/// The enum, with all that follows from its lines: variant, number, name.
macro_rules! actions {
    ($($(#[$doc:meta])* $action:ident = $code:literal $name:literal,)*) => {
        /// What a call did. The numbers are in users' files: they never change.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Action {
            $($(#[$doc])* $action = $code,)*
        }

        impl Action {
            /// All, each at the place of its number.
            pub const ALL: [Action; [$($code),*].len()] = [$(Action::$action),*];

            /// Its name in CSV files and tables.
            pub fn name(self) -> &'static str {
                match self {
                    $(Action::$action => $name,)*
                }
            }
        }
    };
}

actions! {
    /// Bytes to the program: `offset`, and `len` as many as it got.
    Read = 0 "read",
    /// Bytes from the program: `offset`, `len`.
    Write = 1 "write",
    /// A file opened; `offset` holds the flags of `open(2)`.
    Open = 2 "open",
    /// A file made and opened; `offset` as for `Open`.
    Create = 3 "create",
    /// The last descriptor of an opened file was closed.
    Close = 4 "close",
    /// One descriptor was closed: what publishes writes.
    Flush = 5 "flush",
    /// `fsync` or `fdatasync`.
    Sync = 6 "fsync",
    /// The size set; `len` is the new one.
    Truncate = 7 "truncate",
    /// Attributes changed.
    SetAttributes = 8 "setattr",
    /// Attributes asked for.
    Stat = 9 "stat",
    /// A name looked up.
    Lookup = 10 "lookup",
    /// A directory made.
    MakeDirectory = 11 "mkdir",
    /// A file removed.
    Unlink = 12 "unlink",
    /// A directory removed.
    RemoveDirectory = 13 "rmdir",
    /// A file or directory renamed.
    Rename = 14 "rename",
    /// Another name made for a file.
    Link = 15 "link",
    /// A symbolic link made.
    Symlink = 16 "symlink",
    /// A symbolic link read.
    ReadLink = 17 "readlink",
    /// A FIFO, socket or file made by `mknod`.
    MakeNode = 18 "mknod",
    /// A directory opened.
    OpenDirectory = 19 "opendir",
    /// A part of a directory listed.
    List = 20 "readdir",
    /// A directory closed.
    CloseDirectory = 21 "closedir",
    /// A directory synced.
    SyncDirectory = 22 "fsyncdir",
    /// A lock taken, given up or tested; `offset` and `len` are its range (`len` 0: to the end).
    Lock = 23 "lock",
    /// Room made or holes cut: `offset`, `len`.
    Allocate = 24 "fallocate",
    /// Data or a hole looked for; `offset` is where from.
    Seek = 25 "lseek",
    /// Bytes copied to another file inside the file system: `offset`, `len`. Its other half is a `CopyTo`.
    Copy = 26 "copy",
    /// An extended attribute read, listed, set or removed.
    Attribute = 27 "xattr",
    /// The file system's size asked for.
    StatFs = 28 "statfs",
    /// Bytes that came from another file inside the file system: `offset`, `len`.
    CopyTo = 29 "copyto",
}

impl Action {
    /// The action of this number.
    pub fn from_code(code: u8) -> Option<Action> {
        Action::ALL.get(usize::from(code)).copied()
    }

    /// Its number.
    pub fn code(self) -> u8 {
        self as u8
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
