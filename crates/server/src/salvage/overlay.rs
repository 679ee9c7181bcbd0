//! The file system that a salvaged service sees: its own directory, and in its data directories the segment files of the stores.
//!
//! Invariant: files of the stores are only read. Removing or punching them succeeds and does nothing.
use forebay_storage::{DirEntry, File, Io, ReadOnlyFile};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// See the head of this file.
pub struct SegmentOverlay {
    io: Arc<dyn Io>,
    /// Data directories of the service, and of the stores if there are any.
    data: Vec<(PathBuf, Option<PathBuf>)>,
}

impl SegmentOverlay {
    /// `data`: the data directory of each member of the service, and the one of its store.
    pub fn new(io: Arc<dyn Io>, data: Vec<(PathBuf, Option<PathBuf>)>) -> SegmentOverlay {
        SegmentOverlay { io, data }
    }

    fn store_of(&self, dir: &Path) -> Option<&Path> {
        let of = self.data.iter().find(|(new, _)| new == dir)?;
        of.1.as_deref()
    }

    /// The file of a store that the service sees under this path.
    fn original(&self, path: &Path) -> Option<PathBuf> {
        Some(self.store_of(path.parent()?)?.join(path.file_name()?))
    }
}

impl Io for SegmentOverlay {
    fn open(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        match (self.io.open(path), self.original(path)) {
            (Err(e), Some(original)) if e.kind() == ErrorKind::NotFound => {
                // What no record names may be somebody's whose record is lost: a punch does nothing.
                Ok(Arc::new(ReadOnlyFile::lenient(self.io.open(&original)?)))
            }
            (opened, _) => opened,
        }
    }
    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        match self.original(path) {
            Some(original) if self.io.exists(&original)? => Err(ErrorKind::AlreadyExists.into()),
            _ => self.io.create(path),
        }
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.io.rename(from, to)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        match (self.io.remove(path), self.original(path)) {
            (Err(e), Some(original))
                if e.kind() == ErrorKind::NotFound && self.io.exists(&original)? =>
            {
                Ok(())
            }
            (removed, _) => removed,
        }
    }
    fn exists(&self, path: &Path) -> io::Result<bool> {
        Ok(self.io.exists(path)?
            || match self.original(path) {
                Some(original) => self.io.exists(&original)?,
                None => false,
            })
    }
    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        let mut entries = self.io.list(dir)?;
        if let Some(store) = self.store_of(dir) {
            match self.io.list(store) {
                Ok(old) => entries.extend(old),
                Err(e) if e.kind() == ErrorKind::NotFound => {}
                Err(e) => return Err(e),
            }
        }
        Ok(entries)
    }
    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.io.create_dir_all(dir)
    }
    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.io.sync_dir(dir)
    }
    fn space(&self, dir: &Path) -> io::Result<(u64, u64)> {
        self.io.space(dir)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_storage::OsIo;

    #[test]
    fn files_of_a_store_are_seen_and_never_changed() {
        let dir = tempfile::tempdir().unwrap();
        let (new, old) = (dir.path().join("new"), dir.path().join("old"));
        std::fs::create_dir(&new).unwrap();
        std::fs::create_dir(&old).unwrap();
        std::fs::write(old.join("1.seg"), b"bytes").unwrap();
        let io = SegmentOverlay::new(Arc::new(OsIo), vec![(new.clone(), Some(old.clone()))]);
        let seen = new.join("1.seg");
        let file = io.open(&seen).unwrap();
        let mut read = [0; 5];
        assert_eq!(file.read_at(&mut read, 0).unwrap(), 5);
        assert_eq!(&read, b"bytes");
        assert!(io.exists(&seen).unwrap());
        assert_eq!(io.list(&new).unwrap().len(), 1);
        assert!(file.write_at(b"x", 0).is_err() && file.set_len(0).is_err());
        assert!(io.create(&seen).is_err());
        file.punch(0, 5).unwrap();
        io.remove(&seen).unwrap();
        io.create(&new.join("2.seg"))
            .unwrap()
            .write_at(b"own", 0)
            .unwrap();
        assert_eq!(std::fs::read(old.join("1.seg")).unwrap(), b"bytes");
        assert!(!old.join("2.seg").exists());
        assert_eq!(io.list(&new).unwrap().len(), 2);
    }
}
