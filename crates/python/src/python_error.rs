//! Errors of the library as Python's `OSError`.
use forebay_client::Error;
use pyo3::PyErr;
use pyo3::exceptions::{PyOSError, PyValueError};
use std::io;
use std::path::Path;

/// The error with its number, what it says, and the path: Python makes `FileNotFoundError` and its like of the number.
pub(crate) fn os_error(error: &Error) -> PyErr {
    let errno = error.errno().raw_os_error();
    let plain = system_text(errno);
    let text = match error {
        Error::Name { source, .. } | Error::Bytes { source, .. } => source.to_string(),
        other => other.to_string(),
    };
    // "No such file or directory (os error 2)" says no more than Python's own words.
    let text = match text.starts_with(&plain) {
        true => plain,
        false => text,
    };
    PyOSError::new_err((errno, text, error.path().as_os_str().to_os_string()))
}

/// An error of the streaming calls, which may have one of the library within.
pub(crate) fn io_error(error: &io::Error, path: &Path) -> PyErr {
    if let Some(inner) = error.get_ref().and_then(|e| e.downcast_ref::<Error>()) {
        return os_error(inner);
    }
    let errno = error.raw_os_error().unwrap_or(libc::EIO);
    PyOSError::new_err((errno, system_text(errno), path.as_os_str().to_os_string()))
}

/// What Python raises for a file that is closed.
pub(crate) fn closed() -> PyErr {
    PyValueError::new_err("I/O operation on closed file.")
}

/// The system's words for an error number.
fn system_text(errno: i32) -> String {
    let text = io::Error::from_raw_os_error(errno).to_string();
    match text.rfind(" (os error") {
        Some(end) => text[..end].to_string(),
        None => text,
    }
}
