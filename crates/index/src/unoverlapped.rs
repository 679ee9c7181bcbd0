//! Finds the pieces of a change that overlap no stored extent. As a rule these are all of them, and the coverage in memory proves
//! it ([`coverage`](crate::coverage)).
use crate::ExtentIndex;
use crate::coverage::{KnownPieces, PAGE};
use crate::get::{SECOND_SEARCH, extents};
use crate::overlay::OverlayPiece;
use forebay_storage::Result;
use std::ops::Bound;

/// Extents of a page that are read to know it, at most.
const MAX_PAGE_RECORDS: usize = 4096;

impl ExtentIndex {
    /// For each piece whether it is free: nothing stored overlaps it, or joins with it.
    pub(crate) fn unoverlapped(&self, fid: u64, pieces: &[OverlayPiece]) -> Result<Vec<bool>> {
        let coverage = self.engine.coverage();
        let ranges = || pieces.iter().map(|p| (p.start, p.end, p.source.as_ref()));
        let mut look = coverage.known_pieces(fid, ranges());
        if let KnownPieces::Nothing = look {
            self.begin(fid)?;
            look = coverage.known_pieces(fid, ranges());
        }
        if let KnownPieces::Known(_, pages) = &look
            && !pages.is_empty()
        {
            for page in pages {
                self.load(fid, *page)?;
            }
            look = coverage.known_pieces(fid, ranges());
        }
        let mut free = match look {
            KnownPieces::Known(free, _) => free,
            // Forgotten again.
            KnownPieces::Nothing => vec![false; pieces.len()],
        };
        between(pieces, &mut free);
        let hits = free.iter().filter(|free| **free).count();
        coverage.count(hits, free.len() - hits);
        Ok(free)
    }

    /// The same for a file of which nothing is stored. It is followed as other files are.
    pub(crate) fn all_free(&self, fid: u64, pieces: &[OverlayPiece]) -> Result<Vec<bool>> {
        let coverage = self.engine.coverage();
        let ranges = pieces.iter().map(|p| (p.start, p.end, p.source.as_ref()));
        if let KnownPieces::Nothing = coverage.known_pieces(fid, ranges) {
            let (version, ()) = coverage.begin(fid, || ());
            coverage.start_empty(fid, version);
        }
        coverage.count(pieces.len(), 0);
        Ok(vec![true; pieces.len()])
    }

    /// Follows `fid` from now on.
    fn begin(&self, fid: u64) -> Result<()> {
        let coverage = self.engine.coverage();
        let (version, view) = coverage.begin(fid, || self.engine.view());
        let first = extents(&view, fid, 0, Bound::Unbounded)?.next();
        if first.transpose()?.is_none() {
            coverage.start_empty(fid, version);
        }
        Ok(())
    }

    /// Reads the extents of a page.
    fn load(&self, fid: u64, page: u64) -> Result<()> {
        let coverage = self.engine.coverage();
        let (version, view) = coverage.begin(fid, || self.engine.view());
        let start = page * PAGE;
        let end = start.saturating_add(PAGE);
        let (mut found, mut next) = (Vec::new(), None);
        for extent in self.extents_at(&view, fid, start, Bound::Unbounded)? {
            let extent = extent?;
            if extent.offset >= end {
                next = Some(extent.offset);
                break;
            }
            if found.len() == MAX_PAGE_RECORDS {
                coverage.load_page(fid, version, page, None);
                return Ok(());
            }
            found.extend(Some(extent).filter(|e| e.end() > start));
        }
        coverage.load_page(fid, version, page, Some((&found, next)));
        Ok(())
    }
}

/// Free pieces that lie close between two others count as these: one scan is to read the neighbourhood once.
fn between(pieces: &[OverlayPiece], free: &mut [bool]) {
    let mut last: Option<usize> = None;
    for i in 0..pieces.len() {
        if free[i] {
            continue;
        }
        if let Some(last) = last.filter(|last| pieces[i].start - pieces[*last].end <= SECOND_SEARCH)
        {
            free[last + 1..i].fill(false);
        }
        last = Some(i);
    }
}
