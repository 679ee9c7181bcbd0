//! Restores, after a power cut, what commits without a sync displaced where their own bytes did not reach the disk.
//!
//! The index may have such a commit while its bytes are lost. `outbox/displaced_extents` therefore keeps a record of the extents that
//! each one displaced. At a start the members work through these records in three steps. A step begins once all members have finished
//! the one before.
//!
//! 1. **Find unreadable tails** (`find_unreadable_tails`, at the file's owner). For each recorded commit that made its file longer the
//!    owner checks the last byte. The file may have to become shorter if that byte cannot be read, or if the member that owns its
//!    slice does not have the commit.
//! 2. **Restore bytes** (`restore_bytes`, at each member with records, the newest record first). The member looks up what its
//!    index names now in the ranges that the commit wrote, and reads it.
//!    - What can be read stays.
//!    - Where an extent cannot be read, the displaced extent takes its place if that can be read. A hole takes its place where nothing
//!      was stored before.
//!    - Bytes behind the old end of the file are left to step 3. Nothing that older commits displaced is restored there: the file had
//!      ended before them.
//!
//!    The changes are one commit, with a sync. Displaced extents that the index names again are kept; messages of the outbox free the
//!    others. Then the record is deleted, unless the file has an unreadable tail: then step 3 deletes it.
//! 3. **Cut unreadable tails** (`cut_unreadable_tails`, for the files that steps 1 and 2 noted). Behind the old end, each extent that
//!    cannot be read becomes a hole. The file is cut behind the last byte that can be read, but not below its old size, and not if a
//!    truncate set a larger size later. The owner counts the stored bytes of a file over several members anew.
//!
//! Special cases:
//! - *The file is removed meanwhile*: its records are deleted, and parts that were staged for it are dropped.
//! - *A crash during a step*: the next start repeats it. What was restored can be read, and the index names it, so nothing is done twice.
//! - *A member does not answer*: the records of the file are kept for the next start. A file over several members may then keep its
//!   larger size, with a hole at the end.
mod named_bytes;

use super::committer::Committer;
use super::components::FileComponents;
use super::records::CommitId;
use super::slice_index::stored_bytes;
use super::staged::StagedParts;
use crate::outbox::{DisplacedRecord, Outbox};
use crate::{Error, ExtentLayout, Fid, Member, Result};
use forebay_data::ranges::{merge, without};
use forebay_index::{Change, Extent};
use forebay_proto::files::{Commit, CommitAttr, CommitReply, DropStaged, StageChanges};
use forebay_proto::placement::{split_by_member, touched};
use forebay_storage::Batch;
pub(super) use named_bytes::NamedBytes;
use parking_lot::Mutex;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::ops::Range;
use std::slice::from_ref;
use std::sync::Arc;

/// Tokens of these commits are not those of a delegate, which counts from 1.
const TOKENS: u64 = 1 << 63;

/// The bytes of a file behind its old end that cannot be read.
struct UnreadableTail {
    /// The old end: the file is not cut below it.
    size: u64,
    /// The first byte that cannot be read, if one is known.
    start: u64,
    /// Behind the last one.
    end: u64,
    /// Of the commit that cuts it off.
    token: u64,
    /// Records that are deleted once the tail is cut, each with the extents that are freed then.
    records: Vec<(u64, Vec<Extent>)>,
    /// A member did not answer: the rest of the work on this file waits for the next start.
    waits: bool,
}

impl UnreadableTail {
    /// `number`: of the record that tells of it.
    fn new(number: u64) -> UnreadableTail {
        UnreadableTail {
            size: u64::MAX,
            start: u64::MAX,
            end: 0,
            token: TOKENS | TOKENS >> 1 | number,
            records: Vec::new(),
            waits: false,
        }
    }

    /// More of it; `size` is the one that the file had before.
    fn add(&mut self, size: u64, range: Range<u64>) {
        self.size = self.size.min(size);
        self.start = self.start.min(range.start);
        self.end = self.end.max(range.end);
    }
}

/// Whether the file has been removed, which may happen to one without a name at any time. Then nothing of it has to be restored.
fn is_removed(error: &Error) -> bool {
    matches!(error, Error::Posix(Errno::STALE))
}

fn unless_removed(done: Result<()>) -> Result<()> {
    done.or_else(|error| match is_removed(&error) {
        true => Ok(()),
        false => Err(error),
    })
}

/// See the head of this file.
pub(crate) struct DisplacedRestorer {
    components: Arc<FileComponents>,
    outbox: Arc<Outbox>,
    staged: Arc<StagedParts>,
    committer: Arc<Committer>,
    named: NamedBytes,
    /// What step 1 found, for the others.
    tails: Mutex<BTreeMap<Fid, UnreadableTail>>,
}

