//! The locations of records in the files of a store: for tests that damage a file and must know what it held.
//!
//! Not part of the interface; hidden from the documentation.
use super::Store;
use crate::io::read_file;
use crate::rows::table::frame;
use crate::wal::record::{self, RecordStep, Records};
use crate::wal::{header, payload};
use crate::{Op, Result, names};
use bytes::Bytes;
use std::ops::Range;
use std::path::PathBuf;

/// Bytes of a file that are checked as a whole, and what they hold.
#[derive(Debug, Clone)]
pub struct RecordLocation {
    /// The file.
    pub path: PathBuf,
    /// Where in it.
    pub bytes: Range<u64>,
    /// The number of the batch, in a log.
    pub batch: Option<u64>,
    /// Entries of the store, deletes included.
    pub rows: Vec<Op>,
    /// Entries for the attached engine, in a log.
    pub entries: Vec<Bytes>,
}

impl Store {
    /// Every block of every table, and every record of every log file that is there. The store is one that was opened to be salvaged, and whole.
    ///
    /// # Errors
    /// Those of reading.
    pub fn record_locations(&self) -> Result<Vec<RecordLocation>> {
        let mut locations = Vec::new();
        for table in self.rows.state.view().levels.all() {
            for i in 0..table.blocks()? {
                let (block, place) = (table.block(i)?, table.place(i)?);
                let row = |k: usize| {
                    let (keyspace, key) = block.key(k).split_first()?;
                    Some(Op {
                        keyspace: crate::Keyspace(*keyspace),
                        key: Bytes::copy_from_slice(key),
                        value: block.shared_value(k),
                    })
                };
                locations.push(RecordLocation {
                    path: table.path().to_path_buf(),
                    bytes: place.start - frame::LENGTH as u64..place.end,
                    batch: None,
                    rows: (0..block.len()).filter_map(row).collect(),
                    entries: Vec::new(),
                });
            }
        }
        let host = &self.host;
        for old in &host.log.lock().old {
            let path = names::log(host.dir(), old.number);
            let bytes = read_file(&*host.io, &path)?;
            for step in Records::new(&bytes, old.number, header::LENGTH.min(bytes.len())) {
                let RecordStep::Record(r) = step else {
                    continue;
                };
                let Some(batch) = payload::decode(r.payload) else {
                    continue;
                };
                let start = r.offset as u64;
                locations.push(RecordLocation {
                    path: path.clone(),
                    bytes: start..start + (record::HEADER + r.payload.len()) as u64,
                    batch: Some(r.sequence),
                    rows: batch.ops,
                    entries: batch.entries.into_iter().map(|e| e.bytes).collect(),
                });
            }
        }
        Ok(locations)
    }
}
