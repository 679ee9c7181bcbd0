//! The subjects: three stores behind one trait.
#[cfg(feature = "peers")]
mod c_api;
mod forebay;
#[cfg(feature = "peers")]
mod leveldb;
#[cfg(feature = "peers")]
mod rocksdb;
#[cfg(feature = "peers")]
mod value;

use super::workload::Record;
use crate::fail::Result;
use crate::harness::by_name;
use crate::sizes;
use std::path::Path;

/// A store that can be measured.
#[derive(Clone, Copy)]
pub struct StoreType {
    /// As on the command line and in results.
    pub name: &'static str,
    /// Opens the store in a directory, or makes it.
    pub open: fn(&Path, &Tuning) -> Result<Box<dyn Subject>>,
    /// How it is set up, for the header.
    pub describe: fn(&Tuning) -> String,
}

/// All that this program was built with: the extent index on its store; LevelDB, as MDHIM uses it; RocksDB, tuned.
const STORES: &[StoreType] = &[
    StoreType {
        name: "forebay",
        open: |dir, tuning| Ok(Box::new(forebay::Forebay::open(dir, tuning)?)),
        describe: forebay::describe,
    },
    #[cfg(feature = "peers")]
    StoreType {
        name: "leveldb",
        open: |dir, tuning| Ok(Box::new(leveldb::LevelDb::open(dir, tuning)?)),
        describe: leveldb::describe,
    },
    #[cfg(feature = "peers")]
    StoreType {
        name: "rocksdb",
        open: |dir, tuning| Ok(Box::new(rocksdb::RocksDb::open(dir, tuning)?)),
        describe: rocksdb::describe,
    },
];

/// The named subjects, or all.
///
/// # Errors
/// Names the one that there is not.
pub fn select(names: &[String]) -> Result<Vec<StoreType>> {
    let hint = match cfg!(feature = "peers") {
        true => "there are forebay, leveldb, rocksdb",
        false => "this program was built without the feature `peers`: there is forebay",
    };
    by_name("subject", STORES, |store| store.name, names, hint)
}

/// Opens the store of this name.
///
/// # Errors
/// If there is none; those of the store.
pub fn open(name: &str, dir: &Path, tuning: &Tuning) -> Result<Box<dyn Subject>> {
    (select(&[name.into()])?[0].open)(dir, tuning)
}

/// Options of all subjects, and of each.
#[derive(Debug, Clone, clap::Args, serde::Serialize, serde::Deserialize)]
pub struct Tuning {
    /// Memory of a subject: MemTables, buffers and caches together
    #[arg(long, default_value = "64MiB", value_parser = sizes::parse)]
    pub memory: u64,
    /// Forebay: a block before compression
    #[arg(long, default_value = "4KiB", value_parser = sizes::parse)]
    pub block_bytes: u64,
    /// Forebay: the least locality factor of a region
    #[arg(long, default_value_t = 0.8)]
    pub alpha: f64,
    /// LevelDB: NAME=NUMBER pairs with ';' between: write_buffer, cache, bloom (bits, 0: none), block, file (bytes), snappy (0 or 1)
    #[arg(long, default_value = "", hide_default_value = true)]
    pub leveldb_options: String,
    /// RocksDB: its own option string, over ours
    #[arg(long, default_value = "", hide_default_value = true)]
    pub rocksdb_options: String,
}

/// The answer to a get: where the record's bytes are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordLocation {
    /// Member.
    pub member: u16,
    /// Log there.
    pub log: u64,
    /// Its first byte's address.
    pub addr: u64,
    /// Bytes.
    pub len: u32,
}

impl RecordLocation {
    /// The right answer for a record.
    pub fn of(record: &Record) -> RecordLocation {
        RecordLocation {
            member: record.member,
            log: record.log,
            addr: record.addr,
            len: record.len,
        }
    }
}

/// An open store.
pub trait Subject: Sync {
    /// A worker, for one thread.
    fn worker(&self) -> Result<Box<dyn Worker + '_>>;

    /// Brings all that was put into table files before it returns.
    fn flush(&self) -> Result<()>;

    /// Whether it reports work in the background.
    fn busy(&self) -> bool {
        false
    }

