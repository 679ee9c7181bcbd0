//! The metadata region of a table: every block's key range, place and checksum, for binary search.
//!
//! ```text
//!  count u32 | count times:
//!  +----------------+--------+--------+---------------------+--------------------+
//!  | offset varint  | length | crc u32| first key (varint   | last key (varint   |
//!  |                | varint |        | length, then bytes) | length, then bytes)|
//!  +----------------+--------+--------+---------------------+--------------------+
//! ```
//! Blocks stand in key order; ranges do not overlap. `crc` is the CRC32C of the block's bytes.
//! In memory the region stays as it is, with one small record per block pointing into it.
use crate::encoding::{Cursor, put_sized, put_varint};

/// Place and checksum of a block, and where its keys stand in the region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockPlace {
    /// Offset in the file, bytes.
    pub offset: u64,
    /// Length, bytes.
    pub length: u32,
    /// CRC32C of the bytes.
    pub crc: u32,
    first: (u32, u32),
    last: (u32, u32),
}

/// Appends one block's record.
pub fn push(region: &mut Vec<u8>, offset: u64, length: u32, crc: u32, first: &[u8], last: &[u8]) {
    if region.is_empty() {
        region.extend_from_slice(&[0; 4]);
    }
    let count = crate::encoding::u32_at(region, 0) + 1;
    region[..4].copy_from_slice(&count.to_le_bytes());
    put_varint(region, offset);
    put_varint(region, u64::from(length));
    region.extend_from_slice(&crc.to_le_bytes());
    put_sized(region, first);
    put_sized(region, last);
}

/// A table's metadata region, ready for search.
#[derive(Debug)]
pub struct Index {
    region: Vec<u8>,
    places: Vec<BlockPlace>,
}

impl Index {
    /// Understands a region; `None` if it is not one.
    pub fn decode(region: Vec<u8>) -> Option<Index> {
        let base = region.as_ptr() as usize;
        let mut places = Vec::new();
        if !region.is_empty() {
            let mut cursor = Cursor::new(&region);
            let count = cursor.u32()? as usize;
            places.reserve(count.min(region.len() / 8));
            for _ in 0..count {
                let offset = cursor.varint()?;
                let length = u32::try_from(cursor.varint()?).ok()?;
                let crc = cursor.u32()?;
                let mut place = || {
                    cursor
                        .sized()
                        .map(|k| ((k.as_ptr() as usize - base) as u32, k.len() as u32))
                };
                let (first, last) = (place()?, place()?);
                places.push(BlockPlace {
                    offset,
                    length,
                    crc,
                    first,
                    last,
                });
            }
            if !cursor.is_empty() {
                return None;
            }
        }
        let index = Index { region, places };
        let ordered = (0..index.len()).all(|i| {
            index.first(i) <= index.last(i) && (i == 0 || index.last(i - 1) < index.first(i))
        });
        ordered.then_some(index)
    }

    /// Number of blocks.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Where block `i` is.
    pub fn place(&self, i: usize) -> BlockPlace {
        self.places[i]
    }

    /// Smallest key of block `i`.
    pub fn first(&self, i: usize) -> &[u8] {
        self.key(self.places[i].first)
    }

    /// Largest key of block `i`.
    pub fn last(&self, i: usize) -> &[u8] {
        self.key(self.places[i].last)
    }

    fn key(&self, (at, len): (u32, u32)) -> &[u8] {
        &self.region[at as usize..(at + len) as usize]
    }

    /// The first block whose last key is at or above `key`: the only one that can hold it.
    pub fn find(&self, key: &[u8]) -> usize {
        self.places.partition_point(|p| self.key(p.last) < key)
    }

    /// Memory held, in bytes.
    pub fn bytes(&self) -> usize {
        self.region.len() + self.places.len() * size_of::<BlockPlace>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn regions_come_back_and_are_searched(
            keys in proptest::collection::btree_set(proptest::collection::vec(any::<u8>(), 0..5), 2..40),
            probe in proptest::collection::vec(any::<u8>(), 0..5),
        ) {
            let keys: Vec<_> = keys.into_iter().collect();
            let pairs: Vec<_> = keys.chunks_exact(2).collect();
            let mut region = Vec::new();
            for (i, pair) in pairs.iter().enumerate() {
                push(&mut region, i as u64 * 100, 100, i as u32, &pair[0], &pair[1]);
            }
            let index = Index::decode(region.clone()).unwrap();
            prop_assert_eq!(index.len(), pairs.len());
            for (i, pair) in pairs.iter().enumerate() {
                prop_assert_eq!(index.first(i), &pair[0][..]);
                prop_assert_eq!(index.last(i), &pair[1][..]);
                prop_assert_eq!((index.place(i).offset, index.place(i).crc), (i as u64 * 100, i as u32));
            }
            prop_assert_eq!(index.find(&probe), pairs.iter().filter(|p| p[1] < probe).count());
            prop_assert!(Index::decode(region[..region.len() - 1].to_vec()).is_none());
        }
    }
}
