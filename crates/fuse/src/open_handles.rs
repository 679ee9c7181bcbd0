//! The files and directories that the kernel has open on a mount, and who opened them. For those that want to unmount: another
//! user's processes cannot be looked into, but what they hold open is known here.
//!
//! The kernel opens inodes, not paths. The name by which each was last looked up is remembered for some thousands of
//! them, in two tables: the older is discarded when the newer is full. A path is put together from such names when it is asked
//! for, and may lack its beginning.
//!
//! Handles that write are counted by file too: as long as there is one, the kernel may have pages of the file that the service has
//! not, where it writes pages back later.
//!
//! Invariant: a handle is here from before the kernel hears of it until its RELEASE, which comes some time after the close.
use parking_lot::{Condvar, Mutex};
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Names remembered in each generation.
const NAMES_PER_GENERATION: usize = 2048;
/// Longest path that is put together, in names.
const MAX_DEPTH: usize = 256;

/// A handle, as the kernel numbers it: files and directories apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum HandleKey {
    File(u64),
    Directory(u64),
}

/// A file or directory that is open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenPath {
    /// Its path below the mount point, as far as it is known; the inode's number if no name of it is.
    pub path: Vec<u8>,
    /// How many handles are open on it.
    pub handles: u64,
    /// The threads that opened it, as this process's `/proc` numbers them, without those that cannot be seen from here.
    pub openers: Vec<u32>,
}

/// The open handles of one mount.
#[derive(Default)]
pub struct OpenHandles {
    state: Mutex<HandlesState>,
    all_closed: Condvar,
}

/// The directory of a file and its name there.
type ParentAndName = (u64, Arc<[u8]>);

/// What is known of an open handle.
struct KernelHandle {
    inode: u64,
    /// That opened it.
    thread: u32,
    /// The inode's name then.
    name: Option<ParentAndName>,
    writes: bool,
}

#[derive(Default)]
struct HandlesState {
    open: HashMap<HandleKey, KernelHandle>,
    /// How many of these write, by inode.
    writers: HashMap<u64, u32>,
    names: HashMap<u64, ParentAndName>,
    older_names: HashMap<u64, ParentAndName>,
}

impl HandlesState {
    /// Whether no handle on the inode writes any more.
    fn writer_closed(&mut self, inode: u64) -> bool {
        let Entry::Occupied(mut writers) = self.writers.entry(inode) else {
            return true;
        };
        *writers.get_mut() -= 1;
        let last = *writers.get() == 0;
        if last {
            writers.remove();
        }
        last
    }

    fn name(&self, inode: u64) -> Option<&ParentAndName> {
        self.names
            .get(&inode)
            .or_else(|| self.older_names.get(&inode))
    }

    fn path(&self, inode: u64, name: Option<&ParentAndName>) -> Vec<u8> {
        let mut parts: Vec<Arc<[u8]>> = Vec::new();
        let mut next = name.or_else(|| self.name(inode));
        let mut top = inode;
        while let Some((parent, name)) = next.filter(|_| parts.len() < MAX_DEPTH) {
            parts.push(name.clone());
            top = *parent;
            next = self.name(top);
        }
        let mut path = match (top, parts.is_empty()) {
            (ROOT, _) => Vec::new(),
            (inode, true) => format!("inode {inode}").into_bytes(),
            _ => b"...".to_vec(),
        };
        for part in parts.iter().rev() {
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(part);
        }
        if path.is_empty() { b".".to_vec() } else { path }
    }
}

/// The inode of the mount's root.
const ROOT: u64 = 1;

impl OpenHandles {
    /// An inode was found or made under this name.
    pub(crate) fn named(&self, inode: u64, parent: u64, name: &[u8]) {
        let mut state = self.state.lock();
        if let Some(known) = state.names.get(&inode)
            && known.0 == parent
            && *known.1 == *name
        {
            return;
        }
        if state.names.len() >= NAMES_PER_GENERATION {
            state.older_names = std::mem::take(&mut state.names);
        }
        state.names.insert(inode, (parent, name.into()));
    }

    pub(crate) fn opened(&self, key: HandleKey, inode: u64, thread: u32, writes: bool) {
        let mut state = self.state.lock();
        let name = state.name(inode).cloned();
        let handle = KernelHandle {
            inode,
            thread,
            name,
            writes,
        };
        state.open.insert(key, handle);
        if writes {
            *state.writers.entry(inode).or_default() += 1;
        }
    }

    /// Whether it was the last one on its inode that writes.
    pub(crate) fn closed(&self, key: HandleKey) -> bool {
        let mut state = self.state.lock();
        let closed = state.open.remove(&key);
        if state.open.is_empty() {
            self.all_closed.notify_all();
        }
        match closed {
            Some(handle) if handle.writes => state.writer_closed(handle.inode),
            _ => false,
        }
    }

    /// Whether a handle on the inode writes.
    pub(crate) fn is_written(&self, inode: u64) -> bool {
        self.state.lock().writers.contains_key(&inode)
    }

