//! A file system with a hook that runs before each call: a test counts the call, refuses it, delays it, or panics.
use crate::{DirEntry, File, Io};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What a [`Watched`] disk is asked; offsets and lengths in bytes. Those of an [`Io`] first, then those of a [`File`].
#[derive(Clone, Copy)]
#[non_exhaustive]
#[allow(missing_docs, reason = "they are called as the calls are")]
pub enum Call<'a> {
    Open,
    Create,
    Rename {
        to: &'a Path,
    },
    Remove,
    Exists,
    List,
    CreateDirAll,
    SyncDir,
    Space,
    /// Parts that are read at once are one call.
    Read {
        offset: u64,
        len: u64,
    },
    /// `file` is not watched.
    Write {
        file: &'a dyn File,
        offset: u64,
        len: u64,
    },
    Len,
    Allocated,
    SetLen {
        len: u64,
    },
    Allocate {
        offset: u64,
        len: u64,
    },
    Punch {
        offset: u64,
        len: u64,
    },
    Sync,
}

/// Hears of a call on a path before it is made; for a file the path it was opened by. A call that it refuses is not made.
type CallHook = dyn Fn(&Path, Call<'_>) -> io::Result<()> + Send + Sync;

/// Another disk, whose calls a test hears of.
///
/// # Examples
/// ```
/// use forebay_storage::fault::{Call, FaultIo, Watched};
/// use forebay_storage::Io;
/// use std::{io, path::Path};
///
/// let disk = Watched::new(FaultIo::new(7), |_, call| match call {
///     Call::Create => Err(io::ErrorKind::StorageFull.into()),
///     _ => Ok(()),
/// });
/// assert!(disk.create(Path::new("/file")).is_err());
/// ```
#[derive(Clone)]
pub struct Watched {
    disk: Arc<dyn Io>,
    before: Arc<CallHook>,
}

impl Watched {
    /// `before` hears of each call, in the thread that makes it.
    pub fn new(
        disk: impl Io + 'static,
        before: impl Fn(&Path, Call<'_>) -> io::Result<()> + Send + Sync + 'static,
    ) -> Watched {
        Watched {
            disk: Arc::new(disk),
            before: Arc::new(before),
        }
    }

    fn watch(&self, path: &Path, file: Arc<dyn File>) -> Arc<dyn File> {
        Arc::new(WatchedFile {
            file,
            path: path.to_path_buf(),
            before: self.before.clone(),
        })
    }
}

impl Io for Watched {
    fn open(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        (self.before)(path, Call::Open)?;
        Ok(self.watch(path, self.disk.open(path)?))
    }

    fn open_kept(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        (self.before)(path, Call::Open)?;
        Ok(self.watch(path, self.disk.open_kept(path)?))
    }

    fn open_at_once(&self) -> usize {
        self.disk.open_at_once()
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        (self.before)(path, Call::Create)?;
        Ok(self.watch(path, self.disk.create(path)?))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        (self.before)(from, Call::Rename { to })?;
        self.disk.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        (self.before)(path, Call::Remove)?;
        self.disk.remove(path)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        (self.before)(path, Call::Exists)?;
        self.disk.exists(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        (self.before)(dir, Call::List)?;
        self.disk.list(dir)
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        (self.before)(dir, Call::CreateDirAll)?;
        self.disk.create_dir_all(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        (self.before)(dir, Call::SyncDir)?;
        self.disk.sync_dir(dir)
    }

    fn space(&self, dir: &Path) -> io::Result<(u64, u64)> {
        (self.before)(dir, Call::Space)?;
        self.disk.space(dir)
    }
}

struct WatchedFile {
    file: Arc<dyn File>,
    path: PathBuf,
    before: Arc<CallHook>,
}

impl WatchedFile {
    fn tell(&self, call: Call<'_>) -> io::Result<()> {
        (self.before)(&self.path, call)
    }
}

impl File for WatchedFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let len = buf.len() as u64;
        self.tell(Call::Read { offset, len })?;
        self.file.read_at(buf, offset)
    }

    fn read_parts_at(&self, parts: &mut [&mut [u8]], offset: u64) -> io::Result<usize> {
        let len = parts.iter().map(|part| part.len() as u64).sum();
        self.tell(Call::Read { offset, len })?;
        self.file.read_parts_at(parts, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.tell(Call::Write {
            file: &*self.file,
            offset,
            len: buf.len() as u64,
        })?;
        self.file.write_at(buf, offset)
    }

    fn len(&self) -> io::Result<u64> {
        self.tell(Call::Len)?;
        self.file.len()
    }

    fn allocated(&self) -> io::Result<u64> {
        self.tell(Call::Allocated)?;
        self.file.allocated()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.tell(Call::SetLen { len })?;
        self.file.set_len(len)
    }

    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        self.tell(Call::Allocate { offset, len })?;
        self.file.allocate(offset, len)
    }

    fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        self.tell(Call::Punch { offset, len })?;
        self.file.punch(offset, len)
    }

    fn sync(&self) -> io::Result<()> {
        self.tell(Call::Sync)?;
        self.file.sync()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::FaultIo;
    use parking_lot::Mutex;

    #[test]
    fn each_call_is_heard_of_and_a_refused_one_is_not_made() {
        let heard: Arc<Mutex<Vec<String>>> = Arc::default();
        let (ears, disk) = (heard.clone(), FaultIo::new(1));
        let watched = Watched::new(disk.clone(), move |path, call| {
            let what = match call {
                Call::Create => "create",
                Call::Read { offset: 1, len: 3 } => "read",
                Call::Write { file, offset, len } if offset + len > file.len()? => "grow",
                Call::Write { .. } => "overwrite",
                Call::Sync => "sync",
                Call::Rename { .. } => return Err(io::ErrorKind::PermissionDenied.into()),
                _ => "other",
            };
            ears.lock().push(format!("{what} {}", path.display()));
            Ok(())
        });
        let path = Path::new("/a");
        let file = watched.create(path).unwrap();
        file.write_at(b"1234", 0).unwrap();
        file.write_at(b"5", 3).unwrap();
        let (mut one, mut two) = ([0; 1], [0; 2]);
        let parts = &mut [&mut one[..], &mut two[..]];
        assert_eq!(file.read_parts_at(parts, 1).unwrap(), 3);
        assert_eq!((one, two), (*b"2", *b"35"));
        file.sync().unwrap();
        assert_eq!(
            *heard.lock(),
            ["create /a", "grow /a", "overwrite /a", "read /a", "sync /a"]
        );
        let refused = watched.rename(path, Path::new("/b")).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
        assert!(disk.exists(path).unwrap());
    }
}
