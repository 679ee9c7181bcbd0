//! What answers the kernel's requests. `requests` has one method for each: decode, ask the delegate, encode. What is
//! longer than that lies in the neighbouring files by subject.
//!
//! Invariants: every request gets exactly one reply; no handler takes a lock while it waits for the delegate, except a
//! directory listing's own. Locks (`fcntl`, `flock`): see `locks`.

mod attrs;
mod dirs;
mod files;
mod links;
mod locks;
mod requests;
mod team;
mod xattrs;

use crate::options::MountOptions;
use crate::reply::file_attr;
use dirs::Listings;
use forebay_server::{Attr, Delegate, Lamination};
use fuser::{Errno, Generation, ReplyAttr, ReplyEntry};
pub(crate) use locks::{Asked, LockDesk};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;
use team::TeamDesk;

/// How long the kernel may keep what cannot change behind its back.
const KEPT: Duration = Duration::from_secs(1);
/// What the kernel's requests are answered with.
pub(crate) struct Filesystem {
    delegate: Arc<Delegate>,
    listings: Listings,
    desk: Arc<LockDesk>,
    teams: Arc<TeamDesk>,
    /// One member: nobody else changes names and attributes.
    alone: bool,
    max_write: u32,
    readahead: u32,
    ended: Sender<()>,
}

impl Filesystem {
    /// `ended` hears when the last request has been answered.
    pub fn new(delegate: Arc<Delegate>, options: &MountOptions, ended: Sender<()>) -> Filesystem {
        Filesystem {
            alone: delegate.members() == 1,
            teams: TeamDesk::new(delegate.clone()),
            delegate,
            listings: Listings::default(),
            desk: Arc::default(),
            max_write: options.max_write,
            readahead: options.readahead,
            ended,
        }
    }

    fn entry_ttl(&self) -> Duration {
        if self.alone { KEPT } else { Duration::ZERO }
    }

    /// A softly laminated file may get its write bits back, so only the hard kind is kept.
    fn attr_ttl(&self, attr: &Attr) -> Duration {
        if self.alone || attr.lamination == Lamination::Hard {
            KEPT
        } else {
            Duration::ZERO
        }
    }

    fn enter(&self, answer: Result<Attr, Errno>, reply: ReplyEntry) {
        match answer {
            Ok(attr) => {
                reply.entry_with_ttls(
                    &self.attr_ttl(&attr),
                    &self.entry_ttl(),
                    &file_attr(&attr),
                    Generation(0),
                );
            }
            Err(e) => reply.error(e),
        }
    }

    fn show(&self, answer: Result<Attr, Errno>, reply: ReplyAttr) {
        match answer {
            Ok(attr) => reply.attr(&self.attr_ttl(&attr), &file_attr(&attr)),
            Err(e) => reply.error(e),
        }
    }
}