    /// Bytes of memory as it counts itself: MemTables, buffers, caches, what it holds of table files.
    fn memory(&self) -> u64;

    /// Bytes written to table files since it was opened, for batches of these lengths, when the process wrote `all` bytes.
    fn written_to_tables(&self, batches: &[u64], all: u64) -> u64;

    /// A line of further facts, for people.
    fn note(&self) -> String;

    /// Stops it: what is in memory is lost, what is on disk stays.
    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

/// Puts and gets of one thread.
pub trait Worker {
    /// Puts a batch; logged when it returns.
    fn put(&mut self, batch: &[Record]) -> Result<()>;

    /// Looks up the records of a batch by offset and length; an answer each.
    fn get(&mut self, batch: &[Record], answers: &mut Vec<RecordLocation>) -> Result<()>;
}

/// The file of the benchmark.
const FID: u64 = 7;

/// Bytes that LevelDB and RocksDB write to their logs for batches with so many records of so many bytes: a head of 12, and the records; cut into fragments that fit into
/// blocks of 32 KiB, each with a head of 7.
#[cfg(feature = "peers")]
fn log_bytes(batches: &[u64], record: u64) -> u64 {
    const BLOCK: u64 = 32 << 10;
    const HEAD: u64 = 7;
    let mut at = 0;
    for records in batches {
        let mut left = 12 + records * record;
        while left > 0 {
            let room = BLOCK - at % BLOCK;
            if room < HEAD {
                at += room;
                continue;
            }
            let part = left.min(room - HEAD);
            at += HEAD + part;
            left -= part;
        }
    }
    at
}

#[cfg(test)]
mod tests {
    use super::super::workload::Workload;
    use super::*;

    /// Puts, flushes, opens again, gets.
    pub fn round_trip(name: &str) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store");
        let tuning = Tuning {
            memory: 8 << 20,
            block_bytes: 4096,
            alpha: 0.8,
            leveldb_options: String::new(),
            rocksdb_options: String::new(),
        };
        // Lines of 1,200 bytes: one crosses the end of a slice.
        let work = Workload::bt(120, 4);
        let records: Vec<Record> = (0..16)
            .flat_map(|w| (0..work.each(w)).map(move |i| (w, i)))
            .map(|(w, i)| work.record(w, i))
            .collect();
        let slice = |offset: u64| offset / forebay_index::SLICE;
        let crosses = |r: &Record| slice(r.offset) != slice(r.offset + u64::from(r.len) - 1);
        assert!(records.iter().any(crosses));
        let right: Vec<RecordLocation> = records.iter().map(RecordLocation::of).collect();
        let subject = open(name, &path, &tuning).unwrap();
        let mut answers = Vec::new();
        {
            let mut worker = subject.worker().unwrap();
            records.chunks(500).for_each(|c| worker.put(c).unwrap());
            worker.get(&records, &mut answers).unwrap();
        }
        assert!(answers == right);
        subject.flush().unwrap();
        assert!(subject.memory() > 0);
        subject.close().unwrap();
        let subject = open(name, &path, &tuning).unwrap();
        answers.clear();
        subject
            .worker()
            .unwrap()
            .get(&records, &mut answers)
            .unwrap();
        assert!(answers == right);
        subject.close().unwrap();
    }

    #[test]
    fn forebay_finds_what_was_put_after_a_flush_and_a_restart() {
        round_trip("forebay");
    }

    #[cfg(feature = "peers")]
    #[test]
    fn log_bytes_count_the_heads_of_fragments() {
        // One record of 49 bytes: 12 + 49, and a head of 7.
        assert_eq!(log_bytes(&[1], 49), 68);
        // 700 records: 34,312 bytes in two fragments; then one behind them.
        assert_eq!(log_bytes(&[700, 1], 49), 34_312 + 14 + 68);
    }

    #[test]
    fn subjects_are_found_by_name() {
        assert_eq!(select(&["forebay".into()]).unwrap()[0].name, "forebay");
        assert_eq!(select(&[]).unwrap().len(), STORES.len());
        assert!(select(&["bdb".into()]).is_err());
    }
}
