//! The stored bytes of one slice, as far as they are known: its pages of 1 MiB. Slices of equal content may share it.
//!
//! When many processes write a checkpoint in turns, each commit adds bytes at the same places of each slice. Slices that
//! were equal before such a commit are equal after it, so one copy serves all of them: a [`SliceStep`] caches, for a
//! slice before and a commit, the slice after.
//!
//! Invariant: the memory that a file counts is that of its distinct contents, each counted once.
use super::bits::PAGE;
use super::page::Page;
use crate::extent::SLICE;
use std::sync::Arc;

/// Pages of a slice.
pub const PAGES_PER_SLICE: u64 = SLICE / PAGE;

/// See the head of this file.
#[derive(Debug, Default, Clone)]
pub struct Slice {
    pages: Vec<Page>,
    /// The pages after these: all empty, all full, or all unknown.
    rest: Page,
    /// Memory of the pages, bytes.
    pub bytes: usize,
    /// How many of them are full.
    full: u64,
}

impl Slice {
    /// Of which nothing is known.
    pub fn unknown() -> Slice {
        Slice {
            rest: Page::Unknown,
            ..Slice::default()
        }
    }

    /// Whether it is known that nothing is stored, and no page has been made.
    fn is_empty(&self) -> bool {
        self.pages.is_empty() && matches!(self.rest, Page::Empty)
    }

    /// Brings `pages` to at least this length.
    fn extend(&mut self, pages: usize) {
        if self.pages.len() < pages {
            self.pages.resize(pages, self.rest.clone());
        }
    }

    /// Memory of its pages, counted anew.
    pub fn measured(&self) -> usize {
        let heap: usize = self.pages.iter().map(Page::heap).sum();
        heap + self.pages.capacity() * size_of::<Page>()
    }

    fn measure(&mut self) {
        self.bytes = self.measured();
        let full = self.pages.iter().filter(|page| matches!(page, Page::Full));
        self.full = full.count() as u64;
    }

    /// The page with this number in the slice.
    pub fn page(&self, page: u64) -> &Page {
        self.pages.get(page as usize).unwrap_or(&self.rest)
    }

    /// The bytes from `start` to `end` of the slice are stored now.
    #[inline]
    pub fn add(&mut self, start: u64, end: u64) {
        let mut at = start;
        while at < end {
            let stop = end.min(at - at % PAGE + PAGE);
            let (page, from) = ((at / PAGE) as usize, (at % PAGE) as u32);
            let to = from + (stop - at) as u32;
            // Nearly always the page takes no more memory than before.
            let covered = match self.pages.get_mut(page) {
                Some(Page::Bits(bits)) => bits.cover(from, to),
                _ => None,
            };
            if covered != Some(false) {
                self.cover(page, from, to);
            }
            at = stop;
        }
    }

    fn cover(&mut self, page: usize, start: u32, end: u32) {
        if self.pages.len() <= page {
            if !matches!(self.rest, Page::Empty) {
                return;
            }
            let before = self.pages.capacity();
            self.extend(page + 1);
            self.bytes += (self.pages.capacity() - before) * size_of::<Page>();
        }
        let page = &mut self.pages[page];
        if matches!(page, Page::Full | Page::Unknown) {
            return;
        }
        let before = page.heap();
        page.cover(start, end);
        self.bytes = self.bytes + page.heap() - before;
        self.full += u64::from(matches!(page, Page::Full));
        if self.full == PAGES_PER_SLICE {
            *self = Slice {
                rest: Page::Full,
                ..Slice::default()
            };
        }
    }

    /// From now on nothing is known of this page.
    pub fn forget_page(&mut self, page: usize) {
        match (self.pages.get(page), &self.rest) {
            (None, Page::Empty | Page::Unknown) => return,
            (None, _) => self.extend(PAGES_PER_SLICE as usize),
            _ => {}
        }
        self.pages[page] = Page::Unknown;
        self.measure();
    }

    /// Of the pages from `from` to `to`, those that were unknown turned out to be empty.
    pub fn find_empty(&mut self, from: usize, to: usize) {
        self.extend(to);
        for page in &mut self.pages[from..to] {
            if matches!(page, Page::Unknown) {
                *page = Page::Empty;
            }
        }
        self.measure();
    }
}

/// A slice of a file.
#[derive(Debug, Default)]
pub struct CachedSlice {
    /// What is known of it.
    pub slice: Arc<Slice>,
    /// When it was used last.
    pub used: u64,
}

impl CachedSlice {
    /// Changes what is known; `bytes` counts it.
    pub fn change(&mut self, bytes: &mut usize, change: impl FnOnce(&mut Slice)) {
        let shared = Arc::strong_count(&self.slice) > 1;
        let before = if shared { 0 } else { self.slice.bytes };
        let slice = Arc::make_mut(&mut self.slice);
        if shared {
            // A copy has no room to spare.
            slice.measure();
        }
        change(slice);
        *bytes = *bytes + slice.bytes - before;
    }

    /// Something else is known from now on.
    pub fn replace(&mut self, bytes: &mut usize, slice: Arc<Slice>) {
        release(std::mem::replace(&mut self.slice, slice), bytes);
    }
}

/// Counts a content no longer, if nobody else has it.
fn release(slice: Arc<Slice>, bytes: &mut usize) {
    if Arc::strong_count(&slice) == 1 {
        *bytes -= slice.bytes;
    }
}

/// What became of a slice when pieces were added to it.
pub struct SliceStep<'a, T> {
    before: Arc<Slice>,
    after: Arc<Slice>,
    /// Where the slice began.
    start: u64,
    added: &'a [T],
}

impl<'a, T> SliceStep<'a, T> {
    /// Adds `added` to a slice that begins at `start`; `place` tells the first byte of a piece and the one after it. If `last` did the same
    /// to the same content, its outcome is taken; else it is replaced by this step, if others may follow it.
    pub fn take(
        last: &mut Option<SliceStep<'a, T>>,
        held: &mut CachedSlice,
        bytes: &mut usize,
        start: u64,
        added: &'a [T],
        place: impl Fn(&T) -> (u64, u64),
    ) {
        let relative = |piece: &T, start: u64| {
            let (from, to) = place(piece);
            (from - start, to - start)
        };
        if let Some(last) = last.as_ref().filter(|last| last.begins_with(&held.slice)) {
            let alike = |(a, b): (&T, &T)| relative(a, last.start) == relative(b, start);
            if last.added.len() == added.len() && last.added.iter().zip(added).all(alike) {
                return held.replace(bytes, last.after.clone());
            }
        }
        let others = held.slice.is_empty() || Arc::strong_count(&held.slice) > 1;
        let before = others.then(|| held.slice.clone());
        held.change(bytes, |slice| {
            for piece in added {
                let (from, to) = relative(piece, start);
                slice.add(from, to.min(SLICE));
            }
        });
        let step = before.map(|before| SliceStep {
            before,
            after: held.slice.clone(),
            start,
            added,
        });
        SliceStep::end(std::mem::replace(last, step), bytes);
    }

    /// Whether this is the content that it began with.
    fn begins_with(&self, slice: &Arc<Slice>) -> bool {
        Arc::ptr_eq(&self.before, slice) || self.before.is_empty() && slice.is_empty()
    }

    /// There are no more slices to follow it.
    pub fn end(last: Option<SliceStep<'a, T>>, bytes: &mut usize) {
        if let Some(step) = last {
            release(step.before, bytes);
            release(step.after, bytes);
        }
    }
}
