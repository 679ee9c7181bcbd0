//! Reading a table file: gets, whole-block reads, and a full check.
//!
//! Invariant: no byte of a block is used before its checksum was compared, and is right.
//!
//! What cannot be read in the table is read in the copy of what is mirrored, if it is there, or with one flipped bit put right
//! ([`correction`]). Either way it is noted, for whoever asks what of the store is damaged.
use super::{filter, footer, footer::Footer, frame, index::Index};
use crate::correction;
use crate::damage::{Damage, DamageNotes, Lost};
use crate::manifest::{Provenance, TableMeta};
use crate::names;
use crate::rows::block::{self, Block};
use crate::rows::cache::BlockCache;
use crate::{Error, Io, Keyspace, OpenTable, Result, TableFile};
use bytes::Bytes;
use parking_lot::Mutex;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// What all tables of a store share.
pub struct Tables {
    /// The file system.
    pub io: Arc<dyn Io>,
    /// The store's directory.
    pub dir: PathBuf,
    /// Decoded blocks.
    pub cache: BlockCache,
    /// The store is only read, around whatever is damaged.
    pub salvaged: bool,
    /// The damage that reads met.
    pub damage_notes: DamageNotes,
}

/// One table file. Opened at first use, so that one damaged table fails only those reads that need it.
pub struct Table {
    meta: TableMeta,
    file: TableFile,
    /// Of what is mirrored, if anything is.
    copy_file: Option<TableFile>,
    shared: Arc<Tables>,
    opened: OnceLock<TableMetadata>,
    opening: Mutex<()>,
    /// The copy, once a block of the table could not be read; `None`: it cannot be read either.
    copy: OnceLock<Option<TableMetadata>>,
}

struct TableMetadata {
    filter: Vec<u8>,
    index: Index,
    /// Number of entries.
    entries: u64,
    /// What of filter, region and footer is damaged.
    damage: Vec<Error>,
}

/// What stands behind the blocks of a file.
enum TableTail {
    Whole(TableMetadata),
    /// The region cannot be read.
    Damaged {
        filter: Vec<u8>,
        damage: Vec<Error>,
    },
}

impl Table {
    /// A table that the manifest names.
    pub fn new(shared: Arc<Tables>, meta: TableMeta) -> Table {
        let of = |path| TableFile::new(shared.io.clone(), path);
        let copy = || of(names::table_copy(&shared.dir, meta.number));
        Table {
            file: of(names::table(&shared.dir, meta.number)),
            copy_file: meta.has_copy().then(copy),
            meta,
            shared,
            opened: OnceLock::new(),
            opening: Mutex::new(()),
            copy: OnceLock::new(),
        }
    }

    /// What the manifest knows of it.
    pub fn meta(&self) -> &TableMeta {
        &self.meta
    }

    /// The file's path.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// Removes the file once nobody uses the table any more.
    pub fn make_obsolete(&self) {
        [Some(&self.file), self.copy_file.as_ref()]
            .into_iter()
            .flatten()
            .for_each(TableFile::make_obsolete);
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
        let opened = self.open()?;
        Ok(self.opened.get_or_init(|| opened))
    }

    fn open(&self) -> Result<TableMetadata> {
        let opened = self.open_file()?;
        for error in &opened.damage {
            let harmless = Damage::harmless(error.again());
            self.shared.damage_notes.note(harmless);
        }
        Ok(opened)
    }

    fn open_file(&self) -> Result<TableMetadata> {
        let file = match self.file.open() {
            // What is mirrored can be read without it.
            Err(e) if is_missing(&e) && self.copy().is_some() => {
                return self.rebuilt(&[], Vec::new(), vec![e]);
            }
            file => file?,
        };
        match Table::tail(&file, &self.file)? {
            TableTail::Whole(opened) => Ok(opened),
            TableTail::Damaged { filter, damage } => {
                // More than it had is none of it, and may be too much for the memory.
                let length = file.length()?.min(self.meta.bytes) as usize;
                let bytes = file.read(0, length)?;
                self.rebuilt(&bytes, filter, damage)
            }
        }
    }

