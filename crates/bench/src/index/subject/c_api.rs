//! Helpers for the C interfaces of LevelDB and RocksDB, which are alike.
use super::log_bytes;
use super::value::{KEY, VALUE};
use crate::fail::{Failure, Result};
use std::ffi::{CStr, c_char, c_void};

/// Gives a text back to its library.
type Free = unsafe extern "C" fn(*mut c_void);

/// Copies a text of the library's, and frees it; `None` if there is none.
///
/// # Safety
/// It is null, or zero-terminated, made by the library that `free` is of, and not used again.
pub unsafe fn take_text(text: *mut c_char, free: Free) -> Option<String> {
    if text.is_null() {
        return None;
    }
    // SAFETY: zero-terminated, as the caller promises; copied, then freed once.
    unsafe {
        let copy = CStr::from_ptr(text).to_string_lossy().into_owned();
        free(text.cast());
        Some(copy)
    }
}

/// Turns a library's error into ours.
///
/// # Safety
/// As for [`take_text`].
pub unsafe fn check(library: &str, error: *mut c_char, free: Free) -> Result<()> {
    // SAFETY: as the caller promises.
    match unsafe { take_text(error, free) } {
        None => Ok(()),
        Some(text) => Err(Failure::new(format!("{library}: {text}"))),
    }
}

/// Bytes of table files, when all files have `all` for batches of these lengths.
pub fn table_bytes(batches: &[u64], all: u64) -> u64 {
    // In a batch: kind, lengths of key and value, key, value.
    all.saturating_sub(log_bytes(batches, (3 + KEY + VALUE) as u64))
}
