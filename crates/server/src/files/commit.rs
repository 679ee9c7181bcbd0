//! Commits at the file's owner: everything that changes content comes through here.
//!
//! Order of steps, under the file's commit lock:
//! 1. Commits of the file decided earlier and not published everywhere are published, or (if a member of them cannot be
//!    reached) a commit with a part for the same member fails with `EIO`. So a member publishes in sequence order.
//! 2. One batch, under the inode's lock: the own part, the inode, the freed bytes, the receipt, and if other members
//!    have parts the decision. **This batch is the commit**: before it nothing of the commit is visible anywhere and it
//!    can still fail; after it, it cannot, and every reader sees all of it (see `extents` for how).
//! 3. `Publish` to each member with a part; then the decision is dropped. What cannot be reached now is retried by the
//!    background thread; a reader of such a slice finds the staged part, asks for the decision and publishes it itself.
use super::Shared;
use super::parts::touched;
use super::patterns::Prepared;
use super::proto::{CommitAttr, FilesReply};
use super::publish::Decision;
use super::records::{self, CommitId};
use crate::inodes::Inode;
use crate::outbox::Held;
use crate::{Error, Kind, Lamination, Layout, Member, Result, Time, keys};
use forebay_index::{Change, Extent};
use forebay_storage::{Batch, Durability};
use rustix::io::Errno;
use std::sync::Arc;

/// The kernel reads pages.
const PAGE: u64 = 4096;

/// A commit as it was asked for.
pub(super) struct Commit {
    pub id: CommitId,
    pub own: Vec<Change>,
    /// Encoded segments.
    pub patterns: Vec<u8>,
    pub staged: Vec<Member>,
    pub attr: CommitAttr,
    pub sync: bool,
}

impl Shared {
    pub(super) fn commit(&self, mut commit: Commit) -> Result<FilesReply> {
        let id = commit.id;
        let segments = self.contents(id, &commit.own, &commit.patterns)?;
        let _busy = self.busy(id.fid)?;
        let (seq, previous) = match self.recall(id)? {
            Some(seq) => (seq, None),
            None => {
                self.unpublished_elsewhere(&commit)?;
                let prepared = self.prepare(id.fid, &commit.own, segments)?;
                let Some((seq, previous)) = self.decide(&mut commit, prepared)? else {
                    return Ok(FilesReply::SyncFirst);
                };
                self.tidy(id.fid);
                (seq, Some(previous))
            }
        };
        // A commit with parts elsewhere was synced when it was decided. What publishing adds here may be lost: the decision
        // is found again then, and every member answers for its part as before.
        let on_disk = previous.is_some() && !commit.staged.is_empty();
        // From here on the commit has happened, and no error may say that it has not.
        if let Err(error) = self.settle(id.fid, commit.sync) {
            tracing::warn!(fid = id.fid.0, seq, %error, "a decided commit is not published everywhere; it will be retried");
            self.chores.retry_later();
        }
        if commit.sync && !on_disk {
            let synced = self.store.sync().map_err(Error::from);
            synced.map_err(|e| self.too_late(&e))?;
        }
        let inode = self.inodes.get(id.fid).map_err(|e| self.too_late(&e))?;
        let attr = inode.attr(id.fid);
        Ok(FilesReply::Committed {
            seq,
            previous,
            attr,
            open_at: self.opens.members(id.fid, id.writer),
        })
    }

    /// Step 1: publishes what earlier commits left; an error if a member of this commit still lacks some.
    fn unpublished_elsewhere(&self, commit: &Commit) -> Result<()> {
        let left = self.settle(commit.id.fid, true)?;
        match left.iter().find(|m| commit.staged.contains(m)) {
            Some(member) => Err(Error::Peer {
                member: *member,
                reason: "an earlier commit of this file is not published there yet".into(),
            }),
            None => Ok(()),
        }
    }

