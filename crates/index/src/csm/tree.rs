//! The blocks of one sealed MemTable in the compression buffer: a balanced search tree by minimum key, whose nodes know their
//! key range (MetaKV, figure 4).
//!
//! Invariant: the ranges of its blocks do not overlap.
use super::block::{Block, Cutter};
use super::record::{Key, Record};
use std::collections::BTreeMap;
use std::ops::Bound;

/// What a node of the tree costs beyond the block's bytes.
const NODE: usize = size_of::<(Key, Block)>() + 32;

/// See the head of this file.
#[derive(Debug, Clone, Default)]
pub struct Tree {
    blocks: BTreeMap<Key, Block>,
    bytes: usize,
    records: u64,
}

impl Tree {
    /// The tree of these records, in strictly ascending order.
    pub fn of(records: &[Record], cutter: &mut Cutter) -> Tree {
        let mut tree = Tree::default();
        let blocks = records
            .chunks(cutter.full())
            .map(|piece| cutter.encode(piece));
        blocks.flatten().for_each(|block| tree.push(block));
        tree
    }

    /// Adds a block whose range overlaps no other's.
    pub fn push(&mut self, block: Block) {
        self.bytes += block.bytes.len() + NODE;
        self.records += u64::from(block.records);
        self.blocks.insert(block.first, block);
    }

    /// Memory held, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Number of records, deletes included.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Number of blocks.
    pub fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Whether there is no block.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// The blocks that may hold a key from `from` to `to`, both included, in order.
    pub fn range(&self, from: Key, to: Key) -> impl Iterator<Item = &Block> {
        // Of those that start before, only the last can reach `from`.
        let before = self.blocks.range(..from).next_back();
        let before = before.filter(move |(_, block)| block.last >= from);
        let within = if from <= to {
            Some(self.blocks.range(from..=to))
        } else {
            None
        };
        before
            .into_iter()
            .filter(move |_| from <= to)
            .chain(within.into_iter().flatten())
            .map(|(_, block)| block)
    }

    /// The last block that starts at or before `at`, if it ends at or behind `far`, and all that start behind `at` and before `end`.
    pub fn reach(&self, far: Key, at: Key, end: Key) -> impl Iterator<Item = &Block> {
        let before = self.blocks.range(..=at).next_back();
        let before = before.filter(move |(_, block)| block.last >= far);
        let within = (at < end).then(|| {
            self.blocks
                .range((Bound::Excluded(at), Bound::Excluded(end)))
        });
        let within = within.into_iter().flatten();
        before.into_iter().chain(within).map(|(_, block)| block)
    }

    /// The first block whose last key is at or above `key`.
    pub fn at_or_above(&self, key: Key) -> Option<&Block> {
        let before = self.blocks.range(..=key).next_back();
        let holds = before.filter(|(_, block)| block.last >= key);
        holds
            .or_else(|| self.blocks.range(key..).next())
            .map(|(_, block)| block)
    }

    /// The first block that starts above `key`.
    pub fn above(&self, key: Key) -> Option<&Block> {
        let above = (Bound::Excluded(key), Bound::Unbounded);
        self.blocks.range(above).next().map(|(_, block)| block)
    }

    /// All blocks, in order.
    pub fn iter(&self) -> impl Iterator<Item = &Block> {
        self.blocks.values()
    }

    /// All blocks, in order.
    pub fn into_blocks(self) -> impl Iterator<Item = Block> {
        self.blocks.into_values()
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::records;
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_a_failed_merge_left_is_in_no_tree() {
        let record = |offset| Record::delete(Key { fid: 1, offset });
        let mut cutter = Cutter::new(1 << 20);
        cutter.add(record(1));
        let tree = Tree::of(&[record(5), record(6)], &mut cutter);
        assert_eq!((tree.records(), tree.len()), (2, 1));
    }

    proptest! {
        #[test]
        fn a_range_gives_the_blocks_that_may_hold_its_keys(
            records in records(200), block_bytes in 1usize..1000, probes in proptest::collection::vec((0u64..4, 0u64..5000, 0u64..4, 0u64..5000), 10),
        ) {
            let tree = Tree::of(&records, &mut Cutter::new(block_bytes));
            prop_assert_eq!(tree.records(), records.len() as u64);
            for (fid, offset, to_fid, to_offset) in probes {
                let (from, to) = (Key { fid, offset }, Key { fid: to_fid, offset: to_offset });
                let found: Vec<&Block> = tree.range(from, to).collect();
                let want: Vec<&Block> = tree.iter().filter(|b| from <= to && b.first <= to && from <= b.last).collect();
                prop_assert_eq!(found, want);
            }
        }
    }
}
