//! The blocks of one sealed MemTable in the compression buffer: a balanced search tree by minimum key, whose nodes know their
//! key range (MetaKV, figure 4).
//!
//! A tree is made in order and never changed, so it needs no pointers: its nodes lie in order in one piece of memory, the middle one
//! is the root, and the bytes of all blocks lie in another. That is two thirds of what a node and an allocation for each block
//! would take, and the buffer holds so many more records.
//!
//! Invariant: the ranges of its blocks do not overlap.
use super::block::{Block, BlockSplitter};
use super::record::{Key, Record};
use bytes::Bytes;
use std::ops::Range;

/// A block in the tree.
#[derive(Debug, Clone)]
struct Node {
    first: Key,
    last: Key,
    /// Where its bytes begin.
    at: u64,
    records: u32,
    /// Number of its bytes.
    length: u32,
    deletes: bool,
}

/// A block of a tree.
pub type Leaf<'a> = Block<&'a [u8]>;

impl Leaf<'_> {
    /// The block by itself.
    pub fn block(&self) -> Block {
        Block {
            first: self.first,
            last: self.last,
            records: self.records,
            deletes: self.deletes,
            bytes: Bytes::copy_from_slice(self.bytes),
        }
    }
}

/// See the head of this file.
#[derive(Debug, Clone, Default)]
pub struct Tree {
    nodes: Vec<Node>,
    data: Vec<u8>,
    /// Number of records, deletes included.
    pub records: u64,
}

impl Tree {
    /// The tree of these records, in strictly ascending order.
    pub fn of(records: &[Record], splitter: &mut BlockSplitter) -> Tree {
        let mut tree = Tree::default();
        let blocks = records
            .chunks(splitter.full)
            .map(|piece| splitter.encode(piece));
        blocks.flatten().for_each(|block| tree.push(&block));
        tree.trim();
        tree
    }

    /// Adds a block whose keys are above those before.
    pub fn push(&mut self, block: &Block) {
        debug_assert!(
            self.nodes.last().is_none_or(|n| n.last < block.first),
            "blocks come in order"
        );
        self.nodes.push(Node {
            first: block.first,
            last: block.last,
            at: self.data.len() as u64,
            records: block.records,
            length: block.bytes.len() as u32,
            deletes: block.deletes,
        });
        self.data.extend_from_slice(&block.bytes);
        self.records += u64::from(block.records);
    }

    /// Frees memory that no block needs: no more are added.
    pub fn trim(&mut self) {
        self.nodes.shrink_to_fit();
        self.data.shrink_to_fit();
    }

    /// Memory held, in bytes.
    pub fn bytes(&self) -> usize {
        self.nodes.capacity() * size_of::<Node>() + self.data.capacity()
    }

    /// Number of blocks.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there is no block.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Block `i`, from 0 on in order.
    pub fn get(&self, i: usize) -> Option<Leaf<'_>> {
        self.nodes.get(i).map(|node| self.leaf(node))
    }

    fn leaf(&self, node: &Node) -> Leaf<'_> {
        let at = node.at as usize;
        Leaf {
            first: node.first,
            last: node.last,
            records: node.records,
            deletes: node.deletes,
            bytes: &self.data[at..at + node.length as usize],
        }
    }

    fn leaves(&self, range: Range<usize>) -> impl Iterator<Item = Leaf<'_>> {
        self.nodes[range].iter().map(|node| self.leaf(node))
    }

    /// The last block that starts at or before `at`, if it ends at or after `far`, and all that start after `at` and before `end`.
    pub fn reach(&self, far: Key, at: Key, end: Key) -> impl Iterator<Item = Leaf<'_>> {
        let behind = self.nodes.partition_point(|n| n.first <= at);
        let before = behind.checked_sub(1);
        let from = before.filter(|i| self.nodes[*i].last >= far);
        let many = self.nodes[behind..].partition_point(|n| n.first < end);
        self.leaves(from.unwrap_or(behind)..behind + many)
    }

    /// The place of the first block whose last key is at or above `key`: the number of blocks if there is none.
    pub fn at_or_above(&self, key: Key) -> usize {
        self.nodes.partition_point(|n| n.last < key)
    }

    /// All blocks, in order.
    pub fn iter(&self) -> impl Iterator<Item = Leaf<'_>> {
        self.leaves(0..self.nodes.len())
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
        let mut splitter = BlockSplitter::new(1 << 20);
        splitter.add(record(1));
        let tree = Tree::of(&[record(5), record(6)], &mut splitter);
        assert_eq!((tree.records, tree.len()), (2, 1));
    }

    proptest! {
        #[test]
        fn blocks_are_found_by_their_keys(
            records in records(200), block_bytes in 1usize..1000, probes in proptest::collection::vec((0u64..4, 0u64..5000, 0u64..4, 0u64..5000), 10),
        ) {
            let mut splitter = BlockSplitter::new(block_bytes);
            let tree = Tree::of(&records, &mut splitter);
            prop_assert_eq!(tree.records, records.len() as u64);
            let mut back = Vec::new();
            let blocks: Vec<Leaf<'_>> = tree.iter().collect();
            for (i, leaf) in blocks.iter().enumerate() {
                leaf.records(&mut back).unwrap();
                leaf.block().records(&mut back).unwrap();
                back.truncate(back.len() - leaf.records as usize);
                prop_assert_eq!(tree.get(i), Some(*leaf));
                prop_assert_eq!(leaf.deletes, back[back.len() - leaf.records as usize..].iter().any(|r| r.len == 0));
            }
            prop_assert_eq!(&back, &records);
            prop_assert_eq!(tree.get(tree.len()), None);
            let bytes: usize = blocks.iter().map(|leaf| leaf.bytes.len()).sum();
            prop_assert_eq!(tree.bytes(), bytes + blocks.len() * size_of::<Node>());
            for (fid, offset, to_fid, to_offset) in probes {
                let (far, at) = (Key { fid, offset }, Key { fid, offset: offset + to_offset / 9 });
                let end = Key { fid: fid + to_fid / 3, offset: at.offset + to_offset / 7 };
                let found: Vec<Leaf<'_>> = tree.reach(far, at, end).collect();
                let before = blocks.iter().rfind(|b| b.first <= at);
                let within = blocks.iter().filter(|b| at < b.first && b.first < end);
                let want: Vec<Leaf<'_>> = before.filter(|b| b.last >= far).into_iter().chain(within).copied().collect();
                prop_assert_eq!(found, want);
                let place = blocks.iter().position(|b| b.last >= at).unwrap_or(blocks.len());
                prop_assert_eq!(tree.at_or_above(at), place);
            }
        }
    }
}
