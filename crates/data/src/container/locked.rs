//! Locked containers: a batch raises and lowers the counts of their chunks, and nobody else changes them meanwhile.
//!
//! Invariants:
//! - A chunk whose count is 0 is never counted up again, except while its container is created in this same batch.
//! - New counts are visible to others only once the batch is applied.
use super::keys::RecordKind;
use super::table::{contradiction, load_counts, load_fingerprints};
use super::{ChunkCounts, Container, ContainerId, ContainerTable, Fingerprints, hold_value};
use crate::cit::ChunkLocation;
use crate::fingerprint::Fingerprint;
use crate::keyspaces::CONTAINERS;
use crate::segment::SegmentRange;
use crate::span::SpanRuns;
use crate::striped_locks::StripeGuards;
use forebay_proto::Result;
use forebay_storage::Batch;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Range;
use std::sync::Arc;

/// A container that a batch creates.
#[derive(Clone)]
pub struct NewContainer {
    /// Its record.
    pub container: Container,
    /// The fingerprints of its chunks.
    pub fingerprints: Fingerprints,
    /// Bytes that are reserved for it in its segment; 0 if it adopts raw bytes.
    pub reserved: u64,
}

/// One of the locked containers.
struct OpenContainer {
    container: Arc<Container>,
    before: ChunkCounts,
    now: ChunkCounts,
    /// Set if the batch creates it.
    new: Option<NewContainer>,
    /// Index entries to remove: of chunks whose count becomes 0.
    unlisted: Vec<(ChunkLocation, Fingerprint)>,
}

impl OpenContainer {
    /// Whether the batch lowers the chunk's count to 0.
    fn is_lost(&self, chunk: usize) -> bool {
        self.before.0[chunk] > 0 && self.now.0[chunk] == 0
    }

    /// The chunks that have a fingerprint and for which `is_wanted` holds.
    fn listed(
        &self,
        fingerprints: &Fingerprints,
        is_wanted: impl Fn(usize) -> bool,
    ) -> Vec<(ChunkLocation, Fingerprint)> {
        let container = self.container.id;
        let chunks = fingerprints.of.iter().enumerate();
        chunks
            .filter(|(i, _)| is_wanted(*i))
            .filter_map(|(i, fingerprint)| {
                let index = i as u32;
                Some((ChunkLocation { container, index }, (*fingerprint)?))
            })
            .collect()
    }
}

/// See the head of this file.
pub struct LockedContainers<'a> {
    table: &'a ContainerTable,
    _locks: StripeGuards<'a>,
    open: BTreeMap<ContainerId, OpenContainer>,
}

