//! Drops of pages beside a write through the page cache.
//!
//! A kernel without the writeback cache sends such a write with its whole pages unlocked. Pages that are dropped before this node has
//! the bytes, and read again, may get the bytes of before: the kernel does not look at them again when the write is answered, and would
//! show them from then on. So from a drop on, what is read into the page cache is noted, and a write whose range was read has the
//! range dropped once more before it is answered.
//!
//! Why that is enough:
//! - The kernel holds the file's lock from filling the pages of such a write until it is answered. So it sends one at a time, and what
//!   was read before one was answered is no matter for the next.
//! - All pages are dropped by this node: an open, too, has the kernel keep its pages, after this node has dropped them. A drop is under way here
//!   from before it begins.
//! - A read is noted before it takes bytes, and a write looks for notes once its bytes can be read. So either the read has the bytes of the
//!   write, or the write finds the read.
//!
//! A page that is not up to date stays locked until its write is answered, so it cannot be dropped before. But then it was not read
//! since it came: so notes of reads that were answered before a drop of all pages go with it. (What is left of that is a read under way
//! while pages are dropped: the mount does not wait long.)
//!
//! Invariants, under the lock of the file's state: reads are noted only while somebody may write through the page cache; nothing is
//! noted once such a write was answered with no drop under way.
use super::context::DelegateContext;
use super::handles::Handle;
use super::kernel_pages::KernelPages;
use super::open_file::{FileState, OpenFile};
use crate::Fid;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Reads noted one by one; of more only the range is known in which they lie.
const MAX_NOTES: usize = 64;

/// A read into the page cache.
#[derive(Debug)]
struct NotedRead {
    number: u64,
    range: Range<u64>,
    answered: bool,
}

