//! The node server in its role for its local clients: every file operation of the mount and the library.
//!
//! Writes go to this node's own logs and into the file's pending layer; nothing crosses the network until a flush, fsync
//! or close commits the layer at the owners. Reads look at pending layers, then at cached committed extents, then ask the
//! owners. Where which rule lives:
//!
//! | file | what |
//! |---|---|
//! | `handles` | the tables of handles and of files this node knows |
//! | `open_file` | one file's layers, shared by its handles |
//! | `intervals`, `pending` | the maps the layers are made of |
//! | `open` | open, create, release, what the kernel may cache |
//! | `opens` | opens as owners count them |
//! | `kernel_pages` | what the kernel may hold of a file, and when it must go |
//! | `read`, `windows` | reading; asking owners for extents |
//! | `patterns`, `file_map` | asking for a file's patterns; what they say of an offset |
//! | `describe` | where a file's bytes are, for people |
//! | `prefetch` | fetching what will be read |
//! | `memory` | keeping the layers of all files small |
//! | `views` | an owner's view of a file |
//! | `write`, `commit`, `sync` | writing; publishing; bringing to disk |
//! | `folding`, `attempt` | a layer becomes patterns; which member gets what |
//! | `deferred_close` | closed files that could not be published yet |
//! | `locks`, `keepers`, `lock_owners`, `circles` | advisory locks; asking their keepers; who holds what; deadlock |
//! | `cut` | truncate, holes, preallocation |
//! | `seek` | data, holes, copies |
//! | `combine` | requests of this node that ask another member the same thing at once |
//! | `counted` | one open at the owner for several handles |
//! | `team` | what the clients of a team ask for together |
//! | `unbacked` | writes and reads without bytes, to measure |
//! | `holders` | who stores a file's bytes |
//! | `namespace`, `xattr`, `space` | what is passed on to the owners |
//!
//! Owners that stand alone, each calling only those before it: `OwnerViews` (`views`), `LayerCommitter` (`commit`),
//! `LayerMemory` (`memory`), `OwnerExtents` (`windows`, `patterns`), `LayerReader` (`read`), `LockClient` (`locks`, `keepers`),
//! `OpenClient` (`opens`), `CloseFinisher` (`deferred_close`), `KernelPages` (`kernel_pages`).
//!
//! Decisions of this part, beyond design section 4:
//! - Pending writes are published early once a file has more than [`MOST_PENDING`] separate pieces, so that a writer that
//!   never syncs cannot fill the memory. Visibility promises only what is visible after a commit, so this is allowed.
//! - A commit that fails leaves its layer pending: fsync and close report the error, and the next of them tries again; once
//!   nothing holds the file, a thread does (`deferred_close`).
//!   A commit whose outcome is unknown (the owner did not answer) is sent again under the same token before anything else.
//! - The owner hears of a close only when all writes before it are published; a file removed meanwhile waits for them.
mod attempt;
mod circles;
mod combine;
mod commit;
mod counted;
mod cut;
mod deferred_close;
mod describe;
mod file_map;
mod folding;
mod handles;
mod holders;
mod intervals;
mod keepers;
mod kernel_pages;
mod lock_owners;
mod locks;
mod memory;
mod namespace;
mod open;
mod open_file;
mod opens;
mod patterns;
mod pending;
mod prefetch;
mod read;
mod runs;
mod seek;
mod space;
mod sync;
mod team;
mod traffic;
mod unbacked;
mod views;
mod windows;
mod write;
mod xattr;

pub use crate::prefetch_config::{Future, Policy, PrefetchConfig};
use crate::team::Teams;
use crate::{Attr, Config, Consistency, Member, Node, Result};
use combine::Combine;
use commit::LayerCommitter;
use counted::Claims;
use deferred_close::{CloseFinisher, DeferredCloses};
pub use describe::{Described, Row, Rows};
use forebay_data::Counter;
use forebay_data::buffer_pool::BufferPool;
use forebay_storage::Durability;
use handles::OpenFileTable;
use keepers::LockState;
pub use kernel_pages::{AfterWrite, KernelPages};
pub use locks::{Granted, LockClient, LockWait, LockWanted, Locking, StalePages};
use memory::LayerMemory;
use opens::OpenClient;
use prefetch::Prefetch;
pub use prefetch::PrefetchStats;
use read::LayerReader;
use std::sync::Arc;
pub use team::team_token;
pub use traffic::{Counters, Traffic};
pub use unbacked::Located;
use views::OwnerViews;
use windows::OwnerExtents;

