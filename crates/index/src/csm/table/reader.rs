//! Reading a table file.
//!
//! The metadata region stays in memory once read; the file is opened for each read, for an index may have thousands of tables
//! and a process only so many open files.
use super::footer::{self, Footer};
use super::region::{self, Place};
use super::writer::{Meta, remove};
use crate::csm::block::Block;
use crate::csm::record::{Key, Record};
use bytes::Bytes;
use forebay_storage::{BlockCache, Decoded, Error, File, Io, Result};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// The records of a block, decompressed.
pub struct Records(pub Vec<Record>);

impl Decoded for Records {
    fn bytes(&self) -> usize {
        size_of::<Records>() + self.0.len() * size_of::<Record>()
    }
}

/// What all tables of an index share.
pub struct Shared {
    /// The file system.
    pub io: Arc<dyn Io>,
    /// Decompressed blocks of table files.
    pub cache: BlockCache<Records>,
}

/// A table file that something names. Its metadata region is read at first use, so that a damaged table fails only those reads
/// that need it.
pub struct Table {
    shared: Arc<Shared>,
    path: PathBuf,
    meta: Meta,
    places: OnceLock<Vec<Place>>,
    obsolete: AtomicBool,
}

impl Table {
    /// The table that `meta` names, in the file `path`.
    pub fn new(shared: Arc<Shared>, path: PathBuf, meta: Meta) -> Table {
        Table {
            path,
            shared,
            meta,
            places: OnceLock::new(),
            obsolete: AtomicBool::new(false),
        }
    }

    /// What names it.
    pub fn meta(&self) -> &Meta {
        &self.meta
    }

    /// Whether the error is of this file.
    pub fn is_in(&self, error: &Error) -> bool {
        match error {
            Error::Io { path, .. } | Error::Corrupt { path, .. } | Error::Format { path, .. } => {
                *path == self.path
            }
            _ => false,
        }
    }

    /// Removes the file once nobody uses the table any more.
    pub fn make_obsolete(&self) {
        self.obsolete.store(true, Ordering::Release);
    }

    /// Memory of the metadata region, in bytes.
    pub fn resident_bytes(&self) -> usize {
        self.places.get().map_or(0, |p| size_of_val(&p[..]))
    }

    /// All blocks' places, in order.
    ///
    /// # Errors
    /// `Corrupt`, `Format`, `Io`.
    pub fn places(&self) -> Result<&[Place]> {
        if let Some(places) = self.places.get() {
            return Ok(places);
        }
        // Two threads may both read it; the first to end stays.
        let places = self.read_places(&*self.open()?)?;
        Ok(self.places.get_or_init(|| places))
    }

    /// The numbers of the blocks that may hold keys from `from` to `to`, both included.
    ///
    /// # Errors
    /// As [`places`](Table::places).
    pub fn range(&self, from: Key, to: Key) -> Result<Range<usize>> {
        let places = self.places()?;
        let start = places.partition_point(|p| p.last < from);
        let end = places.partition_point(|p| p.first <= to);
        Ok(start..end.max(start))
    }

    /// The blocks of `range`, in one read.
    ///
    /// # Errors
    /// `Corrupt` names the block; `Io`.
    pub fn read(&self, range: Range<usize>) -> Result<Vec<Block>> {
        let places = &self.places()?[range];
        let (Some(first), Some(last)) = (places.first(), places.last()) else {
            return Ok(Vec::new());
        };
        let file = self.open()?;
        let start = first.offset;
        let bytes = self.read_at(&*file, start, (last.end() - start) as usize)?;
        let block = |place: &Place| {
            let (from, to) = (place.offset - start, place.end() - start);
            let raw = bytes.slice((from as usize).min(bytes.len())..(to as usize).min(bytes.len()));
            let found = crc32c::crc32c(&raw);
            if raw.len() != place.length as usize || found != place.crc {
                return Err(self.corrupt("block", place.offset, place.crc, found));
            }
            Ok(Block {
                first: place.first,
                last: place.last,
                records: place.records,
                deletes: place.deletes,
                bytes: raw,
            })
        };
        places.iter().map(block).collect()
    }

