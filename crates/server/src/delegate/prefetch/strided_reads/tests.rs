//! How many requests strided readers need, and how many pages are filled in vain; reads without a stride are left alone.
use super::*;

/// A reader of records, and the pages that its kernel has.
struct Reader {
    strided: StridedReads,
    kernel: std::collections::BTreeSet<u64>,
    requests: u64,
    stored: u64,
}

impl Reader {
    fn new() -> Reader {
        Reader {
            strided: StridedReads::default(),
            kernel: std::collections::BTreeSet::new(),
            requests: 0,
            stored: 0,
        }
    }

    /// Reads these bytes: of pages that are missing each row is a request.
    fn read(&mut self, bytes: Range<u64>) {
        let pages = bytes.start / PAGE..bytes.end.div_ceil(PAGE);
        let mut at = pages.start;
        while at < pages.end {
            let missing = (at..pages.end).take_while(|p| !self.kernel.contains(p));
            let end = at + missing.count() as u64;
            if end > at {
                self.request(at..end);
            }
            at = end.max(at + 1);
        }
    }

    fn request(&mut self, pages: Pages) {
        self.requests += 1;
        self.kernel.extend(pages.clone());
        if self.strided.observe(pages.start * PAGE..pages.end * PAGE) {
            let (first, ranges) = self.strided.predict();
            let mut behind = pages.end * PAGE;
            for range in &ranges {
                assert!(
                    behind <= range.start && range.start < range.end,
                    "{ranges:?}"
                );
                behind = range.end;
                let pages = range.start / PAGE..range.end / PAGE;
                self.stored += pages.end - pages.start;
                self.kernel.extend(pages);
            }
            self.strided.filled(first, ranges.len() as u64);
        }
    }

    /// Reads so many records; its requests, and the pages stored for each page that records need.
    fn records(mut self, start: u64, stride: u64, len: u64, records: u64) -> (u64, f64) {
        let mut needed = 0;
        for record in 0..records {
            let at = start + record * stride;
            needed += (at + len).div_ceil(PAGE) - at / PAGE;
            self.read(at..at + len);
        }
        (self.requests, self.stored as f64 / needed as f64)
    }
}

#[test]
fn records_of_whole_pages_cost_few_requests_and_no_page_in_vain() {
    for (start, stride, pages) in [(1, 4, 1), (0, 7, 2), (1000, 64, 16), (5, 1000, 40)] {
        let (start, stride, len) = (start * PAGE, stride * PAGE, pages * PAGE);
        let (requests, stored) = Reader::new().records(start, stride, len, 4096);
        let full = 4096 * pages / MAX_PAGES_AHEAD;
        assert!(
            requests < full * 5 / 4 + 24,
            "{requests} of records of {pages} pages"
        );
        let most = 1.0 + MAX_PAGES_AHEAD as f64 / (4096 * pages) as f64;
        assert!(stored < most + 0.01, "{stored}");
    }
}

#[test]
fn records_that_begin_anywhere_cost_few_requests_and_few_pages_in_vain() {
    for (start, stride, len) in [
        (47_008, 4 * 47_008, 47_008),
        (1, 188_056, 47_008),
        (123, 77_777, 10_000),
        (4_000_000_123, 10_000_019, 60_000),
    ] {
        let (requests, stored) = Reader::new().records(start, stride, len, 1000);
        let pages = len.div_ceil(PAGE) + 1;
        let full = 1000 / (MAX_PAGES_AHEAD / pages);
        assert!(
            requests < full * 5 / 4 + 40,
            "{requests} of stride {stride}"
        );
        assert!(stored < 1.3, "{stored} of stride {stride}");
    }
}

#[test]
fn nothing_is_foreseen_of_reads_that_follow_each_other_or_lie_anywhere() {
    fn foresees(offsets: impl IntoIterator<Item = u64>, pages: u64) -> bool {
        let mut strided = StridedReads::default();
        let mut offsets = offsets.into_iter();
        offsets.any(|at| strided.observe(at * PAGE..(at + pages) * PAGE))
    }
    assert!(!foresees(0..1000, 1), "no gap");
    assert!(!foresees((0..1000).map(|k| k * 200), 100), "large");
    assert!(!foresees((0..1000).rev().map(|k| k * 4), 1), "downwards");
    let mut random = forebay_testkit::random::Random::new(7);
    assert!(!foresees((0..1000).map(|_| random.below(1 << 20)), 1));
}

#[test]
fn a_reader_that_turns_elsewhere_costs_no_more_than_one_round_of_stored_pages() {
    let mut reader = Reader::new();
    for record in 0..300 {
        reader.read(record * 4 * PAGE..(record * 4 + 1) * PAGE);
    }
    let stored = reader.stored;
    for record in 0..100 {
        let at = (1 << 30) + (record * record) * 8 * PAGE;
        reader.read(at..at + PAGE);
    }
    assert_eq!(reader.stored, stored);
    assert!(stored < 300 + MAX_PAGES_AHEAD);
}

#[test]
fn where_stored_pages_are_gone_at_once_ever_fewer_are_stored() {
    let mut reader = Reader::new();
    for record in 0..1000 {
        if record > 200 {
            reader.kernel.clear();
        }
        reader.read(record * 4 * PAGE..(record * 4 + 1) * PAGE);
    }
    assert!(reader.requests > 700);
    assert!(reader.stored < 3000, "{}", reader.stored);
}
