//! The metadata after the blocks of a table file, or of a copy, and reading the blocks that it locates.
//!
//! Invariant: no byte of a block is used before its checksum was compared, and is right.
use super::footer::{self, Footer};
use super::index::Index;
use crate::rows::block::{self, Block};
use crate::{Error, OpenTable, Result, TableFile};

/// Filter and metadata region of a file.
pub struct TableMetadata {
    /// Empty: every key may be there.
    pub filter: Vec<u8>,
    /// Where the blocks are.
    pub index: Index,
    /// Number of entries.
    pub entries: u64,
    /// Damage of filter, region and footer.
    pub damage: Vec<Error>,
}

/// The result of reading the metadata of a file.
pub enum TableTail {
    /// All but perhaps the filter could be read.
    Whole(TableMetadata),
    /// The region could not be read.
    Damaged {
        /// As in [`TableMetadata`].
        filter: Vec<u8>,
        /// Of what it is told, and of the filter.
        damage: Vec<Error>,
    },
}

impl TableTail {
    /// Reads the metadata of a table or of a copy.
    ///
    /// # Errors
    /// `Format`: of another version or block format. `Io`.
    pub fn read(file: &OpenTable<'_>, of: &TableFile) -> Result<TableTail> {
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
            return Err(Error::format(of.path(), reason));
        }
        let mut filter = file.read(footer.filter_at, footer.filter_len as usize)?;
        let found = forebay_checksum::crc32c(&filter);
        if found != footer.filter_crc {
            let (at, expected) = (footer.filter_at, footer.filter_crc);
            damage.push(of.corrupt("filter", at, expected, found));
            // Every key may be there: reads go on without it.
            filter = Vec::new();
        }
        let region = file.read(footer.index_at, footer.index_len as usize)?;
        let found = forebay_checksum::crc32c(&region);
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
}

/// Blocks `i..i + count` of `index`, which says where they are in this file, in one read.
///
/// # Errors
/// `Corrupt` names the block; `Io`.
pub fn read_in(of: &TableFile, index: &Index, i: usize, count: usize) -> Result<Vec<Block>> {
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
        let found = forebay_checksum::crc32c(raw);
        let corrupt = |what| of.corrupt(what, place.offset, place.crc, found);
        if found != place.crc || raw.len() != place.length as usize {
            return Err(corrupt("block"));
        }
        let block = Block::decode(raw);
        blocks.push(block.ok_or_else(|| corrupt("block layout"))?);
    }
    Ok(blocks)
}

/// Whether the block has this first and last key.
pub fn is_between(block: &Block, first: &[u8], last: &[u8]) -> bool {
    !block.is_empty() && block.key(0) == first && block.key(block.len() - 1) == last
}
