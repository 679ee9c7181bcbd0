//! The inodes the kernel knows, each with a descriptor, and the open files.
//!
//! An inode is known by device and number of the file below, so that links to one file are one inode. Its number for the
//! kernel is counted up and never reused.
use fuser::{FileHandle, INodeNo};
use parking_lot::RwLock;
use rustix::fs::Stat;
use rustix::io::Errno;
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

struct Node {
    fd: Arc<OwnedFd>,
    lookups: u64,
    key: (u64, u64),
}

#[derive(Default)]
struct NodeTable {
    nodes: HashMap<u64, Node>,
    numbers: HashMap<(u64, u64), u64>,
    last: u64,
}

/// The known inodes.
pub struct Nodes(RwLock<NodeTable>);

impl Nodes {
    /// Only the root.
    pub fn new(root: OwnedFd) -> Result<Nodes, Errno> {
        let stat = rustix::fs::fstat(&root)?;
        let mut table = NodeTable {
            last: INodeNo::ROOT.0 - 1,
            ..NodeTable::default()
        };
        table.add((stat.st_dev, stat.st_ino), Arc::new(root));
        Ok(Nodes(RwLock::new(table)))
    }

    /// The descriptor of an inode.
    pub fn get(&self, ino: INodeNo) -> Result<Arc<OwnedFd>, Errno> {
        self.0
            .read()
            .nodes
            .get(&ino.0)
            .map(|n| n.fd.clone())
            .ok_or(Errno::STALE)
    }

    /// One more lookup of the file that `stat` shows; `open` is called if it is new.
    pub fn enter(
        &self,
        stat: &Stat,
        open: impl FnOnce() -> rustix::io::Result<OwnedFd>,
    ) -> Result<INodeNo, Errno> {
        let key = (stat.st_dev, stat.st_ino);
        if let Some(ino) = self.0.write().again(key) {
            return Ok(ino);
        }
        let fd = Arc::new(open()?);
        let mut table = self.0.write();
        if let Some(ino) = table.again(key) {
            return Ok(ino);
        }
        Ok(table.add(key, fd))
    }

    /// The kernel drops `n` lookups.
    pub fn forget(&self, ino: INodeNo, n: u64) {
        let mut table = self.0.write();
        let Some(node) = table.nodes.get_mut(&ino.0) else {
            return;
        };
        node.lookups = node.lookups.saturating_sub(n);
        if node.lookups == 0 && ino != INodeNo::ROOT {
            let key = node.key;
            table.nodes.remove(&ino.0);
            table.numbers.remove(&key);
        }
    }
}

impl NodeTable {
    /// One that is met for the first time.
    fn add(&mut self, key: (u64, u64), fd: Arc<OwnedFd>) -> INodeNo {
        self.last += 1;
        let lookups = 1;
        self.nodes.insert(self.last, Node { fd, lookups, key });
        self.numbers.insert(key, self.last);
        INodeNo(self.last)
    }

    fn again(&mut self, key: (u64, u64)) -> Option<INodeNo> {
        let ino = *self.numbers.get(&key)?;
        self.nodes.get_mut(&ino)?.lookups += 1;
        Some(INodeNo(ino))
    }
}

/// Open files.
#[derive(Default)]
pub struct Handles {
    open: RwLock<HashMap<u64, Arc<OwnedFd>>>,
    last: AtomicU64,
}

impl Handles {
    /// A new handle.
    pub fn add(&self, file: OwnedFd) -> FileHandle {
        let fh = self.last.fetch_add(1, Relaxed) + 1;
        self.open.write().insert(fh, Arc::new(file));
        FileHandle(fh)
    }
    /// The file of a handle.
    pub fn get(&self, fh: FileHandle) -> Result<Arc<OwnedFd>, Errno> {
        self.open.read().get(&fh.0).cloned().ok_or(Errno::BADF)
    }
    /// Closes it.
    pub fn remove(&self, fh: FileHandle) {
        self.open.write().remove(&fh.0);
    }
}
