//! Notes of one file: the reads into the page cache since pages were last dropped. Before a write through the page cache is
//! answered, they are searched for a read that overlaps it. Such a read may have filled pages with the old bytes, so they must be
//! dropped once more. `page_drops` says why.
//!
//! Invariants: reads are noted only while a handle that writes through the page cache is open. Noting begins with a drop of pages.
//! It ends when a write through the page cache is answered while no drop is under way.
use std::ops::Range;

/// Reads noted one by one; of more only the range is known in which they lie.
const MAX_NOTES: usize = 64;

/// A read into the page cache.
#[derive(Debug)]
struct NotedRead {
    number: u64,
    range: Range<u64>,
    answered: bool,
}

/// See the head of this file. Kept in the state of the file, under its lock.
#[derive(Debug, Default)]
pub struct DropNotes {
    /// Handles that write through the page cache.
    writers: u32,
    /// Drops that have begun and not ended.
    under_way: u32,
    /// Reads are noted.
    pub noting: bool,
    reads: Vec<NotedRead>,
    /// Where further reads lie.
    rest: Option<Range<u64>>,
    next: u64,
}

/// The pages in which a range is.
fn pages_of(range: &Range<u64>) -> Range<u64> {
    let page = rustix::param::page_size() as u64;
    range.start / page * page..range.end.div_ceil(page).saturating_mul(page)
}

fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

impl DropNotes {
    fn stop(&mut self) {
        self.noting = false;
        self.reads = Vec::new();
        self.rest = None;
    }

    pub fn add_writer(&mut self) {
        self.writers += 1;
        self.noting |= self.under_way > 0;
    }

    pub fn remove_writer(&mut self) {
        self.writers = self.writers.saturating_sub(1);
        if self.writers == 0 {
            self.stop();
        }
    }

    /// From now on reads are noted.
    pub fn note_from_now(&mut self) {
        self.noting |= self.writers > 0;
    }

    /// A drop begins; of `all` pages, it answers the reads whose pages are gone with it.
    pub fn begin(&mut self, all: bool) -> Vec<u64> {
        self.under_way += 1;
        self.note_from_now();
        let gone = self.reads.iter().filter(|read| read.answered && all);
        gone.map(|read| read.number).collect()
    }

    /// A drop begins that nothing need be noted for.
    pub fn begin_unnoted(&mut self) {
        self.under_way += 1;
    }

    pub fn end(&mut self, gone: &[u64]) {
        self.under_way = self.under_way.saturating_sub(1);
        self.reads.retain(|read| !gone.contains(&read.number));
    }

    /// A read is about to take its bytes. Its number, if it can be told of later that it was answered.
    pub fn note(&mut self, range: &Range<u64>) -> Option<u64> {
        if !self.noting {
            return None;
        }
        let range = pages_of(range);
        if self.reads.len() >= MAX_NOTES {
            let rest = self.rest.get_or_insert(range.clone());
            *rest = rest.start.min(range.start)..rest.end.max(range.end);
            return None;
        }
        let number = self.next;
        self.next += 1;
        let answered = false;
        self.reads.push(NotedRead {
            number,
            range,
            answered,
        });
        Some(number)
    }

    pub fn answered(&mut self, number: u64) {
        if let Some(read) = self.reads.iter_mut().find(|read| read.number == number) {
            read.answered = true;
        }
    }

    /// The bytes of a write through the page cache can be read, and it is answered next. Whether its pages may have been read before.
    pub fn write_outdates(&mut self, range: &Range<u64>) -> bool {
        if !self.noting {
            return false;
        }
        let range = pages_of(range);
        let mut noted = self.reads.iter().map(|read| &read.range).chain(&self.rest);
        let was_read = noted.any(|read| overlap(read, &range));
        match self.under_way {
            0 => self.stop(),
            _ => {
                self.reads.clear();
                self.rest = None;
            }
        }
        was_read
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: u64 = 64 << 10;

    fn writing() -> DropNotes {
        let mut notes = DropNotes::default();
        notes.add_writer();
        notes
    }

    #[test]
    fn a_write_hears_of_reads_of_its_pages_since_a_drop_and_the_next_write_does_not() {
        let mut notes = writing();
        assert!(notes.note(&(0..100)).is_none(), "nothing was dropped");
        let gone = notes.begin(true);
        notes.note(&(0..100));
        notes.end(&gone);
        notes.note(&(2 * PAGE..2 * PAGE + 8));
        assert!(!notes.write_outdates(&(PAGE..2 * PAGE)), "other pages");
        assert!(!notes.noting);
        let gone = notes.begin(true);
        notes.end(&gone);
        notes.note(&(0..100));
        assert!(notes.write_outdates(&(200..PAGE)), "the same page");
        notes.note(&(0..100));
        assert!(!notes.write_outdates(&(200..PAGE)), "read after that one");
    }

    #[test]
    fn reads_are_noted_on_while_a_drop_is_under_way() {
        let mut notes = writing();
        let gone = notes.begin(false);
        assert!(!notes.write_outdates(&(0..10)));
        notes.note(&(0..10));
        notes.end(&gone);
        assert!(notes.write_outdates(&(0..10)));
    }

    #[test]
    fn what_was_answered_before_all_pages_were_dropped_is_forgotten_and_no_more() {
        for all in [false, true] {
            let mut notes = writing();
            let first = notes.begin(true);
            notes.end(&first);
            let [answered, under_way] =
                [0..1, PAGE..PAGE + 1].map(|range| notes.note(&range).unwrap());
            notes.answered(answered);
            let gone = notes.begin(all);
            notes.answered(under_way);
            notes.end(&gone);
            assert_eq!(notes.reads.len(), if all { 1 } else { 2 });
            assert!(notes.write_outdates(&(PAGE..PAGE + 1)));
        }
    }

    #[test]
    fn many_reads_are_noted_by_the_range_in_which_they_lie() {
        let mut notes = writing();
        notes.begin(false);
        for n in 0..2 * MAX_NOTES as u64 {
            notes.note(&(n * PAGE..(n + 1) * PAGE));
        }
        assert_eq!(notes.reads.len(), MAX_NOTES);
        assert!(notes.write_outdates(&(100 * PAGE..100 * PAGE + 1)));
        assert!(!notes.write_outdates(&(100 * PAGE..100 * PAGE + 1)));
    }

    #[test]
    fn nothing_is_noted_where_nobody_writes_through_the_page_cache() {
        let mut notes = DropNotes::default();
        let gone = notes.begin(true);
        assert!(notes.note(&(0..1)).is_none());
        // One that is opened now may be hit by the rest of this drop.
        notes.add_writer();
        assert!(notes.note(&(0..1)).is_some());
        notes.end(&gone);
        notes.remove_writer();
        assert!(!notes.noting && notes.reads.is_empty());
    }
}
