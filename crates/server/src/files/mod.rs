//! The content of the files that one member owns, and of the slices it holds: opens, sequences, commits, truncates and
//! holes, extents, freeing, lamination, removal.
//!
//! Knows: the inode's content fields, the extent index of this member's slices, commits in flight. Must not know: names
//! and directories (`meta`), log bytes (`data`), pending writes (`delegate`).
//!
//! Each component guards state of its own, and calls only components below it in this table:
//!
//! | component | module | what it guards |
//! |---|---|---|
//! | `BackgroundWorker` | `background` | what is retried, and what a restart begins |
//! | `DisplacedRestorer` | `restore` | restoring, after a power cut, what commits displaced |
//! | `FileRemover` | `removal` | the removal of files without a name |
//! | `Committer` | `committer` | deciding a commit: one batch |
//! | `ContentReader` | `reader` | what readers see: a commit whole or not at all |
//! | `OpenService` | `opens` | opens, appends, lamination |
//! | `StagedParts` | `staged` | slices of other members' files; slice locks |
//! | `PatternStore` | `patterns` | patterns of files, and their decoded tables |
//! | `CommitOutcomes` | `commit/outcomes` | which commits happened; receipts |
//! | `DecidedCommits` | `commit/decisions` | decisions not published everywhere; participants of a file |
//! | `SliceIndex` | `slice_index` | extents of this member's slices, and what becomes of displaced bytes |
//! | `CommitLocks`, `OpenTable`, `FileSequences`, `WorkQueue` | `commit/locks`, `open_table`, `sequences`, `work_queue` | one table in memory each |
//!
//! The first four, and `OpenService`, share `PatternStore` and all below it as `FileComponents` (`components`). `requests` answers
//! the other members, `hook` the namespace of this one (`meta`). `context` is what every component is given, `records` the
//! durable records of commits in flight; `check` is `forebay fsck` of file content.
//!
//! # Invariants
//! 1. A commit is decided by one batch at the file's owner (`committer`). Readers see all of it or nothing (`reader`).
//! 2. Sequences of one file only grow; a member publishes them in order. Overlapping writes: the later sequence wins.
//! 3. Bytes no file uses any more are noted for freeing (`outbox`) in the batch that displaced them; none is freed earlier.
//! 4. Locks, in this order: a file's commit lock (`commit/locks`), an inode's lock (`inodes`), a slice's lock (`staged`), tables in
//!    memory. Only the first is held while other members are called, and no handler that is called back takes it.
mod background;
pub mod check;
mod commit;
mod committer;
mod components;
mod context;
mod hook;
mod open_table;
mod opens;
mod patterns;
mod reader;
mod records;
mod removal;
mod requests;
mod restore;
mod sequences;
mod slice_index;
mod staged;
mod work_queue;

pub(crate) use commit::MAX_COMPARED_PUTS;
pub use hook::{FilesHook, PreparedRemoval};
pub(crate) use patterns::extents_of as pattern_extents;

use crate::inodes::Inodes;
use crate::outbox::Outbox;
use crate::worker_thread::WorkerThread;
use crate::{Peers, Result};
use background::BackgroundWorker;
use committer::Committer;
use components::FileComponents;
use context::MemberContext;
use forebay_data::SpaceSignal;
use forebay_proto::PeerRpc;
use forebay_storage::Store;
use opens::OpenService;
use reader::ContentReader;
use removal::FileRemover;
use restore::{DisplacedRestorer, NamedBytes};
use staged::StagedParts;
use std::sync::Arc;

/// File content at one member: the components, and the threads that work for them.
pub struct FileContent {
    components: Arc<FileComponents>,
    pub(crate) outbox: Arc<Outbox>,
    staged: Arc<StagedParts>,
    opens: OpenService,
    reader: Arc<ContentReader>,
    committer: Arc<Committer>,
    remover: Arc<FileRemover>,
    pub(crate) restore: DisplacedRestorer,
    background: Arc<BackgroundWorker>,
    thread: WorkerThread,
}

