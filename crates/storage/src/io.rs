//! The one trait through which every byte reaches a disk, and its plain implementation. Tests replace it by
//! `fault::FaultIo`, which loses, tears and refuses writes.
use crate::IoContext;
use crate::shared_sync::SharedSync;
use rustix::fs::{FallocateFlags, fallocate};
use std::fs::OpenOptions;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Once};

/// Threads that bring files to disk at once: a disk makes one flush of its cache of those that are asked for together.
const SYNCS: usize = 8;

/// One entry of a directory listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirEntry {
    /// Name inside the directory.
    pub name: String,
    /// Length in bytes (0 for directories).
    pub len: u64,
    /// Whether it is a directory.
    pub is_dir: bool,
}

/// An open file. Offsets and lengths in bytes. Positioned calls only: a handle is shared by threads.
pub trait File: Send + Sync {
    /// Reads up to `buf.len()` bytes; fewer only at the end of the file.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Fills the parts one after the other, in one call where the system has one; fewer bytes only at the end of the file.
    fn read_parts_at(&self, parts: &mut [&mut [u8]], offset: u64) -> io::Result<usize> {
        fill(self, parts, offset, 0)
    }
    /// Writes all of `buf`.
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()>;
    /// Length in bytes.
    fn len(&self) -> io::Result<u64>;
    /// Whether the length is 0.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
    /// Bytes it takes on the disk: holes take none. Where that is not known, its length.
    fn allocated(&self) -> io::Result<u64> {
        self.len()
    }
    /// Cuts the file, or lengthens it with zeros.
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// Allocates disk blocks for the range, so that writing there cannot run out of space. See `reserve_room` for file systems that
    /// cannot do this.
    fn allocate(&self, offset: u64, len: u64) -> io::Result<()>;
    /// Gives the range's disk blocks back; it reads as zeros afterwards. Length unchanged.
    fn punch(&self, offset: u64, len: u64) -> io::Result<()>;
    /// Data (and the length) is on disk when it returns (fdatasync). Once one has failed, each later one of this open file fails, also of
    /// another thread: the kernel would report to only one of them that bytes were lost.
    fn sync(&self) -> io::Result<()>;
    /// Has what was written so far brought to disk without waiting for it, so that a later `sync` is quick. Promises nothing; what fails
    /// is told by that `sync`.
    fn start_sync(&self) {}
}

/// A file system. Paths are absolute or relative to the process's directory.
pub trait Io: Send + Sync {
    /// Opens for reading and writing; must exist.
    fn open(&self, path: &Path) -> io::Result<Arc<dyn File>>;
    /// The same for a file that is only read, and mostly again: it may stay open for the next one who asks.
    fn open_kept(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        self.open(path)
    }
    /// How many files may be open at once beside those that are written all the time.
    fn open_at_once(&self) -> usize {
        usize::MAX
    }
    /// Opens for reading only; must exist.
    fn open_to_read(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        self.open(path)
    }
    /// Creates (mode 0600) and opens; must not exist.
    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>>;
    /// Renames a file, replacing `to` if it is there.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file; open handles go on working.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Whether a file or directory of this name is there.
    fn exists(&self, path: &Path) -> io::Result<bool>;
    /// The directory's entries, in no order.
    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>>;
    /// Creates the directory and its parents (mode 0700).
    fn create_dir_all(&self, dir: &Path) -> io::Result<()>;
    /// Entries created, renamed or removed in `dir` are on disk when it returns.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;
    /// Data (and the length) of all these files is on disk when it returns.
    ///
    /// # Errors
    /// The place of a file whose sync failed, and why. Others may not be on disk either.
    fn sync_files(&self, files: &[Arc<dyn File>]) -> Result<(), (usize, io::Error)> {
        let mut files = files.iter().enumerate();
        files.try_for_each(|(at, file)| file.sync().map_err(|e| (at, e)))
    }
    /// `(free, total)` bytes of the disk under `dir`.
    fn space(&self, dir: &Path) -> io::Result<(u64, u64)>;
}

/// Said once: it is the same each time.
static SYNC_DIR_MISSING: Once = Once::new();

/// The operating system's files.
#[derive(Debug, Default, Clone, Copy)]
pub struct OsIo;

struct OsFile {
    file: std::fs::File,
    syncs: SharedSync,
}

impl OsFile {
    fn shared(file: std::fs::File) -> Arc<dyn File> {
        Arc::new(OsFile {
            file,
            syncs: SharedSync::default(),
        })
    }
}

