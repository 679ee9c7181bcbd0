//! The frame before each block of a table, so that the blocks of a table whose metadata region is damaged or cut off can be
//! found.
//!
//! ```text
//!  0        4        8
//!  +--------+--------+------------------+
//!  | length | crc u32| block, length    |
//!  | u32    |        | bytes            |
//!  +--------+--------+------------------+
//! ```
//! Little-endian. `crc`: CRC32C of the table's number (u64), the offset of the frame in the file (u64), and the block. So a
//! frame is one only where it was written, and a length that was changed does not fit. The checksum that reads compare stands
//! in the region.
use super::index::{self, BlockPlace, Index};
use crate::encoding::u32_at;
use crate::manifest::TableMeta;
use crate::rows::block::Block;
use crate::{Keyspace, Result, TableFile};

/// Bytes of a frame before its block.
pub const LENGTH: usize = 8;
/// The offset of a block that is read from the copy.
pub const IN_COPY: u64 = u64::MAX;

/// Fills in the frame at the beginning of `framed`, which is at `offset` in the file of this table.
pub fn fill(framed: &mut [u8], table: u64, offset: u64) {
    let length = (framed.len() - LENGTH) as u32;
    let sum = sum(&framed[LENGTH..], table, offset);
    framed[..4].copy_from_slice(&length.to_le_bytes());
    framed[4..LENGTH].copy_from_slice(&sum.to_le_bytes());
}

fn sum(block: &[u8], table: u64, offset: u64) -> u32 {
    let head = forebay_checksum::crc32c(&table.to_le_bytes());
    let head = forebay_checksum::crc32c_append(head, &offset.to_le_bytes());
    forebay_checksum::crc32c_append(head, block)
}

/// Whether these bytes, at `offset` in the file of this table, are one frame with its block.
fn is_whole(framed: &[u8], table: u64, offset: u64) -> bool {
    let block = block_at(framed, table, offset);
    block.is_some_and(|block| block.len() + LENGTH == framed.len())
}

/// Whether the block at `place` in the file of this table stands in its frame.
///
/// # Errors
/// `Corrupt`, `Io`.
pub fn check(file: &TableFile, table: u64, place: BlockPlace) -> Result<()> {
    if place.offset == IN_COPY {
        // That there is no other is told with the table.
        return Ok(());
    }
    let offset = place.offset.saturating_sub(LENGTH as u64);
    let bytes = file.open()?.read(offset, LENGTH + place.length as usize)?;
    match is_whole(&bytes, table, offset) {
        true => Ok(()),
        false => Err(file.corrupt("frame of block", offset, 0, 0)),
    }
}

/// The block of the frame at the beginning of `bytes`, which are at `offset`, if there is one.
fn block_at(bytes: &[u8], table: u64, offset: u64) -> Option<&[u8]> {
    let head = bytes.get(..LENGTH)?;
    let length = u32_at(head, 0) as usize;
    let block = bytes[LENGTH..].get(..length).filter(|b| !b.is_empty())?;
    (sum(block, table, offset) == u32_at(head, 4)).then_some(block)
}

/// A whole block of a file.
struct FoundBlock<'a> {
    /// Where it is, after its frame.
    offset: usize,
    raw: &'a [u8],
    first: Vec<u8>,
    last: Vec<u8>,
}

