//! Reading a table file: gets, whole-block reads, and a full check.
//!
//! Invariant: no byte of a block is used before its checksum was compared, and is right.
//!
//! What cannot be read in the table is read in the [copy](TableCopy) of what is mirrored, if it is there, or with one
//! flipped bit put right ([`bit_correction`]). Either way it is noted for the report of what is damaged in the store.
use super::copy::{TableCopy, is_missing};
use super::metadata::{TableMetadata, TableTail, is_between, read_in};
use super::{filter, frame, index::Index};
use crate::bit_correction;
use crate::damage::{Damage, DamageNotes, PossibleLoss};
use crate::manifest::{Provenance, TableMeta};
use crate::names;
use crate::rows::block::Block;
use crate::rows::cache::BlockCache;
use crate::{Error, Io, Result, TableFile};
use bytes::Bytes;
use parking_lot::Mutex;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// What all tables of a store share.
pub struct TableContext {
    /// The file system.
    pub io: Arc<dyn Io>,
    /// The store's directory.
    pub dir: PathBuf,
    /// Decoded blocks.
    pub cache: BlockCache,
    /// The store is salvaged: only read, and damage is skipped.
    pub salvaged: bool,
    /// The damage that reads met.
    pub damage_notes: DamageNotes,
}

/// One table file. Opened at first use, so that one damaged table fails only those reads that need it.
pub struct Table {
    meta: TableMeta,
    file: TableFile,
    /// The copy of mirrored blocks, if the table has one.
    copy: Option<TableCopy>,
    /// Shared with the other tables of the store.
    pub shared: Arc<TableContext>,
    opened: OnceLock<TableMetadata>,
    opening: Mutex<()>,
}

impl Table {
    /// A table that the manifest names.
    pub fn new(shared: Arc<TableContext>, meta: TableMeta) -> Table {
        let of = |path| TableFile::new(shared.io.clone(), path);
        let copy = || TableCopy::new(of(names::table_copy(&shared.dir, meta.number)));
        Table {
            file: of(names::table(&shared.dir, meta.number)),
            copy: meta.has_copy().then(copy),
            meta,
            shared,
            opened: OnceLock::new(),
            opening: Mutex::new(()),
        }
    }

    /// Its fields in the manifest.
    pub fn meta(&self) -> &TableMeta {
        &self.meta
    }

    /// The file's path.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// Removes the file once nobody uses the table any more.
    pub fn make_obsolete(&self) {
        self.file.make_obsolete();
        if let Some(copy) = &self.copy {
            copy.file.make_obsolete();
        }
    }

    /// Memory of filter and metadata region, in bytes; 0 while not opened.
    pub fn resident_bytes(&self) -> usize {
        self.opened
            .get()
            .map_or(0, |o| o.filter.len() + o.index.bytes())
    }

    fn opened(&self) -> Result<&TableMetadata> {
        if let Some(opened) = self.opened.get() {
            return Ok(opened);
        }
        let _one = self.opening.lock();
        if let Some(opened) = self.opened.get() {
            return Ok(opened);
        }
        let opened = self.open_file()?;
        for error in &opened.damage {
            let harmless = Damage::without_loss(error.clone());
            self.shared.damage_notes.note(harmless);
        }
        Ok(self.opened.get_or_init(|| opened))
    }

    fn open_file(&self) -> Result<TableMetadata> {
        let file = match self.file.open() {
            // What is mirrored can be read without it.
            Err(e) if is_missing(&e) && self.copy_metadata().is_some() => {
                return self.rebuilt(&[], Vec::new(), vec![e]);
            }
            file => file?,
        };
        match TableTail::read(&file, &self.file)? {
            TableTail::Whole(opened) => Ok(opened),
            TableTail::Damaged { filter, damage } => {
                // More than it had is none of it, and may be too much for the memory.
                let length = file.length()?.min(self.meta.bytes) as usize;
                let bytes = file.read(0, length)?;
                self.rebuilt(&bytes, filter, damage)
            }
        }
    }

    /// Rebuilds the metadata region from the blocks in `bytes`, the file's bytes, and from the copy.
    fn rebuilt(&self, bytes: &[u8], filter: Vec<u8>, damage: Vec<Error>) -> Result<TableMetadata> {
        let copy = self.copy_metadata().map(|copy| (&copy.index, copy.entries));
        let rebuilt = frame::rebuild(bytes, &self.meta, copy);
        let (index, complete) =
            rebuilt.ok_or_else(|| self.file.corrupt("order of blocks", 0, 0, 0))?;
        tracing::warn!(complete, file = %self.path().display(), "the blocks of the table were looked for without its metadata region");
        Ok(TableMetadata {
            filter,
            index,
            entries: self.meta.entries,
            damage,
        })
    }

