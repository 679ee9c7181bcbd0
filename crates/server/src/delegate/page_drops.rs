//! Dropping cached pages of a file while a program writes to it through the page cache.
//!
//! The problem: while such a write is on its way to the mount, its pages are unlocked (in a kernel without the writeback cache). If they
//! are dropped before the node has the new bytes, a read may fill them with the old ones. The kernel would keep showing these, because
//! it does not look at the pages again when the write is answered.
//!
//! The solution: from a drop on, reads into the page cache are noted (`drop_notes`). A write whose range was read since has its range
//! dropped once more before it is answered.
//!
//! Why this is enough:
//! - *One write at a time*: the kernel holds the file's lock from before it fills the pages of a write until the write is answered. So
//!   notes made before an answer do not matter to the next write.
//! - *No other drops*: only this node drops pages. Also at an open the kernel keeps its pages; the node has dropped them before. A drop
//!   counts as under way from before it begins.
//! - *No read is missed*: a read is noted before it takes bytes, and a write checks the notes after its bytes can be read. So either the
//!   read gets the new bytes, or the write finds its note.
//!
//! A note is removed when a write is answered. A drop of all pages also removes the notes of reads that were answered before it, because
//! it drops the pages that these filled. Such a drop spares only pages that an unanswered partial write has locked, and nobody has read
//! these since. A read that is under way during a drop keeps its note.
use super::context::DelegateContext;
use super::drop_notes::DropNotes;
use super::handles::Handle;
use super::kernel_pages::KernelPages;
use super::open_file::{FileState, OpenFile};
use crate::Fid;
use std::sync::Arc;
use std::sync::atomic::Ordering;

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

    /// The kernel is about to drop the range of a write through the page cache that is not answered yet. Nothing need be noted: until the
    /// answer there is no other such write.
    pub fn begin_drop_of_write(&self, fid: Fid) -> PageDrop<'_> {
        let (ctx, file) = (&*self.ctx, self.ctx.table.find(fid));
        if let Some(file) = &file {
            file.state.lock().drops.begin_unnoted();
        }
        let gone = Vec::new();
        PageDrop { ctx, file, gone }
    }

    /// That write is answered before the drop has ended, so reads are noted from now on.
    pub fn drop_goes_on(&self, fid: Fid) {
        if let Some(file) = self.ctx.table.find(fid) {
            let note = DropNotes::note_from_now;
            self.ctx.change_notes(&mut file.state.lock(), note);
        }
    }

    /// Notes a read into the page cache. The caller keeps the result until the read is answered.
    pub fn note_read(&self, handle: Handle, offset: u64, len: u32) -> Option<NotedPageRead> {
        if self.ctx.noted_files.load(Ordering::SeqCst) == 0 {
            return None;
        }
        let file = self.ctx.table.get(handle).ok()?.file.clone();
        let range = offset..offset.saturating_add(len.into());
        let number = file.state.lock().drops.note(&range)?;
        Some(NotedPageRead { file, number })
    }

    /// Called before a write through the page cache is answered, once its bytes can be read. Whether the kernel may have older pages of
    /// its range, which the caller then drops first.
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
            .change_notes(&mut state, |notes| notes.write_outdates(&range))
    }
}
