//! Opening a store: manifest, tables, log, then the threads. Creates it if there is none.
use super::Store;
use crate::damage::{Damage, LogEnd, OpenReport};
use crate::engine::{EngineHost, RecoveredStore};
use crate::manifest::reconstruct::reconstruct;
use crate::manifest::{Edit, Manifest, ManifestState, OpenState};
use crate::names::{self, FileName};
use crate::options::{Durability, Options};
use crate::rows::{RowEngine, RowReplay};
use crate::wal::OldLog;
use crate::wal::recovered::RecoveryMode;
use crate::wal::recovery::{self, ExpectedLog};
use crate::wal::reserve;
use crate::{Batch, Error, Io, IoContext, ReadOnly, Result};
use parking_lot::Mutex;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

/// Log files left by earlier runs at which the MemTable is flushed, however small.
const FLUSH_AT_LEFTOVER_LOGS: usize = 4;

/// The files found in the directory.
#[derive(Default)]
struct StoreFiles {
    manifest: bool,
    logs: Vec<u64>,
    tables: Vec<u64>,
    copies: Vec<u64>,
    engine_files: Vec<u64>,
    temporaries: Vec<String>,
}

impl StoreFiles {
    fn list(io: &dyn Io, dir: &Path) -> Result<StoreFiles> {
        let mut found = StoreFiles::default();
        for entry in io.list(dir).context("list", dir)? {
            match names::parse(&entry.name) {
                FileName::Log(n) => found.logs.push(n),
                FileName::Table(n) => found.tables.push(n),
                FileName::TableCopy(n) => found.copies.push(n),
                FileName::EngineFile(n) => found.engine_files.push(n),
                FileName::Manifest => found.manifest = true,
                FileName::Temporary => found.temporaries.push(entry.name),
                FileName::Reserve | FileName::Other => {}
            }
        }
        found.logs.sort_unstable();
        Ok(found)
    }

    /// Whether there is no store.
    fn is_new(&self) -> bool {
        !self.manifest && self.logs.is_empty() && self.tables.is_empty()
    }

    /// Refuses a store that lacks a table, or a file of the attached engine: what was once whole may be found again, and all that it held would be missing. A copy of what
    /// a table mirrors that is missing costs nothing as long as the table is whole.
    fn must_have_tables(
        &self,
        dir: &Path,
        state: &ManifestState,
        damage: &mut Vec<Damage>,
    ) -> Result<()> {
        let missing = |number: &&u64| !self.tables.contains(number);
        let tables = state.tables.iter().map(|(_, meta)| &meta.number);
        let table = tables.filter(missing).map(|n| names::table(dir, *n));
        let files = state.engine_files.keys();
        let file = files.filter(|n| !self.engine_files.contains(n));
        let file = file.map(|n| names::engine_file(dir, *n));
        if let Some(path) = table.chain(file).next() {
            let reason = "the file is missing; put it back, or keep what is left with `forebay fsck --repair`, or read it with `forebay mount --salvage`";
            return Err(Error::format(&path, reason));
        }
        for (_, meta) in &state.tables {
            if meta.has_copy() && !self.copies.contains(&meta.number) {
                let path = names::table_copy(dir, meta.number);
                let missing = std::io::ErrorKind::NotFound.into();
                damage.push(Damage::without_loss(Error::io("open", &path, missing)));
            }
        }
        Ok(())
    }

    fn must_have_manifest(&self, dir: &Path) -> Result<()> {
        let reason = "has no MANIFEST and no copy of it: put MANIFEST back from a copy; without one `forebay fsck --repair` makes it of the tables and logs, and `forebay mount --salvage` reads them";
        match self.manifest {
            true => Ok(()),
            false => Err(Error::format(dir, reason)),
        }
    }
}

impl Store {
    /// Opens the store in `dir`, creating it if there is none, and replays its log. The caller makes sure that no other process has the
    /// store open.
    ///
    /// # Errors
    /// [`Error::Format`] if the store is of a newer version, or files are missing; [`Error::Corrupt`] if the log
    /// or the manifest is damaged beyond what a crash does; [`Error::Io`], [`Error::NoSpace`].
    pub fn open(io: Arc<dyn Io>, dir: &Path, options: Options) -> Result<Store> {
        io.create_dir_all(dir).context("create", dir)?;
        let found = StoreFiles::list(&*io, dir)?;
        for name in &found.temporaries {
            let path = dir.join(name);
            io.remove(&path).context("remove", &path)?;
        }
        let (manifest, mut damage) = if found.is_new() {
            sync_parents(&*io, dir)?;
            (Manifest::create(io.clone(), dir)?, Vec::new())
        } else {
            found.must_have_manifest(dir)?;
            Manifest::open(io.clone(), dir)?
        };
        let before = manifest.state().clone();
        found.must_have_tables(dir, &before, &mut damage)?;
        remove_orphans(&*io, dir, &found, &before)?;
        let store = Store::replay(io, dir, false, options, manifest, &found, damage)?;
        start_log(&store)?;
        let rows = &store.rows;
        rows.start()
            .state_unknown_context("start threads for", dir)?;
        Ok(store)
    }

