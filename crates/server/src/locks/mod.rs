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
//! - **Locks are kept in memory** at the file's owner, the lock manager. If that member restarts, they are gone. Each start has a new
//!   *incarnation* number. A node that held locks sees another number at its next call about them, and that call fails with `ENOLCK`.
//! - **A node's locks end with its session.** A session ends when its node stops or restarts: the node begins another one
//!   (`BeginSession`; when it stops, one that it will not use). It also ends when the node is dead: a node that waits for its locks and
//!   gets no answer reports it to the lock manager (`SuspectMember`), which asks the suspect, and ends the session only if the transport
//!   says that it is dead. If a live node's session was ended, it gets `SessionReply::Ended` and has lost its locks.
//! - **Deadlocks** are found by edge chasing (Chandy, Misra, Haas), since no member has the whole wait-for graph. A request that begins
//!   to wait follows the waits-for edges from lock owner to lock owner, and again at intervals. It has a deadlock if it finds the same
//!   cycle twice. No deadlock is missed: each request is known to its manager before it searches, so of two that close a cycle
//!   together the later search sees both. If both see it, the one with the greater (member, token) fails with `EDEADLK`. Only POSIX
//!   record locks take part.
//! - **Waiting holds nothing open**: no request, and no thread of the manager, lasts until a lock is granted.
//!
//! Invariant: the manager's mutex is never held while a member is called or notified.
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
    LockOwner, LockReply, LocksService, SessionReply, SuspectMember, TestLock, Unlock, UnlockReply,
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

    /// Drops the locks of a member's earlier incarnations, or all of them if it is dead. True if it may have held some.
    fn drop_outdated_locks(&self, member: Member) -> bool {
        match self.peers.call(member, GetWaits { owner: 0 }) {
            Ok(WaitsReply { incarnation, .. }) => {
                let (earlier, grants) = self.manager.lock().renew(member, incarnation);
                self.send_grants(grants);
                earlier
            }
            Err(Error::Fabric(forebay_fabric::Error::Dead(_))) => {
                let (held, grants) = self.manager.lock().end_dead(member);
                if held {
                    tracing::warn!(member, "dead; its locks on files of this member are free");
                }
                self.send_grants(grants);
                held
            }
            Err(_) => false,
        }
    }

    fn send_grants(&self, grants: Grants) {
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
        self.send_grants(grants);
        Ok(SessionReply::Current(match answer {
            LockResult::Granted => LockReply::Granted { incarnation },
            LockResult::Denied(by) => LockReply::Denied(by),
            LockResult::Waiting(blockers) => LockReply::Waiting(blockers),
            LockResult::Done => LockReply::Cancelled,
            LockResult::Late => return Ok(SessionReply::Late),
            LockResult::Ended => return Ok(SessionReply::Ended),
        }))
    }

    fn unlock(&self, from: Member, request: Unlock) -> Result<SessionReply<UnlockReply>> {
        let name = (from, request.session, request.token);
        let (answer, grants) = self.manager.lock().unlock(name, &request.range);
        self.send_grants(grants);
        Ok(match answer {
            LockResult::Done => SessionReply::Current(UnlockReply {
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
        self.send_grants(grants);
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
        Ok(self.drop_outdated_locks(request.member))
    }

    fn begin_session(&self, from: Member, request: BeginSession) -> Result<SessionReply<()>> {
        let (begun, grants) = self.manager.lock().begin(from, request.session);
        self.send_grants(grants);
        Ok(match begun {
            true => SessionReply::Current(()),
            false => SessionReply::Ended,
        })
    }
}
