//! The index of chunks, and what is known of contents that were cut, in files beside the segments: written when the store is
//! closed, so that the next start need not read the fingerprints of all containers.
//!
//! ```text
//! chunks.index     the index (`cit/saved`)
//! chunks.anchors   what is known of contents (`chunk/anchor_table`)
//!
//! record of `keyspaces::CONTAINERS`, its key 3 and eight zero bytes:
//!   0  1  version = 1
//!   1  1  kind of the fingerprints, as in a container's record of them
//!   2  8  stamp, u64 little-endian: the same as in `chunks.index`
//! ```
//! Both are hints but for this: an index that lacks what happened since it was saved would be believed. So the record is removed,
//! whatever settles or not, before anything else happens in the store that is opened; and an index is read only if the record has
//! its stamp, which is a number that was never used before. A crash leaves no record: then the index is filled from the containers.
use super::{SettleOptions, Settler};
use crate::chunk::AnchorTable;
use crate::cit::{Cit, CitOptions};
use crate::container::fingerprint_tag;
use crate::container::keys::SAVED_INDEX;
use crate::keyspaces::CONTAINERS;
use crate::poison::io_error;
use forebay_proto::Result;
use forebay_storage::{Batch, Io, Store};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The index.
pub const INDEX_FILE: &str = "chunks.index";
/// What is known of contents.
pub const ANCHORS_FILE: &str = "chunks.anchors";
const VERSION: u8 = 1;

/// What says which index is the store's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SavedStamp {
    kind: u8,
    stamp: u64,
}

impl SavedStamp {
    fn value(self) -> Vec<u8> {
        let mut value = vec![VERSION, self.kind];
        value.extend_from_slice(&self.stamp.to_le_bytes());
        value
    }

    fn decode(value: &[u8]) -> Option<SavedStamp> {
        let (&[version, kind], stamp) = value.split_first_chunk()?;
        let stamp = u64::from_le_bytes(stamp.try_into().ok()?);
        (version == VERSION).then_some(SavedStamp { kind, stamp })
    }
}

/// Removes the record from a store that is opened; what it said, if it can be read.
///
/// # Errors
/// As the store.
pub fn take_stamp(store: &Store) -> Result<Option<SavedStamp>> {
    let value = match store.get(CONTAINERS, &SAVED_INDEX) {
        Err(forebay_storage::Error::Corrupt { .. }) => None,
        Ok(None) => return Ok(None),
        value => value?,
    };
    let mut batch = Batch::new();
    batch.delete(CONTAINERS, SAVED_INDEX.to_vec());
    store.apply(batch)?;
    Ok(value.and_then(|value| SavedStamp::decode(&value)))
}

/// Removes what a crash left of files that were being saved.
///
/// # Errors
/// As the disk.
pub fn remove_unfinished(io: &dyn Io, dir: &Path) -> Result<()> {
    let mut names = [INDEX_FILE, ANCHORS_FILE].into_iter();
    names.try_for_each(|name| remove(io, &unfinished(dir, name)))
}

/// Where a file is written before it gets its name.
fn unfinished(dir: &Path, name: &str) -> PathBuf {
    dir.join(format!("{name}.new"))
}

/// The saved index, if it is the one that the record names.
pub fn load_index(
    io: &dyn Io,
    dir: &Path,
    options: &SettleOptions,
    saved: Option<SavedStamp>,
) -> Option<Cit> {
    let saved = saved.filter(|saved| saved.kind == fingerprint_tag(options.fingerprint))?;
    let bytes = read(io, &dir.join(INDEX_FILE))?;
    let budget = options.index_bytes;
    Cit::decode(CitOptions { budget }, saved.stamp, &bytes)
}

/// What was saved of contents that were cut; nothing if that cannot be read.
pub fn load_anchors(io: &dyn Io, dir: &Path, options: &SettleOptions) -> AnchorTable {
    let bytes = read(io, &dir.join(ANCHORS_FILE)).unwrap_or_default();
    AnchorTable::decode(options.chunk, options.anchor_bytes, &bytes)
}

fn read(io: &dyn Io, path: &Path) -> Option<Vec<u8>> {
    let file = io.open_to_read(path).ok()?;
    let mut bytes = vec![0; usize::try_from(file.len().ok()?).ok()?];
    let n = file.read_at(&mut bytes, 0).ok()?;
    (n == bytes.len()).then_some(bytes)
}

impl Settler {
    /// Saves both, of a store that is closed: nothing is settled or freed after it. If that fails, the next start reads the
    /// fingerprints of all containers.
    pub fn save(&self, io: &dyn Io) {
        let saved = self.try_save(io);
        if let Err(error) = saved {
            tracing::warn!(%error, "the index of chunks is not saved; the next start makes it anew");
        }
    }

    fn try_save(&self, io: &dyn Io) -> Result<()> {
        let dir = &self.segments.dir;
        let is_filled = *self.index_filled.lock();
        if !is_filled || self.index.stats().entries == 0 {
            for name in [INDEX_FILE, ANCHORS_FILE] {
                remove(io, &dir.join(name))?;
            }
            return Ok(());
        }
        let stamp = SavedStamp {
            kind: fingerprint_tag(self.options.fingerprint),
            stamp: self.ids.next()?,
        };
        replace(io, dir, INDEX_FILE, &self.index.encode(stamp.stamp))?;
        replace(io, dir, ANCHORS_FILE, &self.anchors.encode())?;
        let mut batch = Batch::new();
        batch.put(CONTAINERS, SAVED_INDEX.to_vec(), stamp.value());
        self.spans.apply(batch)
    }
}

fn remove(io: &dyn Io, path: &Path) -> Result<()> {
    match io.remove(path) {
        Err(e) if e.kind() != ErrorKind::NotFound => Err(io_error("remove", path, e)),
        _ => Ok(()),
    }
}

/// Puts a file in the place of the one of this name, whole or not at all.
fn replace(io: &dyn Io, dir: &Path, name: &str, bytes: &[u8]) -> Result<()> {
    let (path, new) = (dir.join(name), unfinished(dir, name));
    remove(io, &new)?;
    let written = io.create(&new).and_then(|file| {
        file.write_at(bytes, 0)?;
        file.sync()
    });
    written
        .and_then(|()| io.rename(&new, &path))
        .and_then(|()| io.sync_dir(dir))
        .map_err(|e| {
            let _ = io.remove(&new);
            io_error("write", &path, e)
        })
}
