//! The parts of an operation on names that spans members: what must be true, and what is done once it is decided.
//!
//! A [`Precondition`] is checked and may say no; an [`IntentStep`] is done after the decision and must always succeed. Both
//! name inodes and entries of one member only. Members keep these in their stores too, as postcard: a change of a field is a
//! new version of those records.
use crate::{Fid, Inode, Kind, Member, Time};
use serde::{Deserialize, Serialize};

/// The name of an operation that spans members: who coordinates it, and its number there. Never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct IntentId {
    /// The member that decides and remembers it.
    pub coordinator: Member,
    /// Grows with every intent of this coordinator.
    pub number: u64,
}

impl IntentId {
    /// The `number`-th intent of this coordinator.
    pub const fn new(coordinator: Member, number: u64) -> IntentId {
        IntentId {
            coordinator,
            number,
        }
    }
}

/// What a name names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct EntryTarget {
    /// The inode.
    pub fid: Fid,
    /// Its kind (never changes, so the entry may repeat it).
    pub kind: Kind,
}

/// What must be true for an operation to happen, and stay true until it has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Precondition {
    /// The entry is exactly this. `None`: there is none, and the directory lives and can take one.
    Entry {
        /// The directory.
        dir: Fid,

        /// The name in it.
        name: Vec<u8>,

        /// What the name must name.
        is: Option<EntryTarget>,
    },
    /// The directory is empty; nothing may be made in it.
    Empty {
        /// The inode.
        fid: Fid,
    },
    /// The file can have one more name. It is counted at once, and uncounted if the operation does not happen.
    Link {
        /// The inode.
        fid: Fid,
        /// When.
        time: Time,
    },
    /// A new inode. It is made at once, and removed if the operation does not happen.
    Make {
        /// The inode.
        fid: Fid,
        /// What it is.
        inode: Box<Inode>,
    },
    /// The file never had a name, may get one, and is open. The name is counted at once, and uncounted if the operation does not
    /// happen: then the file may get one as before.
    Name {
        /// The inode.
        fid: Fid,
        /// When.
        time: Time,
    },
}

/// What an operation does once it is decided.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum IntentStep {
    /// The entry names this now (`None`: it is gone).
    Entry {
        /// The directory.
        dir: Fid,

        /// The name in it.
        name: Vec<u8>,

        /// What it names.
        to: Option<EntryTarget>,
    },
    /// A directory changed: its times, and its links by this many.
    UpdateDirectory {
        /// The directory.
        dir: Fid,
        /// How many subdirectories more (or less).
        links: i32,
        /// When.
        time: Time,
    },
    /// A file lost a name; without any left it is removed, or becomes an orphan.
    Drop {
        /// The inode.
        fid: Fid,
        /// When.
        time: Time,
    },
    /// An empty directory lost its name: it is dead.
    MarkDead {
        /// The inode.
        fid: Fid,
        /// When.
        time: Time,
    },
    /// An inode changed its name; a directory perhaps also its parent.
    Moved {
        /// The inode.
        fid: Fid,

        /// A directory's new parent.
        parent: Option<Fid>,

        /// When.
        time: Time,
    },
}

impl Precondition {
    /// The inode whose lock guards it.
    pub fn guard(&self) -> Fid {
        match self {
            Precondition::Entry { dir, .. } => *dir,
            Precondition::Empty { fid }
            | Precondition::Link { fid, .. }
            | Precondition::Make { fid, .. }
            | Precondition::Name { fid, .. } => *fid,
        }
    }

    /// It is a new inode, whatever was there before.
    pub fn makes(&self) -> bool {
        matches!(self, Precondition::Make { .. })
    }

    /// It makes nothing: an operation that only takes away can have it on a full disk.
    pub fn makes_nothing(&self) -> bool {
        matches!(
            self,
            Precondition::Entry { is: Some(_), .. } | Precondition::Empty { .. }
        )
    }
}

impl IntentStep {
    /// A directory gets another parent.
    pub fn moves(&self) -> bool {
        matches!(
            self,
            IntentStep::Moved {
                parent: Some(_),
                ..
            }
        )
    }

    /// The inode whose lock guards it.
    pub fn guard(&self) -> Fid {
        match self {
            IntentStep::Entry { dir, .. } | IntentStep::UpdateDirectory { dir, .. } => *dir,
            IntentStep::Drop { fid, .. }
            | IntentStep::MarkDead { fid, .. }
            | IntentStep::Moved { fid, .. } => *fid,
        }
    }
}

/// What is left to do at a member that takes part in a decided operation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IntentPart {
    /// Inodes that it made when it prepared: made again if a power cut took them back.
    pub makes: Vec<Precondition>,
    /// Its steps (none: it only forgets what it prepared).
    pub steps: Vec<IntentStep>,
}
