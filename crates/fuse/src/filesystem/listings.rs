//! Open directories: maps the kernel's offsets to the delegate's names.
//!
//! The kernel continues a listing by a number, the delegate by a name. A listing numbers its entries in the order it
//! first met them (0 is `.`, 1 is `..`), keeps a window of them, and remembers the name at every [`MARK_INTERVAL`]th number, so that
//! it can go back without keeping a large directory in memory.
//!
//! Invariants: going on never skips or repeats a name that was there all the time; memory is bounded by the window plus
//! one name per [`MARK_INTERVAL`] entries; a listing started again from 0 sees the directory as it is then.
use crate::protocol::DirectoryEntries;
use forebay_server::delegate::Delegate;
use forebay_server::{DirEntry, Fid, Kind, Result};
use parking_lot::Mutex;
use rustix::io::Errno;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Entries asked for at a time.
const FETCH_BATCH: u32 = 1024;
/// Entries kept; the kernel goes back by at most one reply (1 MiB, some 30,000 of the shortest names) in normal use.
const WINDOW_ENTRIES: usize = 32 * 1024;
/// Entries from one remembered name to the next.
const MARK_INTERVAL: u64 = 1024;
/// The numbers of `.` and `..`.
const DOTS: u64 = 2;

/// The open directories of a mount.
#[derive(Default)]
pub(super) struct Listings {
    next: AtomicU64,
    open: Mutex<HashMap<u64, Arc<Mutex<Listing>>>>,
}

impl Listings {
    pub fn open(&self, fid: Fid) -> u64 {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.open
            .lock()
            .insert(number, Arc::new(Mutex::new(Listing::new(fid))));
        number
    }
    pub fn close(&self, number: u64) {
        self.open.lock().remove(&number);
    }

    /// The entries from number `offset` on that fit in `room` bytes.
    pub fn list(
        &self,
        delegate: &Delegate,
        number: u64,
        offset: u64,
        room: u32,
    ) -> Result<DirectoryEntries> {
        let listing = self.open.lock().get(&number).cloned().ok_or(Errno::BADF)?;
        let mut listing = listing.lock();
        let fid = listing.fid;
        if offset == 0 {
            *listing = Listing::new(fid);
        }
        let mut entries = DirectoryEntries::new(room);
        for number in offset.. {
            let full = match number {
                0 => entries.add(fid, 1, Kind::Dir, b"."),
                1 => {
                    // A directory that was removed while open has no parent to show.
                    let parent = delegate.names.parent(fid).unwrap_or(fid);
                    entries.add(parent, 2, Kind::Dir, b"..")
                }
                _ => {
                    let mut fetch =
                        |after: Option<&[u8]>, limit| delegate.names.readdir(fid, after, limit);
                    match listing.entry(number - DOTS, &mut fetch)? {
                        Some(e) => entries.add(e.fid, number + 1, e.kind, &e.name),
                        None => break,
                    }
                }
            };
            if full {
                break;
            }
        }
        Ok(entries)
    }
}

/// Reads entries after a name, up to a number of them.
type ReadEntries<'a> = dyn FnMut(Option<&[u8]>, u32) -> Result<Vec<DirEntry>> + 'a;

/// One open directory.
struct Listing {
    fid: Fid,
    /// Entries with the numbers `base..base + window.len()`.
    window: std::collections::VecDeque<DirEntry>,
    base: u64,
    /// The name after which the entry numbered `n * MARK` (counted without dots) follows.
    marks: Vec<Option<Vec<u8>>>,
    /// The directory had no entry after the window.
    end: bool,
}

impl Listing {
    fn new(fid: Fid) -> Listing {
        Listing {
            fid,
            window: Default::default(),
            base: 0,
            marks: vec![None],
            end: false,
        }
    }

