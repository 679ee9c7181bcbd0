//! Paths of inodes, found from the directory entries of stores that do not run: for what people read.
use crate::escape::escaped_name;
use crate::{Fid, meta::entries};
use forebay_storage::Store;
use std::collections::HashMap;

/// Levels of directories that a path is followed up; deeper ones, and cycles, are shown from there on.
const MAX_PATH_DEPTH: usize = 4096;

/// A name of each inode: the directory, and the name in it.
pub(crate) type InodeNames = HashMap<Fid, (Fid, Vec<u8>)>;

/// Of all entries that can be read.
pub(crate) fn inode_names<'a>(stores: impl Iterator<Item = &'a Store>) -> InodeNames {
    let mut named = InodeNames::new();
    for (dir, name, entry) in stores.flat_map(entries::all).filter_map(Result::ok) {
        named.entry(entry.fid).or_insert((dir, name));
    }
    named
}

/// A path of an inode; `inode 0x..` for one without a name.
pub(crate) fn path(named: &InodeNames, fid: Fid) -> String {
    if fid == Fid::ROOT {
        return "/".into();
    }
    match named.get(&fid) {
        Some((dir, name)) => path_in(named, *dir, name),
        None => format!("inode {:#x}", fid.0),
    }
}

/// The path of a name in a directory.
pub(crate) fn path_in(named: &InodeNames, dir: Fid, name: &[u8]) -> String {
    let (mut parts, mut at) = (vec![escaped_name(name)], dir);
    while at != Fid::ROOT && parts.len() < MAX_PATH_DEPTH {
        match named.get(&at) {
            Some((above, name)) => {
                parts.push(escaped_name(name));
                at = *above;
            }
            None => {
                parts.push(format!("(directory {:#x})", at.0));
                break;
            }
        }
    }
    parts.reverse();
    format!("/{}", parts.join("/"))
}
