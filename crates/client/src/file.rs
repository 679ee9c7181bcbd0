//! An open file: positional and streaming reads and writes, and commit.
use crate::error::{Result, WithPath};
use crate::{Client, Metadata};
use bytes::Bytes;
use forebay_server::delegate::{Fallocate, Handle, OpenedFile, SeekTarget};
use forebay_server::{Caller, Delegate, Fid, OpenFlags, SetAttr};
use parking_lot::Mutex;
use rustix::io::Errno;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Most bytes one request to the delegate carries.
const MAX_REQUEST_BYTES: usize = 1 << 20;

/// The position of the streaming calls.
#[derive(Debug, Clone, Copy)]
enum Position {
    At(u64),
    /// After an append: the end of the file, wherever the owner put it.
    End,
}

/// An open file of this node.
///
/// Dropping it commits and closes without a report; call [`File::close`] to learn whether that worked.
pub struct File {
    delegate: Arc<Delegate>,
    caller: Caller,
    handle: Handle,
    fid: Fid,
    flags: OpenFlags,
    path: PathBuf,
    position: Mutex<Position>,
    /// Content was changed since the last commit: programs of this node's mount are to see it.
    changed: AtomicBool,
    open: bool,
}

impl File {
    pub(crate) fn new(client: &Client, opened: OpenedFile, flags: OpenFlags, path: &Path) -> File {
        File {
            delegate: client.delegate.clone(),
            caller: client.caller,
            handle: opened.handle,
            fid: opened.attr.fid,
            flags,
            path: path.to_path_buf(),
            position: Mutex::new(Position::At(0)),
            changed: AtomicBool::new(false),
            open: true,
        }
    }

    /// Reads up to `len` bytes at `offset`; fewer only at the end of the file.
    ///
    /// # Errors
    /// `EBADF` if the file is not open for reading; `EIO` if a member that holds bytes of it cannot answer, or if stored
    /// bytes are damaged.
    pub fn read_bytes_at(&self, offset: u64, len: u32) -> Result<Bytes> {
        if !self.flags.read {
            return Err(Errno::BADF.into()).at_bytes("read", &self.path, offset, len.into());
        }
        self.delegate.kernel_pages.write_back_dirty(self.fid);
        let read = self.delegate.read(self.handle, offset, len);
        read.at_bytes("read", &self.path, offset, len.into())
    }

