//! The records of all containers, one owner for what must agree: the records in the store, decoded ones in memory, the counts,
//! and the bytes that they count for.
//!
//! Whoever changes what spans name locks the containers first ([`ContainerTable::lock`]), counts up and down, adds the changed
//! records to the batch that changes the spans, and says when that is applied ([`LockedContainers::applied`]). Locks of logs
//! come before these.
//!
//! Invariants: a container's records change under its lock; its chunks that are named, and no others, count in its segment and
//! against the quota; no decoded container outlives its record.
use super::keys::RecordKind;
use super::{Container, ContainerId, Counts};
use crate::byte_budget::ByteBudget;
use crate::keyspaces::CONTAINERS;
use crate::pieces::Pieces;
use crate::record_cache::RecordCache;
use crate::segment::{SegmentRange, Segments};
use crate::span::Runs;
use crate::striped_locks::{StripeGuards, StripedLocks};
use forebay_proto::{Error, Result};
use forebay_storage::{Batch, Store};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// See the head of this file. Shared by threads.
pub struct ContainerTable {
    store: Arc<Store>,
    segments: Arc<Segments>,
    /// Stored bytes of all logs, against the quota.
    live: Arc<ByteBudget>,
    /// Decoded containers in memory.
    pub cache: RecordCache<Container>,
    locks: StripedLocks,
    /// Bytes of chunks that are named.
    named: AtomicU64,
}

/// A container that is made in the batch at hand.
pub struct NewContainer {
    /// What it will be.
    pub container: Container,
    /// The value of its record of fingerprints.
    pub fingerprints: Vec<u8>,
    /// Bytes that count in its segment already.
    pub reserved: u64,
}

/// A container whose bytes are copied to another place.
pub struct ContainerMove {
    /// As it was.
    pub old: Container,
    /// As it will be: its bytes are there already, and count in the segment.
    pub new: Container,
}

/// One of the locked containers.
struct OpenContainer {
    container: Arc<Container>,
    before: Counts,
    now: Counts,
    /// If there is none yet.
    new: Option<NewContainer>,
}

/// Containers that nobody else changes. See the head of this file.
pub struct LockedContainers<'a> {
    table: &'a ContainerTable,
    _locks: StripeGuards<'a>,
    open: BTreeMap<ContainerId, OpenContainer>,
}

impl ContainerTable {
    /// Over the records in `store`. `cache_bytes`: most memory for decoded containers.
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
            locks: StripedLocks::default(),
            named: AtomicU64::new(0),
        }
    }

    /// So many more bytes are in chunks that are named.
    pub fn add_named(&self, bytes: u64) {
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
    pub fn counts(&self, container: &Container) -> Result<Option<Counts>> {
        let _lock = self.locks.lock([container.id]);
        match load(&self.store, container.id)? {
            Some(now) if now == *container => load_counts(&self.store, container).map(Some),
            _ => Ok(None),
        }
    }

    /// Locks these containers.
    pub fn lock(&self, ids: impl IntoIterator<Item = ContainerId>) -> LockedContainers<'_> {
        LockedContainers {
            table: self,
            _locks: self.locks.lock(ids),
            open: BTreeMap::new(),
        }
    }

    /// Records containers at their new places, in one batch, which `apply` applies. Those that changed since they were copied
    /// stay where they are: the copies that are left in `moves` are not used. Answers the bytes of segments that nothing needs.
    ///
    /// # Errors
    /// As the store: then all of `moves` are left.
    pub fn relocate(
        &self,
        moves: &mut Vec<ContainerMove>,
        apply: impl FnOnce(Batch) -> Result<()>,
    ) -> Result<Vec<SegmentRange>> {
        let _locks = self.locks.lock(moves.iter().map(|m| m.old.id));
        // The records get no larger, and the old segments go: on a full disk too.
        let mut batch = Batch::reclaiming();
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
            self.cache.forget(m.old.id, u64::MAX);
            let named = m.old.named_len(&counts);
            // In the new place first: no segment looks empty that is not.
            self.segments
                .recount(m.new.segment, m.new.stored_len(), named);
            self.segments.release(m.old.segment, named);
            // What nothing names since it was copied.
            dead.extend(m.new.places(|i| counts.0[i] == 0));
            false
        });
        Ok(dead)
    }
}

