//! A cache of open files, with one limit of descriptors for all stores of a process.
//!
//! Files that are written stay open for as long as somebody writes them: few for each member. Those that are only read, segments and
//! tables, may be thousands: [`Io::open_kept`] keeps the most recently used ones open, as many as the pool has places. Their number is
//! derived from the process's limit of descriptors (`RLIMIT_NOFILE`).
//!
//! A call may still find no descriptor, because something else in the process took them. Then all that are kept are closed, and it
//! is tried again; then with a spare one, held open for this alone. What fails after that has changed nothing
//! ([`Error::NoDescriptors`](crate::Error::NoDescriptors)).
//!
//! Threads that read the same file have up to `SLOTS` descriptors of it while half of the places are free: Linux keeps the state of its readahead
//! with a descriptor, and threads that read different places through one would look like random reads.
//!
//! Invariants: at most `places` descriptors are kept; none of a file that was removed or renamed is.
use crate::error::is_no_descriptor;
use crate::{DirEntry, File, Io};
use lru::LruCache;
use parking_lot::Mutex;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Most descriptors of one file.
const SLOTS: usize = 4;

thread_local! {
    /// Which of a file's descriptors this thread uses.
    static SLOT: usize = {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        NEXT.fetch_add(1, Relaxed) % SLOTS
    };
}

/// Another file system, whose files are kept open within a number; see the head of this file.
pub struct PooledIo {
    disk: Arc<dyn Io>,
    places: usize,
    kept: Mutex<KeptFiles>,
    /// Given up for a call that finds no other descriptor; one such call at a time.
    spare: Mutex<Option<std::fs::File>>,
}

/// The descriptors of a file, by slot.
type Descriptors = [Option<Arc<dyn File>>; SLOTS];

struct KeptFiles {
    files: LruCache<OsString, Descriptors>,
    /// Descriptors of all of them.
    open: usize,
    /// Counts names that went: a file that was opened before one did is not kept.
    gone: u64,
}

impl KeptFiles {
    /// The descriptor of this slot; another one of the file, if there are to be no more.
    fn get(&mut self, name: &OsStr, slot: usize, places: usize) -> Option<Arc<dyn File>> {
        let is_crowded = self.open >= places / 2;
        let descriptors = self.files.get(name)?;
        let any = || descriptors.iter().flatten().next().filter(|_| is_crowded);
        descriptors[slot].as_ref().or_else(any).cloned()
    }

    /// Keeps a descriptor, and returns what is closed for it.
    fn keep(
        &mut self,
        name: &OsStr,
        slot: usize,
        file: Arc<dyn File>,
        places: usize,
    ) -> Vec<Descriptors> {
        let none = || [const { None }; SLOTS];
        let descriptors = self.files.get_or_insert_mut_ref(name, none);
        if descriptors[slot].replace(file).is_none() {
            self.open += 1;
        }
        let mut closed = Vec::new();
        while self.open > places {
            closed.extend(self.take_oldest());
        }
        closed
    }

    fn take_oldest(&mut self) -> Option<Descriptors> {
        let (_, descriptors) = self.files.pop_lru()?;
        self.open -= descriptors.iter().flatten().count();
        Some(descriptors)
    }

    fn remove(&mut self, name: &OsStr) -> Option<Descriptors> {
        let descriptors = self.files.pop(name)?;
        self.open -= descriptors.iter().flatten().count();
        Some(descriptors)
    }
}

impl PooledIo {
    /// Keeps at most `places` files of `disk` open for reading.
    pub fn new(disk: impl Io + 'static, places: usize) -> PooledIo {
        let places = places.max(1);
        PooledIo {
            disk: Arc::new(disk),
            places,
            kept: Mutex::new(KeptFiles {
                files: LruCache::unbounded(),
                open: 0,
                gone: 0,
            }),
            spare: Mutex::new(spare()),
        }
    }

