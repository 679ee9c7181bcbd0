//! Predicts the pages that the next records of a strided reader need, so that they can be filled into the kernel's page cache
//! before it asks. The records lie a constant number of bytes apart, and the kernel asks for the whole pages around each.
//!
//! So the pages of each request are known, but not the first byte of a record nor the stride: a record that does not begin on a
//! page boundary shifts within its pages from one record to the next. Each request bounds start and stride. All requests together
//! bound them ever more closely. (In a plot of page numbers over record numbers, each request is a rectangle. A line that crosses
//! all of them has a possible start as its intercept, and a possible stride as its slope. Below, these are *the candidate lines*.)
//! Predicted are all pages that the next records *may* need within these bounds: every page that they do need, and seldom more than
//! one extra on each side.
//!
//! Pure. It sees only requests that reach the server: those whose pages were not filled.
//!
//! - **Trust.** Pages are predicted after [`FIRST_RECORDS`] records in a row. The number of records predicted at once doubles while
//!   the next request is the first record after the filled ones, and halves when it is another record that the candidate lines hit.
//!   A request that leaves no candidate line resets the reader.
//! - **Only gaps.** Requests without a page between them are left to the kernel's own readahead. So are requests of more than
//!   [`MAX_RECORD_PAGES`], which cost little for their size.
use std::ops::Range;

/// Bytes of a page, as far as requests are counted in pages: larger pages of the kernel are multiples.
const PAGE: u64 = 4096;
/// Records in a row, before what follows is predicted.
const FIRST_RECORDS: usize = 4;
/// The longest record. Pages.
const MAX_RECORD_PAGES: u64 = 64;
/// Pages predicted at once, about, and most records.
const MAX_PAGES_AHEAD: u64 = 256;
/// The first requests of a line and the last ones are kept: they bound it most closely.
const KEPT_FIRST: usize = 8;
const KEPT: usize = 32;
/// Numbers of pages are computed with as floating point numbers: files up to here (256 TiB) leave enough digits behind the
/// point.
const MAX_PAGE: u64 = 1 << 36;

/// The pages of one request.
type Pages = Range<u64>;

/// Those that hold these bytes.
pub fn pages_of(bytes: &Range<u64>) -> Range<u64> {
    bytes.start / PAGE..bytes.end.div_ceil(PAGE)
}

fn length(pages: &Pages) -> u64 {
    pages.end - pages.start
}

/// See the head of this file.
#[derive(Debug, Default)]
pub struct StridedReads {
    /// The last requests, the newest last.
    last: [Pages; FIRST_RECORDS],
    /// How many of them lie alike, the newest among them.
    alike: usize,
    line: Option<Box<RecordLine>>,
}

/// Records that the next request is believed to be among.
#[derive(Debug)]
struct RecordLine {
    /// Number and pages of records that were asked for.
    seen: Vec<(u64, Pages)>,
    /// The first record that was neither asked for nor filled.
    next: u64,
    /// The page behind the last request.
    behind: u64,
    /// How many to fill at once.
    ahead: u64,
    /// Pages from one record to the next: more than this, and less than that.
    stride: (f64, f64),
    /// A record has needed other pages than one that begins on a page does.
    uneven: bool,
}

impl StridedReads {
    /// The kernel asks for these bytes. Whether it can be predicted what comes next.
    pub fn observe(&mut self, bytes: Range<u64>) -> bool {
        let pages = pages_of(&bytes);
        if let Some(line) = &mut self.line {
            if line.observe(&pages) {
                return true;
            }
            self.line = None;
            self.alike = 0;
        }
        let fits = length(&pages) <= MAX_RECORD_PAGES && pages.end <= MAX_PAGE;
        let [.., before, last] = &self.last;
        let follows = fits && self.alike > 0 && pages.start > last.end;
        self.alike = match follows {
            false => usize::from(fits),
            true if self.alike == 1 => 2,
            true => {
                let (stride, known) = (pages.start - last.start, last.start - before.start);
                let same =
                    stride.abs_diff(known) <= 1 && length(&pages).abs_diff(length(last)) <= 1;
                if same { self.alike + 1 } else { 2 }
            }
        };
        self.last.rotate_left(1);
        self.last[FIRST_RECORDS - 1] = pages;
        if self.alike < FIRST_RECORDS {
            return false;
        }
        self.line = RecordLine::new(&self.last).map(Box::new);
        self.line.is_some()
    }

