//! Reading a table file.
//!
//! The metadata region is kept in memory within a budget (`cache`); the file is [asked for](TableFile) at each read.
use super::block_map::BlockMap;
use super::cache::Cache;
use super::cached_table::{CachedTable, ReadWidth};
use super::footer::{self, Footer};
use super::region::{self, BlockLocation};
use super::writer::TableMeta;
use crate::cluster::Alpha;
use crate::csm::block::Block;
use crate::csm::record::Key;
use crate::csm::stats::Counters;
use bytes::Bytes;
use forebay_storage::{
    Damage, DamageNotes, Error, Io, OpenTable, PossibleLoss, Provenance, Result, TableFile,
    bit_correction,
};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes at the end of a file that are read at once for its footer and metadata region. Mostly that is the whole file: reading some pages
/// takes hardly longer than reading one, and then the system has the blocks in its cache.
const TAIL_BYTES: u64 = 32 << 10;

/// What all tables of an index share.
pub struct TableContext {
    /// The file system.
    pub io: Arc<dyn Io>,
    /// What is kept of table files.
    pub cache: Cache,
    /// The least locality factor of a region.
    pub alpha: Alpha,
    /// Counters of the engine.
    pub counters: Counters,
    /// Whether reads bring much that nobody asked for.
    pub(super) width: ReadWidth,
    /// The store is only read, around whatever is damaged.
    pub salvaged: bool,
    /// The damage that reads met.
    pub damage_notes: DamageNotes,
}

impl TableContext {
    /// Keeps at most `budget` bytes of table files.
    pub fn new(io: Arc<dyn Io>, budget: usize, alpha: Alpha) -> TableContext {
        TableContext {
            io,
            cache: Cache::new(budget),
            alpha,
            counters: Counters::default(),
            width: ReadWidth::default(),
            salvaged: false,
            damage_notes: DamageNotes::default(),
        }
    }
}

/// A table file that something names. Its metadata region is read at first use, so that a damaged table fails only those reads
/// that need it.
pub struct Table {
    /// What it shares with the others.
    pub shared: Arc<TableContext>,
    file: TableFile,
    meta: TableMeta,
    pub(super) cached: Arc<CachedTable>,
}

impl Table {
    /// The table that `meta` names, in the file `path`.
    pub fn new(shared: Arc<TableContext>, path: PathBuf, meta: TableMeta) -> Table {
        let cached = Arc::new(CachedTable::new(shared.alpha));
        shared.cache.insert(meta.number, cached.clone());
        Table {
            file: TableFile::new(shared.io.clone(), path),
            shared,
            meta,
            cached,
        }
    }

    /// What names it.
    pub fn meta(&self) -> &TableMeta {
        &self.meta
    }

    /// The file.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// Removes the file once nobody uses the table any more.
    pub fn make_obsolete(&self) {
        self.file.make_obsolete();
    }

    /// Memory of the metadata region, in bytes.
    pub fn resident_bytes(&self) -> usize {
        self.cached.places_bytes()
    }

    /// All blocks' places, in order.
    ///
    /// # Errors
    /// `Corrupt`, `Format`, `Io`.
    pub fn places(&self) -> Result<Arc<BlockMap>> {
        if let Some(places) = self.cached.places() {
            return Ok(places);
        }
        // Two threads may both read it; the first to end stays.
        let places = Arc::new(BlockMap::new(&self.read_places(&self.file.open()?)?));
        let cache = &self.shared.cache;
        self.cached.mark_used(cache.next_use());
        self.cached
            .keep_places(&places, |bytes| cache.add_bytes(bytes));
        cache.trim();
        Ok(places)
    }

    /// The numbers of the blocks that may hold keys from `from` to `to`, both included.
    ///
    /// # Errors
    /// As [`places`](Table::places).
    pub fn range(&self, from: Key, to: Key) -> Result<Range<usize>> {
        let places = self.places()?;
        let start = places.ending_before(from);
        let end = places.upper_bound(to, 0);
        Ok(start..end.max(start))
    }

    /// The blocks of `range`, in one read.
    ///
    /// # Errors
    /// `Corrupt` names the block; `Io`.
    pub fn read(&self, range: Range<usize>) -> Result<Vec<Block>> {
        let places = self.places()?;
        let places: Vec<BlockLocation> = range.map(|i| places.at(i)).collect();
        self.read_blocks(&places)
    }

