//! The manifest: which table files make up the store, and up to which batch they contain the log.
//!
//! It stands in two files of the same bytes, `MANIFEST` and `MANIFEST.copy`: a 32-byte [header] whose
//! number is their generation, and log [records](crate::wal::record) numbered from 1, each one [edit]; the state is
//! the result of applying them in order.
//!
//! # Invariants
//! 1. A table that an edit adds is on disk, directory entry included, before the edit is written.
//! 2. An edit is on disk in both copies before anything that it makes superfluous is removed (old tables, log files).
//! 3. When the files have grown, or none of them has all edits at open, the state is written as one edit of the next
//!    generation to `MANIFEST.tmp` and `MANIFEST.copy.tmp`; both are synced, then both renamed. No edit is appended
//!    before the directory is synced.
//!
//! # Why a crash is safe, case by case
//! - *Before an edit is whole on disk in either copy.* Recovery cuts it. The state before it stands: its tables and log files
//!   are all still there (2). The new table is an orphan and removed.
//! - *An edit is whole in one copy, torn or missing in the other.* It was not acknowledged, and nothing was removed for it (2),
//!   so both states are right. The longer one is taken, for the copy that has it may be the only one that is read next time.
//! - *After the edit, before old files are removed.* They are named by nothing: removed at the next open. Log records
//!   through the flushed batch are skipped.
//! - *While a copy is repaired in place at open* from the other one, which has all edits: that one is cut after its last
//!   edit, and not written.
//! - *While the manifest is rewritten.* Until the first rename is on disk the old files stand. After one rename the files are
//!   of two generations and say the same (3): the newer is read. While the first manifest of a store is made, the copy may not
//!   be there.
//! - *Disk full.* The files own blocks ahead of their end. When those are used up, the append is rolled back in both, and
//!   the flush or compaction is tried again later; the log still holds the data.
//!
//! # Why one damaged copy costs nothing
//! Whatever of one file is changed, cut off or gone, the other has every edit that was ever synced, and a record is known
//! to be whole by its checksums, which cover the generation. So the whole edits of both files together are complete: they have
//! every edit after which something was removed (2). The seals in both files say how many edits were on disk: if an
//! edit is damaged in both, opening fails with `Corrupt` instead of falling back to an older state, whose files are gone.
//!
//! A crash leaves both copies with the same edits but for the last one. So a copy that lacks more was damaged, and so was one
//! with bytes that no crash leaves (see [`torn`](crate::wal::torn)): it is reported, and written again.
mod edit;
pub mod provenance;
mod read;
pub mod reconstruct;

pub use edit::{Edit, EngineEdit, LEVELS, ManifestState, OpenState, TableMeta};
pub use provenance::Provenance;

