//! Calls on handles: open, create, read, write, sync, seek, release. Each is composed here from calls of the delegate's parts.
//!
//! The kernel may keep a file's pages across an open only if they show the file's current generation. Which generation they show
//! is recorded when they are dropped for an open, a lock or an fsync; a commit of this node advances it, unless another node's
//! commit came in between.
use super::Delegate;
use super::change_counters::{ChangeCounters, ChangeMark};
use super::combine::NewFile;
use super::counted_open::CountedOpen;
use super::handles::{Handle, OpenHandle};
use super::kernel_leases::{ProgramThread, RequestOrigin};
use super::open_file::{FileState, StalePages};
use super::opens::OpenedFile;
use super::seek::SeekTarget;
use super::truncate::Fallocate;
use super::write::WriteOrigin;
use crate::{Attr, Caller, Fid, Kind, OpenFlags, Result};
use bytes::Bytes;
use forebay_proto::files;
use rustix::io::Errno;
use std::ops::Range;
use std::time::Duration;

/// Of a directory: what is made in it takes its group.
const SETGID: u32 = 0o2000;
/// Pieces that ranges read ahead may have in all, about: for more of them fewer ranges are read, and no places are told.
pub(super) const MAX_AHEAD_PIECES: usize = 4096;
/// Bytes copied at a time.
const COPY_STEP: u64 = 1 << 20;
/// Bytes copied in one call; the caller asks again for the rest.
const MAX_COPY: u64 = 64 << 20;

impl Delegate {
    /// Opens a file. Sees everything committed anywhere before.
    ///
    /// # Errors
    /// `EISDIR`, `ESTALE`, `EPERM` for writing a file laminated for ever.
    pub fn open(&self, fid: Fid, flags: OpenFlags) -> Result<OpenedFile> {
        let _at = self.ctx.counters.other();
        let (attr, counted) = self.opens.ask_open(fid, flags)?;
        Ok(self.opens.opened(&attr, flags, counted, false))
    }

    /// Opens a file for reading by attributes fetched before, without telling its owner. So nothing keeps its bytes once it
    /// loses its last name: only for who looks at its attributes again after reading.
    pub fn open_uncounted(&self, attr: &Attr) -> Handle {
        let _at = self.ctx.counters.other();
        let table = &self.ctx.table;
        table.add(table.acquire(attr), OpenFlags::READ, false, false, None)
    }

    /// Creates (or opens what another node made meanwhile, unless exclusive) and opens in one step.
    ///
    /// # Errors
    /// As open with `O_CREAT`.
    pub fn create(
        &self,
        parent: Fid,
        name: &[u8],
        mode: u32,
        exclusive: bool,
        flags: OpenFlags,
        by: impl Into<RequestOrigin>,
    ) -> Result<OpenedFile> {
        let RequestOrigin { caller, thread } = by.into();
        let new = NewFile {
            parent,
            name: name.into(),
            becomes: None,
            mode,
            caller,
        };
        self.create_file(&new, exclusive, flags, thread)
    }

    /// The same, of a file that may be about to get another name.
    ///
    /// # Errors
    /// As [`Delegate::create`].
    pub fn create_file(
        &self,
        new: &NewFile<'_>,
        exclusive: bool,
        flags: OpenFlags,
        thread: ProgramThread,
    ) -> Result<OpenedFile> {
        let _at = self.ctx.counters.other();
        let opens = &self.opens;
        let send = |handles| opens.make_and_open(new, exclusive, flags, handles, thread);
        let (((attr, counted), outcome), own) = match exclusive {
            true => (send(1)?, true),
            false => self.ctx.combine.create(new, flags, send)?,
        };
        let made = outcome.made && own;
        Ok(OpenedFile {
            // It changes here only by handles that are opened from now on, each of which ends the lease, and by this one: then the
            // kernel knows of the write.
            leased: outcome.leased && made,
            ..self.opens.opened(&attr, flags, counted, made)
        })
    }

