//! Commits at the file's owner: everything that changes content comes through here.
//!
//! Order of steps, under the file's commit lock:
//! 1. Earlier commits of the file that are decided are published where they are not yet. If a member cannot be reached for that, a commit
//!    with a part for this member fails with `EIO`. So each member publishes in sequence order.
//! 2. One batch, under the inode's lock: the own part, the inode, the freed bytes, the receipt, and if other members
//!    have parts the decision. **This batch is the commit**: before it nothing of the commit is visible anywhere and it
//!    can still fail; after it, it cannot, and every reader sees all of it (see `reader` for how).
//! 3. `PublishStaged` to each member with a part; then the decision is deleted. What cannot be reached now is retried by the
//!    background thread; a reader of such a slice finds the staged part, asks for the decision and publishes it itself.
use super::commit::{Admission, CommitDecision, validated};
use super::components::FileComponents;
use super::patterns::PreparedPatterns;
use super::records::CommitId;
use super::slice_index::PriorState;
use crate::inodes::{Inode, without_set_ids};
use crate::{Error, ExtentLayout, Lamination, Member, Result, Time};
use forebay_index::Change;
use forebay_proto::files::{Commit, CommitAttr, CommitReply, CommitSummary};
use forebay_storage::Batch;
use rustix::io::Errno;
use std::sync::Arc;

/// Decides and publishes the commits of this member's files. See the head of this file.
pub(super) struct Committer {
    pub components: Arc<FileComponents>,
}

impl Committer {
    /// Carries out the commit of `writer`.
    pub fn commit(&self, writer: Member, mut commit: Commit) -> Result<CommitReply> {
        let (fid, token) = (commit.fid, commit.token);
        let id = CommitId { fid, writer, token };
        let members = self.components.context.map().members;
        let segments = validated(id, &commit.own, &commit.patterns, members)?;
        let _commit = self.components.locks.lock(id.fid)?;
        let (seq, previous) = match self.components.outcomes.sequence_of(id)? {
            Some(seq) => (seq, None),
            None => {
                self.unpublished_elsewhere(&commit)?;
                let prepared = self
                    .components
                    .patterns
                    .prepare(id.fid, &commit.own, segments)?;
                let Some((seq, previous)) = self.decide(id, &mut commit, prepared)? else {
                    return Ok(CommitReply::SyncFirst);
                };
                self.components.patterns.compact(id.fid);
                (seq, Some(previous))
            }
        };
        // A commit with parts elsewhere was synced when it was decided. What publishing adds here may be lost: the decision
        // is found again then, and every member answers for its part as before.
        let on_disk = previous.is_some() && !commit.staged.is_empty();
        // From here on the commit has happened, and no error may say that it has not.
        if let Err(error) = self.components.decided.publish(id.fid, commit.sync) {
            tracing::warn!(fid = id.fid.0, seq, %error, "a decided commit is not published everywhere; it will be retried");
            self.components.work.retry_later();
        }
        if commit.sync && !on_disk {
            self.sync_decided()?;
        }
        let inode = self.components.context.inodes.get(id.fid);
        let attr = inode
            .map_err(|e| self.error_after_decision(&e))?
            .attr(id.fid);
        Ok(CommitReply::Committed(CommitSummary {
            seq,
            previous,
            attr,
            open_at: self.components.opens.members(id.fid, id.writer),
        }))
    }

    /// Step 1: publishes what earlier commits left; an error if a member of this commit still lacks some.
    fn unpublished_elsewhere(&self, commit: &Commit) -> Result<()> {
        let left = self.components.decided.publish(commit.fid, true)?;
        match left.iter().find(|m| commit.staged.contains(m)) {
            Some(member) => Err(Error::Peer {
                member: *member,
                reason: "an earlier commit of this file is not published there yet".into(),
            }),
            None => Ok(()),
        }
    }

