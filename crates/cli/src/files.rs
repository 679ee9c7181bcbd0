//! Files that the user names: read up to a limit, and written as a whole.
//!
//! Invariants: no file takes more memory than its limit, even one without an end; none is written through a symbolic link, which
//! another user may have made; a file that could not be written whole is left as it was.
use crate::output::name;
use forebay_node::failure::{Context, Failure, Result};
use forebay_node::units::size;
use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

/// The text of a file of at most `most` bytes. `what` it is, and what to do `next`, for errors.
///
/// # Errors
/// A usage failure if it cannot be read, is longer, or is no text.
pub fn read_text(what: &str, path: &Path, most: u64, next: &str) -> Result<String> {
    let shown = name(path);
    let bytes = read_up_to(path, most)
        .map_err(|e| Failure::usage(format!("cannot read the {what} {shown}: {e}"), next))?;
    if bytes.len() as u64 > most {
        let limit = size(most);
        return Err(Failure::usage(
            format!("the {what} {shown} is longer than {limit}"),
            next,
        ));
    }
    String::from_utf8(bytes)
        .map_err(|_| Failure::usage(format!("the {what} {shown} is not UTF-8 text"), next))
}

/// The bytes of a file, of a longer one than `most` the first `most + 1`.
///
/// # Errors
/// As the file system.
pub fn read_up_to(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(most + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Writes a file anew: beside it under another name first, then in its place. A device or pipe of this user or of the system is
/// written as it is.
///
/// # Errors
/// If it is a link, somebody else's pipe or device, or cannot be written; `next` is what the user can do.
pub fn replace(
    path: &Path,
    next: &str,
    write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> Result {
    try_replace(path, write).or_fail(format!("cannot write {}", name(path)), next)
}

fn try_replace(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> io::Result<()> {
    let write_to = |file: File| {
        let mut file = BufWriter::new(file);
        write(&mut file)?;
        file.flush()
    };
    match path.symlink_metadata() {
        Ok(found) if found.is_symlink() => {
            return Err(io::Error::other(
                "it is a symbolic link, which is not followed",
            ));
        }
        Ok(found) if found.file_type().is_fifo() || found.file_type().is_char_device() => {
            let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
            let owner = file.metadata()?.uid();
            if owner != 0 && owner != rustix::process::geteuid().as_raw() {
                return Err(io::Error::other(format!("it belongs to user {owner}")));
            }
            return write_to(file);
        }
        Ok(_) => {}
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(e) => return Err(e),
    }
    let Some(file_name) = path.file_name() else {
        return Err(io::ErrorKind::IsADirectory.into());
    };
    let mut temporary = std::ffi::OsString::from(".");
    temporary.push(file_name);
    temporary.push(format!(".{}.new", std::process::id()));
    let temporary = path.with_file_name(temporary);
    let written = File::create_new(&temporary)
        .and_then(write_to)
        .and_then(|()| std::fs::rename(&temporary, path));
    written.inspect_err(|e| {
        if e.kind() != io::ErrorKind::AlreadyExists {
            // What is left of it is of no use; the error above says more than this one's.
            let _ = std::fs::remove_file(&temporary);
        }
    })
}
