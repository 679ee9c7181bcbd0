//! Operations on names.
//!
//! Written out one by one, for the header is made of what stands here, not of what macros would make.
use crate::call::{Failure, Outcome, bytes_mut, count, exclusive, path, status};
use crate::connection::{Connection, client};
use crate::stat::Stat;
use forebay_client::{Client, OpenOptions};
use libc::{c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Runs a call on a connection and one path.
///
/// # Safety
/// `connection` is from `forebay_connect`, `name` is a string.
unsafe fn with_path<E: Into<Failure>>(
    connection: *const Connection,
    name: *const c_char,
    call: impl FnOnce(&Client, &Path) -> Result<(), E>,
) -> c_int {
    status(|| {
        // SAFETY: as the caller says.
        let (client, name) = unsafe { (client(connection)?, path(name)?) };
        call(client, name).map_err(Into::into)
    })
}

/// Runs a call on a connection and two paths.
///
/// # Safety
/// As [`with_path`], for both.
unsafe fn with_paths<E: Into<Failure>>(
    connection: *const Connection,
    (from, to): (*const c_char, *const c_char),
    call: impl FnOnce(&Client, &Path, &Path) -> Result<(), E>,
) -> c_int {
    status(|| {
        // SAFETY: as the caller says.
        let (client, from, to) = unsafe { (client(connection)?, path(from)?, path(to)?) };
        call(client, from, to).map_err(Into::into)
    })
}

/// Makes a directory. `mode`: its permissions; no umask is applied.
///
/// # Safety
/// `connection` is from forebay_connect(), `name` is a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_mkdir(
    connection: *const Connection,
    name: *const c_char,
    mode: u32,
) -> c_int {
    // SAFETY: as the caller says.
    unsafe {
        with_path(connection, name, |client, name| -> Outcome<()> {
            client.create_dir(name)?;
            if mode & 0o7777 != 0o755 {
                client.attributes(name).set_permissions(mode)?;
            }
            Ok(())
        })
    }
}

/// Removes an empty directory.
///
/// # Safety
/// `connection` is from forebay_connect(), `name` is a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_rmdir(
    connection: *const Connection,
    name: *const c_char,
) -> c_int {
    // SAFETY: as the caller says.
    unsafe { with_path(connection, name, |client, name| client.remove_dir(name)) }
}

/// Removes a name that is not a directory. The content stays until its last close.
///
/// # Safety
/// `connection` is from forebay_connect(), `name` is a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_unlink(
    connection: *const Connection,
    name: *const c_char,
) -> c_int {
    // SAFETY: as the caller says.
    unsafe { with_path(connection, name, |client, name| client.remove_file(name)) }
}

/// Cuts or extends a file to `length` bytes.
///
/// # Safety
/// `connection` is from forebay_connect(), `name` is a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_truncate(
    connection: *const Connection,
    name: *const c_char,
    length: u64,
) -> c_int {
    // SAFETY: as the caller says.
    unsafe {
        with_path(connection, name, |client, name| {
            let file = OpenOptions::new().write(true).open(client, name)?;
            file.set_len(length)?;
            file.close()
        })
    }
}

/// Sets permissions. Taking away the last write bit makes a file read-only until it gets one back.
///
/// # Safety
/// `connection` is from forebay_connect(), `name` is a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_chmod(
    connection: *const Connection,
    name: *const c_char,
    mode: u32,
) -> c_int {
    // SAFETY: as the caller says.
    unsafe {
        with_path(connection, name, |client, name| {
            client.attributes(name).set_permissions(mode)
        })
    }
}

/// Makes a file read-only for ever, so that every node may cache all of it; -EBUSY while anyone may write it.
///
/// # Safety
/// `connection` is from forebay_connect(), `name` is a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_laminate(
    connection: *const Connection,
    name: *const c_char,
) -> c_int {
    // SAFETY: as the caller says.
    unsafe {
        with_path(connection, name, |client, name| {
            client.attributes(name).laminate()
        })
    }
}

/// Gives a file or directory another name, and replaces what had it.
///
/// # Safety
/// `connection` is from forebay_connect(), `from` and `to` are strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_rename(
    connection: *const Connection,
    from: *const c_char,
    to: *const c_char,
) -> c_int {
    // SAFETY: as the caller says.
    unsafe {
        with_paths(connection, (from, to), |client, from, to| {
            client.rename(from, to)
        })
    }
}

/// Gives a file a second name.
///
/// # Safety
/// `connection` is from forebay_connect(), `from` and `to` are strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_link(
    connection: *const Connection,
    from: *const c_char,
    to: *const c_char,
) -> c_int {
    // SAFETY: as the caller says.
    unsafe {
        with_paths(connection, (from, to), |client, from, to| {
            client.hard_link(from, to)
        })
    }
}

/// Makes the symbolic link `to` that says `from`.
///
/// # Safety
/// `connection` is from forebay_connect(), `from` and `to` are strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_symlink(
    connection: *const Connection,
    from: *const c_char,
    to: *const c_char,
) -> c_int {
    // SAFETY: as the caller says.
    unsafe {
        with_paths(connection, (from, to), |client, from, to| {
            client.symlink(from, to)
        })
    }
}

/// What a symbolic link says: up to `length` bytes of it, without a zero at the end. Gives how many it has in all.
///
/// # Safety
/// `connection` is from forebay_connect(), `name` is a string; `buffer` has room for `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_readlink(
    connection: *const Connection,
    name: *const c_char,
    buffer: *mut c_char,
    length: usize,
) -> i64 {
    count(|| {
        // SAFETY: as the caller says.
        let (client, name) = unsafe { (client(connection)?, path(name)?) };
        let target = client.read_link(name)?;
        let target = target.as_os_str().as_bytes();
        // SAFETY: as the caller says.
        let buffer = unsafe { bytes_mut(buffer.cast(), length) }?;
        let fits = target.len().min(buffer.len());
        buffer[..fits].copy_from_slice(&target[..fits]);
        Ok(target.len())
    })
}

/// The attributes of a file; follows symbolic links.
///
/// # Safety
/// `connection` is from forebay_connect(), `name` is a string; `stat` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_stat(
    connection: *const Connection,
    name: *const c_char,
    stat: *mut Stat,
) -> c_int {
    // SAFETY: as the caller says.
    unsafe {
        with_path(connection, name, |client, name| -> Outcome<()> {
            *exclusive(stat)? = client.metadata(name)?.into();
            Ok(())
        })
    }
}

/// The attributes of a name: of a symbolic link, not of what it says.
///
/// # Safety
/// As forebay_stat().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_lstat(
    connection: *const Connection,
    name: *const c_char,
    stat: *mut Stat,
) -> c_int {
    // SAFETY: as the caller says.
    unsafe {
        with_path(connection, name, |client, name| -> Outcome<()> {
            *exclusive(stat)? = client.symlink_metadata(name)?.into();
            Ok(())
        })
    }
}
