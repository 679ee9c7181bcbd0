//! The last request of each handle of a file, and whether strided readers together read all of it.
//!
//! Often the processes of a node split the records of a file among them, so every record is read by one of them. Then it is best to
//! fill whole runs of pages into the kernel's page cache, once for all. If each reader's records were filled alone, gaps would
//! remain that the kernel requests one by one. After a whole run the kernel also continues with its own readahead.
//!
//! Pure. The caller numbers the handles.
use std::ops::Range;

/// Handles that are remembered, at most: those with the newest requests.
const MAX_HANDLES: usize = 128;
/// Handles that read further apart than this do not need each other's pages soon. Pages.
const NEAR_PAGES: u64 = 4096;
/// A request of at least this size comes from the kernel's readahead at full speed. Pages.
const LONG_PAGES: u64 = 256;
/// The share of a period that the handles must read together. Less than all, because records need not begin and end on pages.
const COVERED: f64 = 7.0 / 8.0;

/// See the head of this file.
#[derive(Debug, Default)]
pub struct LastReads {
    /// Each handle with the pages of its last request, the newest request last.
    reads: Vec<(u64, Range<u64>)>,
    /// The newest readahead request, of any handle. The kernel reads ahead while it finds no gap after a reader.
    last_long: Range<u64>,
    /// The last run of pages that was filled for all.
    pub filled_run: Range<u64>,
}

impl LastReads {
    /// A handle asks for these pages.
    pub fn note(&mut self, handle: u64, pages: Range<u64>) {
        if pages.end - pages.start >= LONG_PAGES {
            self.last_long = pages.clone();
        }
        match self.reads.iter().rposition(|(known, _)| *known == handle) {
            Some(at) if at + 1 == self.reads.len() => self.reads[at].1 = pages,
            known => {
                let full = (self.reads.len() == MAX_HANDLES).then_some(0);
                if let Some(at) = known.or(full) {
                    self.reads.remove(at);
                }
                self.reads.push((handle, pages));
            }
        }
    }

    /// A handle is closed.
    pub fn forget(&mut self, handle: u64) {
        self.reads.retain(|(known, _)| *known != handle);
        if self.reads.is_empty() {
            (self.last_long, self.filled_run) = (0..0, 0..0);
        }
    }

    /// Whether other handles read the pages between those of `handle`, which reads `pages` and again every `stride` pages.
    pub fn fill_gaps_of(&self, handle: u64, pages: &Range<u64>, stride: f64) -> bool {
        let length = (pages.end - pages.start) as f64;
        let near = |read: &Range<u64>| read.start.abs_diff(pages.start) <= NEAR_PAGES;
        // Handles for which the kernel reads ahead make no requests of their own.
        let long = !self.last_long.is_empty() && near(&self.last_long);
        if self.reads.len() > 1 && long && stride <= LONG_PAGES as f64 {
            return true;
        }
        let others = self.reads.iter();
        let others = others.filter(|(other, read)| *other != handle && near(read));
        // Where in a period each of them begins to read.
        let mut begins = vec![0.0];
        for (_, read) in others {
            if (read.end - read.start) as f64 >= stride {
                return true;
            }
            begins.push((read.start as f64 - pages.start as f64).rem_euclid(stride));
        }
        begins.sort_unstable_by(f64::total_cmp);
        // Handles that begin at about the same place count once.
        let (mut different, mut last) = (0, f64::NEG_INFINITY);
        for begin in begins {
            if begin - last >= length / 2.0 && stride - begin >= length / 2.0 {
                (different, last) = (different + 1, begin);
            }
        }
        f64::from(different) * length >= COVERED * stride
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of handles that each asked for so many pages from there on, numbered from 0 on.
    fn reads(all: &[(u64, u64)]) -> LastReads {
        let mut reads = LastReads::default();
        for (handle, (start, length)) in (0..).zip(all) {
            reads.note(handle, *start..start + length);
        }
        reads
    }

    #[test]
    fn as_many_as_there_are_gaps_fill_them_wherever_they_are() {
        assert!(reads(&[(100, 1), (105, 1), (98, 1), (111, 1)]).fill_gaps_of(0, &(100..101), 4.0));
        // Records that begin within pages: 11.5 pages of every 45.9.
        let uneven = reads(&[(459, 12), (470, 13), (528, 11), (401, 12)]);
        assert!(uneven.fill_gaps_of(0, &(459..471), 45.9));
        // One that the kernel reads ahead for, and others who find there what they read.
        assert!(reads(&[(100, 1), (90, 30)]).fill_gaps_of(0, &(100..101), 4.0));
        let mut ahead = reads(&[(100, 1), (9000, 1), (200, 256)]);
        ahead.note(2, 9000..9001);
        assert!(ahead.fill_gaps_of(0, &(100..101), 4.0));
        assert!(!ahead.fill_gaps_of(0, &(9000..9001), 4.0), "far from there");
    }

    #[test]
    fn one_handle_alone_leaves_gaps_though_the_kernel_once_read_ahead_for_it() {
        let mut alone = reads(&[(0, 256)]);
        alone.note(0, 300..301);
        assert!(!alone.fill_gaps_of(0, &(300..301), 4.0));
    }

    #[test]
    fn too_few_handles_or_those_that_read_the_same_leave_gaps() {
        assert!(!reads(&[(100, 1)]).fill_gaps_of(0, &(100..101), 4.0));
        assert!(!reads(&[(100, 1), (105, 1), (98, 1)]).fill_gaps_of(0, &(100..101), 4.0));
        assert!(!reads(&[(100, 1), (104, 1), (96, 1), (112, 1)]).fill_gaps_of(0, &(100..101), 4.0));
        let far = NEAR_PAGES + 1;
        let apart = [(0, 1), (far + 1, 1), (far + 2, 1), (far + 3, 1)];
        assert!(!reads(&apart).fill_gaps_of(0, &(0..1), 4.0));
        // Four of sixty-four.
        let few = [(64, 1), (65, 1), (66, 1), (67, 1)];
        assert!(!reads(&few).fill_gaps_of(0, &(64..65), 64.0));
    }

    #[test]
    fn each_handle_counts_with_its_last_request_until_it_is_closed() {
        let mut all = reads(&[(0, 1), (1, 1), (2, 1), (7, 1)]);
        let fills = |all: &LastReads| all.fill_gaps_of(0, &(0..1), 4.0);
        assert!(fills(&all));
        all.note(2, 5..6);
        assert!(!fills(&all));
        all.note(2, 6..7);
        assert!(fills(&all));
        all.forget(3);
        assert!(!fills(&all));
        for handle in 10..10 + MAX_HANDLES as u64 {
            all.note(handle, 0..1);
        }
        assert_eq!(all.reads.len(), MAX_HANDLES);
        assert!(!all.reads.iter().any(|(handle, _)| *handle < 10));
    }
}
