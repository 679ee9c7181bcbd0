//! Several members in one test, without a service: each with an in-memory end of the fabric that calls the other's
//! handler in the caller's own thread (through the wire format), so that a seed replays a run.
//!
//! Not part of the interface; hidden from the documentation.
pub mod stored;

use crate::peers::{Parts, answer};
use crate::{
    Member, Peers, Result, data_requests, files::Files, files::proto::*, meta::Meta, meta::proto::*,
};
use bytes::Bytes;
use forebay_data::LogStore;
use forebay_fabric::{Error, Fabric, Handler, Message, Rank, Replier};
use forebay_proto::data::*;
use parking_lot::Mutex;
use rustix::io::Errno;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

/// Members wired to each other. Build each member's parts with its [`Members::peers`], then [`Members::bind`] them.
pub struct Members {
    hub: Arc<Hub>,
    peers: Vec<Arc<Peers>>,
    parts: Vec<Option<Arc<dyn Parts>>>,
}

impl Members {
    /// `n` members, none bound yet.
    pub fn new(n: u16) -> Members {
        let hub = Arc::new(Hub {
            ends: (0..n).map(|_| End::default()).collect(),
        });
        let peers = (0..n)
            .map(|k| {
                Peers::new(
                    Arc::new(Direct {
                        rank: Rank::from(k),
                        hub: hub.clone(),
                    }),
                    Duration::from_secs(5),
                )
            })
            .collect();
        Members {
            hub,
            peers,
            parts: (0..n).map(|_| None).collect(),
        }
    }

    /// The view that member `k`'s parts get.
    pub fn peers(&self, k: Member) -> Arc<Peers> {
        self.peers[usize::from(k)].clone()
    }

    /// From now on requests to member `k` reach these parts (kept alive here). They were built with
    /// [`Members::peers`], or after [`Members::restart`] with what that returned.
    pub fn bind(&mut self, k: Member, parts: Arc<dyn Parts>) {
        let i = usize::from(k);
        self.peers[i].bind(Arc::downgrade(&parts));
        *self.hub.ends[i].parts.lock() = Some(Arc::downgrade(&parts));
        self.parts[i] = Some(parts);
    }

    /// Drops the parts of member `k` and gives it fresh peers for the next ones (then [`Members::bind`]).
    pub fn restart(&mut self, k: Member) -> Arc<Peers> {
        let i = usize::from(k);
        *self.hub.ends[i].parts.lock() = None;
        self.parts[i] = None;
        let fabric = Direct {
            rank: Rank::from(k),
            hub: self.hub.clone(),
        };
        self.peers[i] = Peers::new(Arc::new(fabric), Duration::from_secs(5));
        self.hub.ends[i].dead.store(false, Ordering::SeqCst);
        self.peers[i].clone()
    }

    /// Requests to (and from) member `k` fail with `Dead` from now on.
    pub fn kill(&self, k: Member) {
        self.hub.ends[usize::from(k)]
            .dead
            .store(true, Ordering::SeqCst);
    }

    /// Undoes [`Members::kill`].
    pub fn revive(&self, k: Member) {
        self.hub.ends[usize::from(k)]
            .dead
            .store(false, Ordering::SeqCst);
    }
}

/// What a test puts in place of the data plane.
pub type DataFn = Box<dyn Fn(Member, DataRequest) -> Result<(DataReply, Vec<Bytes>)> + Send + Sync>;

/// Parts of which a test sets those it needs; requests to the others answer `ENOSYS`. Each can be set late, because
/// parts need the peers that need the parts.
#[derive(Default)]
pub struct Chosen {
    /// The namespace.
    pub meta: OnceLock<Arc<Meta>>,
    /// The content side.
    pub files: OnceLock<Arc<Files>>,
    /// The data plane.
    pub data: OnceLock<Arc<LogStore>>,
    /// Answers data requests if `data` is not set.
    pub data_fn: OnceLock<DataFn>,
}

impl Parts for Chosen {
    fn meta(&self, _from: Member, request: MetaRequest) -> Result<MetaReply> {
        self.meta.get().ok_or(Errno::NOSYS)?.handle(request)
    }
    fn files(&self, from: Member, request: FilesRequest) -> Result<FilesReply> {
        self.files.get().ok_or(Errno::NOSYS)?.handle(from, request)
    }
    fn data(&self, from: Member, request: DataRequest) -> Result<(DataReply, Vec<Bytes>)> {
        match (self.data.get(), self.data_fn.get()) {
            (Some(data), _) => data_requests::answer(data, request),
            (None, Some(answer)) => answer(from, request),
            (None, None) => Err(Errno::NOSYS.into()),
        }
    }
}

#[derive(Default)]
struct End {
    parts: Mutex<Option<Weak<dyn Parts>>>,
    dead: AtomicBool,
}

struct Hub {
    ends: Vec<End>,
}

struct Direct {
    rank: Rank,
    hub: Arc<Hub>,
}

impl Fabric for Direct {
    fn rank(&self) -> Rank {
        self.rank
    }
    fn size(&self) -> u32 {
        self.hub.ends.len() as u32
    }
    fn call(&self, to: Rank, message: Message, _deadline: Duration) -> Result<Message, Error> {
        let end = self
            .hub
            .ends
            .get(to as usize)
            .ok_or(Error::NoSuchRank(to))?;
        let own = &self.hub.ends[self.rank as usize];
        if end.dead.load(Ordering::SeqCst) || own.dead.load(Ordering::SeqCst) {
            return Err(Error::Dead(to));
        }
        let parts = end
            .parts
            .lock()
            .as_ref()
            .and_then(Weak::upgrade)
            .ok_or(Error::Dead(to))?;
        let reply = Arc::new(Mutex::new(None));
        let slot = reply.clone();
        answer(
            &*parts,
            self.rank,
            message,
            Replier::new(move |m| *slot.lock() = Some(m)),
        );
        // A member that was killed while it worked does not get its answer out.
        let answered = reply
            .lock()
            .take()
            .filter(|_| !end.dead.load(Ordering::SeqCst));
        answered.ok_or(Error::Dead(to))
    }
    fn send(&self, to: Rank, _message: Message) -> Result<(), Error> {
        self.hub
            .ends
            .get(to as usize)
            .map(|_| ())
            .ok_or(Error::NoSuchRank(to))
    }
    fn serve(&self, _handler: Arc<dyn Handler>) {}
    fn close(&self) {}
}
