//! Fills the kernel's page cache with what a handle will read next, before the kernel asks for it.
//!
//! The kernel reads ahead for a sequential reader, but it requests strided records one by one. Each such request costs several
//! times what copying its bytes does. So the requests of each handle are watched (`prefetch/strided_reads`). Once the next records
//! can be predicted, a round of them is fetched together and stored in the page cache (`FUSE_NOTIFY_STORE`), before the reply to
//! the current request. The program then reads them without a request. The request after the last of them triggers the next round.
//!
//! Invariants:
//! - A fill consists of whole pages of the generation that the file has on this node, within its size. None is made while a handle
//!   of this node may write the file (`page_fill_gate`). So a filled page is never older than one that the kernel would have got by
//!   asking at that moment.
//! - All pages that the kernel holds are of that generation too. So a fill never replaces a page by other bytes, and whatever drops
//!   the file's pages drops the filled ones.
//! - A round takes the memory of one request, and a file has one round at a time.
//!
//! If the handles of a file together read all of it (`prefetch/last_reads`), a round is a whole run of pages, including those
//! between the records: other handles need them, and the kernel continues with readahead after them.
use super::Delegate;
use super::KernelPages;
use super::handles::{Handle, OpenHandle};
use super::open_file::FileState;
use super::page_fill_gate::wait_for_fill;
use super::prefetch::strided_reads::pages_of;
use crate::{Fid, Result};
use bytes::Bytes;
use parking_lot::Mutex;
use rustix::io::Errno;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// The longest wait for the end of a fill, which is a few hundred system calls.
const FILL_END_WAIT: Duration = Duration::from_secs(120);
/// Pieces that a round is read in, at most: of files of tiny records fewer of a reader's are filled.
const MAX_ROUND_PIECES: usize = 4096;

/// A handle of which it can be predicted what the kernel will ask for next.
pub struct PredictedReads {
    handle: Handle,
    open: Arc<OpenHandle>,
    /// Bytes that are asked for, and not answered yet: the kernel has their pages locked.
    asked: Range<u64>,
}

impl PredictedReads {
    /// The inode that the pages are of.
    pub fn fid(&self) -> Fid {
        self.open.file.fid
    }

    /// Of these ranges, the first ones that may be filled now, in a file of this size; how many.
    fn fillable(&self, ranges: &[Range<u64>], size: u64) -> usize {
        // The kernel knows the file to be so long since it was opened, or since it became shorter.
        let size = size.min(self.open.size);
        let inside = ranges.partition_point(|range| range.end <= size);
        let clear = ranges[..inside]
            .iter()
            .take_while(|range| self.is_clear(range));
        clear.count()
    }

    /// A fill of a page that is asked for would wait for the answer, for ever. The handle may have been used by another thread
    /// meanwhile, so it can be anywhere.
    fn is_clear(&self, range: &Range<u64>) -> bool {
        range.end <= self.asked.start || self.asked.end <= range.start
    }

    /// What to fill now, in a file of this size.
    fn round(&self, size: u64) -> Option<PageFillRound> {
        let strided = self.open.strided.lock();
        let (first, mut ranges) = strided.predict();
        ranges.truncate(self.fillable(&ranges, size));
        let last_reads = self.open.file.last_reads.lock();
        let (pages, stride) = strided.period().filter(|_| !ranges.is_empty())?;
        if !last_reads.fill_gaps_of(self.handle, &pages, stride) {
            let records = ranges.len() as u64;
            return Some(PageFillRound {
                first,
                ranges,
                records,
                whole: false,
            });
        }
        let (mut run, records) = strided.whole_run(&ranges)?;
        // Another handle's request may have been under way when they were filled.
        let filled = &last_reads.filled_run;
        if filled.contains(&run.start) {
            run.start = filled.end;
        }
        (!run.is_empty() && self.is_clear(&run)).then(|| PageFillRound {
            first,
            ranges: vec![run],
            records,
            whole: true,
        })
    }
}

/// What is filled at once.
struct PageFillRound {
    /// The number of the first record.
    first: u64,
    /// Ranges of bytes, of whole pages: one of each record, or one of all.
    ranges: Vec<Range<u64>>,
    /// How many records they have.
    records: u64,
    /// All are in one range, for all handles of the file.
    whole: bool,
}

impl FileState {
    /// The generation and the size up to which pages may be filled now, if they may.
    fn fillable(&self) -> Option<(u64, u64)> {
        let generation = self.attr.generation;
        let current = self.kernel == Some(generation);
        let may = current && self.fills.is_open() && !self.dirty();
        may.then_some((generation, self.attr.size))
    }
}

