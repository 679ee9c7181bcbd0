//! The stated semantics, as plainly as they can be said: files with committed versions, and per node what is pending and
//! how old a version it may still show.
//!
//! - A node's pending changes are seen by that node at once, by others after the node's next commit.
//! - What a node shows of others' commits never goes back, and is newest after an open, a getattr or an own commit; in
//!   between it may be any version from the last one it must know to the newest. Each read shows one version.
//! - Names are the same everywhere at once. A file without a name lives as long as a handle anywhere.

pub mod content;
pub mod rows;

use content::Content;
use std::collections::BTreeMap;

pub type FileId = usize;

#[derive(Clone, Debug)]
pub enum Change {
    Put(u64, Vec<u8>),
    Hole(u64, u64),
    Reach(u64),
}

#[derive(Clone)]
pub struct File {
    pub versions: Vec<Content>,
    /// By node: what is pending.
    pub pending: Vec<Vec<Change>>,
    /// By node: the oldest version it may still show.
    pub view: Vec<usize>,
    /// Where appends go at least.
    pub reserved: u64,
    pub handles: usize,
    pub names: usize,
}

impl File {
    pub fn new(nodes: usize) -> File {
        File {
            versions: vec![Content::default()],
            pending: vec![Vec::new(); nodes],
            view: vec![0; nodes],
            reserved: 0,
            handles: 0,
            names: 1,
        }
    }

    fn newest(&self) -> usize {
        self.versions.len() - 1
    }

    fn with_pending(&self, node: usize, version: usize) -> Content {
        let mut content = self.versions[version].clone();
        for change in &self.pending[node] {
            match change {
                Change::Put(offset, data) => content.put(*offset, data),
                Change::Hole(start, end) => content.punch(*start..*end),
                Change::Reach(end) => content.size = content.size.max(*end),
            }
        }
        content
    }

    /// The node asks the owner.
    pub fn look(&mut self, node: usize) {
        self.view[node] = self.newest();
    }

    pub fn commit(&mut self, node: usize) {
        if !self.pending[node].is_empty() {
            let content = self.with_pending(node, self.newest());
            self.pending[node].clear();
            self.versions.push(content);
            self.look(node);
        }
    }

    pub fn truncate(&mut self, node: usize, size: u64) {
        let mut content = self.with_pending(node, self.newest());
        content.resize(size);
        self.pending[node].clear();
        self.versions.push(content);
        self.look(node);
        self.reserved = 0;
    }

    pub fn size(&self, node: usize) -> u64 {
        self.with_pending(node, self.newest()).size
    }

    pub fn append(&mut self, node: usize, data: Vec<u8>) {
        let offset = self.reserved.max(self.size(node));
        self.reserved = offset + data.len() as u64;
        self.pending[node].push(Change::Put(offset, data));
    }

    /// Whether the node may show `right`'s version now; if so, it must not show older ones from now on.
    pub fn shows(&mut self, node: usize, right: impl Fn(&Content) -> bool) -> bool {
        let found = (self.view[node]..=self.newest()).find(|v| right(&self.with_pending(node, *v)));
        if let Some(version) = found {
            self.view[node] = version;
        }
        found.is_some()
    }

    /// Fails unless the node may show these bytes now, which it read at `offset`, `len` of them at most.
    pub fn check_read(&mut self, node: usize, (offset, len): (u64, u64), bytes: &[u8]) {
        if !self.shows(node, |content| content.read(offset, len) == bytes) {
            let newest = self.newest_content(node).read(offset, len);
            let differs = newest.iter().zip(bytes).position(|(a, b)| a != b);
            panic!(
                "node {node}: read {} bytes at {offset}, newest has {}, first other byte {differs:?}",
                bytes.len(),
                newest.len()
            );
        }
    }

    /// A hint for a failure: what the newest version would show.
    pub fn newest_content(&self, node: usize) -> Content {
        self.with_pending(node, self.newest())
    }

    pub fn close(&mut self) {
        self.handles -= 1;
        if self.handles == 0 {
            self.reserved = 0;
        }
    }
}

#[derive(Clone, Default)]
pub struct Model {
    pub files: Vec<File>,
    pub names: BTreeMap<String, FileId>,
}

impl Model {
    pub fn unlink(&mut self, name: &str) {
        if let Some(file) = self.names.remove(name) {
            self.files[file].names -= 1;
        }
    }
}
