//! The content side of the files that one member owns, and of the slices it holds: opens, sequences, commits, cuts,
//! extents, freeing, lamination, removal.
//!
//! Knows: the inode's content fields, the extent index of this member's slices, commits in flight. Must not know: names
//! and directories (`meta`), log bytes (`data`), pending writes (`delegate`).
//!
//! # Invariants
//! 1. A commit is decided by one batch at the file's owner (`commit`). Readers see all of it or nothing (`extents`).
//! 2. Sequences of one file only grow; a member publishes them in order. Overlapping writes: the later sequence wins.
//! 3. Bytes no file uses any more are noted for freeing (`outbox`) in the batch that displaced them; none is freed earlier.
//! 4. Locks, in this order: a file's commit lock (`busy`), an inode's lock, a slice's lock, tables in memory. Only the
//!    first is held while other members are called, and no handler that is called back takes it.

mod append;
mod busy;
pub mod check;
mod chores;
mod commit;
mod contents;
mod extents;
mod laminate;
mod layouts;
mod links;
mod named;
mod opens;
mod outcomes;
mod parts;
mod patterns;
mod promises;
mod publish;
mod records;
mod recover;
mod remove;
mod requests;
mod restore;
mod staged;
mod survey;
mod team_opens;
mod view;

pub(crate) use contents::LOOKED_AT;
pub use forebay_proto::files as proto;
pub use links::Links;
pub use parts::parts;
pub(crate) use patterns::extents as pattern_extents;

use crate::inodes::{Inode, Inodes};
use crate::meta::Removal;
use crate::outbox::Outbox;
use crate::{Error, Fid, Member, Peers, Result};
use busy::Busy;
use chores::Chores;
use forebay_data::Counter;
use forebay_index::{ExtentIndex, RangeMap};
use forebay_storage::{Batch, Store};
use opens::Opens;
use outcomes::Outcomes;
use parking_lot::{Mutex, MutexGuard};
use promises::Promises;
use proto::FilesReply;
use publish::Decisions;
use staged::StagedTable;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread::JoinHandle;
use team_opens::TeamOpens;

const SLICE_LOCKS: usize = 64;

/// The content side of one member.
pub struct Files {
    shared: Arc<Shared>,
    chores: Mutex<Option<JoinHandle<()>>>,
}

/// What handlers and the background thread share.
struct Shared {
    store: Arc<Store>,
    inodes: Arc<Inodes>,
    links: Arc<dyn Links>,
    index: ExtentIndex,
    outbox: Arc<Outbox>,
    sequences: Counter,
    opens: Opens,
    team_opens: TeamOpens,
    busy: Busy,
    outcomes: Outcomes,
    decisions: Decisions,
    staged: StagedTable,
    tables: patterns::Tables,
    /// Serialise changes of the slices held for other members' files, by file.
    slices: Vec<Mutex<()>>,
    chores: Chores,
    promises: Promises,
    /// What a start has to do when all members have restored; see `restore`.
    tails: Mutex<BTreeMap<Fid, restore::UnreadableTail>>,
    #[cfg(test)]
    faults: tests::Faults,
}

impl Files {
    /// The content side over an open store, with its background threads. `recover` comes later.
    ///
    /// # Errors
    /// When the store cannot be read, or a thread not be started.
    pub fn new(store: Arc<Store>, inodes: Arc<Inodes>, peers: Arc<Peers>) -> Result<Files> {
        let files = Files::with_links(store, inodes, peers)?;
        files.start()?;
        Ok(files)
    }

