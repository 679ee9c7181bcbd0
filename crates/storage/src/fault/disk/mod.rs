//! The disk behind [`FaultIo`](super::FaultIo): live state, durable state, and the changes between them.
//!
//! Invariant: `live` is what calls see; `durable` plus all of `changes` in order is `live`, of each file and of the names.
mod crash;
mod faults;
mod files;
mod names;

use super::image::Image;
use faults::CallFaults;
use names::DiskNames;
pub use names::NameChange;
use std::collections::{BTreeSet, HashMap};
use std::io::{self, ErrorKind};

const SECTOR: u64 = 512;
const PAGE: u64 = 4096;

/// An unsynced change of a file.
#[derive(Debug, Clone)]
pub enum Change {
    /// Bytes at an offset.
    Write(u64, Vec<u8>),
    /// Zeros from an offset on, for a length; frees whole pages.
    Zero(u64, u64),
    /// The file's length.
    Length(u64),
}

/// A file.
#[derive(Default)]
pub struct Inode {
    live: Vec<u8>,
    durable: Vec<u8>,
    changes: Vec<Change>,
    pages: BTreeSet<u64>,
    /// How often it is open.
    pub handles: usize,
    names: usize,
}

/// See the [module](self).
pub struct Disk {
    inodes: HashMap<u64, Inode>,
    /// Which file has which name.
    pub names: DiskNames,
    next_inode: u64,
    /// Files may own this many bytes, in pages.
    pub capacity: u64,
    used_pages: u64,
    /// Which calls fail.
    pub faults: CallFaults,
    draws: Draws,
}

/// Numbers from a seed (SplitMix64).
struct Draws(u64);

impl Draws {
    /// A number below `bound`.
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound.max(1)
    }
}

impl Disk {
    /// Holds what the image holds.
    pub fn new(image: &Image, seed: u64) -> Disk {
        let mut disk = Disk {
            inodes: HashMap::new(),
            names: DiskNames::default(),
            next_inode: 1,
            capacity: u64::MAX,
            used_pages: 0,
            faults: CallFaults::default(),
            draws: Draws(seed ^ 0x5851_f42d_4c95_7f2d),
        };
        for (path, bytes) in &image.entries {
            let inode = bytes.as_ref().map(|bytes| {
                let pages: BTreeSet<u64> = (0..(bytes.len() as u64).div_ceil(PAGE)).collect();
                disk.used_pages += pages.len() as u64;
                let node = Inode {
                    live: bytes.clone(),
                    durable: bytes.clone(),
                    pages,
                    names: 1,
                    ..Inode::default()
                };
                disk.add(node)
            });
            disk.names.live.insert(path.clone(), inode);
        }
        disk.names.durable = disk.names.live.clone();
        disk
    }

    fn add(&mut self, inode: Inode) -> u64 {
        let number = self.next_inode;
        self.next_inode += 1;
        self.inodes.insert(number, inode);
        number
    }

    pub fn used(&self) -> u64 {
        self.used_pages * PAGE
    }

    /// Bytes that a file owns, in pages.
    pub fn allocated(&self, number: u64) -> u64 {
        let inode = self.inodes.get(&number);
        inode.map_or(0, |inode| inode.pages.len() as u64 * PAGE)
    }

    /// The file of this number.
    pub fn inode(&mut self, number: u64) -> io::Result<&mut Inode> {
        self.inodes
            .get_mut(&number)
            .ok_or_else(|| ErrorKind::NotFound.into())
    }

    /// A new file that is open, without a name.
    pub fn add_open(&mut self) -> u64 {
        self.add(Inode {
            handles: 1,
            ..Inode::default()
        })
    }

    /// Changes a name; a file that lost its last one goes.
    pub fn change_name(&mut self, change: NameChange) {
        if let NameChange::Link(_, Some(inode)) = &change {
            self.inodes.entry(*inode).or_default().names += 1;
        }
        let replaced = self.names.change(change);
        if let Some(number) = replaced {
            if let Some(inode) = self.inodes.get_mut(&number) {
                inode.names -= 1;
            }
            self.free_if_unused(number);
        }
    }

    /// Gives the pages of a file back that nobody can reach any more. The inode stays while a crash could bring it back.
    fn free_if_unused(&mut self, number: u64) {
        if let Some(inode) = self
            .inodes
            .get_mut(&number)
            .filter(|i| i.names == 0 && i.handles == 0)
        {
            self.used_pages -= inode.pages.len() as u64;
            inode.pages.clear();
            self.forget(number);
        }
    }

    fn forget(&mut self, number: u64) {
        if !self.names.may_name(number) {
            self.inodes.remove(&number);
        }
    }

    pub fn close(&mut self, number: u64) {
        if let Some(inode) = self.inodes.get_mut(&number) {
            inode.handles -= 1;
        }
        self.free_if_unused(number);
    }

    /// Forgets files that have no name and are not open, unless a crash could bring them back.
    pub fn forget_unreachable(&mut self) {
        let unused = |(_, i): &(&u64, &Inode)| i.names == 0 && i.handles == 0;
        let gone: Vec<u64> = self.inodes.iter().filter(unused).map(|(n, _)| *n).collect();
        gone.into_iter().for_each(|n| self.forget(n));
    }

    /// What a file holds.
    pub fn bytes(&self, number: u64) -> &[u8] {
        self.inodes.get(&number).map_or(&[], |i| &i.live)
    }

    /// Everything that was written.
    pub fn live(&self) -> Image {
        Image {
            entries: self
                .names
                .live
                .iter()
                .map(|(p, n)| (p.clone(), n.map(|n| self.bytes(n).to_vec())))
                .collect(),
        }
    }
}

fn apply(bytes: &mut Vec<u8>, change: &Change) {
    match change {
        Change::Write(at, new) => {
            let end = *at as usize + new.len();
            if bytes.len() < end {
                bytes.resize(end, 0);
            }
            bytes[*at as usize..end].copy_from_slice(new);
        }
        Change::Zero(at, len) => {
            let from = (*at as usize).min(bytes.len());
            let to = (at.saturating_add(*len) as usize).min(bytes.len());
            bytes[from..to].fill(0);
        }
        Change::Length(len) => bytes.resize(*len as usize, 0),
    }
}
