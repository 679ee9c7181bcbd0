//! The client side of the lock protocol: sessions with the members that keep locks, retries of lost replies, unconfirmed unlocks,
//! holders that may be dead.
use super::context::DelegateContext;
use super::lock_owners::LockOwners;
use crate::{Fid, Member, Result};
use forebay_proto::PeerCall;
use forebay_proto::locks::{
    CancelReply, CancelWait, Lock, LockMode, LockOwner, LockRange, LockReply, LockSpace, LockToken,
    SessionReply, SuspectMember, Unlock,
};
use parking_lot::Mutex;
use rustix::io::Errno;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Most requests of one call whose answers were lost.
const MAX_TRIES: u32 = 8;
/// Behind the last byte that a lock can cover.
const LOCK_RANGE_END: u64 = 1 << 63;
/// Shortest interval between two checks whether a member that blocks a lock is alive.
const SUSPECT_INTERVAL: Duration = Duration::from_secs(1);

/// A lock that a program asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WantedLock {
    /// The kernel's lock owner: a process for POSIX locks, an open file for the others.
    pub owner: u64,
    /// Byte ranges, or `flock`.
    pub space: LockSpace,
    /// First byte.
    pub start: u64,
    /// Behind the last byte; `flock` locks all there can be.
    pub end: u64,
    /// Shared or exclusive.
    pub mode: LockMode,
    /// The asking process, as `F_GETLK` shows it on its own node.
    pub pid: u32,
    /// A wait that would never end fails with `EDEADLK` (POSIX locks).
    pub detect: bool,
}

impl WantedLock {
    /// On this file.
    pub fn range(&self, fid: Fid) -> LockRange {
        LockRange {
            fid,
            space: self.space,
            owner: self.owner,
            start: self.start,
            end: self.end,
        }
    }
}

/// Asks the members that keep locks.
///
/// Invariant: an unlock without an answer is sent again, and answered, before any other request to its keeper.
pub(super) struct LockSessions {
    pub ctx: Arc<DelegateContext>,
    pub holders: Mutex<LockOwners>,
    /// Unlocks without an answer.
    unconfirmed_unlocks: Mutex<Vec<LockRange>>,
    /// Held while they are carried out; no handler takes it.
    resending: Mutex<()>,
    /// With members that ended the first one.
    sessions: Mutex<HashMap<Member, u64>>,
    suspects: Mutex<HashMap<Member, Instant>>,
    pub stopping: AtomicBool,
}

impl LockSessions {
    /// Nothing is held yet.
    pub fn new(ctx: Arc<DelegateContext>) -> LockSessions {
        LockSessions {
            ctx,
            holders: Mutex::default(),
            unconfirmed_unlocks: Mutex::default(),
            resending: Mutex::default(),
            sessions: Mutex::default(),
            suspects: Mutex::default(),
            stopping: AtomicBool::default(),
        }
    }

    /// Ends a waiting request with `error`, unless the lock is there already.
    pub fn cancel(&self, to: Member, token: LockToken, fid: Fid, error: Errno) -> Result<u64> {
        let session = self.session(to);
        let request = CancelWait {
            session,
            token,
            fid,
        };
        match self.ask(to, &request) {
            Ok(SessionReply::Current(CancelReply::Granted { incarnation })) => Ok(incarnation),
            // Without an answer: the slot is used again first, and its next use ends this one.
            _ => Err(error.into()),
        }
    }

    pub fn give_up(&self, range: LockRange) -> Result<()> {
        let to = range.fid.owner();
        let key = (range.fid, range.space, range.owner);
        // Forgotten first: a lock that another thread gets for this owner meanwhile must be known afterwards.
        let whole = range.start == 0 && range.end >= LOCK_RANGE_END;
        let holder = whole.then(|| self.holders.lock().forget(key));
        let sent = self
            .resend_unlocks(to)
            .and_then(|()| self.send_unlock(to, &range));
        let incarnation = match sent {
            Ok(incarnation) => incarnation,
            Err(e) => {
                self.unconfirmed_unlocks.lock().push(range);
                self.ctx.deferred_closes.add();
                return Err(e);
            }
        };
        let mut holders = self.holders.lock();
        let kept = match holder {
            Some(holder) => holder.is_none_or(|holder| holder.is_still_held(incarnation)),
            None => holders.granted(key, incarnation),
        };
        if kept {
            return Ok(());
        }
        holders.forget(key);
        Err(Errno::NOLCK.into())
    }

