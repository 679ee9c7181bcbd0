//! Advisory locks of this node's programs, kept by the file's owner.
//!
//! Before a lock is given up (or becomes a shared one), this node's pending writes of the file are published; after one is
//! granted, the file's view is fetched anew. So what is written under a lock is seen under the next, on any node.
//!
//! What an error leaves: a lock without an answer may be held; it goes, like all locks, when its owner closes the file. An
//! unlock without an answer stays unconfirmed: it is sent again in the background, and before any other call about locks of that
//! member's files.
use super::commit::LayerCommitter;
use super::context::DelegateContext;
use super::deadlock::DeadlockProbe;
use super::handles::{Handle, OpenHandle};
use super::lock_sessions::{LockSessions, WantedLock};
use super::open_file::StalePages;
use crate::locks::{WaitEnd, WaitingRequest};
use crate::{Fid, Result};
use forebay_proto::locks::{
    BeginSession, HeldLock, LockMode, LockOwner, LockRange, LockReply, LockSpace, TestLock,
};
use rustix::io::Errno;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Between looks at whether a wait was interrupted: at first, and at most.
const FIRST_INTERRUPT_CHECK: Duration = Duration::from_millis(20);
const MAX_INTERRUPT_CHECK: Duration = Duration::from_millis(200);
/// Between questions whether a notice was lost: at first, and at most.
const FIRST_GRANT_QUERY: Duration = Duration::from_millis(500);
const MAX_GRANT_QUERY: Duration = Duration::from_secs(4);

/// What became of a request for a lock.
pub enum LockOutcome {
    /// It is held; as [`LockClient::lock`] answers.
    Granted(Option<StalePages>),
    /// It waits: [`LockClient::wait_for_lock`] is next.
    Waiting(LockWait),
}

/// A request that waits.
#[must_use]
pub struct LockWait {
    open: Arc<OpenHandle>,
    handle: Handle,
    wanted: WantedLock,
    waiting: Arc<WaitingRequest>,
    blockers: Vec<LockOwner>,
}

/// The locks that this node's programs take, at the members that keep them.
///
/// Invariants:
/// - Giving a lock up publishes what this node has pending of the file; taking one sees what was published before.
/// - An owner is known here before its lock is asked for, so that a lost answer leaves no lock that is never released.
pub struct LockClient {
    pub(super) ctx: Arc<DelegateContext>,
    pub(super) committer: Arc<LayerCommitter>,
    pub(super) sessions: LockSessions,
}

impl LockClient {
    /// Locks without waiting. If the answer names stale pages, the kernel has some that are older than what the lock shows: drop
    /// them, then call [`KernelPages::dropped_pages`](super::KernelPages::dropped_pages), and only then let the program go on.
    ///
    /// # Errors
    /// `EAGAIN` if another owner's lock is in the way; `ENOLCK` if the owner's locks on this file were lost; `EIO` if the
    /// file's owner does not answer.
    pub fn lock(&self, handle: Handle, wanted: &WantedLock) -> Result<Option<StalePages>> {
        let _at = self.ctx.counters.other();
        match self.ask_lock(handle, wanted, false)? {
            LockOutcome::Granted(stale) => Ok(stale),
            // Cannot be: the request did not ask to wait.
            LockOutcome::Waiting(_) => Err(Errno::AGAIN.into()),
        }
    }

    /// Locks, or begins to wait. The call itself does not wait for other owners.
    ///
    /// # Errors
    /// As [`LockClient::lock`], but for `EAGAIN`.
    pub fn lock_or_wait(&self, handle: Handle, wanted: &WantedLock) -> Result<LockOutcome> {
        let _at = self.ctx.counters.other();
        self.ask_lock(handle, wanted, true)
    }

