//! Which bytes of one file are stored: its pages, by slice, and its streams.
//!
//! Invariants: a stored byte is covered; a slice that is not in the map is unknown below `unknown`, and empty from there on.
use super::page::{Near, PAGE, Page};
use super::streams::Streams;
use crate::Extent;
use crate::extent::{SLICE, slice_end};
use std::collections::BTreeMap;

/// Pages of a slice.
const PAGES: u64 = SLICE / PAGE;
/// What a slice costs beyond its pages, bytes.
const NODE: usize = 64;
/// What a file costs beyond its slices, bytes.
const FILE: usize = 256;

/// What is known of a range before it is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// Nothing stored overlaps it or joins with it.
    Free,
    /// Something may.
    Stored,
    /// The page with this number would have to be read to know.
    Unknown(u64),
}

/// The slice looked at last, for the next piece is mostly there too; and its stream, for that is mostly the same.
#[derive(Default)]
pub struct At<'a> {
    number: Option<u64>,
    slice: Option<&'a Slice>,
    stream: usize,
}

/// The pages of a slice.
#[derive(Debug, Default)]
struct Slice {
    pages: Vec<Page>,
    /// The pages behind these: all empty, all full, or all unknown.
    rest: Page,
    /// Memory of the pages, bytes.
    bytes: usize,
    /// How many of them are full.
    full: u64,
    /// When it was used last.
    used: u64,
}

impl Slice {
    fn unknown() -> Slice {
        Slice {
            rest: Page::Unknown,
            ..Slice::default()
        }
    }

    /// Brings `pages` to at least this length.
    fn extend(&mut self, pages: usize) {
        if self.pages.len() < pages {
            self.pages.resize(pages, self.rest.clone());
        }
    }

    fn measure(&mut self) {
        let heap: usize = self.pages.iter().map(Page::heap).sum();
        self.bytes = heap + self.pages.capacity() * size_of::<Page>();
        let full = self.pages.iter().filter(|page| matches!(page, Page::Full));
        self.full = full.count() as u64;
    }

    fn page(&self, page: u64) -> &Page {
        self.pages.get(page as usize).unwrap_or(&self.rest)
    }

    /// The bytes from `start` to `end` of the slice are stored now.
    #[inline]
    fn add(&mut self, start: u64, end: u64) {
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
        if self.full == PAGES {
            *self = Slice {
                rest: Page::Full,
                used: self.used,
                ..Slice::default()
            };
        }
    }

    /// From now on nothing is known of this page.
    fn lose(&mut self, page: usize) {
        match (self.pages.get(page), &self.rest) {
            (None, Page::Empty | Page::Unknown) => return,
            (None, _) => self.extend(PAGES as usize),
            _ => {}
        }
        self.pages[page] = Page::Unknown;
        self.measure();
    }

    /// Of the pages from `from` to `to`, those that were unknown turned out to be empty.
    fn find_empty(&mut self, from: usize, to: usize) {
        self.extend(to);
        for page in &mut self.pages[from..to] {
            if matches!(page, Page::Unknown) {
                *page = Page::Empty;
            }
        }
        self.measure();
    }
}

/// See the head of this file.
#[derive(Debug)]
pub struct FileCover {
    slices: BTreeMap<u64, Slice>,
    unknown: u64,
    streams: Streams,
    /// Memory of the slices, bytes.
    bytes: usize,
    /// Another one after each change.
    pub version: u64,
    /// When it was used last.
    pub used: u64,
    /// Reads of unknown pages that count towards knowing one.
    pub misses: i64,
}

impl FileCover {
    /// Of a file of which nothing is known; used now.
    pub fn new(now: u64, version: u64) -> FileCover {
        FileCover {
            slices: BTreeMap::new(),
            unknown: u64::MAX,
            streams: Streams::default(),
            bytes: 0,
            version,
            used: now,
            misses: 0,
        }
    }

    /// The file has nothing stored.
    pub fn set_empty(&mut self) {
        self.unknown = 0;
    }

