//! What answers the kernel's requests. `requests` has one method for each: it reports the request to the recorder, calls the
//! delegate or a module below, and gives the answer to the reply.
//!
//! | file | what it keeps right |
//! |---|---|
//! | `requests` | the kernel's requests, one method each |
//! | `init` | which features of FUSE the mount asks the kernel for |
//! | `cache_policy` | what the kernel may keep, and for how long |
//! | `file_handle` | the bits of a file handle |
//! | `files` | open files and their bytes |
//! | `change_notices` | a change is answered when no kernel keeps what it made old |
//! | `invalidation` | what other nodes tell this node's kernel |
//! | `directory_places`, `directory_moves` | where the kernel has each directory; those that other nodes move |
//! | `locks` | `fcntl` and `flock` over several members |
//! | `team` | the directory of teams, and the calls of teams |
//! | `listings` | open directories |
//! | `attrs`, `names`, `xattrs` | changes that the kernel leaves rules for |
//! | `waiter` | threads that wait in the place of those that answer requests |
//!
//! Invariants: every request gets exactly one reply; no handler takes a lock while it waits for the delegate, except a
//! directory listing's own.

mod attrs;
mod cache_policy;
mod change_notices;
mod directory_moves;
mod directory_places;
mod file_handle;
mod files;
mod init;
mod invalidation;
mod listings;
mod locks;
mod names;
mod requests;
mod team;
mod waiter;
mod xattrs;

use crate::attempt::attempt;
use crate::caller_groups::CallerGroups;
use crate::kernel_caches::KernelCaches;
use crate::open_handles::OpenHandles;
use crate::protocol::Request;
use crate::watch::{CallInfo, RecordedAnswer, Watch};
use cache_policy::CachePolicy;
use change_notices::ChangeNotices;
use directory_moves::DirectoryMoves;
use files::OpenFiles;
use forebay_server::Delegate;
use listings::Listings;
use locks::KernelLocks;
use rustix::io::Errno;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use team::TeamDirectory;

/// What the kernel's requests are answered with.
pub(crate) struct Filesystem {
    delegate: Arc<Delegate>,
    policy: CachePolicy,
    files: OpenFiles,
    changes: ChangeNotices,
    moves: DirectoryMoves,
    locks: KernelLocks,
    teams: Arc<TeamDirectory>,
    listings: Listings,
    /// Hears when the last request has been answered.
    ended: Sender<()>,
    /// What makes the kernel's caches new; connected before the first request.
    pub caches: Arc<KernelCaches>,
    /// Who watches this mount.
    pub watch: Arc<Watch>,
    /// What is open.
    pub handles: Arc<OpenHandles>,
    /// Once it is set, every request fails with `ENOTCONN`.
    pub refused: Arc<AtomicBool>,
    /// Who has asked for anything.
    pub callers: Arc<CallerGroups>,
}

impl Filesystem {
    /// `ended` hears when the last request has been answered. From now on this node's kernel hears of what other nodes do.
    pub fn new(delegate: Arc<Delegate>, ended: Sender<()>) -> Filesystem {
        let (caches, watch) = (Arc::<KernelCaches>::default(), Arc::<Watch>::default());
        let policy = CachePolicy {
            alone: delegate.members() == 1,
            watch: watch.clone(),
        };
        let moves = DirectoryMoves::new(delegate.clone(), caches.clone(), policy.clone());
        invalidation::follow(&delegate, &caches, &moves.places);
        Filesystem {
            files: OpenFiles {
                delegate: delegate.clone(),
                policy: policy.clone(),
            },
            changes: ChangeNotices {
                delegate: delegate.clone(),
                caches: caches.clone(),
            },
            moves,
            locks: KernelLocks::new(delegate.clone(), caches.clone(), watch.clone()),
            teams: TeamDirectory::new(delegate.clone(), caches.clone(), policy.clone()),
            listings: Listings::default(),
            ended,
            delegate,
            policy,
            caches,
            watch,
            handles: Arc::default(),
            refused: Arc::default(),
            callers: Arc::default(),
        }
    }

    /// Runs a handler, and reports the call to the recorder.
    fn attempt<T: RecordedAnswer>(
        &self,
        req: &Request,
        call: CallInfo<'_>,
        handler: impl FnOnce() -> forebay_server::Result<T>,
    ) -> Result<T, Errno> {
        if self.refused.load(Ordering::SeqCst) {
            return Err(Errno::NOTCONN);
        }
        self.callers.add(req.pid);
        let record = self.watch.record(req, call);
        let answer = attempt(call.operation(), call.ino(), handler);
        record.end(&answer);
        answer
    }
}
