//! Helpers that the tests of several files share.
use super::block::BlockSplitter;
use super::sorted::SortedRun;
use super::table::{Table, TableContext, Writer};
use super::tree::Tree;
use super::{Key, Record};
use crate::cluster::Alpha;
use forebay_storage::OsIo;
use proptest::prelude::*;
use std::sync::Arc;

/// Up to `most` records in strictly ascending order, of a few files, some of them deletes.
pub fn records(most: usize) -> impl Strategy<Value = Vec<Record>> {
    let field = (0u32..4, 0u16..3, 0u64..3, 0u64..9, 0u64..4);
    let keys = proptest::collection::btree_map((0u64..4, 0u64..5000), field, 0..most);
    keys.prop_map(|map| {
        let record = |((fid, offset), (len, member, log, addr, seq))| {
            let key = Key { fid, offset };
            match len {
                0 => Record::delete(key),
                _ => Record {
                    key,
                    len: len * 1000,
                    member,
                    log,
                    addr: addr * 4096,
                    seq,
                },
            }
        };
        map.into_iter().map(record).collect()
    })
}

/// Up to `most` records in any order, keys repeated.
pub fn shuffled(most: usize) -> impl Strategy<Value = Vec<Record>> {
    let records = proptest::collection::vec(records(6), 0..most.div_ceil(3));
    records.prop_map(|pieces| pieces.concat())
}

/// Tables of at most two blocks each, and those small.
pub fn on_disk(dir: &std::path::Path, first: u64, records: &[Record]) -> SortedRun {
    on_disk_in(dir, first, records, 200)
}

/// Tables of at most two blocks each.
pub fn on_disk_in(
    dir: &std::path::Path,
    first: u64,
    records: &[Record],
    block_bytes: usize,
) -> SortedRun {
    let tree = Tree::of(records, &mut BlockSplitter::new(block_bytes));
    let blocks: Vec<_> = tree.iter().map(|leaf| leaf.block()).collect();
    let shared = Arc::new(TableContext::new(Arc::new(OsIo), 1 << 16, Alpha::default()));
    let tables = blocks.chunks(2).zip(first..).map(|(blocks, number)| {
        let path = dir.join(format!("{number}"));
        let mut writer = Writer::create(Arc::new(OsIo), path.clone(), number).unwrap();
        blocks.iter().for_each(|b| writer.add(b));
        Arc::new(Table::new(
            shared.clone(),
            path,
            writer.finish(|_| Ok(Vec::new())).unwrap().0,
        ))
    });
    SortedRun::new(tables.collect())
}
