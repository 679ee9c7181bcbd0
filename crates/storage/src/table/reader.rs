//! Reading a table file: gets, whole-block reads, and a full check.
//!
//! Invariant: no byte of a block is used before its checksum was compared.
use super::{TableMeta, filter, footer, footer::Footer, frame, index::Index};
use crate::block::{Block, BlockFormat};
use crate::cache::BlockCache;
use crate::damage::{Damage, Lost};
use crate::names;
use crate::{Error, File, Io, Result};
use bytes::Bytes;
use parking_lot::Mutex;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// What all tables of a store share.
pub struct Tables {
    /// The file system.
    pub io: Arc<dyn Io>,
    /// The store's directory.
    pub dir: PathBuf,
    /// How blocks are laid out.
    pub format: Arc<dyn BlockFormat>,
    /// Decoded blocks.
    pub cache: BlockCache<Block>,
    /// The store is only read, around whatever is damaged.
    pub salvaged: bool,
}

/// One table file. Opened at first use, so that one damaged table fails only those reads that need it.
pub struct Table {
    meta: TableMeta,
    path: PathBuf,
    shared: Arc<Tables>,
    opened: OnceLock<Opened>,
    opening: Mutex<()>,
    obsolete: AtomicBool,
}

struct Opened {
    filter: Vec<u8>,
    index: Index,
    /// What of filter, region and footer is damaged.
    damage: Vec<Error>,
}

impl Table {
    /// A table that the manifest names.
    pub fn new(shared: Arc<Tables>, meta: TableMeta) -> Table {
        let path = names::table(&shared.dir, meta.number);
        Table {
            meta,
            path,
            shared,
            opened: OnceLock::new(),
            opening: Mutex::new(()),
            obsolete: AtomicBool::new(false),
        }
    }

    /// What the manifest knows of it.
    pub fn meta(&self) -> &TableMeta {
        &self.meta
    }

    /// The file's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Removes the file once nobody uses the table any more.
    pub fn make_obsolete(&self) {
        self.obsolete.store(true, Ordering::Release);
    }

