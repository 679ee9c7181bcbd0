//! Advisory locks: those on the files this member owns, and what its own node waits for elsewhere.
//!
//! ```text
//! delegate --Lock--> owner of the file: Granted | Denied | Waiting (for whom)
//!    |                  |
//!    | Waiting:         +-- Notice, one way, when granted; `Lock` with the same token asks again in case it was lost
//!    +-- Waits -------> nodes of the owners it waits for:   what do they wait for?
//!    +-- Blockers ----> owners of those files:              and who is in their way?   ... until it comes back to itself
//! ```
//!
//! # Decisions
//! - **Locks live in memory** at the file's owner. If that member restarts, the locks on its files are gone; a node that
//!   held some meets another *service* at its next call about them, and that call fails with `ENOLCK`.
//! - **A node's end** frees what it held: in order (`Begin` of a session that will not be used), after a restart (`Begin`
//!   at its start), or because it is dead: whoever is kept waiting by a node that does not answer tells the keeper
//!   (`Suspect`), which asks that node itself and buries it only if the transport says that it is dead. A node that was
//!   buried alive is answered `Ended`, and what it held is lost to it in the same way.
//! - **Deadlock** is found by the request that closes the circle, when it begins to wait (and at times while it does): it
//!   asks its way from owner to owner, and it must find the same waits twice. So an edge can be missed by none: of two
//!   requests that close a circle together, each is known to its keeper before it looks, so the later look sees both. If
//!   both see it, the one with the greater name gives up. Only requests for which the kernel looks for deadlocks count
//!   (POSIX record locks).
//! - No request is held open while a lock is waited for, and no thread of the keeper.
//!
//! Invariant: the keeper's mutex is held for its own work only, never while a member is called or told.
mod keeper;
mod table;
mod waits;

#[cfg(test)]
mod tests;

pub(crate) use waits::{Waiting, Waits, Woken};

use crate::{Error, Member, Peers, Result};
use forebay_data::Counter;
use forebay_proto::locks::{
    BeginSession, CancelReply, CancelWait, GetBlockers, GetWaits, GrantNotice, HeldLock, InSession,
    Lock, LockOwner, LockReply, LocksService, SuspectMember, TestLock, Unlock, Unlocked,
    WaitsReply,
};
use forebay_storage::Store;
use keeper::{Grants, Keeper, KeeperAnswer};
use parking_lot::Mutex;
use std::sync::Arc;

/// See the head of this file.
pub struct Locks {
    peers: Arc<Peers>,
    lives: Counter,
    life: u64,
    keeper: Mutex<Keeper>,
    waits: Waits,
}

impl Locks {
    /// No locks yet.
    ///
    /// # Errors
    /// When the store cannot be read or written.
    pub fn new(store: Arc<Store>, peers: Arc<Peers>) -> Result<Locks> {
        let lives = Counter::open(store, b"life", 1)?;
        let life = lives.next()?;
        Ok(Locks {
            peers,
            lives,
            life,
            keeper: Mutex::default(),
            waits: Waits::default(),
        })
    }

    /// The number of this life of the member: service as a keeper, first session as a user.
    pub fn life(&self) -> u64 {
        self.life
    }

    /// A number for a new session.
    ///
    /// # Errors
    /// When it cannot be reserved on disk.
    pub fn next_session(&self) -> Result<u64> {
        self.lives.next()
    }

    /// What this node waits for.
    pub(crate) fn waits(&self) -> &Waits {
        &self.waits
    }

    /// Locks held and requests waiting here, of all nodes.
    pub fn counts(&self) -> (usize, usize) {
        self.keeper.lock().counts()
    }

    /// A request of this node has been granted.
    pub fn notice(&self, notice: GrantNotice) {
        self.waits.granted(notice.token);
    }

    /// Drops what a member held in an earlier life, or all of it if it is dead; true if there may have been something.
    fn look_after(&self, member: Member) -> bool {
        match self.peers.call(member, GetWaits { owner: 0 }) {
            Ok(WaitsReply { life, .. }) => {
                let (earlier, grants) = self.keeper.lock().renew(member, life);
                self.tell(grants);
                earlier
            }
            Err(Error::Fabric(forebay_fabric::Error::Dead(_))) => {
                let (held, grants) = self.keeper.lock().bury(member);
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

impl LocksService for Locks {
    fn lock(&self, from: Member, request: Lock) -> Result<InSession<LockReply>> {
        let service = self.life;
        let (answer, grants) = self.keeper.lock().lock(
            (from, request.session, request.token),
            (request.place, request.mode, request.pid),
            request.wait,
        );
        self.tell(grants);
        Ok(InSession::Current(match answer {
            KeeperAnswer::Granted => LockReply::Granted { service },
            KeeperAnswer::Denied(by) => LockReply::Denied(by),
            KeeperAnswer::Waiting(blockers) => LockReply::Waiting(blockers),
            KeeperAnswer::Done => LockReply::Cancelled,
            KeeperAnswer::Late => return Ok(InSession::Late),
            KeeperAnswer::Ended => return Ok(InSession::Ended),
        }))
    }

    fn unlock(&self, from: Member, request: Unlock) -> Result<InSession<Unlocked>> {
        let name = (from, request.session, request.token);
        let (answer, grants) = self.keeper.lock().unlock(name, &request.place);
        self.tell(grants);
        Ok(match answer {
            KeeperAnswer::Done => InSession::Current(Unlocked { service: self.life }),
            KeeperAnswer::Ended => InSession::Ended,
            // The others are answers to another request, which had this token.
            KeeperAnswer::Late
            | KeeperAnswer::Granted
            | KeeperAnswer::Denied(_)
            | KeeperAnswer::Waiting(_) => InSession::Late,
        })
    }

    fn cancel_wait(&self, from: Member, request: CancelWait) -> Result<InSession<CancelReply>> {
        let name = (from, request.session, request.token);
        let (answer, grants) = self.keeper.lock().cancel(name, request.fid);
        self.tell(grants);
        Ok(match answer {
            KeeperAnswer::Granted => {
                InSession::Current(CancelReply::Granted { service: self.life })
            }
            KeeperAnswer::Done => InSession::Current(CancelReply::Cancelled),
            KeeperAnswer::Ended => InSession::Ended,
            // No answer to it leaves a request waiting, or denied.
            KeeperAnswer::Late | KeeperAnswer::Denied(_) | KeeperAnswer::Waiting(_) => {
                InSession::Late
            }
        })
    }

    fn test_lock(&self, from: Member, request: TestLock) -> Result<Option<HeldLock>> {
        let keeper = self.keeper.lock();
        Ok(keeper.test(from, &request.place, request.mode))
    }

    fn get_blockers(&self, _: Member, request: GetBlockers) -> Result<Vec<LockOwner>> {
        let keeper = self.keeper.lock();
        Ok(keeper.blockers(request.fid, request.member, request.token))
    }

    fn get_waits(&self, _: Member, request: GetWaits) -> Result<WaitsReply> {
        Ok(WaitsReply {
            waits: self.waits.of(request.owner),
            life: self.life,
        })
    }

    fn suspect_member(&self, _: Member, request: SuspectMember) -> Result<bool> {
        Ok(self.look_after(request.member))
    }

    fn begin_session(&self, from: Member, request: BeginSession) -> Result<InSession<()>> {
        let (begun, grants) = self.keeper.lock().begin(from, request.session);
        self.tell(grants);
        Ok(match begun {
            true => InSession::Current(()),
            false => InSession::Ended,
        })
    }
}
