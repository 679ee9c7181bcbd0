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
//!  5 | number | bytes, sized                                                    a file joins the side (or is told anew)
//!  6 | number                                                                   a file leaves the side
//!  7 | batch                                                                    the side holds its entries through this batch;
//!                                                                               without it, what 3 says is true of the side too
//!  8 | number                                                                   there is a log file of this number (0: none need be)
//!  9 | batch                                                                    the store was closed, and this is its last batch
//!  10                                                                           the store was opened: what 9 says is over
//! ```
//! Numbers are varints, keys a varint length and bytes.
use crate::side::SideEdit;
use crate::table::TableMeta;
use crate::wire::{Cursor, put_sized, put_varint};
use bytes::Bytes;
use std::collections::BTreeMap;

const LEVELS: u8 = 16;

/// Whether the store is in use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Mark {
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
    /// What changes at the side.
    pub side: SideEdit,
    /// There is a log file of this number; 0: none need be. It goes only after an edit that names another, or closes the store.
    pub log: Option<u64>,
    /// The store is opened or closed.
    pub mark: Option<Mark>,
}

impl Edit {
    /// Writes its payload.
    pub fn encode(&self, out: &mut Vec<u8>) {
        for number in &self.remove {
            out.push(2);
            put_varint(out, *number);
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
            out.push(3);
            put_varint(out, batch);
        }
        out.push(4);
        put_varint(out, self.next_file);
        for number in &self.side.remove {
            out.push(6);
            put_varint(out, *number);
        }
        for (number, told) in &self.side.add {
            out.push(5);
            put_varint(out, *number);
            put_sized(out, told);
        }
        if let Some(batch) = self.side.flushed {
            out.push(7);
            put_varint(out, batch);
        }
        if let Some(number) = self.log {
            out.push(8);
            put_varint(out, number);
        }
        match self.mark {
            Some(Mark::Closed(batch)) => {
                out.push(9);
                put_varint(out, batch);
            }
            Some(Mark::Open) => out.push(10),
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
                    let level = cursor.u8().filter(|l| *l < LEVELS)?;
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
                    let told = Bytes::copy_from_slice(cursor.sized()?);
                    edit.side.add.push((number, told));
                }
                6 => edit.side.remove.push(cursor.varint()?),
                7 => edit.side.flushed = Some(cursor.varint()?),
                8 => edit.log = Some(cursor.varint()?),
                9 => edit.mark = Some(Mark::Closed(cursor.varint()?)),
                10 => edit.mark = Some(Mark::Open),
                _ => return None,
            }
        }
        Some(edit)
    }
}

/// The sum of all edits.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct State {
    /// All tables with their level.
    pub tables: Vec<(u8, TableMeta)>,
    /// The log is flushed through this batch.
    pub flushed: u64,
    /// No file number below is free.
    pub next_file: u64,
    /// The side's files, and what it wants to know of them.
    pub side: BTreeMap<u64, Bytes>,
    /// They hold its entries through this batch.
    pub side_flushed: u64,
    /// There is a log file of this number, while the store is open.
    pub log: Option<u64>,
    /// Whether the store is in use.
    pub mark: Mark,
}

impl State {
    /// The state after the edit.
    pub fn apply(&mut self, edit: Edit) {
        self.tables
            .retain(|(_, t)| !edit.remove.contains(&t.number));
        self.tables.extend(edit.add);
        self.flushed = edit.flushed.unwrap_or(self.flushed);
        self.next_file = self.next_file.max(edit.next_file);
        for number in edit.side.remove {
            self.side.remove(&number);
        }
        self.side.extend(edit.side.add);
        let side_flushed = edit.side.flushed.or(edit.flushed).unwrap_or(0);
        self.side_flushed = self.side_flushed.max(side_flushed);
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
            side: SideEdit {
                add: self
                    .side
                    .iter()
                    .map(|(n, told)| (*n, told.clone()))
                    .collect(),
                remove: Vec::new(),
                flushed: Some(self.side_flushed),
            },
            log: Some(self.log.unwrap_or(0)),
            mark: Some(self.mark),
        }
    }
}
