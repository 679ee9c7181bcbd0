//! Room kept for a full disk: files of allocated zeros.
//!
//! `RESERVE` becomes a log file by one rename when the disk is full, so that deletes can be logged.
//! `SPARE` is removed when the disk is full and there are deletes to flush, so that the tables which
//! drop the deleted data find room; it is made again afterwards.
//!
//! Invariant: a file under its final name is whole: allocated, synced, then renamed into place.
use super::writer::WalWriter;
use crate::io::{remove_if_there, reserve_room};
use crate::names;
use crate::{File, Io, IoContext, Result};
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
    if io.exists(&path).context("look for", &path)? {
        let file = io.open(&path).context("open", &path)?;
        if file.len().context("measure", &path)? == bytes {
            match clear(&*file, bytes).context("clear", &path) {
                // Some file systems need room to write over what is there.
                Err(e) if e.is_no_space() => {}
                cleared => return cleared.map(|()| true),
            }
        }
        io.remove(&path).context("remove", &path)?;
    }
    let temporary = dir.join(format!("{name}{}", names::TEMPORARY));
    match make(io, dir, &temporary, &path, bytes) {
        Ok(()) => Ok(true),
        Err(e) if e.is_no_space() => {
            remove_if_there(io, &temporary)?;
            Ok(false)
        }
        Err(e) => Err(e),
    }
}

fn make(io: &dyn Io, dir: &Path, temporary: &Path, path: &Path, bytes: u64) -> Result<()> {
    remove_if_there(io, temporary)?;
    let file = io.create(temporary).context("create", temporary)?;
    let allocated = reserve_room(&*file, 0, bytes).context("allocate", temporary)?;
    if !allocated {
        tracing::warn!(
            file = %path.display(),
            "this file system cannot allocate room: it is kept by zeros, which some do not count"
        );
    }
    file.sync().context("sync", temporary)?;
    io.rename(temporary, path).context("rename", temporary)?;
    io.sync_dir(dir).context("sync", dir)
}

/// Makes zeros of what is not zero: the records of a log file that the reserve was when the power went, and whose name was lost. Behind
/// those of another log file they would look like damage.
fn clear(file: &dyn File, bytes: u64) -> std::io::Result<()> {
    const STEP: usize = 64 << 10;
    let (mut found, mut is_changed) = (vec![0; STEP], false);
    for offset in (0..bytes).step_by(STEP) {
        let len = file.read_at(&mut found, offset)?;
        if found[..len].iter().any(|b| *b != 0) {
            // Allocated already, so a full disk has room for it.
            found.fill(0);
            file.write_at(&found[..len], offset)?;
            is_changed = true;
        }
    }
    match is_changed {
        true => file.sync(),
        false => Ok(()),
    }
}

/// Turns the reserve into log file `number`, whose name the caller brings to disk. `None` if there is no reserve.
///
/// # Errors
/// [`Error::NoDescriptors`](crate::Error::NoDescriptors): nothing changed. Any other poisons.
pub fn take(io: &dyn Io, dir: &Path, number: u64) -> Result<Option<WalWriter>> {
    let from = dir.join(names::RESERVE);
    if !io.exists(&from).context("look for", &from)? {
        return Ok(None);
    }
    let path = names::log(dir, number);
    let file = io.open(&from).state_unknown_context("open", &from)?;
    let capacity = file.len().state_unknown_context("measure", &from)?;
    io.rename(&from, &path)
        .state_unknown_context("rename", &from)?;
    Ok(Some(WalWriter::adopt(file, path, number, capacity)))
}

/// Gives the spare room back to the disk. `false` if there was none.
pub fn release_spare(io: &dyn Io, dir: &Path) -> Result<bool> {
    let path = dir.join(names::SPARE);
    if !io.exists(&path).context("look for", &path)? {
        return Ok(false);
    }
    io.remove(&path).context("remove", &path)?;
    io.sync_dir(dir).context("sync", dir)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::{Call, FaultIo, HookedIo};
    use std::io::ErrorKind;

    #[test]
    fn a_reserve_that_was_a_log_file_is_made_zeros_again_also_on_a_full_disk() {
        const BYTES: u64 = 200_000;
        let (io, dir) = (FaultIo::new(1), Path::new("/d"));
        io.create_dir_all(dir).unwrap();
        assert!(ensure(&io, dir, names::RESERVE, BYTES).unwrap());
        let file = io.open(&dir.join(names::RESERVE)).unwrap();
        let content = || {
            let mut bytes = vec![9; BYTES as usize + 1];
            let len = file.read_at(&mut bytes, 0).unwrap();
            bytes.truncate(len);
            bytes
        };
        for (offset, bytes) in [(0, &b"head"[..]), (70_000, &[1; 3]), (BYTES - 1, &[2])] {
            file.write_at(bytes, offset).unwrap();
        }
        file.sync().unwrap();
        io.set_capacity(io.used());
        assert!(ensure(&io, dir, names::RESERVE, BYTES).unwrap());
        assert!(content() == vec![0; BYTES as usize]);
        // It is on disk, and nothing is written where there is nothing to clear.
        let image = HookedIo::new(FaultIo::with_image(&io.crash(), 2), |_, call| match call {
            Call::Write { .. } | Call::Sync => Err(ErrorKind::Other.into()),
            _ => Ok(()),
        });
        assert!(ensure(&image, dir, names::RESERVE, BYTES).unwrap());
    }
}
