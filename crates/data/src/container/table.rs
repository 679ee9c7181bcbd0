//! The container table. It owns four things that must agree: the containers' records in the store, decoded records in memory,
//! counts of chunks, and the bytes that these count for (in segments and against the quota).
//!
//! To change what spans name: lock the containers ([`ContainerTable::lock`]), change the counts, put the changed records into the
//! batch that changes the spans, apply it, and call [`LockedContainers::applied`]. Lock order: logs before containers.
//!
//! Invariants:
//! - A container's records change only under its lock.
//! - Chunks with a count above 0, and no others, count in their segment and against the quota, and may be in the index of chunks.
//! - No decoded container outlives its record.
use super::decoded_cache::DecodedCache;
use super::keys::RecordKind;
use super::reader::ParsedHead;
use super::{
    BaseHolds, ChunkCounts, Container, ContainerId, DamagedChunks, Fingerprints, LockedContainers,
};
use crate::byte_budget::ByteBudget;
use crate::cit::Cit;
use crate::keyspaces::CONTAINERS;
use crate::record_cache::RecordCache;
use crate::segment::{SegmentRange, Segments};
use crate::striped_locks::{StripeGuards, StripedLocks};
use forebay_proto::{Error, Result};
use forebay_storage::{Batch, Store};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

/// See the head of this file. Shared by threads.
pub struct ContainerTable {
    pub(super) store: Arc<Store>,
    pub(super) segments: Arc<Segments>,
    /// Stored bytes of all logs, against the quota.
    live: Arc<ByteBudget>,
    /// Decoded records of containers in memory.
    pub cache: RecordCache<Container>,
    /// Parsed heads of encoded containers in memory.
    pub(super) heads: RecordCache<ParsedHead>,
    /// Decoded pieces of these in memory.
    pub(super) decoded: DecodedCache,
    /// Chunks that are known to be damaged.
    pub damaged: DamagedChunks,
    /// What containers with a base hold.
    pub bases: BaseHolds,
    locks: StripedLocks,
    /// Stored bytes of chunks that are named.
    named: AtomicU64,
    /// Those of encoded containers.
    encoded: EncodedBytes,
    /// The index of chunks, if settling is on.
    pub(super) index: OnceLock<Arc<Cit>>,
}

/// A container, and how often its chunks are named.
pub type CountedContainer = (Arc<Container>, ChunkCounts);

/// Bytes of named chunks in encoded containers.
#[derive(Default)]
pub struct EncodedBytes {
    stored: AtomicU64,
    raw: AtomicU64,
}

impl EncodedBytes {
    /// Counts what is named of a container, if it is encoded.
    pub fn add(&self, container: &Container, counts: &ChunkCounts) {
        if container.encoded().is_some() {
            self.stored.fetch_add(container.named_len(counts), Relaxed);
            self.raw.fetch_add(container.named_raw_len(counts), Relaxed);
        }
    }

    /// What is named of a container does not count any more.
    pub fn remove(&self, container: &Container, counts: &ChunkCounts) {
        if container.encoded().is_some() {
            self.stored.fetch_sub(container.named_len(counts), Relaxed);
            self.raw.fetch_sub(container.named_raw_len(counts), Relaxed);
        }
    }

    /// Stored bytes.
    pub fn stored(&self) -> u64 {
        self.stored.load(Relaxed)
    }

    /// The raw bytes that they decode to.
    pub fn raw(&self) -> u64 {
        self.raw.load(Relaxed)
    }
}

/// A container whose bytes are copied to another place, maybe in another form.
pub struct ContainerMove {
    /// As it was.
    pub old: Container,
    /// As it will be, with the same chunks: its bytes are written there already, and count in that segment.
    pub new: Container,
}

impl ContainerTable {
    /// Over the records in `store`. `cache_bytes`: most memory for decoded records, the same for decoded pieces, and twice that for parsed heads.
    pub fn new(
        store: Arc<Store>,
        segments: Arc<Segments>,
        live: Arc<ByteBudget>,
        cache_bytes: usize,
    ) -> ContainerTable {
        ContainerTable {
            store,
            segments,
            live,
            cache: RecordCache::new(cache_bytes),
            heads: RecordCache::new(2 * cache_bytes),
            decoded: DecodedCache::new(cache_bytes),
            damaged: DamagedChunks::default(),
            bases: BaseHolds::default(),
            locks: StripedLocks::default(),
            named: AtomicU64::new(0),
            encoded: EncodedBytes::default(),
            index: OnceLock::new(),
        }
    }