    /// Filter and metadata region of a table, or of a copy.
    fn tail(file: &OpenTable<'_>, of: &TableFile) -> Result<TableTail> {
        let length = file.length()?;
        let tail = (footer::LENGTH as u64).min(length);
        let bytes = file.read(length - tail, tail as usize)?;
        let mut damage = Vec::new();
        let footer = match Footer::decode(&bytes, length, of.path()) {
            Ok(footer) => footer,
            Err(e @ Error::Corrupt { .. }) => {
                return Ok(TableTail::Damaged {
                    filter: Vec::new(),
                    damage: vec![e],
                });
            }
            Err(e) => return Err(e),
        };
        if footer.format != block::FORMAT {
            let reason = format!(
                "blocks are of format {}, this store reads format {}; open it with the program that wrote it",
                footer.format,
                block::FORMAT
            );
            return Err(Error::Format {
                path: of.path().to_path_buf(),
                reason,
            });
        }
        let mut filter = file.read(footer.filter_at, footer.filter_len as usize)?;
        let found = crc32c::crc32c(&filter);
        if found != footer.filter_crc {
            let (at, expected) = (footer.filter_at, footer.filter_crc);
            damage.push(of.corrupt("filter", at, expected, found));
            // Every key may be there: reads go on without it.
            filter = Vec::new();
        }
        let region = file.read(footer.index_at, footer.index_len as usize)?;
        let found = crc32c::crc32c(&region);
        let index = (found == footer.index_crc).then(|| Index::decode(region));
        let Some(index) = index.flatten() else {
            let (at, expected) = (footer.index_at, footer.index_crc);
            let error = of.corrupt("metadata region", at, expected, found);
            damage.push(error);
            return Ok(TableTail::Damaged { filter, damage });
        };
        Ok(TableTail::Whole(TableMetadata {
            filter,
            index,
            entries: footer.entries,
            damage,
        }))
    }

