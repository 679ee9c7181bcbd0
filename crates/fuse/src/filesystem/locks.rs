//! Advisory locks as the kernel asks for them. It hands them over also in a service of one member: programs that reach the server
//! through the link, past the kernel, take the same locks.
//!
//! - **Waiting**: a blocked `F_SETLKW` or `flock` waits on a thread of its own, never on one that answers requests.
//! - **Signals**: the mount does not use `FUSE_INTERRUPT` (it answers `ENOSYS`, and the kernel stops sending it). The kernel sends
//!   it for the first signal only, even if another thread of the program takes that one; a program killed later would stay until
//!   its lock is granted. So the waiting thread checks some times a second whether its caller has a pending signal
//!   (`thread_status`), and answers `EINTR`. The kernel then restarts the call or ends it, as the signal demands.
//! - **Closing**: the kernel releases an open file's locks (`flock`, OFD) with a `RELEASE`, for which no caller waits. So a denied
//!   try waits for the lock for a moment, in case the file that holds it was just closed.
//! - **Pages**: before a grant reaches the program, older pages are dropped and the kernel gets the new size (`kernel_caches`).
//!   This happens on a thread of its own: it waits for reads under way, which the answering threads must be free to answer.
use super::context::MountContext;
use super::file_handle::handle;
use super::task_threads::spawn_task;
use crate::attempt::attempt;
use crate::protocol::{FileHandle, LockAnswer, LockRequest, Reply, Request};
use crate::recording::{CallInfo, CallRecord};
use crate::thread_status::ThreadStatus;
use forebay_server::delegate::{Delegate, Handle, LockOutcome, StalePages, WantedLock};
use forebay_server::proto::locks::{LockMode, LockSpace};
use forebay_server::{Fid, Result};
use forebay_trace::Action;
use rustix::io::Errno;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long a denied try for a lock of an open file waits for the `RELEASE` of a file that has been closed just now. The wait
/// looks at its end some times a second, so it may take twice as long.
const LAST_CLOSE_WAIT: Duration = Duration::from_millis(75);

impl LockRequest {
    fn call(&self, fid: Fid) -> CallInfo<'static> {
        let len = self.end().saturating_sub(self.start);
        // A lock to the end of all files has no length in a trace.
        let len = if self.last >= i64::MAX as u64 { 0 } else { len };
        CallInfo::on(Action::Lock, fid)
            .through(self.fh)
            .range(self.start, len)
    }

    fn end(&self) -> u64 {
        self.last.saturating_add(1)
    }

    fn wanted(&self, space: LockSpace, detect: bool) -> std::result::Result<WantedLock, Errno> {
        let mode = match self.typ {
            libc::F_RDLCK => LockMode::Shared,
            libc::F_WRLCK => LockMode::Exclusive,
            _ => return Err(Errno::INVAL),
        };
        Ok(WantedLock {
            owner: self.owner,
            space,
            start: self.start,
            end: self.end(),
            mode,
            pid: self.pid,
            detect,
        })
    }
}

/// Makes the kernel forget what is older than what the lock shows: pages, and the size.
fn show(ctx: &MountContext, fid: Fid, stale: StalePages) -> std::result::Result<(), Errno> {
    ctx.caches.refresh(&ctx.delegate, fid).map_err(|error| {
        // With old pages the lock would be worth nothing.
        tracing::error!(inode = fid.0, %error, "the kernel keeps old pages, or an old size, under a lock");
        Errno::IO
    })?;
    ctx.delegate.kernel_pages.dropped_pages(stale);
    Ok(())
}

/// A try for a lock that was denied: waits a moment for it, and is denied again after that.
fn wait_for_last_close(
    delegate: &Delegate,
    handle: Handle,
    wanted: &WantedLock,
    ended: &AtomicBool,
) -> Result<Option<StalePages>> {
    let wait = match delegate.locks.lock_or_wait(handle, wanted)? {
        LockOutcome::Granted(stale) => return Ok(stale),
        LockOutcome::Waiting(wait) => wait,
    };
    let until = Instant::now() + LAST_CLOSE_WAIT;
    let over = || ended.load(Ordering::SeqCst) || Instant::now() >= until;
    match delegate.locks.wait_for_lock(wait, &mut || over()) {
        Err(e) if e.errno() == Errno::INTR => Err(Errno::AGAIN.into()),
        outcome => outcome,
    }
}

/// Reports the call to the recorder, and replies.
fn answer(done: std::result::Result<(), Errno>, record: CallRecord, reply: Reply<()>) {
    record.end(&done);
    reply.answer(done);
}

/// See the head of this file.
pub(super) struct KernelLocks {
    pub ctx: Arc<MountContext>,
    /// The mount has ended: nobody waits any more.
    pub ended: Arc<AtomicBool>,
}

