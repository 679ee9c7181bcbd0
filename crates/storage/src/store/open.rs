//! Opening a store: manifest, tables, log, then the threads. Creates it if there is none.
use super::core::{Core, Counters, OldLog, Sealed, View, Writer};
use super::{Store, background};
use crate::cache::BlockCache;
use crate::compaction::{LEVELS, Levels};
use crate::damage::{Damage, DamageNotes, LogEnd, Lost, Opened};
use crate::manifest::remake::remake;
use crate::manifest::{Edit, Manifest, Mark, State};
use crate::memtable::MemTable;
use crate::names::{self, Name};
use crate::options::{Durability, Options};
use crate::table::{Table, Tables};
use crate::wal::payload::Payload;
use crate::wal::recovery::{self, Expected, Mode};
use crate::wal::reserve;
use crate::wal::writer::LogWriter;
use crate::{Error, Io, ReadOnly, Result, side};
use parking_lot::{Condvar, Mutex, RwLock};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Log files left by earlier runs at which the MemTable is flushed, however small.
const OLD_LOGS: usize = 4;

/// The files found in the directory.
#[derive(Default)]
struct Found {
    manifest: bool,
    logs: Vec<u64>,
    tables: Vec<u64>,
    copies: Vec<u64>,
    side: Vec<u64>,
    temporaries: Vec<String>,
}

impl Found {
    fn list(io: &dyn Io, dir: &Path) -> Result<Found> {
        let mut found = Found::default();
        for entry in io.list(dir).map_err(|e| Error::io("list", dir, e))? {
            match names::parse(&entry.name) {
                Name::Log(n) => found.logs.push(n),
                Name::Table(n) => found.tables.push(n),
                Name::TableCopy(n) => found.copies.push(n),
                Name::Side(n) => found.side.push(n),
                Name::Manifest => found.manifest = true,
                Name::Temporary => found.temporaries.push(entry.name),
                Name::Reserve | Name::Other => {}
            }
        }
        found.logs.sort_unstable();
        Ok(found)
    }

    /// Refuses a store that lacks a table, or a file of its side: what was once whole may be found again, and all that it held would be missing. A copy of what
    /// a table keeps twice that is missing costs nothing as long as the table is whole.
    fn must_have_tables(&self, dir: &Path, state: &State, damage: &mut Vec<Damage>) -> Result<()> {
        let missing = |number: &&u64| !self.tables.contains(number);
        let tables = state.tables.iter().map(|(_, meta)| &meta.number);
        let table = tables.filter(missing).map(|n| names::table(dir, *n));
        let side = state.side.keys().filter(|n| !self.side.contains(n));
        if let Some(path) = table.chain(side.map(|n| side::path(dir, *n))).next() {
            return Err(Error::Format {
                path,
                reason: String::from(
                    "the file is missing; put it back, or keep what is left with `forebay fsck --repair`, or read it with `forebay mount --salvage`",
                ),
            });
        }
        for (_, meta) in &state.tables {
            if meta.has_copy() && !self.copies.contains(&meta.number) {
                let path = names::table_copy(dir, meta.number);
                let missing = std::io::ErrorKind::NotFound.into();
                damage.push(Damage {
                    error: Error::io("open", &path, missing),
                    lost: Lost::Nothing,
                });
            }
        }
        Ok(())
    }

    fn must_have_manifest(&self, dir: &Path) -> Result<()> {
        match self.manifest {
            true => Ok(()),
            false => Err(Error::Format {
                path: dir.to_path_buf(),
                reason: String::from(
                    "has no MANIFEST and no copy of it: put MANIFEST back from a copy; without one `forebay fsck --repair` makes it of the tables and logs, and `forebay mount --salvage` reads them",
                ),
            }),
        }
    }
}

/// See [`Store::open`].
pub fn open(io: Arc<dyn Io>, dir: &Path, options: Options) -> Result<Store> {
    io.create_dir_all(dir)
        .map_err(|e| Error::io("create", dir, e))?;
    let found = Found::list(&*io, dir)?;
    for name in &found.temporaries {
        let path = dir.join(name);
        io.remove(&path)
            .map_err(|e| Error::io("remove", &path, e))?;
    }
    let new = !found.manifest && found.logs.is_empty() && found.tables.is_empty();
    let (manifest, mut damage) = if new {
        sync_parents(&*io, dir)?;
        (Manifest::create(io.clone(), dir)?, Vec::new())
    } else {
        found.must_have_manifest(dir)?;
        Manifest::open(io.clone(), dir)?
    };
    let before = manifest.state().clone();
    found.must_have_tables(dir, &before, &mut damage)?;
    remove_orphans(&*io, dir, &found, &before)?;
    let tables = tables(io, dir, &options, false);
    let core = replay(tables, options, manifest, &found, damage, new)?;
    let core = Arc::new(start_log(core)?);
    let threads = background::start(&core).map_err(|e| Error::hard("start threads for", dir, e))?;
    Ok(Store {
        core,
        threads: Mutex::new(threads),
    })
}

