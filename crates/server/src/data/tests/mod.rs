//! Tests of the data plane as a whole.
mod basics;
mod faults;
mod model;
mod no_holes;
mod threads;

use super::*;
use crate::Error;
use forebay_storage::{Options, OsIo};
use std::path::PathBuf;
use tempfile::TempDir;

/// A data plane in a directory of its own, without the cleaning thread.
struct Bench {
    dir: TempDir,
    store: Arc<Store>,
    options: DataOptions,
    data: Data,
}

fn options() -> DataOptions {
    DataOptions {
        member: 3,
        quota: None,
        buffer_bytes: 4 << 20,
        sync_each_flush: false,
        room: Arc::default(),
    }
}

impl Bench {
    fn new(options: DataOptions) -> Bench {
        let dir = tempfile::tempdir().unwrap();
        let store = Arc::new(
            Store::open(
                Arc::new(OsIo),
                &dir.path().join("store"),
                Options::default(),
            )
            .unwrap(),
        );
        let data = open(&dir.path().join("data"), &store, &options);
        Bench {
            dir,
            store,
            options,
            data,
        }
    }
    /// As after a kill: what was only in memory is gone.
    fn crash(&mut self) {
        self.data = open(&self.dir.path().join("data"), &self.store, &self.options);
    }
    fn segments(&self) -> Vec<PathBuf> {
        let mut found: Vec<_> = std::fs::read_dir(self.dir.path().join("data"))
            .unwrap()
            .map(|e| e.unwrap().path())
            .collect();
        found.sort();
        found
    }
    fn read(&self, log: LogId, addr: u64, len: usize) -> Result<Vec<u8>> {
        let mut buf = vec![0xee; len];
        self.data.read(log, addr, &mut buf).map(|()| buf)
    }
}

fn open(dir: &Path, store: &Arc<Store>, options: &DataOptions) -> Data {
    Data::open_quiet(Arc::new(OsIo), dir, store.clone(), options.clone())
        .unwrap()
        .0
}

/// Bytes that say where they are.
fn pattern(log: LogId, addr: u64, len: usize) -> Vec<u8> {
    (addr..addr + len as u64)
        .map(|a| (a.wrapping_mul(0x9E37_79B9).wrapping_add(log * 77) >> 11) as u8)
        .collect()
}

fn is_gone<T>(result: &Result<T>) -> bool {
    matches!(result, Err(Error::Gone { member: 3, .. }))
}