    /// The records of block `i`, from the cache or the file. Of the `ahead` blocks behind it, those that are read with it are
    /// kept too.
    ///
    /// # Errors
    /// `Corrupt` names the block; `Io`.
    pub fn records(&self, i: usize, ahead: usize) -> Result<Arc<Records>> {
        let cache = &self.shared.cache;
        let key = |i: usize| (self.meta.number, i as u32);
        if let Some(found) = cache.get(key(i)) {
            return Ok(found);
        }
        let end = self.places()?.len().min(i + 1 + ahead);
        let mut wanted = None;
        for (block, i) in self.read(i..end)?.into_iter().zip(i..) {
            let mut records = Vec::with_capacity(block.records as usize);
            block
                .records(&mut records)
                .ok_or_else(|| self.no_block(i))?;
            let records = Arc::new(Records(records));
            cache.insert(key(i), records.clone());
            wanted.get_or_insert(records);
        }
        wanted.ok_or_else(|| self.no_block(i))
    }

    /// The error for block `i`, whose bytes have the right checksum and are no block all the same.
    pub fn no_block(&self, i: usize) -> Error {
        let place = self.places.get().and_then(|places| places.get(i));
        let (offset, crc) = place.map_or((0, 0), |p| (p.offset, p.crc));
        self.corrupt("block layout", offset, crc, crc)
    }

    /// Reads everything and reports all damage.
    pub fn check(&self, errors: &mut Vec<Error>) {
        // From the file, whatever is in memory.
        let places = match self.open().and_then(|file| self.read_places(&*file)) {
            Ok(places) => places,
            Err(e) => return errors.push(e),
        };
        let known = Table::new(self.shared.clone(), self.path.clone(), self.meta);
        let _ = known.places.set(places);
        let mut records = Vec::new();
        for i in 0..known.places.get().map_or(0, Vec::len) {
            records.clear();
            match known.read(i..i + 1) {
                Ok(blocks) if blocks.iter().all(|b| b.records(&mut records).is_some()) => {}
                Ok(_) => errors.push(known.no_block(i)),
                Err(e) => errors.push(e),
            }
        }
    }

    fn open(&self) -> Result<Arc<dyn File>> {
        let file = self.shared.io.open(&self.path);
        file.map_err(|e| Error::io("open", &self.path, e))
    }

    fn read_at(&self, file: &dyn File, offset: u64, length: usize) -> Result<Bytes> {
        let mut bytes = vec![0; length];
        let n = file.read_at(&mut bytes, offset);
        bytes.truncate(n.map_err(|e| Error::io("read", &self.path, e))?);
        Ok(bytes.into())
    }

    fn read_places(&self, file: &dyn File) -> Result<Vec<Place>> {
        let length = file.len();
        let length = length.map_err(|e| Error::io("measure", &self.path, e))?;
        let tail = length.min(footer::LENGTH as u64);
        let bytes = self.read_at(file, length - tail, tail as usize)?;
        let footer = Footer::decode(&bytes, length, &self.path)?;
        let region = self.read_at(file, footer.region_at, footer.region_len as usize)?;
        let (expected, found) = (footer.region_crc, crc32c::crc32c(&region));
        let corrupt = || self.corrupt("metadata region", footer.region_at, expected, found);
        if expected != found {
            return Err(corrupt());
        }
        let places = region::decode(&region, footer.blocks, footer.region_at);
        let places = places.filter(|places| {
            let ends = places.first().zip(places.last());
            ends.is_some_and(|(a, b)| a.first == self.meta.first && b.last == self.meta.last)
                && places.iter().map(|p| u64::from(p.records)).sum::<u64>() == self.meta.records
        });
        places.ok_or_else(corrupt)
    }

