//! The stored bytes of one file: its pages, by slice, and its streams.
//!
//! Invariants: a stored byte is always covered. Of a slice that is not in the map, nothing is known below the offset `unknown`; from
//! there on it is empty.
use super::bits::{Adjacency, PAGE};
use super::page::Page;
use super::slice::{CachedSlice, PAGES_PER_SLICE, Slice, SliceStep};
use super::streams::Streams;
use crate::Extent;
use crate::extent::{SLICE, slice_end};
use std::collections::BTreeMap;

/// What a slice costs beyond its pages, bytes.
const SLICE_OVERHEAD: usize = 160;
/// What a file costs beyond its slices, bytes.
const FILE_OVERHEAD: usize = 256;

/// What is known of a range before it is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Occupancy {
    /// Nothing stored overlaps it or joins with it.
    Free,
    /// Something may.
    Stored,
    /// The page with this number would have to be read to know.
    Unknown(u64),
}

/// The slice looked at last, for the next piece is mostly there too; and its stream, for that is mostly the same.
#[derive(Default)]
pub struct CoverCursor<'a> {
    number: Option<u64>,
    slice: Option<&'a Slice>,
    stream: usize,
}

/// See the head of this file.
#[derive(Debug)]
pub struct FileCover {
    slices: BTreeMap<u64, CachedSlice>,
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
        FILE_OVERHEAD + self.bytes + self.streams.heap()
    }

    /// What is known of `start..end`, where `source` is to stand (nothing, for a hole). `at` is kept from one call to the next.
    pub fn occupancy<'a>(
        &'a self,
        start: u64,
        end: u64,
        source: Option<&Extent>,
        at: &mut CoverCursor<'a>,
    ) -> Occupancy {
        let inside = !start.is_multiple_of(PAGE) && end / PAGE == start / PAGE;
        if let Some(source) = source.filter(|_| inside) {
            // Nearly always.
            let number = start / SLICE;
            if at.number != Some(number) {
                let held = self.slices.get(&number);
                (at.number, at.slice) = (Some(number), held.map(|held| &*held.slice));
            }
            let Some(slice) = at.slice else {
                return self.state(start, end);
            };
            let page = slice.page(start % SLICE / PAGE);
            let (from, to) = ((start % PAGE) as u32, (end % PAGE) as u32);
            return match page.adjacency(from, to) {
                Adjacency::Disjoint => Occupancy::Free,
                Adjacency::Overlapping => Occupancy::Stored,
                Adjacency::Unknown => Occupancy::Unknown(start / PAGE),
                Adjacency::Adjacent if self.streams.may_join(source, &mut at.stream) => {
                    Occupancy::Stored
                }
                Adjacency::Adjacent => Occupancy::Free,
            };
        }
        match self.state(start, end) {
            Occupancy::Free => {}
            other => return other,
        }
        let Some(source) = source else {
            return Occupancy::Free;
        };
        let before = match start.checked_sub(1) {
            Some(before) => self.state(before, start),
            None => Occupancy::Free,
        };
        let after = match end.checked_add(1) {
            Some(after) => self.state(end, after),
            None => Occupancy::Free,
        };
        match (before, after) {
            (Occupancy::Unknown(page), _) | (_, Occupancy::Unknown(page)) => {
                Occupancy::Unknown(page)
            }
            (Occupancy::Free, Occupancy::Free) => Occupancy::Free,
            _ if self.streams.may_join(source, &mut at.stream) => Occupancy::Stored,
            _ => Occupancy::Free,
        }
    }

    /// What is known of the bytes alone. Of a range that is known to be stored in part, that counts.
    fn state(&self, start: u64, end: u64) -> Occupancy {
        let (first, last) = (start / SLICE, (end - 1) / SLICE);
        if first == last {
            return match self.slices.get(&first) {
                Some(held) => in_slice(&held.slice, first, start, end),
                None if first < self.unknown => Occupancy::Unknown(start / PAGE),
                None => Occupancy::Free,
            };
        }
        let mut at = first;
        let mut unknown = None;
        // Empty slices are skipped, so this is no longer than what is known.
        for (number, held) in self.slices.range(first..=last) {
            if at < *number && at < self.unknown {
                unknown = unknown.or(Some((at * SLICE).max(start) / PAGE));
            }
            let from = start.max(number * SLICE);
            let to = end.min((number * SLICE).saturating_add(SLICE));
            match in_slice(&held.slice, *number, from, to) {
                Occupancy::Free => {}
                Occupancy::Unknown(page) => unknown = unknown.or(Some(page)),
                Occupancy::Stored => return Occupancy::Stored,
            }
            at = number + 1;
        }
        if at <= last && at < self.unknown {
            unknown = unknown.or(Some((at * SLICE).max(start) / PAGE));
        }
        unknown.map_or(Occupancy::Free, Occupancy::Unknown)
    }

    /// These extents are stored now.
    pub fn add<T>(&mut self, stored: &[T], extent: impl Fn(&T) -> Extent, now: u64) {
        let mut step: Option<SliceStep<'_, T>> = None;
        let mut rest = stored;
        while let Some(first) = rest.first().map(&extent) {
            let number = first.offset / SLICE;
            // What of it lies in the next slice; as a rule nothing does.
            let mut beyond = Vec::new();
            let mut count = 0;
            for extent in rest.iter().map(&extent) {
                if extent.offset / SLICE != number {
                    break;
                }
                count += 1;
                self.streams.add(&extent);
                beyond.extend(extent.clip(&(slice_end(extent.offset)..u64::MAX)));
            }
            let (inside, behind) = rest.split_at(count);
            rest = behind;
            if let Some((held, bytes)) = self.slice(number) {
                held.used = now;
                let place = |stored: &T| {
                    let extent = extent(stored);
                    (extent.offset, extent.end())
                };
                SliceStep::take(&mut step, held, bytes, number * SLICE, inside, place);
            }
            for part in beyond {
                self.add(&[part], Extent::clone, now);
            }
        }
        SliceStep::end(step, &mut self.bytes);
    }

    /// The slice, made if it is known to be empty; `None` if it is not known. And the count of memory.
    fn slice(&mut self, number: u64) -> Option<(&mut CachedSlice, &mut usize)> {
        if number >= self.unknown && !self.slices.contains_key(&number) {
            self.bytes += SLICE_OVERHEAD;
            self.slices.insert(number, CachedSlice::default());
        }
        let held = self.slices.get_mut(&number)?;
        Some((held, &mut self.bytes))
    }

    /// What stood at `offset` is removed: how long it was is not known.
    pub fn remove(&mut self, offset: u64) {
        if let Some(held) = self.slices.get_mut(&(offset / SLICE)) {
            held.change(&mut self.bytes, |slice| {
                slice.forget_page((offset % SLICE / PAGE) as usize);
            });
        }
    }

    /// What was read of the page `number`: its extents, and with them those that reach into it; and where the next extent after
    /// it starts, if there is one.
    pub fn load_page(&mut self, number: u64, extents: &[Extent], next: Option<u64>, now: u64) {
        let of = number / PAGES_PER_SLICE;
        if next.is_none() {
            // What is not known and lies after that is empty.
            self.unknown = self.unknown.min(of + 1);
        }
        if of < self.unknown {
            let bytes = &mut self.bytes;
            self.slices.entry(of).or_insert_with(|| {
                *bytes += SLICE_OVERHEAD;
                CachedSlice {
                    slice: Slice::unknown().into(),
                    used: now,
                }
            });
        }
        if let Some(held) = self.slices.get_mut(&of) {
            held.used = now;
            let page = number % PAGES_PER_SLICE;
            let behind = next.map_or(u64::MAX, |next| next / PAGE);
            let to = (behind.min((of + 1) * PAGES_PER_SLICE) - of * PAGES_PER_SLICE).max(page + 1);
            held.change(&mut self.bytes, |slice| {
                slice.find_empty(page as usize, to as usize);
            });
        }
        self.add(extents, Extent::clone, now);
    }

    /// Memory held, counted anew: each content once.
    #[cfg(test)]
    pub fn counted(&self) -> usize {
        let contents = self.slices.values().map(|held| &held.slice);
        let different: std::collections::HashMap<_, _> = contents
            .map(|slice| (std::sync::Arc::as_ptr(slice), slice.measured()))
            .collect();
        FILE_OVERHEAD
            + SLICE_OVERHEAD * self.slices.len()
            + different.values().sum::<usize>()
            + self.streams.heap()
    }

    /// When each slice that takes memory was used, and its number.
    pub fn uses(&self) -> impl Iterator<Item = (u64, u64)> {
        let large = |held: &CachedSlice| held.slice.bytes > 0;
        let held = self.slices.iter().filter(move |(_, held)| large(held));
        held.map(|(number, held)| (held.used, *number))
    }

    /// Forgets what is known of a slice: all of it may be stored.
    pub fn forget(&mut self, number: u64) {
        if let Some(held) = self.slices.get_mut(&number) {
            held.replace(&mut self.bytes, Slice::unknown().into());
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

/// What is known of a range of a slice.
fn in_slice(slice: &Slice, number: u64, start: u64, end: u64) -> Occupancy {
    let from = number * PAGES_PER_SLICE;
    let mut unknown = None;
    let mut at = start;
    while at < end {
        let stop = end.min((at / PAGE * PAGE).saturating_add(PAGE));
        let page = slice.page(at / PAGE - from);
        let start = (at % PAGE) as u32;
        if matches!(page, Page::Unknown) {
            unknown = unknown.or(Some(at / PAGE));
        } else if page.overlaps(start, start + (stop - at) as u32) {
            return Occupancy::Stored;
        }
        at = stop;
    }
    unknown.map_or(Occupancy::Free, Occupancy::Unknown)
}