    /// The entry numbered `index` (without dots), read by `fetch(after, limit)`; `None` after the last.
    fn entry(&mut self, index: u64, fetch: &mut ReadEntries<'_>) -> Result<Option<&DirEntry>> {
        if index < self.base {
            // Numbers beyond the remembered names cannot come here: the base only grows with the marks.
            let mark = (index / MARK_INTERVAL).min(self.marks.len() as u64 - 1);
            self.window.clear();
            self.base = mark * MARK_INTERVAL;
            self.end = false;
        }
        while index >= self.base + self.window.len() as u64 && !self.end {
            let next = self.base + self.window.len() as u64;
            let after = match self.window.back() {
                Some(entry) => Some(entry.name.clone()),
                None => self
                    .marks
                    .get((self.base / MARK_INTERVAL) as usize)
                    .cloned()
                    .flatten(),
            };
            let entries = fetch(after.as_deref(), FETCH_BATCH)?;
            self.end = entries.is_empty();
            for (number, entry) in (next + 1..).zip(entries) {
                if number % MARK_INTERVAL == 0 && number / MARK_INTERVAL == self.marks.len() as u64
                {
                    self.marks.push(Some(entry.name.clone()));
                }
                self.window.push_back(entry);
            }
            // The base stays at a mark, so that an empty window knows its place.
            while self.window.len() > WINDOW_ENTRIES {
                self.window.drain(..MARK_INTERVAL as usize);
                self.base += MARK_INTERVAL;
            }
        }
        Ok(self.window.get((index - self.base) as usize))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn fetch(
        names: &BTreeSet<u32>,
    ) -> impl FnMut(Option<&[u8]>, u32) -> Result<Vec<DirEntry>> + '_ {
        move |after, limit| {
            let from = after.map_or(0, |name| {
                std::str::from_utf8(name).unwrap().parse::<u32>().unwrap() + 1
            });
            let entry = |n: &u32| DirEntry {
                name: format!("{n:09}").into_bytes(),
                fid: Fid(u64::from(*n) + 2),
                kind: Kind::File,
            };
            Ok(names
                .range(from..)
                .take(limit as usize)
                .map(entry)
                .collect())
        }
    }

    #[test]
    fn a_large_directory_forwards_and_back() {
        let names: BTreeSet<u32> = (0..100_000).collect();
        let mut listing = Listing::new(Fid(1));
        for index in (0..100_000).chain([99_999, 5, 1023, 1024, 1025, 70_000, 0]) {
            let entry = listing.entry(index, &mut fetch(&names)).unwrap().unwrap();
            assert_eq!(entry.fid.0, index + 2);
            assert!(listing.window.len() <= WINDOW_ENTRIES + FETCH_BATCH as usize);
        }
        assert!(
            listing
                .entry(100_000, &mut fetch(&names))
                .unwrap()
                .is_none()
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        /// Names removed behind and ahead of the reader: those that stay are met exactly once, in order.
        #[test]
        fn names_that_stay_are_met_once(total in 1u32..5000, removed in proptest::collection::vec((0u32..5000, 0u32..5000), 0..40)) {
            let mut names: BTreeSet<u32> = (0..total).collect();
            let mut removed: Vec<(u32, u32)> = removed;
            removed.sort();
            let gone: BTreeSet<u32> = removed.iter().map(|r| r.1).collect();
            let mut listing = Listing::new(Fid(1));
            let mut met = Vec::new();
            for index in 0.. {
                while removed.first().is_some_and(|r| r.0 <= index) {
                    names.remove(&removed.remove(0).1);
                }
                let Some(entry) = listing.entry(u64::from(index), &mut fetch(&names)).unwrap() else { break };
                met.push((entry.fid.0 - 2) as u32);
            }
            prop_assert!(met.windows(2).all(|w| w[0] < w[1]));
            let met: BTreeSet<u32> = met.into_iter().collect();
            prop_assert!((0..total).filter(|n| !gone.contains(n)).all(|n| met.contains(&n)));
        }
    }
}