impl Delegate {
    /// Reads for the kernel's page cache: as [`Delegate::read`], and tells if it can be predicted what follows.
    ///
    /// # Errors
    /// As a read.
    pub fn read_pages(
        &self,
        handle: Handle,
        offset: u64,
        len: u32,
    ) -> Result<(Bytes, Option<PredictedReads>)> {
        let _at = self.ctx.counters.begin();
        let open = self.ctx.table.get_readable(handle)?;
        open.file.enters_page_cache();
        let bytes = self.read_open(&open, offset, len)?;
        let asked = offset..offset.saturating_add(len.into());
        if !self.fills_pages {
            return Ok((bytes, None));
        }
        open.file.last_reads.lock().note(handle, pages_of(&asked));
        let predicted = open.strided.lock().observe(asked.clone());
        let predicted = predicted.then(|| PredictedReads {
            handle,
            open,
            asked,
        });
        Ok((bytes, predicted))
    }

    /// Fills the pages that are predicted, with `store`, which puts bytes into the kernel's page cache from an offset on and may
    /// fail. Does less, or nothing, wherever anything is in the way.
    ///
    /// The calling thread must not be needed for answers to reads: `store` waits for pages that are being read.
    pub fn fill_predicted(&self, predicted: &PredictedReads, store: impl Fn(u64, &[u8]) -> bool) {
        let open = &predicted.open;
        let state = &open.file.state;
        let Some((generation, size)) = state.lock().fillable() else {
            return;
        };
        let Some(mut round) = predicted.round(size) else {
            return;
        };
        let ranges = &mut round.ranges;
        let read = self
            .reader
            .read_ranges(&open.file, ranges, generation, MAX_ROUND_PIECES);
        // Whatever is the matter, the reader will hear of it if it reads on.
        let Ok((bytes, read)) = read else { return };
        ranges.truncate(read);
        {
            let mut state = state.lock();
            if state.fillable().is_none_or(|now| now.0 != generation) {
                return;
            }
            state.fills.begin();
            // Inside the lock, so that who drops the pages sees this fill or is seen by it.
            open.file.paged.store(true, Ordering::SeqCst);
            self.kernel_pages.filling.fetch_add(1, Ordering::SeqCst);
        }
        let _under_way = PageFill {
            state,
            filling: &self.kernel_pages.filling,
        };
        let filled = fill_ranges(state, generation, &round.ranges, &bytes, store);
        let records = match (round.whole, &round.ranges[..]) {
            (true, [run]) if filled > 0 => {
                open.file.last_reads.lock().filled_run = run.clone();
                round.records
            }
            _ => filled,
        };
        open.strided.lock().filled(round.first, records);
    }
}

/// A fill that has begun; dropped, it has ended.
struct PageFill<'a> {
    state: &'a Mutex<FileState>,
    filling: &'a AtomicUsize,
}

impl Drop for PageFill<'_> {
    fn drop(&mut self) {
        self.state.lock().fills.end();
        self.filling.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Fills `ranges`, whose bytes follow each other in `bytes`; how many of them.
fn fill_ranges(
    state: &Mutex<FileState>,
    generation: u64,
    ranges: &[Range<u64>],
    mut bytes: &[u8],
    store: impl Fn(u64, &[u8]) -> bool,
) -> u64 {
    let mut filled = 0;
    for range in ranges {
        {
            let state = state.lock();
            if state.attr.generation != generation || !state.fills.may_go_on() {
                break;
            }
        }
        let (record, rest) = bytes.split_at((range.end - range.start) as usize);
        bytes = rest;
        if !store(range.start, record) {
            break;
        }
        filled += 1;
    }
    filled
}

impl KernelPages {
    /// Whether a fill of the kernel's page cache is under way that began before now: then a call that lets a program write the
    /// file, or shows it what is newer, is answered after [`KernelPages::wait_for_fills`].
    pub fn is_filling(&self, fid: Fid) -> bool {
        self.filling.load(Ordering::SeqCst) > 0
            && (self.ctx.table.find(fid)).is_some_and(|file| file.state.lock().fills.is_filling())
    }

    /// Waits for the end of the fill that is under way. Not to be called on a thread that answers requests of a mount: the
    /// fill may wait for these.
    ///
    /// # Errors
    /// `EIO` if it does not end.
    pub fn wait_for_fills(&self, fid: Fid) -> Result<()> {
        let Some(file) = self.ctx.table.find(fid) else {
            return Ok(());
        };
        let until = Instant::now() + FILL_END_WAIT;
        let ended = wait_for_fill(&mut file.state.lock(), |state| &state.fills, until);
        if !ended {
            tracing::error!(
                inode = fid.0,
                "the kernel does not take pages of a file within {FILL_END_WAIT:?}; unmount, and mount again"
            );
            return Err(Errno::IO.into());
        }
        Ok(())
    }
}