    /// As `new`, with another way to the other members, and without threads: nothing happens in the background before
    /// `start`.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn with_links(
        store: Arc<Store>,
        inodes: Arc<Inodes>,
        links: Arc<dyn Links>,
    ) -> Result<Files> {
        let shared = Arc::new(Shared {
            index: ExtentIndex::of(&store)?,
            outbox: Arc::new(Outbox::open(store.clone(), links.clone())?),
            sequences: Counter::open(store.clone(), b"seq", 1)?,
            opens: Opens::default(),
            team_opens: TeamOpens::default(),
            busy: Busy::default(),
            outcomes: Outcomes::default(),
            decisions: Decisions::load(&store)?,
            staged: StagedTable::load(&store)?,
            tables: patterns::Tables::default(),
            slices: (0..SLICE_LOCKS).map(|_| Mutex::new(())).collect(),
            chores: Chores::default(),
            promises: Promises::default(),
            tails: Mutex::default(),
            store,
            inodes,
            links,
            #[cfg(test)]
            faults: tests::Faults::default(),
        });
        Ok(Files {
            shared,
            chores: Mutex::new(None),
        })
    }

    /// Starts the background threads.
    ///
    /// # Errors
    /// When a thread cannot be started.
    pub fn start(&self) -> Result<()> {
        self.shared.outbox.start()?;
        let worker = self.shared.clone();
        let thread = std::thread::Builder::new()
            .name(format!("files-{}", self.shared.member()))
            .spawn(move || worker.run_chores())
            .map_err(|e| {
                Error::Refused(format!(
                    "cannot start a thread: {e}; raise the limit of processes"
                ))
            })?;
        *self.chores.lock() = Some(thread);
        Ok(())
    }

    /// Settles commits cut off by a crash, and removes files without a name (calls other members).
    ///
    /// # Errors
    /// When the own store fails. Members that cannot be reached are tried again in the background.
    pub fn recover(&self) -> Result<()> {
        self.shared.outbox.keep_displaced();
        self.shared.recover()
    }

    /// Finds the files whose end a power cut took. All members have recovered, what they hold is on disk, and none has restored.
    ///
    /// # Errors
    /// When the own store fails.
    pub fn find_unreadable_tails(&self) -> Result<()> {
        self.shared.find_unreadable_tails()
    }

    /// Puts back what commits of an earlier run displaced whose own bytes a power cut took. All members have found the ends that were
    /// taken.
    ///
    /// # Errors
    /// When the own store fails. What members that cannot be reached have waits for the next start.
    pub fn restore(&self) -> Result<()> {
        self.shared.restore()
    }

    /// Sets files back to the end that they had where a power cut took what was behind it. All members have restored.
    ///
    /// # Errors
    /// When the own store fails. What members that cannot be reached have waits for the next start.
    pub fn cut_unreadable_tails(&self) -> Result<()> {
        self.shared.cut_unreadable_tails()
    }

    /// No member has a commit under way that it could ask about again, because all of them have just started: what is
    /// remembered for that is deleted.
    ///
    /// # Errors
    /// When the store fails.
    pub fn forget_writers(&self) -> Result<()> {
        self.shared.forget_writers()
    }

    /// The inode lost its last name (already recorded in `keys::ORPHANS` by `meta`, in the batch that set nlink 0):
    /// removes the file in the background if no member holds it open, else at the last close. Takes no inode lock.
    ///
    /// # Errors
    /// None now; kept for what removal may need to refuse.
    pub fn orphaned(&self, fid: Fid) -> Result<()> {
        if self.shared.opens.orphan(fid) {
            self.shared.chores.remove(fid);
        }
        Ok(())
    }

    /// Adds to `batch` the removal of all that is kept of a file that loses its last name in it, if that is little, lies
    /// here, and no member holds the file open. The caller has the inode's lock, and keeps it and the answer until the batch
    /// has landed. `None`, and nothing added: `meta` records the file in `keys::ORPHANS`, and tells `orphaned`.
    pub fn remove_at_once<'a>(
        &'a self,
        fid: Fid,
        inode: &Inode,
        batch: &mut Batch,
    ) -> Option<Box<dyn Removal + 'a>> {
        // What fails here fails in the background again, and is reported there.
        self.shared
            .remove_at_once(fid, inode, batch)
            .unwrap_or_default()
    }

    /// Whether a member holds the file open. Stays so while the caller holds the inode's lock.
    pub fn is_open(&self, fid: Fid) -> bool {
        self.shared.opens.is_open(fid)
    }

    /// A file without a name got its first one: its last close does not remove it. The caller has the inode's lock.
    pub fn got_name(&self, fid: Fid) {
        self.shared.opens.got_name(fid);
    }

    /// Whether a member holds the file open for writing. Stays true or false while the caller holds the inode's lock.
    pub fn writers(&self, fid: Fid) -> bool {
        self.shared.opens.writers(fid)
    }

    /// A file was laminated by its mode: its patterns are merged. The caller has the inode's lock.
    pub fn laminated(&self, fid: Fid, inode: &Inode) {
        self.shared.finish_patterns(fid, inode);
    }

    /// Files that members hold open.
    pub fn open_files(&self) -> u64 {
        self.shared.opens.len() as u64
    }

    /// Work left for the background: removals, and batches of bytes to give back.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn pending(&self) -> Result<u64> {
        Ok(self.shared.chores.pending() as u64 + self.shared.outbox.pending()?)
    }

    /// Does now, in this thread, what the background would do: removals, retries, freeing.
    ///
    /// # Errors
    /// When the own store fails or a member with bytes to free cannot be reached; the rest stays for the background.
    pub fn drain(&self) -> Result<()> {
        self.shared.do_chores();
        self.shared.outbox.drain()
    }

    /// Before a stop: brings the bytes of commits that displaced something to disk, so that the next start has nothing to put back.
    ///
    /// # Errors
    /// When a member cannot be reached, or its disk fails; the next start looks whether the bytes are there.
    pub fn release_displaced(&self) -> Result<()> {
        self.shared.outbox.release_displaced()
    }

    /// Memory that decoded patterns may take, bytes.
    pub fn set_pattern_memory(&self, bytes: u64) {
        self.shared.tables.set_budget(bytes as usize);
    }

    /// Memory that decoded patterns take, bytes.
    pub fn pattern_memory(&self) -> u64 {
        self.shared.tables.memory() as u64
    }

    /// Stops the background threads. What they had not done is done after the next start.
    pub fn close(&self) {
        self.shared.chores.close();
        self.shared.outbox.close();
        if let Some(thread) = self.chores.lock().take() {
            // A panic of the thread was reported when it happened.
            let _ = thread.join();
        }
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        self.close();
    }
}

