//! Changing a file's extents: a batch of puts and cuts over what is stored.
//!
//! The batch is first reduced to pieces that do not overlap ([`fold`]). Pieces that overlap no stored extent are written as they
//! are; the coverage in memory nearly always tells which (`unoverlapped`). The others are laid over the stored extents group by
//! group: a group is pieces that are near each other, or that one stored extent connects. The extents stored there are read by
//! range scans, and only the differences to these are written, in key order.

use crate::csm::engine::View;
use crate::csm::{Key, Record};
use crate::extent::{MAX_EXTENT, SLICE};
use crate::get::{SECOND_SEARCH, extents};
use crate::overlay::{OverlayPiece, fold};
use crate::{Extent, ExtentIndex};
use forebay_storage::{Batch, Result};
use serde::{Deserialize, Serialize};
use std::ops::Bound;

/// One change of a file's extents; changes of a batch apply in order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Change {
    /// These bytes now come from a log. Any length; what lies beyond `u64::MAX` is dropped.
    Put(Extent),
    /// These bytes are a hole now.
    Cut {
        /// First byte of the hole.
        start: u64,
        /// The offset after its last byte; may be `u64::MAX` (truncate).
        end: u64,
    },
}

impl ExtentIndex {
    /// Adds to `batch` what makes `changes` true for file `fid`, and returns the pieces of older extents that
    /// no byte of the file uses any more. The caller serialises changes of one file and applies the batch.
    ///
    /// Later changes win over earlier ones, and all of them over what is stored; changes of the same file that wait
    /// unapplied in `batch` are not seen. Returned are stored extents and earlier puts of this batch, in parts, each
    /// log byte once, by log and address. A put of log bytes that already stand at their place displaces nothing.
    ///
    /// # Errors
    /// Those of reading the store. `batch` may then hold a part of the changes: do not apply it.
    pub fn change(&self, batch: &mut Batch, fid: u64, changes: &[Change]) -> Result<Vec<Extent>> {
        self.apply_changes(batch, fid, changes, Self::unoverlapped)
    }

    /// The same for a file of which nothing was ever stored here: no stored record is looked at. That is the common small file, which
    /// is written once.
    ///
    /// # Errors
    /// As [`change`](ExtentIndex::change).
    pub fn change_first(
        &self,
        batch: &mut Batch,
        fid: u64,
        changes: &[Change],
    ) -> Result<Vec<Extent>> {
        self.apply_changes(batch, fid, changes, Self::all_free)
    }

    /// Applies changes to the stored extents. `free`: for each piece, whether no stored extent overlaps it or joins with it.
    fn apply_changes(
        &self,
        batch: &mut Batch,
        fid: u64,
        changes: &[Change],
        free: impl Fn(&Self, u64, &[OverlayPiece]) -> Result<Vec<bool>>,
    ) -> Result<Vec<Extent>> {
        let (pieces, mut displaced) = fold(changes);
        let free = free(self, fid, &pieces)?;
        let mut records = Vec::with_capacity(pieces.len());
        let mut view = None;
        let mut at = 0;
        while at < pieces.len() {
            let same = free[at..].iter().take_while(|f| **f == free[at]).count();
            let mut rest = &pieces[at..at + same];
            if free[at] {
                for source in rest.iter().filter_map(|piece| piece.source) {
                    match source.is_one_part() {
                        true => records.push(Record::put(fid, &source)),
                        false => records.extend(source.parts().map(|e| Record::put(fid, &e))),
                    }
                }
                at += same;
                continue;
            }
            at += same;
            let view = view.get_or_insert_with(|| self.engine.view());
            while !rest.is_empty() {
                let (group, old) = self.group(view, fid, rest)?;
                let new = overlay_run(&old, group, &mut displaced);
                write_differences(fid, &old, &new, &mut records);
                rest = &rest[group.len()..];
            }
        }
        self.engine.add(batch, records);
        Ok(each_once(displaced))
    }

