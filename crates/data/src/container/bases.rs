//! Bases: raw bytes that a container is encoded against, those of an earlier checkpoint, in other containers.
//!
//! A **hold** keeps a base's chunks: a record, by the number of the container that needs them, which is counted in them as the runs of a
//! span are. It is written in the batch that creates the container. A container may be removed, or encoded again without a base, in a batch
//! that knows nothing of bases; its hold is **idle** then, and the reclaiming thread releases it (`reclaim/bases`). When spans name fewer
//! chunks of a container that is held, that thread looks whether some are kept by holds alone. If so, the containers that need them are
//! encoded again without a base.
//!
//! ```text
//! a hold:
//!  0  1  version = 1
//!  1     bytes of the base, varint
//!        where they are: runs, as in a span (`span/runs`)
//! ```
//! Invariants:
//! - A container with a base has a hold with the same runs.
//! - The chunks of a base are in containers without one, so decoding follows one step.
//! - Numbers of containers are never used twice, so a hold is never of another container.
use super::keys::RecordKind;
use super::table::contradiction;
use super::{ChunkCounts, Container, ContainerId, ContainerTable};
use crate::keyspaces::CONTAINERS;
use crate::segment::SegmentRange;
use crate::span::{Run, RunSource, SpanRuns};
use forebay_codec::varint;
use forebay_proto::Result;
use forebay_storage::{Batch, Store};
use parking_lot::Mutex;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

const VERSION: u8 = 1;

/// The value of a hold.
pub fn hold_value(base: &SpanRuns) -> Vec<u8> {
    let mut value = vec![VERSION];
    varint::put(&mut value, base.bytes());
    base.encode(&mut value);
    value
}

fn decode_hold(value: &[u8]) -> std::result::Result<SpanRuns, &'static str> {
    let (version, mut rest) = value.split_first().ok_or("cut short")?;
    if *version != VERSION {
        return Err("of an unknown version");
    }
    let bytes = varint::take(&mut rest).ok_or("cut short")?;
    SpanRuns::decode(bytes, rest)
}

/// The hold of a container; `None`: it has none.
///
/// # Errors
/// As the store, and `Corrupt` for a broken record.
pub fn load_hold(store: &Store, id: ContainerId) -> Result<Option<SpanRuns>> {
    let value = store.get(CONTAINERS, &RecordKind::Base.key(id))?;
    let hold = value.map(|value| decode_hold(&value)).transpose();
    hold.map_err(|why| contradiction(id, &format!("the record of its base is {why}")))
}

/// Every hold of the store, with the number of its container.
pub fn all_holds(store: &Store) -> impl Iterator<Item = Result<(ContainerId, SpanRuns)>> + use<> {
    RecordKind::Base.all(store).map(|record| {
        let (id, value) = record?;
        let id = id.ok_or_else(|| contradiction(0, "a record has a key of a wrong length"))?;
        let hold = decode_hold(&value);
        let hold = hold.map_err(|why| contradiction(id, &format!("its base is {why}")))?;
        Ok((id, hold))
    })
}

/// A hold that the store has, or ought to have.
pub struct FoundHold {
    /// The container.
    pub id: ContainerId,
    /// What it is, or was, encoded against.
    pub base: SpanRuns,
    /// There is no record of it, none that can be read, or one of another base.
    pub is_wrong: bool,
}

/// The holds of a store that nobody changes: each as its container says, if that has a base; else as its record says, if that can be read.
pub fn needed_holds(store: &Store) -> impl Iterator<Item = FoundHold> + '_ {
    let containers = super::all(store).filter_map(Result::ok);
    let needed = containers.filter_map(|container| {
        let base = container.base()?;
        let hold = load_hold(store, container.id).ok().flatten();
        // A repair leaves out what is lost.
        let is_right = |hold: &SpanRuns| hold == base || *hold == with_records_only(store, base);
        Some(FoundHold {
            id: container.id,
            base: base.clone(),
            is_wrong: !hold.as_ref().is_some_and(is_right),
        })
    });
    let idle = all_holds(store).filter_map(Result::ok);
    let idle = idle.filter(|(id, _)| {
        let container = super::load(store, *id).ok().flatten();
        container.is_none_or(|container| container.base().is_none())
    });
    needed.chain(idle.map(|(id, base)| FoundHold {
        id,
        base,
        is_wrong: false,
    }))
}

