//! The locations of all blocks of a table, in memory. 32 bytes a block, because an index of many records has very many
//! blocks.
//!
//! Invariants: blocks ascend by key, and follow each other in the file. The files' ids are kept only if the blocks are of several files.
use super::region::BlockLocation;
use crate::csm::record::Key;
use crate::csm::search::{from_hint, interpolate};

/// See the head of this file. Columns are apart, so that searches touch nothing else.
#[derive(Debug, Default)]
pub struct BlockMap {
    /// The file, if all blocks are of one.
    fid: Option<u64>,
    /// The files of least and greatest key, if not.
    fids: Box<[(u64, u64)]>,
    /// The offsets of the least keys.
    firsts: Box<[u64]>,
    /// Those of the greatest.
    lasts: Box<[u64]>,
    rest: Box<[BlockFields]>,
    /// Where the first block starts in the file.
    start: u64,
}

/// What only those need who read the block.
#[derive(Debug)]
struct BlockFields {
    /// Where it ends in the file: the next one starts there.
    end: u64,
    crc: u32,
    /// Twice the number of records, and one if some are deletes: a block has at most `block::MAX_RECORDS`.
    records: u32,
}

impl BlockMap {
    /// Of these, which ascend.
    pub fn new(list: &[BlockLocation]) -> BlockMap {
        let one = match (list.first(), list.last()) {
            (Some(first), Some(last)) if first.first.fid == last.last.fid => Some(first.first.fid),
            _ => None,
        };
        let fids = list.iter().filter(|_| one.is_none());
        BlockMap {
            fid: one,
            fids: fids.map(|p| (p.first.fid, p.last.fid)).collect(),
            firsts: list.iter().map(|p| p.first.offset).collect(),
            lasts: list.iter().map(|p| p.last.offset).collect(),
            start: list.first().map_or(0, |p| p.offset),
            rest: list
                .iter()
                .map(|p| BlockFields {
                    end: p.end(),
                    crc: p.crc,
                    records: p.records << 1 | u32::from(p.deletes),
                })
                .collect(),
        }
    }

    /// The number of blocks.
    pub fn len(&self) -> usize {
        self.firsts.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.firsts.is_empty()
    }

    /// The least key of block `i`.
    ///
    /// # Panics
    /// If there is no such block.
    #[inline]
    pub fn first(&self, i: usize) -> Key {
        Key {
            fid: self.fid.unwrap_or_else(|| self.fids[i].0),
            offset: self.firsts[i],
        }
    }

    /// The greatest key of block `i`.
    ///
    /// # Panics
    /// If there is no such block.
    #[inline]
    pub fn last(&self, i: usize) -> Key {
        Key {
            fid: self.fid.unwrap_or_else(|| self.fids[i].1),
            offset: self.lasts[i],
        }
    }

    /// Where block `i` starts in the file, bytes.
    #[inline]
    pub fn offset(&self, i: usize) -> u64 {
        i.checked_sub(1)
            .map_or(self.start, |before| self.rest[before].end)
    }

    /// Where block `i` ends in the file, bytes.
    ///
    /// # Panics
    /// If there is no such block.
    #[inline]
    pub fn end(&self, i: usize) -> u64 {
        self.rest[i].end
    }

    /// All that is known of block `i`.
    ///
    /// # Panics
    /// If there is no such block.
    pub fn at(&self, i: usize) -> BlockLocation {
        let (offset, rest) = (self.offset(i), &self.rest[i]);
        BlockLocation {
            first: self.first(i),
            last: self.last(i),
            offset,
            // As it was in the place that this was made of.
            length: (rest.end - offset) as u32,
            crc: rest.crc,
            records: rest.records >> 1,
            deletes: rest.records & 1 == 1,
        }
    }

    /// All, in order.
    pub fn iter(&self) -> impl Iterator<Item = BlockLocation> {
        (0..self.len()).map(|i| self.at(i))
    }

