//! An edit of the manifest, its bytes, and the state that edits add up to.
//!
//! An edit's payload:
//!
//! ```text
//!  count times:
//!  1 | level u8 | number | bytes | entries | deletes | first key | last key     a table joins a level
//!  2 | number                                                                   a table leaves
//!  3 | batch                                                                    the log is flushed through this batch
//!  4 | number                                                                   no file number below is free
//!  5 | number | bytes, sized                                                    a file joins the attached engine (or is described anew)
//!  6 | number                                                                   a file leaves it
//!  7 | batch                                                                    its files hold its entries through this batch;
//!                                                                               without it, what 3 says is true of it too
//!  8 | number                                                                   there is a log file of this number (0: none need be)
//!  9 | batch                                                                    the store was closed, and this is its last batch
//!  10                                                                           the store was opened: what 9 says is over
//! ```
//! Numbers are varints, keys a varint length and bytes.
use crate::Keyspace;
use crate::encoding::{Cursor, put_sized, put_varint};
use bytes::Bytes;
use std::collections::BTreeMap;

/// Levels of the row engine that a table may be on.
pub const LEVELS: usize = 7;
/// Levels that an edit may name.
const MOST_LEVELS: u8 = 16;

/// What the manifest knows of a table of the row engine. Sizes in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableMeta {
    /// The number in the file's name.
    pub number: u64,
    /// Length of the file.
    pub bytes: u64,
    /// Number of entries, deletes included.
    pub entries: u64,
    /// Number of deletes.
    pub deletes: u64,
    /// Smallest key, keyspace byte included.
    pub first: Bytes,
    /// Largest key, keyspace byte included.
    pub last: Bytes,
}

impl TableMeta {
    /// Whether some of it is mirrored.
    pub fn has_copy(&self) -> bool {
        self.last.first() >= Some(&Keyspace::FIRST_MIRRORED.0)
    }

    /// Whether the table may hold keys from `first` to `last` (inclusive).
    pub fn overlaps(&self, first: &[u8], last: &[u8]) -> bool {
        self.first <= last && first <= self.last
    }
}

/// A change of the attached engine's files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EngineEdit {
    /// Files that are whole and on disk, by number, with what the engine wants to know of them. May name one again.
    pub add: Vec<(u64, Bytes)>,
    /// Files that are superseded, by number. Applied before `add`. Removing them is the engine's affair.
    pub remove: Vec<u64>,
    /// The engine's files hold its entries through this batch.
    pub flushed: Option<u64>,
}

/// Whether the store is in use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OpenState {
    /// It was opened, and not closed since.
    #[default]
    Open,
    /// It was closed, and this is its last batch.
    Closed(u64),
}

/// One change of the state.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Edit {
    /// Tables that join, with their level.
    pub add: Vec<(u8, TableMeta)>,
    /// Tables that leave, by number. Applied before `add`.
    pub remove: Vec<u64>,
    /// The log is flushed through this batch.
    pub flushed: Option<u64>,
    /// No file number below is free.
    pub next_file: u64,
    /// What changes at the attached engine.
    pub engine: EngineEdit,
    /// There is a log file of this number; 0: none need be. It goes only after an edit that names another, or closes the store.
    pub log: Option<u64>,
    /// The store is opened or closed.
    pub mark: Option<OpenState>,
}