impl KernelLocks {
    /// Whoever waits for a lock gives up.
    pub fn end_waits(&self) {
        self.ended.store(true, Ordering::SeqCst);
    }

    /// Commits to disk. Reads that follow see what other nodes had published, so older pages go first, as with a lock.
    pub fn sync_file(&self, req: &Request, fh: FileHandle, reply: Reply<()>) {
        let fid = req.fid;
        let call = CallInfo::on(Action::Sync, fid).through(fh);
        let record = self.ctx.recording.record(req, call);
        let synced = attempt("fsync", fid, || self.ctx.delegate.fsync(handle(fh)));
        self.answer_granted(fid, synced, record, reply);
    }

    /// Takes a lock, or gives it up.
    pub fn set(&self, req: &Request, asked: LockRequest, reply: Reply<()>) {
        let space = match asked.flock {
            true => LockSpace::Flock,
            false => LockSpace::Record,
        };
        let (fid, handle, locks) = (req.fid, handle(asked.fh), &self.ctx.delegate.locks);
        let record = self.ctx.recording.record(req, asked.call(fid));
        if asked.typ == libc::F_UNLCK {
            let (owner, start, end) = (asked.owner, asked.start, asked.end());
            let unlock = || locks.unlock(handle, owner, space, start, end);
            return answer(attempt("unlock", fid, unlock), record, reply);
        }
        let mut caller = ThreadStatus::new(req.pid);
        let of_open_file = || space == LockSpace::Flock || caller.asks_for_open_file();
        let detect = asked.wait && !of_open_file();
        let wanted = match asked.wanted(space, detect) {
            Ok(wanted) => wanted,
            Err(e) => return answer(Err(e), record, reply),
        };
        let locking = attempt("lock", fid, || match asked.wait {
            true => locks.lock_or_wait(handle, &wanted),
            false => locks.lock(handle, &wanted).map(LockOutcome::Granted),
        });
        match locking {
            Ok(LockOutcome::Granted(stale)) => self.answer_granted(fid, Ok(stale), record, reply),
            Ok(LockOutcome::Waiting(wait)) => {
                self.grant_later(fid, record, reply, move |delegate, ended| {
                    delegate.locks.wait_for_lock(wait, &mut || {
                        ended.load(Ordering::SeqCst) || caller.interrupted()
                    })
                });
            }
            Err(e) if e == Errno::AGAIN && of_open_file() => {
                self.grant_later(fid, record, reply, move |delegate, ended| {
                    wait_for_last_close(delegate, handle, &wanted, ended)
                });
            }
            Err(e) => answer(Err(e), record, reply),
        }
    }

    /// Answers what was granted, or refused, once old pages are dropped.
    fn answer_granted(
        &self,
        fid: Fid,
        granted: std::result::Result<Option<StalePages>, Errno>,
        record: CallRecord,
        reply: Reply<()>,
    ) {
        match granted {
            Ok(Some(stale)) => self.grant_later(fid, record, reply, move |_, _| Ok(Some(stale))),
            done => answer(done.map(drop), record, reply),
        }
    }

    /// Gets the lock (if it is for one), drops old pages, and answers: on a thread of its own.
    fn grant_later(
        &self,
        fid: Fid,
        record: CallRecord,
        reply: Reply<()>,
        get: impl FnOnce(&Delegate, &AtomicBool) -> Result<Option<StalePages>> + Send + 'static,
    ) {
        let (ctx, ended) = (self.ctx.clone(), self.ended.clone());
        // Without a thread the lock goes when the file is closed.
        spawn_task("to wait for a lock", move || {
            let stale = attempt("wait for a lock", fid, || get(&ctx.delegate, &ended));
            let shown = stale.and_then(|stale| match stale {
                Some(stale) => show(&ctx, fid, stale),
                None => Ok(()),
            });
            answer(shown, record, reply);
        });
    }

    /// Looks for a lock that is in the way.
    pub fn find(&self, req: &Request, asked: LockRequest, reply: Reply<LockAnswer>) {
        let wanted = match asked.wanted(LockSpace::Record, false) {
            Ok(wanted) => wanted,
            Err(e) => return reply.error(e),
        };
        let record = self.ctx.recording.record(req, asked.call(req.fid));
        let found = attempt("test lock", req.fid, || {
            self.ctx.delegate.locks.test_lock(handle(asked.fh), &wanted)
        });
        record.end(&found.as_ref().map(drop).map_err(|e| *e));
        reply.answer(found.map(|found| match found {
            None => LockAnswer {
                start: asked.start,
                last: asked.last,
                typ: libc::F_UNLCK,
                pid: 0,
            },
            Some(held) => LockAnswer {
                start: held.range.start,
                last: held.range.end.saturating_sub(1),
                typ: match held.mode {
                    LockMode::Shared => libc::F_RDLCK,
                    LockMode::Exclusive => libc::F_WRLCK,
                },
                pid: held.pid,
            },
        }));
    }
}