impl DisplacedRestorer {
    pub(super) fn new(
        outbox: Arc<Outbox>,
        staged: Arc<StagedParts>,
        committer: Arc<Committer>,
        named: NamedBytes,
    ) -> DisplacedRestorer {
        DisplacedRestorer {
            components: committer.components.clone(),
            outbox,
            staged,
            committer,
            named,
            tails: Mutex::default(),
        }
    }

    /// Step 1. All members answer, and have published what was decided; what they hold is on disk.
    ///
    /// # Errors
    /// When the own store fails.
    pub fn find_unreadable_tails(&self) -> Result<()> {
        self.outbox.displaced.begin_restore();
        for (number, held) in self.outbox.displaced.held_back()? {
            if let Err(error) = unless_removed(self.find_unreadable_tail(number, &held)) {
                self.wait_for_next_start(held.fid, number);
                tracing::warn!(fid = held.fid.0, %error, "cannot tell whether a power cut took the end of this file; the next start looks again");
            }
        }
        Ok(())
    }

    fn find_unreadable_tail(&self, number: u64, held: &DisplacedRecord) -> Result<()> {
        let (fid, Some(size)) = (held.fid, held.size) else {
            return Ok(());
        };
        let Some(inode) = self.components.context.inodes.find(fid)? else {
            // Removed since.
            return Ok(());
        };
        if inode.layout == ExtentLayout::BySlice {
            self.change_tail(fid, number, |_| {});
        }
        let ends = held.beside.iter().map(|(at, len)| at + len);
        let Some(end) = ends.max().filter(|end| *end > size) else {
            return Ok(());
        };
        let member = match inode.layout {
            ExtentLayout::BySlice => self.components.context.map().member(fid.owner(), end - 1),
            ExtentLayout::OwnerOnly | ExtentLayout::Patterned => self.components.context.member(),
        };
        let (last, published) = self.named.at(member, fid, end - 1..end)?;
        let lacks = published < held.seq;
        // Bytes that a later commit wrote there say nothing of this one: its own record, with the size of then, tells of them. If what it
        // displaced is lost too, the bytes are looked at once more when they are put back.
        let own: Vec<Extent> = last.into_iter().filter(|e| e.seq <= held.seq).collect();
        if lacks || !self.named.unreadable(&own)?.is_empty() {
            // The byte may get back an older one: where the unreadable bytes begin is not known yet.
            self.add_tail(fid, number, size, u64::MAX..end);
        }
        Ok(())
    }

    /// Step 2.
    ///
    /// # Errors
    /// When the own store fails. What members that cannot be reached have waits for the next start.
    pub fn restore_bytes(&self) -> Result<()> {
        let mut put_back = 0;
        for (number, held) in self.outbox.displaced.held_back()?.into_iter().rev() {
            // Older records wait with a newer one: what they put back would pass for what it wrote.
            if self.waits(held.fid) {
                continue;
            }
            match self.restore_displaced(number, &held) {
                Ok(bytes) => put_back += bytes,
                Err(error) => {
                    self.wait_for_next_start(held.fid, number);
                    tracing::warn!(fid = held.fid.0, %error, "cannot tell yet whether a power cut took bytes of this file; the next start looks again");
                }
            }
        }
        if put_back > 0 {
            tracing::warn!(
                bytes = put_back,
                "bytes that were overwritten without a sync are as they were before: a power cut took the new ones"
            );
        }
        self.outbox.wake();
        Ok(())
    }

    /// More of the unreadable end of a file, which record `number` tells of; see [`UnreadableTail::add`].
    fn add_tail(&self, fid: Fid, number: u64, size: u64, range: Range<u64>) {
        self.change_tail(fid, number, |tail| tail.add(size, range));
    }

    fn change_tail(&self, fid: Fid, number: u64, change: impl FnOnce(&mut UnreadableTail)) {
        let mut tails = self.tails.lock();
        let tail = tails.entry(fid);
        change(tail.or_insert_with(|| UnreadableTail::new(number)));
    }

    fn waits(&self, fid: Fid) -> bool {
        self.tails.lock().get(&fid).is_some_and(|tail| tail.waits)
    }

    fn wait_for_next_start(&self, fid: Fid, number: u64) {
        self.change_tail(fid, number, |tail| tail.waits = true);
    }

