//! Open files.
use crate::call::{Failure, Outcome, bytes, bytes_mut, count, exclusive, give, path, shared};
use crate::call::{status, take};
use crate::connection::{Connection, client};
use crate::stat::Stat;
use forebay_client::{File, OpenOptions};
use libc::{c_char, c_int, c_void, iovec};
use rustix::io::Errno;

/// An open file.
pub struct OpenFile {
    pub(crate) file: File,
}

/// For forebay_open(): it may be read.
pub const FOREBAY_READ: c_int = 1;
/// It may be written.
pub const FOREBAY_WRITE: c_int = 2;
/// Each write goes to the end of the file, whatever other nodes do meanwhile. Implies FOREBAY_WRITE.
pub const FOREBAY_APPEND: c_int = 4;
/// It is emptied; needs FOREBAY_WRITE.
pub const FOREBAY_TRUNCATE: c_int = 8;
/// It is made if it does not exist; needs FOREBAY_WRITE.
pub const FOREBAY_CREATE: c_int = 16;
/// It is made, and must not exist; needs FOREBAY_WRITE.
pub const FOREBAY_CREATE_NEW: c_int = 32;
/// Its name is removed when the file is closed, or the process ends, however it ends, unless it was renamed before; needs
/// FOREBAY_CREATE_NEW. What a server's crash leaves stays.
pub const FOREBAY_TEMPORARY: c_int = 64;

const ALL_FLAGS: c_int = (FOREBAY_TEMPORARY << 1) - 1;

/// The options that flags and a mode of C mean.
pub(crate) fn options(flags: c_int, mode: u32) -> Outcome<OpenOptions> {
    if flags & !ALL_FLAGS != 0 {
        return Err(Failure::argument("an open has flags that there are not"));
    }
    let has = |flag| flags & flag != 0;
    let mut options = OpenOptions::new();
    options
        .read(has(FOREBAY_READ))
        .write(has(FOREBAY_WRITE))
        .append(has(FOREBAY_APPEND))
        .truncate(has(FOREBAY_TRUNCATE))
        .create(has(FOREBAY_CREATE))
        .create_new(has(FOREBAY_CREATE_NEW))
        .temporary(has(FOREBAY_TEMPORARY))
        .mode(mode);
    Ok(options)
}

/// The file behind a pointer.
///
/// # Safety
/// As [`shared`].
unsafe fn file<'a>(file: *const OpenFile) -> Outcome<&'a File> {
    // SAFETY: as the caller says.
    unsafe { shared(file) }.map(|f| &f.file)
}

/// Opens a file. `flags` are some of FOREBAY_READ and its kin, `mode` the permissions of a file that is made; no umask
/// is applied.
///
/// # Safety
/// `connection` is from forebay_connect(), `name` is a string, `file` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_open(
    connection: *const Connection,
    name: *const c_char,
    flags: c_int,
    mode: u32,
    file: *mut *mut OpenFile,
) -> c_int {
    status(|| {
        let open = || {
            // SAFETY: as the caller says.
            let (client, name) = unsafe { (client(connection)?, path(name)?) };
            let file = options(flags, mode)?.open(client, name)?;
            Ok(OpenFile { file })
        };
        // SAFETY: may be written, as the caller says.
        unsafe { give(file, open) }
    })
}

/// Publishes what was written, and closes, also if it fails: then what was written may be lost.
///
/// # Safety
/// `file` is null or an open file, and is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_close(file: *mut OpenFile) -> c_int {
    status(|| {
        // SAFETY: as the caller says.
        match unsafe { take(file) } {
            Some(open) => Ok(open.file.close()?),
            None => Ok(()),
        }
    })
}

/// Reads up to `length` bytes at `offset`. Gives how many: fewer only at the end of the file.
///
/// # Safety
/// `file` is an open file; `buffer` has room for `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_pread(
    file: *const OpenFile,
    buffer: *mut c_void,
    length: usize,
    offset: u64,
) -> i64 {
    count(|| {
        // SAFETY: as the caller says.
        let (file, buffer) = unsafe { (self::file(file)?, bytes_mut(buffer.cast(), length)?) };
        Ok(file.read_at(buffer, offset)?)
    })
}

/// Writes all `length` bytes at `offset`, or fails; then a part may be written, if they are more than 1 MiB. A file
/// opened for append ignores the offset. Gives `length`.
///
/// # Safety
/// `file` is an open file; `buffer` has `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_pwrite(
    file: *const OpenFile,
    buffer: *const c_void,
    length: usize,
    offset: u64,
) -> i64 {
    count(|| {
        // SAFETY: as the caller says.
        let (file, data) = unsafe { (self::file(file)?, bytes(buffer.cast(), length)?) };
        file.write_at(data, offset)?;
        Ok(length)
    })
}