    /// The number of the next record, and the bytes of whole pages that it and each of those after it may need, in this order; none if
    /// nothing can be predicted. All lie behind the last request, and none overlap.
    pub fn predict(&self) -> (u64, Vec<Range<u64>>) {
        match &self.line {
            Some(line) => (line.next, line.predict()),
            None => (0, Vec::new()),
        }
    }

    /// The pages of a record, and how many lie between its first one and the next record's; `None` if nothing can be predicted.
    pub fn period(&self) -> Option<(Range<u64>, f64)> {
        let line = self.line.as_ref()?;
        let (_, pages) = line.seen.last()?;
        Some((pages.clone(), line.mean_stride()))
    }

    /// The whole run of bytes from the last request to the last of these, which are predicted, as far as one round goes; and how many
    /// of them are in it.
    pub fn whole_run(&self, predicted: &[Range<u64>]) -> Option<(Range<u64>, u64)> {
        let from = self.line.as_ref()?.behind * PAGE;
        let most = from + MAX_PAGES_AHEAD * PAGE;
        let inside = predicted.partition_point(|range| range.end <= most);
        let last = predicted[..inside].last()?;
        Some((from..last.end, inside as u64))
    }

    /// Notes that `records` records from number `first` on were filled and will not be requested.
    pub fn filled(&mut self, first: u64, records: u64) {
        if let Some(line) = self.line.as_mut().filter(|line| line.next == first) {
            line.next += records;
        }
    }
}

impl RecordLine {
    /// Through the pages of records that follow each other.
    fn new(records: &[Pages]) -> Option<RecordLine> {
        let mut line = RecordLine {
            seen: Vec::with_capacity(KEPT),
            next: 0,
            behind: 0,
            ahead: 1,
            stride: (0.0, f64::INFINITY),
            uneven: false,
        };
        let mut numbered = (0..).zip(records);
        numbered
            .all(|(number, pages)| line.add(number, pages))
            .then_some(line)
    }

    /// Within which bounds record `number` begins and ends, in pages and parts of them. `None`: no line goes through all that was seen.
    fn bounds(&self, number: u64) -> Option<[(f64, f64); 2]> {
        let mut start = (f64::NEG_INFINITY, f64::INFINITY);
        let mut end = start;
        for (seen, pages) in &self.seen {
            let steps = number as f64 - *seen as f64;
            let (a, b) = (steps * self.stride.0, steps * self.stride.1);
            let (least, most) = (a.min(b), a.max(b));
            let (first, last) = (pages.start as f64, pages.end as f64);
            start = (start.0.max(first + least), start.1.min(first + 1.0 + most));
            end = (end.0.max(last - 1.0 + least), end.1.min(last + most));
        }
        (start.0 < start.1 && end.0 < end.1).then_some([start, end])
    }

    /// Pages from one record to the next, about.
    fn mean_stride(&self) -> f64 {
        f64::midpoint(self.stride.0, self.stride.1)
    }

    /// The record that begins next to this page, if there may be one.
    fn number(&self, page: u64) -> Option<u64> {
        let (seen, pages) = self.seen.last()?;
        let steps = ((page as f64 - pages.start as f64) / self.mean_stride()).round();
        let number = *seen as f64 + steps;
        (0.0..MAX_PAGE as f64)
            .contains(&number)
            .then_some(number as u64)
    }