    /// Waits until the lock is granted, or `interrupted` says so (asked some times a second).
    ///
    /// # Errors
    /// `EINTR`: nothing was granted, nor will be. `EDEADLK`: a deadlock. Else as [`LockClient::lock`].
    pub fn wait_for_lock(
        &self,
        wait: LockWait,
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<Option<StalePages>> {
        let fid = wait.open.file.fid;
        let token = wait.waiting.token;
        let mut outcome = self.wait_until_granted(fid, &wait, interrupted);
        if let Err(e) = &outcome
            && e.errno() == Errno::IO
        {
            // It must not be granted later, to nobody.
            outcome = self.sessions.cancel(fid.owner(), token, fid, Errno::IO);
        }
        self.ctx.node.locks.waits.give(token);
        self.granted(&wait.open, wait.handle, &wait.wanted, outcome?)
    }

    /// Unlocks; first publishes what this node has pending of the file.
    ///
    /// # Errors
    /// As a commit (the lock is given up all the same); `ENOLCK` if it was lost.
    pub fn unlock(
        &self,
        handle: Handle,
        owner: u64,
        space: LockSpace,
        start: u64,
        end: u64,
    ) -> Result<()> {
        let _at = self.ctx.counters.other();
        let open = self.ctx.table.get(handle)?;
        let published = self.committer.publish(&open.file);
        let key = (open.file.fid, space, owner);
        if !self.sessions.holders.lock().known(&key) {
            return published;
        }
        let range = LockRange {
            fid: open.file.fid,
            space,
            owner,
            start,
            end,
        };
        published.and(self.sessions.give_up(range))
    }

    /// The lock that is in the way of this one, if any; its `pid` is 0 for a process of another node.
    ///
    /// # Errors
    /// `EIO` if the file's owner does not answer.
    pub fn test_lock(&self, handle: Handle, wanted: &WantedLock) -> Result<Option<HeldLock>> {
        let _at = self.ctx.counters.other();
        let fid = self.ctx.table.get(handle)?.file.fid;
        self.sessions.resend_unlocks(fid.owner())?;
        let request = TestLock {
            range: wanted.range(fid),
            mode: wanted.mode,
        };
        let mut held = self.sessions.ask(fid.owner(), &request)?;
        if let Some(by) = &mut held
            && by.owner.member != self.ctx.member()
        {
            by.pid = 0;
        }
        Ok(held)
    }

    /// A program closed a descriptor of the file: the record locks of this owner on it go, as POSIX has it, after
    /// this node's pending writes of the file are published.
    ///
    /// # Errors
    /// `EIO` if the file's owner does not answer; it is told later.
    pub fn close_owner(&self, handle: Handle, owner: u64) -> Result<()> {
        let open = self.ctx.table.get(handle)?;
        let key = (open.file.fid, LockSpace::Record, owner);
        if !self.sessions.holders.lock().known(&key) {
            return Ok(());
        }
        let published = self.committer.publish(&open.file);
        match self.sessions.give_up(whole_file(key)) {
            Err(e) if e.errno() == Errno::NOLCK => published,
            done => published.and(done),
        }
    }

    /// Everything is published, and the handle goes: so do the locks taken through it alone.
    pub(super) fn release(&self, fid: Fid, handle: Handle) {
        let gone = self.sessions.holders.lock().closed(fid, handle);
        for key in gone {
            if let Err(e) = self.sessions.give_up(whole_file(key)) {
                tracing::debug!(fid = fid.0, error = %e, "a lock of a closed file is given up later");
            }
        }
    }

    /// Waits end, and all locks go. Pending writes are published before.
    pub(super) fn stop(&self) {
        self.sessions.stopping.store(true, Ordering::SeqCst);
        self.ctx.node.locks.waits.end();
        let lock_managers = self.sessions.holders.lock().lock_managers();
        let Ok(session) = self.ctx.node.locks.next_session() else {
            return;
        };
        for member in lock_managers {
            // One that is not there keeps no locks for anyone.
            let _ = self.ctx.call(member, BeginSession { session });
        }
    }

    fn ask_lock(&self, handle: Handle, wanted: &WantedLock, wait: bool) -> Result<LockOutcome> {
        if wanted.start >= wanted.end {
            return Err(Errno::INVAL.into());
        }
        let open = self.ctx.table.get(handle)?;
        let (fid, to) = (open.file.fid, open.file.fid.owner());
        self.sessions.resend_unlocks(to)?;
        if wanted.mode == LockMode::Shared {
            // It may have been exclusive; then others may read from now on.
            self.committer.publish(&open.file)?;
        }
        let key = (fid, wanted.space, wanted.owner);
        // Known before it is asked for: should the answer get lost, the lock goes when the file is closed.
        self.sessions.holders.lock().add(key, handle);
        let waits = &self.ctx.node.locks.waits;
        for last in [false, true] {
            let token = waits.take();
            let waiting = waits.expect(token, fid, wanted.owner, wait && wanted.detect);
            let answer = self.sessions.send_lock(fid, token, wanted, wait);
            if let Ok(LockReply::Waiting(blockers)) = answer {
                return Ok(LockOutcome::Waiting(LockWait {
                    open,
                    handle,
                    wanted: wanted.clone(),
                    waiting,
                    blockers,
                }));
            }
            waits.give(token);
            match answer? {
                LockReply::Granted { incarnation } => {
                    return self
                        .granted(&open, handle, wanted, incarnation)
                        .map(LockOutcome::Granted);
                }
                LockReply::Denied(by) if !last && self.sessions.any_dead(to, &[by.owner]) => {}
                _ => break,
            }
        }
        self.sessions.holders.lock().denied(key);
        Err(Errno::AGAIN.into())
    }

    /// From the first `Waiting` to the incarnation that granted, or an error.
    fn wait_until_granted(
        &self,
        fid: Fid,
        wait: &LockWait,
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<u64> {
        let (to, waiting) = (fid.owner(), &wait.waiting);
        let token = waiting.token;
        let (mut look, mut ask) = (FIRST_INTERRUPT_CHECK, FIRST_GRANT_QUERY);
        let mut blockers = wait.blockers.clone();
        let probe = DeadlockProbe {
            peers: &self.ctx.node.peers,
            me: LockOwner {
                member: self.ctx.member(),
                id: waiting.owner,
            },
        };
        loop {
            if wait.wanted.detect && probe.closes_cycle(waiting, &blockers) {
                return self.sessions.cancel(to, token, fid, Errno::DEADLK);
            }
            self.sessions.any_dead(to, &blockers);
            let until = Instant::now() + ask;
            while Instant::now() < until {
                match waiting.wait(look) {
                    WaitEnd::Granted => break,
                    WaitEnd::Ended => return self.sessions.cancel(to, token, fid, Errno::INTR),
                    WaitEnd::Time
                        if self.sessions.stopping.load(Ordering::SeqCst) || interrupted() =>
                    {
                        return self.sessions.cancel(to, token, fid, Errno::INTR);
                    }
                    WaitEnd::Time => look = (look * 2).min(MAX_INTERRUPT_CHECK),
                }
            }
            // Also after a notice: the answer says which incarnation granted.
            match self.sessions.send_lock(fid, token, &wait.wanted, true)? {
                LockReply::Granted { incarnation } => return Ok(incarnation),
                LockReply::Waiting(now) => blockers = now,
                LockReply::Denied(_) | LockReply::Cancelled => return Err(Errno::INTR.into()),
            }
            ask = (ask * 2).min(MAX_GRANT_QUERY);
        }
    }

    /// The lock is there: sees to what it shows.
    fn granted(
        &self,
        open: &OpenHandle,
        handle: Handle,
        wanted: &WantedLock,
        incarnation: u64,
    ) -> Result<Option<StalePages>> {
        let file = &open.file;
        let key = (file.fid, wanted.space, wanted.owner);
        let kept = {
            // Another thread of the program may have given up all that the owner held meanwhile.
            let mut holders = self.sessions.holders.lock();
            holders.add(key, handle);
            holders.granted(key, incarnation)
        };
        if !kept {
            // What it held before is lost; the program must hear of it rather than go on as if it held both.
            let _ = self.sessions.give_up(whole_file(key));
            return Err(Errno::NOLCK.into());
        }
        if self.ctx.members() == 1 {
            // What others may have changed, this node has, and the kernel was told.
            return Ok(None);
        }
        self.ctx.refresh(file)?;
        Ok(file.state.lock().stale_pages(file.fid))
    }
}

/// All that an owner can have locked on a file.
fn whole_file((fid, space, owner): (Fid, LockSpace, u64)) -> LockRange {
    LockRange {
        fid,
        space,
        owner,
        start: 0,
        end: u64::MAX,
    }
}
