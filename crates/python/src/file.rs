//! An open file as Python's raw files need it: whole transfers into and out of buffers, and a position.
use crate::attributes::Attributes;
use crate::python_buffer::PythonBuffer;
use crate::python_error::{closed, io_error, os_error};
use forebay_client::{Error, Fallocate, File, LockMode, LockRange};
use parking_lot::RwLock;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::io::{Read, Seek, SeekFrom, Write};
use std::sync::Arc;

/// An open file; closed once `close` has been called.
#[pyclass(frozen, module = "forebay._native")]
pub struct NativeFile {
    /// A call that runs when another thread closes the file has it to its end.
    file: RwLock<Option<Arc<File>>>,
}

impl NativeFile {
    pub(crate) fn new(file: File) -> NativeFile {
        NativeFile {
            file: RwLock::new(Some(Arc::new(file))),
        }
    }

    fn file(&self) -> PyResult<Arc<File>> {
        self.file.read().clone().ok_or_else(closed)
    }

    /// Takes the file from Python: it is closed here, and the caller closes it there.
    ///
    /// # Errors
    /// `ValueError` if it is closed, or another thread uses it.
    pub(crate) fn take(&self) -> PyResult<File> {
        let mut place = self.file.write();
        let file = place.take().ok_or_else(closed)?;
        Arc::try_unwrap(file).map_err(|file| {
            *place = Some(file);
            PyValueError::new_err("another thread uses the file")
        })
    }

    /// Makes a call without the interpreter's lock.
    fn call<T: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&File) -> Result<T, Error> + Send,
    ) -> PyResult<T> {
        let file = self.file()?;
        py.detach(|| call(&file)).map_err(|e| os_error(&e))
    }

    /// The same for a call on the position.
    fn stream<T: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&mut &File) -> std::io::Result<T> + Send,
    ) -> PyResult<T> {
        let file = self.file()?;
        py.detach(|| call(&mut &*file))
            .map_err(|e| io_error(&e, file.path()))
    }
}

#[pymethods]
impl NativeFile {
    #[getter]
    fn closed(&self) -> bool {
        self.file.read().is_none()
    }

    /// Reads at the position into a buffer; fewer bytes only at the end of the file.
    fn readinto(&self, py: Python<'_>, buffer: &Bound<'_, PyAny>) -> PyResult<usize> {
        let mut buffer = PythonBuffer::writable(buffer)?;
        let bytes = buffer.bytes_mut();
        self.stream(py, |file| file.read(bytes))
    }

    /// Reads at an offset into a buffer; fewer bytes only at the end of the file.
    fn preadinto(&self, py: Python<'_>, buffer: &Bound<'_, PyAny>, offset: u64) -> PyResult<usize> {
        let mut buffer = PythonBuffer::writable(buffer)?;
        let bytes = buffer.bytes_mut();
        self.call(py, |file| file.read_at(bytes, offset))
    }

