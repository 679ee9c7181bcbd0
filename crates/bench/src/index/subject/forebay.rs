//! Forebay: an extent index on its store, as a member has it.
use super::{FID, Record, RecordLocation, Subject, Tuning, Worker};
use crate::fail::{Context, Failure, Result};
use crate::sizes;
use forebay_index::Alpha;
use forebay_index::Settings;
use forebay_index::{Change, Extent, ExtentIndex};
use forebay_storage::{Batch, Durability, Engine, Options, OsIo, Store};
use parking_lot::Mutex;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// See the head of this file.
pub struct Forebay {
    store: Arc<Store>,
    index: ExtentIndex,
    /// Changes of one file are serialised by whoever makes them; in the service it is the file's commit lock.
    change: Mutex<()>,
}

/// How the budget is divided, and how long the log may get: everything is in memory twice over before it is cut.
fn settings(tuning: &Tuning) -> Result<(Options, Settings)> {
    let memory = tuning.memory as usize;
    let alpha = Alpha::new(tuning.alpha);
    let alpha = alpha.ok_or_else(|| Failure::new("--alpha must be above 0 and at most 1"))?;
    let settings = Settings {
        block_bytes: tuning.block_bytes as usize,
        memtable_bytes: memory / 12,
        // With three MemTables, cache and known ranges that is all of it.
        buffer_bytes: memory / 8 * 3,
        cache_bytes: memory / 4,
        coverage_bytes: memory / 8,
        alpha,
        ..Settings::default()
    };
    let options = Options {
        durability: Durability::Process,
        // Nothing but the index is in this store.
        memtable_bytes: 64 << 10,
        cache_bytes: 64 << 10,
        wal_bytes: tuning.memory,
        ..Options::default()
    };
    Ok((options, settings))
}

/// For the header.
pub fn describe(tuning: &Tuning) -> String {
    settings(tuning).map_or(String::new(), |(options, s)| {
        let size = |n: usize| sizes::show(n as f64);
        format!(
            "blocks {}, {} a table, MemTables {} (3 at most), compression buffer {}, block cache {}, known ranges {}, alpha {}, log files {}",
            size(s.block_bytes),
            s.table_blocks,
            size(s.memtable_bytes),
            size(s.buffer_bytes),
            size(s.cache_bytes),
            size(s.coverage_bytes),
            s.alpha,
            sizes::show(options.wal_bytes as f64),
        )
    })
}

impl Forebay {
    /// Opens it.
    pub fn open(dir: &Path, tuning: &Tuning) -> Result<Forebay> {
        let (options, settings) = settings(tuning)?;
        let store = Store::open(Arc::new(OsIo), dir, options).doing("open the store")?;
        let index = ExtentIndex::open(&store, settings).doing("open the index")?;
        Ok(Forebay {
            store: Arc::new(store),
            index,
            change: Mutex::new(()),
        })
    }
}

impl Subject for Forebay {
    fn worker(&self) -> Result<Box<dyn Worker + '_>> {
        Ok(Box::new(ForebayWorker {
            subject: self,
            changes: Vec::new(),
            requests: Vec::new(),
        }))
    }

    fn flush(&self) -> Result<()> {
        self.index.engine().flush().doing("flush the index")
    }

    fn memory(&self) -> u64 {
        let (s, store) = (self.index.engine().stats(), self.store.stats());
        let own = store.memtable_bytes + store.cache_bytes + store.table_memory_bytes;
        s.memtable_bytes + s.buffer_bytes + s.cache_bytes + s.coverage_bytes + s.region_bytes + own
    }

    fn written_to_tables(&self, _: &[u64], _: u64) -> u64 {
        self.index.engine().stats().bytes_written
    }

    fn note(&self) -> String {
        format!("{:?}", self.index.engine().stats())
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.store.close().doing("close the store")
    }
}

struct ForebayWorker<'a> {
    subject: &'a Forebay,
    changes: Vec<Change>,
    requests: Vec<(u64, Range<u64>)>,
}

impl Worker for ForebayWorker<'_> {
    fn put(&mut self, batch: &[Record]) -> Result<()> {
        self.changes.clear();
        self.changes.extend(batch.iter().map(|r| {
            Change::Put(Extent {
                offset: r.offset,
                len: u64::from(r.len),
                member: r.member,
                log: r.log,
                addr: r.addr,
                seq: r.seq,
            })
        }));
        let mut log = Batch::new();
        let _one_at_a_time = self.subject.change.lock();
        let displaced = self.subject.index.change(&mut log, FID, &self.changes)?;
        if !displaced.is_empty() {
            return Err(Failure::new("a put displaced something; none should"));
        }
        Ok(self.subject.store.apply(log)?)
    }

    fn get(&mut self, batch: &[Record], answers: &mut Vec<RecordLocation>) -> Result<()> {
        let request = |r: &Record| (FID, r.offset..r.offset + u64::from(r.len));
        self.requests.clear();
        self.requests.extend(batch.iter().map(request));
        let found = self.subject.index.get_many(&self.requests)?;
        for i in 0..found.len() {
            answers.push(joined(found.get(i)));
        }
        Ok(())
    }
}

/// A record that crosses the end of a slice is two extents; one that lies in a longer extent is a part of it.
fn joined(pieces: &[Extent]) -> RecordLocation {
    let Some((first, rest)) = pieces.split_first() else {
        return RecordLocation {
            member: u16::MAX,
            log: u64::MAX,
            addr: u64::MAX,
            len: 0,
        };
    };
    let mut len = first.len;
    for piece in rest {
        let goes_on = (piece.member, piece.log) == (first.member, first.log)
            && piece.offset == first.offset + len
            && piece.addr == first.addr + len;
        if goes_on {
            len += piece.len;
        }
    }
    RecordLocation {
        member: first.member,
        log: first.log,
        addr: first.addr,
        // None of the benchmark is longer than an extent.
        len: u32::try_from(len).unwrap_or(u32::MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_a_record_are_joined_only_if_they_follow_each_other() {
        let piece = |offset, len, addr| Extent {
            offset,
            len,
            member: 0,
            log: 3,
            addr,
            seq: 1,
        };
        assert_eq!(joined(&[piece(10, 5, 100), piece(15, 7, 105)]).len, 12);
        assert_eq!(joined(&[piece(10, 5, 100), piece(15, 7, 200)]).len, 5);
        assert_eq!(joined(&[]).len, 0);
    }
}