impl Edit {
    /// Writes its payload.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let tagged = |out: &mut Vec<u8>, tag, number| {
            out.push(tag);
            put_varint(out, number);
        };
        for number in &self.remove {
            tagged(out, 2, *number);
        }
        for (level, t) in &self.add {
            out.extend_from_slice(&[1, *level]);
            for v in [t.number, t.bytes, t.entries, t.deletes] {
                put_varint(out, v);
            }
            put_sized(out, &t.first);
            put_sized(out, &t.last);
        }
        if let Some(batch) = self.flushed {
            tagged(out, 3, batch);
        }
        tagged(out, 4, self.next_file);
        for number in &self.engine.remove {
            tagged(out, 6, *number);
        }
        for (number, description) in &self.engine.add {
            tagged(out, 5, *number);
            put_sized(out, description);
        }
        if let Some(batch) = self.engine.flushed {
            tagged(out, 7, batch);
        }
        if let Some(number) = self.log {
            tagged(out, 8, number);
        }
        match self.mark {
            Some(OpenState::Closed(batch)) => tagged(out, 9, batch),
            Some(OpenState::Open) => out.push(10),
            None => {}
        }
    }

    /// Of a payload. `None` if it is none.
    pub fn decode(payload: &[u8]) -> Option<Edit> {
        let mut cursor = Cursor::new(payload);
        let mut edit = Edit::default();
        while !cursor.is_empty() {
            match cursor.u8()? {
                1 => {
                    let level = cursor.u8().filter(|l| *l < MOST_LEVELS)?;
                    let meta = TableMeta {
                        number: cursor.varint()?,
                        bytes: cursor.varint()?,
                        entries: cursor.varint()?,
                        deletes: cursor.varint()?,
                        first: Bytes::copy_from_slice(cursor.sized()?),
                        last: Bytes::copy_from_slice(cursor.sized()?),
                    };
                    edit.add.push((level, meta));
                }
                2 => edit.remove.push(cursor.varint()?),
                3 => edit.flushed = Some(cursor.varint()?),
                4 => edit.next_file = cursor.varint()?,
                5 => {
                    let number = cursor.varint()?;
                    let description = Bytes::copy_from_slice(cursor.sized()?);
                    edit.engine.add.push((number, description));
                }
                6 => edit.engine.remove.push(cursor.varint()?),
                7 => edit.engine.flushed = Some(cursor.varint()?),
                8 => edit.log = Some(cursor.varint()?),
                9 => edit.mark = Some(OpenState::Closed(cursor.varint()?)),
                10 => edit.mark = Some(OpenState::Open),
                _ => return None,
            }
        }
        Some(edit)
    }
}

/// The sum of all edits.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ManifestState {
    /// All tables with their level.
    pub tables: Vec<(u8, TableMeta)>,
    /// The log is flushed through this batch.
    pub flushed: u64,
    /// No file number below is free.
    pub next_file: u64,
    /// The attached engine's files, and what it wants to know of them.
    pub engine_files: BTreeMap<u64, Bytes>,
    /// They hold its entries through this batch.
    pub engine_flushed: u64,
    /// There is a log file of this number, while the store is open.
    pub log: Option<u64>,
    /// Whether the store is in use.
    pub mark: OpenState,
}

impl ManifestState {
    /// Files of all engines hold what batches brought through this one.
    pub fn flushed_by_all(&self) -> u64 {
        self.flushed.min(self.engine_flushed)
    }

    /// The state after the edit.
    pub fn apply(&mut self, edit: Edit) {
        self.tables
            .retain(|(_, t)| !edit.remove.contains(&t.number));
        self.tables.extend(edit.add);
        self.flushed = edit.flushed.unwrap_or(self.flushed);
        self.next_file = self.next_file.max(edit.next_file);
        for number in edit.engine.remove {
            self.engine_files.remove(&number);
        }
        self.engine_files.extend(edit.engine.add);
        let engine_flushed = edit.engine.flushed.or(edit.flushed).unwrap_or(0);
        self.engine_flushed = self.engine_flushed.max(engine_flushed);
        self.log = edit
            .log
            .map_or(self.log, |log| Some(log).filter(|n| *n > 0));
        self.mark = edit.mark.unwrap_or(self.mark);
    }

    /// One edit that makes this state of an empty one.
    pub fn as_edit(&self) -> Edit {
        Edit {
            add: self.tables.clone(),
            remove: Vec::new(),
            flushed: Some(self.flushed),
            next_file: self.next_file,
            engine: EngineEdit {
                add: self.engine_files.clone().into_iter().collect(),
                remove: Vec::new(),
                flushed: Some(self.engine_flushed),
            },
            log: Some(self.log.unwrap_or(0)),
            mark: Some(self.mark),
        }
    }
}