    /// Step 3.
    ///
    /// # Errors
    /// As of step 2.
    pub fn cut_unreadable_tails(&self) -> Result<()> {
        let tails = std::mem::take(&mut *self.tails.lock());
        for (fid, tail) in tails.into_iter().filter(|(_, tail)| !tail.waits) {
            let cut = self.cut_tail(fid, &tail);
            match unless_removed(cut.and_then(|()| self.count_stored(fid))) {
                Ok(()) => {
                    let mut batch = Batch::reclaiming();
                    for (number, freed) in &tail.records {
                        self.outbox.end_displaced(&mut batch, *number, freed);
                    }
                    self.components.context.store.apply(batch)?;
                }
                Err(error) => {
                    tracing::warn!(fid = fid.0, %error, "bytes behind what was synced of this file cannot be read; the next start looks again");
                }
            }
        }
        self.outbox.wake();
        Ok(())
    }

    /// Answers how many bytes are as they were before.
    fn restore_displaced(&self, number: u64, held: &DisplacedRecord) -> Result<u64> {
        let fid = held.fid;
        let displaced = held.extents.iter().map(|e| e.offset..e.end());
        let beside = held.beside.iter().map(|(at, len)| *at..at + len);
        let (mut changes, mut bytes) = (Vec::new(), 0);
        let mut ranges = merge(displaced.chain(beside).collect());
        let known = self.tails.lock().get(&fid).map(|tail| tail.start);
        if let Some(start) = known {
            ranges = without(&ranges, from_ref(&(start..u64::MAX)));
        }
        for range in ranges {
            let now = self.named.named_at_this_member(fid, range)?;
            for lost in self.named.unreadable(&now)? {
                let whole = lost.offset..lost.end();
                let older = held.extents.iter();
                let older: Vec<Extent> = older.filter_map(|e| e.clip(&whole)).collect();
                let covered = merge(older.iter().map(|e| e.offset..e.end()).collect());
                let holes = without(from_ref(&whole), &covered);
                let gone = self.named.unreadable(&older)?;
                for extent in older.into_iter().filter(|e| !gone.contains(e)) {
                    bytes += extent.len;
                    changes.push(Change::Put(extent));
                }
                for hole in holes {
                    let size = held.size.unwrap_or(u64::MAX);
                    if hole.start < size {
                        let end = hole.end.min(size);
                        changes.push(Change::Cut {
                            start: hole.start,
                            end,
                        });
                    }
                    if hole.end > size {
                        self.add_tail(fid, number, size, hole.start.max(size)..hole.end);
                    }
                }
            }
        }
        if !changes.is_empty() {
            unless_removed(self.commit_restored(fid, TOKENS | number, changes, None))?;
        }
        let mut freed = Vec::new();
        for extent in &held.extents {
            let whole = extent.offset..extent.end();
            let now = self.named.named_at_this_member(fid, whole.clone())?;
            let same = |e: &&Extent| {
                (e.member, e.log) == (extent.member, extent.log)
                    && e.addr.wrapping_sub(e.offset) == extent.addr.wrapping_sub(extent.offset)
            };
            let kept = now.iter().filter(same).map(|e| e.offset..e.end());
            let parts = without(from_ref(&whole), &merge(kept.collect()));
            freed.extend(parts.iter().filter_map(|range| extent.clip(range)));
        }
        if let Some(tail) = self.tails.lock().get_mut(&fid) {
            tail.records.push((number, freed));
            return Ok(bytes);
        }
        let mut batch = Batch::reclaiming();
        self.outbox.end_displaced(&mut batch, number, &freed);
        self.components.context.store.apply(batch)?;
        Ok(bytes)
    }

    /// Cuts off the end of a file that cannot be read, down to what can.
    fn cut_tail(&self, fid: Fid, tail: &UnreadableTail) -> Result<()> {
        let Some(inode) = self.components.context.inodes.find(fid)? else {
            return Ok(());
        };
        let from = tail.size.min(tail.start);
        if inode.size <= from {
            return Ok(());
        }
        let members = match inode.layout {
            ExtentLayout::BySlice => {
                touched(self.components.context.map(), fid.owner(), from, inode.size)
            }
            ExtentLayout::OwnerOnly | ExtentLayout::Patterned => {
                vec![self.components.context.member()]
            }
        };
        let mut now = Vec::new();
        for member in members {
            now.extend(self.named.at(member, fid, from..inode.size)?.0);
        }
        let lost = self.named.unreadable(&now)?;
        let readable = now.iter().filter(|e| !lost.contains(e)).map(Extent::end);
        let end = readable.max().unwrap_or(from).max(tail.size);
        let known = lost.iter().map(Extent::end).fold(tail.end, u64::max);
        // A larger size was set later, by a truncate.
        let end = if inode.size > known { inode.size } else { end };
        let size = (end < inode.size).then_some(end);
        let holes = lost.iter().filter(|e| e.offset < end);
        let mut changes: Vec<Change> = holes
            .map(|e| Change::Cut {
                start: e.offset,
                end: e.end().min(end),
            })
            .collect();
        if let Some(size) = size {
            tracing::warn!(
                fid = fid.0,
                from = inode.size,
                to = size,
                "a file is cut to what a power cut left of it; what it lost was never synced"
            );
            changes.push(Change::Cut {
                start: size,
                end: u64::MAX,
            });
        }
        match changes.is_empty() {
            true => Ok(()),
            false => self.commit_restored(fid, tail.token, changes, size),
        }
    }

