//! Numbers that never repeat: of logs here, and of whatever else a member numbers for good (files, sequences, tokens).
//!
//! Invariant: a number is reserved on disk, in a block with others, before it is handed out. So a crash, or a power loss at any
//! durability, may skip numbers; it never gives one again.
//!
//! Record (keyspace `COUNTERS`, key: the counter's name): the end of the reserved block, 8 bytes big-endian.
use crate::keyspaces::COUNTERS;
use bytes::Bytes;
use forebay_proto::{Error, Result};
use forebay_storage::{Batch, Store};
use parking_lot::Mutex;
use std::sync::Arc;

/// Numbers reserved at a time.
const BLOCK: u64 = 1 << 16;

/// Numbers that never repeat, also after a crash: reserved on disk in blocks, handed out from memory.
pub struct Counter {
    store: Arc<Store>,
    name: &'static [u8],
    /// The next number, and the end of the reserved block.
    next: Mutex<(u64, u64)>,
}

impl Counter {
    /// The counter called `name` in `store`; a new one starts at `first`.
    ///
    /// # Errors
    /// When the store cannot be read, or the record is damaged.
    pub fn open(store: Arc<Store>, name: &'static [u8], first: u64) -> Result<Counter> {
        let next = match store.get(COUNTERS, name)? {
            Some(v) => <[u8; 8]>::try_from(&v[..])
                .map(u64::from_be_bytes)
                .map_err(|_| {
                    let name = String::from_utf8_lossy(name);
                    Error::Corrupt(format!(
                        "counter {name}: {} bytes, not 8; run `forebay fsck`",
                        v.len()
                    ))
                })?,
            None => first,
        };
        Ok(Counter {
            store,
            name,
            next: Mutex::new((next, next)),
        })
    }

    /// A number above all handed out before.
    ///
    /// # Errors
    /// When the next block cannot be reserved on disk.
    pub fn next(&self) -> Result<u64> {
        let mut state = self.next.lock();
        if state.0 == state.1 {
            let limit = state.1 + BLOCK;
            // Deleting takes numbers too (intents): they must come on a full disk.
            let mut batch = Batch::reclaiming();
            batch.put(
                COUNTERS,
                Bytes::from_static(self.name),
                Bytes::copy_from_slice(&limit.to_be_bytes()),
            );
            self.store.apply(batch)?;
            // On disk whatever the durability: other members' records name these numbers, and must not meet them again
            // with another meaning after a power loss.
            self.store.sync()?;
            state.1 = limit;
        }
        let n = state.0;
        state.0 += 1;
        Ok(n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_storage::OsIo;

    #[test]
    fn numbers_go_on_over_blocks_and_never_repeat_after_a_start() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(Arc::new(OsIo), dir.path(), Default::default()).unwrap();
        let store = Arc::new(store);
        let counter = Counter::open(store.clone(), b"over blocks", 1).unwrap();
        let numbers: Vec<u64> = (0..BLOCK + 10).map(|_| counter.next().unwrap()).collect();
        assert_eq!(numbers, (1..BLOCK + 11).collect::<Vec<u64>>());
        let again = Counter::open(store, b"over blocks", 1).unwrap();
        assert_eq!(again.next().unwrap(), 2 * BLOCK + 1);
    }
}