    /// The table without its metadata region: from its blocks, of which these are the bytes, and from the copy.
    fn rebuilt(&self, bytes: &[u8], filter: Vec<u8>, damage: Vec<Error>) -> Result<TableMetadata> {
        let copy = self.copy().map(|copy| (&copy.index, copy.entries));
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

    /// The copy of what is mirrored, if there is one whose region can be read.
    fn copy(&self) -> Option<&TableMetadata> {
        if let Some(copy) = self.copy.get() {
            return copy.as_ref();
        }
        match self.open_copy() {
            Ok(copy) => self.copy.get_or_init(|| Some(copy)).as_ref(),
            Err(e) if is_missing(&e) || matches!(e, Error::Corrupt { .. }) => {
                self.copy.get_or_init(|| None).as_ref()
            }
            // Another try may go better.
            Err(_) => None,
        }
    }

    fn open_copy(&self) -> Result<TableMetadata> {
        let Some(copy) = &self.copy_file else {
            let missing = std::io::ErrorKind::NotFound.into();
            return Err(Error::io("open", self.path(), missing));
        };
        match Table::tail(&copy.open()?, copy)? {
            TableTail::Whole(opened) => Ok(opened),
            TableTail::Damaged { mut damage, .. } => {
                let unknown = || copy.corrupt("table footer", 0, 0, 0);
                Err(damage.pop().unwrap_or_else(unknown))
            }
        }
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

    /// Where block `i`, which there is, stands in the file, bytes.
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
        let fits = |j: &usize| {
            let place = index.place(*j);
            let end = place.offset.checked_add(u64::from(place.length));
            end.is_some_and(|end| end.saturating_sub(start) <= bytes)
        };
        Ok((i..index.len()).take_while(fits).count().max(1))
    }

    /// Blocks `i..i + count` with one read, past the cache. A single block that is damaged is made whole again if it can be.
    pub fn read_blocks(&self, i: usize, count: usize) -> Result<Vec<Block>> {
        let opened = self.opened()?;
        let error = match self.read_from(opened, i, count) {
            Err(e @ (Error::Corrupt { .. } | Error::Io { .. })) if count == 1 => e,
            read => return read,
        };
        match self.mended(opened, i) {
            Some((block, lost)) => {
                self.shared.damage_notes.note(Damage { error, lost });
                Ok(vec![block])
            }
            None => {
                let lost = keys_of(&opened.index, i);
                let again = error.again();
                self.shared.damage_notes.note(Damage { error: again, lost });
                Err(error)
            }
        }
    }

    /// Block `i`, which cannot be read in the table as it was written, and what that costs: from the copy, or with one bit put right.
    fn mended(&self, opened: &TableMetadata, i: usize) -> Option<(Block, Lost)> {
        let (first, last) = (opened.index.first(i), opened.index.last(i));
        if let Some(block) = self.block_of_copy(first, last) {
            return Some((block, Lost::Nothing));
        }
        let place = opened.index.place(i);
        let file = self.file.open().ok()?;
        let raw = file.read(place.offset, place.length as usize);
        let mut raw = raw.ok().filter(|raw| raw.len() == place.length as usize)?;
        let byte = place.offset + correction::correct(&mut raw, place.crc)? as u64;
        let block = Block::decode(&raw)?;
        is_between(&block, first, last).then_some((block, Lost::Corrected { byte }))
    }

    /// The block of the copy with these keys at its ends.
    fn block_of_copy(&self, first: &[u8], last: &[u8]) -> Option<Block> {
        let copy = self.copy()?;
        let i = copy.index.find(first);
        let same = i < copy.index.len() && copy.index.first(i) == first;
        if !same || copy.index.last(i) != last {
            return None;
        }
        let mut blocks = read_in(self.copy_file.as_ref()?, &copy.index, i, 1).ok()?;
        blocks.pop()
    }

    fn read_from(&self, opened: &TableMetadata, i: usize, count: usize) -> Result<Vec<Block>> {
        let index = &opened.index;
        let in_copy = |i: &usize| index.place(*i).offset == frame::IN_COPY;
        if (i..i + count).any(|i| in_copy(&i)) {
            let block = |i| self.block_of_copy(index.first(i), index.last(i));
            let blocks: Option<Vec<Block>> = (i..i + count).map(block).collect();
            let missing = || {
                let path = names::table_copy(&self.shared.dir, self.meta.number);
                Error::corrupt(&path, "block", 0, index.place(i).crc, 0)
            };
            return blocks.ok_or_else(missing);
        }
        read_in(&self.file, index, i, count)
    }

    /// Whether block `i`, which is whole, could be found without the metadata region.
    fn check_frame(&self, opened: &TableMetadata, i: usize) -> Result<()> {
        let place = opened.index.place(i);
        if place.offset == frame::IN_COPY {
            // That there is no other is told with the table.
            return Ok(());
        }
        let offset = place.offset.saturating_sub(frame::LENGTH as u64);
        let length = frame::LENGTH + place.length as usize;
        let bytes = self.file.open()?.read(offset, length)?;
        match frame::is_whole(&bytes, self.meta.number, offset) {
            true => Ok(()),
            false => Err(self.file.corrupt("frame of block", offset, 0, 0)),
        }
    }

    /// Reads everything and compares it with the filter, the key ranges and the manifest.
    pub fn check(&self, damage: &mut Vec<Damage>) {
        let whole = || Lost::Keys {
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
        damage.extend(found.into_iter().map(Damage::harmless));
        if !rebuilt
            && let Err(error) = Provenance::read(&*self.shared.io, self.path(), self.meta.number)
        {
            damage.push(Damage::harmless(error));
        }
        let before = damage.len();
        let mut entries = 0;
        for i in 0..opened.index.len() {
            let place = opened.index.place(i);
            let lost = || keys_of(&opened.index, i);
            let block = match self.read_from(&opened, i, 1) {
                Ok(mut blocks) => blocks.remove(0),
                Err(error) => match self.mended(&opened, i) {
                    Some((block, lost)) => {
                        damage.push(Damage { error, lost });
                        block
                    }
                    None => {
                        let lost = lost();
                        damage.push(Damage { error, lost });
                        continue;
                    }
                },
            };
            entries += block.len() as u64;
            if let Err(error) = self.check_frame(&opened, i) {
                damage.push(Damage::harmless(error));
            }
            if !is_between(&block, opened.index.first(i), opened.index.last(i)) {
                let error = self.file.corrupt("key range of block", place.offset, 0, 0);
                let lost = lost();
                damage.push(Damage { error, lost });
            }
            let filtered = |k| filter::may_contain(&opened.filter, filter::hash(block.key(k)));
            if !(0..block.len()).all(filtered) {
                let what = "filter (a key is missing) for block";
                let error = self.file.corrupt(what, place.offset, 0, 0);
                let lost = lost();
                damage.push(Damage { error, lost });
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
            damage.extend(missing.into_iter().map(Damage::harmless));
        }
        self.check_copy((!rebuilt).then_some(&opened.index), damage);
    }

    /// Whether the copy can be read, and holds the same blocks as the table with this region.
    fn check_copy(&self, index: Option<&Index>, damage: &mut Vec<Damage>) {
        let Some(file) = &self.copy_file else {
            return;
        };
        let mut tell = |error| damage.push(Damage::harmless(error));
        let copy = match self.open_copy() {
            Ok(copy) => copy,
            Err(error) => return tell(error),
        };
        copy.damage.into_iter().for_each(&mut tell);
        for i in 0..copy.index.len() {
            if let Err(error) = read_in(file, &copy.index, i, 1) {
                tell(error);
            }
        }
        let ends = |index: &Index| {
            let first = index.find(&[Keyspace::FIRST_MIRRORED.0]);
            let ends = |i| (index.first(i).to_vec(), index.last(i).to_vec());
            (first..index.len()).map(ends).collect::<Vec<_>>()
        };
        // A table that was put together again may lack some.
        if index.is_some_and(|index| ends(index) != ends(&copy.index)) {
            tell(file.corrupt("key ranges of blocks", 0, 0, 0));
        }
    }
}

/// Blocks `i..i + count` of `index`, which says where they are in this file.
fn read_in(of: &TableFile, index: &Index, i: usize, count: usize) -> Result<Vec<Block>> {
    let (first, last) = (index.place(i), index.place(i + count - 1));
    let length = (last.offset + u64::from(last.length)).saturating_sub(first.offset);
    let bytes = of.open()?.read(first.offset, length as usize)?;
    let mut blocks = Vec::with_capacity(count);
    for j in i..i + count {
        let place = index.place(j);
        let at = place.offset.wrapping_sub(first.offset) as usize;
        let raw = at
            .checked_add(place.length as usize)
            .and_then(|end| bytes.get(at..end))
            .unwrap_or_default();
        let found = crc32c::crc32c(raw);
        let corrupt = |what| of.corrupt(what, place.offset, place.crc, found);
        if found != place.crc || raw.len() != place.length as usize {
            return Err(corrupt("block"));
        }
        let block = Block::decode(raw);
        blocks.push(block.ok_or_else(|| corrupt("block layout"))?);
    }
    Ok(blocks)
}

/// Whether these are the ends of the block.
fn is_between(block: &Block, first: &[u8], last: &[u8]) -> bool {
    !block.is_empty() && block.key(0) == first && block.key(block.len() - 1) == last
}

/// What block `i` may have held.
fn keys_of(index: &Index, i: usize) -> Lost {
    Lost::Keys {
        first: Bytes::copy_from_slice(index.first(i)),
        last: Bytes::copy_from_slice(index.last(i)),
    }
}

fn is_missing(error: &Error) -> bool {
    matches!(error, Error::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound)
}
