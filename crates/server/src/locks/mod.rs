//! Advisory locks: those on the files this member owns, and what its own node waits for elsewhere.
//!
//! ```text
//! delegate --Lock--> owner of the file: Granted | Denied | Waiting (for whom) | Cancelled
//!    |                  |
//!    | Waiting:         +-- GrantNotice, one way, when granted; `Lock` with the same token asks again in case it was lost
//!    +-- GetWaits ----> nodes of the owners it waits for:   what do they wait for?
//!    +-- GetBlockers -> owners of those files:              and who is in their way?   ... until a path leads back to itself
//! ```
//!
//! # Decisions
//! - **Locks live in memory** at the file's owner. If that member restarts, the locks on its files are gone; each start of a
//!   member has a new *incarnation* number: a node that held some meets another incarnation at its next call about them, and that
//!   call fails with `ENOLCK`.
//! - **A node's end** frees what it held: in order (`BeginSession` of one that will not be used), after a restart
//!   (`BeginSession` at its start), or because it is dead: a node that is kept waiting by one that does not answer tells
//!   the manager (`SuspectMember`), which asks that node itself and ends its session only if the transport says that it
//!   is dead. A live node whose session was ended gets `SessionReply::Ended`, and what it held is lost to it in the same
//!   way.
//! - **Deadlock** is found by edge chasing (Chandy, Misra, Haas): no member has the whole wait-for graph. The request
//!   that closes the cycle finds it, when it begins to wait (and at times while it does): it follows the waits-for edges
//!   from lock owner to lock owner, and it must find the same waits twice. So no edge can be missed: of two requests that
//!   close a cycle together, each is known to its manager before it looks, so the later look sees both. If both see it,
//!   the one with the greater (member, token) gives up with `EDEADLK`. Only requests for which the kernel looks for
//!   deadlocks count (POSIX record locks).
//! - No request is held open while a lock is waited for, and no thread of the manager.
//!
//! Invariant: the manager's mutex is held for its own work only, never while a member is called or notified.
mod manager;
mod table;
mod waits;

#[cfg(test)]
mod tests;

pub(crate) use waits::{LockWaits, WaitEnd, WaitingRequest};

use crate::{Error, Member, Peers, Result};
use forebay_data::Counter;
use forebay_proto::locks::{
    BeginSession, CancelReply, CancelWait, GetBlockers, GetWaits, GrantNotice, HeldLock, Lock,
    LockOwner, LockReply, LocksService, SessionReply, SuspectMember, TestLock, Unlock, Unlocked,
    WaitsReply,
};
use forebay_storage::Store;
use manager::{Grants, LockManager, LockResult};
use parking_lot::Mutex;
use std::sync::Arc;

/// See the head of this file.
pub struct AdvisoryLocks {
    peers: Arc<Peers>,
    incarnations: Counter,
    /// This incarnation of the member: which one grants locks as their manager, and the first session as a user.
    pub(crate) incarnation: u64,
    manager: Mutex<LockManager>,
    /// What this node waits for.
    pub(crate) waits: LockWaits,
}

impl AdvisoryLocks {
    /// No locks yet.
    ///
    /// # Errors
    /// When the store cannot be read or written.
    pub fn new(store: Arc<Store>, peers: Arc<Peers>) -> Result<AdvisoryLocks> {
        let incarnations = Counter::open(store, b"life", 1)?;
        let incarnation = incarnations.next()?;
        Ok(AdvisoryLocks {
            peers,
            incarnations,
            incarnation,
            manager: Mutex::default(),
            waits: LockWaits::default(),
        })
    }

    /// A number for a new session.
    ///
    /// # Errors
    /// When it cannot be reserved on disk.
    pub fn next_session(&self) -> Result<u64> {
        self.incarnations.next()
    }

    /// Locks held and requests waiting here, of all nodes.
    pub fn counts(&self) -> (usize, usize) {
        self.manager.lock().counts()
    }

    /// A request of this node has been granted.
    pub fn notice(&self, notice: GrantNotice) {
        self.waits.granted(notice.token);
    }