impl FileContent {
    /// Over an open store, with its background threads. `recover` comes later. `space_freed`: writers of this node that
    /// wait for space.
    ///
    /// # Errors
    /// When the store cannot be read, or a thread not be started.
    pub fn new(
        store: Arc<Store>,
        inodes: Arc<Inodes>,
        peers: Arc<Peers>,
        space_freed: Arc<SpaceSignal>,
    ) -> Result<FileContent> {
        let files = FileContent::with_peers(store, inodes, peers, space_freed)?;
        files.start()?;
        Ok(files)
    }

    /// As `new`, with another way to the other members, and without threads: nothing happens in the background before
    /// `start`.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn with_peers(
        store: Arc<Store>,
        inodes: Arc<Inodes>,
        peers: Arc<dyn PeerRpc>,
        space_freed: Arc<SpaceSignal>,
    ) -> Result<FileContent> {
        let outbox = Outbox::open(store.clone(), peers.clone(), space_freed.clone())?;
        let outbox = Arc::new(outbox);
        let context = Arc::new(MemberContext::new(store, inodes, peers));
        let components = Arc::new(FileComponents::open(context.clone(), &outbox)?);
        let staged = Arc::new(StagedParts::load(
            context.clone(),
            components.slices.clone(),
        )?);
        let reader = Arc::new(ContentReader {
            context: context.clone(),
            slices: components.slices.clone(),
            patterns: components.patterns.clone(),
            staged: staged.clone(),
        });
        let committer = Arc::new(Committer {
            components: components.clone(),
        });
        let remover = Arc::new(FileRemover {
            components: components.clone(),
        });
        let named = NamedBytes {
            context,
            reader: reader.clone(),
        };
        let restore =
            DisplacedRestorer::new(outbox.clone(), staged.clone(), committer.clone(), named);
        let background = Arc::new(BackgroundWorker {
            components: components.clone(),
            staged: staged.clone(),
            remover: remover.clone(),
            space_freed,
        });
        Ok(FileContent {
            opens: OpenService::new(components.clone()),
            components,
            outbox,
            staged,
            reader,
            committer,
            remover,
            restore,
            background,
            thread: WorkerThread::default(),
        })
    }

    /// Starts the background threads.
    ///
    /// # Errors
    /// When a thread cannot be started.
    pub fn start(&self) -> Result<()> {
        self.outbox.start()?;
        let worker = self.background.clone();
        self.thread.start(
            format!("files-{}", self.components.context.member()),
            move || {
                worker.run();
            },
        )
    }

    /// Publishes or drops commits cut off by a crash, and removes files without a name (calls other members).
    ///
    /// # Errors
    /// When the own store fails. Members that cannot be reached are tried again in the background.
    pub fn recover(&self) -> Result<()> {
        self.outbox.displaced.keep_all();
        self.background.recover()
    }

    /// No member has a commit under way that it could ask about again, because all of them have just started: what is
    /// remembered for that is deleted.
    ///
    /// # Errors
    /// When the store fails.
    pub fn forget_writers(&self) -> Result<()> {
        self.components.outcomes.forget_writers()
    }

    /// Files that members hold open.
    pub fn open_files(&self) -> u64 {
        self.components.opens.len() as u64
    }

    /// Work left for the background: removals, and batches of bytes to free.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn pending(&self) -> Result<u64> {
        Ok(self.components.work.pending() as u64 + self.outbox.pending()?)
    }

    /// Does now, in this thread, what the background would do: removals, retries, freeing.
    ///
    /// # Errors
    /// When the own store fails or a member with bytes to free cannot be reached; the rest stays for the background.
    pub fn drain(&self) -> Result<()> {
        self.background.run_round();
        self.outbox.drain()
    }

    /// Memory that decoded patterns may take, bytes.
    pub fn set_pattern_memory(&self, bytes: u64) {
        self.components.patterns.tables.set_budget(bytes as usize);
    }

    /// Memory that decoded patterns take, bytes.
    pub fn pattern_memory(&self) -> u64 {
        self.components.patterns.tables.memory() as u64
    }

    /// Stops the background threads. What they had not done is done after the next start.
    pub fn close(&self) {
        self.components.work.close();
        self.outbox.close();
        self.thread.join();
    }
}

impl Drop for FileContent {
    fn drop(&mut self) {
        self.close();
    }
}

#[cfg(test)]
mod tests;