    fn corrupt(&self, what: &'static str, offset: u64, expected: u32, found: u32) -> Error {
        Error::Corrupt {
            path: self.path.clone(),
            what,
            offset,
            expected,
            found,
        }
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        if *self.obsolete.get_mut() {
            remove(&*self.shared.io, &self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Writer;
    use super::*;
    use crate::csm::block::Cutter;
    use crate::csm::tests::records;
    use forebay_storage::OsIo;
    use proptest::prelude::*;
    use std::path::Path;

    fn shared() -> Arc<Shared> {
        Arc::new(Shared {
            io: Arc::new(OsIo),
            cache: BlockCache::new(1 << 20),
        })
    }

    fn written(dir: &Path, records: &[Record]) -> Option<Meta> {
        let mut cutter = Cutter::new(500);
        let mut blocks: Vec<Block> = records.iter().filter_map(|r| cutter.add(*r)).collect();
        blocks.extend(cutter.cut());
        let mut writer = Writer::create(Arc::new(OsIo), dir.join("t"), 7).unwrap();
        if blocks.is_empty() {
            writer.abandon();
            return None;
        }
        blocks.iter().for_each(|b| writer.add(b));
        assert_eq!(writer.blocks(), blocks.len());
        Some(writer.finish().unwrap())
    }

    fn all(table: &Table) -> Result<Vec<Record>> {
        let mut out = Vec::new();
        for block in table.read(0..table.places()?.len())? {
            block.records(&mut out).unwrap();
        }
        Ok(out)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn tables_come_back_and_no_flipped_bit_is_returned(
            records in records(200), probe in (0u64..4, 0u64..5000), flips in proptest::collection::vec(any::<u32>(), 20),
        ) {
            let dir = tempfile::tempdir().unwrap();
            let Some(meta) = written(dir.path(), &records) else {
                prop_assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
                return Ok(());
            };
            let open = || Table::new(shared(), dir.path().join("t"), meta);
            let table = open();
            prop_assert_eq!(all(&table).unwrap(), records.clone());
            prop_assert_eq!(meta.records, records.len() as u64);
            let mut errors = Vec::new();
            table.check(&mut errors);
            prop_assert!(errors.is_empty(), "{:?}", errors);
            let key = Key { fid: probe.0, offset: probe.1 };
            let found = table.range(key, key).unwrap();
            prop_assert!(found.len() <= 1);
            let held = table.places().unwrap().iter().position(|p| p.first <= key && key <= p.last);
            prop_assert_eq!(held.is_some(), !found.is_empty());
            prop_assert!(held.is_none_or(|i| found == (i..i + 1)));

            let file = dir.path().join("t");
            let whole = std::fs::read(&file).unwrap();
            for flip in flips {
                let bit = flip as usize % (whole.len() * 8);
                let mut bad = whole.clone();
                bad[bit / 8] ^= 1 << (bit % 8);
                std::fs::write(&file, &bad).unwrap();
                prop_assert!(all(&open()).is_err(), "bit {} of {} bytes", bit, whole.len());
                let mut errors = Vec::new();
                open().check(&mut errors);
                prop_assert!(!errors.is_empty());
            }
            for cut in [0, 1, 63, 64, whole.len() / 2, whole.len() - 1] {
                std::fs::write(&file, &whole[..cut.min(whole.len() - 1)]).unwrap();
                prop_assert!(all(&open()).is_err());
            }
        }
    }

    #[test]
    fn a_newer_version_says_so_and_an_obsolete_table_goes_with_its_last_user() {
        let dir = tempfile::tempdir().unwrap();
        let record = Record {
            len: 5,
            ..Record::delete(Key { fid: 1, offset: 2 })
        };
        let meta = written(dir.path(), &[record]).unwrap();
        let table = Table::new(shared(), dir.path().join("t"), meta);
        let file = dir.path().join("t");
        let whole = std::fs::read(&file).unwrap();
        let mut newer = whole.clone();
        let at = newer.len() - footer::LENGTH;
        newer[at + 8] = 2;
        let sum = crc32c::crc32c(&newer[at..at + 60]);
        newer[at + 60..].copy_from_slice(&sum.to_le_bytes());
        std::fs::write(&file, newer).unwrap();
        let said = table.places().unwrap_err().to_string();
        assert!(
            said.contains("version 2") && said.contains("newer Forebay"),
            "{said}"
        );
        std::fs::write(&file, whole).unwrap();
        table.make_obsolete();
        assert_eq!(all(&table).unwrap(), [record]);
        drop(table);
        assert!(!file.exists());
    }
}