    fn read_blocks(&self, places: &[BlockLocation]) -> Result<Vec<Block>> {
        let (Some(first), Some(last)) = (places.first(), places.last()) else {
            return Ok(Vec::new());
        };
        let start = first.offset;
        let bytes = Bytes::from(self.read_bytes(start, (last.end() - start) as usize)?);
        let block = |place: &BlockLocation| {
            let (from, to) = (place.offset - start, place.end() - start);
            let mut raw =
                bytes.slice((from as usize).min(bytes.len())..(to as usize).min(bytes.len()));
            if forebay_checksum::crc32c(&raw) != place.crc || raw.len() != place.length as usize {
                let mut copy = raw.to_vec();
                self.correct(place, &mut copy)?;
                raw = copy.into();
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

    /// The error for block `i`, whose bytes have the right checksum and are no block all the same.
    pub fn no_block(&self, i: usize) -> Error {
        let places = self.places().unwrap_or_default();
        let place = (i < places.len()).then(|| places.at(i));
        let (offset, crc) = place.map_or((0, 0), |p| (p.offset, p.crc));
        self.file.corrupt("block layout", offset, crc, crc)
    }

    /// The error for a block that was read with others as `bytes`, from `start` on, and has a wrong checksum.
    pub(super) fn damaged(&self, place: &BlockLocation, start: u64, bytes: &[u8]) -> Error {
        let at = |offset: u64| ((offset - start) as usize).min(bytes.len());
        let found = forebay_checksum::crc32c(&bytes[at(place.offset)..at(place.end())]);
        self.file.corrupt("block", place.offset, place.crc, found)
    }

    /// Puts a block with a wrong checksum right if one bit of it was flipped: then it has the records that its place says. It is noted either way.
    ///
    /// # Errors
    /// `Corrupt`: it is as it was.
    pub(super) fn correct(&self, place: &BlockLocation, raw: &mut [u8]) -> Result<()> {
        let damage = self.corrected(place, raw);
        let error = damage.error.clone();
        let corrected = damage.lost.is_nothing();
        self.shared.damage_notes.note(damage);
        match corrected {
            true => Ok(()),
            false => Err(error),
        }
    }

    /// The same without a note: what is damaged, and what that costs.
    fn corrected(&self, place: &BlockLocation, raw: &mut [u8]) -> Damage {
        let found = forebay_checksum::crc32c(raw);
        let error = self.file.corrupt("block", place.offset, place.crc, found);
        let mut copy = raw.to_vec();
        let byte = match raw.len() == place.length as usize {
            true => bit_correction::correct(&mut copy, place.crc),
            false => None,
        };
        match byte.filter(|_| place.records_in(&copy, &mut Vec::new()).is_some()) {
            Some(byte) => {
                raw.copy_from_slice(&copy);
                let byte = place.offset + byte as u64;
                let lost = PossibleLoss::Corrected { byte };
                Damage { error, lost }
            }
            None => damage_losing(error, place.first, place.last),
        }
    }

    /// The error for a block whose reader gave up in a panic.
    pub(super) fn given_up(&self, block: u32) -> Error {
        Error::format(
            self.path(),
            format!(
                "the thread that read block {block} for others panicked; try again, and report this"
            ),
        )
    }

    /// Reads everything and reports all damage.
    pub fn check(&self, damage: &mut Vec<Damage>) {
        let all = |error| damage_losing(error, self.meta.first, self.meta.last);
        // From the file, whatever is in memory.
        let file = match self.file.open() {
            Ok(file) => file,
            Err(error) => return damage.push(all(error)),
        };
        let places = match (self.places_at_end(&file), self.places_at_start(&file)) {
            (Ok(places), Ok(_)) => {
                let provenance = Provenance::read(&*self.shared.io, self.path(), self.meta.number);
                damage.extend(provenance.err().map(Damage::without_loss));
                places
            }
            (Ok(places), Err(error)) | (Err(error), Ok(places)) => {
                damage.push(Damage::without_loss(error));
                places
            }
            (Err(error), Err(_)) => return damage.push(all(error)),
        };
        let mut records = Vec::new();
        for place in &places {
            records.clear();
            let mut raw = match self.read_bytes(place.offset, place.length as usize) {
                Ok(raw) => raw,
                Err(error) => {
                    damage.push(damage_losing(error, place.first, place.last));
                    continue;
                }
            };
            let found = forebay_checksum::crc32c(&raw);
            let whole = found == place.crc && raw.len() == place.length as usize;
            if !whole {
                damage.push(self.corrected(place, &mut raw));
            } else if place.records_in(&raw, &mut records).is_none() {
                let what = "block layout";
                let error = self.file.corrupt(what, place.offset, place.crc, found);
                damage.push(damage_losing(error, place.first, place.last));
            }
        }
    }

    /// The bytes from `offset` on, fewer at the end of the file.
    pub(super) fn read_bytes(&self, offset: u64, length: usize) -> Result<Vec<u8>> {
        self.file.open()?.read(offset, length)
    }

    /// All blocks' places: from the end of the file, or from its beginning if the end is damaged or cut off.
    fn read_places(&self, file: &OpenTable<'_>) -> Result<Vec<BlockLocation>> {
        let error = match self.places_at_end(file) {
            Err(e @ Error::Corrupt { .. }) => e,
            read => return read,
        };
        match self.places_at_start(file) {
            Ok(places) => {
                self.shared.damage_notes.note(Damage::without_loss(error));
                Ok(places)
            }
            Err(_) => Err(error),
        }
    }

    fn places_at_end(&self, file: &OpenTable<'_>) -> Result<Vec<BlockLocation>> {
        let length = file.length()?;
        let tail = length.min(TAIL_BYTES);
        let start = length - tail;
        let bytes = file.read(start, tail as usize)?;
        let ends = bytes.len().saturating_sub(footer::LENGTH);
        let footer = Footer::decode(&bytes[ends..], length, self.path())?;
        let region_len = footer.region_len as usize;
        let here = footer.region_at.checked_sub(start).map(|at| at as usize);
        let here = here.and_then(|at| bytes.get(at..at.checked_add(region_len)?));
        let region = match here {
            Some(region) => region.to_vec(),
            None => file.read(footer.region_at, region_len)?,
        };
        let places = self.places_of(&footer, &region)?;
        match places.last().map(BlockLocation::end) == Some(footer.region_at) {
            true => Ok(places),
            false => Err(self.wrong_region(&footer, &region)),
        }
    }

    fn places_at_start(&self, file: &OpenTable<'_>) -> Result<Vec<BlockLocation>> {
        let bytes = file.read(0, footer::LENGTH)?;
        let footer = Footer::decode_copy(&bytes, self.path())?;
        // A length that does not fit into the file is wrong, and may be too much for the memory.
        let length = u64::from(footer.region_len).min(self.meta.bytes);
        let region = file.read(footer.region_at, length as usize)?;
        self.places_of(&footer, &region)
    }

    fn places_of(&self, footer: &Footer, region: &[u8]) -> Result<Vec<BlockLocation>> {
        if footer.region_crc != forebay_checksum::crc32c(region) {
            return Err(self.wrong_region(footer, region));
        }
        let first = footer::LENGTH as u64 + u64::from(footer.region_len);
        let places = region::decode(region, footer.blocks, first);
        let places = places.filter(|places| {
            let ends = places.first().zip(places.last());
            ends.is_some_and(|(a, b)| a.first == self.meta.first && b.last == self.meta.last)
                && places.iter().map(|p| u64::from(p.records)).sum::<u64>() == self.meta.records
        });
        places.ok_or_else(|| self.wrong_region(footer, region))
    }

    fn wrong_region(&self, footer: &Footer, region: &[u8]) -> Error {
        let (expected, found) = (footer.region_crc, forebay_checksum::crc32c(region));
        self.file
            .corrupt("metadata region", footer.region_at, expected, found)
    }
}

/// An error that costs records with keys from `first` to `last`, as the store is told of them.
fn damage_losing(error: Error, first: Key, last: Key) -> Damage {
    let bytes = |key: Key| Bytes::copy_from_slice(&key.number().to_be_bytes());
    let lost = PossibleLoss::EngineKeys {
        first: bytes(first),
        last: bytes(last),
    };
    Damage { error, lost }
}

impl Drop for Table {
    fn drop(&mut self) {
        self.shared.cache.remove(self.meta.number, &self.cached);
    }
}

#[cfg(test)]
mod tests {
    use super::super::Writer;
    use super::*;
    use crate::csm::block::BlockSplitter;
    use crate::csm::record::Record;
    use crate::csm::tests::records;
    use forebay_storage::OsIo;
    use proptest::prelude::*;
    use std::path::Path;

    fn shared() -> Arc<TableContext> {
        Arc::new(TableContext::new(Arc::new(OsIo), 1 << 20, Alpha::default()))
    }

    fn written(dir: &Path, records: &[Record]) -> Option<TableMeta> {
        let mut splitter = BlockSplitter::new(500);
        let mut blocks: Vec<Block> = records.iter().filter_map(|r| splitter.add(*r)).collect();
        blocks.extend(splitter.cut());
        let mut writer = Writer::create(Arc::new(OsIo), dir.join("t"), 7).unwrap();
        if blocks.is_empty() {
            writer.abandon();
            return None;
        }
        blocks.iter().for_each(|b| writer.add(b));
        assert_eq!(writer.blocks(), blocks.len());
        let provenance = |m: &TableMeta| {
            Ok(Provenance::of_engine_file(m.number, Bytes::new(), &[]).encode(m.number))
        };
        Some(writer.finish(provenance).unwrap().0)
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
                let read = all(&open());
                prop_assert!(read.is_err() || read.unwrap() == records, "bit {} of {} bytes", bit, whole.len());
                let mut errors = Vec::new();
                open().check(&mut errors);
                prop_assert!(!errors.is_empty());
            }
            for cut in [0, 1, 63, 64, whole.len() / 2, whole.len() - 1] {
                std::fs::write(&file, &whole[..cut.min(whole.len() - 1)]).unwrap();
                let read = all(&open());
                prop_assert!(read.is_err() || read.unwrap() == records, "cut at {cut}");
                let mut errors = Vec::new();
                open().check(&mut errors);
                prop_assert!(!errors.is_empty());
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
        newer[at + 8] = 4;
        let sum = forebay_checksum::crc32c(&newer[at..at + 60]);
        newer[at + 60..].copy_from_slice(&sum.to_le_bytes());
        std::fs::write(&file, newer).unwrap();
        let said = table.places().unwrap_err().to_string();
        assert!(
            said.contains("version 4") && said.contains("newer Forebay"),
            "{said}"
        );
        std::fs::write(&file, whole).unwrap();
        table.make_obsolete();
        assert_eq!(all(&table).unwrap(), [record]);
        drop(table);
        assert!(!file.exists());
    }
}