    /// The number of blocks that start at or before `key`; the search begins at `hint`, or where it is if blocks are regular.
    pub fn upper_bound(&self, key: Key, hint: usize) -> usize {
        let firsts = &self.firsts;
        if let ([first, ..], [.., last]) = (&firsts[..], &firsts[..])
            && self.fid == Some(key.fid)
        {
            let below = |i: usize| firsts[i] <= key.offset;
            let known = hint > 0 && hint < firsts.len() && below(hint - 1) && !below(hint);
            if known {
                return hint;
            }
            let near = interpolate(key.offset, *first, *last, firsts.len()) + 1;
            return from_hint(near, firsts.len(), below);
        }
        from_hint(hint, firsts.len(), |i| self.first(i) <= key)
    }

    /// The number of blocks that end before `key`.
    pub fn ending_before(&self, key: Key) -> usize {
        from_hint(self.len() / 2, self.len(), |i| self.last(i) < key)
    }

    /// The number of blocks that end in the file at or before this offset, bytes.
    pub fn within(&self, offset: u64) -> usize {
        self.rest.partition_point(|rest| rest.end <= offset)
    }

    /// Memory held, in bytes.
    pub fn bytes(&self) -> usize {
        size_of::<BlockMap>()
            + size_of_val(&self.fids[..])
            + size_of_val(&self.firsts[..])
            + size_of_val(&self.lasts[..])
            + size_of_val(&self.rest[..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::csm::block::BlockSplitter;
    use crate::csm::record::Record;
    use crate::csm::tests::records;
    use proptest::prelude::*;

    /// The places of these records' blocks, as if they were in one file.
    fn places(records: &[Record]) -> Vec<BlockLocation> {
        let mut splitter = BlockSplitter::new(200);
        let mut blocks: Vec<_> = records.iter().filter_map(|r| splitter.add(*r)).collect();
        blocks.extend(splitter.cut());
        let mut offset = 0;
        let place = |block| {
            let place = BlockLocation::of(block, offset);
            offset = place.end();
            place
        };
        blocks.iter().map(place).collect()
    }

    proptest! {
        #[test]
        fn they_are_what_they_were_made_of(records in records(80), fid in 0u64..4, offset in 0u64..5000, hint in 0usize..30, at in 0u64..3000) {
            let list = places(&records);
            let places = BlockMap::new(&list);
            prop_assert_eq!(places.iter().collect::<Vec<_>>(), list.clone());
            let key = Key { fid, offset };
            let above = list.iter().filter(|p| p.first <= key).count();
            prop_assert_eq!(places.upper_bound(key, hint), above);
            prop_assert_eq!(places.ending_before(key), list.iter().filter(|p| p.last < key).count());
            prop_assert_eq!(places.within(at), list.iter().filter(|p| p.end() <= at).count());
        }

        #[test]
        fn those_of_one_file_too(gaps in proptest::collection::vec(1u64..50, 0..80), step in 1u64..4, probe in 0u64..3000, hint in 0usize..30) {
            let mut offset = 0;
            let record = |gap: &u64| {
                offset += if step == 1 { 7 } else { *gap };
                Record { len: 5, ..Record::delete(Key { fid: 9, offset }) }
            };
            let records: Vec<Record> = gaps.iter().map(record).collect();
            let list = places(&records);
            let places = BlockMap::new(&list);
            prop_assert_eq!(places.iter().collect::<Vec<_>>(), list.clone());
            let key = Key { fid: 9, offset: probe };
            prop_assert_eq!(places.upper_bound(key, hint), list.iter().filter(|p| p.first <= key).count());
            prop_assert_eq!(places.ending_before(key), list.iter().filter(|p| p.last < key).count());
            for fid in [8, 10] {
                let other = Key { fid, offset: probe };
                prop_assert_eq!(places.upper_bound(other, hint), if fid == 8 { 0 } else { list.len() });
            }
        }
    }
}