/// See [`Store::salvage`].
pub fn salvage(io: Arc<dyn Io>, dir: &Path, options: Options) -> Result<Store> {
    let io: Arc<dyn Io> = Arc::new(ReadOnly::new(io));
    let options = Options {
        durability: Durability::None,
        background: false,
        ..options
    };
    let found = Found::list(&*io, dir)?;
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
            remade(&io, dir, &found, error)
        }
        Err((error, _)) => return Err(error),
    };
    let tables = tables(io, dir, &options, true);
    let core = replay(tables, options, manifest, &found, damage, false)?;
    Ok(Store {
        core: Arc::new(core),
        threads: Mutex::default(),
    })
}

/// The manifest made again from the tables and logs that were found, because of this error; and what is damaged.
fn remade(io: &Arc<dyn Io>, dir: &Path, found: &Found, error: Error) -> (Manifest, Vec<Damage>) {
    let (state, lost) = remake(&**io, dir, &found.tables, &found.side, &found.logs);
    let tables = state.tables.len();
    tracing::warn!(store = %dir.display(), tables, "the manifest was made again from the tables and logs: {error}");
    let harmless = Damage {
        error,
        lost: Lost::Nothing,
    };
    let manifest = Manifest::remade(io.clone(), dir, state);
    (manifest, [harmless].into_iter().chain(lost).collect())
}

fn tables(
    io: Arc<dyn Io>,
    dir: &Path,
    options: &Options,
    salvaged: bool,
) -> Arc<Tables> {
    Arc::new(Tables {
        io,
        dir: dir.to_path_buf(),
        cache: BlockCache::new(options.cache_bytes),
        salvaged,
        damage_notes: DamageNotes::default(),
    })
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
            Err(e) => return Err(Error::hard("sync", parent, e)),
        }
    }
    Ok(())
}

/// Removes the tables that a crash left unnamed.
fn remove_orphans(io: &dyn Io, dir: &Path, found: &Found, state: &State) -> Result<()> {
    let known = |n: &u64| state.tables.iter().any(|(_, t)| t.number == *n);
    let orphans = found
        .tables
        .iter()
        .filter(|n| !known(n))
        .map(|n| names::table(dir, *n));
    let copies = found.copies.iter().filter(|n| !known(n));
    let orphans = orphans.chain(copies.map(|n| names::table_copy(dir, *n)));
    let side = found.side.iter().filter(|n| !state.side.contains_key(n));
    for path in orphans.chain(side.map(|n| side::path(dir, *n))) {
        io.remove(&path)
            .map_err(|e| Error::io("remove", &path, e))?;
    }
    Ok(())
}

