//! The edge between C and Rust: results as numbers, the message of the last failure, and checked pointers.
use libc::{c_char, c_int};
use rustix::io::Errno;
use std::cell::RefCell;
use std::ffi::{CStr, CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

thread_local! {
    static MESSAGE: RefCell<CString> = RefCell::default();
}

/// Why a call failed: its number and its message.
pub(crate) struct Failure {
    errno: Errno,
    message: String,
}

impl Failure {
    pub(crate) fn new(errno: Errno, message: impl Into<String>) -> Failure {
        let message = message.into();
        Failure { errno, message }
    }

    /// An argument that cannot be.
    pub(crate) fn argument(message: &str) -> Failure {
        Failure::new(Errno::INVAL, message)
    }
}

impl From<forebay_client::Error> for Failure {
    fn from(error: forebay_client::Error) -> Failure {
        Failure::new(error.errno(), error.to_string())
    }
}

pub(crate) type Outcome<T> = Result<T, Failure>;

/// Runs the body of a function that gives a count.
pub(crate) fn count(body: impl FnOnce() -> Outcome<usize>) -> i64 {
    // What a panic leaves half done is only seen by this library's own types, whose locks do not poison.
    let outcome = catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|_| {
        let message = "an error of the library itself; standard error has what it said";
        Err(Failure::new(Errno::IO, message))
    });
    match outcome {
        // No buffer is larger than `isize::MAX`.
        Ok(n) => n as i64,
        Err(failure) => {
            let text = failure.message.replace('\0', "?");
            // A thread that ends has none any more, and destructors of its own may still call.
            let _ = MESSAGE.try_with(|m| *m.borrow_mut() = CString::new(text).unwrap_or_default());
            -i64::from(failure.errno.raw_os_error())
        }
    }
}

/// Runs the body of a function that gives no more than whether it worked.
pub(crate) fn status(body: impl FnOnce() -> Outcome<()>) -> c_int {
    // An error number fits.
    count(|| body().map(|()| 0)) as c_int
}

/// Says what the last failed call of this thread failed at: the operation, the path, the reason. Empty before the
/// first. Valid until the next call of this thread that fails.
#[unsafe(no_mangle)]
pub extern "C" fn forebay_error_message() -> *const c_char {
    let message = MESSAGE.try_with(|m| m.borrow().as_ptr());
    message.unwrap_or_else(|_| c"".as_ptr())
}

/// The version of this library, such as "0.1.0".
#[unsafe(no_mangle)]
pub extern "C" fn forebay_version() -> *const c_char {
    const VERSION_TEXT: &CStr =
        match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
            Ok(version) => version,
            Err(_) => c"",
        };
    VERSION_TEXT.as_ptr()
}

/// What a pointer of C points at.
///
/// # Safety
/// Null, or valid for reads as long as the result is used, with nobody writing there.
pub(crate) unsafe fn shared<'a, T>(pointer: *const T) -> Outcome<&'a T> {
    // SAFETY: as the caller says.
    unsafe { pointer.as_ref() }.ok_or_else(|| Failure::argument("a null pointer was given"))
}

/// The same to change it.
///
/// # Safety
/// Null, or valid and used by nobody else as long as the result is.
pub(crate) unsafe fn exclusive<'a, T>(pointer: *mut T) -> Outcome<&'a mut T> {
    // SAFETY: as the caller says.
    unsafe { pointer.as_mut() }.ok_or_else(|| Failure::argument("a null pointer was given"))
}

/// Puts a new object where C wants its pointer.
///
/// # Safety
/// `to` is null or may be written.
pub(crate) unsafe fn give<T>(to: *mut *mut T, made: impl FnOnce() -> Outcome<T>) -> Outcome<()> {
    if to.is_null() {
        return Err(Failure::argument("there is no place for the result"));
    }
    let made = made().map(|made| Box::into_raw(Box::new(made)));
    let (pointer, outcome) = match made {
        Ok(pointer) => (pointer, Ok(())),
        Err(failure) => (std::ptr::null_mut(), Err(failure)),
    };
    // SAFETY: not null, and the caller says that it may be written.
    unsafe { to.write(pointer) };
    outcome
}

/// Takes back what [`give`] gave; `None` for null.
///
/// # Safety
/// Null or given by [`give`], and used by nobody afterwards.
pub(crate) unsafe fn take<T>(pointer: *mut T) -> Option<Box<T>> {
    // SAFETY: it was made of a `Box` of this type, and comes back once.
    (!pointer.is_null()).then(|| unsafe { Box::from_raw(pointer) })
}

/// A path of C.
///
/// # Safety
/// Null, or a string that ends with a zero, valid as long as the result is used.
pub(crate) unsafe fn path<'a>(text: *const c_char) -> Outcome<&'a Path> {
    if text.is_null() {
        return Err(Failure::argument("a path is a null pointer"));
    }
    // SAFETY: not null, so a string as the caller says.
    let bytes = unsafe { CStr::from_ptr(text) }.to_bytes();
    Ok(Path::new(OsStr::from_bytes(bytes)))
}

/// Bytes of C to be read.
///
/// # Safety
/// `pointer` is valid for reads of `length` bytes as long as the result is used, or `length` is 0.
pub(crate) unsafe fn bytes<'a>(pointer: *const u8, length: usize) -> Outcome<&'a [u8]> {
    check_length(pointer, length)?;
    match length {
        0 => Ok(&[]),
        // SAFETY: not null, not longer than an object may be, and valid as the caller says.
        _ => Ok(unsafe { std::slice::from_raw_parts(pointer, length) }),
    }
}

/// Bytes of C to be written.
///
/// # Safety
/// As [`bytes`], for writes, with nobody else there.
pub(crate) unsafe fn bytes_mut<'a>(pointer: *mut u8, length: usize) -> Outcome<&'a mut [u8]> {
    check_length(pointer, length)?;
    match length {
        0 => Ok(&mut []),
        // SAFETY: not null, not longer than an object may be, and valid as the caller says.
        _ => Ok(unsafe { std::slice::from_raw_parts_mut(pointer, length) }),
    }
}

fn check_length(pointer: *const u8, length: usize) -> Outcome<()> {
    if isize::try_from(length).is_err() {
        return Err(Failure::argument("a length is larger than memory can be"));
    }
    if pointer.is_null() && length > 0 {
        return Err(Failure::argument("a buffer is a null pointer"));
    }
    Ok(())
}