    /// The first group of `pieces`, and the stored extents that overlap its range or touch its ends. None of these
    /// reaches or touches the piece after the group.
    fn group<'a>(
        &self,
        view: &View,
        fid: u64,
        pieces: &'a [OverlayPiece],
    ) -> Result<(&'a [OverlayPiece], Vec<Extent>)> {
        let mut old: Vec<Extent> = Vec::new();
        let mut count = 0;
        while let Some(next) = pieces.get(count) {
            // Later pieces join the group only if a stored extent reaches from it to them.
            if count > 0 && old.last().is_none_or(|last| last.end() < next.start) {
                break;
            }
            let near = near_pieces(&pieces[count..]);
            let end = near.last().map_or(next.end, |last| last.end);
            let to = Bound::Included(end);
            if count == 0 {
                // One byte before the start, to find the extent that ends just there.
                let at = next.start.saturating_sub(1);
                for extent in self.extents_at(view, fid, at, to)? {
                    old.extend(Some(extent?).filter(|e| e.end() >= next.start));
                }
            } else {
                // What starts at the end of the piece before was seen with it.
                let unseen = pieces[count - 1].end.checked_add(1);
                for extent in unseen
                    .map(|from| extents(view, fid, from, to))
                    .transpose()?
                    .into_iter()
                    .flatten()
                {
                    old.push(extent?);
                }
            }
            count += near.len();
        }
        Ok((&pieces[..count], old))
    }
}

/// Appends what makes `new` of `old` to `records`.
fn write_differences(fid: u64, old: &[Extent], new: &[Extent], records: &mut Vec<Record>) {
    let delete = |gone: &Extent| {
        let offset = gone.offset;
        Record::delete(Key { fid, offset })
    };
    let mut old = old.iter().peekable();
    for extent in new {
        while let Some(gone) = old.next_if(|o| o.offset < extent.offset) {
            records.push(delete(gone));
        }
        if old.next_if(|o| o.offset == extent.offset) != Some(extent) {
            records.push(Record::put(fid, extent));
        }
    }
    records.extend(old.map(delete));
}

/// The first pieces of `pieces` that are not more than [`SECOND_SEARCH`] apart. They share a scan: separate scans would look that
/// far back, and read the gap as well.
fn near_pieces(pieces: &[OverlayPiece]) -> &[OverlayPiece] {
    let near = pieces
        .chunk_by(|a, b| b.start - a.end <= SECOND_SEARCH)
        .next();
    near.unwrap_or_default()
}

/// The extents after `run` is laid over `old`, ready to be stored; displaced parts of `old` go to `displaced`.
fn overlay_run(old: &[Extent], run: &[OverlayPiece], displaced: &mut Vec<Extent>) -> Vec<Extent> {
    let mut out = JoinedExtents::default();
    let mut olds = old.iter().copied();
    let mut left = olds.next();
    for piece in run {
        while let Some(extent) = left.filter(|e| e.offset < piece.end) {
            if let Some(before) = extent.clip(&(0..piece.start)) {
                out.push(before, false);
            }
            let covered = extent.clip(&(piece.start..piece.end));
            displaced.extend(covered.filter(|e| !piece.keeps_log_bytes(e)));
            left = extent.clip(&(piece.end..u64::MAX));
            if left.is_some() {
                break;
            }
            left = olds.next();
        }
        for part in piece.source.into_iter().flat_map(Extent::parts) {
            out.push(part, true);
        }
    }
    for extent in left.into_iter().chain(olds) {
        out.push(extent, false);
    }
    out.extents
}

/// Extents in order; a new one and its neighbour become one where the limits allow it.
#[derive(Default)]
struct JoinedExtents {
    extents: Vec<Extent>,
    last_is_new: bool,
}

impl JoinedExtents {
    fn push(&mut self, extent: Extent, new: bool) {
        if let Some(last) = self.extents.last_mut() {
            let joinable = (new || self.last_is_new)
                && last.continues_with(&extent)
                && last.len + extent.len <= MAX_EXTENT
                && !extent.offset.is_multiple_of(SLICE);
            if joinable {
                last.len += extent.len;
                self.last_is_new = true;
                return;
            }
        }
        self.extents.push(extent);
        self.last_is_new = new;
    }
}

/// The same log bytes without repetition, neighbours of one commit joined.
fn each_once(mut extents: Vec<Extent>) -> Vec<Extent> {
    extents.sort_unstable_by_key(|e| (e.member, e.log, e.addr, e.offset));
    let mut out: Vec<Extent> = Vec::with_capacity(extents.len());
    for extent in extents {
        let Some(last) = out.last_mut().filter(|l| l.same_bytes(&extent)) else {
            out.push(extent);
            continue;
        };
        let Some(rest) = extent.clip(&(last.end()..u64::MAX)) else {
            continue;
        };
        if last.continues_with(&rest) {
            last.len += rest.len;
        } else {
            out.push(rest);
        }
    }
    out
}
