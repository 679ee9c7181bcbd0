//! Where the bytes of an open file lie in the server's segment files: windows of it that the server was asked about.
//!
//! A window is used as long as the file's change counter has the value that came with it (its *mark*): then a read made at the server would
//! return the same. What was freed or moved since, its checksums show.
//!
//! Invariants:
//! - Windows of one file do not overlap; there are [`MAX_WINDOWS`] at most, the ones used last.
//! - All files of a session together keep [`MAX_LOCATED_MEMORY`](super::session::MAX_LOCATED_MEMORY) of them, and one window more each.
//! - After `end` none is kept.
use super::connection::BulkTransfer;
use super::error::CallError;
use super::request::{FileRequest, MAX_LOCATED_BYTES, MAX_LOCATED_RUNS, Request, StridedRecords};
use super::session::LinkSession;
use forebay_server::delegate::DirectRead;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Windows that an open file keeps: of 1 GiB in all. One takes some 8 KiB of memory, up to 100 KiB if it has many runs.
const MAX_WINDOWS: usize = 128;

/// See the head of this file.
pub(super) struct LocatedWindow {
    /// Offset in the file of its first byte; zero if it is of several records, which it has one behind the other.
    start: u64,
    /// Bytes that were asked for: those located are fewer only at the end of the file.
    asked: u32,
    /// Its runs are sorted by place, and do not overlap.
    located: DirectRead,
    memory: usize,
    /// Reads that were made by it.
    uses: AtomicU32,
}

impl LocatedWindow {
    /// Asks where the bytes of records lie. `None`: they cannot be read directly, or are in more than `most` runs, or the answer's numbers do not
    /// fit, or it cannot be told for some of them: then an ordinary read tells what is the matter.
    ///
    /// # Errors
    /// As any call; not for damage.
    pub fn ask(
        session: &LinkSession,
        file: u64,
        records: StridedRecords,
        most: u32,
    ) -> Result<Option<Arc<LocatedWindow>>, CallError> {
        let request = Request::File(file, FileRequest::Locate { records, most });
        let located = match session.call_on_file(&request, BulkTransfer::None) {
            Ok((located, _)) => located,
            Err(CallError::Service(_)) => None,
            Err(error) => return Err(error),
        };
        let (start, asked) = match records.count {
            1 => (records.start, records.len),
            _ => (0, records.bytes() as u32),
        };
        let window = located.and_then(|located| LocatedWindow::of(start, asked, most, located));
        Ok(window.map(Arc::new))
    }

    fn of(start: u64, asked: u32, most: u32, mut located: DirectRead) -> Option<LocatedWindow> {
        let runs = &mut located.runs;
        runs.sort_unstable_by_key(|(place, _)| *place);
        let mut end = 0;
        let fits = runs.iter().all(|(place, run)| {
            let follows = *place >= end;
            end = place.saturating_add(run.len);
            follows && end <= located.len && run.is_sound()
        });
        let memory = size_of::<LocatedWindow>()
            + runs.iter().map(|(_, run)| 8 + run.memory()).sum::<usize>();
        let is_bounded = located.len <= asked && runs.len() <= most.max(1) as usize;
        (fits && is_bounded).then_some(LocatedWindow {
            start,
            asked,
            located,
            memory,
            uses: AtomicU32::new(0),
        })
    }

    /// The mark of its bytes. `None`: they are of now alone.
    pub fn mark(&self) -> Option<forebay_server::delegate::ChangeMark> {
        self.located.mark
    }

    /// Whether the file ends in it.
    pub fn has_end(&self) -> bool {
        self.located.len < self.asked
    }

    /// Whether the byte at `offset` was asked for.
    pub fn holds(&self, offset: u64) -> bool {
        let behind = offset.checked_sub(self.start);
        behind.is_some_and(|behind| behind < self.asked.into())
    }

    /// Runs that have some of these bytes.
    pub fn runs_of(&self, offset: u64, len: usize) -> usize {
        let from = offset.saturating_sub(self.start);
        let to = from.saturating_add(len as u64);
        let runs = &self.located.runs;
        let begun = runs.partition_point(|(place, _)| u64::from(*place) < to);
        let ended =
            runs.partition_point(|(place, run)| u64::from(*place) + u64::from(run.len) <= from);
        begun.saturating_sub(ended)
    }

