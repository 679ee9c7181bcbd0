//! Advisory locks as the kernel asks for them, where a service has several members. (With one member the kernel keeps them
//! itself, as for any local file system, and none of this is used.)
//!
//! What is particular here:
//! - **Waiting**: a blocked `F_SETLKW` or `flock` waits on a thread of its own, never on one that answers requests.
//! - **Signals**: the kernel tells of an interrupted request by `FUSE_INTERRUPT`, which the mount does not look at (it
//!   answers `ENOSYS`, and the kernel stops sending it): a thread that waits for another member cannot be woken by it. A killed program would stay until its lock is granted. So the
//!   waiting thread looks itself, some times a second, whether its caller has a signal to take (`caller`), and answers
//!   `EINTR`; the kernel restarts the call or ends it, as the signal wants.
//! - **Closing**: the kernel gives up an open file's locks (`flock`, OFD) with a `RELEASE` that nobody waits for. So a try
//!   that is denied by such a lock is tried again for a moment, in case the file has been closed just now.
//! - **Pages**: before a grant reaches the program, pages older than what the lock shows are dropped and the kernel is told
//!   the size (`kernel_caches`), on a thread of its own: that waits for reads under way, which the answering threads must be
//!   free to answer.
use super::Filesystem;
use super::files::handle;
use crate::caller::Caller;
use crate::kernel_caches::KernelCaches;
use crate::protocol::{Errno, FileHandle, INodeNo, LockRequest, ReplyEmpty, ReplyLock, Request};
use crate::reply::attempt;
use crate::watch::{Mark, Note};
use forebay_server::Result;
use forebay_server::delegate::{Delegate, GrantedLock, LockOutcome, WantedLock};
use forebay_server::proto::locks::{LockMode, LockSpace};
use forebay_trace::Action;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Stack of a thread that waits for a lock; it does little.
const WAITER_STACK: usize = 256 << 10;

/// Before a denied try for a lock of an open file is repeated, milliseconds.
const CLOSED_FILE_RETRIES_MS: [u64; 6] = [1, 2, 5, 10, 20, 40];

/// What threads that wait for locks share with the mount.
#[derive(Default)]
pub(crate) struct LockWaiters {
    /// The mount has ended: nobody waits any more.
    pub ended: AtomicBool,
}

impl LockRequest {
    fn note(&self) -> Note<'static> {
        let len = self.end().saturating_sub(self.start);
        // A lock to the end of all files has no length in a trace.
        let len = if self.last >= i64::MAX as u64 { 0 } else { len };
        Note::on(Action::Lock, self.ino)
            .through(self.fh)
            .range(self.start, len)
    }

    fn end(&self) -> u64 {
        self.last.saturating_add(1)
    }

    fn mode(&self) -> std::result::Result<LockMode, Errno> {
        match self.typ {
            libc::F_RDLCK => Ok(LockMode::Shared),
            libc::F_WRLCK => Ok(LockMode::Exclusive),
            _ => Err(Errno::EINVAL),
        }
    }

    fn wanted(&self, space: LockSpace, detect: bool) -> std::result::Result<WantedLock, Errno> {
        Ok(WantedLock {
            owner: self.owner,
            space,
            start: self.start,
            end: self.end(),
            mode: self.mode()?,
            pid: self.pid,
            detect,
        })
    }
}

/// Makes the kernel forget what is older than what the lock shows: pages, and the size.
fn show(
    caches: &KernelCaches,
    delegate: &Delegate,
    ino: INodeNo,
    granted: GrantedLock,
) -> std::result::Result<(), Errno> {
    let Some(stale) = granted.stale else {
        return Ok(());
    };
    caches.renew(delegate, ino).map_err(|error| {
        // With old pages the lock would be worth nothing.
        tracing::error!(inode = ino.0, %error, "the kernel keeps old pages, or an old size, under a lock");
        Errno::EIO
    })?;
    delegate.kernel_pages.dropped_pages(stale);
    Ok(())
}

/// Tells whoever watches, and answers.
fn answer(done: std::result::Result<(), Errno>, mark: Option<Mark>, reply: ReplyEmpty) {
    if let Some(mark) = mark {
        mark.end(&done);
    }
    match done {
        Ok(()) => reply.ok(),
        Err(e) => reply.error(e),
    }
}

impl Filesystem {
    /// Commits to disk. Reads that follow see what other nodes had published, so older pages go first, as with a lock.
    pub(super) fn sync_file(&self, req: &Request, ino: INodeNo, fh: FileHandle, reply: ReplyEmpty) {
        let mark = self
            .watch
            .mark(req, Note::on(Action::Sync, ino).through(fh));
        match attempt("fsync", ino, || self.delegate.fsync(handle(fh))) {
            Ok(None) => answer(Ok(()), mark, reply),
            Ok(stale) => self.apart(ino, mark, reply, move |_, _| Ok(GrantedLock { stale })),
            Err(e) => answer(Err(e), mark, reply),
        }
    }

