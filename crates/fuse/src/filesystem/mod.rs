//! The file system that answers the kernel's requests. `requests` has one method for each: it reports the request to the
//! recorder, calls the delegate or a module below, and gives the answer to the reply.
//!
//! | file | what it keeps right |
//! |---|---|
//! | `requests` | the kernel's requests, one method each |
//! | `context` | what all those below share |
//! | `init` | which features of FUSE the mount asks the kernel for |
//! | `cache_policy` | what the kernel may keep, and for how long |
//! | `write_back`, `dirty_page_budget`, `write_admission` | whether it keeps dirty pages too; room for them; writes while there is little |
//! | `file_handle` | the bits of a file handle |
//! | `files` | open files and their bytes |
//! | `held_replies` | a change is answered once the kernels that cache the old state have been invalidated |
//! | `invalidation` | what other nodes tell this node's kernel |
//! | `bypass`, `bypass_changes`, `in_flight_inodes` | files that are read or changed around the mount |
//! | `directory_places`, `directory_moves` | where the kernel has each directory; those that other nodes move |
//! | `locks` | `fcntl` and `flock` |
//! | `team` | the directory of teams, and the calls of teams |
//! | `listings` | open directories |
//! | `attrs`, `names`, `xattrs` | setting attributes, names, extended attributes; the checks of POSIX that the kernel leaves to the file system |
//! | `page_fill_threads` | how many threads put pages into the kernel's page cache |
//! | `task_threads` | threads for tasks that may wait, in place of those that answer requests |
//!
//! Invariants: every request gets exactly one reply; no handler takes a lock while it waits for the delegate, except a
//! directory listing's own.

mod attrs;
mod bypass;
mod bypass_changes;
mod cache_policy;
mod context;
mod directory_moves;
mod directory_places;
mod dirty_page_budget;
mod file_handle;
mod files;
mod held_replies;
mod in_flight_inodes;
mod init;
mod invalidation;
mod listings;
mod locks;
mod names;
mod page_fill_threads;
mod requests;
mod task_threads;
mod team;
mod write_admission;
mod write_back;
mod xattrs;

use crate::attempt::attempt;
use crate::protocol::{Answer, EntryAnswer, Reply, Request};
use crate::recording::{CallInfo, RecordedAnswer};
pub(crate) use context::MountContext;
use directory_moves::DirectoryMoves;
use files::FileRequests;
use forebay_server::{Fid, NewInode, Result};
use forebay_trace::Action;
use held_replies::HeldReplies;
use listings::Listings;
use locks::KernelLocks;
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;
use team::TeamDirectory;

/// What the kernel's requests are answered with.
pub(crate) struct Filesystem {
    ctx: Arc<MountContext>,
    files: FileRequests,
    changes: HeldReplies,
    moves: DirectoryMoves,
    locks: KernelLocks,
    teams: Arc<TeamDirectory>,
    listings: Listings,
    /// Hears when the last request has been answered.
    ended: Sender<()>,
}

impl Filesystem {
    /// The file system of a mount, which begins to handle invalidations by other nodes. `ended`: a message is sent to it when the last
    /// request has been answered.
    pub fn new(ctx: Arc<MountContext>, ended: Sender<()>) -> Filesystem {
        let moves = DirectoryMoves {
            ctx: ctx.clone(),
            places: Arc::default(),
        };
        invalidation::register_invalidations(&ctx, &moves.places);
        bypass::register_mount_caches(&ctx);
        Filesystem {
            files: FileRequests { ctx: ctx.clone() },
            changes: HeldReplies { ctx: ctx.clone() },
            moves,
            locks: KernelLocks {
                ctx: ctx.clone(),
                ended: Arc::default(),
            },
            teams: TeamDirectory::new(ctx.clone()),
            listings: Listings::default(),
            ended,
            ctx,
        }
    }

    /// Runs a handler, and reports the call to the recorder.
    fn attempt<T: RecordedAnswer>(
        &self,
        req: &Request,
        call: CallInfo<'_>,
        handler: impl FnOnce() -> Result<T>,
    ) -> Result<T, Errno> {
        if self.ctx.refused.load(Ordering::SeqCst) {
            return Err(Errno::NOTCONN);
        }
        self.ctx.callers.add(req.pid);
        let record = self.ctx.recording.record(req, call);
        let answer = attempt(call.operation(), call.fid(), handler);
        record.end(&answer);
        answer
    }

    /// Runs a handler of a request that the kernel makes for itself: nothing is reported.
    fn attempt_for_kernel<T>(
        &self,
        operation: &'static str,
        fid: Fid,
        handler: impl FnOnce() -> Result<T>,
    ) -> Result<T, Errno> {
        match self.ctx.refused.load(Ordering::SeqCst) {
            true => Err(Errno::NOTCONN),
            false => attempt(operation, fid, handler),
        }
    }

    /// The same, and replies.
    fn answer<T: RecordedAnswer + Answer>(
        &self,
        req: &Request,
        call: CallInfo<'_>,
        reply: Reply<T>,
        handler: impl FnOnce() -> Result<T>,
    ) {
        reply.answer(self.attempt(req, call, handler));
    }

    /// Makes what `new` describes under a name in the directory of `req`.
    fn make(
        &self,
        req: &Request,
        action: Action,
        name: &OsStr,
        new: impl FnOnce() -> Result<NewInode>,
        reply: Reply<EntryAnswer>,
    ) {
        let answer = self.attempt(req, CallInfo::at(action, req.fid, name), || {
            let names = &self.ctx.delegate.names;
            names.make(req.fid, name.as_bytes(), new()?, req.origin())
        });
        self.moves.answered(&answer, (req.fid, name), req.pid);
        reply.answer(answer.map(|attr| self.ctx.policy.entry(attr)));
    }
}
