//! The words of advisory locks. A request goes to the file's attribute owner ("owner"), but for those that say otherwise.
//!
//! **Session**: one life of a node as a user of another member's locks. A greater one ends those before it, and with them
//! all that they held. **Service**: one life of an owner as a keeper of locks; it forgets all locks when it ends, so a node
//! that meets another service than before knows that what it held there is lost.
//!
//! A request that changes something carries a **token**: a slot and a number that grows with each use of the slot. A node
//! has one request at a time in a slot. The same token again is answered as the first time; a smaller number in the slot is
//! a request that nobody waits for any more, and does nothing.
use crate::{Fid, Member};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// Two kinds of locks on a file that know nothing of each other, as in the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Space {
    /// Byte ranges, of processes (POSIX) and of open files (OFD).
    Record,
    /// Whole files (`flock`). Another mode is taken only after the old one is given up.
    Flock,
}

/// Who holds or wants a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Owner {
    /// The node it came through.
    pub member: Member,
    /// What tells owners of that node apart: the kernel's lock owner (of a process, or of an open file).
    pub id: u64,
}

/// How a range is locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mode {
    /// With others that share it.
    Shared,
    /// Alone.
    Exclusive,
}

/// A lock that someone holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// Who.
    pub owner: Owner,
    /// Which bytes.
    pub range: Range<u64>,
    /// How.
    pub mode: Mode,
    /// The process that took it, on its own node.
    pub pid: u32,
}

/// Names one request of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Token {
    /// Which slot.
    pub slot: u32,
    /// Which use of it.
    pub number: u64,
}

/// The bytes of a file in one space, for one owner of the asking node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// The file.
    pub fid: Fid,
    /// The kind of lock.
    pub space: Space,
    /// The owner's number; its member is who asks.
    pub owner: u64,
    /// First byte.
    pub start: u64,
    /// Behind the last byte.
    pub end: u64,
}

/// What members ask each other about locks.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum LocksRequest {
    /// Lock. Answers `Granted` or `Denied`; or, with `wait`, `Waiting`: then a [`Notice`] follows, and asking again with the
    /// same token tells whether that got lost.
    Lock {
        /// Of the asking node.
        session: u64,
        /// Names the request.
        token: Token,
        /// What to lock.
        place: Place,
        /// How.
        mode: Mode,
        /// The process, as `F_GETLK` shows it.
        pid: u32,
        /// Wait rather than be denied.
        wait: bool,
    },
    /// Unlock. Answers `Done`.
    Unlock {
        /// Of the asking node.
        session: u64,
        /// Names the request.
        token: Token,
        /// What to unlock.
        place: Place,
    },
    /// A waiting request of this token shall end. Answers `Done`, or `Granted` if it is too late.
    Cancel {
        /// Of the asking node.
        session: u64,
        /// That of the waiting request.
        token: Token,
        /// The file it waits for.
        fid: Fid,
    },
    /// Which lock is in the way? Answers `Free` or `Denied`.
    Test {
        /// What would be locked.
        place: Place,
        /// How.
        mode: Mode,
    },
    /// Who keeps this request of that member waiting? Answers `Blockers`, with none if it does not wait. Leaf.
    Blockers {
        /// The file it waits for.
        fid: Fid,
        /// Whose request.
        member: u16,
        /// Its token.
        token: Token,
    },
    /// To any member: what does this owner of yours wait for? Answers `Waits`. Leaf.
    Waits {
        /// Its number.
        owner: u64,
    },
    /// That member does not answer any more: see for yourself, and drop what it holds if it is dead, or held in an earlier life.
    /// Answers `Free` if something was dropped, else `Done`.
    Suspect {
        /// Which.
        member: u16,
    },
    /// Sessions of the asking node before this one have ended; drop what they held. Answers `Done`.
    Begin {
        /// The new one.
        session: u64,
    },
}

/// A wait of one owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wait {
    /// The file.
    pub fid: Fid,
    /// The request.
    pub token: Token,
    /// Its node still looks whether it closes a circle.
    pub looking: bool,
}

/// The answers. `service`: see the head of this file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum LocksReply {
    /// It is locked.
    Granted {
        /// By this service.
        service: u64,
    },
    /// Someone else's lock is in the way.
    Denied {
        /// The lowest such lock of one owner.
        by: Held,
    },
    /// It waits for these owners now.
    Waiting {
        /// At this service.
        service: u64,
        /// Each once.
        blockers: Vec<Owner>,
    },
    /// Done.
    Done {
        /// By this service.
        service: u64,
    },
    /// The request's slot has been used again since: it does nothing.
    Late,
    /// The session has ended (its node was taken for dead): begin a new one.
    Ended,
    /// Nothing is in the way (any more).
    Free,
    /// Owners.
    Blockers(Vec<Owner>),
    /// Waits.
    Waits {
        /// What was asked for.
        waits: Vec<Wait>,
        /// The number of the answering member's life.
        life: u64,
    },
}

/// A one-way message to the node of a waiting request: it has been granted. May get lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notice {
    /// The request.
    pub token: Token,
}