    pub(super) fn lock_or_unlock(&self, req: &Request, asked: LockRequest, reply: ReplyEmpty) {
        let space = match asked.flock {
            true => LockSpace::Flock,
            false => LockSpace::Record,
        };
        let (ino, handle) = (asked.ino, handle(asked.fh));
        let mark = self.watch.mark(req, asked.note());
        if asked.typ == libc::F_UNLCK {
            let (owner, start, end) = (asked.owner, asked.start, asked.end());
            let done = attempt("unlock", ino, || {
                self.delegate.locks.unlock(handle, owner, space, start, end)
            });
            return answer(done, mark, reply);
        }
        let caller = Caller::new(req.pid());
        let of_open_file = || space == LockSpace::Flock || caller.asks_for_open_file();
        let detect = asked.wait && !of_open_file();
        let wanted = match asked.wanted(space, detect) {
            Ok(wanted) => wanted,
            Err(e) => return answer(Err(e), mark, reply),
        };
        let locking = attempt("lock", ino, || match asked.wait {
            true => self.delegate.locks.lock_or_wait(handle, &wanted),
            false => self
                .delegate
                .locks
                .lock(handle, &wanted)
                .map(LockOutcome::Granted),
        });
        match locking {
            Ok(LockOutcome::Granted(GrantedLock { stale: None })) => answer(Ok(()), mark, reply),
            Err(e) if e.code() == libc::EAGAIN && of_open_file() => {
                self.apart(ino, mark, reply, move |delegate, _| {
                    let mut tries = CLOSED_FILE_RETRIES_MS.iter();
                    loop {
                        match (delegate.locks.lock(handle, &wanted), tries.next()) {
                            (Err(e), Some(pause)) if e.errno() == rustix::io::Errno::AGAIN => {
                                std::thread::sleep(Duration::from_millis(*pause));
                            }
                            (outcome, _) => return outcome,
                        }
                    }
                });
            }
            Err(e) => answer(Err(e), mark, reply),
            Ok(locking) => self.apart(
                ino,
                mark,
                reply,
                move |delegate, lock_waiters| match locking {
                    LockOutcome::Granted(granted) => Ok(granted),
                    LockOutcome::Waiting(wait) => {
                        let mut caller = caller;
                        delegate.locks.wait_for_lock(wait, &mut || {
                            lock_waiters.ended.load(Ordering::SeqCst) || caller.interrupted()
                        })
                    }
                },
            ),
        }
    }

    /// Gets the lock (if it is for one), drops old pages, and answers: on a thread of its own.
    fn apart(
        &self,
        ino: INodeNo,
        mark: Option<Mark>,
        reply: ReplyEmpty,
        get: impl FnOnce(&Delegate, &LockWaiters) -> Result<GrantedLock> + Send + 'static,
    ) {
        let (delegate, lock_waiters) = (self.delegate.clone(), self.lock_waiters.clone());
        let caches = self.caches.clone();
        let work = move || {
            let granted = attempt("wait for a lock", ino, || get(&delegate, &lock_waiters));
            let shown = granted.and_then(|granted| show(&caches, &delegate, ino, granted));
            answer(shown, mark, reply);
        };
        let thread = std::thread::Builder::new()
            .name("lock".into())
            .stack_size(WAITER_STACK);
        if let Err(e) = thread.spawn(work) {
            // The reply went with the closure, and has said EIO; the lock goes when the file is closed.
            tracing::error!(error = %e, "no thread to wait for a lock; raise the limit of processes");
        }
    }

    pub(super) fn look_for_lock(&self, req: &Request, asked: LockRequest, reply: ReplyLock) {
        let wanted = match asked.wanted(LockSpace::Record, false) {
            Ok(wanted) => wanted,
            Err(e) => return reply.error(e),
        };
        let mark = self.watch.mark(req, asked.note());
        let found = attempt("test lock", asked.ino, || {
            self.delegate.locks.test_lock(handle(asked.fh), &wanted)
        });
        if let Some(mark) = mark {
            mark.end(&found.as_ref().map(|_| ()).map_err(|e| *e));
        }
        match found {
            Ok(None) => reply.locked(asked.start, asked.last, libc::F_UNLCK, 0),
            Ok(Some(held)) => {
                let typ = match held.mode {
                    LockMode::Shared => libc::F_RDLCK,
                    LockMode::Exclusive => libc::F_WRLCK,
                };
                let last = held.range.end.saturating_sub(1);
                reply.locked(held.range.start, last, typ, held.pid);
            }
            Err(e) => reply.error(e),
        }
    }
}
