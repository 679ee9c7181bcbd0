//! Containers that nobody else changes, while a batch counts their chunks up and down.
//!
//! Invariants: a chunk that nothing names is named by nothing again, unless its container is made in the same batch; of what
//! is counted, nothing is seen until the batch is applied.
use super::keys::RecordKind;
use super::table::{contradiction, load_counts, load_fingerprints};
use super::{Container, ContainerId, ContainerTable, Counts, Fingerprints};
use crate::cit::ChunkLocation;
use crate::fingerprint::Fingerprint;
use crate::keyspaces::CONTAINERS;
use crate::pieces::Pieces;
use crate::segment::SegmentRange;
use crate::span::Runs;
use crate::striped_locks::StripeGuards;
use forebay_proto::Result;
use forebay_storage::Batch;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Range;
use std::sync::Arc;

/// A container that is made in the batch at hand.
pub struct NewContainer {
    /// What it will be.
    pub container: Container,
    /// Of its chunks.
    pub fingerprints: Fingerprints,
    /// Bytes that count in its segment already.
    pub reserved: u64,
}

/// One of the locked containers.
struct OpenContainer {
    container: Arc<Container>,
    before: Counts,
    now: Counts,
    /// If there is none yet.
    new: Option<NewContainer>,
    /// What the index says of chunks that nothing names from now on.
    unlisted: Vec<(ChunkLocation, Fingerprint)>,
}

impl OpenContainer {
    /// Whether a chunk was named, and is not from now on.
    fn is_lost(&self, chunk: usize) -> bool {
        self.before.0[chunk] > 0 && self.now.0[chunk] == 0
    }

    /// Chunks of a container with these fingerprints, of which that is so.
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

/// Containers that nobody else changes. See the head of this file.
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
                    unlisted: Vec::new(),
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
            unlisted: Vec::new(),
        };
        self.open.insert(open.container.id, open);
    }

    /// A container is not made after all. Nothing names it.
    pub fn cancel(&mut self, id: ContainerId) {
        self.open.remove(&id);
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
    ///
    /// # Errors
    /// As the store.
    pub fn put(&mut self, batch: &mut Batch) -> Result<()> {
        for (id, open) in &mut self.open {
            let key = |kind: RecordKind| kind.key(*id).to_vec();
            if self.table.index.get().is_some() && (0..open.now.0.len()).any(|i| open.is_lost(i)) {
                // They may go in this batch.
                let known = load_fingerprints(&self.table.store, *id)?;
                let lost = known.map(|known| open.listed(&known, |i| open.is_lost(i)));
                open.unlisted = lost.unwrap_or_default();
            }
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
                let fingerprints = new.fingerprints.value();
                batch.put(CONTAINERS, key(RecordKind::Fingerprints), fingerprints);
            }
            if open.now != open.before {
                batch.put(CONTAINERS, key(RecordKind::Counts), open.now.value());
            }
        }
        Ok(())
    }

    /// The batch is applied. Answers the bytes of segments that nothing needs any more.
    pub fn applied(self) -> Vec<SegmentRange> {
        let mut dead = Vec::new();
        for (id, open) in self.open {
            let (container, table) = (&open.container, self.table);
            let index = table.index.get();
            if let Some(new) = &open.new {
                let named = container.named_len(&open.now);
                table.count_new(container, new.reserved, named);
                // Bytes that were not written for this container are somebody's still, unless it is made.
                if new.reserved > 0 || named > 0 {
                    dead.extend(container.places(|i| open.now.0[i] == 0));
                }
                if let Some(index) = index {
                    let named = open.listed(&new.fingerprints, |i| open.now.0[i] > 0);
                    named.iter().for_each(|(at, of)| index.insert(*at, of));
                }
                continue;
            }
            let lost = container.named_len(&open.before) - container.named_len(&open.now);
            if lost == 0 {
                continue;
            }
            if open.now.are_zero() {
                table.cache.forget(id, u64::MAX);
            }
            if let Some(index) = index {
                let unlisted = open.unlisted.iter();
                unlisted.for_each(|(at, of)| index.remove(*at, of));
            }
            table.forget_named(container, lost);
            // With those beside them that were gone before: pages may be free now that they shared.
            let stretches = container.stretches(|i| open.now.0[i] == 0).into_iter();
            let fresh = stretches.filter(|s| {
                let chunks = container.piece_of(s.start)..=container.piece_of(s.end - 1);
                chunks.into_iter().any(|i| open.is_lost(i))
            });
            dead.extend(fresh.map(|s| container.segment_range(&s)));
        }
        dead
    }
}