    /// The inodes on which handles write.
    pub(crate) fn written(&self) -> Vec<u64> {
        self.state.lock().writers.keys().copied().collect()
    }

    /// What is still open after `timeout` at most: nothing if everything is closed before that.
    #[must_use]
    pub fn open_after(&self, timeout: Duration) -> Vec<OpenPath> {
        let end = Instant::now() + timeout;
        let mut state = self.state.lock();
        while !state.open.is_empty() && !self.all_closed.wait_until(&mut state, end).timed_out() {}
        let mut files: BTreeMap<u64, OpenPath> = BTreeMap::new();
        for open in state.open.values() {
            let file = files.entry(open.inode).or_insert_with(|| OpenPath {
                path: state.path(open.inode, open.name.as_ref()),
                handles: 0,
                openers: Vec::new(),
            });
            file.handles += 1;
            if open.thread != 0 && !file.openers.contains(&open.thread) {
                file.openers.push(open.thread);
            }
        }
        let mut files: Vec<OpenPath> = files.into_values().collect();
        files.iter_mut().for_each(|f| f.openers.sort_unstable());
        files.sort_by(|a, b| a.path.cmp(&b.path));
        files
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(handles: &OpenHandles) -> Vec<(String, u64, Vec<u32>)> {
        let files = handles.open_after(Duration::ZERO);
        let text = |f: OpenPath| (String::from_utf8(f.path).unwrap(), f.handles, f.openers);
        files.into_iter().map(text).collect()
    }

    #[test]
    fn what_is_open_is_told_by_path_count_and_thread_until_it_is_closed() {
        let handles = OpenHandles::default();
        handles.named(2, ROOT, b"dir");
        handles.named(3, 2, b"file");
        handles.opened(HandleKey::File(8), 3, 77, false);
        handles.opened(HandleKey::File(16), 3, 78, false);
        handles.opened(HandleKey::Directory(8), 2, 0, false);
        handles.opened(HandleKey::Directory(9), ROOT, 77, false);
        let file = (String::from("dir/file"), 2, vec![77, 78]);
        let dirs = [
            (String::from("."), 1, vec![77]),
            (String::from("dir"), 1, vec![]),
        ];
        assert_eq!(open(&handles), [dirs[0].clone(), dirs[1].clone(), file]);
        handles.closed(HandleKey::File(8));
        handles.closed(HandleKey::Directory(8));
        handles.closed(HandleKey::Directory(9));
        assert_eq!(open(&handles), [(String::from("dir/file"), 1, vec![78])]);
        handles.closed(HandleKey::File(16));
        assert!(handles.open_after(Duration::from_secs(60)).is_empty());
    }

    #[test]
    fn a_close_within_the_time_given_is_waited_for() {
        let handles = OpenHandles::default();
        handles.opened(HandleKey::File(8), 3, 77, false);
        std::thread::scope(|scope| {
            scope.spawn(|| handles.closed(HandleKey::File(8)));
            assert!(handles.open_after(Duration::from_secs(60)).is_empty());
        });
    }

    #[test]
    fn names_are_forgotten_but_not_those_of_open_files() {
        let handles = OpenHandles::default();
        handles.named(2, ROOT, b"kept");
        handles.opened(HandleKey::File(8), 2, 1, false);
        handles.opened(HandleKey::File(16), 900_000, 1, false);
        for inode in 10..10 + 3 * NAMES_PER_GENERATION as u64 {
            handles.named(inode, 9, b"x");
        }
        handles.opened(
            HandleKey::File(24),
            9 + 3 * NAMES_PER_GENERATION as u64,
            1,
            false,
        );
        let paths: Vec<String> = open(&handles).into_iter().map(|f| f.0).collect();
        assert_eq!(paths, [".../x", "inode 900000", "kept"]);
        let held = handles.state.lock();
        assert!(held.names.len() + held.older_names.len() <= 2 * NAMES_PER_GENERATION);
    }

    #[test]
    fn a_file_is_written_until_the_last_handle_that_writes_is_closed() {
        let handles = OpenHandles::default();
        for (handle, inode, writes) in [(8, 2, true), (16, 2, false), (24, 2, true), (32, 3, true)]
        {
            handles.opened(HandleKey::File(handle), inode, 1, writes);
        }
        assert!(!handles.closed(HandleKey::File(8)));
        assert!(!handles.closed(HandleKey::File(8)), "closed already");
        assert!(handles.is_written(2));
        assert!(handles.closed(HandleKey::File(24)));
        assert!(!handles.is_written(2), "one that reads is left");
        assert!(!handles.closed(HandleKey::File(16)));
        assert_eq!(handles.written(), [3]);
    }

    #[test]
    fn a_circle_of_names_ends() {
        let handles = OpenHandles::default();
        handles.named(2, 3, b"a");
        handles.named(3, 2, b"b");
        handles.opened(HandleKey::File(8), 2, 1, false);
        assert!(open(&handles)[0].0.starts_with("..."));
    }
}