    /// Opens a store to read all of it that is whole, whatever is damaged. No file is written or removed, no thread started, and every batch
    /// is refused. Whole batches after damaged ones of the log are there; scans go on after what cannot be read (see [`Scan`](crate::Scan)). A manifest that
    /// is lost, both copies, is made again from the tables and logs.
    ///
    /// # Errors
    /// [`Error::Format`] if there is no store, or one of another version; [`Error::Io`] if the directory cannot be read.
    pub fn salvage(io: Arc<dyn Io>, dir: &Path, options: Options) -> Result<Store> {
        let io: Arc<dyn Io> = Arc::new(ReadOnly::new(io));
        let options = Options {
            durability: Durability::None,
            background: false,
            ..options
        };
        let found = StoreFiles::list(&*io, dir)?;
        let read = found
            .must_have_manifest(dir)
            .map_err(|error| (error, true))
            .and_then(|()| {
                let read = Manifest::read_only(io.clone(), dir);
                read.map_err(|e| {
                    let damaged = matches!(e, Error::Corrupt { .. } | Error::Io { .. });
                    (e, damaged)
                })
            });
        let (manifest, damage) = match read {
            Ok(read) => read,
            Err((error, true)) if !found.logs.is_empty() || !found.tables.is_empty() => {
                reconstructed(&io, dir, &found, error)
            }
            Err((error, _)) => return Err(error),
        };
        Store::replay(io, dir, true, options, manifest, &found, damage)
    }
}

/// The manifest made again from the tables and logs that were found, because of this error; and what is damaged.
fn reconstructed(
    io: &Arc<dyn Io>,
    dir: &Path,
    found: &StoreFiles,
    error: Error,
) -> (Manifest, Vec<Damage>) {
    let (state, lost) = reconstruct(&**io, dir, &found.tables, &found.engine_files, &found.logs);
    let tables = state.tables.len();
    tracing::warn!(store = %dir.display(), tables, "the manifest was made again from the tables and logs: {error}");
    let harmless = Damage::without_loss(error);
    let manifest = Manifest::reconstructed(io.clone(), dir, state);
    (manifest, [harmless].into_iter().chain(lost).collect())
}

/// Brings the directory's own name to disk, and those above it: a run that was killed may have made them.
fn sync_parents(io: &dyn Io, dir: &Path) -> Result<()> {
    for parent in dir.ancestors().skip(1) {
        let parent = if parent.as_os_str().is_empty() {
            Path::new(".")
        } else {
            parent
        };
        match io.sync_dir(parent) {
            Ok(()) => {}
            // Not ours to read, so not made by us.
            Err(e) if e.kind() == std::io::ErrorKind::PermissionDenied => break,
            Err(e) => return Err(Error::state_unknown("sync", parent, e)),
        }
    }
    Ok(())
}

/// Removes the tables that a crash left unnamed.
fn remove_orphans(
    io: &dyn Io,
    dir: &Path,
    found: &StoreFiles,
    state: &ManifestState,
) -> Result<()> {
    let known = |n: &u64| state.tables.iter().any(|(_, t)| t.number == *n);
    let orphans = found
        .tables
        .iter()
        .filter(|n| !known(n))
        .map(|n| names::table(dir, *n));
    let copies = found.copies.iter().filter(|n| !known(n));
    let orphans = orphans.chain(copies.map(|n| names::table_copy(dir, *n)));
    let files = found.engine_files.iter();
    let files = files.filter(|n| !state.engine_files.contains_key(n));
    for path in orphans.chain(files.map(|n| names::engine_file(dir, *n))) {
        io.remove(&path).context("remove", &path)?;
    }
    Ok(())
}

