//! Memory of Python objects, by the buffer protocol: bytes, arrays, anything that is contiguous, whatever it holds.
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use std::mem::MaybeUninit;

/// A contiguous buffer that its object keeps in its place until this is dropped.
pub(crate) struct PythonBuffer {
    // Its address must not change: an exporter may point into it.
    view: Box<ffi::Py_buffer>,
}

// SAFETY: the view is a pointer to memory that its object keeps until it is released, and release takes the interpreter's lock.
unsafe impl Send for PythonBuffer {}
// SAFETY: as above; reads through it change nothing of the view.
unsafe impl Sync for PythonBuffer {}

impl PythonBuffer {
    /// The bytes of an object to be read.
    ///
    /// # Errors
    /// `TypeError` for what has no buffer, `BufferError` for what is not contiguous.
    pub(crate) fn readable(object: &Bound<'_, PyAny>) -> PyResult<PythonBuffer> {
        PythonBuffer::get(object, ffi::PyBUF_SIMPLE)
    }

    /// The bytes of an object to be written.
    ///
    /// # Errors
    /// As [`PythonBuffer::readable`], and `BufferError` for what is read-only.
    pub(crate) fn writable(object: &Bound<'_, PyAny>) -> PyResult<PythonBuffer> {
        PythonBuffer::get(object, ffi::PyBUF_WRITABLE)
    }

    fn get(object: &Bound<'_, PyAny>, flags: std::ffi::c_int) -> PyResult<PythonBuffer> {
        let mut view = Box::new(MaybeUninit::<ffi::Py_buffer>::uninit());
        // SAFETY: the object is alive and the interpreter's lock is held, as `Bound` says; the view may be written.
        let failed = unsafe { ffi::PyObject_GetBuffer(object.as_ptr(), view.as_mut_ptr(), flags) };
        if failed != 0 {
            return Err(PyErr::take(object.py())
                .unwrap_or_else(|| PyBufferError::new_err("the object gives no buffer")));
        }
        // SAFETY: the call has filled it, as it did not fail; a box of either type is the same memory.
        let view = unsafe { Box::from_raw(Box::into_raw(view).cast::<ffi::Py_buffer>()) };
        Ok(PythonBuffer { view })
    }

    fn len(&self) -> usize {
        usize::try_from(self.view.len).unwrap_or(0)
    }

    /// The bytes. Another thread of Python that writes them at the same time gives the service a mixture, as it would a system call.
    pub(crate) fn bytes(&self) -> &[u8] {
        match self.len() {
            0 => &[],
            // SAFETY: the object keeps `len` contiguous bytes there as long as the view lives.
            len => unsafe { std::slice::from_raw_parts(self.view.buf.cast(), len) },
        }
    }

    /// The bytes, to be changed; only of a buffer that was asked for as [`PythonBuffer::writable`].
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        match self.len() {
            0 => &mut [],
            // SAFETY: as in `bytes`; the exporter said that they may be written.
            len => unsafe { std::slice::from_raw_parts_mut(self.view.buf.cast(), len) },
        }
    }
}

impl Drop for PythonBuffer {
    fn drop(&mut self) {
        // A program that has ended its interpreter keeps no objects either.
        Python::try_attach(|_| {
            // SAFETY: filled by `PyObject_GetBuffer`, released once, under the interpreter's lock.
            unsafe { ffi::PyBuffer_Release(&mut *self.view) }
        });
    }
}