    /// Makes a file without a name in directory `dir` and opens it (`O_TMPFILE`). It lies with this member, so nobody else is
    /// asked but for the directory, and goes with its last close, or this server's end, unless `link` has given it a name.
    /// `linkable`: that is allowed.
    ///
    /// # Errors
    /// `ENOTDIR`; `ENOENT` if the directory was removed.
    pub fn create_unnamed(
        &self,
        dir: Fid,
        mode: u32,
        linkable: bool,
        flags: OpenFlags,
        caller: Caller,
    ) -> Result<OpenedFile> {
        let _at = self.ctx.counters.other();
        let parent = self.ctx.ask_attr(dir)?;
        match (parent.kind, parent.nlink) {
            (Kind::Dir, 0) => return Err(Errno::NOENT.into()),
            (Kind::Dir, _) => {}
            _ => return Err(Errno::NOTDIR.into()),
        }
        let new = files::UnnamedFile {
            mode,
            uid: caller.uid,
            gid: match parent.mode & SETGID {
                0 => caller.gid,
                _ => parent.gid,
            },
            linkable,
            codec: parent.codec,
        };
        let token = self.ctx.tokens.next()?;
        let request = files::OpenUnnamed {
            new,
            write: flags.write,
            token,
        };
        let attr = self.ctx.call(self.ctx.member(), request)?;
        Ok(self
            .opens
            .opened(&attr, flags, CountedOpen::new(token, 1), true))
    }

    /// Ends a handle: commits what is pending, and tells the owner. The kernel does not wait for this, so an error is
    /// of use only to the library.
    ///
    /// # Errors
    /// As flush; the handle is gone all the same. What is pending is tried again in the background, and at the next open.
    pub fn release(&self, handle: Handle) -> Result<()> {
        let _at = self.ctx.counters.other();
        let open = self.ctx.table.take(handle)?;
        let file = &open.file;
        file.last_reads.lock().forget(handle);
        {
            let mut state = file.state.lock();
            state.paging_handles -= u32::from(open.paging);
            if open.writes_pages {
                self.ctx.remove_cached_writer(&mut state);
            }
            state
                .unreported_closes
                .extend(open.counted.as_ref().and_then(|c| c.release()));
            state.retired.extend(open.logs.lock().take());
        }
        let published = self.committer.publish(file);
        self.locks.release(file.fid, handle);
        let told = match published {
            Ok(()) => self.opens.tell_closes(file),
            Err(_) => Ok(()),
        };
        self.opens.release(file);
        published.and(told)
    }

    /// Short only at the end of the file.
    ///
    /// # Errors
    /// `EBADF` for a handle not open for reading; `EIO` for damaged bytes or a dead member.
    pub fn read(&self, handle: Handle, offset: u64, len: u32) -> Result<Bytes> {
        let _at = self.ctx.counters.begin();
        let open = self.ctx.table.get_readable(handle)?;
        self.read_open(&open, offset, len)
    }

    pub(super) fn read_open(&self, open: &OpenHandle, offset: u64, len: u32) -> Result<Bytes> {
        if self.ctx.posix {
            self.ctx.refresh(&open.file)?;
        }
        let read = |waited: &mut Duration| self.reader.read_file(&open.file, offset, len, waited);
        let bytes = match &self.prefetch {
            Some(prefetch) => prefetch.read(&open.file, &open.watch, (offset, len), read)?,
            None => read(&mut Duration::default())?,
        };
        self.ctx.counters.read(bytes.len());
        Ok(bytes)
    }

    /// The mark of what reads return now; `None` if that can change without a trace.
    pub(super) fn read_mark(&self, state: &FileState) -> Option<ChangeMark> {
        // A kernel with the writeback cache may have newer bytes.
        let is_known = !self.kernel_pages.keeps_dirty_pages() || !state.fills.has_writers();
        (is_known && !self.ctx.posix).then(|| state.change_mark())
    }

    /// Reads several ranges, in order and none overlapping the next, into one buffer, for a client that has not asked for all of them yet.
    /// May return fewer ranges, but the first; never part of one, except at the end of the file.
    ///
    /// The mark was taken before they were read. `None`: it could not be told whether bytes that are kept are current.
    ///
    /// # Errors
    /// As for a read of the first range.
    pub fn read_ahead(
        &self,
        handle: Handle,
        ranges: &[Range<u64>],
    ) -> Result<(Bytes, Option<ChangeMark>)> {
        let Some(first) = ranges.first() else {
            return Ok((Bytes::new(), None));
        };
        let open = self.ctx.table.get_readable(handle)?;
        let (mark, generation, size) = {
            let state = open.file.state.lock();
            (self.read_mark(&state), state.attr.generation, state.size())
        };
        let inside = ranges.partition_point(|range| range.end <= size);
        if mark.is_some() && inside > 1 {
            let _at = self.ctx.counters.begin();
            let ranges = &ranges[..inside];
            let read = self
                .reader
                .read_ranges(&open.file, ranges, generation, MAX_AHEAD_PIECES);
            if let Ok((bytes, _)) = read {
                self.ctx.counters.read(bytes.len());
                return Ok((bytes, mark));
            }
        }
        // Whatever is the matter with what follows, the first range is read as any other.
        let bytes = self.read(handle, first.start, (first.end - first.start) as u32)?;
        Ok((bytes, mark))
    }