    /// Sets the index of chunks. From now on the table adds chunks to it when a batch creates them, and removes those whose count
    /// becomes 0.
    pub fn keep_index(&self, index: Arc<Cit>) {
        // There is one for as long as the store is open.
        let _ = self.index.set(index);
    }

    /// What encoded containers store, and what that was.
    pub fn encoded(&self) -> &EncodedBytes {
        &self.encoded
    }

    /// Counts what an opened store has: stored bytes of named chunks, and those of them in encoded containers.
    pub fn add_found(&self, named: u64, encoded: &EncodedBytes) {
        self.add_named(named);
        self.encoded.stored.fetch_add(encoded.stored(), Relaxed);
        self.encoded.raw.fetch_add(encoded.raw(), Relaxed);
    }

    fn add_named(&self, bytes: u64) {
        self.named.fetch_add(bytes, Relaxed);
    }

    /// Bytes of chunks that are named.
    pub fn named(&self) -> u64 {
        self.named.load(Relaxed)
    }

    /// A container, if there is one of this number.
    ///
    /// # Errors
    /// As the store, and `Corrupt` for a broken record.
    pub fn find(&self, id: ContainerId) -> Result<Option<Arc<Container>>> {
        match self.cache.get(id, 0) {
            Some(container) => Ok(Some(container)),
            None => self.load(id),
        }
    }

    /// Memory of decoded records, parsed heads and decoded pieces, bytes.
    pub fn cache_bytes(&self) -> u64 {
        self.cache.bytes() + self.heads.bytes() + self.decoded.bytes()
    }

    /// Forgets what is in memory of a container that is gone, or stored in another form.
    pub(super) fn forget(&self, id: ContainerId) {
        self.cache.forget(id, u64::MAX);
        self.heads.forget(id, u64::MAX);
    }

    /// As `find`, but always from the store.
    ///
    /// # Errors
    /// As `find`.
    pub fn load(&self, id: ContainerId) -> Result<Option<Arc<Container>>> {
        let epoch = self.cache.epoch(id);
        let container = load(&self.store, id)?.map(Arc::new);
        if let Some(container) = &container {
            self.cache.keep(epoch, container.clone());
        }
        Ok(container)
    }

    /// How often the chunks of a container are named. `None`: it has changed, or is gone.
    ///
    /// # Errors
    /// As the store, and `Corrupt` for a broken record.
    pub fn counts(&self, container: &Container) -> Result<Option<ChunkCounts>> {
        let _lock = self.locks.lock([container.id]);
        match load(&self.store, container.id)? {
            Some(now) if now == *container => load_counts(&self.store, container).map(Some),
            _ => Ok(None),
        }
    }

    /// A container and its counts as of now. They may change at any time: to rely on them, check again under the lock.
    ///
    /// # Errors
    /// As the store, and `Corrupt` for a broken record.
    pub fn find_counted(&self, id: ContainerId) -> Result<Option<CountedContainer>> {
        Ok(self.lock_one(id)?.1)
    }

    /// The same, with its lock.
    pub(super) fn lock_one(
        &self,
        id: ContainerId,
    ) -> Result<(StripeGuards<'_>, Option<CountedContainer>)> {
        let lock = self.locks.lock([id]);
        let Some(container) = self.find(id)? else {
            return Ok((lock, None));
        };
        let counts = load_counts(&self.store, &container)?;
        Ok((lock, Some((container, counts))))
    }

