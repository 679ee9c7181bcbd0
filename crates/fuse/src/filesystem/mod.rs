//! What answers the kernel's requests. `requests` has one method for each: decode, ask the delegate, encode
//! (`replies`). What is longer than that lies in the neighbouring files by subject.
//!
//! Invariants: every request gets exactly one reply; no handler takes a lock while it waits for the delegate, except a
//! directory listing's own. Locks (`fcntl`, `flock`): see `locks`.

mod attrs;
mod dirs;
mod files;
mod kernel;
mod links;
mod locks;
mod places;
mod replies;
mod requests;
mod team;
mod xattrs;

use crate::callers::Callers;
use crate::kernel_caches::KernelCaches;
use crate::open_handles::OpenHandles;
use crate::options::MountOptions;
use crate::protocol::{Errno, Request};
use crate::reply::attempt;
use crate::watch::{Note, Told, Watch};
use dirs::Listings;
use forebay_server::Delegate;
pub(crate) use locks::LockWaiters;
use places::DirectoryPlaces;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use team::TeamDirectory;

/// What the kernel's requests are answered with.
pub(crate) struct Filesystem {
    delegate: Arc<Delegate>,
    listings: Listings,
    lock_waiters: Arc<LockWaiters>,
    caches: Arc<KernelCaches>,
    places: Arc<DirectoryPlaces>,
    teams: Arc<TeamDirectory>,
    /// One member: nobody else changes names and attributes.
    alone: bool,
    max_write: u32,
    readahead: u32,
    ended: Sender<()>,
    watch: Arc<Watch>,
    handles: Arc<OpenHandles>,
    refused: Arc<AtomicBool>,
    callers: Arc<Callers>,
}

impl Filesystem {
    /// `ended` hears when the last request has been answered.
    pub fn new(delegate: Arc<Delegate>, options: &MountOptions, ended: Sender<()>) -> Filesystem {
        Filesystem {
            alone: delegate.members() == 1,
            teams: TeamDirectory::new(delegate.clone()),
            delegate,
            listings: Listings::default(),
            lock_waiters: Arc::default(),
            caches: Arc::default(),
            places: Arc::default(),
            max_write: options.max_write,
            readahead: options.readahead,
            ended,
            watch: Arc::default(),
            handles: Arc::default(),
            refused: Arc::default(),
            callers: Arc::default(),
        }
    }

    /// What makes the kernel's caches new; connected before the first request.
    pub(crate) fn caches(&self) -> Arc<KernelCaches> {
        self.caches.clone()
    }

    /// Who watches this mount.
    pub(crate) fn watch(&self) -> Arc<Watch> {
        self.watch.clone()
    }

    /// What is open.
    pub(crate) fn handles(&self) -> Arc<OpenHandles> {
        self.handles.clone()
    }

    /// Once it is set, every request fails with `ENOTCONN`.
    pub(crate) fn refused(&self) -> Arc<AtomicBool> {
        self.refused.clone()
    }

    /// Who has asked for anything.
    pub(crate) fn callers(&self) -> Arc<Callers> {
        self.callers.clone()
    }

    /// Runs a handler and tells whoever watches.
    fn attempt<T: Told>(
        &self,
        req: &Request,
        note: Note<'_>,
        handler: impl FnOnce() -> forebay_server::Result<T>,
    ) -> Result<T, Errno> {
        if self.refused.load(Ordering::SeqCst) {
            return Err(Errno::ENOTCONN);
        }
        self.callers.note(req.pid());
        let mark = self.watch.mark(req, note);
        let answer = attempt(note.operation(), note.ino(), handler);
        if let Some(mark) = mark {
            mark.end(&answer);
        }
        answer
    }
}
