//! Numbers files by inode, and keeps the path by which each was looked up last.

use crate::recording::TraceFile;
use parking_lot::RwLock;
use std::collections::{BTreeSet, HashMap};

/// The inode of a mount's root directory.
const ROOT: u64 = 1;

/// See the head of this file.
#[derive(Default)]
pub(super) struct FileNumbers(RwLock<FileTable>);

#[derive(Default)]
struct FileTable {
    numbers: HashMap<u64, u32>,
    files: Vec<TraceFile>,
    inodes: HashMap<String, u64>,
    /// Numbers of files that are new or have a new name, in order.
    new: BTreeSet<u32>,
}

impl FileNumbers {
    /// The number of a file; a new one if it was not met before.
    pub fn number(&self, inode: u64) -> u32 {
        if let Some(number) = self.0.read().numbers.get(&inode) {
            return *number;
        }
        self.0.write().number(inode)
    }

    pub fn name(&self, parent: u64, name: &[u8], inode: u64) {
        {
            let table = self.0.read();
            let path = table.path(parent, name);
            let known = table.inodes.get(&path) == Some(&inode);
            let number = table.numbers.get(&inode);
            if known && number.is_some_and(|n| table.files[*n as usize].path == path) {
                return;
            }
        }
        let mut table = self.0.write();
        let path = table.path(parent, name);
        let number = table.number(inode);
        table.files[number as usize].path.clone_from(&path);
        table.new.insert(number);
        table.inodes.insert(path, inode);
    }

    pub fn child(&self, parent: u64, name: &[u8]) -> Option<u64> {
        let table = self.0.read();
        table.inodes.get(&table.path(parent, name)).copied()
    }

    /// What is new since the last time, in order of numbers.
    pub fn take_new(&self) -> Vec<(u32, TraceFile)> {
        let mut table = self.0.write();
        let new = std::mem::take(&mut table.new);
        let file = |number: u32| (number, table.files[number as usize].clone());
        new.into_iter().map(file).collect()
    }
}

impl FileTable {
    fn number(&mut self, inode: u64) -> u32 {
        let next = self.files.len() as u32;
        let number = *self.numbers.entry(inode).or_insert(next);
        if number == next {
            let path = if inode == ROOT { "." } else { "" };
            self.files.push(TraceFile {
                path: path.into(),
                inode,
            });
            self.new.insert(number);
        }
        number
    }

    /// Below a directory that was never met itself: its inode stands for its path.
    fn path(&self, parent: u64, name: &[u8]) -> String {
        let name = String::from_utf8_lossy(name);
        if parent == ROOT {
            return name.into_owned();
        }
        let known = self.numbers.get(&parent);
        match known.map(|n| self.files[*n as usize].path.as_str()) {
            Some(path) if !path.is_empty() => format!("{path}/{name}"),
            _ => format!("inode-{parent}/{name}"),
        }
    }
}
