//! A file system that is only read: whatever would change it fails.
use crate::{DirEntry, File, Io};
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::Arc;

/// Another file system, of which nothing is written, made or removed.
pub struct ReadOnly(Arc<dyn Io>);

impl ReadOnly {
    /// Of `io`.
    pub fn new(io: Arc<dyn Io>) -> ReadOnly {
        ReadOnly(io)
    }
}

/// A file of which nothing is changed.
pub struct ReadOnlyFile {
    file: Arc<dyn File>,
    /// Whether freeing space and syncing fail, as all other changes do. Else they do nothing.
    strict: bool,
}

impl ReadOnlyFile {
    /// Of which nothing is freed or synced either: that succeeds, and does nothing.
    pub fn lenient(file: Arc<dyn File>) -> ReadOnlyFile {
        ReadOnlyFile {
            file,
            strict: false,
        }
    }

    fn unchanged(&self) -> io::Result<()> {
        match self.strict {
            true => refused(),
            false => Ok(()),
        }
    }
}

fn refused<T>() -> io::Result<T> {
    Err(ErrorKind::ReadOnlyFilesystem.into())
}

impl File for ReadOnlyFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(buf, offset)
    }
    fn read_parts_at(&self, parts: &mut [&mut [u8]], offset: u64) -> io::Result<usize> {
        self.file.read_parts_at(parts, offset)
    }
    fn write_at(&self, _: &[u8], _: u64) -> io::Result<()> {
        refused()
    }
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }
    fn allocated(&self) -> io::Result<u64> {
        self.file.allocated()
    }
    fn set_len(&self, _: u64) -> io::Result<()> {
        refused()
    }
    fn allocate(&self, _: u64, _: u64) -> io::Result<()> {
        refused()
    }
    fn punch(&self, _: u64, _: u64) -> io::Result<()> {
        self.unchanged()
    }
    fn sync(&self) -> io::Result<()> {
        self.unchanged()
    }
}

impl Io for ReadOnly {
    fn open(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        self.open_to_read(path)
    }
    fn open_to_read(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        let file = self.0.open_to_read(path)?;
        Ok(Arc::new(ReadOnlyFile { file, strict: true }))
    }
    fn create(&self, _: &Path) -> io::Result<Arc<dyn File>> {
        refused()
    }
    fn rename(&self, _: &Path, _: &Path) -> io::Result<()> {
        refused()
    }
    fn remove(&self, _: &Path) -> io::Result<()> {
        refused()
    }
    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.0.exists(path)
    }
    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        self.0.list(dir)
    }
    fn create_dir_all(&self, _: &Path) -> io::Result<()> {
        refused()
    }
    fn sync_dir(&self, _: &Path) -> io::Result<()> {
        refused()
    }
    fn space(&self, dir: &Path) -> io::Result<(u64, u64)> {
        self.0.space(dir)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::FaultIo;

    #[test]
    fn everything_can_be_read_and_nothing_changed() {
        let disk = FaultIo::new(1);
        let path = Path::new("/a/file");
        disk.create_dir_all(Path::new("/a")).unwrap();
        disk.create(path).unwrap().write_at(b"bytes", 0).unwrap();
        let before = disk.list(Path::new("/a")).unwrap();
        let io = ReadOnly::new(Arc::new(disk.clone()));
        let file = io.open(path).unwrap();
        let mut read = [0; 5];
        assert_eq!(file.read_at(&mut read, 0).unwrap(), 5);
        assert_eq!((&read, file.len().unwrap()), (b"bytes", 5));
        let changes = [
            file.write_at(b"x", 0),
            file.set_len(1),
            file.allocate(0, 1),
            file.punch(0, 1),
            file.sync(),
            io.create(Path::new("/a/other")).map(drop),
            io.rename(path, Path::new("/a/other")),
            io.remove(path),
            io.create_dir_all(Path::new("/b")),
            io.sync_dir(Path::new("/a")),
        ];
        for change in changes {
            assert_eq!(change.unwrap_err().kind(), ErrorKind::ReadOnlyFilesystem);
        }
        assert_eq!(disk.list(Path::new("/a")).unwrap(), before);
        assert_eq!(file.read_at(&mut read, 0).unwrap(), 5);
        assert_eq!(&read, b"bytes");
    }
}