    /// Counts the stored bytes of a file over several members again: some may have lost parts that the owner has counted.
    ///
    /// What is decided is published first: members that are asked for their extents publish it of themselves, and what it
    /// added and freed would be counted twice once the owner learns of that.
    fn count_stored(&self, fid: Fid) -> Result<()> {
        let _commit = self.components.locks.lock(fid)?;
        if let Some(member) = self.components.decided.publish(fid, true)?.first() {
            return Err(Error::Peer {
                member: *member,
                reason: "a commit of this file is not published there yet".into(),
            });
        }
        let stored = || -> Result<u64> {
            let (mut members, mut stored) = (self.components.decided.participants(fid)?, 0);
            members.push(self.components.context.member());
            for member in members {
                self.named.pages(member, fid, 0..u64::MAX, |page| {
                    stored += stored_bytes(page);
                })?;
            }
            Ok(stored)
        };
        let inode = self.components.context.inodes.find(fid)?;
        if inode.is_none_or(|inode| inode.layout != ExtentLayout::BySlice) {
            return Ok(());
        }
        let bytes = stored()?;
        let _inode = self.components.context.inodes.lock(fid);
        let mut inode = self.components.context.inodes.get(fid)?;
        if inode.bytes == bytes {
            return Ok(());
        }
        inode.bytes = bytes;
        let inodes = &self.components.context.inodes;
        inodes.write(Batch::reclaiming(), fid, &inode)
    }

    /// Commits changes of the slices that are kept here; the file's owner, of all slices.
    fn commit_restored(
        &self,
        fid: Fid,
        token: u64,
        changes: Vec<Change>,
        size: Option<u64>,
    ) -> Result<()> {
        let (owner, member) = (fid.owner(), self.components.context.member());
        let (own, staged) = match owner == member {
            true => self.stage_elsewhere(fid, token, changes)?,
            false => {
                let id = CommitId {
                    fid,
                    writer: member,
                    token,
                };
                self.staged.stage(id, &changes, true)?;
                (Vec::new(), vec![member])
            }
        };
        let commit = Commit {
            fid,
            token,
            own,
            patterns: Vec::new(),
            staged: staged.clone(),
            attr: CommitAttr {
                size,
                ..CommitAttr::default()
            },
            sync: true,
        };
        let reply = match owner == member {
            true => self.committer.commit(member, commit),
            false => self.components.context.peers.call(owner, commit),
        };
        match reply {
            Ok(CommitReply::Committed(_)) => Ok(()),
            Ok(CommitReply::SyncFirst) => Err(Error::Peer {
                member: owner,
                reason: "asked for a sync that had come with the commit".into(),
            }),
            Err(error) => {
                if is_removed(&error) {
                    for to in staged {
                        let request = DropStaged {
                            fid,
                            writer: member,
                            token,
                        };
                        self.components.context.peers.call(to, request)?;
                    }
                }
                Err(error)
            }
        }
    }

    /// Stages the parts that other members have of changes to a file of this member. Answers the own part, and those members.
    fn stage_elsewhere(
        &self,
        fid: Fid,
        token: u64,
        changes: Vec<Change>,
    ) -> Result<(Vec<Change>, Vec<Member>)> {
        let context = &self.components.context;
        let inode = context.inodes.get(fid)?;
        if inode.layout != ExtentLayout::BySlice {
            return Ok((changes, Vec::new()));
        }
        let (mut own, mut staged) = (Vec::new(), Vec::new());
        for part in split_by_member(context.map(), context.member(), &changes, inode.size) {
            if part.member == context.member() {
                own = part.changes;
                continue;
            }
            let request = StageChanges {
                fid,
                token,
                changes: part.changes,
                sync: true,
            };
            context.peers.call(part.member, request)?;
            staged.push(part.member);
        }
        Ok((own, staged))
    }
}