    /// Memory of filter and metadata region, in bytes; 0 while not opened.
    pub fn resident_bytes(&self) -> usize {
        self.opened
            .get()
            .map_or(0, |o| o.filter.len() + o.index.bytes())
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

    fn read(file: &dyn File, path: &Path, offset: u64, length: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        let n = file
            .read_at(&mut bytes, offset)
            .map_err(|e| Error::io("read", path, e))?;
        bytes.truncate(n);
        Ok(bytes)
    }

    fn opened(&self) -> Result<&Opened> {
        if let Some(opened) = self.opened.get() {
            return Ok(opened);
        }
        let _one = self.opening.lock();
        if let Some(opened) = self.opened.get() {
            return Ok(opened);
        }
        let opened = self.open()?;
        Ok(self.opened.get_or_init(|| opened))
    }

    fn file(&self) -> Result<Arc<dyn File>> {
        let file = self.shared.io.open_kept(&self.path);
        file.map_err(|e| Error::io("open", &self.path, e))
    }

    fn open(&self) -> Result<Opened> {
        let path = &self.path;
        let file = self.file()?;
        let length = file.len().map_err(|e| Error::io("measure", path, e))?;
        let tail = (footer::LENGTH as u64).min(length);
        let bytes = Table::read(&*file, path, length - tail, tail as usize)?;
        let mut damage = Vec::new();
        let footer = match Footer::decode(&bytes, length, path) {
            Ok(footer) => footer,
            Err(e @ Error::Corrupt { .. }) => {
                return self.rebuilt(&*file, length, Vec::new(), vec![e]);
            }
            Err(e) => return Err(e),
        };
        if footer.format != self.shared.format.id() {
            let reason = format!(
                "blocks are of format {}, this store reads format {}; open it with the program that wrote it",
                footer.format,
                self.shared.format.id()
            );
            return Err(Error::Format {
                path: path.clone(),
                reason,
            });
        }
        let mut filter = Table::read(&*file, path, footer.filter_at, footer.filter_len as usize)?;
        let found = crc32c::crc32c(&filter);
        if found != footer.filter_crc {
            let error = self.corrupt("filter", footer.filter_at, footer.filter_crc, found);
            tracing::error!("{error}; reads go on without it");
            damage.push(error);
            // Every key may be there.
            filter = Vec::new();
        }
        let region = Table::read(&*file, path, footer.index_at, footer.index_len as usize)?;
        let found = crc32c::crc32c(&region);
        let index = (found == footer.index_crc).then(|| Index::decode(region));
        let Some(index) = index.flatten() else {
            let (at, expected) = (footer.index_at, footer.index_crc);
            damage.push(self.corrupt("metadata region", at, expected, found));
            return self.rebuilt(&*file, length, filter, damage);
        };
        Ok(Opened {
            filter,
            index,
            damage,
        })
    }

    /// The table without its metadata region: from its blocks.
    fn rebuilt(
        &self,
        file: &dyn File,
        length: u64,
        filter: Vec<u8>,
        damage: Vec<Error>,
    ) -> Result<Opened> {
        // More than it had is none of it, and may be too much for the memory.
        let length = length.min(self.meta.bytes) as usize;
        let bytes = Table::read(file, &self.path, 0, length)?;
        let rebuilt = frame::rebuild(&bytes, &self.meta, &*self.shared.format);
        let (index, complete) = rebuilt.ok_or_else(|| self.corrupt("order of blocks", 0, 0, 0))?;
        for error in &damage {
            tracing::error!(complete, "{error}; its blocks were looked for instead");
        }
        Ok(Opened {
            filter,
            index,
            damage,
        })
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

    /// Whether its store is salvaged.
    pub fn is_salvaged(&self) -> bool {
        self.shared.salvaged
    }

    /// The least and the greatest key of block `i`, if that is known and there is one.
    pub fn block_range(&self, i: usize) -> Option<(Bytes, Bytes)> {
        let index = &self.opened().ok()?.index;
        let copy = Bytes::copy_from_slice;
        (i < index.len()).then(|| (copy(index.first(i)), copy(index.last(i))))
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

    /// The only block that can hold `key`, or the first behind it.
    pub fn find(&self, key: &[u8]) -> Result<usize> {
        Ok(self.opened()?.index.find(key))
    }

    /// Block `i`, from the cache or the file.
    pub fn block(&self, i: usize) -> Result<Arc<Block>> {
        let key = (self.meta.number, i as u32);
        if let Some(block) = self.shared.cache.get(key) {
            return Ok(block);
        }
        let block = Arc::new(self.read_blocks(i, 1)?.remove(0));
        self.shared.cache.insert(key, block.clone());
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
        let fits =
            |j: &usize| index.place(*j).offset + u64::from(index.place(*j).length) - start <= bytes;
        Ok((i..index.len()).take_while(fits).count().max(1))
    }

    /// Blocks `i..i + count` with one read, past the cache.
    pub fn read_blocks(&self, i: usize, count: usize) -> Result<Vec<Block>> {
        self.read_from(self.opened()?, i, count)
    }

    fn read_from(&self, opened: &Opened, i: usize, count: usize) -> Result<Vec<Block>> {
        let (first, last) = (opened.index.place(i), opened.index.place(i + count - 1));
        let length = (last.offset + u64::from(last.length)).saturating_sub(first.offset);
        let bytes = Table::read(&*self.file()?, &self.path, first.offset, length as usize)?;
        let mut blocks = Vec::with_capacity(count);
        for j in i..i + count {
            let place = opened.index.place(j);
            let at = place.offset.wrapping_sub(first.offset) as usize;
            let raw = at
                .checked_add(place.length as usize)
                .and_then(|end| bytes.get(at..end))
                .unwrap_or_default();
            let found = crc32c::crc32c(raw);
            if found != place.crc || raw.len() != place.length as usize {
                return Err(self.corrupt("block", place.offset, place.crc, found));
            }
            let block = self
                .shared
                .format
                .decode(raw)
                .ok_or_else(|| self.corrupt("block layout", place.offset, place.crc, found))?;
            blocks.push(block);
        }
        Ok(blocks)
    }

    /// Whether block `i`, which is whole, could be found without the metadata region.
    fn check_frame(&self, opened: &Opened, i: usize) -> Result<()> {
        let place = opened.index.place(i);
        let offset = place.offset.saturating_sub(frame::LENGTH as u64);
        let length = frame::LENGTH + place.length as usize;
        let bytes = Table::read(&*self.file()?, &self.path, offset, length)?;
        match frame::is_whole(&bytes, self.meta.number, offset) {
            true => Ok(()),
            false => Err(self.corrupt("frame of block", offset, 0, 0)),
        }
    }

    /// Reads everything and compares it with the filter, the key ranges and the manifest.
    pub fn check(&self, damage: &mut Vec<Damage>) {
        let whole = || Lost::Keys {
            first: self.meta.first.clone(),
            last: self.meta.last.clone(),
        };
        // A fresh reader, so that what is cached or already open hides nothing.
        let mut opened = match self.open() {
            Ok(opened) => opened,
            Err(error) => {
                let lost = whole();
                return damage.push(Damage { error, lost });
            }
        };
        for error in std::mem::take(&mut opened.damage) {
            let lost = Lost::Nothing;
            damage.push(Damage { error, lost });
        }
        let before = damage.len();
        let mut entries = 0;
        for i in 0..opened.index.len() {
            let place = opened.index.place(i);
            let lost = || Lost::Keys {
                first: Bytes::copy_from_slice(opened.index.first(i)),
                last: Bytes::copy_from_slice(opened.index.last(i)),
            };
            let block = match self.read_from(&opened, i, 1) {
                Ok(mut blocks) => blocks.remove(0),
                Err(error) => {
                    let lost = lost();
                    damage.push(Damage { error, lost });
                    continue;
                }
            };
            entries += block.len() as u64;
            if let Err(error) = self.check_frame(&opened, i) {
                let lost = Lost::Nothing;
                damage.push(Damage { error, lost });
            }
            let ranged = !block.is_empty()
                && block.key(0) == opened.index.first(i)
                && block.key(block.len() - 1) == opened.index.last(i);
            if !ranged {
                let error = self.corrupt("key range of block", place.offset, 0, 0);
                let lost = lost();
                damage.push(Damage { error, lost });
            }
            let filtered = |k| filter::may_contain(&opened.filter, filter::hash(block.key(k)));
            if !(0..block.len()).all(filtered) {
                let what = "filter (a key is missing) for block";
                let error = self.corrupt(what, place.offset, 0, 0);
                let lost = lost();
                damage.push(Damage { error, lost });
            }
        }
        if damage.len() == before && entries != self.meta.entries {
            let (expected, found) = (self.meta.entries as u32, entries as u32);
            let error = self.corrupt("number of entries", 0, expected, found);
            let lost = whole();
            damage.push(Damage { error, lost });
        }
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        if *self.obsolete.get_mut()
            && let Err(e) = self.shared.io.remove(&self.path)
        {
            tracing::warn!(file = %self.path.display(), "old table left behind, the next open removes it: {e}");
        }
    }
}
