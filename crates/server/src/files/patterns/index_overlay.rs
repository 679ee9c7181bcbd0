//! Reads the extents of the index that lie over patterns, a page at a time, so that few of them are in memory.
//!
//! Most files have less than a page of them. For others the page around the last lookup is kept. So lookups in file order read each
//! page once; lookups backwards read some pages again.
use crate::{Error, Fid, Result};
use forebay_index::{Extent, ExtentIndex};
use forebay_pattern::PlacedExtent;
use std::ops::Range;

/// Extents of a page. Few in tests, so that small histories turn pages.
const PAGE: usize = if cfg!(test) { 3 } else { 4096 };

/// The first extents of a range, in order, and whether these are all.
pub(super) type ReadPage<'a> = dyn Fn(Range<u64>) -> Result<(Vec<Extent>, bool)> + 'a;

/// A page of the extents of a file.
pub(super) fn read_page(
    index: &ExtentIndex,
    fid: Fid,
    range: Range<u64>,
) -> Result<(Vec<Extent>, bool)> {
    let page = index.get(fid.0, range, PAGE)?;
    let all = page.len() < PAGE;
    Ok((page, all))
}

/// See the head of this file.
pub(super) struct IndexOverlay<'a> {
    read: &'a ReadPage<'a>,
    bounds: Range<u64>,
    /// What `extents` are all of.
    window: Range<u64>,
    extents: Vec<Extent>,
    failed: Option<Error>,
}

impl<'a> IndexOverlay<'a> {
    /// Those in `bounds`; nobody asks for others.
    pub(super) fn new(read: &'a ReadPage<'a>, bounds: Range<u64>) -> IndexOverlay<'a> {
        IndexOverlay {
            read,
            window: bounds.start..bounds.start,
            bounds,
            extents: Vec::new(),
            failed: None,
        }
    }

    /// The extents around `at`, and an offset after it up to where they are all.
    pub(super) fn at(&mut self, at: u64) -> Result<(&[Extent], u64)> {
        if !self.window.contains(&at) {
            let back = self.window.end - self.window.start;
            let from = match at < self.window.start {
                true => at.saturating_sub(back).max(self.bounds.start),
                false => at,
            };
            self.load(from)?;
            if self.window.end <= at {
                self.load(at)?;
            }
        }
        Ok((&self.extents, self.window.end))
    }

    fn load(&mut self, from: u64) -> Result<()> {
        let end = self.bounds.end.max(from.saturating_add(1));
        let (extents, all) = (self.read)(from..end)?;
        let until = match extents.last() {
            Some(last) if !all => last.end().min(end),
            _ => end,
        };
        (self.window, self.extents) = (from..until, extents);
        Ok(())
    }

    /// Calls `each` with what of `piece` lies under none. An error is kept for `done`.
    pub(super) fn uncovered(&mut self, piece: PlacedExtent, each: &mut impl FnMut(PlacedExtent)) {
        let (mut at, end) = (piece.offset, piece.end());
        while at < end && self.failed.is_none() {
            match self.at(at) {
                Ok((extents, until)) => {
                    let until = until.min(end);
                    let part = PlacedExtent {
                        offset: at,
                        len: until - at,
                        addr: piece.addr + (at - piece.offset),
                        ..piece
                    };
                    uncovered(extents, part, each);
                    at = until;
                }
                Err(error) => self.failed = Some(error),
            }
        }
    }

    /// The first error there was.
    pub(super) fn done(self) -> Result<()> {
        self.failed.map_or(Ok(()), Err)
    }
}

/// Calls `each` with what of `piece` lies under none of these extents (in order, apart).
fn uncovered(over: &[Extent], piece: PlacedExtent, each: &mut impl FnMut(PlacedExtent)) {
    let end = piece.offset + piece.len;
    let mut at = piece.offset;
    let mut part = |from: u64, to: u64| {
        if from < to {
            each(PlacedExtent {
                offset: from,
                len: to - from,
                addr: piece.addr + (from - piece.offset),
                ..piece
            });
        }
    };
    let first = over.partition_point(|e| e.end() <= at);
    for e in over[first..].iter().take_while(|e| e.offset < end) {
        part(at, e.offset.min(end));
        at = at.max(e.end());
    }
    part(at, end);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn pages_say_what_all_extents_say(
            lens in prop::collection::vec((1u64..9, 1u64..9), 0..40),
            pieces in prop::collection::vec((0u64..300, 1u64..60), 1..12),
        ) {
            let (mut all, mut at) = (Vec::new(), 0);
            for (gap, len) in lens {
                all.push(Extent { offset: at + gap - 1, len, member: 0, log: 0, addr: 0, seq: 0 });
                at += gap - 1 + len;
            }
            let read = |range: Range<u64>| {
                let found = all.iter().filter(|e| e.offset < range.end && range.start < e.end());
                let page: Vec<Extent> = found.copied().take(PAGE).collect();
                let all = page.len() < PAGE;
                Ok((page, all))
            };
            let mut over = IndexOverlay::new(&read, 0..400);
            for (offset, len) in pieces {
                let piece = PlacedExtent { offset, len, source: Default::default(), addr: 7 + offset, sequence: 1 };
                let (mut want, mut found) = (Vec::new(), Vec::new());
                let bytes = |p: PlacedExtent| (0..p.len).map(move |i| (p.offset + i, p.addr + i));
                uncovered(&all, piece, &mut |p| want.extend(bytes(p)));
                over.uncovered(piece, &mut |p| found.extend(bytes(p)));
                prop_assert_eq!(found, want);
            }
            prop_assert!(over.done().is_ok());
        }
    }
}
