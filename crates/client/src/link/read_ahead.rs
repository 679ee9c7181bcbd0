//! Bytes of an open file that were read before they were asked for, by the server or by this process, and which ones to read next.
//!
//! A program that reads small records in a row, or with a stride, would wait for a reply for each. So a request that goes on as the
//! two before it did asks for the records that follow too, twice as many as the last time. What came is kept, and given out as long as the
//! file's change counter has not moved: then a read made at the server would return the same.
//!
//! Invariants:
//! - Bytes kept from an earlier reply are given out only while the file's change counter has the value that came with them (their *mark*).
//! - One window a file, of at most [`SHARED_BYTES`].
use super::request::{MAX_RECORDS, StridedRecords};
use super::wire::{MAX_INLINE_BYTES, SHARED_BYTES};
use forebay_server::delegate::ChangeMark;

/// Longer reads ask for themselves alone: a reply costs little beside their bytes.
pub(super) const MAX_RECORD: usize = 128 << 10;
/// Requests that have gone on in the same way before more is asked for.
const MIN_RUN: u32 = 2;
/// Reads that ask for themselves alone after a window that was of no use, or failed.
const BACKOFF_READS: u32 = 32;

/// See the head of this file.
#[derive(Debug, Default)]
pub(super) struct ReadAhead {
    /// The last read, and how far behind the one before it.
    last: Option<(u64, usize)>,
    step: u64,
    /// Reads in a row that went on by the same step.
    run: u32,
    backoff: u32,
    window: ReadWindow,
}

#[derive(Debug, Default)]
struct ReadWindow {
    /// `None`: there is none.
    mark: Option<ChangeMark>,
    records: StridedRecords,
    /// Those that came.
    bytes: Vec<u8>,
    /// Bytes given out.
    used: usize,
}

impl ReadWindow {
    /// The bytes from `offset` on, if `len` of them are there.
    fn get(&self, offset: u64, len: usize) -> Option<&[u8]> {
        let StridedRecords {
            start,
            stride,
            len: record,
            ..
        } = self.records;
        let behind = offset.checked_sub(start)?;
        let (number, within) = (behind / stride.max(1), behind % stride.max(1));
        let (record, within) = (record as usize, usize::try_from(within).ok()?);
        if within.checked_add(len)? > record {
            return None;
        }
        let at = usize::try_from(number).ok()?.checked_mul(record)? + within;
        self.bytes.get(at..)?.get(..len)
    }
}

impl ReadAhead {
    /// Copies what is asked for, if it is there; `is_current` says whether a mark still is.
    pub fn take(
        &mut self,
        into: &mut [u8],
        offset: u64,
        is_current: impl FnOnce(ChangeMark) -> bool,
    ) -> bool {
        let Some(mark) = self.window.mark else {
            return false;
        };
        let Some(bytes) = self.window.get(offset, into.len()) else {
            return false;
        };
        // After the bytes were found and before they are given out, with no call between.
        if !is_current(mark) {
            self.drop_window();
            return false;
        }
        into.copy_from_slice(bytes);
        self.window.used += into.len();
        self.record_read(offset, into.len());
        true
    }

    /// A read that has to be asked for: the records to ask for with it, if it can be foretold what follows.
    /// `may_grow`: windows may have more than 64 KiB.
    pub fn next_records(
        &mut self,
        offset: u64,
        len: usize,
        may_grow: bool,
    ) -> Option<StridedRecords> {
        let goes_on = self.record_read(offset, len);
        if !goes_on {
            // What is there was of no use, and its memory need not be kept.
            self.window = ReadWindow::default();
            return None;
        }
        if self.backoff > 0 {
            self.backoff -= 1;
            return None;
        }
        if self.run < MIN_RUN || len > MAX_RECORD {
            return None;
        }
        Some(self.records_from(offset, len, may_grow))
    }

    /// What was asked for did not come.
    pub fn back_off(&mut self) {
        self.window = ReadWindow::default();
        self.backoff = BACKOFF_READS;
    }

    /// Drops a window for which nothing came.
    pub fn drop_unfilled(&mut self) {
        self.window = ReadWindow::default();
    }

    /// Memory of the window.
    pub fn kept_bytes(&self) -> usize {
        self.window.bytes.capacity()
    }

    /// The records behind those of the window, if all of these came, and the window was not the first.
    pub fn following(&self) -> Option<StridedRecords> {
        let ReadWindow {
            records,
            mark,
            bytes,
            ..
        } = &self.window;
        let (_, len) = self.last?;
        let may =
            mark.is_some() && bytes.len() == records.bytes() && bytes.len() > MAX_INLINE_BYTES;
        let behind = records.stride.checked_mul(records.count.into())?;
        let start = records.start.checked_add(behind)?;
        may.then(|| self.records_from(start, len, true))
    }

    fn records_from(&self, offset: u64, len: usize, may_grow: bool) -> StridedRecords {
        let largest = if may_grow {
            SHARED_BYTES
        } else {
            MAX_INLINE_BYTES
        };
        let budget = (2 * self.window.bytes.len()).clamp(MAX_INLINE_BYTES, largest);
        let count = (budget.max(len) / len) as u32;
        let count = count.min(MAX_RECORDS);
        let in_row = self.step == len as u64;
        StridedRecords {
            start: offset,
            len: if in_row {
                count * len as u32
            } else {
                len as u32
            },
            stride: if in_row {
                u64::from(count) * len as u64
            } else {
                self.step
            },
            count: if in_row { 1 } else { count },
        }
    }

