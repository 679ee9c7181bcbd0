//! Reads that this process makes itself, out of the server's segment files (`forebay_server::delegate::DirectRead`): large ones, and short
//! ones in no order.
//!
//! It asks where the bytes of a window of the file lie, and reads and verifies them there: they are copied once, and the server computes
//! nothing. What it was told is kept, and used as long as the file's change counter has the value that came with it (its *mark*): then a read
//! made at the server would return the same. If the bytes are not there any more, or damaged, the ordinary read that follows finds out what is
//! the matter.
//!
//! Invariant: an open file keeps [`MOST_WINDOWS`] windows at most, and none while the session's files keep as much as they may.
use super::connection::BulkTransfer;
use super::error::{CallError, LinkError};
use super::request::{FileRequest, MAX_LOCATED_BYTES, MAX_LOCATED_RUNS, Request};
use super::session::LinkSession;
use forebay_server::delegate::{ChangeMark, DirectRead};
use parking_lot::Mutex;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Shorter reads are ordinary ones at first: to ask where their bytes lie would take as long.
pub(super) const MIN_BYTES: usize = 256 << 10;
/// Ordinary reads after one that could not be made directly: the next ones are mostly as it.
const BACKOFF_READS: u32 = 16;
/// Segment files that are kept open.
const MOST_SEGMENTS: usize = 16;
/// Bytes of a run, on average, in a large read: with smaller ones an ordinary read, which gathers them, is faster.
const MIN_RUN_BYTES: usize = 32 << 10;
/// Windows that an open file keeps: of 1 GiB in all, some 8 KiB of memory each.
const MOST_WINDOWS: usize = 128;
/// Short reads in no order before it is asked where the next ones lie.
const MIN_SCATTERED: u32 = 4;

/// The segment files that a process has open of the server of its session, the newest last. Another server may have other files of the
/// same numbers.
#[derive(Default)]
pub(super) struct SegmentFiles(Mutex<Vec<(u32, Arc<File>)>>);

impl SegmentFiles {
    /// Closes all, unless another thread has them.
    pub fn clear(&self) {
        if let Some(mut files) = self.0.try_lock() {
            files.clear();
        }
    }

    /// Of the server of this session.
    fn get(&self, session: &LinkSession, number: u32) -> Result<Arc<File>, CallError> {
        {
            let mut files = self.0.lock();
            if let Some(at) = files.iter().position(|(known, _)| *known == number) {
                let known = files.remove(at);
                let file = known.1.clone();
                files.push(known);
                return Ok(file);
            }
        }
        let mut descriptor: Option<OwnedFd> = None;
        let bulk = BulkTransfer::Descriptor(&mut descriptor);
        session.call_on_file::<()>(&Request::Segment(number), bulk)?;
        // This process has no number left for it, so the kernel has dropped it.
        let none_left = || LinkError::Local(Errno::MFILE.into());
        let file = Arc::new(File::from(descriptor.ok_or_else(none_left)?));
        let mut files = self.0.lock();
        if files.len() >= MOST_SEGMENTS {
            files.remove(0);
        }
        files.push((number, file.clone()));
        Ok(file)
    }
}

/// A window of a file of which it is known where its bytes lie.
struct LocatedWindow {
    /// Offset in the file of its first byte.
    start: u64,
    /// Bytes that were asked for: those located are fewer only at the end of the file.
    asked: u32,
    /// Its runs are sorted by place.
    located: DirectRead,
}

impl LocatedWindow {
    fn holds(&self, offset: u64) -> bool {
        (self.start..self.start + u64::from(self.asked)).contains(&offset)
    }

    /// Runs that have some of these bytes.
    fn runs_of(&self, offset: u64, len: usize) -> usize {
        let from = offset.saturating_sub(self.start);
        let to = from.saturating_add(len as u64);
        let runs = &self.located.runs;
        let begun = runs.partition_point(|(place, _)| u64::from(*place) < to);
        let ended =
            runs.partition_point(|(place, run)| u64::from(*place) + u64::from(run.len) <= from);
        begun.saturating_sub(ended)
    }

    fn is_current(&self, session: &LinkSession) -> bool {
        (self.located.mark).is_some_and(|mark| session.is_current(mark))
    }

    fn memory(&self) -> usize {
        let runs = self.located.runs.iter();
        size_of::<LocatedWindow>() + runs.map(|(_, run)| 8 + run.memory()).sum::<usize>()
    }