/// Reads the parts one by one, without the first `done` bytes of them all; how many bytes they hold then.
fn fill<F: File + ?Sized>(
    file: &F,
    parts: &mut [&mut [u8]],
    offset: u64,
    mut done: usize,
) -> io::Result<usize> {
    let mut before = 0;
    for part in parts {
        let filled = done.saturating_sub(before).min(part.len());
        before += part.len();
        if filled < part.len() {
            done += file.read_at(&mut part[filled..], offset + done as u64)?;
        }
        if done < before {
            break;
        }
    }
    Ok(done)
}

impl File for OsFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        use std::os::unix::fs::FileExt;
        let mut done = 0;
        while done < buf.len() {
            match self.file.read_at(&mut buf[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(done)
    }
    fn read_parts_at(&self, parts: &mut [&mut [u8]], offset: u64) -> io::Result<usize> {
        let mut filled = parts.iter_mut().filter(|part| !part.is_empty());
        if let (Some(only), None) = (filled.next(), filled.next()) {
            return self.read_at(only, offset);
        }
        let mut slices: Vec<_> = parts.iter_mut().map(|p| io::IoSliceMut::new(p)).collect();
        let done = match rustix::io::preadv(&self.file, &mut slices, offset) {
            Err(rustix::io::Errno::INTR) => 0,
            result => result?,
        };
        // Rarely less than asked for; then again, for only nothing at all is the end of the file.
        fill(self, parts, offset, done)
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        use std::os::unix::fs::FileExt;
        self.file.write_all_at(buf, offset)
    }
    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }
    fn allocated(&self) -> io::Result<u64> {
        use std::os::unix::fs::MetadataExt;
        // Blocks of 512 bytes, whatever those of the file system are.
        Ok(self.file.metadata()?.blocks() * 512)
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }
    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        Ok(fallocate(&self.file, FallocateFlags::empty(), offset, len)?)
    }
    fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(fallocate(&self.file, flags, offset, len)?)
    }
    fn sync(&self) -> io::Result<()> {
        self.syncs.run(|| self.file.sync_data())
    }
    fn start_sync(&self) {
        use std::os::fd::AsRawFd;
        // SAFETY: takes and gives numbers; the descriptor is open during the call. Not in `rustix`. Without a flag to wait it takes no
        // error of the file away from `sync`; file systems that lack it only make `sync` take longer.
        unsafe { libc::sync_file_range(self.file.as_raw_fd(), 0, 0, libc::SYNC_FILE_RANGE_WRITE) };
    }
}

impl Io for OsIo {
    fn open(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        Ok(OsFile::shared(file))
    }
    fn open_to_read(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        Ok(OsFile::shared(std::fs::File::open(path)?))
    }
    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        use std::os::unix::fs::OpenOptionsExt;
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(0o600);
        Ok(OsFile::shared(options.open(path)?))
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }
    fn exists(&self, path: &Path) -> io::Result<bool> {
        path.try_exists()
    }
    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        let mut entries = Vec::new();
        for entry in std::fs::read_dir(dir)? {
            let entry = entry?;
            let meta = entry.metadata()?;
            let is_dir = meta.is_dir();
            entries.push(DirEntry {
                name: entry.file_name().to_string_lossy().into_owned(),
                len: if is_dir { 0 } else { meta.len() },
                is_dir,
            });
        }
        Ok(entries)
    }
    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        use std::os::unix::fs::DirBuilderExt;
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(dir)
    }
    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        match std::fs::File::open(dir)?.sync_all() {
            // Some network file systems have no such call: their servers keep names by themselves, or nobody does.
            Err(e) if is_unsupported(&e) || e.kind() == io::ErrorKind::InvalidInput => {
                SYNC_DIR_MISSING.call_once(|| {
                    tracing::warn!(dir = %dir.display(), "this file system cannot bring names of files to disk when asked: after a power cut new files may be missing");
                });
                Ok(())
            }
            done => done,
        }
    }
    fn sync_files(&self, files: &[Arc<dyn File>]) -> Result<(), (usize, io::Error)> {
        sync_together(files)
    }
    fn space(&self, dir: &Path) -> io::Result<(u64, u64)> {
        let s = rustix::fs::statvfs(dir)?;
        Ok((s.f_bavail * s.f_frsize, s.f_blocks * s.f_frsize))
    }
}

/// Zeros written at once.
const ZEROS: usize = 256 << 10;

/// Whether the file system does not know the call.
pub fn is_unsupported(error: &io::Error) -> bool {
    use rustix::io::Errno;
    matches!(
        Errno::from_io_error(error),
        Some(Errno::OPNOTSUPP | Errno::NOSYS)
    )
}