    /// Carries out unlocks at `to` that have had no answer, before anything else is asked of it.
    pub fn resend_unlocks(&self, to: Member) -> Result<()> {
        let next = || {
            let unlocks = self.unconfirmed_unlocks.lock();
            unlocks
                .iter()
                .find(|range| range.fid.owner() == to)
                .cloned()
        };
        if next().is_none() {
            return Ok(());
        }
        // One stays unconfirmed until it is done: an unlock under way must not come after the lock that follows it.
        let _resending = self.resending.lock();
        while let Some(range) = next() {
            self.send_unlock(to, &range)?;
            let mut unlocks = self.unconfirmed_unlocks.lock();
            if let Some(at) = unlocks.iter().position(|p| *p == range) {
                unlocks.remove(at);
            }
        }
        Ok(())
    }

    /// The same at every member, in the background; whether all are confirmed.
    pub fn resend_all_unlocks(&self) -> bool {
        let unlocks = self.unconfirmed_unlocks.lock();
        let members: BTreeSet<Member> = unlocks.iter().map(|range| range.fid.owner()).collect();
        drop(unlocks);
        let failed = members
            .iter()
            .filter(|to| self.resend_unlocks(**to).is_err());
        failed.count() == 0
    }

    fn send_unlock(&self, to: Member, range: &LockRange) -> Result<u64> {
        let token = self.ctx.node.locks.waits.take();
        let request = |session| Unlock {
            session,
            token,
            range: range.clone(),
        };
        let unlocked = self.in_session(to, request);
        self.ctx.node.locks.waits.give(token);
        Ok(unlocked?.incarnation)
    }

    pub fn send_lock(
        &self,
        fid: Fid,
        token: LockToken,
        wanted: &WantedLock,
        wait: bool,
    ) -> Result<LockReply> {
        self.in_session(fid.owner(), |session| Lock {
            session,
            token,
            range: wanted.range(fid),
            mode: wanted.mode,
            pid: wanted.pid,
            wait,
        })
    }

    /// Asks in the current session. If that has ended, all this node held there is lost: the next one begins.
    fn in_session<T, C>(&self, to: Member, request: impl Fn(u64) -> C) -> Result<T>
    where
        C: PeerCall<Reply = SessionReply<T>> + Clone,
    {
        for _ in 0..2 {
            let session = self.session(to);
            match self.ask(to, &request(session))? {
                SessionReply::Current(reply) => return Ok(reply),
                SessionReply::Late => return Err(Errno::IO.into()),
                SessionReply::Ended if self.stopping.load(Ordering::SeqCst) => {
                    return Err(Errno::INTR.into());
                }
                SessionReply::Ended => {
                    tracing::warn!(
                        member = to,
                        "this node was taken for dead; its locks there are lost"
                    );
                    self.holders.lock().lost(to);
                    let next = self.ctx.node.locks.next_session()?;
                    self.sessions.lock().insert(to, next);
                }
            }
        }
        Err(Errno::NOLCK.into())
    }

    fn session(&self, to: Member) -> u64 {
        let sessions = self.sessions.lock();
        let incarnation = self.ctx.node.locks.incarnation;
        sessions.get(&to).copied().unwrap_or(incarnation)
    }

    /// Asks again while answers get lost.
    pub fn ask<C: PeerCall + Clone>(&self, to: Member, request: &C) -> Result<C::Reply> {
        self.ctx.call_with_retries(to, request, MAX_TRIES)
    }

    /// Has the keeper look at members whose locks are in the way; true if one of them was dead
    /// (or the locks of an earlier incarnation).
    pub fn any_dead(&self, keeper: Member, blockers: &[LockOwner]) -> bool {
        let mut dead = false;
        for owner in blockers {
            let member = owner.member;
            if member == self.ctx.member() || member == keeper {
                continue;
            }
            let now = Instant::now();
            let looked = self.suspects.lock().insert(member, now);
            if looked.is_some_and(|at| now - at < SUSPECT_INTERVAL) {
                continue;
            }
            dead |= matches!(self.ctx.call(keeper, SuspectMember { member }), Ok(true));
        }
        dead
    }
}