/// What cannot be, unless records are damaged.
fn contradiction(id: ContainerId, what: &str) -> Error {
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

/// A container, if there is one of this number.
///
/// # Errors
/// As the store, and `Corrupt` for a broken record.
pub fn load(store: &Store, id: ContainerId) -> Result<Option<Container>> {
    let value = store.get(CONTAINERS, &RecordKind::Chunks.key(id))?;
    let container = value.map(|value| Container::decode(id, &value));
    container.transpose().map_err(|why| contradiction(id, why))
}

/// The counts of a container's chunks.
///
/// # Errors
/// As the store, and `Corrupt` for a broken or missing record.
pub fn load_counts(store: &Store, container: &Container) -> Result<Counts> {
    let id = container.id;
    let value = store.get(CONTAINERS, &RecordKind::Counts.key(id))?;
    let value = value.ok_or_else(|| contradiction(id, "its counts are missing"))?;
    Counts::decode(&value, container.count())
        .map_err(|why| contradiction(id, &format!("its counts are {why}")))
}

impl LockedContainers<'_> {
    /// A locked container, if there is one.
    fn open(&mut self, id: ContainerId) -> Result<Option<&mut OpenContainer>> {
        Ok(match self.open.entry(id) {
            Entry::Occupied(open) => Some(open.into_mut()),
            Entry::Vacant(free) => {
                let Some(container) = self.table.find(id)? else {
                    return Ok(None);
                };
                let counts = load_counts(&self.table.store, &container)?;
                Some(free.insert(OpenContainer {
                    container,
                    before: counts.clone(),
                    now: counts,
                    new: None,
                }))
            }
        })
    }

    /// A container that is made in this batch; its number is among those that are locked.
    pub fn create(&mut self, new: NewContainer) {
        let container = Arc::new(new.container.clone());
        let none = Counts::none(container.count());
        let open = OpenContainer {
            before: none.clone(),
            now: none,
            new: Some(new),
            container,
        };
        self.open.insert(open.container.id, open);
    }

    /// The chunks of a run, and whether all of them may be named.
    fn chunks(
        &mut self,
        id: ContainerId,
        positions: &Range<u64>,
    ) -> Result<Option<(&mut OpenContainer, Range<usize>)>> {
        let Some(open) = self.open(id)? else {
            return Ok(None);
        };
        let chunks = open.container.chunks_over(positions);
        Ok(chunks.map(|chunks| (open, chunks)))
    }

    /// Counts the chunks of these runs once more. `false`: one of them is gone, and nothing is counted.
    ///
    /// # Errors
    /// As the store, and `Corrupt` for a broken record.
    pub fn take(&mut self, runs: &Runs) -> Result<bool> {
        for (id, positions) in runs.iter().filter_map(|run| run.in_container()) {
            let is_there = self.chunks(id, &positions)?.is_some_and(|(open, chunks)| {
                open.new.is_some() || open.now.0[chunks].iter().all(|count| *count > 0)
            });
            if !is_there {
                return Ok(false);
            }
        }
        for (id, positions) in runs.iter().filter_map(|run| run.in_container()) {
            if let Some((open, chunks)) = self.chunks(id, &positions)? {
                open.now.0[chunks].iter_mut().for_each(|count| *count += 1);
            }
        }
        Ok(true)
    }

    /// Counts the chunks of these runs once less. Take what stays first.
    ///
    /// # Errors
    /// As the store, and `Corrupt` where the runs name what is not there or not counted: then nothing may be applied.
    pub fn give(&mut self, runs: &Runs) -> Result<()> {
        for (id, positions) in runs.iter().filter_map(|run| run.in_container()) {
            let named = self.chunks(id, &positions)?;
            let (open, chunks) =
                named.ok_or_else(|| contradiction(id, "a span names bytes that it has not"))?;
            for count in &mut open.now.0[chunks] {
                *count = count.checked_sub(1).ok_or_else(|| {
                    contradiction(id, "more spans name a chunk than its count says")
                })?;
            }
        }
        Ok(())
    }

    /// Adds the records that change to the batch.
    pub fn put(&self, batch: &mut Batch) {
        for (id, open) in &self.open {
            let key = |kind: RecordKind| kind.key(*id).to_vec();
            if open.now.are_zero() {
                if open.new.is_none() {
                    for kind in RecordKind::ALL {
                        batch.delete(CONTAINERS, key(kind));
                    }
                }
                continue;
            }
            if let Some(new) = &open.new {
                batch.put(CONTAINERS, key(RecordKind::Chunks), new.container.value());
                let fingerprints = new.fingerprints.clone();
                batch.put(CONTAINERS, key(RecordKind::Fingerprints), fingerprints);
            }
            if open.now != open.before {
                batch.put(CONTAINERS, key(RecordKind::Counts), open.now.value());
            }
        }
    }

    /// The batch is applied. Answers the bytes of segments that nothing needs any more.
    pub fn applied(self) -> Vec<SegmentRange> {
        let mut dead = Vec::new();
        for (id, open) in self.open {
            let (container, table) = (&open.container, self.table);
            if let Some(new) = &open.new {
                let named = container.named_len(&open.now);
                table.live.take(named);
                table.add_named(named);
                table
                    .segments
                    .recount(container.segment, new.reserved, named);
                // Bytes that were not written for this container are somebody's still, unless it is made.
                if new.reserved > 0 || named > 0 {
                    dead.extend(container.places(|i| open.now.0[i] == 0));
                }
                continue;
            }
            let gone = |i: usize| open.before.0[i] > 0 && open.now.0[i] == 0;
            let lost = container.named_len(&open.before) - container.named_len(&open.now);
            if lost == 0 {
                continue;
            }
            if open.now.are_zero() {
                table.cache.forget(id, u64::MAX);
            }
            table.live.give(lost);
            table.named.fetch_sub(lost, Relaxed);
            table.segments.release(container.segment, lost);
            // With those beside them that were gone before: pages may be free now that they shared.
            let stretches = container.stretches(|i| open.now.0[i] == 0).into_iter();
            let fresh = stretches.filter(|s| {
                let chunks = container.piece_of(s.start)..=container.piece_of(s.end - 1);
                chunks.into_iter().any(gone)
            });
            dead.extend(fresh.map(|s| container.segment_range(&s)));
        }
        dead
    }
}