/// As [`File::allocate`]; where the file system cannot do that, the part of the range after the end of the file is written with zeros, which
/// takes the blocks as well, unless the file system copies what is overwritten, or compresses. `false`: so it was.
///
/// # Errors
/// Those of allocating or writing. After a failed write the file is as long as before.
pub(crate) fn reserve_room(file: &dyn File, offset: u64, len: u64) -> io::Result<bool> {
    match file.allocate(offset, len) {
        Err(e) if is_unsupported(&e) => {}
        done => return done.map(|()| true),
    }
    let (before, end) = (file.len()?, offset + len);
    let zeros = vec![0; ZEROS.min(end.saturating_sub(before) as usize)];
    let mut at = before;
    while at < end {
        let some = ((end - at) as usize).min(zeros.len());
        if let Err(e) = file.write_at(&zeros[..some], at) {
            // What was allocated is freed, as after an allocation that fails.
            file.set_len(before)?;
            return Err(e);
        }
        at += some as u64;
    }
    Ok(false)
}

/// Removes a file that may be there.
///
/// # Errors
/// [`Error::Io`](crate::Error::Io).
pub(crate) fn remove_if_there(io: &dyn Io, path: &Path) -> crate::Result<()> {
    if io.exists(path).context("look for", path)? {
        io.remove(path).context("remove", path)?;
    }
    Ok(())
}

/// Reads the whole file.
pub(crate) fn read_file(io: &dyn Io, path: &Path) -> crate::Result<Vec<u8>> {
    let file = io.open(path).context("open", path)?;
    let length = file.len().context("measure", path)?;
    let mut bytes = vec![0; length as usize];
    let n = file.read_at(&mut bytes, 0).context("read", path)?;
    bytes.truncate(n);
    Ok(bytes)
}

/// Syncs files in several threads.
fn sync_together(files: &[Arc<dyn File>]) -> Result<(), (usize, io::Error)> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut result = Ok(());
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(file) = files.get(at) else {
                return result;
            };
            result = result.and(file.sync().map_err(|e| (at, e)));
        }
    };
    std::thread::scope(|scope| {
        let spawn = |_| {
            let thread = std::thread::Builder::new().name("sync".into());
            // One that cannot be had is done without.
            thread.spawn_scoped(scope, work).ok()
        };
        let others: Vec<_> = (1..SYNCS.min(files.len())).filter_map(spawn).collect();
        let own = work();
        others.into_iter().fold(own, |result, other| {
            // If it panicked, its file may not be on disk.
            let panicked = || Err((0, io::Error::other("a thread that syncs files panicked")));
            result.and(other.join().unwrap_or_else(|_| panicked()))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts syncs, and fails them if it is told to.
    struct Counting {
        syncs: AtomicUsize,
        fails: bool,
    }

    impl File for Counting {
        fn sync(&self) -> io::Result<()> {
            self.syncs.fetch_add(1, Ordering::Relaxed);
            if self.fails {
                return Err(io::ErrorKind::StorageFull.into());
            }
            Ok(())
        }
        fn read_at(&self, _: &mut [u8], _: u64) -> io::Result<usize> {
            Ok(0)
        }
        fn write_at(&self, _: &[u8], _: u64) -> io::Result<()> {
            Ok(())
        }
        fn len(&self) -> io::Result<u64> {
            Ok(0)
        }
        fn set_len(&self, _: u64) -> io::Result<()> {
            Ok(())
        }
        fn allocate(&self, _: u64, _: u64) -> io::Result<()> {
            Ok(())
        }
        fn punch(&self, _: u64, _: u64) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn of_many_files_each_is_synced_once_and_the_one_that_fails_is_named() {
        for n in [0usize, 1, 7, 40] {
            for fails in [None, n.checked_sub(1), (n > 0).then_some(n / 2)] {
                let file = |at| {
                    Arc::new(Counting {
                        syncs: AtomicUsize::new(0),
                        fails: Some(at) == fails,
                    })
                };
                let counting: Vec<Arc<Counting>> = (0..n).map(file).collect();
                let files: Vec<Arc<dyn File>> = counting
                    .iter()
                    .map(|f| f.clone() as Arc<dyn File>)
                    .collect();
                let result = OsIo.sync_files(&files);
                assert_eq!(result.as_ref().err().map(|(at, _)| *at), fails);
                if let Err((_, e)) = result {
                    assert_eq!(e.kind(), io::ErrorKind::StorageFull);
                }
                let once = |f: &Arc<Counting>| f.syncs.load(Ordering::Relaxed) == 1;
                assert!(counting.iter().all(once));
            }
        }
    }
}
