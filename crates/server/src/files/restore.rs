//! After a power cut: bytes that a commit without a sync displaced come back where the new ones did not reach the disk, and what it
//! wrote where there was nothing is as if it was never written.
//!
//! Three steps; each begins when all members have done the one before:
//! 1. **Ends** (`find_unreadable_tails`). A file's owner knows the size that the file had before a commit. If the last byte of that commit
//!    cannot be read, or the member that has its slice lacks the commit (its log may be the shorter one), the file's end may have to move
//!    back.
//! 2. **Bytes** (`restore`). The records that `outbox/displaced` left are looked at from the newest to the oldest, each like this:
//!    - What the index names now in the places of its commit is read. All of it readable: nothing is wrong there.
//!    - What cannot be read gives way: to the displaced extent if that is there, to a hole where there was none before. What lies
//!      behind the old end of the file, where that is known, is left to step 3. What older
//!      commits displaced there does not come back: it was gone before this one.
//!    - That is a commit like any other, with a sync. Displaced extents that the index names again are kept, the others become
//!      messages of the outbox, and the record goes; the record of a file whose end may move goes with step 3.
//! 3. **Cuts** (`cut_unreadable_tails`). Of the files of step 1, and those that step 2 left, what cannot be read behind the old end becomes
//!    a hole; if nothing can be read behind it, and no truncate set a larger size later, the file ends where it ended. The stored bytes of
//!    a file over several members are counted again.
//!
//! A deleted file may be removed meanwhile: its records end, and parts staged for it are dropped.
//!
//! A crash in between does no harm: the next start finds what was put back readable, and named by the index. A file of which a step cannot
//! tell what it has to know, because a member does not answer, keeps its records for the next start. (Only of a file over several members
//! the end may then stay where it was, with a hole before it.)
use super::Shared;
use super::commit::Commit;
use super::parts::{parts, touched};
use super::proto::{CommitAttr, FilesReply, FilesRequest};
use super::records::CommitId;
use crate::outbox::Held;
use crate::{Error, Fid, Layout, Member, Result};
use forebay_index::{Change, Extent, MAX_EXTENT};
use forebay_storage::Batch;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::ops::Range;

/// Extents asked for at once.
const PAGE: u32 = 1024;
/// Tokens of these commits are not those of a delegate, which counts from 1.
const TOKENS: u64 = 1 << 63;

/// What is behind the end that a file had, and cannot be read.
pub(super) struct UnreadableTail {
    /// The least size that the file may be cut to.
    size: u64,
    /// The first byte that cannot be read, if one is known.
    start: u64,
    /// Behind the last one.
    end: u64,
    /// Of the commit that cuts it off.
    token: u64,
    /// Records that are not needed once it is cut off, and what is given back then.
    records: Vec<(u64, Vec<Extent>)>,
    /// A step could not tell what it had to know: what is left to do for this file waits for the next start.
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

/// Whether a file is not there any more. One without a name may be removed while it is looked at: then there is nothing to put back, and
/// what was displaced of it is not needed.
fn is_removed(error: &Error) -> bool {
    matches!(error, Error::Posix(Errno::STALE))
}

fn unless_removed(done: Result<()>) -> Result<()> {
    done.or_else(|error| match is_removed(&error) {
        true => Ok(()),
        false => Err(error),
    })
}

impl Shared {
    /// Step 1. All members answer, and have published what was decided.
    pub(super) fn find_unreadable_tails(&self) -> Result<()> {
        self.outbox.begin_restore();
        for (number, held) in self.outbox.left()? {
            if let Err(error) = unless_removed(self.find_unreadable_tail(number, &held)) {
                self.wait_for_next_start(held.fid, number);
                tracing::warn!(fid = held.fid.0, %error, "cannot tell whether a power cut took the end of this file; the next start looks again");
            }
        }
        Ok(())
    }

