//! A file system with a hook that runs before each call: a test counts the call, refuses it, delays it, or panics.
use crate::shared_sync::SharedSync;
use crate::{DirEntry, File, Io};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What a [`HookedIo`] disk is asked; offsets and lengths in bytes. Those of an [`Io`] first, then those of a [`File`].
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
    /// `file` is not hooked.
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
/// use forebay_storage::fault::{Call, FaultIo, HookedIo};
/// use forebay_storage::Io;
/// use std::{io, path::Path};
///
/// let disk = HookedIo::new(FaultIo::new(7), |_, call| match call {
///     Call::Create => Err(io::ErrorKind::StorageFull.into()),
///     _ => Ok(()),
/// });
/// assert!(disk.create(Path::new("/file")).is_err());
/// ```
#[derive(Clone)]
pub struct HookedIo {
    disk: Arc<dyn Io>,
    before: Arc<CallHook>,
}

impl HookedIo {
    /// `before` hears of each call, in the thread that makes it.
    pub fn new(
        disk: impl Io + 'static,
        before: impl Fn(&Path, Call<'_>) -> io::Result<()> + Send + Sync + 'static,
    ) -> HookedIo {
        HookedIo {
            disk: Arc::new(disk),
            before: Arc::new(before),
        }
    }

    /// The file that this call opens.
    fn opened(
        &self,
        path: &Path,
        call: Call<'_>,
        open: fn(&dyn Io, &Path) -> io::Result<Arc<dyn File>>,
    ) -> io::Result<Arc<dyn File>> {
        (self.before)(path, call)?;
        Ok(Arc::new(HookedFile {
            file: open(&*self.disk, path)?,
            path: path.to_path_buf(),
            before: self.before.clone(),
            syncs: SharedSync::default(),
        }))
    }
}

/// Calls on paths that are made after the hook has heard of them: the path, what else they take, what they answer, what the hook hears.
macro_rules! hooked_calls {
    ($($name:ident($path:ident $(, $arg:ident: $type:ty)?) -> $answer:ty, $call:expr;)*) => {$(
        fn $name(&self, $path: &Path $(, $arg: $type)?) -> io::Result<$answer> {
            (self.before)($path, $call)?;
            self.disk.$name($path $(, $arg)?)
        }
    )*};
}

impl Io for HookedIo {
    fn open(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        self.opened(path, Call::Open, |disk, path| disk.open(path))
    }

    fn open_kept(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        self.opened(path, Call::Open, |disk, path| disk.open_kept(path))
    }

    fn open_at_once(&self) -> usize {
        self.disk.open_at_once()
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        self.opened(path, Call::Create, |disk, path| disk.create(path))
    }

    hooked_calls! {
        rename(from, to: &Path) -> (), Call::Rename { to };
        remove(path) -> (), Call::Remove;
        exists(path) -> bool, Call::Exists;
        list(dir) -> Vec<DirEntry>, Call::List;
        create_dir_all(dir) -> (), Call::CreateDirAll;
        sync_dir(dir) -> (), Call::SyncDir;
        space(dir) -> (u64, u64), Call::Space;
    }
}

struct HookedFile {
    file: Arc<dyn File>,
    path: PathBuf,
    before: Arc<CallHook>,
    /// The hook may refuse one.
    syncs: SharedSync,
}

/// The same of calls on a file.
macro_rules! hooked_file_calls {
    ($($name:ident($($arg:ident: $type:ty),*) -> $answer:ty, $call:expr;)*) => {$(
        fn $name(&self, $($arg: $type),*) -> io::Result<$answer> {
            (self.before)(&self.path, $call)?;
            self.file.$name($($arg),*)
        }
    )*};
}

impl File for HookedFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let len = buf.len() as u64;
        (self.before)(&self.path, Call::Read { offset, len })?;
        self.file.read_at(buf, offset)
    }

    fn read_parts_at(&self, parts: &mut [&mut [u8]], offset: u64) -> io::Result<usize> {
        let len = parts.iter().map(|part| part.len() as u64).sum();
        (self.before)(&self.path, Call::Read { offset, len })?;
        self.file.read_parts_at(parts, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        let (file, len) = (&*self.file, buf.len() as u64);
        (self.before)(&self.path, Call::Write { file, offset, len })?;
        file.write_at(buf, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.syncs.run(|| {
            (self.before)(&self.path, Call::Sync)?;
            self.file.sync()
        })
    }

    fn start_sync(&self) {
        self.file.start_sync();
    }

    hooked_file_calls! {
        len() -> u64, Call::Len;
        allocated() -> u64, Call::Allocated;
        set_len(len: u64) -> (), Call::SetLen { len };
        allocate(offset: u64, len: u64) -> (), Call::Allocate { offset, len };
        punch(offset: u64, len: u64) -> (), Call::Punch { offset, len };
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
        let watched = HookedIo::new(disk.clone(), move |path, call| {
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