use crate::damage::{Damage, PossibleLoss};
use crate::io::{remove_if_there, reserve_room};
use crate::names;
use crate::wal::header::{self, FileKind};
use crate::wal::record;
use crate::{Error, File, Io, IoContext, Result};
use read::{COPIES, read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The manifest's version is the store's: a newer store is refused here.
pub const KIND: FileKind = FileKind {
    magic: *b"FBYMAN\r\n",
    version: 3,
    oldest: 3,
};
/// Blocks owned ahead of the end, bytes.
const PREALLOCATED_BYTES: u64 = 64 << 10;
/// A manifest shorter than this is not rewritten, bytes.
const REWRITE: u64 = 256 << 10;

/// One of the copies, open.
struct ManifestCopy {
    path: PathBuf,
    file: Arc<dyn File>,
}

/// The open manifest.
pub struct Manifest {
    io: Arc<dyn Io>,
    dir: PathBuf,
    /// None if it is only read.
    copies: Vec<ManifestCopy>,
    end: u64,
    allocated: u64,
    edits: u64,
    base: u64,
    generation: u64,
    state: ManifestState,
    /// The files' names are on disk. No edit is written before that: after a power cut the files before them may be there.
    named: bool,
}

impl Manifest {
    /// Creates the manifest of an empty store.
    pub fn create(io: Arc<dyn Io>, dir: &Path) -> Result<Manifest> {
        let state = ManifestState {
            next_file: 1,
            ..ManifestState::default()
        };
        let mut manifest = Manifest::write_whole(io, dir, state, 1)?;
        manifest.sync_name()?;
        Ok(manifest)
    }

    /// Opens the manifest. If a copy is torn or damaged, both are written anew; what was damaged is told.
    ///
    /// # Errors
    /// [`Error::Format`] for a store of another version; [`Error::Corrupt`] if an edit that was on disk is damaged in both copies.
    pub fn open(io: Arc<dyn Io>, dir: &Path) -> Result<(Manifest, Vec<Damage>)> {
        let read = read(&*io, dir)?;
        for damage in &read.damage {
            tracing::warn!(store = %dir.display(), "a copy of the manifest is damaged, and written anew: {damage}");
        }
        let (end, length) = match read.whole {
            Some(whole) => whole,
            None => {
                tracing::warn!(store = %dir.display(), "the manifest was not whole in both copies");
                let Some((at, bytes)) = read.source else {
                    let new = Manifest::write_whole(io, dir, read.state, read.generation + 1)?;
                    return Ok((new, read.damage));
                };
                repair_copy(&*io, dir, at, &bytes)?;
                (bytes.len() as u64, bytes.len() as u64)
            }
        };
        let mut manifest = Manifest::of(io, dir, read.state, end, read.edits, read.generation);
        manifest.allocated = length;
        manifest.open_copies()?;
        // A killed process may have left the last edit in the system's cache only; what it makes superfluous is removed next (2).
        manifest.sync()?;
        Ok((manifest, read.damage))
    }

    fn open_copies(&mut self) -> Result<()> {
        for name in COPIES {
            let path = self.dir.join(name);
            let file = self.io.open(&path).context("open", &path)?;
            self.copies.push(ManifestCopy { path, file });
        }
        Ok(())
    }

    /// The manifest as far as it can be read, of which nothing is written.
    ///
    /// # Errors
    /// As [`open`](Manifest::open).
    pub fn read_only(io: Arc<dyn Io>, dir: &Path) -> Result<(Manifest, Vec<Damage>)> {
        let read = read(&*io, dir)?;
        let manifest = Manifest::of(io, dir, read.state, 0, read.edits, read.generation);
        Ok((manifest, read.damage))
    }

    /// One that was [reconstructed](reconstruct), of which nothing is written.
    pub fn reconstructed(io: Arc<dyn Io>, dir: &Path, state: ManifestState) -> Manifest {
        Manifest::of(io, dir, state, 0, 0, 0)
    }

    fn of(
        io: Arc<dyn Io>,
        dir: &Path,
        state: ManifestState,
        end: u64,
        edits: u64,
        generation: u64,
    ) -> Manifest {
        Manifest {
            io,
            dir: dir.to_path_buf(),
            copies: Vec::new(),
            end,
            allocated: end,
            edits,
            base: end,
            generation,
            state,
            named: true,
        }
    }

    /// Writes the state to new files under the manifest's names; these are not on disk yet.
    fn write_whole(
        io: Arc<dyn Io>,
        dir: &Path,
        state: ManifestState,
        generation: u64,
    ) -> Result<Manifest> {
        let mut bytes = header::encode(KIND, generation).to_vec();
        record::write(&mut bytes, generation, 1, 0, |out| {
            state.as_edit().encode(out)
        });
        let end = bytes.len() as u64;
        record::write(&mut bytes, generation, 1, 1, |_| {});
        let allocated = end + PREALLOCATED_BYTES;
        let temporary = COPIES.map(|name| dir.join(format!("{name}{}", names::TEMPORARY)));
        let made = temporary.iter().map(|path| {
            remove_if_there(&*io, path)?;
            let file = io.create(path).context("create", path)?;
            reserve_room(&*file, 0, allocated).context("allocate", path)?;
            file.write_at(&bytes, 0).context("write", path)?;
            file.sync().context("sync", path)?;
            Ok(file)
        });
        let files: Vec<_> = match made.collect::<Result<_>>() {
            Ok(files) => files,
            Err(e) => {
                for path in &temporary {
                    if let Err(e) = remove_if_there(&*io, path) {
                        tracing::warn!("unfinished manifest left behind: {e}");
                    }
                }
                return Err(e);
            }
        };
        let mut copies = Vec::new();
        for ((from, name), file) in temporary.iter().zip(COPIES).zip(files) {
            let path = dir.join(name);
            io.rename(from, &path)
                .state_unknown_context("rename", from)?;
            copies.push(ManifestCopy { path, file });
        }
        Ok(Manifest {
            copies,
            allocated,
            named: false,
            ..Manifest::of(io, dir, state, end, 1, generation)
        })
    }

    /// Brings the files' names to disk, if they are not there.
    fn sync_name(&mut self) -> Result<()> {
        if !self.named {
            self.io
                .sync_dir(&self.dir)
                .state_unknown_context("sync", &self.dir)?;
            self.named = true;
        }
        Ok(())
    }

    /// The sum of all edits.
    pub fn state(&self) -> &ManifestState {
        &self.state
    }

    /// Writes an edit; it is on disk in both copies when this returns.
    ///
    /// # Errors
    /// [`Error::NoSpace`], [`Error::NoDescriptors`]: nothing changed. Any other: it is unknown whether the edit is on disk; the
    /// caller poisons the store and removes no file.
    pub fn append(&mut self, edit: Edit) -> Result<()> {
        if self.end > REWRITE.max(self.base * 4) {
            let (io, state) = (self.io.clone(), self.state.clone());
            match Manifest::write_whole(io, &self.dir, state, self.generation + 1) {
                Ok(new) => *self = new,
                Err(e) if e.is_transient() => {}
                Err(e) => return Err(e),
            }
        }
        self.sync_name()?;
        let mut bytes = Vec::new();
        record::write(
            &mut bytes,
            self.generation,
            self.edits + 1,
            self.edits,
            |out| edit.encode(out),
        );
        self.write(&bytes)?;
        self.sync()?;
        self.end += bytes.len() as u64;
        self.edits += 1;
        self.state.apply(edit);
        let mut seal = Vec::new();
        record::write(&mut seal, self.generation, self.edits, self.edits, |_| {});
        match self.write(&seal) {
            Err(e) if !e.is_no_space() => Err(e),
            _ => Ok(()),
        }
    }

    fn sync(&self) -> Result<()> {
        let files: Vec<_> = self.copies.iter().map(|c| c.file.clone()).collect();
        self.io
            .sync_files(&files)
            .map_err(|(at, e)| Error::state_unknown("sync", &self.copies[at].path, e))
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let need = self.end + bytes.len() as u64;
        if need > self.allocated {
            let more = bytes.len() as u64 + PREALLOCATED_BYTES;
            let mut grown = self
                .copies
                .iter()
                .map(|c| reserve_room(&*c.file, self.end, more));
            if grown.all(|done| done.is_ok()) {
                self.allocated = need + PREALLOCATED_BYTES;
            }
        }
        for copy in &self.copies {
            if let Err(e) = copy.file.write_at(bytes, self.end) {
                let error = Error::io("write", &copy.path, e);
                if error.is_no_space() {
                    self.roll_back()?;
                }
                return Err(error);
            }
        }
        Ok(())
    }

    /// Cuts both copies after the last edit.
    fn roll_back(&mut self) -> Result<()> {
        self.allocated = self.end;
        self.copies.iter().try_for_each(|copy| {
            copy.file
                .set_len(self.end)
                .and_then(|()| copy.file.sync())
                .state_unknown_context("roll back", &copy.path)
        })
    }

    /// Reads the files again and reports damage.
    pub fn check(&self, damage: &mut Vec<Damage>) {
        let lost = PossibleLoss::Nothing;
        match read(&*self.io, &self.dir) {
            Err(error) => damage.push(Damage { error, lost }),
            Ok(read) => {
                damage.extend(read.damage);
                if read.state != self.state {
                    let error = Error::corrupt(
                        &self.dir.join(names::MANIFEST),
                        "manifest state",
                        self.end,
                        self.edits as u32,
                        read.edits as u32,
                    );
                    damage.push(Damage { error, lost });
                }
            }
        }
    }
}

/// Makes the copy that is not `at` the same as that one, whose edits are these bytes. In place, for a full disk has no room for new files; and
/// the one that it is made from stays whole meanwhile.
fn repair_copy(io: &dyn Io, dir: &Path, at: usize, bytes: &[u8]) -> Result<()> {
    let cut = |path: &Path, file: &dyn File| {
        file.set_len(bytes.len() as u64).context("cut", path)?;
        file.sync().state_unknown_context("sync", path)
    };
    let source = dir.join(COPIES[at]);
    let file = io.open(&source).context("open", &source)?;
    cut(&source, &*file)?;
    let other = dir.join(COPIES[1 - at]);
    let file = match io.exists(&other).context("look for", &other)? {
        true => io.open(&other).context("open", &other)?,
        false => io.create(&other).context("create", &other)?,
    };
    file.write_at(bytes, 0).context("write", &other)?;
    cut(&other, &*file)?;
    io.sync_dir(dir).state_unknown_context("sync", dir)
}
