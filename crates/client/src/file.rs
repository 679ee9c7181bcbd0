//! An open file: positional and streaming reads and writes, and commit.
use crate::Metadata;
use crate::embedded::EmbeddedFile;
use crate::error::{Result, WithPath};
use crate::link::{CallError, LinkFile};
use crate::stream_position::{Position, StreamPosition};
use bytes::Bytes;
use forebay_server::OpenFlags;
use forebay_server::delegate::{Fallocate, SeekTarget};
use rustix::io::Errno;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// Most bytes one request to the delegate carries.
const MAX_REQUEST_BYTES: usize = 1 << 20;

/// An open file of this node.
///
/// Dropping it commits and closes without a report; call [`File::close`] to learn whether that worked.
pub struct File {
    pub(crate) backend: FileBackend,
    flags: OpenFlags,
    path: PathBuf,
    position: StreamPosition,
}

/// Where calls are carried out. Its end closes the file.
pub(crate) enum FileBackend {
    /// In this process, which is the server.
    Embedded(EmbeddedFile),
    /// By the server of this node.
    Link(LinkFile),
}

/// Makes a call of either backend.
macro_rules! either {
    ($backend:expr, $file:ident => $call:expr) => {
        match $backend {
            FileBackend::Embedded($file) => $call.map_err(CallError::from),
            FileBackend::Link($file) => $call,
        }
    };
}

/// The file was not opened for this.
fn not_opened_so() -> CallError {
    forebay_server::Error::from(Errno::BADF).into()
}

impl File {
    pub(crate) fn new(backend: FileBackend, flags: OpenFlags, path: &Path) -> File {
        File {
            backend,
            flags,
            path: path.to_path_buf(),
            position: StreamPosition::new(),
        }
    }

    /// The path that it was opened by.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads up to `len` bytes at `offset`; fewer only at the end of the file.
    ///
    /// # Errors
    /// `EBADF` if the file is not open for reading; `EIO` if a member that holds bytes of it cannot answer, or if stored
    /// bytes are damaged.
    pub fn read_bytes_at(&self, offset: u64, len: u32) -> Result<Bytes> {
        if !self.flags.read {
            return Err(not_opened_so()).at_bytes("read", &self.path, offset, len.into());
        }
        let one = |at: u64, len: u32| {
            let read = either!(&self.backend, file => file.read(at, len));
            read.at_bytes("read", &self.path, at, len.into())
        };
        if len <= MAX_REQUEST_BYTES as u32 {
            return one(offset, len);
        }
        let mut bytes = Vec::new();
        while bytes.len() < len as usize {
            let step = (len as usize - bytes.len()).min(MAX_REQUEST_BYTES);
            let came = one(offset.saturating_add(bytes.len() as u64), step as u32)?;
            bytes.extend_from_slice(&came);
            if came.len() < step {
                break;
            }
        }
        Ok(bytes.into())
    }

    /// Reads at `offset` into `buffer`; returns the bytes read, fewer than asked only at the end of the file.
    ///
    /// # Errors
    /// As [`File::read_bytes_at`].
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        if !self.flags.read {
            let len = buffer.len() as u64;
            return Err(not_opened_so()).at_bytes("read", &self.path, offset, len);
        }
        let file = match &self.backend {
            FileBackend::Embedded(file) => file,
            FileBackend::Link(file) => {
                let len = buffer.len() as u64;
                let came = file.read_into(buffer, offset);
                return came.at_bytes("read", &self.path, offset, len);
            }
        };
        let mut done = 0;
        for piece in buffer.chunks_mut(MAX_REQUEST_BYTES) {
            let (at, len) = (offset.saturating_add(done as u64), piece.len());
            let read = file.read(at, len as u32).map_err(CallError::from);
            let bytes = read.at_bytes("read", &self.path, at, len as u64)?;
            piece[..bytes.len()].copy_from_slice(&bytes);
            done += bytes.len();
            if bytes.len() < len {
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
            return Err(not_opened_so()).at_bytes("write", &self.path, offset, len);
        }
        for (n, piece) in data.chunks(MAX_REQUEST_BYTES).enumerate() {
            let at = offset.saturating_add((n * MAX_REQUEST_BYTES) as u64);
            let written = either!(&self.backend, file => file.write(piece, at));
            written.at_bytes("write", &self.path, at, piece.len() as u64)?;
        }
        match &self.backend {
            FileBackend::Embedded(file) => {
                file.show_elsewhere()
                    .at_bytes("write", &self.path, offset, data.len() as u64)
            }
            // The server has done so for each piece.
            FileBackend::Link(_) => Ok(()),
        }
    }