    /// Makes a call that needs a descriptor.
    fn with_descriptor<T>(&self, call: impl Fn() -> io::Result<T>) -> io::Result<T> {
        match call() {
            Err(e) if is_no_descriptor(&e) => {}
            done => return done,
        }
        // Closed outside the lock: closing may take a while. Who reads one of them just now holds on to it.
        let mut closed = Vec::new();
        {
            let mut kept = self.kept.lock();
            while let Some(descriptors) = kept.take_oldest() {
                closed.push(descriptors);
            }
        }
        drop(closed);
        match call() {
            Err(e) if is_no_descriptor(&e) => {}
            done => return done,
        }
        let mut held = self.spare.lock();
        drop(held.take());
        let done = call();
        *held = spare();
        done
    }

    fn forget(&self, path: &Path) {
        let mut kept = self.kept.lock();
        kept.gone += 1;
        let closed = kept.remove(path.as_os_str());
        drop(kept);
        drop(closed);
    }
}

/// A descriptor to give up later; none if there is none to be had now.
fn spare() -> Option<std::fs::File> {
    std::fs::File::open("/dev/null").ok()
}

impl Io for PooledIo {
    fn open(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        self.with_descriptor(|| self.disk.open(path))
    }

    fn open_to_read(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        self.with_descriptor(|| self.disk.open_to_read(path))
    }

    fn open_kept(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        let name: &OsStr = path.as_os_str();
        let slot = SLOT.with(|slot| *slot);
        let gone = {
            let mut kept = self.kept.lock();
            if let Some(file) = kept.get(name, slot, self.places) {
                return Ok(file);
            }
            kept.gone
        };
        let file = self.open(path)?;
        let mut kept = self.kept.lock();
        let closed = match kept.gone == gone {
            true => kept.keep(name, slot, file.clone(), self.places),
            false => Vec::new(),
        };
        drop(kept);
        drop(closed);
        Ok(file)
    }