    /// A request. `false`: it is of no record of this line.
    fn observe(&mut self, pages: &Pages) -> bool {
        let Some(number) = self.number(pages.start) else {
            return false;
        };
        // Far ahead is elsewhere.
        let Some([start, end]) = self
            .bounds(number)
            .filter(|_| number <= self.next + self.ahead)
        else {
            return false;
        };
        let (first, last) = (pages.start as f64, pages.end as f64);
        let whole = start.0 < first + 1.0 && first < start.1 && end.0 < last && last - 1.0 < end.1;
        let part = start.0 < first + 1.0 && last - 1.0 < end.1;
        let expected = number == self.next;
        self.behind = pages.end;
        if whole {
            if !self.add(number, pages) {
                return false;
            }
        } else if part {
            // Pages of a record of which the others were filled: it is not as was predicted.
            self.uneven = true;
            self.next = number + 1;
        } else {
            return false;
        }
        let most = (MAX_PAGES_AHEAD / self.length()).max(1);
        self.ahead = match expected && whole {
            true => (self.ahead * 2).min(most).min(number),
            // It was filled and is gone, or others were filled in vain.
            false => self.ahead / 2,
        };
        self.ahead > 0
    }

    /// This record was asked for. `false`: no line goes through all that was seen.
    fn add(&mut self, number: u64, pages: &Pages) -> bool {
        for (seen, known) in &self.seen {
            let steps = number as f64 - *seen as f64;
            if steps == 0.0 {
                continue;
            }
            for (from, to) in [(known.start, pages.start), (known.end, pages.end)] {
                let apart = (to as f64 - from as f64) * steps.signum();
                let (least, most) = &mut self.stride;
                *least = least.max((apart - 1.0) / steps.abs());
                *most = most.min((apart + 1.0) / steps.abs());
            }
        }
        if self.seen.len() == KEPT {
            self.seen.remove(KEPT_FIRST);
        }
        self.seen.push((number, pages.clone()));
        self.next = number + 1;
        self.stride.0 < self.stride.1
    }

    /// Pages of a record.
    fn length(&self) -> u64 {
        self.seen.last().map_or(1, |(_, pages)| length(pages))
    }

    /// The pages from one record to the next, if all records seen begin and end with a page, as far as they show it: of long
    /// records more are looked at, because pages predicted in vain weigh less there.
    fn even_stride(&self) -> Option<u64> {
        if self.uneven || (self.seen.len() as u64) < self.length().min(KEPT as u64 / 2) {
            return None;
        }
        let ((first, from), (last, to)) = (self.seen.first()?, self.seen.last()?);
        let steps = last.checked_sub(*first).filter(|steps| *steps > 0)?;
        let stride = to.start.checked_sub(from.start)? / steps;
        let on_it = |(number, pages): &(u64, Pages)| {
            let by = number.checked_sub(*first).map(|steps| steps * stride);
            by.is_some_and(|by| *pages == (from.start + by..from.end + by))
        };
        self.seen.iter().all(on_it).then_some(stride)
    }

    fn predict(&self) -> Vec<Range<u64>> {
        let Some((number, last)) = self.seen.last() else {
            return Vec::new();
        };
        let even = self.even_stride();
        let mut ranges = Vec::with_capacity(self.ahead as usize);
        let mut behind = self.behind.max(last.end);
        for next in self.next..self.next + self.ahead {
            let pages = match even {
                Some(stride) => {
                    let by = (next - number) * stride;
                    last.start + by..last.end + by
                }
                None => match self.bounds(next) {
                    Some([(start, _), (_, end)]) => start.floor() as u64..end.ceil() as u64,
                    None => break,
                },
            };
            let pages = pages.start.max(behind)..pages.end;
            if pages.is_empty() || pages.end > MAX_PAGE {
                break;
            }
            behind = pages.end;
            ranges.push(pages.start * PAGE..pages.end * PAGE);
        }
        ranges
    }
}

#[cfg(test)]
mod tests;