/// An open file of this delegate.
pub type Handle = u64;

/// More separate pending pieces than this in one file are published early.
pub const MOST_PENDING: usize = 64 << 10;

/// The answer to an open.
#[derive(Debug, Clone)]
pub struct Opened {
    /// Names the open file in later calls.
    pub handle: Handle,
    /// As this node sees the file.
    pub attr: Attr,
    /// The kernel may keep pages it has of this file (the content is what they show).
    pub keep_cache: bool,
    /// Bypass the page cache (append and posix handles).
    pub direct: bool,
    /// The file was made by this call.
    pub made: bool,
}

/// What a seek looks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whence {
    /// The next byte that is stored.
    Data,
    /// The next byte that is not; the end of the file counts.
    Hole,
}

/// What `fallocate` does with the range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fallocate {
    /// Make it a hole; the size stays.
    pub punch: bool,
    /// Make it read as zeros.
    pub zero: bool,
    /// The size stays, also if the range ends behind it.
    pub keep_size: bool,
}

/// One node's delegate. All calls take any thread. Errors carry the errno of the system call. Offsets and lengths in bytes.
pub struct Delegate {
    node: Arc<Node>,
    table: Arc<OpenFileTable>,
    tokens: Arc<Counter>,
    /// Every write is visible elsewhere before it returns.
    posix: bool,
    /// Every commit is on disk before it counts.
    always_sync: bool,
    views: Arc<OwnerViews>,
    committer: Arc<LayerCommitter>,
    layer_memory: Arc<LayerMemory>,
    extents: Arc<OwnerExtents>,
    reader: LayerReader,
    counters: Arc<Counters>,
    deferred_closes: Arc<DeferredCloses>,
    locks: Arc<LockClient>,
    opens: Arc<OpenClient>,
    finisher: CloseFinisher,
    kernel_pages: KernelPages,
    /// Requests that ask other members the same at the same time.
    combine: Arc<Combine>,
    /// Opens of teams, until all clients here have their handles.
    claims: Claims,
    teams: Arc<Teams>,
    /// What clients will read; `None`: nothing is fetched ahead.
    prefetch: Option<Arc<Prefetch>>,
}

