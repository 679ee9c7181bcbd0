//! Reads that this process makes itself, out of the server's segment files (`forebay_server::delegate::DirectRead`): large ones, short
//! ones at random places, and records with a stride, many at once.
//!
//! It asks where the bytes of a window of the file lie (`located_windows`), and reads and verifies them there: they are copied once, and
//! the server computes nothing. If the bytes are not there any more, or damaged, the ordinary read that follows finds out what is the
//! matter. The server is told several times a second how much was read, for its counters, and so that settling gives way.
//!
//! Invariant: to ask for a window is tried less often the less its answers are used (`LocateBackoff`).
use super::error::CallError;
use super::located_windows::{LocatedWindow, LocatedWindows};
use super::request::{FileRequest, MAX_LOCATED_BYTES, Request, StridedRecords};
use super::session::LinkSession;
use forebay_server::delegate::ChangeMark;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// Shorter reads are ordinary ones at first: to ask where their bytes lie would take as long.
pub(super) const MIN_BYTES: usize = 256 << 10;
/// Bytes of a run, on average, in a large read: with smaller ones an ordinary read, which gathers them, is faster.
const MIN_RUN_BYTES: usize = 32 << 10;
/// Short reads at random places before it is asked where the next ones lie.
const RANDOM_READS_BEFORE_LOCATE: u32 = 4;
/// A window pays by so many reads.
const MIN_USES: u32 = 4;
/// Reads that ask for no window after one that did not pay: at first, and at most, for each such window doubles it.
const MIN_BACKOFF: u32 = 16;
const MAX_BACKOFF: u32 = 256;
/// How often the server is told what was read.
const REPORT_INTERVAL_MICROS: u64 = 100_000;

/// Reads that still ask for no window, and how many it will be the next time. Of threads that read at once some may not count; that does not
/// matter.
#[derive(Debug, Default)]
struct LocateBackoff {
    left: AtomicU32,
    next: AtomicU32,
}

impl LocateBackoff {
    /// Counts a read that would ask. Whether it is not to.
    fn holds_back(&self) -> bool {
        let left = self.left.load(Relaxed);
        self.left.store(left.saturating_sub(1), Relaxed);
        left > 0
    }

    /// A window did not pay, or could not be had.
    fn extend(&self) {
        let now = self.next.load(Relaxed).clamp(MIN_BACKOFF, MAX_BACKOFF);
        self.left.store(now, Relaxed);
        self.next.store(now.saturating_mul(2), Relaxed);
    }

    /// A window has gone by which so many reads were made.
    fn window_gone(&self, uses: u32) {
        match uses < MIN_USES {
            true => self.extend(),
            false => self.next.store(0, Relaxed),
        }
    }
}

/// Reads of an open file that are made directly.
#[derive(Default)]
pub(super) struct DirectReader {
    windows: LocatedWindows,
    /// Of whole windows.
    backoff: LocateBackoff,
    /// Of the bytes of one large read, or of the records that are read ahead.
    exact: LocateBackoff,
    /// Short reads at random places, of which nothing was known.
    random: AtomicU32,
    /// What the server has not been told of.
    reads: AtomicU64,
    bytes: AtomicU64,
    /// When it was told last: microseconds of the session.
    reported: AtomicU64,
}

/// What was read directly.
#[derive(Default)]
pub(super) struct DirectReadOutcome {
    /// The first bytes, so many.
    pub len: usize,
    /// The file ends there.
    pub ends: bool,
    /// Of all of them, if they can be given out later too.
    pub mark: Option<ChangeMark>,
}

