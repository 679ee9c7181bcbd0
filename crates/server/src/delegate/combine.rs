//! Requests of this node that ask another member the same thing at the same time: one message for many.
//!
//! # Invariants
//! - Those that come while one is in flight form the next one; none joins one that was sent, which could answer with a state from
//!   before it came (see [`Combiner`]). So none waits for a group: only for what is already under way.
//! - What is asked is all of the key, so who asks makes no difference to the answer: lookups and attributes are the same for
//!   everyone (the kernel checks permissions), and an open's key has its flags. What names a user (creating, setting) is never combined.
//! - An open that is asked for several is counted once at the owner, for all of their handles.
use super::counted::Counted;
use crate::proto::WireError;
use crate::{Attr, Error, Fid, Member, OpenFlags, Result};
use forebay_fabric::ring::{Combiner, Panicked};
use rustix::io::Errno;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// An answer that many get.
type Shared<T> = Result<T, WireError>;

/// What makes opens the same: file and flags.
type OpenKey = (Fid, [bool; 4]);

/// Attributes, and the open at the owner.
type Open = (Attr, Arc<Counted>);

/// Requests under way, by what they ask.
#[derive(Default)]
pub(super) struct Combine {
    lookups: Combiner<(Fid, Vec<u8>), (), Shared<Attr>>,
    attrs: Combiner<Fid, (), Shared<Attr>>,
    /// With the number of handles.
    opens: Combiner<OpenKey, u32, Shared<Open>>,
    saved: AtomicU64,
}

impl Combine {
    /// Requests that were answered without a message of their own.
    pub fn saved(&self) -> u64 {
        self.saved.load(Ordering::Relaxed)
    }

    fn save(&self) {
        self.saved.fetch_add(1, Ordering::Relaxed);
    }

    /// The inode of a name; `send` asks its directory's owner.
    pub fn lookup(
        &self,
        parent: Fid,
        name: &[u8],
        send: impl FnOnce() -> Result<Attr>,
    ) -> Result<Attr> {
        let key = (parent, name.to_vec());
        let send = |()| share(send());
        let answer = self.lookups.ask(key, (), |_, _| self.save(), send);
        receive(parent.owner(), answer)
    }

    /// The attributes of a file; `send` asks its owner.
    pub fn attr(&self, fid: Fid, send: impl FnOnce() -> Result<Attr>) -> Result<Attr> {
        let send = |()| share(send());
        let answer = self.attrs.ask(fid, (), |_, _| self.save(), send);
        receive(fid.owner(), answer)
    }

    /// An open; `send` asks the file's owner for as many handles as it is given.
    pub fn open(
        &self,
        fid: Fid,
        flags: OpenFlags,
        send: impl FnOnce(u32) -> Result<Open>,
    ) -> Result<Open> {
        let key = [flags.read, flags.write, flags.append, flags.truncate];
        let join = |handles: &mut u32, more| {
            *handles += more;
            self.save();
        };
        let send = |handles| share(send(handles));
        let answer = self.opens.ask((fid, key), 1, join, send);
        receive(fid.owner(), answer)
    }
}

fn share<T>(answer: Result<T>) -> Shared<T> {
    answer.map_err(|e| WireError::from(&e))
}

fn receive<T>(owner: Member, answer: Result<Shared<T>, Panicked>) -> Result<T> {
    match answer {
        Ok(answer) => answer.map_err(|e| e.into_error(owner)),
        // The other thread has reported it.
        Err(Panicked) => Err(Error::Posix(Errno::IO)),
    }
}