/// The buffers of a vector of C.
///
/// # Safety
/// `vector` has `length` buffers, which stay as they are while the result is used.
unsafe fn vector<'a>(vector: *const iovec, length: c_int) -> Outcome<&'a [iovec]> {
    let length = usize::try_from(length)
        .map_err(|_| Failure::argument("a vector has less than no buffers"))?;
    if vector.is_null() && length > 0 {
        return Err(Failure::argument("a vector is a null pointer"));
    }
    match length {
        0 => Ok(&[]),
        // SAFETY: not null, and as the caller says.
        _ => Ok(unsafe { std::slice::from_raw_parts(vector, length) }),
    }
}

/// Reads as forebay_pread() into `buffers` buffers, one after the other.
///
/// # Safety
/// `file` is an open file; `vector` has `buffers` buffers with the room that they say, which do not overlap.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_preadv(
    file: *const OpenFile,
    vector: *const iovec,
    buffers: c_int,
    offset: u64,
) -> i64 {
    count(|| {
        // SAFETY: as the caller says.
        let (file, vector) = unsafe { (self::file(file)?, self::vector(vector, buffers)?) };
        let mut done = 0;
        for part in vector {
            // SAFETY: as the caller says of each buffer.
            let buffer = unsafe { bytes_mut(part.iov_base.cast(), part.iov_len)? };
            let length = buffer.len();
            let read = file.read_at(buffer, offset.saturating_add(done as u64))?;
            done += read;
            if read < length {
                break;
            }
        }
        Ok(done)
    })
}

/// Writes as forebay_pwrite() what is in `buffers` buffers, one after the other. Gives how many bytes those are.
///
/// # Safety
/// `file` is an open file; `vector` has `buffers` buffers with the bytes that they say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_pwritev(
    file: *const OpenFile,
    vector: *const iovec,
    buffers: c_int,
    offset: u64,
) -> i64 {
    count(|| {
        // SAFETY: as the caller says.
        let (file, vector) = unsafe { (self::file(file)?, self::vector(vector, buffers)?) };
        let mut done = 0;
        for part in vector {
            // SAFETY: as the caller says of each buffer.
            let data = unsafe { bytes(part.iov_base.cast(), part.iov_len)? };
            file.write_at(data, offset.saturating_add(done as u64))?;
            done += data.len();
        }
        Ok(done)
    })
}

/// Publishes what this node wrote to the file: other nodes see it when they open or lock it after this. It is on
/// disk. Reads that follow see what other nodes had published.
///
/// # Safety
/// `file` is an open file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_fsync(file: *const OpenFile) -> c_int {
    // SAFETY: as the caller says.
    status(|| Ok(unsafe { self::file(file) }?.commit()?))
}

/// Cuts or extends the file to `length` bytes.
///
/// # Safety
/// `file` is an open file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_ftruncate(file: *const OpenFile, length: u64) -> c_int {
    // SAFETY: as the caller says.
    status(|| Ok(unsafe { self::file(file) }?.set_len(length)?))
}

/// The attributes of the file, with what this node wrote and did not publish yet.
///
/// # Safety
/// `file` is an open file; `stat` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_fstat(file: *const OpenFile, stat: *mut Stat) -> c_int {
    status(|| {
        // SAFETY: as the caller says.
        let (file, stat) = unsafe { (self::file(file)?, exclusive(stat)?) };
        *stat = file.metadata()?.into();
        Ok(())
    })
}

/// The first offset at or after `offset` that holds data; -ENXIO if there is none.
///
/// # Safety
/// `file` is an open file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_seek_data(file: *const OpenFile, offset: u64) -> i64 {
    // SAFETY: as the caller says.
    count(|| at(unsafe { self::file(file) }?.seek_data(offset)?))
}

/// The first offset at or after `offset` that is a hole, as what lies behind the end is.
///
/// # Safety
/// `file` is an open file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_seek_hole(file: *const OpenFile, offset: u64) -> i64 {
    // SAFETY: as the caller says.
    count(|| at(unsafe { self::file(file) }?.seek_hole(offset)?))
}

fn at(offset: u64) -> Outcome<usize> {
    let small = i64::try_from(offset)
        .ok()
        .and_then(|o| usize::try_from(o).ok());
    small.ok_or_else(|| Failure::new(Errno::OVERFLOW, "an offset is larger than C can count"))
}