/// The store as tables and log have it, with no log file to write to yet.
fn replay(
    tables: Arc<Tables>,
    options: Options,
    manifest: Manifest,
    found: &Found,
    mut damage: Vec<Damage>,
    new: bool,
) -> Result<Core> {
    let (io, dir) = (&*tables.io, &*tables.dir);
    let state = manifest.state();
    let (own_flushed, side_flushed) = (state.flushed, state.side_flushed);
    let flushed = own_flushed.min(side_flushed);
    let expected = match state.mark {
        Mark::Open => Expected {
            flushed,
            synced: own_flushed.max(side_flushed),
            last: None,
            file: state.log.filter(|_| !new),
        },
        Mark::Closed(last) => Expected {
            flushed,
            synced: flushed,
            last: Some(last),
            file: None,
        },
    };
    let mode = match tables.salvaged {
        true => Mode::Salvage,
        false => Mode::GoOn,
    };
    let edit = Edit {
        add: state.tables.clone(),
        ..Edit::default()
    };
    let levels = Levels::default().edited(&edit, |meta| {
        Arc::new(Table::new(tables.clone(), meta.clone()))
    });
    let tables_and_copies = found.tables.iter().chain(&found.copies);
    let numbers = (found.logs.iter().chain(&found.side)).chain(tables_and_copies);
    let next_file = numbers.map(|n| n + 1).fold(state.next_file, u64::max);
    let mut active = Arc::new(MemTable::default());
    let mut sealed = Vec::new();
    let mut side_log = Vec::new();
    let apply = &mut |sequence, payload: Payload| {
        if sequence > side_flushed && !payload.side.is_empty() {
            side_log.push((sequence, payload.side));
        }
        if sequence <= own_flushed {
            return Ok(());
        }
        active.insert(sequence, payload.ops);
        if active.bytes() >= options.memtable_bytes {
            sealed.push(Arc::new(Sealed {
                table: std::mem::take(&mut active),
                last: sequence,
                logs: Vec::new(),
            }));
        }
        Ok(())
    };
    let recovered = recovery::recover(io, dir, &found.logs, expected, mode, apply)?;
    damage.extend(recovered.damage);
    let last = recovered.last;
    let end = match state.mark {
        _ if new => LogEnd::New,
        Mark::Closed(closed) if closed == last => LogEnd::Clean,
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
    if recovered.files.len() >= OLD_LOGS && !active.is_empty() {
        sealed.push(Arc::new(Sealed {
            table: std::mem::take(&mut active),
            last: recovered.last,
            logs: Vec::new(),
        }));
    }
    let old = recovered.files.into_iter().map(|file| OldLog {
        number: file.number,
        last: file.last,
        bytes: file.bytes,
        harmless: file.harmless,
        unsynced: None,
    });
    let old: Vec<OldLog> = old.collect();
    let grown = AtomicBool::new(!old.is_empty());
    let writer = Writer {
        log: None,
        old,
        sequence: recovered.last,
        buffer: Vec::new(),
        directory_changed: 0,
        directory_synced: 0,
    };
    Ok(Core {
        opened: Opened { end, damage },
        newest_log: AtomicU64::new(0),
        view: RwLock::new(Arc::new(View {
            active,
            sealed,
            levels,
        })),
        visible: AtomicU64::new(recovered.last),
        synced: AtomicU64::new(recovered.last),
        queue: super::queue::Queue::default(),
        writer: Mutex::new(writer),
        syncing: Mutex::default(),
        manifest: Mutex::new(manifest),
        flushing: Mutex::default(),
        compacting: Mutex::new(vec![Vec::new(); LEVELS]),
        signals: Mutex::default(),
        grown,
        work: Condvar::new(),
        progress: Condvar::new(),
        next_file: AtomicU64::new(next_file),
        stop: AtomicBool::new(false),
        closed: AtomicBool::new(false),
        full: AtomicBool::new(false),
        spare_used: AtomicBool::new(false),
        giving_back: Mutex::default(),
        poisoned: AtomicBool::new(false),
        reason: Mutex::default(),
        counters: Counters::default(),
        side: RwLock::default(),
        side_last: AtomicU64::new(side_log.last().map_or(0, |(batch, _)| *batch)),
        side_log: Mutex::new(side_log),
        tables,
        options,
    })
}

/// Makes a replayed store one that takes batches: removes superfluous log files, starts a new one, notes in the manifest that the store is
/// open, makes the reserves.
fn start_log(core: Core) -> Result<Core> {
    let (io, dir) = (core.io(), core.dir());
    let mut writer = core.writer.lock();
    let flushed = {
        let manifest = core.manifest.lock();
        manifest.state().flushed.min(manifest.state().side_flushed)
    };
    let named = core.manifest.lock().state().log;
    let logged = core.options.durability != Durability::None;
    if logged {
        let log = LogWriter::create(io, dir, core.new_number())?;
        core.replace_log(&mut writer, log);
        core.sync_directory(&mut writer)?;
    }
    // On disk before the first batch is: what is there now is no clean end any more.
    let edit = Edit {
        next_file: core.next_file.load(Ordering::Relaxed),
        log: Some(core.newest_log.load(Ordering::Relaxed)),
        mark: Some(Mark::Open),
        ..Edit::default()
    };
    let marked = match core.manifest.lock().append(edit) {
        Ok(()) => true,
        // A later batch tells that the end was not clean.
        Err(e) if e.is_transient() => false,
        Err(e) => return Err(e),
    };
    let superfluous = |old: &OldLog| old.last <= flushed && (marked || Some(old.number) != named);
    for old in writer.old.iter().filter(|old| superfluous(old)) {
        let path = names::log(dir, old.number);
        io.remove(&path)
            .map_err(|e| Error::io("remove", &path, e))?;
    }
    writer.old.retain(|old| !superfluous(old));
    if logged {
        reserve::ensure(io, dir, names::RESERVE, core.options.wal_reserve_bytes)?;
    }
    let spare = reserve::ensure(io, dir, names::SPARE, core.options.table_reserve_bytes)?;
    core.spare_used.store(!spare, Ordering::Release);
    drop(writer);
    Ok(core)
}