    /// Publishes what this node wrote to the file: opens that follow on other nodes see it. It is on disk when this
    /// returns. Reads that follow here see what other nodes had published.
    ///
    /// # Errors
    /// `ENOSPC`, `EIO`; nothing of the commit is visible then.
    pub fn commit(&self) -> Result<()> {
        either!(&self.backend, file => file.commit()).at("commit", &self.path)
    }

    /// Cuts or extends the file to `len` bytes.
    ///
    /// # Errors
    /// `EBADF` if the file is not open for writing, `EFBIG`, `EIO`.
    pub fn set_len(&self, len: u64) -> Result<()> {
        if !(self.flags.write || self.flags.append) {
            return Err(not_opened_so()).at("truncate", &self.path);
        }
        either!(&self.backend, file => file.set_len(len)).at("truncate", &self.path)
    }

    /// The file's attributes, with this node's uncommitted writes.
    ///
    /// # Errors
    /// `EIO` if the file's owner cannot answer.
    pub fn metadata(&self) -> Result<Metadata> {
        let attr = either!(&self.backend, file => file.attr());
        attr.map(Metadata).at("stat", &self.path)
    }

    /// Punches out, zeroes or reserves `len` bytes at `offset`.
    ///
    /// # Errors
    /// `EBADF`, `EINVAL` for an empty range, `ENOSPC`, `EIO`.
    pub fn allocate(&self, what: Fallocate, offset: u64, len: u64) -> Result<()> {
        either!(&self.backend, file => file.allocate(what, offset, len))
            .at_bytes("allocate", &self.path, offset, len)
    }

    /// The first offset at or after `offset` that holds data.
    ///
    /// # Errors
    /// `ENXIO` if there is none.
    pub fn seek_data(&self, offset: u64) -> Result<u64> {
        either!(&self.backend, file => file.seek(offset, SeekTarget::Data)).at_bytes(
            "seek data in",
            &self.path,
            offset,
            0,
        )
    }

    /// The first offset at or after `offset` that is a hole; the end of the file counts as one.
    ///
    /// # Errors
    /// `ENXIO` if `offset` lies after the end.
    pub fn seek_hole(&self, offset: u64) -> Result<u64> {
        either!(&self.backend, file => file.seek(offset, SeekTarget::Hole)).at_bytes(
            "seek a hole in",
            &self.path,
            offset,
            0,
        )
    }

    /// Commits and closes.
    ///
    /// # Errors
    /// Those of [`File::commit`].
    pub fn close(self) -> Result<()> {
        either!(&self.backend, file => file.close()).at("close", &self.path)
    }

    fn offset(&self, position: Position) -> Result<u64> {
        match position {
            Position::At(offset) => Ok(offset),
            Position::End => Ok(self.metadata()?.len()),
        }
    }
}

impl Read for &File {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.position.step(|position| {
            let offset = self.offset(position)?;
            let n = self.read_at(buffer, offset)?;
            Ok((n, Position::At(offset + n as u64)))
        })
    }
}

impl Write for &File {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.position.step(|position| {
            let data = &data[..data.len().min(MAX_REQUEST_BYTES)];
            if self.flags.append {
                self.write_at(data, 0)?;
                return Ok((data.len(), Position::End));
            }
            let offset = self.offset(position)?;
            self.write_at(data, offset)?;
            Ok((data.len(), Position::At(offset + data.len() as u64)))
        })
    }

    /// Nothing is buffered here: this node already sees the writes. [`File::commit`] shows them to others.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for &File {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.position.step(|position| {
            let (base, by) = match to {
                SeekFrom::Start(offset) => (offset, 0),
                SeekFrom::Current(by) => (self.offset(position)?, by),
                SeekFrom::End(by) => (self.metadata()?.len(), by),
            };
            let offset = base
                .checked_add_signed(by)
                .filter(|o| i64::try_from(*o).is_ok());
            let offset =
                offset.ok_or_else(|| io::Error::from_raw_os_error(Errno::INVAL.raw_os_error()))?;
            Ok((offset, Position::At(offset)))
        })
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
