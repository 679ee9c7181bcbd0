//! The manifest: which table files make up the store, and through which batch they hold the log.
//!
//! The file `MANIFEST` is a 32-byte [header](crate::wal::header) and log [records](crate::wal::record) numbered from 1,
//! each one [edit](edit); the state is their sum.
//!
//! # Invariants
//! 1. A table that an edit adds is on disk, directory entry included, before the edit is written.
//! 2. An edit is on disk before anything that it makes superfluous is removed (old tables, log files).
//! 3. When the file has grown, its sum is written as one edit to `MANIFEST.tmp`, synced, and renamed over it.
//!
//! # Why a crash is safe, case by case
//! - *Before an edit is whole on disk.* Recovery cuts it. The state before it stands: its tables and log files are
//!   all still there (2). The new table is an orphan and removed.
//! - *After the edit, before old files are removed.* They are named by nothing: removed at the next open. Log records
//!   through the flushed batch are skipped.
//! - *While the manifest is rewritten.* Until the rename is on disk the old file stands; both say the same.
//! - *Damage to an edit that was on disk.* The next edit, or the seal written behind each edit after its sync, says that it was
//!   synced: opening fails with `Corrupt` instead of falling back to an older state, whose files are gone.
//! - *Disk full.* The file owns blocks ahead of its end. When those are used up, the append is rolled back, and
//!   the flush or compaction is tried again later; the log still holds the data.
mod edit;
mod read;

pub use edit::{Edit, State};

use crate::names;
use crate::side::SideEdit;
use crate::wal::header::{self, Kind};
use crate::wal::record;
use crate::wal::recovery::read_file;
use crate::{Error, File, Io, Result};
use read::read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The manifest's version is the store's: a newer store is refused here.
pub const KIND: Kind = Kind {
    magic: *b"FBYMAN\r\n",
    version: 1,
};
/// Blocks owned ahead of the end, bytes.
const AHEAD: u64 = 64 << 10;
/// A manifest shorter than this is not rewritten, bytes.
const REWRITE: u64 = 256 << 10;

/// The open manifest.
pub struct Manifest {
    io: Arc<dyn Io>,
    dir: PathBuf,
    path: PathBuf,
    file: Arc<dyn File>,
    end: u64,
    allocated: u64,
    edits: u64,
    base: u64,
    state: State,
    /// The file's name is on disk. No edit is written before that: after a power cut the file before it may be there.
    named: bool,
}

impl Manifest {
    /// Creates the manifest of an empty store.
    pub fn create(io: Arc<dyn Io>, dir: &Path) -> Result<Manifest> {
        let mut manifest = Manifest::write_whole(
            io,
            dir,
            State {
                next_file: 1,
                ..State::default()
            },
        )?;
        manifest.sync_name()?;
        Ok(manifest)
    }

    /// Opens the manifest and cuts a torn end.
    ///
    /// # Errors
    /// [`Error::Format`] for a newer store; [`Error::Corrupt`] if an edit that was on disk is damaged.
    pub fn open(io: Arc<dyn Io>, dir: &Path) -> Result<Manifest> {
        let path = dir.join(names::MANIFEST);
        let bytes = read_file(&*io, &path)?;
        let read = read(&bytes, &path)?;
        let file = io.open(&path).map_err(|e| Error::io("open", &path, e))?;
        if let Some(offset) = read.torn {
            tracing::warn!(file = %path.display(), offset, "manifest cut at its last whole edit: what followed was torn by a crash");
            file.set_len(offset)
                .map_err(|e| Error::io("cut", &path, e))?;
            file.sync().map_err(|e| Error::hard("sync", &path, e))?;
        }
        let allocated = if read.torn.is_some() {
            read.end
        } else {
            bytes.len() as u64
        };
        let dir = dir.to_path_buf();
        Ok(Manifest {
            io,
            dir,
            path,
            file,
            end: read.end,
            allocated,
            edits: read.edits,
            base: read.end,
            state: read.state,
            named: true,
        })
    }

