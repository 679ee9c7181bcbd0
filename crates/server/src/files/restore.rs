//! After a power cut: bytes that a commit without a sync displaced come back where the new ones did not reach the disk.
//!
//! The records that `outbox/displaced` left are looked at from the newest to the oldest, each like this:
//! 1. What the index names now in the places of its commit is read. All of it readable: nothing is wrong there.
//! 2. What cannot be read gives way: to the displaced extent if that is there, to a hole where there was none before. If it lies
//!    behind the old end of the file it is cut off, or becomes a hole if something behind it can be read. What older
//!    commits displaced there does not come back: it was gone before this one.
//! 3. That is a commit like any other, with a sync. Displaced extents that the index names again are kept, the others become messages
//!    of the outbox, and the record goes.
//!
//! A crash in between does no harm: the next start finds what was put back readable, and named by the index.
//! A member that cannot be asked leaves its records for the next start.
use super::Shared;
use super::commit::Commit;
use super::proto::{CommitAttr, FilesReply, FilesRequest};
use super::records::CommitId;
use crate::outbox::Held;
use crate::{Error, Fid, Layout, Result};
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
struct UnreadableTail {
    /// The least size that the file may be cut to.
    size: u64,
    start: u64,
    token: u64,
}

impl Shared {
    /// See the head of this file. All members answer, and have published what was decided.
    pub(super) fn restore(&self) -> Result<()> {
        let mut tails: BTreeMap<Fid, UnreadableTail> = BTreeMap::new();
        let mut put_back = 0;
        for (number, held) in self.outbox.left()?.into_iter().rev() {
            match self.restore_held(number, &held, &mut tails) {
                Ok(bytes) => put_back += bytes,
                Err(error) => {
                    tracing::warn!(fid = held.fid.0, %error, "cannot tell yet whether a power cut took bytes of this file; the next start looks again");
                }
            }
        }
        for (fid, tail) in tails {
            if let Err(error) = self.cut_tail(fid, &tail) {
                tracing::warn!(fid = fid.0, %error, "bytes behind what was synced of this file cannot be read");
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

    /// Answers how many bytes are as they were before.
    fn restore_held(
        &self,
        number: u64,
        held: &Held,
        tails: &mut BTreeMap<Fid, UnreadableTail>,
    ) -> Result<u64> {
        let fid = held.fid;
        let displaced = held.extents.iter().map(|e| e.offset..e.end());
        let beside = held.beside.iter().map(|(at, len)| *at..at + len);
        let (mut changes, mut bytes) = (Vec::new(), 0);
        let mut ranges = joined(displaced.chain(beside).collect());
        if let Some(tail) = tails.get(&fid) {
            ranges = without(ranges, std::iter::once(tail.start..u64::MAX));
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
                        let start = hole.start.max(size);
                        let token = TOKENS | TOKENS >> 1 | number;
                        let tail =
                            tails
                                .entry(fid)
                                .or_insert(UnreadableTail { size, start, token });
                        tail.size = tail.size.min(size);
                        tail.start = tail.start.min(start);
                    }
                }
            }
        }
        if !changes.is_empty() {
            self.commit_restored(fid, TOKENS | number, changes, None)?;
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
        if inode.layout == Layout::Spread || inode.size <= tail.start {
            return Ok(());
        }
        let now = self.named_in(fid, tail.start..inode.size)?;
        let lost = self.unreadable(&now)?;
        let readable = now.iter().filter(|e| !lost.contains(e)).map(Extent::end);
        let end = readable.max().unwrap_or(tail.start).max(tail.size);
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

    /// Commits changes of the slices that are kept here.
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
        let reply = if owner == self.member() {
            self.commit(Commit {
                id,
                own: changes,
                patterns: Vec::new(),
                staged: Vec::new(),
                attr,
                sync: true,
            })?
        } else {
            self.stage(id, &changes, true)?;
            let request = FilesRequest::Commit {
                fid,
                token,
                own: Vec::new(),
                patterns: Vec::new(),
                staged: vec![self.member()],
                attr,
                sync: true,
            };
            self.links.files(owner, request)?
        };
        match reply {
            FilesReply::Committed { .. } => Ok(()),
            other => Err(super::unexpected(owner, &other)),
        }
    }

    /// What the index names in a range now, in pieces.
    fn named_in(&self, fid: Fid, range: Range<u64>) -> Result<Vec<Extent>> {
        let (mut all, mut from) = (Vec::new(), range.start);
        loop {
            let reply = self.extents(fid, from, range.end, PAGE)?;
            let FilesReply::Extents { extents, more, .. } = reply else {
                return Err(super::unexpected(self.member(), &reply));
            };
            all.extend(extents.iter().filter_map(|e| e.clip(&range)));
            match extents.last() {
                Some(last) if more && last.end() > from => from = last.end(),
                _ => return Ok(all),
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