    /// Step 2. Returns the sequence, and the one before it. `None`, and nothing happened: see [`FilesReply::SyncFirst`].
    fn decide(&self, commit: &mut Commit, prepared: Prepared) -> Result<Option<(u64, u64)>> {
        let id = commit.id;
        let _inode = self.inodes.lock(id.fid);
        let mut inode = self.inodes.get(id.fid)?;
        if self.opens.removing(id.fid) {
            return Err(Errno::STALE.into());
        }
        if !commit.staged.is_empty() && self.store.get(keys::DECISIONS, &id.abort_key())?.is_some()
        {
            return Err(Error::Stale);
        }
        let mut layout = self.layout_after(&inode, commit)?;
        self.permitted(&inode, commit)?;
        let content = !commit.own.is_empty()
            || !commit.patterns.is_empty()
            || !commit.staged.is_empty()
            || commit.attr.size.is_some_and(|s| s != inode.size);
        let seq = if content {
            self.next_seq(id.fid, &inode)?
        } else {
            inode.seq
        };
        let mut batch = Batch::new();
        let (mut added, mut freed, mut table) = (0, 0, None);
        let nothing = commit.own.is_empty() && commit.patterns.is_empty();
        let promised = self.is_ordered() && self.promises.may_be(id.fid, inode.seq);
        if layout == Layout::Patterned && !nothing {
            if promised && must_sync_first(&inode, commit) {
                return Ok(None);
            }
            let own = &mut commit.own;
            let all = empties(own) && commit.patterns.is_empty();
            let done = self.change_patterned(&mut batch, id.fid, &inode, own, prepared, seq)?;
            (added, freed) = (done.added, done.freed);
            table = Some(done.table);
            if all {
                layout = Layout::Fresh;
                // With whatever was not known to be held.
                freed = inode.bytes;
                self.delete_prefix(&mut batch, keys::PATTERNS, &id.fid.0.to_be_bytes())?;
            }
        } else if !commit.own.is_empty() {
            let before = Before {
                size: Some(inode.size),
                promised,
            };
            let sync = commit.sync;
            (added, freed) = self.change(&mut batch, id.fid, &mut commit.own, seq, before, sync)?;
        }
        let longer = inode.size..commit.attr.end.unwrap_or(0);
        inode.count(added, freed);
        apply_attr(&mut inode, &commit.attr);
        inode.layout = layout;
        let previous = std::mem::replace(&mut inode.seq, seq);
        let decision = (!commit.staged.is_empty()).then(|| Decision {
            id,
            seq,
            members: commit.staged.clone(),
            promised,
            longer: (promised && !commit.sync && !longer.is_empty()).then_some(longer),
        });
        if let Some(decision) = &decision {
            decision.put(&mut batch);
            self.note_end(&mut batch, decision);
            self.widen_span(&mut batch, decision)?;
        }
        if id.writer != self.member() {
            batch.put(
                keys::DECISIONS,
                id.receipt_key(),
                records::receipt_value(id.token, seq),
            );
        }
        self.inodes.put(&mut batch, id.fid, &inode);
        self.step("decide")?;
        if table.is_some() {
            // Read again if the batch does not land.
            self.tables.forget(id.fid);
        }
        self.store.apply(batch)?;
        if let Some(table) = table.filter(|_| layout == Layout::Patterned) {
            self.tables.put(id.fid, Arc::new(table));
        }
        self.decisions.add(decision);
        self.outcomes.remember(id, seq);
        if freed > 0 || self.outbox.holds(id.fid) {
            self.outbox.wake();
        }
        if commit.attr.size.is_some() {
            self.opens.unreserve(id.fid);
        }
        if commit.sync {
            self.promises.promise(id.fid);
        }
        // The decision is on disk before any part of it can be: a member that published what was never decided could not be read
        // together with the others.
        if (commit.sync || promised) && !commit.staged.is_empty() {
            let synced = self.store.sync().map_err(Error::from);
            synced.map_err(|e| self.too_late(&e))?;
        }
        self.step("decided")?;
        Ok(Some((seq, previous)))
    }

    /// A commit without a sync makes the file longer, and other members have parts. Should a power cut take those, only
    /// this member knows the end that the file had. Written in the batch of the decision, and once more when all have published,
    /// because a sync of all members in between drops the first record.
    pub(super) fn note_end(&self, batch: &mut Batch, decision: &Decision) {
        let Some(longer) = &decision.longer else {
            return;
        };
        let members = decision.members.iter().copied();
        self.outbox.wrote(members.chain([decision.id.writer]));
        let held = Held {
            fid: decision.id.fid,
            size: Some(longer.start),
            seq: decision.seq,
            extents: Vec::new(),
            beside: vec![(longer.end - 1, 1)],
        };
        self.outbox.hold(batch, &held);
    }

    /// Whether a store brings to disk first what must be there first.
    fn is_ordered(&self) -> bool {
        self.store.durability() != Durability::None
    }

    /// What went wrong after a commit was decided: the writer must ask again, under the same token.
    fn too_late(&self, error: &Error) -> Error {
        Error::Peer {
            member: self.member(),
            reason: format!("the commit is decided, but not settled: {error}"),
        }
    }

