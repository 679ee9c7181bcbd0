//! The node server in its role for its local clients: every file operation of the mount and the library.
//!
//! Writes go to this node's own logs and into the file's pending layer; nothing crosses the network until a flush, fsync
//! or close commits the layer at the owners. Reads look at pending layers, then at cached committed extents, then ask the
//! owners. [`Delegate`] composes calls on handles from these types. Each uses only those below it:
//!
//! | type | file | what |
//! |---|---|---|
//! | `Delegate` | `calls` | calls on handles: open, read, write, sync, release |
//! | `TeamClient` | `team` | what the clients of a team ask for together |
//! | `NamespaceClient` | `namespace` | names and attributes |
//! | `KernelPages` | `kernel_pages`, `page_drops`, `drop_notes`, `page_fills`, `page_fill_gate` | which pages the kernel may cache, and when they are invalidated; pages that are put into its cache before it asks |
//! | `WriteBackCalls` | `write_back` | requests of a kernel that keeps dirty pages (FUSE writeback cache); one member only |
//! | `LayerWriter` | `write`, `truncate` | writing; truncate, holes, preallocation |
//! | `CloseFinisher` | `close_finisher` | closed files that could not be published yet |
//! | `OpenClient` | `opens` | opens and closes at the owners, who count what is open |
//! | `LockClient`, `LockSessions` | `locks`, `lock_owners`, `deadlock`; `lock_sessions` | advisory locks, who holds what, deadlocks; sessions with the members that keep them |
//! | `FileSyncer` | `sync` | bringing to disk |
//! | `Prefetcher` | `prefetch` | fetching what will be read |
//! | `ByteLocator` | `locate`, `file_description`, `stored_bytes` | which members store a file's bytes; the report of it for `forebay stat`; how the bytes are stored |
//! | `LayerReader` | `read`, `runs`, `seek` | reading through the layers; data and holes |
//! | `OwnerExtents` | `windows`, `patterns` | asking owners for extents and patterns |
//! | `LayerMemory` | `memory` | keeping the layers of all files small |
//! | `LayerCommitter` | `commit` | publishing a layer |
//! | `DelegateContext` | `context` | what all those above share; owners' views of files |
//! | `TrafficCounters` | `traffic` | counters of the requests of a mount or library |
//! | `DeferredCloses` | `deferred_close` | work that closes could not finish, and when it is retried |
//! | `DirectoryPaths` | `directory_paths` | where directories are, for codec hints by path |
//! | `FileSeries` | `file_series` | which files are versions of one thing |
//! | `ChangeCounters` | `change_counters` | when bytes that other processes keep of files may be old |
//! | `KernelClock` | `kernel_clock` | the time of a change where the kernel stamps some changes itself |
//! | `KernelLeases` | `kernel_leases` | what this node's kernel may keep because its owner leased it |
//! | `RequestCombiner` | `combine` | requests of this node that ask another member the same thing at once |
//! | `OpenFileTable` | `handles`, `counted_open` | handles, and the files this node knows; one open at the owner for several handles |
//! | `ReadWatch` | `prefetch/handle_state` | how an open handle reads, for the prefetcher |
//! | `OpenFile` | `open_file` | one file's layers, shared by its handles |
//! | `WritebackErrors` | `writeback_errors` | dirty pages that could not be stored, and which handles have been told |
//! | `CommitPlanner` | `commit_plan`, `folding` | which member gets what of a layer; layers become patterns |
//! | `Intervals`, `PendingLayer`, `FileMap` | `intervals`, `pending`, `file_map` | the maps that layers are made of |
//!
//! Decisions of this part:
//! - Pending writes are published early once a file has more than `MAX_PENDING_PIECES` separate pieces, so that a writer that
//!   never syncs cannot fill the memory. Visibility promises only what is visible after a commit, so this is allowed.
//! - A commit that fails leaves its layer pending: fsync and close report the error, and the next of them tries again; once
//!   nothing holds the file, a thread does (`close_finisher`).
//!   A commit whose outcome is unknown (the owner did not answer) is sent again under the same token before anything else.
//! - The owner hears of a close only when all writes before it are published; a file removed meanwhile waits for them.
mod calls;
mod change_counters;
mod close_finisher;
mod combine;
mod commit;
mod commit_plan;
mod context;
mod counted_open;
mod deadlock;
mod deferred_close;
mod direct_reads;
mod directory_paths;
mod drop_notes;
mod file_description;
mod file_map;
mod file_series;
mod folding;
mod handles;
mod intervals;
mod kernel_clock;
mod kernel_leases;
mod kernel_pages;
mod locate;
mod lock_owners;
mod lock_sessions;
mod locks;
mod memory;
mod namespace;
mod open_file;
mod opens;
mod page_drops;
mod page_fill_gate;
mod page_fills;
mod patterns;
mod pending;
mod prefetch;
mod read;
mod runs;
mod seek;
mod stored_bytes;
mod sync;
mod team;
mod traffic;
mod truncate;
mod windows;
mod write;
mod write_back;
mod writeback_errors;

