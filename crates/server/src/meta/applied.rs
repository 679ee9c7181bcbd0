//! The intents whose steps this member has done, so that no step is done twice.
//!
//! A step such as "one link less" must not repeat when its message does. So the batch of the steps carries a marker with
//! the intent's id. Markers do not pile up: every message of a coordinator carries the watermark below which all its
//! intents are over; markers below it are deleted.
//!
//! Why a late message does no harm: an intent is live at its coordinator when a message of it is sent, so `below` in that
//! message is at most its number (a greater `below` is refused). Once a higher watermark is known here, the message is
//! from an operation that is over, and is answered without doing anything.
use super::local::LocalNamespace;
use super::records::{self, RecordTag};
use crate::{Error, Member, Result};
use forebay_proto::intents::IntentId;
use forebay_storage::{Batch, Store};
use parking_lot::Mutex;
use std::collections::{BTreeSet, HashMap};

/// Markers under the watermark that are removed together.
const PRUNED_TOGETHER: usize = 64;

#[derive(Default)]
struct FinishedIntents {
    watermark: u64,
    markers: BTreeSet<u64>,
}

/// Intents that are over here, by coordinator.
pub(crate) struct AppliedIntents(Mutex<HashMap<Member, FinishedIntents>>);

impl AppliedIntents {
    pub fn open(store: &Store) -> Result<AppliedIntents> {
        let mut done: HashMap<Member, FinishedIntents> = HashMap::new();
        for (id, watermark) in records::all::<u64>(store, RecordTag::Watermark)? {
            done.entry(id.coordinator).or_default().watermark = watermark;
        }
        for (id, ()) in records::all(store, RecordTag::Applied)? {
            done.entry(id.coordinator)
                .or_default()
                .markers
                .insert(id.number);
        }
        Ok(AppliedIntents(Mutex::new(done)))
    }

    pub fn is_over(&self, id: IntentId) -> bool {
        let done = self.0.lock();
        done.get(&id.coordinator)
            .is_some_and(|d| id.number < d.watermark || d.markers.contains(&id.number))
    }

    /// A message about intent `id` says that every intent of its coordinator under `below` is over.
    ///
    /// # Errors
    /// When that would be `id` itself too, which no coordinator says: believed, it would end intents that are yet to come.
    pub fn raise(&self, id: IntentId, below: u64) -> Result<()> {
        if below > id.number {
            return Err(Error::Refused(format!(
                "a message about intent {} of member {} says that all under {below} are over; do all members run the \
                 same version?",
                id.number, id.coordinator
            )));
        }
        let mut done = self.0.lock();
        let done = done.entry(id.coordinator).or_default();
        done.watermark = done.watermark.max(below);
        Ok(())
    }

    /// The marker of `id` is in a batch that landed.
    pub fn insert(&self, id: IntentId) {
        self.0
            .lock()
            .entry(id.coordinator)
            .or_default()
            .markers
            .insert(id.number);
    }

    /// Removes markers under the watermark once there are enough. The table stays locked meanwhile, so that the
    /// watermark on disk only grows.
    pub fn prune(&self, local: &LocalNamespace, coordinator: Member) -> Result<()> {
        let mut done = self.0.lock();
        let Some(done) = done.get_mut(&coordinator) else {
            return Ok(());
        };
        let over: Vec<u64> = done.markers.range(..done.watermark).copied().collect();
        if over.len() < PRUNED_TOGETHER {
            return Ok(());
        }
        let mut batch = Batch::new();
        records::put(
            &mut batch,
            RecordTag::Watermark,
            IntentId::new(coordinator, 0),
            &done.watermark,
        );
        for number in &over {
            records::delete(
                &mut batch,
                RecordTag::Applied,
                IntentId::new(coordinator, *number),
            );
        }
        local.apply(batch)?;
        done.markers = done.markers.split_off(&done.watermark);
        Ok(())
    }
}