impl Store {
    /// The store as tables and log have it, with no log file to write to yet; `salvaged`: to be read only.
    fn replay(
        io: Arc<dyn Io>,
        dir: &Path,
        salvaged: bool,
        options: Options,
        manifest: Manifest,
        found: &StoreFiles,
        mut damage: Vec<Damage>,
    ) -> Result<Store> {
        let new = found.is_new();
        let state = manifest.state();
        let (rows_flushed, engine_flushed) = (state.flushed, state.engine_flushed);
        let flushed = state.flushed_by_all();
        let expected = match state.mark {
            OpenState::Open => ExpectedLog {
                flushed,
                synced: rows_flushed.max(engine_flushed),
                last: None,
                file: state.log.filter(|_| !new),
            },
            OpenState::Closed(last) => ExpectedLog {
                flushed,
                synced: flushed,
                last: Some(last),
                file: None,
            },
        };
        let mode = match salvaged {
            true => RecoveryMode::Salvage,
            false => RecoveryMode::GoOn,
        };
        let tables_and_copies = found.tables.iter().chain(&found.copies);
        let numbers = (found.logs.iter().chain(&found.engine_files)).chain(tables_and_copies);
        let next_file = numbers.map(|n| n + 1).fold(state.next_file, u64::max);
        let mut rows = RowReplay::new(io.clone(), dir, &options, salvaged, state);
        let mut unclaimed = Vec::new();
        let apply = &mut |number, batch: Batch| {
            rows.apply(number, batch.ops);
            if number > engine_flushed && !batch.entries.is_empty() {
                unclaimed.push((number, Batch::of(Vec::new(), batch.entries)));
            }
            Ok(())
        };
        let recovered = recovery::recover(&*io, dir, &found.logs, expected, mode, apply)?;
        damage.extend(recovered.damage);
        let last = recovered.last;
        let end = match state.mark {
            _ if new => LogEnd::New,
            OpenState::Closed(closed) if closed == last => LogEnd::Clean,
            _ => LogEnd::Unclean {
                last,
                synced: recovered.synced,
                cut: recovered.cut,
            },
        };
        if let LogEnd::Unclean { .. } = end {
            tracing::warn!(store = %dir.display(), "{end}");
        }
        for damage in &damage {
            tracing::warn!(store = %dir.display(), "damaged: {damage}");
        }
        if recovered.files.len() >= FLUSH_AT_LEFTOVER_LOGS {
            rows.seal(last);
        }
        let recovered = RecoveredStore {
            opened: OpenReport { end, damage },
            manifest,
            old_logs: recovered.files,
            last,
            last_entries: unclaimed.last().map_or(0, |(number, _)| *number),
            next_file,
        };
        let host = Arc::new(EngineHost::new(io, dir, salvaged, options, recovered));
        let rows = Arc::new(RowEngine::new(host.clone(), rows));
        let engine = Arc::downgrade(&rows);
        host.health.register(engine);
        Ok(Store {
            host,
            rows,
            attached: OnceLock::new(),
            unclaimed: Mutex::new(unclaimed),
        })
    }
}

/// Makes a replayed store one that takes batches: removes superfluous log files, starts a new one, notes in the manifest that the store is
/// open, makes the reserves.
fn start_log(store: &Store) -> Result<()> {
    let host = &*store.host;
    let (io, dir) = (&*host.io, host.dir());
    let mut log = host.log.lock();
    let (flushed, named) = {
        let manifest = host.manifest.lock();
        (manifest.state().flushed_by_all(), manifest.state().log)
    };
    let logged = host.options.durability != Durability::None;
    if logged {
        host.next_log(&mut log)?;
        log.sync_directory(io, dir)?;
    }
    // On disk before the first batch is: what is there now is no clean end any more.
    let edit = Edit {
        next_file: host.next_file.load(Ordering::Relaxed),
        log: Some(host.newest_log.load(Ordering::Relaxed)),
        mark: Some(OpenState::Open),
        ..Edit::default()
    };
    let marked = match host.manifest.lock().append(edit) {
        Ok(()) => true,
        // A later batch tells that the end was not clean.
        Err(e) if e.is_transient() => false,
        Err(e) => return Err(e),
    };
    let superfluous = |old: &OldLog| old.last <= flushed && (marked || Some(old.number) != named);
    for old in log.old.iter().filter(|old| superfluous(old)) {
        let path = names::log(dir, old.number);
        io.remove(&path).context("remove", &path)?;
    }
    log.old.retain(|old| !superfluous(old));
    if logged {
        reserve::ensure(io, dir, names::RESERVE, host.options.wal_reserve_bytes)?;
    }
    drop(log);
    store.rows.spare.make().map(drop)
}
