//! The parts of one member, wired to each other, to its store and to its end of the fabric. Their start and stop are
//! `node_server`'s.
//!
//! Knows how to wire the parts and how a request reaches them; what a request means is the parts' business.
use crate::files::FileContent;
use crate::locks::AdvisoryLocks;
use crate::meta::{IntentRecoveryThread, Namespace};
use crate::{Fid, Member, Peers, Result, inodes::Inodes};
use forebay_data::{LogStore, LogStoreOptions};
use forebay_fabric::ring::{self, Collectives};
use forebay_fabric::{Handler, Message, Rank, Replier};
use forebay_proto::data::DataService;
use forebay_proto::files::{FilesService, GetNamedRanges};
use forebay_proto::locks::{GrantNotice, LocksService};
use forebay_proto::meta::{LeafService, OperationService};
use forebay_proto::peers::{RequestGauge, answer, deliver};
use forebay_proto::{InvalidationDone, KernelInvalidation, MemberServices};
use forebay_storage::{Io, Store};
use parking_lot::RwLock;
use rustix::io::Errno;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// How often unfinished namespace operations are tried again.
const RETRY_UNFINISHED: Duration = Duration::from_secs(1);

/// A member's parts. They find each other and the other members through `peers`.
pub struct MemberParts {
    /// Its key-value store (attributes, names, extents, log maps).
    pub store: Arc<Store>,
    /// Its inode records.
    pub inodes: Arc<Inodes>,
    /// Finishes, in the background, namespace operations that waited for another member.
    pub recovery_thread: IntentRecoveryThread,
    /// The namespace it owns.
    pub meta: Arc<Namespace>,
    /// The file content it owns.
    pub files: Arc<FileContent>,
    /// Its logs.
    pub data: Arc<LogStore>,
    /// Advisory locks: of the files it owns, and of its node.
    pub locks: Arc<AdvisoryLocks>,
    /// All members.
    pub peers: Arc<Peers>,
    /// What members ask together; its messages travel among their requests.
    pub collectives: Arc<Collectives>,
    /// Has this node's kernel drop what other nodes changed, if there is a mount.
    pub kernel: RwLock<Option<Arc<KernelInvalidator>>>,
    /// Requests of other members: answered since the start, and being answered now.
    pub(crate) served: RequestGauge,
}

/// Has a kernel drop what it holds; does not wait itself.
pub type KernelInvalidator = dyn Fn(KernelInvalidation, InvalidationDone) + Send + Sync;

impl MemberParts {
    /// Builds the parts of a member over its open store, and binds them to `peers`. Nothing is served or recovered yet.
    pub fn new(
        io: Arc<dyn Io>,
        data_dir: &Path,
        store: Arc<Store>,
        peers: Arc<Peers>,
        data: LogStoreOptions,
    ) -> Result<Arc<MemberParts>> {
        let inodes = Arc::new(Inodes::new(store.clone(), peers.member())?);
        inodes.leases.connect(peers.clone());
        let data = Arc::new(LogStore::open(io, data_dir, store.clone(), data)?);
        let files = Arc::new(FileContent::new(
            store.clone(),
            inodes.clone(),
            peers.clone(),
            data.space_freed().clone(),
        )?);
        let meta = Arc::new(Namespace::new(
            store.clone(),
            inodes.clone(),
            peers.clone(),
            files.clone(),
        )?);
        let locks = Arc::new(AdvisoryLocks::new(store.clone(), peers.clone())?);
        let collectives = Collectives::new(peers.fabric().clone(), ring::MemoryBounds::default());
        let collectives = Arc::new(collectives);
        let node = Arc::new(MemberParts {
            locks,
            kernel: RwLock::default(),
            served: RequestGauge::default(),
            recovery_thread: IntentRecoveryThread::start(meta.recovery.clone(), RETRY_UNFINISHED)?,
            store,
            inodes,
            meta,
            files,
            data,
            collectives,
            peers,
        });
        let weak: Weak<MemberParts> = Arc::downgrade(&node);
        node.peers.bind(weak);
        Ok(node)
    }

    /// The log addresses of member `of` that the file names at `member`, by log.
    ///
    /// # Errors
    /// When the member cannot be asked, or does not know them all. A removed file names none.
    pub fn named(&self, member: Member, fid: Fid, of: Member) -> Result<Vec<(u64, Range<u64>)>> {
        let (mut all, mut from) = (Vec::new(), Some(0));
        while let Some(at) = from {
            let request = GetNamedRanges {
                fid,
                member: of,
                from: at,
            };
            let named = match self.peers.call(member, request) {
                Err(e) if e.errno() == Errno::STALE => return Ok(all),
                named => named?,
            };
            let ranges = named.ranges.into_iter();
            all.extend(ranges.map(|(log, start, end)| (log, start..end)));
            from = named.next;
        }
        Ok(all)
    }
}

impl MemberServices for MemberParts {
    fn operations(&self) -> Result<&(dyn OperationService + 'static)> {
        Ok(&*self.meta)
    }
    fn leaf(&self) -> Result<&(dyn LeafService + 'static)> {
        Ok(self.meta.leaf())
    }
    fn files(&self) -> Result<&(dyn FilesService + 'static)> {
        Ok(&*self.files)
    }
    fn data(&self) -> Result<&(dyn DataService + 'static)> {
        Ok(&*self.data)
    }
    fn locks(&self) -> Result<&(dyn LocksService + 'static)> {
        Ok(&*self.locks)
    }
    fn granted(&self, notice: GrantNotice) {
        self.locks.notice(notice);
    }
    fn invalidate_kernel(&self, what: KernelInvalidation, done: InvalidationDone) {
        let kernel = self.kernel.read().clone();
        match kernel {
            Some(invalidate) => invalidate(what, done),
            None => done(Ok(())),
        }
    }
}

impl Handler for MemberParts {
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
