//! Advisory locks on open files.
use crate::call::{Failure, Outcome, shared, status};
use crate::file::OpenFile;
use forebay_client::{LockMode, LockRange};
use libc::c_int;
use rustix::io::Errno;

/// For forebay_lock(): with others who say the same.
pub const FOREBAY_LOCK_SHARED: c_int = 1;
/// Alone.
pub const FOREBAY_LOCK_EXCLUSIVE: c_int = 2;

fn mode(mode: c_int) -> Outcome<LockMode> {
    match mode {
        FOREBAY_LOCK_SHARED => Ok(LockMode::Shared),
        FOREBAY_LOCK_EXCLUSIVE => Ok(LockMode::Exclusive),
        _ => Err(Failure::argument("there is no such mode of a lock")),
    }
}

/// `length` bytes; all from `start` on if it is 0, as fcntl() has it.
fn range(start: u64, length: u64) -> LockRange {
    match length {
        0 => LockRange::bytes(start..),
        _ => LockRange::bytes(start..start.saturating_add(length)),
    }
}

/// Locks `length` bytes from `start` on, or all that follow if `length` is 0, and waits for it. The lock is of this file: another
/// one, of this process too, is another owner. It sees what was published before; its end publishes what this node
/// wrote.
///
/// # Safety
/// `file` is an open file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_lock(
    file: *const OpenFile,
    mode: c_int,
    start: u64,
    length: u64,
) -> c_int {
    status(|| {
        // SAFETY: as the caller says.
        let open = unsafe { shared(file) }?;
        Ok(open.file.lock(&range(start, length), self::mode(mode)?)?)
    })
}

/// The same without waiting: -EAGAIN if another owner has a lock in the way.
///
/// # Safety
/// `file` is an open file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_trylock(
    file: *const OpenFile,
    mode: c_int,
    start: u64,
    length: u64,
) -> c_int {
    status(|| {
        // SAFETY: as the caller says.
        let open = unsafe { shared(file) }?;
        match open
            .file
            .try_lock(&range(start, length), self::mode(mode)?)?
        {
            true => Ok(()),
            false => Err(Failure::new(
                Errno::AGAIN,
                format!("{} is locked by another", open.file.path().display()),
            )),
        }
    })
}

/// Publishes what this node wrote to the file, and gives up what this file holds of the range.
///
/// # Safety
/// `file` is an open file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_unlock(file: *const OpenFile, start: u64, length: u64) -> c_int {
    status(|| {
        // SAFETY: as the caller says.
        let open = unsafe { shared(file) }?;
        Ok(open.file.unlock(&range(start, length))?)
    })
}
