//! Opening a store: manifest, tables, log, then the threads. Creates it if there is none.
use super::core::{Core, Counters, OldLog, Sealed, View, Writer};
use super::{Store, background};
use crate::block::BlockFormat;
use crate::cache::BlockCache;
use crate::compaction::{LEVELS, Levels};
use crate::manifest::{Edit, Manifest, State};
use crate::memtable::MemTable;
use crate::names::{self, Name};
use crate::options::{Durability, Options};
use crate::table::{Table, Tables};
use crate::wal::writer::LogWriter;
use crate::wal::{recovery, reserve};
use crate::{Error, Io, Result, side};
use parking_lot::{Condvar, Mutex, RwLock};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

/// Log files left by earlier runs at which the MemTable is flushed, however small.
const OLD_LOGS: usize = 4;

/// The files found in the directory.
#[derive(Default)]
struct Found {
    manifest: bool,
    logs: Vec<u64>,
    tables: Vec<u64>,
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
                Name::Side(n) => found.side.push(n),
                Name::Manifest => found.manifest = true,
                Name::Temporary => found.temporaries.push(entry.name),
                Name::Reserve | Name::Other => {}
            }
        }
        found.logs.sort_unstable();
        Ok(found)
    }
}

/// See [`Store::open_with_format`].
pub fn open(
    io: Arc<dyn Io>,
    dir: &Path,
    options: Options,
    format: Arc<dyn BlockFormat>,
) -> Result<Store> {
    io.create_dir_all(dir)
        .map_err(|e| Error::io("create", dir, e))?;
    let found = Found::list(&*io, dir)?;
    for name in &found.temporaries {
        let path = dir.join(name);
        io.remove(&path)
            .map_err(|e| Error::io("remove", &path, e))?;
    }
    let manifest = if found.manifest {
        Manifest::open(io.clone(), dir)?
    } else if found.logs.is_empty() && found.tables.is_empty() {
        sync_parents(&*io, dir)?;
        Manifest::create(io.clone(), dir)?
    } else {
        let reason = "has log or table files but no MANIFEST: not a whole store; restore MANIFEST from a copy".to_string();
        return Err(Error::Format {
            path: dir.to_path_buf(),
            reason,
        });
    };
    let state = manifest.state().clone();
    remove_orphans(&*io, dir, &found, &state)?;
    let cache = BlockCache::new(options.cache_bytes);
    let tables = Arc::new(Tables {
        io,
        dir: dir.to_path_buf(),
        format,
        cache,
    });
    let edit = Edit {
        add: state.tables.clone(),
        ..Edit::default()
    };
    let levels = Levels::default().edited(&edit, |meta| {
        Arc::new(Table::new(tables.clone(), meta.clone()))
    });
    let next_file = found
        .logs
        .iter()
        .chain(&found.tables)
        .chain(&found.side)
        .map(|n| n + 1)
        .fold(state.next_file, u64::max);
    let core = Arc::new(replay(
        tables,
        options,
        manifest,
        levels,
        &found,
        (state.flushed, state.side_flushed),
        next_file,
    )?);
    let threads = background::start(&core).map_err(|e| Error::hard("start threads for", dir, e))?;
    Ok(Store {
        core,
        threads: Mutex::new(threads),
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
    let side = found.side.iter().filter(|n| !state.side.contains_key(n));
    for path in orphans.chain(side.map(|n| side::path(dir, *n))) {
        io.remove(&path)
            .map_err(|e| Error::io("remove", &path, e))?;
    }
    Ok(())
}

fn replay(
    tables: Arc<Tables>,
    options: Options,
    manifest: Manifest,
    levels: Levels,
    found: &Found,
    (own_flushed, side_flushed): (u64, u64),
    next_file: u64,
) -> Result<Core> {
    let (io, dir) = (&*tables.io, &*tables.dir);
    let mut active = Arc::new(MemTable::default());
    let mut sealed = Vec::new();
    let mut side_log = Vec::new();
    let flushed = own_flushed.min(side_flushed);
    let recovered = recovery::recover(io, dir, &found.logs, flushed, &mut |sequence, payload| {
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
    })?;
    if recovered.files.len() >= OLD_LOGS && !active.is_empty() {
        sealed.push(Arc::new(Sealed {
            table: std::mem::take(&mut active),
            last: recovered.last,
            logs: Vec::new(),
        }));
    }
    let mut old = Vec::new();
    for file in recovered.files {
        if file.last <= flushed {
            let path = names::log(dir, file.number);
            io.remove(&path)
                .map_err(|e| Error::io("remove", &path, e))?;
        } else {
            old.push(OldLog {
                number: file.number,
                last: file.last,
                bytes: file.bytes,
                harmless: file.harmless,
                unsynced: None,
            });
        }
    }
    let logged = options.durability != Durability::None;
    let log = if logged {
        Some(LogWriter::create(io, dir, next_file)?)
    } else {
        None
    };
    if logged {
        reserve::ensure(io, dir, names::RESERVE, options.wal_reserve_bytes)?;
    }
    let spare = reserve::ensure(io, dir, names::SPARE, options.table_reserve_bytes)?;
    let writer = Writer {
        log,
        old,
        sequence: recovered.last,
        buffer: Vec::new(),
        directory_changed: 1,
        directory_synced: 0,
    };
    Ok(Core {
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
        work: Condvar::new(),
        progress: Condvar::new(),
        next_file: AtomicU64::new(next_file + 1),
        stop: AtomicBool::new(false),
        closed: AtomicBool::new(false),
        full: AtomicBool::new(false),
        spare_used: AtomicBool::new(!spare),
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
