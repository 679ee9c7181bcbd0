//! Combines concurrent identical requests of this node to another member into one message.
//!
//! # Invariants
//! - Requests that come while an identical one is in flight are combined into the next message. None joins a message that was sent,
//!   whose answer may be of a state before the request came (see [`Combiner`]). So a request waits for the message in flight, never
//!   for others to join.
//! - The key contains everything that the answer depends on: lookups and attributes are the same for
//!   everyone (the kernel checks permissions), an open's key has its flags, and a create's what the file is made with. Requests
//!   that succeed for one caller only (an exclusive create, a removal), and changes of attributes, are never combined.
//! - A combined open or create is counted once at the owner, for all of its handles. The request that was sent made the file;
//!   to the others it existed.
use super::counted_open::CountedOpen;
use crate::{Attr, Caller, Error, Fid, Member, OpenFlags, Result};
use forebay_fabric::ring::{Combiner, SenderPanicked};
use forebay_proto::WireError;
use forebay_proto::meta::LeasedAttr;
use rustix::io::Errno;
use std::borrow::Cow;
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// An answer that many get.
type SharedReply<T> = Result<T, WireError>;

/// What makes opens the same: file and flags.
type OpenKey = (Fid, OpenFlags);

/// Attributes, and the open at the owner.
type SharedOpen = (Attr, Arc<CountedOpen>);

/// A file that is to be there after a create, and how it is made if it is not.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct NewFile<'a> {
    /// Its directory.
    pub parent: Fid,
    /// Its name there.
    pub name: Cow<'a, [u8]>,
    /// The name that it will have, if this one is temporary: its codec is chosen by that.
    pub becomes: Option<Cow<'a, [u8]>>,
    /// Permission bits.
    pub mode: u32,
    /// Who makes it.
    pub caller: Caller,
}

/// What makes creates the same.
type CreateKey = (NewFile<'static>, OpenFlags);

/// An open, and how it came about.
type SharedCreate = (SharedOpen, CreateOutcome);

/// What a create did beside the open.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct CreateOutcome {
    /// The file was made.
    pub made: bool,
    /// The kernel may keep its attributes.
    pub leased: bool,
}

/// Requests under way, by what they ask.
#[derive(Default)]
pub(super) struct RequestCombiner {
    /// This node's member, which is asked directly.
    me: Member,
    lookups: Combiner<(Fid, Vec<u8>), (), SharedReply<LeasedAttr>>,
    attrs: Combiner<Fid, (), SharedReply<LeasedAttr>>,
    /// With the number of handles.
    opens: Combiner<OpenKey, u32, SharedReply<SharedOpen>>,
    /// The same.
    creates: Combiner<CreateKey, u32, SharedReply<SharedCreate>>,
    saved: AtomicU64,
}

impl RequestCombiner {
    /// Of the node of member `me`.
    pub fn new(me: Member) -> RequestCombiner {
        RequestCombiner {
            me,
            ..RequestCombiner::default()
        }
    }

    /// Requests that were answered without a message of their own.
    pub fn saved(&self) -> u64 {
        self.saved.load(Ordering::Relaxed)
    }

    /// Asks `owner`, or shares the answer to who asks the same. `join` adds the second request to the first.
    fn ask<K: Eq + Hash + Clone, Q, T: Clone>(
        &self,
        combiner: &Combiner<K, Q, SharedReply<T>>,
        owner: Member,
        (key, request): (impl FnOnce() -> K, Q),
        join: fn(&mut Q, Q),
        send: impl FnOnce(Q) -> Result<T>,
    ) -> Result<T> {
        if owner == self.me {
            return send(request);
        }
        let join = |all: &mut Q, more| {
            join(all, more);
            self.saved.fetch_add(1, Ordering::Relaxed);
        };
        let send = |all| send(all).map_err(|e| WireError::from(&e));
        match combiner.ask(key(), request, join, send) {
            Ok(answer) => answer.map_err(|e| e.into_error(owner)),
            // The other thread has reported it.
            Err(SenderPanicked) => Err(Error::Posix(Errno::IO)),
        }
    }

    /// The inode of a name; `send` asks its directory's owner.
    pub fn lookup(
        &self,
        parent: Fid,
        name: &[u8],
        send: impl FnOnce() -> Result<LeasedAttr>,
    ) -> Result<LeasedAttr> {
        let asked = (|| (parent, name.to_vec()), ());
        self.ask(
            &self.lookups,
            parent.owner(),
            asked,
            |(), ()| (),
            |()| send(),
        )
    }

    /// The attributes of a file; `send` asks its owner.
    pub fn attr(&self, fid: Fid, send: impl FnOnce() -> Result<LeasedAttr>) -> Result<LeasedAttr> {
        let asked = (|| fid, ());
        self.ask(&self.attrs, fid.owner(), asked, |(), ()| (), |()| send())
    }

    /// An open; `send` asks the file's owner for as many handles as it is given.
    pub fn open(
        &self,
        fid: Fid,
        flags: OpenFlags,
        send: impl FnOnce(u32) -> Result<SharedOpen>,
    ) -> Result<SharedOpen> {
        let asked = (|| (fid, flags), 1);
        self.ask(
            &self.opens,
            fid.owner(),
            asked,
            |handles, more| *handles += more,
            send,
        )
    }

    /// A create that is not exclusive, and an open; `send` asks the owners for as many handles as it is given. Also whether it was
    /// this one that sent it.
    pub fn create(
        &self,
        new: &NewFile<'_>,
        flags: OpenFlags,
        send: impl FnOnce(u32) -> Result<SharedCreate>,
    ) -> Result<(SharedCreate, bool)> {
        let owned = || NewFile {
            name: Cow::Owned(new.name.to_vec()),
            becomes: new.becomes.as_ref().map(|name| Cow::Owned(name.to_vec())),
            ..*new
        };
        let mut sent = false;
        let send = |handles| {
            sent = true;
            send(handles)
        };
        let (owner, asked) = (new.parent.owner(), (|| (owned(), flags), 1));
        let created = self.ask(
            &self.creates,
            owner,
            asked,
            |handles, more| *handles += more,
            send,
        )?;
        Ok((created, sent))
    }
}