    /// The memory of the change counters, which [`Delegate::read_ahead`] marks.
    pub fn change_counters(&self) -> &ChangeCounters {
        &self.ctx.changes
    }

    /// Append handles ignore `offset`. All or nothing. Answers where the bytes went.
    ///
    /// # Errors
    /// `EBADF`, `EFBIG`, `ENOSPC`; in posix consistency also as a commit (the bytes then stay pending).
    pub fn write(&self, handle: Handle, offset: u64, data: &[u8], caller: Caller) -> Result<u64> {
        let _at = self.ctx.counters.begin();
        let open = self.ctx.table.get_writable(handle)?;
        let origin = WriteOrigin::Program(caller);
        self.writer.write(&open, offset, data, origin)
    }

    /// Punches, zeroes or preallocates. Preallocation reserves nothing (a log-structured store writes elsewhere anyway): it
    /// fails if there is no room now, and makes the file longer.
    ///
    /// # Errors
    /// `EBADF`, `EINVAL` for an empty range, `EFBIG`, `ENOSPC`.
    pub fn fallocate(&self, handle: Handle, what: Fallocate, offset: u64, len: u64) -> Result<()> {
        let _at = self.ctx.counters.other();
        let open = self.ctx.table.get_writable(handle)?;
        let mtime = Some(self.ctx.now());
        self.writer.fallocate(&open.file, what, offset, len, mtime)
    }

    /// Commits this node's pending writes of the file (close).
    ///
    /// # Errors
    /// What the commit failed with (`ENOSPC`, `EIO`, `ESTALE`); the writes stay pending, and the next call tries again. Once, why pages
    /// that the kernel kept were lost.
    pub fn flush(&self, handle: Handle) -> Result<()> {
        let _at = self.ctx.counters.other();
        let open = self.ctx.table.get(handle)?;
        self.committer.publish(&open.file)?;
        open.report_writeback_errors()
    }

    /// Commits, and on disk on every member involved when it returns. Reads that follow see what other nodes had published
    /// by then: MPI programs rely on that (sync, barrier, sync). If the answer names stale pages, the kernel has some that
    /// are older than that: drop them, then call [`KernelPages::dropped_pages`](super::KernelPages::dropped_pages), and only then let the program go on.
    ///
    /// # Errors
    /// As flush; `EIO` also if the file's owner is dead.
    pub fn fsync(&self, handle: Handle) -> Result<Option<StalePages>> {
        let _at = self.ctx.counters.other();
        let open = self.ctx.table.get(handle)?;
        let stale = self.syncer.sync(&open.file)?;
        open.report_writeback_errors()?;
        Ok(stale)
    }

    /// The next data or hole at or after `offset`; the end of the file counts as a hole.
    ///
    /// # Errors
    /// `ENXIO` at or past the end, or if there is no more data.
    pub fn seek(&self, handle: Handle, offset: u64, target: SeekTarget) -> Result<u64> {
        let _at = self.ctx.counters.other();
        let open = self.ctx.table.get(handle)?;
        if self.ctx.posix {
            self.ctx.refresh(&open.file)?;
        }
        self.reader.seek(&open.file, offset, target)
    }

    /// Copies up to `len` bytes; less at the end of the source, and at most 64 MiB a call. Extents are not shared.
    ///
    /// # Errors
    /// `EBADF` for handles that cannot read or write so, `EINVAL` for overlapping ranges of one file, and as read and write.
    pub fn copy_range(
        &self,
        from: Handle,
        offset: u64,
        to: Handle,
        to_offset: u64,
        len: u64,
        origin: WriteOrigin,
    ) -> Result<u64> {
        let (source, target) = (
            self.ctx.table.get_readable(from)?,
            self.ctx.table.get_writable(to)?,
        );
        if target.flags.append {
            return Err(Errno::BADF.into());
        }
        let len = len.min(MAX_COPY);
        let apart =
            offset.saturating_add(len) <= to_offset || to_offset.saturating_add(len) <= offset;
        if source.file.fid == target.file.fid && !apart {
            return Err(Errno::INVAL.into());
        }
        let mut done = 0;
        while done < len {
            let step = (len - done).min(COPY_STEP) as u32;
            let copied = self
                .read(from, offset.saturating_add(done), step)
                .and_then(|bytes| {
                    let _at = self.ctx.counters.begin();
                    let to_offset = to_offset.saturating_add(done);
                    self.writer.write(&target, to_offset, &bytes, origin)?;
                    Ok(bytes.len() as u64)
                });
            match copied {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(_) if done > 0 => break,
                Err(e) => return Err(e),
            }
        }
        Ok(done)
    }
}
