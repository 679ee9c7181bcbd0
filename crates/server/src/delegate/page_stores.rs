//! Puts into the kernel's page cache what a handle will read next, before the kernel asks for it.
//!
//! The kernel reads ahead of a program that reads on and on, but asks for strided records one by one; each such request costs
//! several times what copying its bytes does. So the requests of each handle are watched (`prefetch/strided_reads`), and once the next
//! records can be foreseen, those of a whole round are fetched together and stored, before the request that showed it
//! is answered: the program sleeps meanwhile, and then finds them there. The request after the last of them brings the next
//! round.
//!
//! Invariants:
//! - What is stored are whole pages of the generation that the file has on this node, inside its size, and nothing is stored while
//!   somebody here may write the file (`store_gate`). So a stored page is never older than one that the kernel would have
//!   got by asking at that moment.
//! - All pages that the kernel has are of that generation, too: a store replaces none by other bytes, and whatever drops the
//!   file's pages drops those that were stored.
//! - A round is one request's worth of memory, and one at a time of a file.
use super::Delegate;
use super::KernelPages;
use super::handles::{Handle, OpenHandle};
use super::open_file::FileState;
use super::store_gate::wait_for_store;
use crate::{Fid, Result};
use bytes::Bytes;
use parking_lot::Mutex;
use rustix::io::Errno;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// The longest wait for the end of a store, which is a few hundred system calls.
const STORE_END_WAIT: Duration = Duration::from_secs(120);
/// Pieces that a round is read in, at most: of files of tiny records fewer of a reader's are stored.
const MAX_ROUND_PIECES: usize = 4096;

/// A handle of which it can be foreseen what the kernel will ask for next.
pub struct ForeseenReads {
    open: Arc<OpenHandle>,
    /// Bytes that are asked for, and not answered yet: the kernel has their pages locked.
    asked: Range<u64>,
}

impl ForeseenReads {
    /// The inode that the pages are of.
    pub fn fid(&self) -> Fid {
        self.open.file.fid
    }
}

impl FileState {
    /// The generation and the size up to which pages may be stored now, if they may.
    fn storable(&self) -> Option<(u64, u64)> {
        let generation = self.attr.generation;
        let current = self.kernel == Some(generation);
        let may = current && self.stores.is_open() && !self.dirty();
        may.then_some((generation, self.attr.size))
    }
}

impl Delegate {
    /// Reads for the kernel's page cache: as [`Delegate::read`], and tells if it can be foreseen what follows.
    ///
    /// # Errors
    /// As a read.
    pub fn read_pages(
        &self,
        handle: Handle,
        offset: u64,
        len: u32,
    ) -> Result<(Bytes, Option<ForeseenReads>)> {
        let _at = self.ctx.counters.begin();
        let open = self.ctx.table.get_readable(handle)?;
        open.file.enters_page_cache();
        let bytes = self.read_open(&open, offset, len)?;
        let range = offset..offset.saturating_add(len.into());
        let foreseen = self.stores_pages && open.strided.lock().observe(range.clone());
        let asked = range;
        Ok((bytes, foreseen.then(|| ForeseenReads { open, asked })))
    }

    /// Stores the pages that are foreseen, with `store`, which puts bytes into the kernel's page cache from an offset on and may
    /// fail. Does less, or nothing, wherever anything is in the way.
    ///
    /// The calling thread must not be needed for answers to reads: `store` waits for pages that are being read.
    pub fn store_foreseen(&self, foreseen: &ForeseenReads, store: impl Fn(u64, &[u8]) -> bool) {
        let ForeseenReads { open, asked } = foreseen;
        let state = &open.file.state;
        let Some((generation, size)) = state.lock().storable() else {
            return;
        };
        let (first, mut ranges) = open.strided.lock().foresee();
        // The kernel knows the file to be so long since it was opened, or since it became shorter.
        let size = size.min(open.size);
        ranges.truncate(ranges.partition_point(|range| range.end <= size));
        // A store of a page that is asked for would wait for the answer, for ever. The handle may have been used by another
        // thread meanwhile, so it can be anywhere among them.
        let apart = |range: &Range<u64>| range.end <= asked.start || asked.end <= range.start;
        let clear = ranges.iter().take_while(|range| apart(range)).count();
        ranges.truncate(clear);
        let read = self
            .reader
            .read_ranges(&open.file, &ranges, generation, MAX_ROUND_PIECES);
        // Whatever is the matter, the reader will hear of it if it reads on.
        let Ok((bytes, read)) = read else { return };
        ranges.truncate(read);
        {
            let mut state = state.lock();
            if state.storable().is_none_or(|now| now.0 != generation) {
                return;
            }
            state.stores.begin();
            // Inside the lock, so that who drops the pages sees this store or is seen by it.
            open.file.paged.store(true, Ordering::SeqCst);
            self.kernel_pages.storing.fetch_add(1, Ordering::SeqCst);
        }
        let _under_way = StoreUnderWay {
            state,
            storing: &self.kernel_pages.storing,
        };
        let stored = store_ranges(state, generation, &ranges, &bytes, store);
        open.strided.lock().stored(first, stored);
    }
}

/// A store that has begun; dropped, it has ended.
struct StoreUnderWay<'a> {
    state: &'a Mutex<FileState>,
    storing: &'a AtomicUsize,
}

impl Drop for StoreUnderWay<'_> {
    fn drop(&mut self) {
        self.state.lock().stores.end();
        self.storing.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Stores `ranges`, whose bytes follow each other in `bytes`; how many of them.
fn store_ranges(
    state: &Mutex<FileState>,
    generation: u64,
    ranges: &[Range<u64>],
    mut bytes: &[u8],
    store: impl Fn(u64, &[u8]) -> bool,
) -> u64 {
    let mut stored = 0;
    for range in ranges {
        {
            let state = state.lock();
            if state.attr.generation != generation || !state.stores.may_go_on() {
                break;
            }
        }
        let (record, rest) = bytes.split_at((range.end - range.start) as usize);
        bytes = rest;
        if !store(range.start, record) {
            break;
        }
        stored += 1;
    }
    stored
}

impl KernelPages {
    /// Whether a store into the kernel's page cache is under way that began before now: then a call that lets a program write the
    /// file, or shows it what is newer, is answered after [`KernelPages::wait_for_stores`].
    pub fn is_storing(&self, fid: Fid) -> bool {
        self.storing.load(Ordering::SeqCst) > 0
            && (self.ctx.table.find(fid)).is_some_and(|file| file.state.lock().stores.is_storing())
    }

    /// Waits for the end of the store that is under way. Not to be called on a thread that answers requests of a mount: the
    /// store may wait for these.
    ///
    /// # Errors
    /// `EIO` if it does not end.
    pub fn wait_for_stores(&self, fid: Fid) -> Result<()> {
        let Some(file) = self.ctx.table.find(fid) else {
            return Ok(());
        };
        let until = Instant::now() + STORE_END_WAIT;
        let ended = wait_for_store(&mut file.state.lock(), |state| &state.stores, until);
        if !ended {
            tracing::error!(
                inode = fid.0,
                "the kernel does not take pages of a file within {STORE_END_WAIT:?}; unmount, and mount again"
            );
            return Err(Errno::IO.into());
        }
        Ok(())
    }
}