impl Shared {
    fn member(&self) -> Member {
        self.links.member()
    }
    fn map(&self) -> RangeMap {
        RangeMap {
            members: self.links.members(),
        }
    }
    /// The file's commit lock. Its holder may have to wait a deadline for each of the other members, not longer.
    fn busy(&self, fid: Fid) -> Result<busy::BusyGuard<'_>> {
        let members = u32::from(self.links.members());
        let limit = self.links.deadline().saturating_mul(members);
        self.busy.lock(fid, self.member(), limit)
    }
    fn slice_lock(&self, fid: Fid) -> MutexGuard<'_, ()> {
        self.slices[(fid.0 ^ (fid.0 >> 48)) as usize % SLICE_LOCKS].lock()
    }
    /// The next sequence of a file. The counter jumps ahead at every start, so that a sequence that a machine crash took
    /// back is not issued again. The caller has the inode's lock.
    fn next_seq(&self, fid: Fid, inode: &Inode) -> Result<u64> {
        let next = self.sequences.next()?;
        self.promises.issued(fid, inode.seq, next);
        Ok(next.max(inode.seq + 1))
    }
    /// A place where tests cut the work off.
    #[cfg(test)]
    fn step(&self, name: &'static str) -> Result<()> {
        self.faults.step(name)
    }
    #[cfg(not(test))]
    #[inline(always)]
    fn step(&self, _name: &'static str) -> Result<()> {
        Ok(())
    }
}

/// A batch that gives space back, or keeps a promise: it may use the room that a full store keeps for that.
fn reclaiming() -> Batch {
    Batch::reclaiming()
}

fn unexpected(member: Member, reply: &FilesReply) -> Error {
    Error::Peer {
        member,
        reason: format!("answered something else than asked: {reply:?}"),
    }
}

#[cfg(test)]
mod tests;
