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
//! | `kernel_pages` | what the kernel may hold of a file, and when it must go |
//! | `read`, `windows` | reading; asking owners for extents |
//! | `patterns`, `file_map` | asking for a file's patterns; what they say of an offset |
//! | `describe` | where a file's bytes are, for people |
//! | `prefetch` | fetching what will be read |
//! | `memory` | keeping the layers of all files small |
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
mod describe;
mod file_map;
mod folding;
mod handles;
mod holders;
mod intervals;
mod keepers;
mod kernel_pages;
mod deferred_close;
mod lock_owners;
mod locks;
mod memory;
mod namespace;
mod open;
mod open_file;
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
mod windows;
mod write;
mod xattr;

pub use crate::prefetch_config::{Future, Policy, PrefetchConfig};
use crate::team::Teams;
use crate::{Attr, Config, Consistency, Member, Node, Result};
use combine::Combine;
use counted::{Claims, UnansweredOpen};
pub use describe::{Described, Row, Rows};
use forebay_data::Counter;
use forebay_data::buffer_pool::BufferPool;
use forebay_storage::Durability;
use handles::OpenFileTable;
pub use kernel_pages::AfterWrite;
use deferred_close::DeferredCloses;
pub use locks::{Granted, LockWait, LockWanted, Locking, StalePages};
use parking_lot::Mutex;
use prefetch::Prefetch;
pub use prefetch::PrefetchStats;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
pub use team::team_token;
pub use traffic::{Counters, Traffic};
pub use unbacked::Located;

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
    table: OpenFileTable,
    tokens: Counter,
    consistency: Consistency,
    /// Commits fold rows of writes to patterns.
    patterns: bool,
    /// Every commit is on disk before it counts.
    always_sync: bool,
    /// After a power cut members must agree: what one of them does waits until what it relies on is on disk.
    ordered: bool,
    counters: Counters,
    /// Pieces that layers grew by since they were last counted.
    grown: AtomicUsize,
    /// Pieces that the layers of all files may have.
    most_pieces: usize,
    buffers: BufferPool,
    deferred_closes: Arc<DeferredCloses>,
    locks: keepers::LockState,
    /// Opens without an answer: they may be counted at the owner.
    lost_opens: Mutex<Vec<UnansweredOpen>>,
    /// Requests that ask other members the same at the same time.
    combine: Combine,
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
        let delegate = Arc::new(Delegate {
            tokens: Counter::open(node.store.clone(), b"token", 1)?,
            node,
            table: OpenFileTable::new(config.memory / 16),
            consistency: config.consistency,
            patterns: config.patterns,
            always_sync: config.durability == Durability::Disk,
            ordered: config.durability != Durability::None,
            counters: Counters::default(),
            grown: AtomicUsize::new(0),
            most_pieces: (config.memory / 4 / memory::PIECE) as usize,
            buffers: BufferPool::new(config.memory / 32),
            deferred_closes: Arc::default(),
            locks: keepers::LockState::default(),
            lost_opens: Mutex::default(),
            combine: Combine::default(),
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
                true => self.publish(&file, self.always_sync),
                false => self.finish(&file),
            };
            let Err(e) = done else { continue };
            if matches!(self.is_nameless(&file), Ok(true)) {
                tracing::debug!(fid = file.fid.0, error = %e, "writes to a file without a name are dropped at the end");
                continue;
            }
            tracing::error!(fid = file.fid.0, error = %e, "pending writes could not be committed at the end");
            result = result.and(Err(e));
        }
        self.stop_locks();
        result
    }

    fn is_posix(&self) -> bool {
        self.consistency == Consistency::Posix
    }
}

impl std::fmt::Debug for Delegate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Delegate")
            .field("member", &self.member())
            .finish_non_exhaustive()
    }
}
