//! Reading around what a disk cannot read.
//!
//! Invariant: for bytes with checksums only. A sector that cannot be read is returned as zeros, so the checksum that
//! covers it is wrong, and it is treated as damage like any bytes that are not what was written. Where zeros are
//! meaningful (the end of a log that is still appended to), a read error is returned as an error.
use crate::File;
use rustix::io::Errno;
use std::io;
use std::path::Path;

/// What a disk reads, or fails to read, as a whole; bytes.
const SECTOR: usize = 512;

fn is_disk_error(error: &io::Error) -> bool {
    Errno::from_io_error(error) == Some(Errno::IO)
}

/// `length` bytes from `offset` on, fewer at the end of the file. `path` is for the log.
///
/// # Errors
/// Any but that the disk cannot read (`EIO`).
pub fn read(file: &dyn File, path: &Path, offset: u64, length: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    let read = match file.read_at(&mut bytes, offset) {
        Err(e) if is_disk_error(&e) => {
            tracing::error!(file = %path.display(), offset, length, "the disk cannot read all of it: {e}");
            each(file, &mut bytes, offset)?
        }
        read => read?,
    };
    bytes.truncate(read);
    Ok(bytes)
}

/// Reads a sector at a time; how many bytes there are.
fn each(file: &dyn File, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut at = 0;
    while at < bytes.len() {
        // Less than a sector, so it fits.
        let within = ((offset + at as u64) % SECTOR as u64) as usize;
        let end = (at + SECTOR - within).min(bytes.len());
        match file.read_at(&mut bytes[at..end], offset + at as u64) {
            Ok(read) if read < end - at => return Ok(at + read),
            Ok(_) => {}
            Err(e) if is_disk_error(&e) => bytes[at..end].fill(0),
            Err(e) => return Err(e),
        }
        at = end;
    }
    Ok(bytes.len())
}
