//! The content of one file: bytes, and which of them are stored (the others are holes). Kept in pages, so that files of
//! many slices stay small.
use std::collections::BTreeMap;
use std::ops::Range;

const PAGE: u64 = 4096;

#[derive(Clone, PartialEq, Eq)]
struct Page {
    bytes: Vec<u8>,
    stored: Vec<bool>,
}

#[derive(Clone, Default, PartialEq, Eq)]
pub struct Content {
    pub size: u64,
    pages: BTreeMap<u64, Page>,
}

impl Content {
    pub fn put(&mut self, offset: u64, data: &[u8]) {
        for (i, byte) in data.iter().enumerate() {
            self.set(offset + i as u64, *byte, true);
        }
        self.size = self.size.max(offset + data.len() as u64);
    }

    /// A hole; the size stays.
    pub fn punch(&mut self, range: Range<u64>) {
        let keys: Vec<u64> = self
            .pages
            .range(range.start / PAGE..range.end.div_ceil(PAGE))
            .map(|(k, _)| *k)
            .collect();
        for key in keys {
            for o in (key * PAGE).max(range.start)..((key + 1) * PAGE).min(range.end) {
                self.set(o, 0, false);
            }
        }
    }

    pub fn resize(&mut self, size: u64) {
        self.punch(size..u64::MAX);
        self.size = size;
    }

    fn set(&mut self, offset: u64, byte: u8, stored: bool) {
        let empty = || Page {
            bytes: vec![0; PAGE as usize],
            stored: vec![false; PAGE as usize],
        };
        let page = self.pages.entry(offset / PAGE).or_insert_with(empty);
        page.bytes[(offset % PAGE) as usize] = byte;
        page.stored[(offset % PAGE) as usize] = stored;
    }

    /// Bytes that are stored.
    pub fn stored_bytes(&self) -> u64 {
        let stored = |page: &Page| page.stored.iter().filter(|s| **s).count() as u64;
        self.pages.values().map(stored).sum()
    }

    fn stored(&self, offset: u64) -> bool {
        self.pages
            .get(&(offset / PAGE))
            .is_some_and(|p| p.stored[(offset % PAGE) as usize])
    }

    pub fn read(&self, offset: u64, len: u64) -> Vec<u8> {
        let end = (offset + len).min(self.size);
        let byte = |o: u64| {
            self.pages
                .get(&(o / PAGE))
                .map_or(0, |p| p.bytes[(o % PAGE) as usize])
        };
        (offset..end).map(byte).collect()
    }

    /// As lseek: `None` is ENXIO.
    pub fn seek(&self, offset: u64, data: bool) -> Option<u64> {
        let mut at = offset;
        while at < self.size {
            if self.stored(at) == data {
                return Some(at);
            }
            // Nothing is stored up to the next page that exists.
            let next = self
                .pages
                .range(at / PAGE..)
                .next()
                .map_or(u64::MAX, |(k, _)| k * PAGE);
            at = if next > at {
                next.min(self.size)
            } else {
                at + 1
            };
        }
        (!data && offset < self.size).then_some(self.size)
    }
}