/// See the head of this file.
#[derive(Debug, Default)]
pub struct DropNotes {
    /// Handles that write through the page cache.
    writers: u32,
    /// Drops that have begun and not ended.
    under_way: u32,
    /// Reads are noted.
    noting: bool,
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

fn meet(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

impl DropNotes {
    fn stop(&mut self) {
        self.noting = false;
        self.reads = Vec::new();
        self.rest = None;
    }

    fn add_writer(&mut self) {
        self.writers += 1;
        self.noting |= self.under_way > 0;
    }

    fn remove_writer(&mut self) {
        self.writers = self.writers.saturating_sub(1);
        if self.writers == 0 {
            self.stop();
        }
    }

    /// From now on reads are noted.
    fn note_from_now(&mut self) {
        self.noting |= self.writers > 0;
    }

    /// A drop begins; of `all` pages, it answers the reads whose pages are gone with it.
    fn begin(&mut self, all: bool) -> Vec<u64> {
        self.under_way += 1;
        self.note_from_now();
        let gone = self.reads.iter().filter(|read| read.answered && all);
        gone.map(|read| read.number).collect()
    }

    fn end(&mut self, gone: &[u64]) {
        self.under_way = self.under_way.saturating_sub(1);
        self.reads.retain(|read| !gone.contains(&read.number));
    }

    /// A read is about to take its bytes. Its number, if it can be told of later that it was answered.
    fn note(&mut self, range: &Range<u64>) -> Option<u64> {
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

    fn answered(&mut self, number: u64) {
        if let Some(read) = self.reads.iter_mut().find(|read| read.number == number) {
            read.answered = true;
        }
    }

    /// The bytes of a write through the page cache can be read, and it is answered next. Whether its pages may have been read before.
    fn wrote(&mut self, range: &Range<u64>) -> bool {
        if !self.noting {
            return false;
        }
        let range = pages_of(range);
        let mut noted = self.reads.iter().map(|read| &read.range).chain(&self.rest);
        let was_read = noted.any(|read| meet(read, &range));
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

impl DelegateContext {
    /// Changes the notes of a file, and counts the files of which there are any.
    fn change_notes<T>(
        &self,
        state: &mut FileState,
        change: impl FnOnce(&mut DropNotes) -> T,
    ) -> T {
        let noted = state.drops.noting;
        let changed = change(&mut state.drops);
        match (noted, state.drops.noting) {
            (false, true) => drop(self.noted_files.fetch_add(1, Ordering::SeqCst)),
            (true, false) => drop(self.noted_files.fetch_sub(1, Ordering::SeqCst)),
            _ => {}
        }
        changed
    }

    /// A handle that writes through the page cache is there from now on.
    pub(super) fn add_cached_writer(&self, state: &mut FileState) {
        self.change_notes(state, DropNotes::add_writer);
    }

    /// One of them is closed.
    pub(super) fn remove_cached_writer(&self, state: &mut FileState) {
        self.change_notes(state, DropNotes::remove_writer);
    }
}

/// A drop of pages of a file; it has ended when this is dropped.
pub struct PageDrop<'a> {
    ctx: &'a DelegateContext,
    file: Option<Arc<OpenFile>>,
    /// Reads whose pages are gone then.
    gone: Vec<u64>,
}

impl Drop for PageDrop<'_> {
    fn drop(&mut self) {
        if let Some(file) = &self.file {
            let gone = &self.gone;
            let end = |notes: &mut DropNotes| notes.end(gone);
            self.ctx.change_notes(&mut file.state.lock(), end);
        }
    }
}

/// A read into the page cache; it was answered when this is dropped.
pub struct NotedPageRead {
    file: Arc<OpenFile>,
    number: u64,
}

impl Drop for NotedPageRead {
    fn drop(&mut self) {
        self.file.state.lock().drops.answered(self.number);
    }
}

impl KernelPages {
    /// The kernel is about to drop pages of a file: all, or some.
    pub fn begin_drop(&self, fid: Fid, all: bool) -> PageDrop<'_> {
        let (ctx, file) = (&*self.ctx, self.ctx.table.find(fid));
        let begin = |notes: &mut DropNotes| notes.begin(all);
        let gone = file.as_ref().map(|file| {
            let mut state = file.state.lock();
            ctx.change_notes(&mut state, begin)
        });
        PageDrop {
            ctx,
            file,
            gone: gone.unwrap_or_default(),
        }
    }

    /// The same of a range whose write through the page cache is not answered yet: until it is, there is no other such write that
    /// could be hit.
    pub fn begin_drop_of_write(&self, fid: Fid) -> PageDrop<'_> {
        let (ctx, file) = (&*self.ctx, self.ctx.table.find(fid));
        if let Some(file) = &file {
            file.state.lock().drops.under_way += 1;
        }
        let gone = Vec::new();
        PageDrop { ctx, file, gone }
    }

    /// That write is answered although the drop goes on.
    pub fn drop_goes_on(&self, fid: Fid) {
        if let Some(file) = self.ctx.table.find(fid) {
            let note = DropNotes::note_from_now;
            self.ctx.change_notes(&mut file.state.lock(), note);
        }
    }

    /// What is read through this handle next goes into the page cache. To be kept until it is answered.
    pub fn note_read(&self, handle: Handle, offset: u64, len: u32) -> Option<NotedPageRead> {
        if self.ctx.noted_files.load(Ordering::SeqCst) == 0 {
            return None;
        }
        let file = self.ctx.table.get(handle).ok()?.file.clone();
        let range = offset..offset.saturating_add(len.into());
        let number = file.state.lock().drops.note(&range)?;
        Some(NotedPageRead { file, number })
    }

    /// A write through the page cache has taken place and is answered next. Whether the kernel may have older pages of it: they are to be
    /// dropped first.
    pub fn is_outdated_by(&self, handle: Handle, offset: u64, len: usize) -> bool {
        if self.ctx.noted_files.load(Ordering::SeqCst) == 0 {
            return false;
        }
        let Ok(open) = self.ctx.table.get(handle) else {
            return false;
        };
        let range = offset..offset.saturating_add(len as u64);
        let mut state = open.file.state.lock();
        self.ctx
            .change_notes(&mut state, |notes| notes.wrote(&range))
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
        assert!(!notes.wrote(&(PAGE..2 * PAGE)), "other pages");
        assert!(!notes.noting);
        let gone = notes.begin(true);
        notes.end(&gone);
        notes.note(&(0..100));
        assert!(notes.wrote(&(200..PAGE)), "the same page");
        notes.note(&(0..100));
        assert!(!notes.wrote(&(200..PAGE)), "read after that one");
    }

    #[test]
    fn reads_are_noted_on_while_a_drop_is_under_way() {
        let mut notes = writing();
        let gone = notes.begin(false);
        assert!(!notes.wrote(&(0..10)));
        notes.note(&(0..10));
        notes.end(&gone);
        assert!(notes.wrote(&(0..10)));
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
            assert!(notes.wrote(&(PAGE..PAGE + 1)));
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
        assert!(notes.wrote(&(100 * PAGE..100 * PAGE + 1)));
        assert!(!notes.wrote(&(100 * PAGE..100 * PAGE + 1)));
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