    /// Drops what a member held in an earlier incarnation, or all of it if it is dead; true if there may have been something.
    fn look_after(&self, member: Member) -> bool {
        match self.peers.call(member, GetWaits { owner: 0 }) {
            Ok(WaitsReply { incarnation, .. }) => {
                let (earlier, grants) = self.manager.lock().renew(member, incarnation);
                self.tell(grants);
                earlier
            }
            Err(Error::Fabric(forebay_fabric::Error::Dead(_))) => {
                let (held, grants) = self.manager.lock().end_dead(member);
                if held {
                    tracing::warn!(member, "dead; its locks on files of this member are free");
                }
                self.tell(grants);
                held
            }
            Err(_) => false,
        }
    }

    fn tell(&self, grants: Grants) {
        for (member, token) in grants {
            self.peers.notify_granted(member, GrantNotice { token });
        }
    }
}

impl LocksService for AdvisoryLocks {
    fn lock(&self, from: Member, request: Lock) -> Result<SessionReply<LockReply>> {
        let incarnation = self.incarnation;
        let (answer, grants) = self.manager.lock().lock(
            (from, request.session, request.token),
            (request.range, request.mode, request.pid),
            request.wait,
        );
        self.tell(grants);
        Ok(SessionReply::Current(match answer {
            LockResult::Granted => LockReply::Granted { incarnation },
            LockResult::Denied(by) => LockReply::Denied(by),
            LockResult::Waiting(blockers) => LockReply::Waiting(blockers),
            LockResult::Done => LockReply::Cancelled,
            LockResult::Late => return Ok(SessionReply::Late),
            LockResult::Ended => return Ok(SessionReply::Ended),
        }))
    }

    fn unlock(&self, from: Member, request: Unlock) -> Result<SessionReply<Unlocked>> {
        let name = (from, request.session, request.token);
        let (answer, grants) = self.manager.lock().unlock(name, &request.range);
        self.tell(grants);
        Ok(match answer {
            LockResult::Done => SessionReply::Current(Unlocked {
                incarnation: self.incarnation,
            }),
            LockResult::Ended => SessionReply::Ended,
            // The others are answers to another request, which had this token.
            LockResult::Late
            | LockResult::Granted
            | LockResult::Denied(_)
            | LockResult::Waiting(_) => SessionReply::Late,
        })
    }

    fn cancel_wait(&self, from: Member, request: CancelWait) -> Result<SessionReply<CancelReply>> {
        let name = (from, request.session, request.token);
        let (answer, grants) = self.manager.lock().cancel(name, request.fid);
        self.tell(grants);
        Ok(match answer {
            LockResult::Granted => SessionReply::Current(CancelReply::Granted {
                incarnation: self.incarnation,
            }),
            LockResult::Done => SessionReply::Current(CancelReply::Cancelled),
            LockResult::Ended => SessionReply::Ended,
            // No answer to it leaves a request waiting, or denied.
            LockResult::Late | LockResult::Denied(_) | LockResult::Waiting(_) => SessionReply::Late,
        })
    }

    fn test_lock(&self, from: Member, request: TestLock) -> Result<Option<HeldLock>> {
        let manager = self.manager.lock();
        Ok(manager.test(from, &request.range, request.mode))
    }

    fn get_blockers(&self, _: Member, request: GetBlockers) -> Result<Vec<LockOwner>> {
        let manager = self.manager.lock();
        Ok(manager.blockers(request.fid, request.member, request.token))
    }

    fn get_waits(&self, _: Member, request: GetWaits) -> Result<WaitsReply> {
        Ok(WaitsReply {
            waits: self.waits.of(request.owner),
            incarnation: self.incarnation,
        })
    }

    fn suspect_member(&self, _: Member, request: SuspectMember) -> Result<bool> {
        Ok(self.look_after(request.member))
    }

    fn begin_session(&self, from: Member, request: BeginSession) -> Result<SessionReply<()>> {
        let (begun, grants) = self.manager.lock().begin(from, request.session);
        self.tell(grants);
        Ok(match begun {
            true => SessionReply::Current(()),
            false => SessionReply::Ended,
        })
    }
}
