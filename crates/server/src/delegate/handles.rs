//! The files this node knows and the handles open on them.
//!
//! Invariants:
//! - One [`OpenFile`] a file while anything holds it (a handle, or a call that works without one), so that all of the
//!   node's writes to a file meet in one pending layer.
//! - A file that nothing holds stays cached as idle for a while: its windows, and what pages the kernel may hold, are
//!   right if its generation is unchanged when it is opened again.
//! - A file with pending writes is never idle.
use super::change_counters::ChangeCounters;
use super::counted_open::CountedOpen;
use super::open_file::{FILE_MEMORY, OpenFile};
use super::prefetch::handle_state::ReadWatch;
use super::prefetch::strided_reads::StridedReads;
use super::writeback_errors::ReportedErrors;
use crate::{Attr, Fid, OpenFlags, Result};
use forebay_codec::CodecHint;
use forebay_data::LogId;
use lru::LruCache;
use parking_lot::{Mutex, RwLock};
use rustix::io::Errno;
use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Idle files remembered where memory allows.
const MAX_IDLE: u64 = 4096;
/// Pieces of windows and map that an idle file keeps, at most (some 8 KiB).
const MAX_IDLE_PIECES: usize = 100;

/// An open file of this delegate.
pub type Handle = u64;

/// An open handle.
pub struct OpenHandle {
    /// What it is open on.
    pub file: Arc<OpenFile>,
    /// How.
    pub flags: OpenFlags,
    /// Counts among the file's `paging_handles`.
    pub paging: bool,
    /// Writes through the kernel's page cache: counts among those of `page_drops`.
    pub writes_pages: bool,
    /// The open at the owner; `None`: the owner knows nothing of it.
    pub counted: Option<Arc<CountedOpen>>,
    /// Its own logs, from its first write on.
    pub logs: Mutex<HandleLogs>,
    /// What it reads, and what is fetched ahead for it.
    pub watch: ReadWatch,
    /// Writeback errors of the file that it has been told of.
    pub reported: ReportedErrors,
    /// What it reads through the kernel's page cache.
    pub strided: Mutex<StridedReads>,
    /// The file's size as this node saw it when the handle was opened, bytes.
    pub size: u64,
}

impl OpenHandle {
    /// A handle for writing is told of pages that were lost since it was opened, if it was not told before.
    ///
    /// # Errors
    /// Why they were lost.
    pub fn report_writeback_errors(&self) -> Result<()> {
        match self.flags.write {
            true => self.file.writeback_errors.report(&self.reported),
            false => Ok(()),
        }
    }
}

/// The logs of one handle: the one that takes its writes, and those that did before its file's codec hint was changed. The latter stay
/// open as long as the handle, because a write may be under way that was given one of them.
#[derive(Default)]
pub struct HandleLogs {
    current: Option<(LogId, CodecHint)>,
    earlier: Vec<LogId>,
}

impl HandleLogs {
    /// The log for what is written by this hint; `make` makes one if there is none.
    ///
    /// # Errors
    /// As `make`.
    pub fn for_hint(
        &mut self,
        hint: CodecHint,
        make: impl FnOnce() -> Result<LogId>,
    ) -> Result<LogId> {
        match self.current {
            Some((log, of)) if of == hint => return Ok(log),
            _ => {}
        }
        let log = make()?;
        let replaced = self.current.replace((log, hint));
        self.earlier.extend(replaced.map(|(log, _)| log));
        Ok(log)
    }

    /// All of them: nothing is written through the handle any more.
    pub fn take(&mut self) -> impl Iterator<Item = LogId> {
        let HandleLogs { current, earlier } = std::mem::take(self);
        earlier.into_iter().chain(current.map(|(log, _)| log))
    }
}

struct KnownFiles {
    held: HashMap<Fid, Arc<OpenFile>>,
    idle: LruCache<Fid, Arc<OpenFile>>,
}

/// See the head of this file.
pub struct OpenFileTable {
    handles: RwLock<HashMap<Handle, Arc<OpenHandle>>>,
    next: AtomicU64,
    files: Mutex<KnownFiles>,
    changes: Arc<ChangeCounters>,
    forgot: AtomicBool,
}

impl OpenFileTable {
    /// Nothing is known yet. Idle files take at most about `idle_bytes` of memory.
    pub fn new(idle_bytes: u64, changes: Arc<ChangeCounters>) -> OpenFileTable {
        let most = (idle_bytes / FILE_MEMORY).clamp(1, MAX_IDLE) as usize;
        OpenFileTable {
            handles: RwLock::default(),
            next: AtomicU64::default(),
            files: Mutex::new(KnownFiles {
                held: HashMap::new(),
                idle: LruCache::new(NonZeroUsize::new(most).unwrap_or(NonZeroUsize::MIN)),
            }),
            changes,
            forgot: AtomicBool::default(),
        }
    }

    /// Holds the file, whose attributes were just fetched, until [`OpenFileTable::release`].
    pub fn acquire(&self, attr: &Attr) -> Arc<OpenFile> {
        let mut known = self.files.lock();
        let file = match known.held.get(&attr.fid) {
            Some(file) => file.clone(),
            None => {
                let idle = known.idle.pop(&attr.fid);
                let new = || {
                    OpenFile::new(
                        attr.clone(),
                        self.changes.clone(),
                        !self.evicted_unsynced_files(),
                    )
                };
                let file = idle.unwrap_or_else(|| Arc::new(new()));
                known.held.insert(attr.fid, file.clone());
                file
            }
        };
        let mut state = file.state.lock();
        state.observe(attr);
        state.handles += 1;
        drop(state);
        file
    }

