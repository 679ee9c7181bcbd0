//! The components that commits, opens, removals and the background thread of one member share; the table in `files` lists them.
use super::commit::{CommitLocks, CommitOutcomes, DecidedCommits};
use super::context::MemberContext;
use super::open_table::OpenTable;
use super::patterns::PatternStore;
use super::sequences::FileSequences;
use super::slice_index::SliceIndex;
use super::work_queue::WorkQueue;
use crate::Result;
use crate::outbox::Outbox;
use std::sync::Arc;

/// See the head of this file.
pub(super) struct FileComponents {
    pub context: Arc<MemberContext>,
    pub locks: CommitLocks,
    pub sequences: FileSequences,
    pub slices: Arc<SliceIndex>,
    pub patterns: Arc<PatternStore>,
    pub opens: OpenTable,
    pub decided: Arc<DecidedCommits>,
    pub outcomes: CommitOutcomes,
    pub work: Arc<WorkQueue>,
}

impl FileComponents {
    /// As the store has them.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn open(context: Arc<MemberContext>, outbox: &Arc<Outbox>) -> Result<FileComponents> {
        let peers = &context.peers;
        // Who has a commit lock may have to wait a deadline for each of the other members, not longer.
        let limit = peers.deadline().saturating_mul(peers.members().into());
        let work = Arc::<WorkQueue>::default();
        let slices = Arc::new(SliceIndex::open(context.clone(), outbox.clone())?);
        let decided = DecidedCommits::load(context.clone(), outbox.clone(), work.clone())?;
        let decided = Arc::new(decided);
        Ok(FileComponents {
            locks: CommitLocks::new(peers.member(), limit),
            sequences: FileSequences::open(context.store.clone())?,
            patterns: Arc::new(PatternStore::new(context.clone(), slices.clone())),
            opens: OpenTable::default(),
            outcomes: CommitOutcomes::new(context.clone(), decided.clone()),
            context,
            slices,
            decided,
            work,
        })
    }
}