    /// Lamination, kind, and whether a truncate reaches every member that holds bytes it cuts.
    fn permitted(&self, inode: &Inode, commit: &Commit) -> Result<()> {
        match inode.kind {
            Kind::File => {}
            Kind::Dir => return Err(Errno::ISDIR.into()),
            _ => return Err(Errno::INVAL.into()),
        }
        // A truncate by root without an open is all that gets here for softly laminated files; it ends the lamination.
        let soft_truncate = inode.lamination == Lamination::Soft && commit.attr.size.is_some();
        if inode.lamination != Lamination::None && !soft_truncate {
            return Err(Errno::PERM.into());
        }
        let Some(size) = commit.attr.size.filter(|size| *size < inode.size) else {
            return Ok(());
        };
        let own_cut =
            |c: &Change| matches!(c, Change::Cut { start, end: u64::MAX } if *start <= size);
        let reached = |m: &Member| match *m == self.member() {
            true => commit.own.iter().any(own_cut),
            false => commit.staged.contains(m),
        };
        let mut members = touched(self.map(), self.member(), size, inode.size);
        match inode.layout {
            Layout::Spread => {}
            // The others have nothing that could be cut.
            Layout::Fresh => members.retain(|m| *m == self.member()),
            Layout::Patterned => members = vec![self.member()],
        }
        match members.iter().all(reached) {
            true => Ok(()),
            false => Err(Error::Stale),
        }
    }

    /// Adds to `batch` changes of the own slices under sequence `seq`, and what they displace. Returns bytes added and freed.
    /// `synced`: the bytes that the changes name are on disk.
    pub(super) fn change(
        &self,
        batch: &mut Batch,
        fid: crate::Fid,
        changes: &mut [Change],
        seq: u64,
        before: Before,
        synced: bool,
    ) -> Result<(u64, u64)> {
        let mut added = 0u64;
        for change in changes.iter_mut() {
            if let Change::Put(extent) = change {
                extent.seq = seq;
                added = added.saturating_add(extent.len);
            }
        }
        let extents = self.index.change(batch, fid.0, changes)?;
        let freed = total(&extents);
        if synced || !self.is_ordered() {
            self.outbox.add(batch, &extents);
            return Ok((added, freed));
        }
        let puts = changes.iter().filter_map(|change| match change {
            Change::Put(extent) => Some(extent),
            Change::Cut { .. } => None,
        });
        self.outbox.wrote(puts.clone().map(|e| e.member));
        let all = before.promised || self.outbox.holds(fid);
        let held = Held {
            fid,
            size: before.size,
            seq,
            extents,
            beside: puts
                .filter(|e| all || beside_older(e, before.size))
                .map(|e| (e.offset, e.len))
                .collect(),
        };
        if !held.extents.is_empty() || !held.beside.is_empty() {
            self.outbox.hold(batch, &held);
        }
        Ok((added, freed))
    }
}

/// A file as a commit finds it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Before {
    /// Bytes; known at its owner only.
    pub size: Option<u64>,
    /// An fsync may have promised something of it. Then all of it must be readable after a power cut: what the commit puts and the cut
    /// takes is as if it was never written.
    pub promised: bool,
}

/// Whether a commit to a promised file with patterns must be on disk before it takes effect: what it displaces of a pattern could not be put
/// back, and what is lost of a pattern not be taken away.
fn must_sync_first(inode: &Inode, commit: &Commit) -> bool {
    let changes = |change: &Change| match change {
        Change::Put(_) => true,
        Change::Cut { start, .. } => *start < inode.size,
    };
    !commit.sync && (!commit.patterns.is_empty() || commit.own.iter().any(changes))
}

/// Whether nothing is left of a file's content after these changes: a truncate to 0, and no put.
fn empties(changes: &[Change]) -> bool {
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

/// Whether an extent shares a page with older bytes of a file of this size (`None`: not known).
fn beside_older(extent: &Extent, size: Option<u64>) -> bool {
    let size = size.unwrap_or(u64::MAX);
    let (start, end) = (extent.offset, extent.end());
    !start.is_multiple_of(PAGE) && size > start - start % PAGE
        || !end.is_multiple_of(PAGE) && size > end
}

/// Bytes of these extents.
pub(super) fn total(extents: &[Extent]) -> u64 {
    let lengths = extents.iter().map(|e| e.len);
    lengths.fold(0, u64::saturating_add)
}

fn apply_attr(inode: &mut Inode, attr: &CommitAttr) {
    let end = attr.end.unwrap_or(0);
    inode.size = attr.size.unwrap_or_else(|| inode.size.max(end));
    if attr.size.is_some() && inode.lamination == Lamination::Soft {
        inode.lamination = Lamination::None;
    }
    inode.ctime = Time::now();
    if let Some(mtime) = attr.mtime {
        inode.mtime = mtime;
    }
    if attr.clear_setid {
        // Set-group-id without group execute means mandatory locking, not privilege: it stays.
        let group = if inode.mode & 0o010 != 0 { 0o2000 } else { 0 };
        inode.mode &= !(0o4000 | group);
    }
}
