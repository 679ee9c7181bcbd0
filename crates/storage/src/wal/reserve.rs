//! Room kept for a full disk: files of allocated zeros.
//!
//! `RESERVE` becomes a log file by one rename when the disk is full, so that deletes can be logged.
//! `SPARE` is removed when the disk is full and there are deletes to flush, so that the tables which
//! drop the deleted data find room; it is made again afterwards.
//!
//! Invariant: a file under its final name is whole: allocated, synced, then renamed into place.
use super::writer::LogWriter;
use crate::io::reserve_room;
use crate::names;
use crate::{Error, Io, Result};
use std::path::Path;

/// Makes sure that the file `name` of `bytes` allocated bytes is there. `false` if there is no room for it.
///
/// # Errors
/// Any failure other than a full disk.
pub fn ensure(io: &dyn Io, dir: &Path, name: &str, bytes: u64) -> Result<bool> {
    let path = dir.join(name);
    if bytes == 0 {
        return Ok(true);
    }
    if io
        .exists(&path)
        .map_err(|e| Error::io("look for", &path, e))?
    {
        let file = io.open(&path).map_err(|e| Error::io("open", &path, e))?;
        if file.len().map_err(|e| Error::io("measure", &path, e))? == bytes {
            return Ok(true);
        }
        io.remove(&path)
            .map_err(|e| Error::io("remove", &path, e))?;
    }
    let temporary = dir.join(format!("{name}{}", names::TEMPORARY));
    match make(io, dir, &temporary, &path, bytes) {
        Ok(()) => Ok(true),
        Err(e) if e.is_no_space() => {
            if io
                .exists(&temporary)
                .map_err(|e| Error::io("look for", &temporary, e))?
            {
                io.remove(&temporary)
                    .map_err(|e| Error::io("remove", &temporary, e))?;
            }
            Ok(false)
        }
        Err(e) => Err(e),
    }
}

fn make(io: &dyn Io, dir: &Path, temporary: &Path, path: &Path, bytes: u64) -> Result<()> {
    if io
        .exists(temporary)
        .map_err(|e| Error::io("look for", temporary, e))?
    {
        io.remove(temporary)
            .map_err(|e| Error::io("remove", temporary, e))?;
    }
    let file = io
        .create(temporary)
        .map_err(|e| Error::io("create", temporary, e))?;
    let allocated =
        reserve_room(&*file, 0, bytes).map_err(|e| Error::io("allocate", temporary, e))?;
    if !allocated {
        tracing::warn!(
            file = %path.display(),
            "this file system cannot allocate room: it is kept by zeros, which some do not count"
        );
    }
    file.sync().map_err(|e| Error::io("sync", temporary, e))?;
    io.rename(temporary, path)
        .map_err(|e| Error::io("rename", temporary, e))?;
    io.sync_dir(dir).map_err(|e| Error::io("sync", dir, e))
}

/// Turns the reserve into log file `number`, whose name the caller brings to disk. `None` if there is no reserve.
///
/// # Errors
/// [`Error::NoDescriptors`]: nothing changed. Any other poisons.
pub fn take(io: &dyn Io, dir: &Path, number: u64) -> Result<Option<LogWriter>> {
    let from = dir.join(names::RESERVE);
    if !io
        .exists(&from)
        .map_err(|e| Error::io("look for", &from, e))?
    {
        return Ok(None);
    }
    let path = names::log(dir, number);
    let file = io.open(&from).map_err(|e| Error::hard("open", &from, e))?;
    let capacity = file.len().map_err(|e| Error::hard("measure", &from, e))?;
    io.rename(&from, &path)
        .map_err(|e| Error::hard("rename", &from, e))?;
    Ok(Some(LogWriter::adopt(file, path, number, capacity)))
}

/// Gives the spare room back to the disk. `false` if there was none.
pub fn release_spare(io: &dyn Io, dir: &Path) -> Result<bool> {
    let path = dir.join(names::SPARE);
    if !io
        .exists(&path)
        .map_err(|e| Error::io("look for", &path, e))?
    {
        return Ok(false);
    }
    io.remove(&path)
        .map_err(|e| Error::io("remove", &path, e))?;
    io.sync_dir(dir).map_err(|e| Error::io("sync", dir, e))?;
    Ok(true)
}
