//! Listing directories.
use crate::call::{Failure, count, exclusive, give, path, status, take};
use crate::connection::{Connection, client};
use forebay_client::ReadDir;
use libc::{c_char, c_int};
use rustix::io::Errno;
use std::os::unix::ffi::OsStrExt;

/// A directory that is being listed.
pub struct Directory {
    entries: ReadDir,
}

/// Most bytes of a name, with the zero at its end.
pub const FOREBAY_NAME_BYTES: usize = 256;

/// One name in a directory.
#[repr(C)]
pub struct Entry {
    /// The file's number.
    pub ino: u64,
    /// What it is, as the type bits of st_mode.
    pub mode: u32,
    /// The length of the name.
    pub length: u32,
    /// The name, with a zero at its end.
    pub name: [c_char; FOREBAY_NAME_BYTES],
}

/// Begins to list a directory.
///
/// # Safety
/// `connection` is from forebay_connect(), `name` is a string, `dir` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_opendir(
    connection: *const Connection,
    name: *const c_char,
    dir: *mut *mut Directory,
) -> c_int {
    status(|| {
        let open = || {
            // SAFETY: as the caller says.
            let (client, name) = unsafe { (client(connection)?, path(name)?) };
            let entries = client.read_dir(name)?;
            Ok(Directory { entries })
        };
        // SAFETY: may be written, as the caller says.
        unsafe { give(dir, open) }
    })
}

/// The next name, in order, without "." and "..". Gives 1, or 0 when there are no more.
///
/// # Safety
/// `dir` is from forebay_opendir() and used by one thread at a time; `entry` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_readdir(dir: *mut Directory, entry: *mut Entry) -> c_int {
    // At most 1.
    count(|| {
        // SAFETY: as the caller says.
        let (dir, to) = unsafe { (exclusive(dir)?, exclusive(entry)?) };
        let Some(found) = dir.entries.next().transpose()? else {
            return Ok(0);
        };
        let name = found.file_name().as_bytes();
        if name.len() >= FOREBAY_NAME_BYTES {
            return Err(Failure::new(Errno::NAMETOOLONG, "a name is too long for C"));
        }
        to.ino = found.ino();
        to.mode = found.kind().mode_bits();
        to.length = name.len() as u32;
        to.name = [0; FOREBAY_NAME_BYTES];
        for (place, byte) in to.name.iter_mut().zip(name) {
            *place = *byte as c_char;
        }
        Ok(1)
    }) as c_int
}

/// Ends a listing.
///
/// # Safety
/// `dir` is null or from forebay_opendir(), and is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_closedir(dir: *mut Directory) -> c_int {
    status(|| {
        // SAFETY: as the caller says.
        drop(unsafe { take(dir) });
        Ok(())
    })
}