    fn find_unreadable_tail(&self, number: u64, held: &Held) -> Result<()> {
        let (fid, Some(size)) = (held.fid, held.size) else {
            return Ok(());
        };
        let inode = match self.inodes.get(fid) {
            // Removed since.
            Err(Error::Posix(Errno::STALE)) => return Ok(()),
            inode => inode?,
        };
        if inode.layout == Layout::Spread {
            let mut tails = self.tails.lock();
            tails
                .entry(fid)
                .or_insert_with(|| UnreadableTail::new(number));
        }
        let ends = held.beside.iter().map(|(at, len)| at + len);
        let Some(end) = ends.max().filter(|end| *end > size) else {
            return Ok(());
        };
        let member = match inode.layout {
            Layout::Spread => self.map().member(fid.owner(), end - 1),
            Layout::Fresh | Layout::Patterned => self.member(),
        };
        let (last, published) = self.named_at(member, fid, end - 1..end)?;
        let lacks = published < held.seq;
        if lacks || !self.unreadable(&last)?.is_empty() {
            let mut tails = self.tails.lock();
            let tail = tails.entry(fid);
            let tail = tail.or_insert_with(|| UnreadableTail::new(number));
            // The byte may get back an older one: where the unreadable bytes begin is not known yet.
            tail.add(size, u64::MAX..end);
        }
        Ok(())
    }