    /// Reads the located bytes from the `from`th on; `None`: not all are there any more, or its numbers do not fit.
    fn read(&self, session: &LinkSession, from: u32, into: &mut [u8]) -> Option<()> {
        let runs = &self.located.runs;
        let first = runs.partition_point(|(place, run)| place.saturating_add(run.len) <= from);
        let (mut at, mut rest) = (from, into);
        for (place, run) in &runs[first..] {
            let hole = (place.saturating_sub(at) as usize).min(rest.len());
            let (hole, behind) = rest.split_at_mut(hole);
            hole.fill(0);
            at += hole.len() as u32;
            rest = behind;
            if rest.is_empty() {
                break;
            }
            let skip = at.checked_sub(*place)?;
            let len = (run.len.checked_sub(skip)? as usize).min(rest.len());
            let (bytes, behind) = rest.split_at_mut(len);
            let file = session.segments.get(session, run.segment).ok()?;
            if !run.read(&file, skip, bytes).ok()? {
                return None;
            }
            at += len as u32;
            rest = behind;
        }
        rest.fill(0);
        Some(())
    }
}

/// The windows that an open file keeps.
#[derive(Default)]
struct KeptWindows {
    /// The one used last is the last.
    windows: Vec<Arc<LocatedWindow>>,
    /// Their bytes, which count with the session.
    counted: usize,
}

/// Reads of an open file that are made directly.
#[derive(Default)]
pub(super) struct DirectReads {
    /// Ordinary reads until it is tried again.
    backoff: AtomicU32,
    /// Small reads in no order, of which nothing was known.
    scattered: AtomicU32,
    kept: Mutex<KeptWindows>,
}

/// What was read directly.
pub(super) struct DirectlyRead {
    /// The first bytes, so many.
    pub len: usize,
    /// The file ends there.
    pub ends: bool,
    /// Of all of them, if they can be given out later too.
    pub mark: Option<ChangeMark>,
}

impl DirectReads {
    /// Reads as many of the first bytes of `into` as can be read directly, in long runs. What is left is for ordinary reads.
    ///
    /// # Errors
    /// As an ordinary read.
    pub fn read_large(
        &self,
        session: &LinkSession,
        file: u64,
        into: &mut [u8],
        offset: u64,
    ) -> Result<DirectlyRead, CallError> {
        let mut read = DirectlyRead {
            len: 0,
            ends: false,
            mark: None,
        };
        if into.is_empty() || self.is_backing_off() {
            return Ok(read);
        }
        // What ends in another window is located as a whole, so that all of it is of one moment.
        let window = u64::from(MAX_LOCATED_BYTES);
        let last = offset.saturating_add(into.len() as u64 - 1);
        let is_in_one = offset / window == last / window;
        while read.len < into.len() {
            let at = offset.saturating_add(read.len as u64);
            let rest = &mut into[read.len..];
            let known = match is_in_one {
                true => self.window(session, file, at)?,
                false => None,
            };
            let most_runs = 1 + rest.len() / MIN_RUN_BYTES;
            let window = match known {
                Some(window) => Some(window).filter(|w| w.runs_of(at, rest.len()) <= most_runs),
                // Perhaps only others of its bytes are not where they can be read.
                None => locate(session, file, at, rest.len(), most_runs as u32)?,
            };
            let Some((came, window)) = window
                .and_then(|window| Some((self.read_from(session, &window, at, rest)?, window)))
            else {
                self.back_off();
                break;
            };
            let is_first = read.len == 0;
            read.mark = (window.located.mark).filter(|mark| is_first || read.mark == Some(*mark));
            read.len += came;
            if came == 0 || read.len < into.len() && window.located.len < window.asked {
                read.ends = true;
                break;
            }
        }
        Ok(read)
    }

    /// A short read that goes on no row: made directly if it is known where its bytes lie, or if there are many such reads. `None`: it is
    /// to be an ordinary one.
    ///
    /// # Errors
    /// As an ordinary read.
    pub fn read_small(
        &self,
        session: &LinkSession,
        file: u64,
        into: &mut [u8],
        offset: u64,
    ) -> Result<Option<usize>, CallError> {
        if into.is_empty() || self.is_backing_off() {
            return Ok(None);
        }
        let window = match self.kept_window(session, offset) {
            Some(window) => Some(window),
            None if self.scattered.fetch_add(1, Relaxed) < MIN_SCATTERED => return Ok(None),
            None if !session.has_change_counters() => None,
            None => self.window(session, file, offset)?,
        };
        // A window of which it cannot be told how long it is right would be asked for each time.
        let Some(window) = window.filter(|window| window.located.mark.is_some()) else {
            self.back_off();
            return Ok(None);
        };
        let last = offset.saturating_add(into.len() as u64 - 1);
        if !window.holds(last) && window.located.len == window.asked {
            // It goes on in the next window.
            return Ok(None);
        }
        let came = self.read_from(session, &window, offset, into);
        if came.is_none() {
            self.back_off();
        }
        Ok(came)
    }

