//! Finds stored chunks with the same bytes as new ones.
//!
//! Invariants:
//! - A stored chunk is accepted only if its count is above 0, its container was verified or written by this process, and length,
//!   checksum and fingerprint are equal; for fingerprints that do not suffice
//!   ([`needs_compare`](crate::fingerprint::FingerprintKind::needs_compare)), the bytes too.
//! - An accepted chunk may be freed before the batch that names it. The batch checks again under the container's lock
//!   (`span_table/settle`).
use super::Settler;
use crate::cit::{ChunkLocation, FingerprintLists};
use crate::container::{self, ChunkCounts, Container, ContainerId};
use crate::fingerprint::Fingerprint;
use crate::verified_read::{CoalescedReadBuffer, WantedPart};
use forebay_proto::{Error, Result};
use std::collections::HashMap;
use std::sync::Arc;

/// Containers that a lookup keeps, at most.
const MAX_KNOWN: usize = 4096;

/// A chunk of which a stored copy is looked for.
pub struct NewChunk<'a> {
    /// Its bytes.
    pub bytes: &'a [u8],
    /// Their CRC32C.
    pub crc: u32,
}

/// A container and its counts. `None`: its chunks must not be named.
type NamedContainer = Option<(Arc<Container>, ChunkCounts)>;

/// See the head of this file.
pub struct ChunkLookup<'a> {
    settler: &'a Settler,
    known: HashMap<ContainerId, NamedContainer>,
}

impl<'a> ChunkLookup<'a> {
    /// For one batch.
    pub fn new(settler: &'a Settler) -> ChunkLookup<'a> {
        ChunkLookup {
            settler,
            known: HashMap::new(),
        }
    }

    fn known(&mut self, id: ContainerId) -> Result<&mut NamedContainer> {
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

    /// A stored chunk cannot be read. New chunks are settled all the same: returns `false`, so that they are stored once more.
    ///
    /// # Errors
    /// If the log store is poisoned.
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
        let containers = &self.settler.containers;
        let is_damaged = match containers.damaged.contains(id, chunk) {
            true => Ok(true),
            false => containers.needs_damaged(&container, chunk),
        };
        let is_damaged = match is_damaged {
            Err(error) => return self.pass_over(&error),
            Ok(is_damaged) => is_damaged,
        };
        if is_damaged {
            // Healing moves the container.
            self.known.remove(&id);
            return match self.settler.heal(&container, &counts, chunk, wanted.bytes) {
                Err(error) => self.pass_over(&error),
                healed => healed,
            };
        }
        if !self.settler.options.fingerprint.needs_compare() {
            return Ok(true);
        }
        let mut stored = vec![0; wanted.bytes.len()];
        let part = WantedPart {
            at: container.positions(chunk).start,
            into: &mut stored,
        };
        let mut buffer = CoalescedReadBuffer::of(&self.settler.buffers);
        let read = self
            .settler
            .containers
            .read_parts(&container, &mut buffer, &mut [part]);
        match read {
            Err(error) => self.pass_over(&error),
            Ok(bad) => Ok(bad.is_none() && stored == wanted.bytes),
        }
    }

    /// The position in its container of an accepted chunk.
    pub fn position(&mut self, location: ChunkLocation) -> Result<Option<u32>> {
        let known = self.known(location.container)?.as_ref();
        Ok(known.map(|(container, _)| container.positions(location.index as usize).start as u32))
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