    /// Locks these containers.
    pub fn lock(&self, ids: impl IntoIterator<Item = ContainerId>) -> LockedContainers<'_> {
        LockedContainers::new(self, self.locks.lock(ids))
    }

    /// Counts a new container, and returns its stored bytes that are named; `reserved` bytes counted in its segment before.
    pub(super) fn count_new(
        &self,
        container: &Container,
        reserved: u64,
        counts: &ChunkCounts,
    ) -> u64 {
        let named = container.named_len(counts);
        self.encoded.add(container, counts);
        self.live.charge(named);
        self.add_named(named);
        self.segments.recount(container.segment, reserved, named);
        named
    }

    /// This many bytes of a container are no longer named.
    pub(super) fn forget_named(&self, container: &Container, bytes: u64) {
        self.live.release(bytes);
        self.named.fetch_sub(bytes, Relaxed);
        self.segments.release(container.segment, bytes);
    }

    /// Records containers at their new places, in one batch, which `apply` applies. A container that changed since it was copied
    /// stays where it is and is left in `moves`: its copy is not used. Returns the bytes of segments that are not needed any more.
    ///
    /// # Errors
    /// As the store: then all of `moves` are left.
    pub fn relocate(
        &self,
        moves: &mut Vec<ContainerMove>,
        apply: impl FnOnce(Batch) -> Result<()>,
    ) -> Result<Vec<SegmentRange>> {
        let _locks = self.locks.lock(moves.iter().map(|m| m.old.id));
        // As many bytes or fewer, and the old segments go: on a full disk too.
        let shrinks = |m: &ContainerMove| m.new.stored_len() <= m.old.stored_len();
        // The base is given back for it.
        let needs_base = |c: &Container| c.base().is_some();
        let gives_back = |m: &ContainerMove| needs_base(&m.old) && !needs_base(&m.new);
        let mut batch = match moves.iter().all(|m| shrinks(m) || gives_back(m)) {
            true => Batch::reclaiming(),
            false => Batch::new(),
        };
        let mut counts = Vec::with_capacity(moves.len());
        for m in moves.iter() {
            let now = load(&self.store, m.old.id)?;
            counts.push(match now.is_some_and(|now| now == m.old) {
                true => {
                    let key = RecordKind::Chunks.key(m.old.id).to_vec();
                    batch.put(CONTAINERS, key, m.new.value());
                    Some(load_counts(&self.store, &m.old)?)
                }
                false => None,
            });
        }
        apply(batch)?;
        let (mut dead, mut counts) = (Vec::new(), counts.into_iter());
        moves.retain(|m| {
            let Some(Some(counts)) = counts.next() else {
                return true;
            };
            self.forget(m.old.id);
            if m.old.base().is_some() && m.new.base().is_none() {
                self.bases.note_idle(m.old.id);
            }
            let (before, now) = (m.old.named_len(&counts), m.new.named_len(&counts));
            // Counted in the new segment first: so no segment looks empty that is not.
            self.segments
                .recount(m.new.segment, m.new.stored_len(), now);
            self.live.charge(now);
            self.add_named(now);
            self.encoded.add(&m.new, &counts);
            self.encoded.remove(&m.old, &counts);
            self.forget_named(&m.old, before);
            // Chunks whose count became 0 since they were copied.
            dead.extend(m.new.unneeded_places(|i| counts.0[i] > 0));
            false
        });
        Ok(dead)
    }
}

/// The error for records that contradict each other: they are damaged.
pub(super) fn contradiction(id: ContainerId, what: &str) -> Error {
    Error::Corrupt(format!("container {id}: {what}; run `forebay fsck`"))
}

/// Every container of the store.
pub fn all(store: &Store) -> impl Iterator<Item = Result<Container>> + use<> {
    RecordKind::Chunks.all(store).map(|record| {
        let (id, value) = record?;
        let id = id.ok_or_else(|| contradiction(0, "a record has a key of a wrong length"))?;
        Container::decode(id, &value).map_err(|why| contradiction(id, why))
    })
}

/// The same, those first that others may be encoded against.
pub fn all_bases_first(store: &Store) -> impl Iterator<Item = Result<Container>> + use<> {
    let has_base = |c: &Result<Container>| c.as_ref().is_ok_and(|c| c.base().is_some());
    let bases = all(store).filter(move |c| !has_base(c));
    bases.chain(all(store).filter(has_base))
}

/// A container, if there is one of this number.
///
/// # Errors
/// As the store, and `Corrupt` for a broken record.
pub fn load(store: &Store, id: ContainerId) -> Result<Option<Container>> {
    let value = store.get(CONTAINERS, &RecordKind::Chunks.key(id))?;
    let container = value.map(|value| Container::decode(id, &value));
    container.transpose().map_err(|why| contradiction(id, why))
}

/// The fingerprints of a container's chunks. `None`: it has none that can be read; then its chunks are not found.
///
/// # Errors
/// As the store.
pub fn load_fingerprints(store: &Store, id: ContainerId) -> Result<Option<Fingerprints>> {
    match store.get(CONTAINERS, &RecordKind::Fingerprints.key(id)) {
        Ok(value) => Ok(value.and_then(|value| Fingerprints::decode(&value))),
        Err(forebay_storage::Error::Corrupt { .. }) => Ok(None),
        Err(e) => Err(e.into()),
    }
}

/// The counts of a container's chunks.
///
/// # Errors
/// As the store, and `Corrupt` for a broken or missing record.
pub fn load_counts(store: &Store, container: &Container) -> Result<ChunkCounts> {
    let id = container.id;
    let value = store.get(CONTAINERS, &RecordKind::Counts.key(id))?;
    let value = value.ok_or_else(|| contradiction(id, "its counts are missing"))?;
    ChunkCounts::decode(&value, container.count())
        .map_err(|why| contradiction(id, &format!("its counts are {why}")))
}