pub use crate::prefetch_config::{FutureReads, PrefetchConfig, PrefetchPolicy};
use crate::team::Teams;
use crate::{Config, Consistency, Member, MemberParts, Result};
pub use change_counters::{ChangeCounters, ChangeMark, SharedChangeCounters};
use close_finisher::CloseFinisher;
pub use combine::NewFile;
use combine::RequestCombiner;
use commit::LayerCommitter;
use context::DelegateContext;
use counted_open::TeamOpenClaims;
pub use direct_reads::DirectRead;
use directory_paths::DirectoryPaths;
pub use file_description::{FileDescription, PatternRow, PatternRows};
use file_series::FileSeries;
use forebay_data::Counter;
use forebay_data::buffer_pool::BufferPool;
use forebay_storage::Durability;
pub use handles::Handle;
use handles::OpenFileTable;
use intervals::INTERVAL_MEMORY;
use kernel_clock::KernelClock;
use kernel_leases::KernelLeases;
pub use kernel_leases::{KernelLease, LeasedPart, ProgramThread, RequestOrigin};
pub use kernel_pages::{DirectWriteFollowUp, KernelPages, MountCaches};
pub use locate::{ByteLocator, LocatedBytes};
use lock_sessions::LockSessions;
pub use lock_sessions::WantedLock;
pub use locks::{LockClient, LockOutcome, LockWait};
use memory::LayerMemory;
pub use namespace::NamespaceClient;
pub use open_file::StalePages;
pub use opens::{OpenClient, OpenedFile};
pub use page_drops::{NotedPageRead, PageDrop};
pub use page_fills::PredictedReads;
pub use prefetch::PrefetchStats;
use prefetch::Prefetcher;
use read::LayerReader;
pub use seek::SeekTarget;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
pub use stored_bytes::{FileStorage, RecodeCursor, RecodeStep};
use sync::FileSyncer;
pub use team::{TeamClient, team_token};
pub use traffic::{Traffic, TrafficCounters};
pub use truncate::Fallocate;
use windows::OwnerExtents;
pub use write::{LayerWriter, WriteOrigin};
pub use write_back::WriteBackCalls;

/// One node's delegate. All calls take any thread. Errors carry the errno of the system call. Offsets and lengths in bytes.
pub struct Delegate {
    ctx: Arc<DelegateContext>,
    committer: Arc<LayerCommitter>,
    memory: Arc<LayerMemory>,
    reader: Arc<LayerReader>,
    syncer: FileSyncer,
    finisher: Arc<CloseFinisher>,
    /// What clients will read; `None`: nothing is fetched ahead.
    prefetch: Option<Arc<Prefetcher>>,
    /// What the kernel will ask for next is put into its page cache.
    fills_pages: bool,
    /// Opens, as owners count them.
    pub opens: Arc<OpenClient>,
    /// Names and attributes.
    pub names: NamespaceClient,
    /// The bytes that this node's programs write.
    pub writer: Arc<LayerWriter>,
    /// Where the bytes of files are.
    pub locator: ByteLocator,
    /// The locks of this node's programs.
    pub locks: Arc<LockClient>,
    /// What this node's kernel holds of files.
    pub kernel_pages: KernelPages,
    /// What a kernel asks that keeps dirty pages.
    pub write_back: WriteBackCalls,
    /// What the clients of teams ask for.
    pub team: TeamClient,
    /// What went through.
    pub counters: Arc<TrafficCounters>,
}