    /// The metadata of the copy, if there is one whose region can be read.
    fn copy_metadata(&self) -> Option<&TableMetadata> {
        self.copy.as_ref()?.metadata()
    }

    /// The value of `key` (keyspace byte first): `None` if it is not here, `Some(None)` if deleted.
    pub fn get(&self, key: &[u8], hash: u64) -> Result<Option<Option<Bytes>>> {
        let opened = self.opened()?;
        if !filter::may_contain(&opened.filter, hash) {
            return Ok(None);
        }
        let i = opened.index.find(key);
        if i == opened.index.len() || opened.index.first(i) > key {
            return Ok(None);
        }
        Ok(self.block(i)?.get(key))
    }

    /// The least and the greatest key of block `i`, if that is known and there is one.
    pub fn block_range(&self, i: usize) -> Option<(Bytes, Bytes)> {
        let index = &self.opened().ok()?.index;
        let copy = Bytes::copy_from_slice;
        (i < index.len()).then(|| (copy(index.first(i)), copy(index.last(i))))
    }

    /// Offset in the file of block `i`, which must exist; bytes.
    pub fn place(&self, i: usize) -> Result<Range<u64>> {
        let place = self.opened()?.index.place(i);
        Ok(place.offset..place.offset.saturating_add(place.length.into()))
    }

    /// Whether `key` (keyspace byte first) may be in this table, as far as is known without its blocks.
    pub fn may_contain(&self, key: &[u8]) -> bool {
        self.opened()
            .map_or(true, |o| filter::may_contain(&o.filter, filter::hash(key)))
    }

    /// Number of blocks.
    pub fn blocks(&self) -> Result<usize> {
        Ok(self.opened()?.index.len())
    }

    /// The only block that can hold `key`, or the first after it.
    pub fn find(&self, key: &[u8]) -> Result<usize> {
        Ok(self.opened()?.index.find(key))
    }

    /// Block `i`, from the cache or the file.
    pub fn block(&self, i: usize) -> Result<Arc<Block>> {
        if let Some(block) = self.cached(i) {
            return Ok(block);
        }
        let block = Arc::new(self.read_blocks(i, 1)?.remove(0));
        self.keep(i, &block);
        Ok(block)
    }

    /// Keeps a block that [`read_blocks`](Table::read_blocks) returned.
    pub fn keep(&self, i: usize, block: &Arc<Block>) {
        self.shared
            .cache
            .insert((self.meta.number, i as u32), block.clone());
    }

    /// Block `i` if the cache has it.
    pub fn cached(&self, i: usize) -> Option<Arc<Block>> {
        self.shared.cache.get((self.meta.number, i as u32))
    }

    /// How many blocks from `i` on fit into `bytes`; at least one.
    pub fn run(&self, i: usize, bytes: u64) -> Result<usize> {
        let index = &self.opened()?.index;
        let start = index.place(i).offset;
        let fits = |j: &usize| {
            let place = index.place(*j);
            let end = place.offset.checked_add(u64::from(place.length));
            end.is_some_and(|end| end.saturating_sub(start) <= bytes)
        };
        Ok((i..index.len()).take_while(fits).count().max(1))
    }

    /// Blocks `i..i + count` with one read, without the cache. A single damaged block is repaired if possible.
    pub fn read_blocks(&self, i: usize, count: usize) -> Result<Vec<Block>> {
        let opened = self.opened()?;
        let error = match self.read_from(opened, i, count) {
            Err(e @ (Error::Corrupt { .. } | Error::Io { .. })) if count == 1 => e,
            read => return read,
        };
        let (block, lost) = self.repair_block(opened, i);
        let again = error.clone();
        self.shared.damage_notes.note(Damage { error: again, lost });
        block.map(|block| vec![block]).ok_or(error)
    }

