//! Dropping pages of a file while a write through the page cache is under way.
//!
//! A kernel without the writeback cache sends such a write with its whole pages unlocked. If they are dropped before this node has the bytes
//! of the write, a read may fill them again with older bytes: the kernel does not check them when the write is answered, and would show
//! the older bytes from then on. So from a drop on, reads into the page cache are noted (`drop_notes`), and a write whose range was read
//! has the range dropped once more before it is answered.
//!
//! Why that is enough:
//! - The kernel holds the file's lock from filling the pages of such a write until it is answered. So it sends one at a time, and reads
//!   before the answer to one do not matter for the next.
//! - Only this node drops pages: at an open, too, the kernel keeps its pages, after this node has dropped them. A drop counts as under way
//!   from before it begins.
//! - A read is noted before it takes bytes, and a write looks for notes once its bytes can be read. So either the read has the bytes of
//!   the write, or the write finds the read.
//!
//! A drop of all pages also removes the notes of reads that were answered before it began: their pages are gone. Only pages that an
//! unanswered partial write has locked survive it, and nobody has read these since they came. (A read that is under way while pages are
//! dropped keeps its note: the mount does not wait long.)
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

    /// The same of a range whose write through the page cache is not answered yet: until it is, there is no other such write that
    /// could be hit.
    pub fn begin_drop_of_write(&self, fid: Fid) -> PageDrop<'_> {
        let (ctx, file) = (&*self.ctx, self.ctx.table.find(fid));
        if let Some(file) = &file {
            file.state.lock().drops.begin_unnoted();
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
