//! Finding stored chunks that hold the same bytes as new ones.
//!
//! Invariants: a chunk is found only if it is named, was read whole from the disk by this process or written by it, and has the same
//! length, checksum and fingerprint; where fingerprints alone do not tell, the same bytes. Between that and the batch that names it,
//! it may go: the batch looks again (`span_table/settle`), under the container's lock.
use super::Settler;
use crate::cit::{ChunkLocation, FingerprintLists};
use crate::container::{self, Container, ContainerId, Counts};
use crate::fingerprint::Fingerprint;
use crate::pieces::Pieces;
use crate::verified_read::read_stored;
use forebay_proto::{Error, Result};
use std::collections::HashMap;
use std::sync::Arc;

/// Containers kept at most while chunks of a batch are found.
const MAX_KNOWN: usize = 4096;

/// A chunk of which a stored copy is looked for.
pub struct NewChunk<'a> {
    /// Its bytes.
    pub bytes: &'a [u8],
    /// Their CRC32C.
    pub crc: u32,
}

/// A container and how often its chunks are named. `None`: it is of no use.
type Known = Option<(Arc<Container>, Counts)>;

/// See the head of this file.
pub struct ChunkLookup<'a> {
    settler: &'a Settler,
    known: HashMap<ContainerId, Known>,
}

impl<'a> ChunkLookup<'a> {
    /// Of one batch.
    pub fn new(settler: &'a Settler) -> ChunkLookup<'a> {
        ChunkLookup {
            settler,
            known: HashMap::new(),
        }
    }

    fn known(&mut self, id: ContainerId) -> Result<&mut Known> {
        if self.known.len() >= MAX_KNOWN {
            self.known.clear();
        }
        if !self.known.contains_key(&id) {
            let found = match self.settler.containers.find_counted(id) {
                Err(error) if error.is_damage() => {
                    self.pass_over(&error)?;
                    None
                }
                found => found?,
            };
            let is_whole = match &found {
                None => false,
                Some((container, counts)) => match self.settler.verify(container, counts) {
                    Err(error) => self.pass_over(&error)?,
                    is_whole => is_whole?,
                },
            };
            self.known.insert(id, found.filter(|_| is_whole));
        }
        Ok(self.known.entry(id).or_default())
    }

    /// A stored chunk cannot be read. That must not keep new ones from being settled: it is not named in their place, which is `false`.
    ///
    /// # Errors
    /// If nothing may be written any more.
    fn pass_over(&self, error: &Error) -> Result<bool> {
        self.settler.poison.check()?;
        tracing::warn!(%error, "chunks of it are stored once more");
        Ok(false)
    }

    /// Whether the stored chunk may be named in place of these bytes.
    pub fn accepts(&mut self, location: ChunkLocation, wanted: &NewChunk<'_>) -> Result<bool> {
        let (id, chunk) = (location.container, location.index as usize);
        let Some((container, counts)) = self.known(id)? else {
            return Ok(false);
        };
        if counts.0.get(chunk).is_none_or(|count| *count == 0) {
            return Ok(false);
        }
        let stored = container.chunk(chunk);
        if stored.len as usize != wanted.bytes.len() || stored.crc != Some(wanted.crc) {
            return Ok(false);
        }
        let (container, counts) = (container.clone(), counts.clone());
        if self.settler.containers.damaged.contains(id, chunk) {
            // The same bytes again are what heals it. Its place is another one then.
            self.known.remove(&id);
            return match self.settler.heal(&container, &counts, chunk, wanted.bytes) {
                Err(error) => self.pass_over(&error),
                healed => healed,
            };
        }
        if !self.settler.options.fingerprint.needs_compare() {
            return Ok(true);
        }
        let positions = container.piece(chunk);
        match read_stored(&self.settler.segments, &*container, &positions) {
            Err(error) => self.pass_over(&error),
            Ok(stored) => Ok(stored.is_some_and(|stored| stored == wanted.bytes)),
        }
    }

    /// The position of a chunk in its container, which was accepted.
    pub fn position(&mut self, location: ChunkLocation) -> Result<Option<u32>> {
        let known = self.known(location.container)?.as_ref();
        Ok(known.map(|(container, _)| container.piece(location.index as usize).start as u32))
    }
}

impl FingerprintLists for Settler {
    fn fingerprints(&self, container: ContainerId) -> Result<Option<Vec<Option<Fingerprint>>>> {
        let counted = match self.containers.find_counted(container) {
            Err(e) if e.is_damage() => None,
            counted => counted?,
        };
        let list = container::load_fingerprints(&self.store, container)?;
        let (Some((_, counts)), Some(list)) = (counted, list) else {
            return Ok(None);
        };
        let named = list.of.into_iter().zip(&counts.0);
        let named = named.map(|(fingerprint, count)| fingerprint.filter(|_| *count > 0));
        Ok((list.kind == self.options.fingerprint).then(|| named.collect()))
    }
}