/// Whether there are the bytes that a run names.
fn has_record(store: &Store, run: &Run) -> bool {
    run.in_container().is_none_or(|(id, positions)| {
        let container = super::load(store, id).ok().flatten();
        container.is_some_and(|c| c.chunks_over(&positions).is_some())
    })
}

/// A base without what is in containers of which there is no record, or which have not these bytes: zeros in its place.
pub fn with_records_only(store: &Store, base: &SpanRuns) -> SpanRuns {
    let kept = |run: Run| match has_record(store, &run) {
        true => run,
        false => Run {
            source: RunSource::Zeros,
            ..run
        },
    };
    base.iter().map(kept).collect()
}

/// The containers that runs name.
pub fn containers_of(runs: &SpanRuns) -> impl Iterator<Item = ContainerId> + '_ {
    let named = runs.iter().filter_map(|run| run.in_container());
    named.map(|(id, _)| id)
}

/// A container that others are encoded against, as of one moment.
pub struct HeldBase {
    /// The container.
    pub container: Arc<Container>,
    /// How often its chunks are named.
    pub counts: ChunkCounts,
    /// Those that have a hold on it.
    pub holders: Vec<ContainerId>,
}

#[derive(Default)]
struct HoldState {
    /// Who has a hold on a container.
    holders: HashMap<ContainerId, BTreeSet<ContainerId>>,
    /// Containers whose holds are to be released.
    idle: BTreeSet<ContainerId>,
    /// Held containers of which spans name fewer chunks than when they were looked at last.
    shrunk: BTreeSet<ContainerId>,
}

/// Holds in memory, and what the collector is to look at. Shared by threads.
#[derive(Default)]
pub struct BaseHolds(Mutex<HoldState>);

impl BaseHolds {
    /// A container has a hold.
    pub fn add(&self, id: ContainerId, base: &SpanRuns) {
        let mut state = self.0.lock();
        for base in containers_of(base) {
            state.holders.entry(base).or_default().insert(id);
        }
    }

    /// A hold that the opened store has. `needed`: its container is encoded against it.
    pub fn add_found(&self, id: ContainerId, base: &SpanRuns, needed: bool) {
        self.add(id, base);
        let mut state = self.0.lock();
        match needed {
            true => state.shrunk.extend(containers_of(base)),
            false => drop(state.idle.insert(id)),
        }
    }

    fn remove(&self, id: ContainerId, base: &SpanRuns) {
        let mut state = self.0.lock();
        for base in containers_of(base) {
            if let Some(holders) = state.holders.get_mut(&base) {
                holders.remove(&id);
                if holders.is_empty() {
                    state.holders.remove(&base);
                    state.shrunk.remove(&base);
                }
            }
        }
        state.idle.remove(&id);
    }

    /// A container that had a base is gone, or needs it no more.
    pub fn note_idle(&self, id: ContainerId) {
        self.0.lock().idle.insert(id);
    }

    /// Fewer spans name chunks of this container.
    pub fn note_shrunk(&self, id: ContainerId) {
        let mut state = self.0.lock();
        if state.holders.contains_key(&id) {
            state.shrunk.insert(id);
        }
    }

    /// Whether there is something to look at.
    pub fn has_work(&self) -> bool {
        let state = self.0.lock();
        !state.idle.is_empty() || !state.shrunk.is_empty()
    }

    /// Takes the containers whose holds are to be released.
    pub fn take_idle(&self) -> BTreeSet<ContainerId> {
        std::mem::take(&mut self.0.lock().idle)
    }

