//! The index of chunks and the anchor table, saved to files beside the segments when the store is closed. So the next start need
//! not read the fingerprints of all containers.
//!
//! ```text
//! chunks.index     the index (`cit/saved`)
//! chunks.anchors   the anchor table (`chunk/anchor_table`)
//!
//! record of `keyspaces::CONTAINERS`, its key 3 and eight zero bytes:
//!   0  1  version = 1
//!   1  1  kind of the fingerprints, as in a container's record of them
//!   2  8  stamp, u64 little-endian: the same as in `chunks.index`
//! ```
//! An index that misses later changes must not be used. So the record is removed first of all when the store is opened, whether
//! settling is on or off. The saved index is used only if the record was there and has the same stamp, a number that is never used
//! twice. After a crash there is no record: the index is then filled from the containers. The anchor table is a hint and needs no
//! stamp.
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

/// File of the index.
pub const INDEX_FILE: &str = "chunks.index";
/// File of the anchor table.
pub const ANCHORS_FILE: &str = "chunks.anchors";
const VERSION: u8 = 1;

/// The record that names the saved index of the store.
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

/// Removes the record from a store that is opened. Returns it, if it can be read.
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

/// Removes temporary files that a crash left.
///
/// # Errors
/// As the disk.
pub fn remove_unfinished(io: &dyn Io, dir: &Path) -> Result<()> {
    let mut names = [INDEX_FILE, ANCHORS_FILE].into_iter();
    names.try_for_each(|name| remove(io, &unfinished(dir, name)))
}

/// The temporary file, which is renamed when it is complete.
fn unfinished(dir: &Path, name: &str) -> PathBuf {
    dir.join(format!("{name}.new"))
}

/// The saved index, if its stamp is the record's.
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

/// The saved anchor table; an empty one if it cannot be read.
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
    /// Saves both files. The last step of closing a store: nothing is settled or freed after it. If it fails, the next start reads
    /// the fingerprints of all containers.
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

/// Replaces a file atomically.
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