impl Delegate {
    /// The delegate of a member that is at work, with its background thread.
    ///
    /// # Errors
    /// When the store of the member cannot be read, or a thread not be started.
    pub fn start(node: Arc<Node>, config: &Config) -> Result<Arc<Delegate>> {
        let collectives = node.collectives.clone();
        let teams = Teams::new(collectives, node.peers.member(), config.deadline);
        let views = Arc::new(OwnerViews { node: node.clone() });
        let (counters, deferred_closes) = <(Arc<Counters>, Arc<DeferredCloses>)>::default();
        let tokens = Arc::new(Counter::open(node.store.clone(), b"token", 1)?);
        let posix = config.consistency == Consistency::Posix;
        let always_sync = config.durability == Durability::Disk;
        let table = Arc::new(OpenFileTable::new(config.memory / 16));
        let committer = Arc::new(LayerCommitter {
            node: node.clone(),
            views: views.clone(),
            counters: counters.clone(),
            tokens: tokens.clone(),
            deferred_closes: deferred_closes.clone(),
            patterns: config.patterns,
            ordered: config.durability != Durability::None,
            always_sync,
            posix,
        });
        let layer_memory = LayerMemory::new(
            table.clone(),
            committer.clone(),
            always_sync,
            config.memory / 4,
        );
        let layer_memory = Arc::new(layer_memory);
        let extents = Arc::new(OwnerExtents {
            node: node.clone(),
            counters: counters.clone(),
            memory: layer_memory.clone(),
        });
        let reader = LayerReader {
            node: node.clone(),
            views: views.clone(),
            extents: extents.clone(),
            memory: layer_memory.clone(),
            buffers: BufferPool::new(config.memory / 32),
        };
        let locks = Arc::new(LockClient {
            node: node.clone(),
            table: table.clone(),
            counters: counters.clone(),
            views: views.clone(),
            committer: committer.clone(),
            deferred_closes: deferred_closes.clone(),
            always_sync,
            state: LockState::default(),
        });
        let combine = Arc::<Combine>::default();
        let opens = Arc::new(OpenClient {
            node: node.clone(),
            table: table.clone(),
            tokens: tokens.clone(),
            committer: committer.clone(),
            deferred_closes: deferred_closes.clone(),
            combine: combine.clone(),
            lost_opens: parking_lot::Mutex::default(),
            posix,
        });
        let finisher = CloseFinisher {
            table: table.clone(),
            views: views.clone(),
            committer: committer.clone(),
            locks: locks.clone(),
            opens: opens.clone(),
            deferred_closes: deferred_closes.clone(),
            always_sync,
        };
        let kernel_pages = KernelPages {
            node: node.clone(),
            table: table.clone(),
            views: views.clone(),
            posix,
        };
        let delegate = Arc::new(Delegate {
            table,
            committer,
            layer_memory,
            extents,
            reader,
            locks,
            opens,
            finisher,
            kernel_pages,
            views,
            counters,
            tokens,
            deferred_closes,
            node,
            posix,
            always_sync,
            combine,
            claims: Claims::default(),
            teams,
            prefetch: Prefetch::new(&config.prefetch, config.memory),
        });
        if let Some(prefetch) = &delegate.prefetch {
            prefetch.bind(&delegate);
        }
        delegate.start_retries()?;
        Ok(delegate)
    }

    /// Members in this service; caching in the kernel is safe with one.
    pub fn members(&self) -> u16 {
        self.node.peers.members()
    }

    /// The member whose delegate this is.
    pub fn member(&self) -> Member {
        self.node.peers.member()
    }

    /// What went through.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Requests whose answer another request of this node brought, so that they cost no message: since the start.
    pub fn combined(&self) -> u64 {
        self.combine.saved()
    }

    /// The teams of this node's clients.
    pub fn teams(&self) -> &Arc<Teams> {
        &self.teams
    }

    /// The locks of this node's programs.
    pub fn locks(&self) -> &LockClient {
        &self.locks
    }

    /// What this node's kernel holds of files.
    pub fn kernel_pages(&self) -> &KernelPages {
        &self.kernel_pages
    }

    /// Files that this node holds open, or could not finish after their last close.
    pub fn open_files(&self) -> usize {
        self.table.open_files()
    }

    /// Files whose writes could not be published at their last close, or whose closes are not told: tried again.
    pub fn unpublished(&self) -> usize {
        self.table.left().len()
    }

    /// Publishes everything pending, as at the end of the service. Tries every file; answers the first error. What a file
    /// without a name does not get published is no loss: nobody can open it again.
    ///
    /// # Errors
    /// As a commit: what could not be published is lost when the process ends.
    pub fn stop(&self) -> Result<()> {
        self.stop_retries();
        let mut result = Ok(());
        for file in self.table.all_open() {
            let held = file.state.lock().handles > 0;
            let done = match held {
                true => self.committer.publish(&file, self.always_sync),
                false => self.finisher.finish(&file),
            };
            let Err(e) = done else { continue };
            if matches!(self.finisher.is_nameless(&file), Ok(true)) {
                tracing::debug!(fid = file.fid.0, error = %e, "writes to a file without a name are dropped at the end");
                continue;
            }
            tracing::error!(fid = file.fid.0, error = %e, "pending writes could not be committed at the end");
            result = result.and(Err(e));
        }
        self.locks.stop();
        result
    }
}

impl std::fmt::Debug for Delegate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Delegate")
            .field("member", &self.member())
            .finish_non_exhaustive()
    }
}