    fn open_at_once(&self) -> usize {
        self.places
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        self.with_descriptor(|| self.disk.create(path))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.rename(from, to)?;
        self.forget(from);
        self.forget(to);
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.disk.remove(path)?;
        self.forget(path);
        Ok(())
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.disk.exists(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        self.with_descriptor(|| self.disk.list(dir))
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.disk.create_dir_all(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.with_descriptor(|| self.disk.sync_dir(dir))
    }

    fn sync_files(&self, files: &[Arc<dyn File>]) -> Result<(), (usize, io::Error)> {
        self.disk.sync_files(files)
    }

    fn space(&self, dir: &Path) -> io::Result<(u64, u64)> {
        self.disk.space(dir)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::{Call, FaultIo, HookedIo};
    use rustix::io::Errno;
    use std::path::PathBuf;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    fn path(i: usize) -> PathBuf {
        PathBuf::from(format!("/d/{i}"))
    }

    /// Ten files on a disk that counts what is opened, and refuses the next calls for want of descriptors.
    fn disk() -> (HookedIo, Arc<AtomicUsize>, Arc<AtomicUsize>) {
        let disk = FaultIo::new(1);
        disk.create_dir_all(Path::new("/d")).unwrap();
        for i in 0..10 {
            disk.create(&path(i))
                .unwrap()
                .write_at(&[i as u8], 0)
                .unwrap();
        }
        let (opened, refused) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (count, refuse) = (opened.clone(), refused.clone());
        let io = HookedIo::new(disk, move |_, call| {
            let needs = matches!(call, Call::Open | Call::Create | Call::List | Call::SyncDir);
            if needs
                && refuse
                    .fetch_update(Relaxed, Relaxed, |n| n.checked_sub(1))
                    .is_ok()
            {
                return Err(Errno::MFILE.into());
            }
            count.fetch_add(usize::from(matches!(call, Call::Open)), Relaxed);
            Ok(())
        });
        (io, opened, refused)
    }

    fn first(io: &PooledIo, i: usize) -> u8 {
        let mut byte = [0xff];
        io.open_kept(&path(i))
            .unwrap()
            .read_at(&mut byte, 0)
            .unwrap();
        byte[0]
    }

    #[test]
    fn the_most_recently_used_files_stay_open_and_no_more_than_there_are_places() {
        let (disk, opened, _) = disk();
        let io = PooledIo::new(disk, 3);
        for i in 0..10 {
            assert_eq!(first(&io, i), i as u8);
            assert!(io.kept.lock().open <= 3);
        }
        assert_eq!(opened.load(Relaxed), 10);
        for _ in 0..5 {
            (7..10).for_each(|i| assert_eq!(first(&io, i), i as u8));
        }
        assert_eq!(opened.load(Relaxed), 10, "kept");
        assert_eq!(first(&io, 0), 0);
        assert_eq!(opened.load(Relaxed), 11, "opened again");
    }

    #[test]
    fn threads_have_descriptors_of_their_own_which_go_together() {
        let (disk, opened, _) = disk();
        let io = PooledIo::new(disk, 10);
        let read_by_threads = |n: usize| {
            std::thread::scope(|scope| {
                for _ in 0..n {
                    scope.spawn(|| assert_eq!(first(&io, 1), 1));
                }
            });
        };
        read_by_threads(1);
        assert_eq!(io.kept.lock().open, 1);
        // Slots are given out in turn, to other tests' threads too.
        while io.kept.lock().open < SLOTS {
            read_by_threads(1);
        }
        read_by_threads(2 * SLOTS);
        assert_eq!((io.kept.lock().open, opened.load(Relaxed)), (SLOTS, SLOTS));
        assert_eq!(io.kept.lock().files.len(), 1);
        io.remove(&path(1)).unwrap();
        assert_eq!(io.kept.lock().open, 0);
    }

    #[test]
    fn places_are_counted_by_descriptor() {
        let mut kept = KeptFiles {
            files: LruCache::unbounded(),
            open: 0,
            gone: 0,
        };
        let (disk, ..) = disk();
        let file = |i| disk.open(&path(i)).unwrap();
        for (i, slot) in [(1, 0), (2, 0), (1, 1), (1, 1)] {
            let name = path(i);
            assert!(kept.keep(name.as_os_str(), slot, file(i), 3).is_empty());
        }
        assert_eq!(kept.open, 3);
        // The other file is the one used least recently.
        let closed = kept.keep(path(3).as_os_str(), 0, file(3), 3);
        assert_eq!((closed.len(), kept.open), (1, 3));
        assert!(kept.get(path(2).as_os_str(), 0, 3).is_none());
        // No more descriptors of this one: any will do.
        assert!(kept.get(path(1).as_os_str(), 3, 3).is_some());
        assert!(kept.get(path(1).as_os_str(), 3, 100).is_none());
        let closed = kept.keep(path(4).as_os_str(), 0, file(4), 3);
        let descriptors = closed.iter().flatten().flatten().count();
        assert_eq!((descriptors, kept.open), (1, 3));
    }

    #[test]
    fn what_is_removed_or_renamed_is_not_kept() {
        let (disk, _, _) = disk();
        let io = PooledIo::new(disk, 10);
        (0..3).for_each(|i| assert_eq!(first(&io, i), i as u8));
        io.remove(&path(0)).unwrap();
        assert!(io.open_kept(&path(0)).is_err());
        io.rename(&path(1), &path(2)).unwrap();
        assert_eq!(first(&io, 2), 1);
        assert!(io.open_kept(&path(1)).is_err());
        assert_eq!(io.kept.lock().open, 1);
    }

    #[test]
    fn without_descriptors_what_is_kept_is_closed_and_the_call_made_again() {
        let (disk, _, refused) = disk();
        let io = PooledIo::new(disk, 10);
        for n in [1, 2] {
            (0..5).for_each(|i| assert_eq!(first(&io, i), i as u8));
            refused.store(n, Relaxed);
            io.sync_dir(Path::new("/d")).unwrap();
            assert_eq!(
                (io.kept.lock().open, refused.load(Relaxed)),
                (0, 0),
                "refused {n} times"
            );
        }
        refused.store(3, Relaxed);
        let refused = io.open(&path(1)).err().unwrap();
        assert!(is_no_descriptor(&refused), "{refused}");
        assert_eq!(first(&io, 1), 1, "later it may");
    }
}