/// Rebuilds the metadata region of a table from the intact blocks in `bytes`, the table's file. Also returns whether all blocks are
/// intact. In place of missing blocks the region gets empty ones with a wrong checksum, so reads of keys that they may have held
/// fail. Blocks that are in the `copy` (given with the number of its entries) get the offset [`IN_COPY`].
pub fn rebuild(
    bytes: &[u8],
    meta: &TableMeta,
    copy: Option<(&Index, u64)>,
) -> Option<(Index, bool)> {
    let mut found: Vec<FoundBlock<'_>> = Vec::new();
    let (mut at, mut entries) = (0, 0);
    while at < bytes.len() {
        let block = block_at(&bytes[at..], meta.number, at as u64);
        let decoded = block.and_then(|raw| Some((raw, Block::decode(raw)?)));
        let Some((raw, block)) = decoded.filter(|(_, b)| !b.is_empty()) else {
            at += 1;
            continue;
        };
        let twice = block.key(0).first() >= Some(&Keyspace::FIRST_MIRRORED.0);
        if twice && copy.is_some() {
            break;
        }
        entries += block.len() as u64;
        found.push(FoundBlock {
            offset: at + LENGTH,
            raw,
            first: block.key(0).to_vec(),
            last: block.key(block.len() - 1).to_vec(),
        });
        at += LENGTH + raw.len();
    }
    let complete = entries + copy.map_or(0, |(_, entries)| entries) == meta.entries;
    let mut region = Vec::new();
    let mut behind: Vec<u8> = meta.first.to_vec();
    let mut end = 0;
    let missing = |region: &mut Vec<u8>, at: usize, from: &[u8], to: &[u8]| {
        if !complete && from <= to {
            // No bytes have this checksum.
            index::push(region, at as u64, 0, 1, from, to);
        }
    };
    for block in found {
        let FoundBlock {
            offset,
            raw,
            first,
            last,
        } = block;
        if offset - LENGTH > end {
            missing(&mut region, end, &behind, &before(&first));
        }
        let (crc, length) = (forebay_checksum::crc32c(raw), raw.len() as u32);
        index::push(&mut region, offset as u64, length, crc, &first, &last);
        behind = last;
        behind.push(0);
        end = offset + raw.len();
    }
    match copy.filter(|(copy, _)| copy.len() > 0) {
        None => missing(&mut region, end, &behind, &meta.last),
        Some((copy, _)) => {
            let below = before(&[Keyspace::FIRST_MIRRORED.0]);
            missing(&mut region, end, &behind, &below);
            for i in 0..copy.len() {
                let place = copy.place(i);
                let (first, last) = (copy.first(i), copy.last(i));
                index::push(&mut region, IN_COPY, place.length, place.crc, first, last);
            }
        }
    }
    Some((Index::decode(region)?, complete))
}

/// The greatest key below `key` of at most 64 KiB; no key of a store is nearly as long.
fn before(key: &[u8]) -> Vec<u8> {
    let mut before = key.to_vec();
    match before.pop() {
        None | Some(0) => {}
        Some(last) => {
            before.push(last - 1);
            before.resize(before.len().max(1 << 16), u8::MAX);
        }
    }
    before
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::block;
    use proptest::prelude::*;

    /// Blocks of two entries each, framed, and what the manifest says of them.
    fn written(blocks: usize) -> (Vec<u8>, TableMeta) {
        let mut bytes = Vec::new();
        let key = |i: usize| format!("{:03}", 10 + i).into_bytes();
        for i in 0..blocks {
            let (a, b) = (key(2 * i), key(2 * i + 1));
            let at = bytes.len();
            bytes.extend_from_slice(&[0; LENGTH]);
            block::encode(&[(&a, Some(b"value")), (&b, None)], &mut bytes);
            fill(&mut bytes[at..], 7, at as u64);
        }
        let meta = TableMeta {
            number: 7,
            bytes: bytes.len() as u64,
            entries: blocks as u64 * 2,
            deletes: blocks as u64,
            first: key(0).into(),
            last: key(2 * blocks - 1).into(),
        };
        (bytes, meta)
    }

    /// Whether the region knows where `key` is, or that it may be missing.
    fn is_covered(index: &Index, key: &[u8]) -> bool {
        let i = index.find(key);
        i < index.len() && index.first(i) <= key
    }

    proptest! {
        #[test]
        fn whole_blocks_are_found_and_no_key_is_taken_for_one_that_is_not_there(
            blocks in 1usize..12, tail in proptest::collection::vec(any::<u8>(), 0..60),
            flips in proptest::collection::vec(any::<proptest::sample::Index>(), 0..4), cut in proptest::option::of(any::<proptest::sample::Index>()),
        ) {
            let (whole, meta) = written(blocks);
            let mut bytes = whole.clone();
            bytes.extend(tail);
            for flip in &flips {
                bytes[flip.index(whole.len())] ^= 4;
            }
            if let Some(cut) = cut {
                bytes.truncate(cut.index(bytes.len() + 1));
            }
            let (index, complete) = rebuild(&bytes, &meta, None).unwrap();
            let untouched = bytes.starts_with(&whole);
            prop_assert_eq!(complete, untouched);
            let held = (0..index.len()).filter(|i| index.place(*i).length > 0).count();
            prop_assert!(held + flips.len() >= blocks || cut.is_some());
            for i in 0..2 * blocks {
                let key = format!("{:03}", 10 + i).into_bytes();
                prop_assert!(is_covered(&index, &key), "{key:?}");
            }
        }
    }

    #[test]
    fn the_key_before_is_below_and_nothing_is_between() {
        assert_eq!(before(b"a\0"), b"a");
        let below = before(b"b");
        assert!(below.as_slice() < &b"b"[..] && below.as_slice() > &b"a\xff\xff\xff"[..]);
        assert!(before(b"").is_empty());
    }
}
