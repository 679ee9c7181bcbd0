//! Requests of this node that ask another member the same thing at the same time: one message for many.
//!
//! # Invariants
//! - Those that come while one is in flight form the next one; none joins one that was sent, which could answer with a state from
//!   before it came (see [`Combiner`]). So none waits for a group: only for what is already under way.
//! - What is asked is all of the key, so who asks makes no difference to the answer: lookups and attributes are the same for
//!   everyone (the kernel checks permissions), an open's key has its flags, and a create's what the file is made with. What says
//!   yes to one only (an exclusive create, a removal), and what changes attributes, is never combined.
//! - An open or create that is asked for several is counted once at the owner, for all of their handles; the one that sent a
//!   create has made the file, the others found it.
use super::counted_open::CountedOpen;
use crate::{Attr, Caller, Error, Fid, Member, OpenFlags, Result};
use forebay_fabric::ring::{Combiner, Panicked};
use forebay_proto::WireError;
use rustix::io::Errno;
use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// An answer that many get.
type SharedReply<T> = Result<T, WireError>;

/// What makes opens the same: file and flags.
type OpenKey = (Fid, [bool; 4]);

/// Attributes, and the open at the owner.
type SharedOpen = (Attr, Arc<CountedOpen>);

/// A file that is to be there after a create, and how it is made if it is not.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct NewFile<'a> {
    /// Its directory.
    pub parent: Fid,
    /// Its name there.
    pub name: Cow<'a, [u8]>,
    /// Permission bits.
    pub mode: u32,
    /// Who makes it.
    pub caller: Caller,
}

/// What makes creates the same.
type CreateKey = (NewFile<'static>, [bool; 4]);

/// An open, and whether the file was made.
type SharedCreate = (SharedOpen, bool);

fn bits(flags: OpenFlags) -> [bool; 4] {
    [flags.read, flags.write, flags.append, flags.truncate]
}

/// Requests under way, by what they ask.
#[derive(Default)]
pub(super) struct RequestCombiner {
    lookups: Combiner<(Fid, Vec<u8>), (), SharedReply<Attr>>,
    attrs: Combiner<Fid, (), SharedReply<Attr>>,
    /// With the number of handles.
    opens: Combiner<OpenKey, u32, SharedReply<SharedOpen>>,
    /// The same.
    creates: Combiner<CreateKey, u32, SharedReply<SharedCreate>>,
    saved: AtomicU64,
}

impl RequestCombiner {
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
        send: impl FnOnce(u32) -> Result<SharedOpen>,
    ) -> Result<SharedOpen> {
        let join = |handles: &mut u32, more| {
            *handles += more;
            self.save();
        };
        let send = |handles| share(send(handles));
        let answer = self.opens.ask((fid, bits(flags)), 1, join, send);
        receive(fid.owner(), answer)
    }

    /// A create that is not exclusive, and an open; `send` asks the owners for as many handles as it is given. Also whether it was
    /// this one that sent it.
    pub fn create(
        &self,
        new: &NewFile<'_>,
        flags: OpenFlags,
        send: impl FnOnce(u32) -> Result<SharedCreate>,
    ) -> Result<(SharedCreate, bool)> {
        let owned = NewFile {
            name: Cow::Owned(new.name.to_vec()),
            ..*new
        };
        let join = |handles: &mut u32, more| {
            *handles += more;
            self.save();
        };
        let mut sent = false;
        let send = |handles| {
            sent = true;
            share(send(handles))
        };
        let answer = self.creates.ask((owned, bits(flags)), 1, join, send);
        receive(new.parent.owner(), answer).map(|create| (create, sent))
    }
}

fn share<T>(answer: Result<T>) -> SharedReply<T> {
    answer.map_err(|e| WireError::from(&e))
}

fn receive<T>(owner: Member, answer: Result<SharedReply<T>, Panicked>) -> Result<T> {
    match answer {
        Ok(answer) => answer.map_err(|e| e.into_error(owner)),
        // The other thread has reported it.
        Err(Panicked) => Err(Error::Posix(Errno::IO)),
    }
}