    /// Reads up to `length` bytes at an offset; fewer only at the end of the file.
    fn pread<'py>(
        &self,
        py: Python<'py>,
        length: usize,
        offset: u64,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let file = self.file()?;
        let mut read = 0;
        let bytes = PyBytes::new_with(py, length, |buffer| {
            read = py
                .detach(|| file.read_at(buffer, offset))
                .map_err(|e| os_error(&e))?;
            Ok(())
        })?;
        match read < length {
            true => Ok(PyBytes::new(py, &bytes.as_bytes()[..read])),
            false => Ok(bytes),
        }
    }

    /// Writes all of a buffer at the position.
    fn write(&self, py: Python<'_>, buffer: &Bound<'_, PyAny>) -> PyResult<usize> {
        let buffer = PythonBuffer::readable(buffer)?;
        let bytes = buffer.bytes();
        self.stream(py, |file| file.write_all(bytes))?;
        Ok(bytes.len())
    }

    /// Writes all of a buffer at an offset.
    fn pwrite(&self, py: Python<'_>, buffer: &Bound<'_, PyAny>, offset: u64) -> PyResult<usize> {
        let buffer = PythonBuffer::readable(buffer)?;
        let bytes = buffer.bytes();
        self.call(py, |file| file.write_at(bytes, offset))?;
        Ok(bytes.len())
    }

    /// Moves the position; `whence` as in `os.lseek`, with `SEEK_DATA` and `SEEK_HOLE`.
    fn seek(&self, py: Python<'_>, offset: i64, whence: i32) -> PyResult<u64> {
        let absolute = || {
            u64::try_from(offset)
                .map_err(|_| PyValueError::new_err(format!("negative seek position {offset}")))
        };
        let to = match whence {
            libc::SEEK_SET => SeekFrom::Start(absolute()?),
            libc::SEEK_CUR => SeekFrom::Current(offset),
            libc::SEEK_END => SeekFrom::End(offset),
            libc::SEEK_DATA => {
                let from = absolute()?;
                SeekFrom::Start(self.call(py, |file| file.seek_data(from))?)
            }
            libc::SEEK_HOLE => {
                let from = absolute()?;
                SeekFrom::Start(self.call(py, |file| file.seek_hole(from))?)
            }
            other => {
                let text = format!("invalid whence ({other})");
                return Err(PyValueError::new_err(text));
            }
        };
        self.stream(py, |file| file.seek(to))
    }

    fn truncate(&self, py: Python<'_>, length: u64) -> PyResult<()> {
        self.call(py, |file| file.set_len(length))
    }

    /// Publishes what this node wrote, and brings it to disk.
    fn commit(&self, py: Python<'_>) -> PyResult<()> {
        self.call(py, File::commit)
    }

    fn stat(&self, py: Python<'_>) -> PyResult<Attributes> {
        self.call(py, File::metadata).map(Attributes::from)
    }

    /// Reserves room for a range, or with `punch` makes a hole of it.
    fn allocate(&self, py: Python<'_>, offset: u64, length: u64, punch: bool) -> PyResult<()> {
        let what = Fallocate {
            punch,
            zero: false,
            keep_size: punch,
        };
        self.call(py, |file| file.allocate(what, offset, length))
    }

    /// Locks a range, or without one the file as a whole; whether it is locked: without `wait` another's lock may be in the way.
    fn lock(
        &self,
        py: Python<'_>,
        range: Option<(u64, Option<u64>)>,
        exclusive: bool,
        wait: bool,
    ) -> PyResult<bool> {
        let (range, mode) = (lock_range(range), lock_mode(exclusive));
        self.call(py, |file| match wait {
            true => file.lock(&range, mode).map(|()| true),
            false => file.try_lock(&range, mode),
        })
    }

    fn unlock(&self, py: Python<'_>, range: Option<(u64, Option<u64>)>) -> PyResult<()> {
        let range = lock_range(range);
        self.call(py, |file| file.unlock(&range))
    }

    /// The lock that would be in the way: its start, its end, whether it is exclusive, and its process on this node.
    fn test_lock(
        &self,
        py: Python<'_>,
        range: Option<(u64, Option<u64>)>,
        exclusive: bool,
    ) -> PyResult<Option<(u64, u64, bool, u32)>> {
        let (range, mode) = (lock_range(range), lock_mode(exclusive));
        let held = self.call(py, |file| file.test_lock(&range, mode))?;
        Ok(held.map(|held| {
            let exclusive = held.mode == LockMode::Exclusive;
            (held.range.start, held.range.end, exclusive, held.pid)
        }))
    }

    /// Publishes what was written, and closes. Closing again does nothing.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let Some(file) = self.file.write().take() else {
            return Ok(());
        };
        let outcome = py.detach(|| match Arc::try_unwrap(file) {
            Ok(file) => file.close(),
            // Calls of other threads still run; the last of them closes.
            Err(file) => file.commit(),
        });
        outcome.map_err(|e| os_error(&e))
    }
}

fn lock_mode(exclusive: bool) -> LockMode {
    match exclusive {
        true => LockMode::Exclusive,
        false => LockMode::Shared,
    }
}

/// A range as Python gives it: start, and length or none for all that follows.
fn lock_range(range: Option<(u64, Option<u64>)>) -> LockRange {
    match range {
        None => LockRange::WholeFile,
        Some((start, None)) => LockRange::bytes(start..),
        Some((start, Some(length))) => LockRange::bytes(start..start.saturating_add(length)),
    }
}
