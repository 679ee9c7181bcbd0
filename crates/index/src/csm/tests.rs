//! What the tests of several files need.
use super::{Key, Record};
use proptest::prelude::*;

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