    /// Ends one [`OpenFileTable::acquire`]. `false`: nothing holds the file any more, but it is left (see `deferred_close`).
    #[must_use]
    pub fn release(&self, file: &Arc<OpenFile>) -> bool {
        let mut known = self.files.lock();
        file.state.lock().handles -= 1;
        self.move_to_idle(&mut known, file)
    }

    /// The file may have nothing left to do.
    pub fn move_to_idle_if_unused(&self, file: &Arc<OpenFile>) {
        let mut known = self.files.lock();
        if known.held.contains_key(&file.fid) {
            self.move_to_idle(&mut known, file);
        }
    }

    /// Puts a file that nothing holds among the idle ones. `false`: it is left.
    fn move_to_idle(&self, known: &mut KnownFiles, file: &Arc<OpenFile>) -> bool {
        let mut state = file.state.lock();
        if state.handles > 0 {
            return true;
        }
        let done = !state.dirty() && state.unreported_closes.is_empty();
        if done {
            if state.cached() > MAX_IDLE_PIECES {
                state.empty();
            }
            drop(state);
            known.held.remove(&file.fid);
            if let Some((_, forgotten)) = known.idle.push(file.fid, file.clone())
                && !forgotten.state.lock().unsynced.is_empty()
            {
                self.forgot.store(true, Ordering::Relaxed);
            }
        }
        done
    }

    /// Files that nothing holds, with something to publish or closes to tell.
    pub fn unfinished(&self) -> Vec<Arc<OpenFile>> {
        let known = self.files.lock();
        let left = known.held.values();
        left.filter(|f| f.state.lock().handles == 0)
            .cloned()
            .collect()
    }

    /// Whether files were forgotten that had commits not on disk: an fsync of a file that is new here must look for them.
    pub fn evicted_unsynced_files(&self) -> bool {
        self.forgot.load(Ordering::Relaxed)
    }

    /// Every file this node knows, held or idle.
    pub fn all_known(&self) -> Vec<Arc<OpenFile>> {
        let known = self.files.lock();
        let idle = known.idle.iter().map(|(_, file)| file);
        known.held.values().chain(idle).cloned().collect()
    }

    /// The file, if this node knows it.
    pub fn find(&self, fid: Fid) -> Option<Arc<OpenFile>> {
        let known = self.files.lock();
        match known.held.get(&fid) {
            Some(file) => Some(file.clone()),
            None => known.idle.peek(&fid).cloned(),
        }
    }

    /// A handle on a file that is held for it. `paging`, `writes_pages`: the caller has counted it so.
    pub fn add(
        &self,
        file: Arc<OpenFile>,
        flags: OpenFlags,
        paging: bool,
        writes_pages: bool,
        counted: Option<Arc<CountedOpen>>,
    ) -> Handle {
        let handle = self.next.fetch_add(1, Ordering::Relaxed) + 1;
        let size = {
            let mut state = file.state.lock();
            if flags.write {
                state.fills.add_writer();
                // From now on the kernel may have newer bytes than this node (writeback cache).
                state.content_changes();
            }
            state.size()
        };
        let open = Arc::new(OpenHandle {
            reported: file.writeback_errors.sample(),
            file,
            flags,
            paging,
            writes_pages,
            counted,
            logs: Mutex::default(),
            watch: ReadWatch::default(),
            strided: Mutex::default(),
            size,
        });
        self.handles.write().insert(handle, open);
        handle
    }

    /// `EBADF` if there is none.
    pub fn get(&self, handle: Handle) -> Result<Arc<OpenHandle>> {
        let open = self.handles.read().get(&handle).cloned();
        Ok(open.ok_or(Errno::BADF)?)
    }

    /// One that reads; `EBADF` for any other.
    pub fn get_readable(&self, handle: Handle) -> Result<Arc<OpenHandle>> {
        let readable = |open: &Arc<OpenHandle>| open.flags.read;
        Ok(self.get(handle).ok().filter(readable).ok_or(Errno::BADF)?)
    }

    /// One that writes; `EBADF` for any other.
    pub fn get_writable(&self, handle: Handle) -> Result<Arc<OpenHandle>> {
        let writable = |open: &Arc<OpenHandle>| open.flags.write;
        Ok(self.get(handle).ok().filter(writable).ok_or(Errno::BADF)?)
    }

    /// Takes the handle away; its hold on the file stays.
    pub fn take(&self, handle: Handle) -> Result<Arc<OpenHandle>> {
        let open = self.handles.write().remove(&handle).ok_or(Errno::BADF)?;
        if open.flags.write {
            open.file.state.lock().fills.remove_writer();
        }
        Ok(open)
    }

    /// Files held now.
    pub fn all_open(&self) -> Vec<Arc<OpenFile>> {
        self.files.lock().held.values().cloned().collect()
    }

    /// How many files are held now.
    pub fn open_files(&self) -> usize {
        self.files.lock().held.len()
    }
}