    /// Reads the first bytes of `into` that it has from `offset` on; how many. `None`: they are not there any more.
    pub fn read(&self, session: &LinkSession, offset: u64, into: &mut [u8]) -> Option<usize> {
        let from = u32::try_from(offset.checked_sub(self.start)?).ok()?;
        let len = (self.located.len.saturating_sub(from) as usize).min(into.len());
        self.read_runs(session, from, &mut into[..len])?;
        self.uses.fetch_add(1, Relaxed);
        Some(len)
    }

    fn read_runs(&self, session: &LinkSession, from: u32, into: &mut [u8]) -> Option<()> {
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

    fn is_current(&self, session: &LinkSession) -> bool {
        (self.located.mark).is_some_and(|mark| session.is_current(mark))
    }
}

/// The windows that an open file keeps.
#[derive(Default)]
pub(super) struct LocatedWindows {
    kept: Mutex<KeptWindows>,
}

#[derive(Default)]
struct KeptWindows {
    /// The one used last is the last.
    windows: Vec<Arc<LocatedWindow>>,
    ended: bool,
}

impl LocatedWindows {
    /// The window with this byte, if it is here and current. `Err`: there was one, and the file has changed; how many reads were made by
    /// it.
    pub fn get(
        &self,
        session: &LinkSession,
        offset: u64,
    ) -> Result<Option<Arc<LocatedWindow>>, u32> {
        let window = {
            let mut kept = self.kept.lock();
            let Some(at) = kept.windows.iter().rposition(|w| w.holds(offset)) else {
                return Ok(None);
            };
            let window = kept.windows.remove(at);
            kept.windows.push(window.clone());
            window
        };
        if window.is_current(session) {
            return Ok(Some(window));
        }
        // Others are mostly of before the change too.
        self.retain(session, |window| window.is_current(session));
        Err(window.uses.load(Relaxed))
    }

    /// Asks for the window with this byte, and keeps it if it can be told how long it is right. `None`: not all of it can be read directly.
    /// Beside it, how many reads were made by the window that made place for it, if one did.
    ///
    /// # Errors
    /// As any call.
    pub fn ask(
        &self,
        session: &LinkSession,
        file: u64,
        offset: u64,
    ) -> Result<(Option<Arc<LocatedWindow>>, Option<u32>), CallError> {
        let start = offset - offset % u64::from(MAX_LOCATED_BYTES);
        let records = StridedRecords::one(start, MAX_LOCATED_BYTES);
        let window = LocatedWindow::ask(session, file, records, MAX_LOCATED_RUNS)?;
        let keeps =
            |window: &&Arc<LocatedWindow>| window.mark().is_some() && session.has_change_counters();
        let evicted = match window.as_ref().filter(keeps) {
            Some(window) => self.keep(session, window.clone()),
            None => None,
        };
        Ok((window, evicted))
    }

    /// Keeps a window; how many reads were made by the one that made place for it, the least used if several did.
    fn keep(&self, session: &LinkSession, window: Arc<LocatedWindow>) -> Option<u32> {
        let mut kept = self.kept.lock();
        if kept.ended {
            return None;
        }
        if let Some(at) = kept.windows.iter().position(|w| w.start == window.start) {
            if kept.windows[at].is_current(session) {
                // Another thread has asked for the same one.
                return None;
            }
            let same = kept.windows.remove(at);
            session.count_located(same.memory, 0);
        }
        session.count_located(0, window.memory);
        kept.windows.push(window);
        let mut least_uses = None;
        while kept.windows.len() > MAX_WINDOWS
            || kept.windows.len() > 1 && !session.has_room_for_located()
        {
            let oldest = kept.windows.remove(0);
            session.count_located(oldest.memory, 0);
            let uses = oldest.uses.load(Relaxed);
            least_uses = Some(least_uses.map_or(uses, |least: u32| least.min(uses)));
        }
        least_uses
    }

    /// Drops a window whose bytes are not there any more.
    pub fn drop_window(&self, session: &LinkSession, window: &Arc<LocatedWindow>) {
        self.retain(session, |kept| !Arc::ptr_eq(kept, window));
    }

    /// Drops all, and keeps none any more: the file is closed.
    pub fn end(&self, session: &LinkSession) {
        self.kept.lock().ended = true;
        self.retain(session, |_| false);
    }

    fn retain(&self, session: &LinkSession, keep: impl Fn(&Arc<LocatedWindow>) -> bool) {
        self.kept.lock().windows.retain(|window| {
            let keeps = keep(window);
            if !keeps {
                session.count_located(window.memory, 0);
            }
            keeps
        });
    }
}
