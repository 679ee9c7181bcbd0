//! One member at work: its store, its parts, and its end of the fabric.
//!
//! Knows how to wire the parts and how a request reaches them; what a request means is the parts' business.
use crate::files::{Files, proto::*};
use crate::locks::Locks;
use crate::locks::proto::{LocksReply, LocksRequest, Notice};
use crate::meta::{IntentRecoveryThread, Meta, proto::*};
use crate::peers::{Load, Parts, Renewed, answer, deliver};
use crate::proto::KernelNews;
use crate::{Error, Fid, Member, Peers, Result, data_requests, inodes::Inodes};
use bytes::Bytes;
use forebay_data::{LogStore, LogStoreOptions};
use forebay_fabric::ring::{self, Collectives};
use forebay_fabric::{Handler, Message, Rank, Replier};
use forebay_index::Extent;
use forebay_proto::data::*;
use forebay_storage::{Io, Store};
use parking_lot::RwLock;
use rustix::io::Errno;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// How often unfinished namespace operations are tried again.
const RETRY_UNFINISHED: Duration = Duration::from_secs(1);

/// Extents asked for at a time when all of a file's are wanted.
const PAGE: u32 = 4096;

/// A member's parts. They find each other and the other members through `peers`.
pub struct Node {
    /// Its key-value store (attributes, names, extents, log maps).
    pub store: Arc<Store>,
    /// Its inode records.
    pub inodes: Arc<Inodes>,
    /// Finishes, in the background, namespace operations that waited for another member.
    pub recovery_thread: IntentRecoveryThread,
    /// The namespace it owns.
    pub meta: Arc<Meta>,
    /// The file content it owns.
    pub files: Arc<Files>,
    /// Its logs.
    pub data: Arc<LogStore>,
    /// Advisory locks: of the files it owns, and of its node.
    pub locks: Arc<Locks>,
    /// All members.
    pub peers: Arc<Peers>,
    /// What members ask together; its messages travel among their requests.
    pub collectives: Arc<Collectives>,
    /// Has this node's kernel hear of what other nodes did, if there is a mount.
    pub kernel: RwLock<Option<Arc<KernelRenewal>>>,
    served: Load,
}

/// Has a kernel hear of something; does not wait itself.
pub type KernelRenewal = dyn Fn(KernelNews, Renewed) + Send + Sync;

impl Node {
    /// Builds the parts of a member over its open store, and binds them to `peers`. Nothing is served or recovered yet.
    pub fn new(
        io: Arc<dyn Io>,
        data_dir: &Path,
        store: Arc<Store>,
        peers: Arc<Peers>,
        data: LogStoreOptions,
    ) -> Result<Arc<Node>> {
        let inodes = Arc::new(Inodes::new(store.clone(), peers.member())?);
        let data = Arc::new(LogStore::open(io, data_dir, store.clone(), data)?);
        let files = Arc::new(Files::new(
            store.clone(),
            inodes.clone(),
            peers.clone(),
            data.space_freed().clone(),
        )?);
        let meta = Arc::new(Meta::new(
            store.clone(),
            inodes.clone(),
            peers.clone(),
            files.clone(),
        )?);
        let locks = Arc::new(Locks::new(store.clone(), peers.clone())?);
        let collectives = Collectives::new(peers.fabric().clone(), ring::MemoryBounds::default());
        let collectives = Arc::new(collectives);
        let node = Arc::new(Node {
            locks,
            kernel: RwLock::default(),
            served: Load::default(),
            recovery_thread: meta.start_recovery_thread(RETRY_UNFINISHED)?,
            store,
            inodes,
            meta,
            files,
            data,
            collectives,
            peers,
        });
        let weak: Weak<Node> = Arc::downgrade(&node);
        node.peers.bind(weak);
        Ok(node)
    }

    /// Requests of other members: answered since the start, and being answered now.
    pub fn load(&self) -> (u64, u64) {
        self.served.figures()
    }

    /// The log addresses of member `of` that the file names at `member`, by log.
    ///
    /// # Errors
    /// When the member cannot be asked, or does not know them all. A removed file names none.
    pub fn named(&self, member: Member, fid: Fid, of: Member) -> Result<Vec<(u64, Range<u64>)>> {
        let (mut all, mut from) = (Vec::new(), Some(0));
        while let Some(at) = from {
            let request = FilesRequest::Named {
                fid,
                member: of,
                from: at,
            };
            let (ranges, next) = match self.peers.files(member, request) {
                Ok(FilesReply::Named { ranges, next }) => (ranges, next),
                Ok(other) => {
                    return Err(Error::Peer {
                        member,
                        reason: format!("answered something else than asked: {other:?}"),
                    });
                }
                Err(e) if e.errno() == Errno::STALE => return Ok(all),
                Err(e) => return Err(e),
            };
            all.extend(
                ranges
                    .into_iter()
                    .map(|(log, start, end)| (log, start..end)),
            );
            from = next;
        }
        Ok(all)
    }

    /// All extents of the file in the slices of `member`.
    ///
    /// # Errors
    /// When the member cannot be asked. A removed file has none.
    pub fn all_extents(&self, member: Member, fid: Fid) -> Result<Vec<Extent>> {
        let (mut all, mut start) = (Vec::new(), 0);
        loop {
            let request = FilesRequest::Extents {
                fid,
                start,
                end: u64::MAX,
                limit: PAGE,
            };
            let (extents, more) = match self.peers.files(member, request) {
                Ok(FilesReply::Extents { extents, more, .. }) => (extents, more),
                Ok(other) => {
                    return Err(Error::Peer {
                        member,
                        reason: format!("answered something else than asked: {other:?}"),
                    });
                }
                // A removed file names nothing.
                Err(e) if e.errno() == Errno::STALE => return Ok(all),
                Err(e) => return Err(e),
            };
            all.extend_from_slice(&extents);
            match extents.last() {
                Some(last) if more => start = last.end(),
                _ => return Ok(all),
            }
        }
    }
}

impl Parts for Node {
    fn meta(&self, from: Member, request: MetaRequest) -> Result<MetaReply> {
        request.check_sender(from)?;
        self.meta.handle(request)
    }
    fn files(&self, from: Member, request: FilesRequest) -> Result<FilesReply> {
        self.files.handle(from, request)
    }
    fn data(&self, _from: Member, request: DataRequest) -> Result<(DataReply, Vec<Bytes>)> {
        data_requests::answer(&self.data, request)
    }
    fn locks(&self, from: Member, request: LocksRequest) -> Result<LocksReply> {
        self.locks.handle(from, request)
    }
    fn notice(&self, notice: Notice) {
        self.locks.notice(notice);
    }
    fn renew(&self, news: KernelNews, done: Renewed) {
        let kernel = self.kernel.read().clone();
        match kernel {
            Some(renew) => renew(news, done),
            None => done(Ok(())),
        }
    }
}

impl Handler for Node {
    fn request(&self, from: Rank, message: Message, replier: Replier) {
        if Collectives::is_ring(&message) {
            return self.collectives.request(from, message, replier);
        }
        let _counted = self.served.enter();
        answer(self, from, message, replier);
    }
    fn message(&self, from: Rank, message: Message) {
        if Collectives::is_ring(&message) {
            return self.collectives.message(from, message);
        }
        deliver(self, from, &message);
    }
}