impl<'a> LockedContainers<'a> {
    pub(super) fn new(table: &'a ContainerTable, locks: StripeGuards<'a>) -> LockedContainers<'a> {
        LockedContainers {
            table,
            _locks: locks,
            open: BTreeMap::new(),
        }
    }

    /// A locked container; `None` if there is none of this number.
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
                    unlisted: Vec::new(),
                }))
            }
        })
    }

    /// Adds a container that this batch creates. Its number must be locked.
    pub fn create(&mut self, new: NewContainer) {
        let container = Arc::new(new.container.clone());
        let none = ChunkCounts::none(container.count());
        let open = OpenContainer {
            before: none.clone(),
            now: none,
            new: Some(new),
            container,
            unlisted: Vec::new(),
        };
        self.open.insert(open.container.id, open);
    }

    /// Removes a container that was to be created, and that no span names.
    pub fn cancel(&mut self, id: ContainerId) {
        self.open.remove(&id);
    }

    /// Whether a chunk of a locked container is named, as far as the batch has come.
    pub fn is_named(&self, id: ContainerId) -> bool {
        self.open.get(&id).is_some_and(|open| !open.now.are_zero())
    }

    /// The container of a run and the run's chunks. `None`: the container is gone, or has not all of these positions.
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

    /// Raises the count of each chunk of these runs by one. `false`: one of the chunks is gone, and no count has changed.
    ///
    /// # Errors
    /// As the store, and `Corrupt` for a broken record.
    pub fn increment_counts(&mut self, runs: &SpanRuns) -> Result<bool> {
        for (id, positions) in runs.iter().filter_map(|run| run.in_container()) {
            let is_there = self.chunks(id, &positions)?.is_some_and(|(open, chunks)| {
                let may_grow = |count: &u64| *count > 0 && *count < u64::MAX;
                open.new.is_some() || open.now.0[chunks].iter().all(may_grow)
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

    /// Lowers the count of each chunk of these runs by one. Call `increment_counts` for the runs that replace them first.
    ///
    /// # Errors
    /// As the store, and `Corrupt` where the runs name what is not there or not counted: then nothing may be applied.
    pub fn decrement_counts(&mut self, runs: &SpanRuns) -> Result<()> {
        for (id, positions) in runs.iter().filter_map(|run| run.in_container()) {
            let named = self.chunks(id, &positions)?;
            let (open, chunks) = named
                .ok_or_else(|| contradiction(id, "a span or base names bytes that it has not"))?;
            for count in &mut open.now.0[chunks] {
                *count = count.checked_sub(1).ok_or_else(|| {
                    contradiction(id, "more spans and bases name a chunk than its count says")
                })?;
            }
        }
        Ok(())
    }

    /// Adds the records that change to the batch.
    ///
    /// # Errors
    /// As the store.
    pub fn put(&mut self, batch: &mut Batch) -> Result<()> {
        for (id, open) in &mut self.open {
            let key = |kind: RecordKind| kind.key(*id).to_vec();
            if self.table.index.get().is_some() && (0..open.now.0.len()).any(|i| open.is_lost(i)) {
                // Loaded now, because this batch may delete the record of fingerprints.
                let known = load_fingerprints(&self.table.store, *id)?;
                let lost = known.map(|known| open.listed(&known, |i| open.is_lost(i)));
                open.unlisted = lost.unwrap_or_default();
            }
            if open.now.are_zero() {
                if open.new.is_none() {
                    for kind in RecordKind::OF_CONTAINER {
                        batch.delete(CONTAINERS, key(kind));
                    }
                }
                continue;
            }
            if let Some(new) = &open.new {
                batch.put(CONTAINERS, key(RecordKind::Chunks), new.container.value());
                if let Some(base) = new.container.base() {
                    batch.put(CONTAINERS, key(RecordKind::Base), hold_value(base));
                }
                if new.fingerprints.of.iter().any(Option::is_some) {
                    let fingerprints = new.fingerprints.value();
                    batch.put(CONTAINERS, key(RecordKind::Fingerprints), fingerprints);
                }
            }
            if open.now != open.before {
                batch.put(CONTAINERS, key(RecordKind::Counts), open.now.value());
            }
        }
        Ok(())
    }

    /// To be called after the batch is applied. Returns the bytes of segments that are not needed any more.
    pub fn applied(self) -> Vec<SegmentRange> {
        let mut dead = Vec::new();
        for (id, open) in self.open {
            let (container, table) = (&open.container, self.table);
            let index = table.index.get();
            if let Some(new) = &open.new {
                if let Some(base) = container.base().filter(|_| !open.now.are_zero()) {
                    table.bases.add(id, base);
                }
                let named = table.count_new(container, new.reserved, &open.now);
                // Adopted bytes (nothing reserved) of a container that was not created still belong to the raw span.
                if new.reserved > 0 || named > 0 {
                    dead.extend(container.unneeded_places(|i| open.now.0[i] > 0));
                }
                if let Some(index) = index {
                    let named = open.listed(&new.fingerprints, |i| open.now.0[i] > 0);
                    named.iter().for_each(|(at, of)| index.insert(*at, of));
                }
                continue;
            }
            if open.before.0.iter().zip(&open.now.0).any(|(b, n)| n < b) {
                table.bases.note_shrunk(id);
            }
            if !(0..container.count()).any(|i| open.is_lost(i)) {
                continue;
            }
            if open.now.are_zero() {
                table.forget(id);
                if container.base().is_some() {
                    table.bases.note_idle(id);
                }
            }
            if let Some(index) = index {
                let unlisted = open.unlisted.iter();
                unlisted.for_each(|(at, of)| index.remove(*at, of));
            }
            table.encoded().add(container, &open.now);
            table.encoded().remove(container, &open.before);
            let lost = container.named_len(&open.before) - container.named_len(&open.now);
            table.forget_named(container, lost);
            dead.extend(container.freed_places(&open.before, &open.now));
        }
        dead
    }
}
