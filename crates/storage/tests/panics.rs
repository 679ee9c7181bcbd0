//! A thread that panics inside a store: whoever else uses the store, or waits for that thread, gets an error.
#![allow(clippy::unwrap_used)]
mod support;

use forebay_storage::fault::FaultIo;
use forebay_storage::{Batch, DirEntry, Durability, Error, File, Io, Keyspace, Options, Store};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use support::DIR;

/// A disk on which, once armed, the next call that writes or creates panics (in a thread of this name, if given).
struct Panicking {
    disk: FaultIo,
    armed: Arc<AtomicBool>,
    thread: Option<&'static str>,
}

struct PanickingFile(Arc<dyn File>, Arc<AtomicBool>, Option<&'static str>);

fn strike(armed: &AtomicBool, thread: Option<&str>) {
    let here = thread.is_none() || std::thread::current().name() == thread;
    if here && armed.swap(false, Ordering::SeqCst) {
        panic!("on purpose");
    }
}

impl Panicking {
    fn wrap(&self, file: Arc<dyn File>) -> Arc<dyn File> {
        Arc::new(PanickingFile(file, self.armed.clone(), self.thread))
    }
}

impl File for PanickingFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(buf, offset)
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        strike(&self.1, self.2);
        self.0.write_at(buf, offset)
    }
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }
    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        self.0.allocate(offset, len)
    }
    fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        self.0.punch(offset, len)
    }
    fn sync(&self) -> io::Result<()> {
        self.0.sync()
    }
}

impl Io for Panicking {
    fn open(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        Ok(self.wrap(self.disk.open(path)?))
    }
    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        strike(&self.armed, self.thread);
        Ok(self.wrap(self.disk.create(path)?))
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.rename(from, to)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.disk.remove(path)
    }
    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.disk.exists(path)
    }
    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        self.disk.list(dir)
    }
    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.disk.create_dir_all(dir)
    }
    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.disk.sync_dir(dir)
    }
    fn space(&self, dir: &Path) -> io::Result<(u64, u64)> {
        self.disk.space(dir)
    }
}

/// A store on such a disk, and what arms it.
fn store(thread: Option<&'static str>) -> (Store, FaultIo, Arc<AtomicBool>) {
    let (disk, armed) = (FaultIo::new(3), Arc::new(AtomicBool::new(false)));
    let io = Panicking {
        disk: disk.clone(),
        armed: armed.clone(),
        thread,
    };
    let options = Options {
        background: true,
        ..support::options(Durability::Disk)
    };
    let store = Store::open(Arc::new(io), Path::new(DIR), options).unwrap();
    (store, disk, armed)
}

fn put(store: &Store, key: u32) -> Result<(), Error> {
    let mut batch = Batch::new();
    batch.put(Keyspace(1), key.to_be_bytes().to_vec(), vec![7; 40]);
    store.apply(batch)
}

#[test]
fn a_writer_that_panics_poisons_the_store_for_all_writers() {
    let (store, disk, armed) = store(None);
    put(&store, 0).unwrap();
    armed.store(true, Ordering::SeqCst);
    let panics = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..6u32)
            .map(|thread| {
                let store = &store;
                // Until the store is closed; so each thread ends, if nobody is left asleep.
                scope.spawn(move || {
                    (1..1_000_000)
                        .find_map(|i| put(store, thread << 24 | i).err())
                        .unwrap()
                })
            })
            .collect();
        let ends: Vec<_> = writers.into_iter().map(|w| w.join()).collect();
        for end in ends.iter().flatten() {
            assert!(matches!(end, Error::Poisoned { .. }), "{end}");
        }
        ends.iter().filter(|end| end.is_err()).count()
    });
    // The background may have been hit in a writer's place.
    assert!(panics <= 1);
    assert!(!armed.load(Ordering::SeqCst));
    // What was acknowledged is there when the store is opened again.
    let image = disk.kill();
    drop(store);
    let io = Arc::new(FaultIo::with_image(&image, 4));
    let again = Store::open(io, Path::new(DIR), support::options(Durability::Disk)).unwrap();
    assert!(
        again
            .get(Keyspace(1), &0u32.to_be_bytes())
            .unwrap()
            .is_some()
    );
    put(&again, 1).unwrap();
}

#[test]
fn nobody_waits_for_a_flush_thread_that_panicked() {
    let (store, _disk, armed) = store(Some("store-flush"));
    put(&store, 0).unwrap();
    armed.store(true, Ordering::SeqCst);
    let error = store.flush().unwrap_err();
    assert!(matches!(error, Error::Poisoned { .. }), "{error}");
    assert!(matches!(put(&store, 1), Err(Error::Poisoned { .. })));
}