    /// Memory held, in bytes.
    pub fn bytes(&self) -> usize {
        FILE + self.bytes + self.streams.heap()
    }

    /// What is known of `start..end`, where `source` is to stand (nothing, for a hole). `at` is kept from one call to the next.
    pub fn fate<'a>(
        &'a self,
        start: u64,
        end: u64,
        source: Option<&Extent>,
        at: &mut At<'a>,
    ) -> Fate {
        let inside = !start.is_multiple_of(PAGE) && end / PAGE == start / PAGE;
        if let Some(source) = source.filter(|_| inside) {
            // Nearly always.
            let number = start / SLICE;
            if at.number != Some(number) {
                (at.number, at.slice) = (Some(number), self.slices.get(&number));
            }
            let Some(slice) = at.slice else {
                return self.state(start, end);
            };
            let page = slice.page(start % SLICE / PAGE);
            let (from, to) = ((start % PAGE) as u32, (end % PAGE) as u32);
            return match page.near(from, to) {
                Near::Apart => Fate::Free,
                Near::Over => Fate::Stored,
                Near::Unknown => Fate::Unknown(start / PAGE),
                Near::Beside if self.streams.may_join(source, &mut at.stream) => Fate::Stored,
                Near::Beside => Fate::Free,
            };
        }
        match self.state(start, end) {
            Fate::Free => {}
            other => return other,
        }
        let Some(source) = source else {
            return Fate::Free;
        };
        let before = match start.checked_sub(1) {
            Some(before) => self.state(before, start),
            None => Fate::Free,
        };
        let after = match end.checked_add(1) {
            Some(after) => self.state(end, after),
            None => Fate::Free,
        };
        match (before, after) {
            (Fate::Unknown(page), _) | (_, Fate::Unknown(page)) => Fate::Unknown(page),
            (Fate::Free, Fate::Free) => Fate::Free,
            _ if self.streams.may_join(source, &mut at.stream) => Fate::Stored,
            _ => Fate::Free,
        }
    }

    /// What is known of the bytes alone. Of a range that is known to be stored in part, that counts.
    fn state(&self, start: u64, end: u64) -> Fate {
        let (first, last) = (start / SLICE, (end - 1) / SLICE);
        if first == last {
            return match self.slices.get(&first) {
                Some(slice) => in_slice(slice, first, start, end),
                None if first < self.unknown => Fate::Unknown(start / PAGE),
                None => Fate::Free,
            };
        }
        let mut at = first;
        let mut unknown = None;
        // Empty slices are skipped, so this is no longer than what is known.
        for (number, slice) in self.slices.range(first..=last) {
            if at < *number && at < self.unknown {
                unknown = unknown.or(Some((at * SLICE).max(start) / PAGE));
            }
            let from = start.max(number * SLICE);
            let to = end.min((number * SLICE).saturating_add(SLICE));
            match in_slice(slice, *number, from, to) {
                Fate::Free => {}
                Fate::Unknown(page) => unknown = unknown.or(Some(page)),
                Fate::Stored => return Fate::Stored,
            }
            at = number + 1;
        }
        if at <= last && at < self.unknown {
            unknown = unknown.or(Some((at * SLICE).max(start) / PAGE));
        }
        unknown.map_or(Fate::Free, Fate::Unknown)
    }

    /// These extents are stored now, by offset; those that are none are passed over.
    pub fn add<T>(&mut self, stored: &[T], extent: impl Fn(&T) -> Option<Extent>, now: u64) {
        let mut rest = stored.iter().filter_map(extent).peekable();
        while let Some(first) = rest.peek() {
            let number = first.offset / SLICE;
            let (start, stop) = (number * SLICE, slice_end(first.offset));
            let (mut slice, streams) = self.slice(number);
            let before = slice.as_ref().map_or(0, |slice| slice.bytes);
            // As a rule there are none.
            let mut beyond = Vec::new();
            while let Some(extent) = rest.next_if(|e| e.offset / SLICE == number) {
                streams.add(&extent);
                let end = extent.end();
                if let Some(slice) = &mut slice {
                    slice.add(extent.offset - start, end.min(stop) - start);
                }
                beyond.extend(extent.clip(&(stop..end)));
            }
            if let Some(slice) = slice {
                slice.used = now;
                let after = slice.bytes;
                self.bytes = self.bytes + after - before;
            }
            for part in beyond {
                self.add(&[part], itself, now);
            }
        }
    }

    /// The slice, made if it is known to be empty; `None` if it is not known. And the streams.
    fn slice(&mut self, number: u64) -> (Option<&mut Slice>, &mut Streams) {
        if number >= self.unknown && !self.slices.contains_key(&number) {
            self.bytes += NODE;
            self.slices.insert(number, Slice::default());
        }
        (self.slices.get_mut(&number), &mut self.streams)
    }

    /// What stood at `offset` is removed: how long it was is not known.
    pub fn remove(&mut self, offset: u64) {
        if let Some(slice) = self.slices.get_mut(&(offset / SLICE)) {
            let before = slice.bytes;
            slice.lose((offset % SLICE / PAGE) as usize);
            self.bytes = self.bytes + slice.bytes - before;
        }
    }

    /// What was read of the page `number`: its extents, and with them those that reach into it; and where the next extent behind
    /// it starts, if there is one.
    pub fn learn(&mut self, number: u64, extents: &[Extent], next: Option<u64>, now: u64) {
        let of = number / PAGES;
        if next.is_none() {
            // What is not known and lies behind is empty.
            self.unknown = self.unknown.min(of + 1);
        }
        if of < self.unknown {
            let bytes = &mut self.bytes;
            self.slices.entry(of).or_insert_with(|| {
                *bytes += NODE;
                Slice::unknown()
            });
        }
        if let Some(slice) = self.slices.get_mut(&of) {
            let before = slice.bytes;
            slice.used = now;
            let page = number % PAGES;
            let behind = next.map_or(u64::MAX, |next| next / PAGE);
            let to = (behind.min((of + 1) * PAGES) - of * PAGES).max(page + 1);
            slice.find_empty(page as usize, to as usize);
            self.bytes = self.bytes + slice.bytes - before;
        }
        self.add(extents, itself, now);
    }

    /// When each slice that takes memory was used, and its number.
    pub fn uses(&self) -> impl Iterator<Item = (u64, u64)> {
        let held = self.slices.iter().filter(|(_, slice)| slice.bytes > 0);
        held.map(|(number, slice)| (slice.used, *number))
    }

    /// Forgets what is known of a slice: all of it may be stored.
    pub fn forget(&mut self, number: u64) {
        if let Some(slice) = self.slices.get_mut(&number) {
            self.bytes -= slice.bytes;
            *slice = Slice::unknown();
        }
    }

    /// Forgets all slices.
    pub fn forget_all(&mut self) {
        if let Some((last, _)) = self.slices.last_key_value() {
            self.unknown = self.unknown.max(last + 1);
        }
        self.slices.clear();
        self.bytes = 0;
    }
}

fn itself(extent: &Extent) -> Option<Extent> {
    Some(*extent)
}

/// What is known of a range of a slice.
fn in_slice(slice: &Slice, number: u64, start: u64, end: u64) -> Fate {
    let from = number * PAGES;
    let mut unknown = None;
    let mut at = start;
    while at < end {
        let stop = end.min((at / PAGE * PAGE).saturating_add(PAGE));
        let page = slice.page(at / PAGE - from);
        let start = (at % PAGE) as u32;
        if matches!(page, Page::Unknown) {
            unknown = unknown.or(Some(at / PAGE));
        } else if page.overlaps(start, start + (stop - at) as u32) {
            return Fate::Stored;
        }
        at = stop;
    }
    unknown.map_or(Fate::Free, Fate::Unknown)
}