impl Delegate {
    /// The delegate of a member that is at work, with its background thread.
    ///
    /// # Errors
    /// When the store of the member cannot be read, or a thread not be started.
    pub fn start(node: Arc<MemberParts>, config: &Config) -> Result<Arc<Delegate>> {
        let member = node.peers.member();
        let teams = Teams::new(node.collectives.clone(), member, config.deadline);
        let counters = Arc::<TrafficCounters>::default();
        let changes = ChangeCounters::new()?;
        let settles_encoded = config.settle.enabled && config.codec.when.settles();
        let ctx = Arc::new(DelegateContext {
            table: OpenFileTable::new(config.memory / 16, changes.clone()),
            counters: counters.clone(),
            deferred_closes: Arc::default(),
            tokens: Counter::open(node.store.clone(), b"token", 1)?,
            kernel_clock: KernelClock::default(),
            kernel_leases: KernelLeases::default(),
            noted_files: AtomicUsize::default(),
            changes,
            directory_paths: DirectoryPaths::new(
                config.codec.names.have_paths() || settles_encoded,
            ),
            file_series: FileSeries::new(settles_encoded),
            codec_names: config.codec.names.clone(),
            combine: RequestCombiner::new(member),
            posix: config.consistency == Consistency::Posix,
            always_sync: config.durability == Durability::Disk,
            node,
        });
        let committer = Arc::new(LayerCommitter {
            ctx: ctx.clone(),
            patterns: config.patterns,
            ordered: config.durability != Durability::None,
        });
        let memory = Arc::new(LayerMemory {
            ctx: ctx.clone(),
            committer: committer.clone(),
            grown: AtomicUsize::new(0),
            most_pieces: (config.memory / 4 / INTERVAL_MEMORY) as usize,
        });
        let extents = Arc::new(OwnerExtents {
            ctx: ctx.clone(),
            memory: memory.clone(),
        });
        let reader = Arc::new(LayerReader {
            ctx: ctx.clone(),
            extents: extents.clone(),
            buffers: BufferPool::new(config.memory / 32),
        });
        let locks = Arc::new(LockClient {
            ctx: ctx.clone(),
            committer: committer.clone(),
            sessions: LockSessions::new(ctx.clone()),
        });
        let opens = Arc::new(OpenClient {
            ctx: ctx.clone(),
            committer: committer.clone(),
            lost_opens: parking_lot::Mutex::default(),
        });
        let finisher = Arc::new(CloseFinisher {
            ctx: ctx.clone(),
            committer: committer.clone(),
            locks: locks.clone(),
            opens: opens.clone(),
        });
        finisher.start()?;
        let writer = Arc::new(LayerWriter {
            ctx: ctx.clone(),
            committer: committer.clone(),
            memory: memory.clone(),
            opens: opens.clone(),
            finisher: finisher.clone(),
            waits_for_pages: parking_lot::Mutex::default(),
        });
        Ok(Arc::new(Delegate {
            names: NamespaceClient {
                ctx: ctx.clone(),
                writer: writer.clone(),
            },
            locator: ByteLocator {
                ctx: ctx.clone(),
                reader: reader.clone(),
            },
            kernel_pages: KernelPages {
                ctx: ctx.clone(),
                mount: parking_lot::RwLock::default(),
                filling: AtomicUsize::new(0),
            },
            write_back: WriteBackCalls {
                ctx: ctx.clone(),
                reader: reader.clone(),
                writer: writer.clone(),
            },
            team: TeamClient {
                ctx: ctx.clone(),
                committer: committer.clone(),
                opens: opens.clone(),
                claims: TeamOpenClaims::default(),
                teams,
            },
            syncer: FileSyncer {
                ctx: ctx.clone(),
                committer: committer.clone(),
                extents,
            },
            // With one member the kernel itself may have newer pages than the member (writeback cache). In posix consistency only mappings
            // use the page cache.
            fills_pages: config.prefetch.policy == PrefetchPolicy::Pattern
                && ctx.members() > 1
                && !ctx.posix,
            prefetch: Prefetcher::new(&config.prefetch, config.memory, Arc::downgrade(&reader)),
            ctx,
            committer,
            memory,
            reader,
            opens,
            finisher,
            writer,
            locks,
            counters,
        }))
    }

    /// Members in this service; caching in the kernel is safe with one.
    pub fn members(&self) -> u16 {
        self.ctx.members()
    }

    /// Whether each write is visible elsewhere before it returns (posix consistency).
    pub fn is_posix(&self) -> bool {
        self.ctx.posix
    }

    /// Whether small writes, and in a service of one member most calls, are answered without waiting for another member, or for the disk.
    pub fn seldom_waits(&self) -> bool {
        !self.ctx.always_sync && (self.ctx.members() == 1 || !self.ctx.posix)
    }

    /// The member whose delegate this is.
    pub fn member(&self) -> Member {
        self.ctx.member()
    }

    /// Requests whose answer another request of this node brought, so that they cost no message: since the start.
    pub fn combined(&self) -> u64 {
        self.ctx.combine.saved()
    }

    /// Files that this node holds open, or could not finish after their last close.
    pub fn open_files(&self) -> usize {
        self.ctx.table.open_files()
    }

    /// Files whose writes could not be published at their last close, or whose closes are not told: tried again.
    pub fn unpublished(&self) -> usize {
        self.ctx.table.unfinished().len()
    }

    /// Memory of known files, their pending writes, windows and maps, and kept buffers, and what was fetched ahead; bytes, about.
    pub fn memory(&self) -> u64 {
        let ahead = self.prefetch.as_ref().map_or(0, |p| p.memory());
        self.memory.held() + self.reader.buffers.held() + ahead
    }

    /// What has become of bytes fetched ahead.
    pub fn prefetch_stats(&self) -> PrefetchStats {
        let stats = self.prefetch.as_ref().map(|p| p.stats());
        stats.unwrap_or_default()
    }

    /// Ends the threads. What closes left behind stays as it is.
    pub(crate) fn stop_threads(&self) {
        if let Some(prefetch) = &self.prefetch {
            prefetch.stop();
        }
        self.ctx.deferred_closes.stop();
    }

    /// Publishes everything pending, as at the end of the service. Tries every file; answers the first error. What a file
    /// without a name does not get published is no loss: nobody can open it again.
    ///
    /// # Errors
    /// As a commit: what could not be published is lost when the process ends.
    pub fn stop(&self) -> Result<()> {
        self.stop_threads();
        let mut result = Ok(());
        for file in self.ctx.table.all_open() {
            let held = file.state.lock().handles > 0;
            let done = match held {
                true => self.committer.publish(&file),
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