    /// Reads at `offset` into `buffer`; returns the bytes read, fewer than asked only at the end of the file.
    ///
    /// # Errors
    /// As [`File::read_bytes_at`].
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let mut done = 0;
        for piece in buffer.chunks_mut(MAX_REQUEST_BYTES) {
            let bytes =
                self.read_bytes_at(offset.saturating_add(done as u64), piece.len() as u32)?;
            piece[..bytes.len()].copy_from_slice(&bytes);
            done += bytes.len();
            if bytes.len() < piece.len() {
                break;
            }
        }
        Ok(done)
    }

    /// Writes all of `data` at `offset`; a file opened for append ignores `offset`.
    ///
    /// # Errors
    /// `EBADF` if the file is not open for writing, `ENOSPC`, `EFBIG`, `EIO`. Data of more than 1 MiB may then be written
    /// in part.
    pub fn write_at(&self, data: &[u8], offset: u64) -> Result<()> {
        if !(self.flags.write || self.flags.append) {
            let len = data.len() as u64;
            return Err(Errno::BADF.into()).at_bytes("write", &self.path, offset, len);
        }
        self.change();
        for (n, piece) in data.chunks(MAX_REQUEST_BYTES).enumerate() {
            let at = offset.saturating_add((n * MAX_REQUEST_BYTES) as u64);
            let written = self.delegate.write(self.handle, at, piece, self.caller);
            written.at_bytes("write", &self.path, at, piece.len() as u64)?;
        }
        let shown = self.delegate.kernel_pages.show_elsewhere(self.fid);
        shown.at_bytes("write", &self.path, offset, data.len() as u64)
    }

    /// Publishes what this node wrote to the file: opens that follow on other nodes see it. It is on disk when this
    /// returns. Reads that follow here see what other nodes had published.
    ///
    /// # Errors
    /// `ENOSPC`, `EIO`; nothing of the commit is visible then.
    pub fn commit(&self) -> Result<()> {
        let synced = self.delegate.fsync(self.handle);
        self.show_changes();
        // A library has no pages that could be old.
        synced.map(|_| ()).at("commit", &self.path)
    }

    /// Cuts or extends the file to `len` bytes.
    ///
    /// # Errors
    /// `EBADF` if the file is not open for writing, `EFBIG`, `EIO`.
    pub fn set_len(&self, len: u64) -> Result<()> {
        if !(self.flags.write || self.flags.append) {
            return Err(Errno::BADF.into()).at("truncate", &self.path);
        }
        let set = SetAttr {
            size: Some(len),
            ..SetAttr::default()
        };
        self.change();
        let cut = self
            .delegate
            .names
            .setattr(self.fid, &set, Some(self.handle), self.caller)
            .and_then(|_| self.delegate.kernel_pages.show_elsewhere(self.fid));
        self.show_changes();
        cut.at("truncate", &self.path)
    }

    /// The file's attributes, with this node's uncommitted writes.
    ///
    /// # Errors
    /// `EIO` if the file's owner cannot answer.
    pub fn metadata(&self) -> Result<Metadata> {
        self.delegate.kernel_pages.write_back_dirty(self.fid);
        self.delegate
            .names
            .getattr(self.fid)
            .map(Metadata)
            .at("stat", &self.path)
    }

    /// Punches out, zeroes or reserves `len` bytes at `offset`.
    ///
    /// # Errors
    /// `EBADF`, `EINVAL` for an empty range, `ENOSPC`, `EIO`.
    pub fn allocate(&self, what: Fallocate, offset: u64, len: u64) -> Result<()> {
        self.change();
        self.delegate
            .fallocate(self.handle, what, offset, len)
            .at_bytes("allocate", &self.path, offset, len)
    }

    /// The first offset at or after `offset` that holds data.
    ///
    /// # Errors
    /// `ENXIO` if there is none.
    pub fn seek_data(&self, offset: u64) -> Result<u64> {
        self.delegate.kernel_pages.write_back_dirty(self.fid);
        self.delegate
            .seek(self.handle, offset, SeekTarget::Data)
            .at_bytes("seek data in", &self.path, offset, 0)
    }

    /// The first offset at or after `offset` that is a hole; the end of the file counts as one.
    ///
    /// # Errors
    /// `ENXIO` if `offset` lies after the end.
    pub fn seek_hole(&self, offset: u64) -> Result<u64> {
        self.delegate.kernel_pages.write_back_dirty(self.fid);
        self.delegate
            .seek(self.handle, offset, SeekTarget::Hole)
            .at_bytes("seek a hole in", &self.path, offset, 0)
    }

    /// Commits and closes.
    ///
    /// # Errors
    /// Those of [`File::commit`].
    pub fn close(mut self) -> Result<()> {
        self.end().at("close", &self.path)
    }

    /// The handle, which is the caller's to close, and the path.
    pub(crate) fn into_parts(mut self) -> (Handle, PathBuf) {
        self.open = false;
        (self.handle, std::mem::take(&mut self.path))
    }

    fn end(&mut self) -> forebay_server::Result<()> {
        if !std::mem::take(&mut self.open) {
            return Ok(());
        }
        let flushed = self.delegate.flush(self.handle);
        let released = self.delegate.release(self.handle);
        self.show_changes();
        released.and(flushed)
    }

    /// The content is about to be changed, above what programs of the mount have written.
    fn change(&self) {
        self.delegate.kernel_pages.write_back_dirty(self.fid);
        self.changed.store(true, Ordering::SeqCst);
    }

    /// Programs of the mount see what was changed.
    fn show_changes(&self) {
        if self.changed.swap(false, Ordering::SeqCst) {
            self.delegate.kernel_pages.refresh_kernel(self.fid);
        }
    }

    fn offset(&self, position: Position) -> Result<u64> {
        match position {
            Position::At(offset) => Ok(offset),
            Position::End => Ok(self.metadata()?.len()),
        }
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // A caller who needs the outcome calls `close`.
        let _ = self.end();
    }
}

impl Read for &File {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut position = self.position.lock();
        let offset = self.offset(*position)?;
        let n = self.read_at(buffer, offset)?;
        *position = Position::At(offset + n as u64);
        Ok(n)
    }
}

impl Write for &File {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let mut position = self.position.lock();
        let data = &data[..data.len().min(MAX_REQUEST_BYTES)];
        if self.flags.append {
            self.write_at(data, 0)?;
            *position = Position::End;
        } else {
            let offset = self.offset(*position)?;
            self.write_at(data, offset)?;
            *position = Position::At(offset + data.len() as u64);
        }
        Ok(data.len())
    }

    /// Nothing is buffered here: this node already sees the writes. [`File::commit`] shows them to others.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for &File {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let mut position = self.position.lock();
        let (base, by) = match to {
            SeekFrom::Start(offset) => (offset, 0),
            SeekFrom::Current(by) => (self.offset(*position)?, by),
            SeekFrom::End(by) => (self.metadata()?.len(), by),
        };
        let offset = base
            .checked_add_signed(by)
            .filter(|o| i64::try_from(*o).is_ok());
        let offset =
            offset.ok_or_else(|| io::Error::from_raw_os_error(Errno::INVAL.raw_os_error()))?;
        *position = Position::At(offset);
        Ok(offset)
    }
}

impl Read for File {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        (&*self).read(buffer)
    }
}

impl Write for File {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        (&*self).write(data)
    }
    fn flush(&mut self) -> io::Result<()> {
        (&*self).flush()
    }
}

impl Seek for File {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        (&*self).seek(to)
    }
}