    /// Writes the state to a new file under the manifest's name; that name is not on disk yet.
    fn write_whole(io: Arc<dyn Io>, dir: &Path, state: State) -> Result<Manifest> {
        let path = dir.join(names::MANIFEST);
        let temporary = dir.join(format!("{}{}", names::MANIFEST, names::TEMPORARY));
        if io
            .exists(&temporary)
            .map_err(|e| Error::io("look for", &temporary, e))?
        {
            io.remove(&temporary)
                .map_err(|e| Error::io("remove", &temporary, e))?;
        }
        let edit = Edit {
            add: state.tables.clone(),
            remove: Vec::new(),
            flushed: Some(state.flushed),
            next_file: state.next_file,
            side: SideEdit {
                add: state
                    .side
                    .iter()
                    .map(|(n, told)| (*n, told.clone()))
                    .collect(),
                remove: Vec::new(),
                flushed: Some(state.side_flushed),
            },
        };
        let mut bytes = header::encode(KIND, 0).to_vec();
        record::write(&mut bytes, 0, 1, 0, |out| edit.encode(out));
        let end = bytes.len() as u64;
        record::write(&mut bytes, 0, 1, 1, |_| {});
        let allocated = end + AHEAD;
        let written = (|| {
            let file = io
                .create(&temporary)
                .map_err(|e| Error::io("create", &temporary, e))?;
            file.allocate(0, allocated)
                .map_err(|e| Error::io("allocate", &temporary, e))?;
            file.write_at(&bytes, 0)
                .map_err(|e| Error::io("write", &temporary, e))?;
            file.sync().map_err(|e| Error::io("sync", &temporary, e))?;
            Ok(file)
        })();
        let file = match written {
            Ok(file) => file,
            Err(e) => {
                if let Err(e) = io.remove(&temporary) {
                    tracing::warn!(file = %temporary.display(), "unfinished manifest left behind: {e}");
                }
                return Err(e);
            }
        };
        io.rename(&temporary, &path)
            .map_err(|e| Error::hard("rename", &temporary, e))?;
        let dir = dir.to_path_buf();
        Ok(Manifest {
            io,
            dir,
            path,
            file,
            end,
            allocated,
            edits: 1,
            base: end,
            state,
            named: false,
        })
    }

    /// Brings the file's name to disk, if it is not there.
    fn sync_name(&mut self) -> Result<()> {
        if !self.named {
            self.io
                .sync_dir(&self.dir)
                .map_err(|e| Error::hard("sync", &self.dir, e))?;
            self.named = true;
        }
        Ok(())
    }

    /// The sum of all edits.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Writes an edit; it is on disk when this returns.
    ///
    /// # Errors
    /// [`Error::NoSpace`], [`Error::NoDescriptors`]: nothing changed. Any other: it is unknown whether the edit is on disk; the
    /// caller poisons the store and removes no file.
    pub fn append(&mut self, edit: Edit) -> Result<()> {
        if self.end > REWRITE.max(self.base * 4) {
            match Manifest::write_whole(self.io.clone(), &self.dir, self.state.clone()) {
                Ok(new) => *self = new,
                Err(e) if e.is_transient() => {}
                Err(e) => return Err(e),
            }
        }
        self.sync_name()?;
        let mut bytes = Vec::new();
        record::write(&mut bytes, 0, self.edits + 1, self.edits, |out| {
            edit.encode(out)
        });
        self.write(&bytes)?;
        self.file
            .sync()
            .map_err(|e| Error::hard("sync", &self.path, e))?;
        self.end += bytes.len() as u64;
        self.edits += 1;
        self.state.apply(edit);
        let mut seal = Vec::new();
        record::write(&mut seal, 0, self.edits, self.edits, |_| {});
        match self.write(&seal) {
            Err(e) if !e.is_no_space() => Err(e),
            _ => Ok(()),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let need = self.end + bytes.len() as u64;
        if need > self.allocated
            && self
                .file
                .allocate(self.end, bytes.len() as u64 + AHEAD)
                .is_ok()
        {
            self.allocated = need + AHEAD;
        }
        self.file.write_at(bytes, self.end).map_err(|e| {
            let error = Error::io("write", &self.path, e);
            if error.is_no_space() {
                let cut = self.file.set_len(self.end).and_then(|()| self.file.sync());
                self.allocated = self.end;
                if let Err(e) = cut {
                    return Error::hard("roll back", &self.path, e);
                }
            }
            error
        })
    }

    /// Reads the file again and reports damage.
    pub fn check(&self, errors: &mut Vec<Error>) {
        match read_file(&*self.io, &self.path).and_then(|bytes| read(&bytes, &self.path)) {
            Err(e) => errors.push(e),
            Ok(read) if read.state != self.state => {
                errors.push(Error::Corrupt {
                    path: self.path.clone(),
                    what: "manifest state",
                    offset: read.end,
                    expected: self.edits as u32,
                    found: read.edits as u32,
                });
            }
            Ok(_) => {}
        }
    }
}
