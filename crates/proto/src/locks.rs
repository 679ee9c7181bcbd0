//! Requests about advisory locks. A request goes to the file's owner, but for those that say otherwise.
//!
//! **Session**: one run of a node as a lock client of another member. A session with a greater number ends those before it, and
//! with them all that they held. **Incarnation**: the number of one run of a lock manager, which is a file's owner. A run keeps its
//! locks in memory only, so a node that gets another number than before has lost the locks that it held there.
//!
//! A request that changes something carries a **token**: a slot and a number that grows with each use of the slot. A node has
//! one request at a time in a slot. The same token again is answered as the first time; a smaller number in the slot is an
//! abandoned request, and does nothing.
use crate::call::service;
use crate::{Fid, Member};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// Two kinds of locks on a file that know nothing of each other, as in the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum LockSpace {
    /// Byte ranges, of processes (POSIX) and of open files (OFD).
    Record,
    /// Whole files (`flock`). Another mode is taken only after the old one is given up.
    Flock,
}

/// Who holds or wants a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LockOwner {
    /// The node it came through.
    pub member: Member,
    /// What tells owners of that node apart: the kernel's lock owner (of a process, or of an open file).
    pub id: u64,
}

/// How a range is locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum LockMode {
    /// With others that share it.
    Shared,
    /// Alone.
    Exclusive,
}

/// A lock that someone holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldLock {
    /// Who.
    pub owner: LockOwner,
    /// Which bytes.
    pub range: Range<u64>,
    /// How.
    pub mode: LockMode,
    /// The process that took it, on its own node.
    pub pid: u32,
}

/// Names one request of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LockToken {
    /// Which slot.
    pub slot: u32,
    /// Which use of it.
    pub number: u64,
}

/// The bytes of a file in one space, for one owner of the asking node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockRange {
    /// The file.
    pub fid: Fid,
    /// The kind of lock.
    pub space: LockSpace,
    /// The owner's number; its member is who asks.
    pub owner: u64,
    /// First byte.
    pub start: u64,
    /// Behind the last byte.
    pub end: u64,
}

impl LockRange {
    /// Its owner, as the node `member` asks.
    pub fn owner_at(&self, member: Member) -> LockOwner {
        let id = self.owner;
        LockOwner { member, id }
    }
}

/// A wait of one owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnerWait {
    /// The file.
    pub fid: Fid,
    /// The request.
    pub token: LockToken,
    /// Its node still looks whether it closes a circle.
    pub looking: bool,
}

/// A one-way message to the node of a waiting request: it has been granted. May get lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrantNotice {
    /// The request.
    pub token: LockToken,
}

service! {
    /// What a member answers about the locks on the files that it owns, and about what its own node waits for.
    LocksService, LocksRequest {
        /// Lock.
        lock(Lock {
            /// Of the asking node.
            session: u64,
            /// Names the request.
            token: LockToken,
            /// What to lock.
            range: LockRange,
            /// How.
            mode: LockMode,
            /// The process, as `F_GETLK` shows it.
            pid: u32,
            /// Wait rather than be denied.
            wait: bool,
        }) -> SessionReply<LockReply>;

        /// Unlock.
        unlock(Unlock {
            /// Of the asking node.
            session: u64,
            /// Names the request.
            token: LockToken,
            /// What to unlock.
            range: LockRange,
        }) -> SessionReply<UnlockReply>;

        /// A waiting request of this token shall end.
        cancel_wait(CancelWait {
            /// Of the asking node.
            session: u64,
            /// That of the waiting request.
            token: LockToken,
            /// The file it waits for.
            fid: Fid,
        }) -> SessionReply<CancelReply>;

        /// Which lock is in the way? The lowest of them, or none.
        test_lock(TestLock {
            /// What would be locked.
            range: LockRange,
            /// How.
            mode: LockMode,
        }) -> Option<HeldLock>;

        /// Who keeps this request of that member waiting? Nobody, if it does not wait.
        get_blockers(GetBlockers {
            /// The file it waits for.
            fid: Fid,
            /// Whose request.
            member: Member,
            /// Its token.
            token: LockToken,
        }) -> Vec<LockOwner>;

        /// To any member: what does this owner of yours wait for?
        get_waits(GetWaits {
            /// Its number.
            owner: u64,
        }) -> WaitsReply;

        /// That member does not answer any more: see for yourself, and drop what it holds if it is dead, or held in an
        /// earlier incarnation. Answers whether something was dropped.
        suspect_member(SuspectMember {
            /// Which.
            member: Member,
        }) -> bool;

        /// Sessions of the asking node before this one have ended; drop what they held.
        begin_session(BeginSession {
            /// The new one.
            session: u64,
        }) -> SessionReply<()>;
    }
}

/// The reply to a request of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum SessionReply<T> {
    /// The session goes on.
    Current(T),
    /// The request's slot has been used since, or for another request: it does nothing.
    Late,
    /// The session has ended (its node was taken for dead): begin a new one.
    Ended,
}

/// The reply to [`Lock`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum LockReply {
    /// It is locked.
    Granted {
        /// Of the answering lock manager.
        incarnation: u64,
    },
    /// The lowest lock of one other owner that is in the way. Only of a request that does not wait.
    Denied(HeldLock),
    /// It waits for these owners now, each named once. A [`GrantNotice`] follows; asking again with the same token tells whether
    /// that got lost.
    Waiting(Vec<LockOwner>),
    /// It waited, and was cancelled.
    Cancelled,
}

/// The reply to [`Unlock`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnlockReply {
    /// Of the answering lock manager.
    pub incarnation: u64,
}

/// The reply to [`CancelWait`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum CancelReply {
    /// It waits no more, and never will.
    Cancelled,
    /// Too late: it is locked.
    Granted {
        /// Of the answering lock manager.
        incarnation: u64,
    },
}

/// The reply to [`GetWaits`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitsReply {
    /// What was asked for.
    pub waits: Vec<OwnerWait>,
    /// The answering member's incarnation.
    pub incarnation: u64,
}