    /// Takes a held container of which spans name fewer chunks.
    pub fn take_shrunk(&self) -> Option<ContainerId> {
        self.0.lock().shrunk.pop_first()
    }

    fn holders(&self, base: ContainerId) -> Vec<ContainerId> {
        let state = self.0.lock();
        let holders = state.holders.get(&base).into_iter().flatten();
        holders.copied().collect()
    }
}

impl ContainerTable {
    /// A container that is held. `None`: it is gone.
    ///
    /// # Errors
    /// As the store, and `Corrupt` for a broken record.
    pub fn find_held(&self, id: ContainerId) -> Result<Option<HeldBase>> {
        // Holds on it are added under its lock.
        let (_lock, container) = self.lock_one(id)?;
        let Some((container, counts)) = container else {
            return Ok(None);
        };
        Ok(Some(HeldBase {
            container,
            counts,
            holders: self.bases.holders(id),
        }))
    }

    /// Releases the hold of a container that needs no base any more, in a batch that `apply` applies. Returns the bytes of segments
    /// that are not needed any more.
    ///
    /// # Errors
    /// As the store, and `Corrupt` for records that contradict each other: then nothing is released.
    pub fn release_hold(
        &self,
        id: ContainerId,
        apply: impl FnOnce(Batch) -> Result<()>,
    ) -> Result<Vec<SegmentRange>> {
        let Some(base) = load_hold(&self.store, id)? else {
            return Ok(Vec::new());
        };
        let mut locked = self.lock(containers_of(&base).chain([id]));
        let now = super::load(&self.store, id)?;
        let is_needed = now.is_some_and(|now| now.base().is_some());
        if is_needed || load_hold(&self.store, id)?.as_ref() != Some(&base) {
            return Ok(Vec::new());
        }
        locked.decrement_counts(&base)?;
        let mut batch = Batch::reclaiming();
        locked.put(&mut batch)?;
        batch.delete(CONTAINERS, RecordKind::Base.key(id).to_vec());
        apply(batch)?;
        let dead = locked.applied();
        self.bases.remove(id, &base);
        Ok(dead)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::span::runs::tests::runs;
    use proptest::prelude::*;

    fn base(ids: &[ContainerId]) -> SpanRuns {
        let run = |id: &ContainerId| Run {
            len: 4096,
            source: RunSource::Container { id: *id, at: 0 },
        };
        ids.iter().map(run).collect()
    }

    proptest! {
        #[test]
        fn holds_come_back_and_others_are_refused(runs in runs(), bytes in prop::collection::vec(any::<u8>(), 0..40),) {
            let value = hold_value(&runs);
            prop_assert_eq!(decode_hold(&value), Ok(runs));
            prop_assert!(decode_hold(&value[..value.len() - 1]).is_err());
            let _ = decode_hold(&bytes);
        }
    }

    #[test]
    fn only_what_is_held_is_looked_at_and_only_as_long_as_it_is() {
        let holds = BaseHolds::default();
        holds.add(10, &base(&[1, 2]));
        holds.add(11, &base(&[2]));
        holds.note_shrunk(3);
        assert!(!holds.has_work());
        holds.note_shrunk(2);
        holds.note_shrunk(1);
        holds.remove(10, &base(&[1, 2]));
        assert_eq!(holds.take_shrunk(), Some(2));
        assert_eq!(holds.holders(2), [11]);
        assert!(!holds.has_work());
        holds.note_idle(11);
        assert!(holds.has_work());
        assert_eq!(holds.take_idle().into_iter().collect::<Vec<_>>(), [11]);
    }

    #[test]
    fn what_an_opened_store_has_is_looked_at_once() {
        let holds = BaseHolds::default();
        holds.add_found(10, &base(&[1]), true);
        holds.add_found(11, &base(&[2]), false);
        assert_eq!(holds.take_idle().into_iter().collect::<Vec<_>>(), [11]);
        assert_eq!(holds.take_shrunk(), Some(1));
        assert!(!holds.has_work());
    }
}