    /// Forgets all windows: the file is closed.
    pub fn end(&self, session: &LinkSession) {
        if let Some(mut kept) = self.kept.try_lock() {
            session.keep_bytes(kept.counted, 0);
            *kept = KeptWindows::default();
        }
    }

    fn is_backing_off(&self) -> bool {
        let waits = self.backoff.load(Relaxed);
        if waits > 0 {
            // Of threads that read at once some may not count; that does not matter.
            self.backoff.store(waits - 1, Relaxed);
        }
        waits > 0
    }

    fn back_off(&self) {
        self.backoff.store(BACKOFF_READS, Relaxed);
    }

    /// Reads the first bytes of `into` that a window holds; how many. `None`: they are not there any more.
    fn read_from(
        &self,
        session: &LinkSession,
        window: &Arc<LocatedWindow>,
        offset: u64,
        into: &mut [u8],
    ) -> Option<usize> {
        let from = u32::try_from(offset - window.start).ok()?;
        let len = (window.located.len.saturating_sub(from) as usize).min(into.len());
        if window.read(session, from, &mut into[..len]).is_none() {
            self.forget(session, |kept| Arc::ptr_eq(kept, window));
            return None;
        }
        Some(len)
    }

    /// The kept window with this byte, if it is current.
    fn kept_window(&self, session: &LinkSession, offset: u64) -> Option<Arc<LocatedWindow>> {
        let window = {
            let mut kept = self.kept.lock();
            let at = kept.windows.iter().rposition(|w| w.holds(offset))?;
            let window = kept.windows.remove(at);
            kept.windows.push(window.clone());
            window
        };
        if window.is_current(session) {
            return Some(window);
        }
        // The others are of before the change too.
        self.forget(session, |_| true);
        None
    }

    /// The window with this byte, kept or asked for. `None`: not all of it can be read directly.
    fn window(
        &self,
        session: &LinkSession,
        file: u64,
        offset: u64,
    ) -> Result<Option<Arc<LocatedWindow>>, CallError> {
        if let Some(window) = self.kept_window(session, offset) {
            return Ok(Some(window));
        }
        let start = offset - offset % u64::from(MAX_LOCATED_BYTES);
        let len = MAX_LOCATED_BYTES as usize;
        let window = locate(session, file, start, len, MAX_LOCATED_RUNS)?;
        if let Some(window) = &window
            && window.located.mark.is_some()
            && session.has_change_counters()
            && session.has_room_ahead()
        {
            let mut kept = self.kept.lock();
            if kept.windows.len() >= MOST_WINDOWS {
                kept.windows.remove(0);
            }
            kept.windows.push(window.clone());
            kept.count(session);
        }
        Ok(window)
    }

    fn forget(&self, session: &LinkSession, which: impl Fn(&Arc<LocatedWindow>) -> bool) {
        let mut kept = self.kept.lock();
        kept.windows.retain(|window| !which(window));
        kept.count(session);
    }
}

impl KeptWindows {
    fn count(&mut self, session: &LinkSession) {
        let now = self.windows.iter().map(|window| window.memory()).sum();
        session.keep_bytes(self.counted, now);
        self.counted = now;
    }
}

/// Asks where some bytes lie. `None`: they cannot be read directly, or the answer's numbers do not fit.
fn locate(
    session: &LinkSession,
    file: u64,
    offset: u64,
    len: usize,
    most: u32,
) -> Result<Option<Arc<LocatedWindow>>, CallError> {
    let len = u32::try_from(len).map_or(MAX_LOCATED_BYTES, |len| len.min(MAX_LOCATED_BYTES));
    let request = Request::File(file, FileRequest::Locate { offset, len, most });
    let (located, _): (Option<DirectRead>, _) =
        session.call_on_file(&request, BulkTransfer::None)?;
    let window = located.and_then(|mut located| {
        let runs = &mut located.runs;
        runs.sort_unstable_by_key(|(place, _)| *place);
        let mut end = 0;
        let fits = runs.iter().all(|(place, run)| {
            let follows = *place >= end;
            end = place.saturating_add(run.len);
            follows && end <= located.len
        });
        let fits = fits && located.len <= len;
        fits.then_some(Arc::new(LocatedWindow {
            start: offset,
            asked: len,
            located,
        }))
    });
    Ok(window)
}