impl DirectReader {
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
    ) -> Result<DirectReadOutcome, CallError> {
        let mut read = DirectReadOutcome::default();
        if into.is_empty() {
            return Ok(read);
        }
        // What ends in another window is located as a whole, so that all of it is of one moment.
        let window = u64::from(MAX_LOCATED_BYTES);
        let last = offset.saturating_add(into.len() as u64 - 1);
        let is_in_one = offset / window == last / window;
        while read.len < into.len() {
            let at = offset.saturating_add(read.len as u64);
            let rest = &mut into[read.len..];
            let max_runs = 1 + rest.len() / MIN_RUN_BYTES;
            let window = match is_in_one {
                true => self.window_of_large(session, file, at, rest.len(), max_runs)?,
                false => self.ask_exactly(session, file, at, rest.len(), max_runs)?,
            };
            let Some(window) = window else { break };
            let Some(len) = self.read_from(session, file, &window, at, rest) else {
                self.exact.extend();
                break;
            };
            let is_first = read.len == 0;
            read.mark = window
                .mark()
                .filter(|mark| is_first || read.mark == Some(*mark));
            read.len += len;
            if len == 0 || read.len < into.len() && window.has_end() {
                read.ends = true;
                break;
            }
        }
        Ok(read)
    }

    /// A whole window if windows pay, else one of these bytes alone.
    fn window_of_large(
        &self,
        session: &LinkSession,
        file: u64,
        offset: u64,
        len: usize,
        max_runs: usize,
    ) -> Result<Option<Arc<LocatedWindow>>, CallError> {
        let in_long_runs = |window: &Arc<LocatedWindow>| window.runs_of(offset, len) <= max_runs;
        if let Some(window) = self.kept_window(session, offset) {
            return Ok(Some(window).filter(in_long_runs));
        }
        let mut window = None;
        if !self.backoff.holds_back() {
            window = self.ask_window(session, file, offset)?;
        }
        match window {
            Some(window) => Ok(Some(window).filter(in_long_runs)),
            None => self.ask_exactly(session, file, offset, len, max_runs),
        }
    }

    /// Where records lie, if they can be read directly, in long runs: each writer's records lie together, so those of a reader with the
    /// stride of a writer do too.
    ///
    /// # Errors
    /// As an ordinary read.
    pub fn locate_records(
        &self,
        session: &LinkSession,
        file: u64,
        records: StridedRecords,
    ) -> Result<Option<Arc<LocatedWindow>>, CallError> {
        let max_runs = 1 + records.bytes() / MIN_RUN_BYTES;
        self.ask_records(session, file, records, max_runs)
    }

    /// Reads located records, one behind the other.
    pub fn read_records(
        &self,
        session: &LinkSession,
        file: u64,
        window: &Arc<LocatedWindow>,
        into: &mut [u8],
    ) -> DirectReadOutcome {
        let Some(len) = self.read_from(session, file, window, 0, into) else {
            self.exact.extend();
            return DirectReadOutcome::default();
        };
        DirectReadOutcome {
            len,
            ends: window.has_end(),
            mark: window.mark(),
        }
    }

    /// Counts a read that the server made. Whether the next one is the server's too, because direct ones were of no use lately.
    pub fn leaves_next_to_server(&self) -> bool {
        self.exact.holds_back()
    }

    /// A window of these bytes alone, which is not kept.
    fn ask_exactly(
        &self,
        session: &LinkSession,
        file: u64,
        offset: u64,
        len: usize,
        max_runs: usize,
    ) -> Result<Option<Arc<LocatedWindow>>, CallError> {
        let len = u32::try_from(len).map_or(MAX_LOCATED_BYTES, |len| len.min(MAX_LOCATED_BYTES));
        self.ask_records(session, file, StridedRecords::one(offset, len), max_runs)
    }

    /// A window of these records alone, which is not kept.
    fn ask_records(
        &self,
        session: &LinkSession,
        file: u64,
        records: StridedRecords,
        max_runs: usize,
    ) -> Result<Option<Arc<LocatedWindow>>, CallError> {
        if self.exact.holds_back() {
            return Ok(None);
        }
        let window = LocatedWindow::ask(session, file, records, max_runs as u32)?;
        match window {
            Some(_) => self.exact.next.store(0, Relaxed),
            None => self.exact.extend(),
        }
        Ok(window)
    }

    /// A short read that does not follow others: made directly if it is known where its bytes lie, or if there are many such reads. `None`: it
    /// is to be an ordinary one.
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
        if into.is_empty() {
            return Ok(None);
        }
        let window = match self.kept_window(session, offset) {
            Some(window) => Some(window),
            None if self.random.fetch_add(1, Relaxed) < RANDOM_READS_BEFORE_LOCATE => None,
            None if self.backoff.holds_back() => None,
            None => self.ask_window(session, file, offset)?,
        };
        let last = offset.saturating_add(into.len() as u64 - 1);
        // Else it goes on in the next window.
        let is_whole = |window: &Arc<LocatedWindow>| window.holds(last) || window.has_end();
        let window = window.filter(is_whole);
        Ok(window.and_then(|window| self.read_from(session, file, &window, offset, into)))
    }

    /// Whether short reads are mostly made directly. Asked before many are asked for at once instead.
    pub fn is_ready(&self) -> bool {
        !self.backoff.holds_back()
    }

    /// The file is closed: drops all windows, and tells the server what was read.
    pub fn end(&self, session: &LinkSession, file: u64) {
        self.windows.end(session);
        self.report(session, file);
    }

    fn kept_window(&self, session: &LinkSession, offset: u64) -> Option<Arc<LocatedWindow>> {
        match self.windows.get(session, offset) {
            Ok(window) => window,
            Err(uses) => {
                self.backoff.window_gone(uses);
                None
            }
        }
    }

    /// Asks for a window; `None` also if it would be asked for anew for each read.
    fn ask_window(
        &self,
        session: &LinkSession,
        file: u64,
        offset: u64,
    ) -> Result<Option<Arc<LocatedWindow>>, CallError> {
        let (window, evicted) = self.windows.ask(session, file, offset)?;
        if let Some(uses) = evicted {
            self.backoff.window_gone(uses);
        }
        let keeps =
            |window: &Arc<LocatedWindow>| window.mark().is_some() && session.has_change_counters();
        let window = window.filter(keeps);
        if window.is_none() {
            self.backoff.extend();
        }
        Ok(window)
    }

    fn read_from(
        &self,
        session: &LinkSession,
        file: u64,
        window: &Arc<LocatedWindow>,
        offset: u64,
        into: &mut [u8],
    ) -> Option<usize> {
        let Some(len) = window.read(session, offset, into) else {
            self.windows.drop_window(session, window);
            self.backoff.extend();
            return None;
        };
        self.reads.fetch_add(1, Relaxed);
        self.bytes.fetch_add(len as u64, Relaxed);
        let now = session.micros();
        if now.saturating_sub(self.reported.load(Relaxed)) > REPORT_INTERVAL_MICROS {
            self.reported.store(now, Relaxed);
            self.report(session, file);
        }
        Some(len)
    }

    /// Tells the server what was read since it was told last, unless all connections are busy.
    fn report(&self, session: &LinkSession, file: u64) {
        let (reads, bytes) = (self.reads.swap(0, Relaxed), self.bytes.swap(0, Relaxed));
        if reads == 0 {
            return;
        }
        let request = Request::File(file, FileRequest::CountReads { reads, bytes });
        if session.call_at_once(&request).is_none() {
            self.reads.fetch_add(reads, Relaxed);
            self.bytes.fetch_add(bytes, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_that_do_not_pay_are_asked_for_less_and_less_often() {
        let backoff = LocateBackoff::default();
        let mut asked = 0;
        for _ in 0..10_000 {
            if !backoff.holds_back() {
                asked += 1;
                backoff.window_gone(1);
            }
        }
        assert!((40..60).contains(&asked), "{asked}");
        backoff.left.store(0, Relaxed);
        backoff.window_gone(MIN_USES);
        assert!(!backoff.holds_back());
        backoff.window_gone(0);
        let held_back = (0..1000).take_while(|_| backoff.holds_back()).count();
        assert_eq!(held_back, MIN_BACKOFF as usize);
    }
}
