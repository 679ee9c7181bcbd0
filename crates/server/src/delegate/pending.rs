//! Writes of this node that no other node can see yet: one layer of a file's content above what is committed.
//!
//! Later local writes win at once, so a layer holds each byte of the file at most once and its changes may be published
//! in any order. Bytes that a later write covers before they were published are collected in `dropped`, to be freed.
use super::intervals::{ByteSource, Intervals};
use crate::{Error, Result, Time};
use forebay_data::{LogId, LogRange};
use forebay_index::{Change, Extent};
use forebay_proto::files::CommitAttr;
use rustix::io::Errno;
use std::ops::Range;

/// The end of the largest file, bytes.
pub const MAX_FILE_SIZE: u64 = i64::MAX as u64;

/// The end of a write of `len` bytes at `offset`; `EFBIG` if no file may reach there.
pub fn write_end(offset: u64, len: usize) -> Result<u64> {
    let end = offset.checked_add(len as u64);
    let end = end.filter(|end| *end <= MAX_FILE_SIZE);
    end.ok_or(Error::Posix(Errno::FBIG))
}

/// One layer of pending changes.
#[derive(Debug, Clone, Default)]
pub struct PendingLayer {
    /// Where the changed bytes are; a [`ByteSource::Hole`] is a punched hole.
    pub intervals: Intervals,
    /// What the layer says of the attributes (never an exact size).
    pub attr: CommitAttr,
    /// Log bytes that a later write of this layer replaced.
    pub dropped: Vec<LogRange>,
}

impl PendingLayer {
    /// Whether there is nothing to publish.
    pub fn is_empty(&self) -> bool {
        self.intervals.is_empty() && self.attr == CommitAttr::default()
    }

    /// These bytes come from here now.
    pub fn put(&mut self, range: Range<u64>, source: ByteSource) {
        let dropped = &mut self.dropped;
        self.intervals
            .insert(range, source, |r, s| drop_bytes(dropped, r, s));
    }

    /// The file reaches at least `end`.
    pub fn extend_to(&mut self, end: u64) {
        self.attr.end = self.attr.end.max(Some(end));
    }

    /// The end of the file that this layer alone makes; 0 if it says nothing.
    pub fn end(&self) -> u64 {
        self.attr.end.unwrap_or(0)
    }

    /// Adds a layer above this one (its changes are later).
    pub fn absorb(&mut self, later: PendingLayer) {
        for (range, source) in later.intervals.iter() {
            self.put(range, source);
        }
        self.attr.end = self.attr.end.max(later.attr.end);
        self.attr.mtime = later.attr.mtime.or(self.attr.mtime);
        self.attr.clear_setid |= later.attr.clear_setid;
        self.dropped.extend(later.dropped);
    }

    /// The time of the last write.
    pub fn touch(&mut self, now: Time) {
        self.attr.mtime = self.attr.mtime.max(Some(now));
    }

    /// The logs that the layer names, each once.
    pub fn logs(&self) -> Vec<LogId> {
        let mut logs: Vec<LogId> = Vec::new();
        for (_, source) in self.intervals.iter() {
            if let ByteSource::Log { log, .. } = source
                && logs.last() != Some(&log)
            {
                logs.push(log);
            }
        }
        logs.sort_unstable();
        logs.dedup();
        logs
    }

    /// What to publish, for bytes below `limit` only.
    pub fn changes(&self, limit: u64) -> Vec<Change> {
        let changes = self
            .intervals
            .get(0..limit)
            .map(|(range, source)| match source {
                ByteSource::Log { member, log, addr } => Change::Put(Extent {
                    offset: range.start,
                    len: range.end - range.start,
                    member,
                    log,
                    addr,
                    seq: 0,
                }),
                ByteSource::Hole => Change::Cut {
                    start: range.start,
                    end: range.end,
                },
            });
        changes.collect()
    }

    /// The log bytes at and above file offset `limit`.
    pub fn above(&self, limit: u64) -> Vec<LogRange> {
        let mut ranges = Vec::new();
        self.intervals
            .get(limit..u64::MAX)
            .for_each(|(r, s)| drop_bytes(&mut ranges, r, s));
        ranges
    }
}

/// A layer's own member never changes, so only log and address are kept.
fn drop_bytes(dropped: &mut Vec<LogRange>, range: Range<u64>, source: ByteSource) {
    if let ByteSource::Log { log, addr, .. } = source {
        dropped.push((log, addr..addr + (range.end - range.start)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_write_wins_and_frees_what_it_covers() {
        let mut layer = PendingLayer::default();
        layer.put(0..100, ByteSource::log(1, 7, 1000));
        layer.put(40..60, ByteSource::log(1, 8, 0));
        assert_eq!(layer.dropped, vec![(7, 1040..1060)]);
        assert_eq!(layer.changes(u64::MAX).len(), 3);
        assert_eq!(layer.logs(), vec![7, 8]);
    }

    #[test]
    fn clipping_splits_changes_from_bytes_nobody_will_name() {
        let mut layer = PendingLayer::default();
        layer.put(0..100, ByteSource::log(1, 7, 0));
        let changes = layer.changes(30);
        assert_eq!(
            changes,
            vec![Change::Put(Extent {
                offset: 0,
                len: 30,
                member: 1,
                log: 7,
                addr: 0,
                seq: 0
            })]
        );
        assert_eq!(layer.above(30), vec![(7, 30..100)]);
    }

    #[test]
    fn a_layer_put_back_under_a_newer_one_keeps_the_newer_bytes() {
        let mut older = PendingLayer::default();
        older.put(0..10, ByteSource::log(1, 1, 0));
        older.extend_to(10);
        let mut newer = PendingLayer::default();
        newer.put(5..15, ByteSource::log(1, 2, 0));
        newer.extend_to(15);
        older.absorb(newer);
        let all: Vec<_> = older.intervals.iter().collect();
        assert_eq!(
            all,
            vec![
                (0..5, ByteSource::log(1, 1, 0)),
                (5..15, ByteSource::log(1, 2, 0))
            ]
        );
        assert_eq!(older.end(), 15);
        assert_eq!(older.dropped, vec![(1, 5..10)]);
    }
}