    /// Where the bytes of a window go.
    pub fn buffer(&mut self, records: &StridedRecords) -> &mut [u8] {
        self.window.mark = None;
        self.window.bytes.resize(records.bytes(), 0);
        &mut self.window.bytes
    }

    /// So many bytes of the records came, in the buffer. Without a mark they are of now alone.
    pub fn fill(
        &mut self,
        records: StridedRecords,
        came: usize,
        mark: Option<ChangeMark>,
        into: &mut [u8],
    ) -> usize {
        let window = &mut self.window;
        window.bytes.truncate(came);
        let first = came.min(into.len());
        into[..first].copy_from_slice(&window.bytes[..first]);
        (window.records, window.mark, window.used) = (records, mark, first);
        match mark {
            None => self.drop_window(),
            // The end of the file.
            Some(_) if first < into.len() => self.window = ReadWindow::default(),
            Some(_) => self.window.bytes.shrink_to(came),
        }
        first
    }

    fn drop_window(&mut self) {
        // It cost more than it brought.
        if self.window.used <= self.window.bytes.len() / 2 {
            self.backoff = BACKOFF_READS;
        }
        self.window = ReadWindow::default();
    }

    /// A read; whether it goes on as the one before.
    fn record_read(&mut self, offset: u64, len: usize) -> bool {
        let step = self.last.and_then(|(last, _)| offset.checked_sub(last));
        let same = self.last.is_some_and(|(_, last)| last == len)
            && step.is_some_and(|step| step >= len as u64);
        let goes_on = same && step == Some(self.step);
        self.run = if goes_on {
            self.run.saturating_add(1)
        } else {
            0
        };
        self.step = step.filter(|_| same).unwrap_or_default();
        self.last = Some((offset, len));
        goes_on
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MARK: ChangeMark = ChangeMark {
        counter: 3,
        value: 9,
    };

    fn byte_at(offset: u64) -> u8 {
        (offset ^ (offset >> 8) ^ (offset >> 16)) as u8
    }

    /// A file of this size as a server sends records of it.
    fn send(records: &StridedRecords, size: u64, into: &mut [u8]) -> usize {
        let mut came = 0;
        for n in 0..u64::from(records.count) {
            let start = records.start + n * records.stride;
            let end = (start + u64::from(records.len)).min(size);
            for at in start..end.max(start) {
                into[came] = byte_at(at);
                came += 1;
            }
            if end < start + u64::from(records.len) {
                break;
            }
        }
        came
    }

    /// A read of a file of this size, and whether the server was asked.
    fn read(ahead: &mut ReadAhead, size: u64, offset: u64, into: &mut [u8]) -> (usize, bool) {
        if ahead.take(into, offset, |mark| mark == MARK) {
            return (into.len(), false);
        }
        let own = StridedRecords {
            start: offset,
            len: into.len() as u32,
            stride: into.len() as u64,
            count: 1,
        };
        match ahead.next_records(offset, into.len(), true) {
            None => (send(&own, size, into), true),
            Some(records) => {
                assert!(records.bytes() <= SHARED_BYTES.max(into.len()));
                let came = send(&records, size, ahead.buffer(&records));
                (ahead.fill(records, came, Some(MARK), into), true)
            }
        }
    }

    #[test]
    fn records_in_a_row_and_with_a_stride_are_seldom_asked_for() {
        for stride in [4096, 5000, 1 << 20] {
            let mut ahead = ReadAhead::default();
            let mut buffer = [0; 4096];
            let asked = (0..1000u64).filter(|n| {
                let (came, asked) = read(&mut ahead, u64::MAX, n * stride, &mut buffer);
                assert_eq!(came, 4096);
                asked
            });
            // The first ones; then 16 records at once, 32, and so on up to 256.
            assert_eq!(asked.count(), 3 + 7, "stride {stride}");
        }
    }

    #[test]
    fn a_change_drops_the_window_and_a_file_that_changes_all_the_time_is_not_read_ahead() {
        let mut ahead = ReadAhead::default();
        let mut buffer = [0; 100];
        for n in 0..4 {
            read(&mut ahead, 1 << 20, n * 100, &mut buffer);
        }
        assert!(ahead.take(&mut buffer, 400, |_| true));
        assert!(!ahead.take(&mut buffer, 500, |_| false));
        assert!(!ahead.take(&mut buffer, 500, |_| true), "it is gone");
        for n in 5..5 + u64::from(BACKOFF_READS) {
            assert_eq!(ahead.next_records(n * 100, 100, true), None);
        }
        assert!(
            ahead
                .next_records(100 * u64::from(5 + BACKOFF_READS), 100, true)
                .is_some()
        );
    }

    proptest! {
        /// Whatever is read, it is what the file has.
        #[test]
        fn reads_return_what_the_file_has(
            size in 0u64..50_000,
            runs in prop::collection::vec((0u64..50_000, 1usize..3000, 0u64..3, 1u64..30), 1..8),
        ) {
            let mut ahead = ReadAhead::default();
            for (start, len, gap, times) in runs {
                for n in 0..times {
                    let offset = start + n * (len as u64 + gap * 500);
                    let mut buffer = vec![0xEE; len];
                    let (came, _) = read(&mut ahead, size, offset, &mut buffer);
                    let there = size.saturating_sub(offset).min(len as u64) as usize;
                    prop_assert_eq!(came, there, "at {}", offset);
                    let expected: Vec<u8> = (offset..).take(there).map(byte_at).collect();
                    prop_assert_eq!(&buffer[..there], &expected[..]);
                }
            }
        }
    }
}