    /// Step 2.
    pub(super) fn restore(&self) -> Result<()> {
        let mut put_back = 0;
        for (number, held) in self.outbox.left()?.into_iter().rev() {
            // Older records wait with a newer one: what they put back would pass for what it wrote.
            let tails = self.tails.lock();
            if tails.get(&held.fid).is_some_and(|tail| tail.waits) {
                continue;
            }
            drop(tails);
            match self.restore_held(number, &held) {
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

    fn wait_for_next_start(&self, fid: Fid, number: u64) {
        let mut tails = self.tails.lock();
        let tail = tails.entry(fid);
        tail.or_insert_with(|| UnreadableTail::new(number)).waits = true;
    }

    /// Step 3.
    pub(super) fn cut_unreadable_tails(&self) -> Result<()> {
        let tails = std::mem::take(&mut *self.tails.lock());
        for (fid, tail) in tails.into_iter().filter(|(_, tail)| !tail.waits) {
            let cut = self.cut_tail(fid, &tail);
            match unless_removed(cut.and_then(|()| self.count_stored(fid))) {
                Ok(()) => {
                    let mut batch = Batch::reclaiming();
                    for (number, freed) in &tail.records {
                        self.outbox.settle(&mut batch, *number, freed);
                    }
                    self.store.apply(batch)?;
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
    fn restore_held(&self, number: u64, held: &Held) -> Result<u64> {
        let fid = held.fid;
        let displaced = held.extents.iter().map(|e| e.offset..e.end());
        let beside = held.beside.iter().map(|(at, len)| *at..at + len);
        let (mut changes, mut bytes) = (Vec::new(), 0);
        let mut ranges = joined(displaced.chain(beside).collect());
        let known = self.tails.lock().get(&fid).map(|tail| tail.start);
        if let Some(start) = known {
            ranges = without(ranges, std::iter::once(start..u64::MAX));
        }
        for range in ranges {
            let now = match self.named_in(fid, range.clone()) {
                Ok(now) => now,
                // Removed since: there is nothing to put back.
                Err(Error::Posix(Errno::STALE)) => break,
                Err(e) => return Err(e),
            };
            for lost in self.unreadable(&now)? {
                let whole = std::iter::once(lost.offset..lost.end());
                let older = held.extents.iter();
                let older: Vec<Extent> = older
                    .filter_map(|e| e.clip(&(lost.offset..lost.end())))
                    .collect();
                let holes = without(whole.collect(), older.iter().map(|e| e.offset..e.end()));
                let gone = self.unreadable(&older)?;
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
                        let mut tails = self.tails.lock();
                        let tail = tails.entry(fid);
                        let tail = tail.or_insert_with(|| UnreadableTail::new(number));
                        tail.add(size, hole.start.max(size)..hole.end);
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
            let now = match self.named_in(fid, whole.clone()) {
                Ok(now) => now,
                Err(Error::Posix(Errno::STALE)) => Vec::new(),
                Err(e) => return Err(e),
            };
            let same = |e: &&Extent| {
                (e.member, e.log) == (extent.member, extent.log)
                    && e.addr.wrapping_sub(e.offset) == extent.addr.wrapping_sub(extent.offset)
            };
            let kept = now.iter().filter(same).map(|e| e.offset..e.end());
            let parts = without(std::iter::once(whole).collect(), kept);
            freed.extend(parts.iter().filter_map(|range| extent.clip(range)));
        }
        if let Some(tail) = self.tails.lock().get_mut(&fid) {
            tail.records.push((number, freed));
            return Ok(bytes);
        }
        let mut batch = Batch::reclaiming();
        self.outbox.settle(&mut batch, number, &freed);
        self.store.apply(batch)?;
        Ok(bytes)
    }

    /// Cuts off the end of a file that cannot be read, down to what can.
    fn cut_tail(&self, fid: Fid, tail: &UnreadableTail) -> Result<()> {
        let inode = match self.inodes.get(fid) {
            Err(Error::Posix(Errno::STALE)) => return Ok(()),
            inode => inode?,
        };
        let from = tail.size.min(tail.start);
        if inode.size <= from {
            return Ok(());
        }
        let members = match inode.layout {
            Layout::Spread => touched(self.map(), fid.owner(), from, inode.size),
            Layout::Fresh | Layout::Patterned => vec![self.member()],
        };
        let mut now = Vec::new();
        for member in members {
            now.extend(self.named_at(member, fid, from..inode.size)?.0);
        }
        let lost = self.unreadable(&now)?;
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
    fn count_stored(&self, fid: Fid) -> Result<()> {
        let _busy = self.busy(fid)?;
        let stored = || -> Result<u64> {
            let (mut members, mut stored) = (self.span(fid)?, 0);
            members.push(self.member());
            for member in members {
                self.named_pages(member, fid, 0..u64::MAX, |page| {
                    stored += super::commit::total(page);
                })?;
            }
            Ok(stored)
        };
        match self.inodes.get(fid) {
            Ok(inode) if inode.layout == Layout::Spread => {}
            Ok(_) | Err(Error::Posix(Errno::STALE)) => return Ok(()),
            Err(e) => return Err(e),
        }
        let bytes = stored()?;
        let _inode = self.inodes.lock(fid);
        let mut inode = self.inodes.get(fid)?;
        if inode.bytes == bytes {
            return Ok(());
        }
        inode.bytes = bytes;
        let mut batch = super::reclaiming();
        self.inodes.put(&mut batch, fid, &inode);
        Ok(self.store.apply(batch)?)
    }

    /// Commits changes of the slices that are kept here; the file's owner, of all slices.
    fn commit_restored(
        &self,
        fid: Fid,
        token: u64,
        changes: Vec<Change>,
        size: Option<u64>,
    ) -> Result<()> {
        let id = CommitId {
            fid,
            writer: self.member(),
            token,
        };
        let attr = CommitAttr {
            size,
            ..CommitAttr::default()
        };
        let owner = fid.owner();
        let (own, staged) = if owner == self.member() {
            self.stage_elsewhere(id, changes)?
        } else {
            self.stage(id, &changes, true)?;
            (Vec::new(), vec![self.member()])
        };
        let reply = if owner == self.member() {
            self.commit(Commit {
                id,
                own,
                patterns: Vec::new(),
                staged: staged.clone(),
                attr,
                sync: true,
            })
        } else {
            let request = FilesRequest::Commit {
                fid,
                token,
                own,
                patterns: Vec::new(),
                staged: staged.clone(),
                attr,
                sync: true,
            };
            self.links.files(owner, request)
        };
        match reply {
            Ok(FilesReply::Committed { .. }) => Ok(()),
            Ok(other) => Err(super::unexpected(owner, &other)),
            Err(error) => {
                if is_removed(&error) {
                    self.drop_restored(id, staged)?;
                }
                Err(error)
            }
        }
    }

    /// The file was removed before the commit: what was staged for it goes too.
    fn drop_restored(&self, id: CommitId, staged: Vec<Member>) -> Result<()> {
        let CommitId { fid, writer, token } = id;
        for member in staged {
            if member == self.member() {
                self.give_up(id)?;
            } else {
                let request = FilesRequest::Drop { fid, writer, token };
                self.links.files(member, request)?;
            }
        }
        Ok(())
    }

    /// Stages the parts that other members have of changes to a file of this member. Answers the own part, and those members.
    fn stage_elsewhere(
        &self,
        id: CommitId,
        changes: Vec<Change>,
    ) -> Result<(Vec<Change>, Vec<Member>)> {
        let inode = self.inodes.get(id.fid)?;
        if inode.layout != Layout::Spread {
            return Ok((changes, Vec::new()));
        }
        let (mut own, mut staged) = (Vec::new(), Vec::new());
        for part in parts(self.map(), self.member(), &changes, inode.size) {
            if part.member == self.member() {
                own = part.changes;
                continue;
            }
            let request = FilesRequest::Stage {
                fid: id.fid,
                token: id.token,
                changes: part.changes,
                sync: true,
            };
            self.links.files(part.member, request)?;
            staged.push(part.member);
        }
        Ok((own, staged))
    }

    /// What this member's index names in a range now, in pieces.
    fn named_in(&self, fid: Fid, range: Range<u64>) -> Result<Vec<Extent>> {
        Ok(self.named_at(self.member(), fid, range)?.0)
    }

    /// What a member's index names in a range now, in pieces, and the last sequence that is published there.
    fn named_at(&self, member: Member, fid: Fid, range: Range<u64>) -> Result<(Vec<Extent>, u64)> {
        let mut all = Vec::new();
        let published = self.named_pages(member, fid, range, |page| all.extend_from_slice(page))?;
        Ok((all, published))
    }

    /// Hands `each` what a member's index names in a range now, a page at a time; answers the last sequence that is published there.
    fn named_pages(
        &self,
        member: Member,
        fid: Fid,
        range: Range<u64>,
        mut each: impl FnMut(&[Extent]),
    ) -> Result<u64> {
        let mut from = range.start;
        loop {
            let reply = match member == self.member() {
                true => self.extents(fid, from, range.end, PAGE)?,
                false => {
                    let request = FilesRequest::Extents {
                        fid,
                        start: from,
                        end: range.end,
                        limit: PAGE,
                    };
                    self.links.files(member, request)?
                }
            };
            let FilesReply::Extents {
                extents,
                more,
                published,
            } = reply
            else {
                return Err(super::unexpected(member, &reply));
            };
            let page: Vec<Extent> = extents.iter().filter_map(|e| e.clip(&range)).collect();
            each(&page);
            match extents.last() {
                Some(last) if more && last.end() > from => from = last.end(),
                _ => return Ok(published),
            }
        }
    }

    /// Which of these cannot be read.
    fn unreadable(&self, extents: &[Extent]) -> Result<Vec<Extent>> {
        let mut members: BTreeMap<_, Vec<Extent>> = BTreeMap::new();
        for extent in extents {
            debug_assert!(extent.len <= MAX_EXTENT);
            members.entry(extent.member).or_default().push(*extent);
        }
        let mut lost = Vec::new();
        for (member, extents) in members {
            let ranges = extents.iter().map(|e| (e.log, e.addr, e.len)).collect();
            let readable = self.links.readable(member, ranges)?;
            let pairs = extents.into_iter().zip(readable);
            lost.extend(pairs.filter(|(_, whole)| !whole).map(|(e, _)| e));
        }
        lost.sort_unstable_by_key(|e| e.offset);
        Ok(lost)
    }
}

/// Sorted ranges that do not touch each other.
fn joined(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.sort_unstable_by_key(|r| r.start);
    let mut joined: Vec<Range<u64>> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match joined.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => joined.push(range),
        }
    }
    joined
}

/// The ranges without what `taken` covers.
fn without(
    mut ranges: Vec<Range<u64>>,
    taken: impl Iterator<Item = Range<u64>>,
) -> Vec<Range<u64>> {
    for t in taken {
        let parts = ranges.into_iter().flat_map(|r| {
            [
                r.start..r.end.min(t.start.max(r.start)),
                r.start.max(t.end.min(r.end))..r.end,
            ]
        });
        ranges = parts.filter(|r| r.start < r.end).collect();
    }
    ranges
}