    /// Step 2. Returns the sequence, and the one before it. `None`, and nothing happened: see [`CommitReply::SyncFirst`].
    fn decide(
        &self,
        id: CommitId,
        commit: &mut Commit,
        prepared: PreparedPatterns,
    ) -> Result<Option<(u64, u64)>> {
        let inodes = &self.components.context.inodes;
        let _inode = inodes.lock(id.fid);
        let mut inode = inodes.get(id.fid)?;
        if self.components.opens.removing(id.fid) {
            return Err(Errno::STALE.into());
        }
        if !commit.staged.is_empty() && self.components.outcomes.is_given_up(id)? {
            return Err(Error::Replan);
        }
        let admission = Admission {
            map: self.components.context.map(),
            own: self.components.context.member(),
            inode: &inode,
            commit,
        };
        let mut layout = admission.layout()?;
        admission.permitted()?;
        let must_sync_first = admission.must_sync_first();
        let content = !commit.own.is_empty()
            || !commit.patterns.is_empty()
            || !commit.staged.is_empty()
            || commit.attr.size.is_some_and(|s| s != inode.size)
            || commit.attr.end.is_some_and(|end| end > inode.size);
        let seq = if content {
            self.components.sequences.next(id.fid, inode.seq)?
        } else {
            inode.seq
        };
        let mut batch = Batch::new();
        let (mut added, mut freed, mut table) = (0, 0, None);
        let nothing = commit.own.is_empty() && commit.patterns.is_empty();
        let has_synced_bytes = self.components.context.is_ordered()
            && self
                .components
                .sequences
                .synced
                .may_have_synced(id.fid, inode.seq);
        if layout == ExtentLayout::Patterned && !nothing {
            if has_synced_bytes && must_sync_first {
                return Ok(None);
            }
            let own = &mut commit.own;
            let all = empties_file(own) && commit.patterns.is_empty();
            let done = self
                .components
                .patterns
                .change(&mut batch, id.fid, &inode, own, prepared, seq)?;
            (added, freed) = (done.added, done.freed);
            table = Some(done.table);
            if all {
                layout = ExtentLayout::OwnerOnly;
                // With whatever was not known to be held.
                freed = inode.bytes;
                self.components
                    .patterns
                    .delete_records(&mut batch, id.fid)?;
            }
        } else if !commit.own.is_empty() {
            let before = PriorState {
                size: Some(inode.size),
                first: inode.seq == 0,
                has_synced_bytes,
            };
            let sync = commit.sync;
            (added, freed) = self.components.slices.change(
                &mut batch,
                id.fid,
                &mut commit.own,
                seq,
                before,
                sync,
            )?;
        }
        let longer = inode.size..commit.attr.end.unwrap_or(0);
        inode.count(added, freed);
        apply_attr(&mut inode, &commit.attr);
        inode.layout = layout;
        let previous = std::mem::replace(&mut inode.seq, seq);
        let decision = (!commit.staged.is_empty()).then(|| CommitDecision {
            id,
            seq,
            members: commit.staged.clone(),
            has_synced_bytes,
            longer: (has_synced_bytes && !commit.sync && !longer.is_empty()).then_some(longer),
        });
        if let Some(decision) = &decision {
            self.components.decided.put(&mut batch, decision)?;
        }
        self.components.outcomes.put_receipt(&mut batch, id, seq);
        inodes.put(&mut batch, id.fid, &inode);
        self.components.context.step("decide")?;
        if table.is_some() {
            // Read again if the batch does not land.
            self.components.patterns.tables.forget(id.fid);
        }
        self.components.context.store.apply(batch)?;
        if let Some(table) = table.filter(|_| layout == ExtentLayout::Patterned) {
            self.components.patterns.tables.put(id.fid, Arc::new(table));
        }
        if let Some(decision) = decision {
            self.components.decided.batch_applied(decision);
        }
        self.components.outcomes.batch_applied(id, seq);
        self.components.slices.batch_applied(id.fid, freed);
        if commit.attr.size.is_some() {
            self.components.opens.unreserve(id.fid);
        }
        if commit.sync {
            self.components.sequences.synced.mark_synced(id.fid);
        }
        // The decision is on disk before any part of it can be: a member that published what was never decided could not be read
        // together with the others.
        if (commit.sync || has_synced_bytes) && !commit.staged.is_empty() {
            self.sync_decided()?;
        }
        self.components.context.step("decided")?;
        Ok(Some((seq, previous)))
    }

    /// Brings a decided commit to disk.
    fn sync_decided(&self) -> Result<()> {
        let synced = self.components.context.store.sync().map_err(Error::from);
        synced.map_err(|e| self.error_after_decision(&e))
    }

    /// What went wrong after a commit was decided: the writer must ask again, under the same token.
    fn error_after_decision(&self, error: &Error) -> Error {
        Error::Peer {
            member: self.components.context.member(),
            reason: format!("the commit is decided, but could not be finished here: {error}"),
        }
    }
}

/// Whether nothing is left of a file's content after these changes: a truncate to 0, and no put.
fn empties_file(changes: &[Change]) -> bool {
    let all = |c: &Change| {
        matches!(
            c,
            Change::Cut {
                start: 0,
                end: u64::MAX
            }
        )
    };
    changes.iter().any(all) && !changes.iter().any(is_put)
}

fn is_put(change: &Change) -> bool {
    matches!(change, Change::Put(_))
}

fn apply_attr(inode: &mut Inode, attr: &CommitAttr) {
    let end = attr.end.unwrap_or(0);
    inode.size = attr.size.unwrap_or_else(|| inode.size.max(end));
    if attr.size.is_some() && inode.lamination == Lamination::ByMode {
        inode.lamination = Lamination::None;
    }
    inode.ctime = Time::now();
    if let Some(mtime) = attr.mtime {
        inode.mtime = mtime;
    }
    if attr.clear_setid {
        inode.mode = without_set_ids(inode.mode);
    }
}