    /// Repairs block `i`, which is damaged in the table: from the copy, or by correcting one bit. Also returns what is lost.
    fn repair_block(&self, opened: &TableMetadata, i: usize) -> (Option<Block>, PossibleLoss) {
        let mended = || {
            let (first, last) = (opened.index.first(i), opened.index.last(i));
            if let Some(block) = self.copy.as_ref().and_then(|copy| copy.block(first, last)) {
                return Some((block, PossibleLoss::Nothing));
            }
            let place = opened.index.place(i);
            let file = self.file.open().ok()?;
            let raw = file.read(place.offset, place.length as usize);
            let mut raw = raw.ok().filter(|raw| raw.len() == place.length as usize)?;
            let byte = place.offset + bit_correction::correct(&mut raw, place.crc)? as u64;
            let block = Block::decode(&raw)?;
            is_between(&block, first, last).then_some((block, PossibleLoss::Corrected { byte }))
        };
        match mended() {
            Some((block, lost)) => (Some(block), lost),
            None => (None, keys_of(&opened.index, i)),
        }
    }

    fn read_from(&self, opened: &TableMetadata, i: usize, count: usize) -> Result<Vec<Block>> {
        let index = &opened.index;
        let in_copy = |i: &usize| index.place(*i).offset == frame::IN_COPY;
        if (i..i + count).any(|i| in_copy(&i)) {
            let copy = self.copy.as_ref();
            let block = |i| copy?.block(index.first(i), index.last(i));
            let blocks: Option<Vec<Block>> = (i..i + count).map(block).collect();
            let missing = || {
                let path = names::table_copy(&self.shared.dir, self.meta.number);
                Error::corrupt(&path, "block", 0, index.place(i).crc, 0)
            };
            return blocks.ok_or_else(missing);
        }
        read_in(&self.file, index, i, count)
    }

    /// Reads everything and compares it with the filter, the key ranges and the manifest.
    pub fn check(&self, damage: &mut Vec<Damage>) {
        let whole = || PossibleLoss::Keys {
            first: self.meta.first.clone(),
            last: self.meta.last.clone(),
        };
        // A fresh reader, so that what is cached or already open hides nothing.
        let mut opened = match self.open_file() {
            Ok(opened) => opened,
            Err(error) => {
                let lost = whole();
                return damage.push(Damage { error, lost });
            }
        };
        let found = std::mem::take(&mut opened.damage);
        let rebuilt = !found.is_empty();
        let (missing, found): (Vec<_>, Vec<_>) = found.into_iter().partition(is_missing);
        damage.extend(found.into_iter().map(Damage::without_loss));
        if !rebuilt
            && let Err(error) = Provenance::read(&*self.shared.io, self.path(), self.meta.number)
        {
            damage.push(Damage::without_loss(error));
        }
        let before = damage.len();
        let mut entries = 0;
        for i in 0..opened.index.len() {
            let place = opened.index.place(i);
            let wrong = |what| Damage {
                error: self.file.corrupt(what, place.offset, 0, 0),
                lost: keys_of(&opened.index, i),
            };
            let block = match self.read_from(&opened, i, 1) {
                Ok(mut blocks) => blocks.remove(0),
                Err(error) => {
                    let (block, lost) = self.repair_block(&opened, i);
                    damage.push(Damage { error, lost });
                    match block {
                        Some(block) => block,
                        None => continue,
                    }
                }
            };
            entries += block.len() as u64;
            if let Err(error) = frame::check(&self.file, self.meta.number, place) {
                damage.push(Damage::without_loss(error));
            }
            if !is_between(&block, opened.index.first(i), opened.index.last(i)) {
                damage.push(wrong("key range of block"));
            }
            let filtered = |k| filter::may_contain(&opened.filter, filter::hash(block.key(k)));
            if !(0..block.len()).all(filtered) {
                damage.push(wrong("filter (a key is missing) for block"));
            }
        }
        if damage.len() == before && entries != self.meta.entries {
            let (expected, found) = (self.meta.entries as u32, entries as u32);
            let error = self.file.corrupt("number of entries", 0, expected, found);
            let lost = whole();
            damage.push(Damage { error, lost });
        }
        if damage.len() == before {
            // With what is lost, a missing file is told already.
            damage.extend(missing.into_iter().map(Damage::without_loss));
        }
        if let Some(copy) = &self.copy {
            copy.check(
                self.meta.number,
                (!rebuilt).then_some(&opened.index),
                damage,
            );
        }
    }
}

/// What block `i` may have held.
fn keys_of(index: &Index, i: usize) -> PossibleLoss {
    PossibleLoss::Keys {
        first: Bytes::copy_from_slice(index.first(i)),
        last: Bytes::copy_from_slice(index.last(i)),
    }
}
