//! A handle of a table file of any engine: opened at each read, and removed once it is superseded and no reader holds it.
//! Also the set of unreadable tables that merges leave out.
//!
//! A store may have thousands of tables and a process only so many open files: [`Io::open_kept`] decides which of them stay
//! open.
use crate::{Error, File, Io, IoContext, Result, sectors};
use parking_lot::Mutex;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// See the head of this file.
pub struct TableFile {
    io: Arc<dyn Io>,
    path: PathBuf,
    obsolete: AtomicBool,
}

impl TableFile {
    /// The file `path`, which need not be there before it is opened.
    pub fn new(io: Arc<dyn Io>, path: PathBuf) -> TableFile {
        TableFile {
            io,
            path,
            obsolete: AtomicBool::new(false),
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file, to read from it.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::NoDescriptors`].
    pub fn open(&self) -> Result<OpenTable<'_>> {
        let file = self.io.open_kept(&self.path).context("open", &self.path)?;
        let path = &self.path;
        Ok(OpenTable { file, path })
    }

    /// The error for bytes at `offset` that are not what was written there.
    pub fn corrupt(&self, what: &'static str, offset: u64, expected: u32, found: u32) -> Error {
        Error::corrupt(&self.path, what, offset, expected, found)
    }

    /// Removes the file once nobody uses it any more.
    pub fn make_obsolete(&self) {
        self.obsolete.store(true, Ordering::Release);
    }
}

impl Drop for TableFile {
    fn drop(&mut self) {
        if *self.obsolete.get_mut() {
            remove_unnamed(&*self.io, &self.path);
        }
    }
}

/// A table file that is open.
pub struct OpenTable<'a> {
    file: Arc<dyn File>,
    path: &'a Path,
}

impl OpenTable<'_> {
    /// `length` bytes from `offset` on, fewer at the end of the file. What the disk cannot read is zeros, which no checksum takes for right.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn read(&self, offset: u64, length: usize) -> Result<Vec<u8>> {
        sectors::read(&*self.file, self.path, offset, length).context("read", self.path)
    }

    /// Its length, bytes.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn length(&self) -> Result<u64> {
        self.file.len().context("measure", self.path)
    }
}

/// Tables that could not be read, by number: merges leave them out until the next open. All else goes on.
#[derive(Default)]
pub struct UnreadableTables(Mutex<HashSet<u64>>);

impl UnreadableTables {
    /// Adds those inputs of a merge that the error is of, or all of them if it is of none.
    pub fn add(&self, error: &Error, inputs: &[(u64, &Path)]) {
        let of = inputs.iter().filter(|(_, path)| error.is_of(path));
        let named: Vec<u64> = of.map(|(number, _)| *number).collect();
        let mut tables = self.0.lock();
        match named.is_empty() {
            true => tables.extend(inputs.iter().map(|(number, _)| *number)),
            false => tables.extend(named),
        }
    }

    /// All of them.
    pub fn numbers(&self) -> HashSet<u64> {
        self.0.lock().clone()
    }
}

/// Removes a table file that nothing names, if it is there. Failure leaves an orphan for the next open.
pub fn remove_unnamed(io: &dyn Io, path: &Path) {
    match io.remove(path) {
        Ok(()) => {}
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
        Err(e) => {
            tracing::warn!(file = %path.display(), "unused table left behind, the next open removes it: {e}");
        }
    }
}
