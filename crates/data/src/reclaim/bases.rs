//! Gives bases back (`container/bases`): releases holds that no container needs any more, and encodes containers again without a base where
//! only their holds keep the base's chunks, because its file was removed.
//!
//! Order: a container without its base is on disk and recorded before the hold on that base is released. So at each moment either the
//! base is held, or nothing needs it.
use super::Reclaimer;
use crate::container::encoder::{ContainerEncoder, RawOrigin};
use crate::container::{ContainerId, HeldBase, load_hold};
use forebay_codec::choose::{CodecChooser, CodecSpeeds, CostGoal, CostModel};
use forebay_codec::hint::HintedCodec;
use forebay_codec::{CodecHint, ElementLayout};
use forebay_proto::{Error, Result};

/// Containers that are encoded again before other freed space gets its turn, and programs the disk.
const CONTAINERS_AT_ONCE: usize = 64;
/// Bases that are looked at before.
const BASES_AT_ONCE: usize = 1024;

impl Reclaimer {
    /// Has the thread look at bases, if there is something to look at.
    pub fn wake_for_bases(&self) {
        if self.containers.bases.has_work() {
            self.queue.wake();
        }
    }

    /// Looks at bases of which spans name less than before, encodes again without a base what alone keeps the rest, and releases idle holds.
    /// Only some at a time: call it again while `bases.has_work()`.
    ///
    /// # Errors
    /// The first failure of disk or store: what was not done is done the next time. Damaged records and bytes stay as they are, with what they
    /// need.
    pub fn give_back_bases(&self) -> Result<()> {
        let bases = &self.containers.bases;
        // First what takes no room.
        let mut failure = self.release_idle_holds().err();
        let (mut encoded, mut again) = (0, Vec::new());
        for _ in 0..BASES_AT_ONCE {
            if encoded >= CONTAINERS_AT_ONCE || self.queue.background.is_stopping() {
                break;
            }
            let Some(base) = bases.take_shrunk() else {
                break;
            };
            match self.give_back_base(base, &mut encoded) {
                Ok(true) => {}
                Ok(false) => again.push(base),
                Err(error) => {
                    if let Some(error) = pass_over_damage(error, base) {
                        failure = failure.or(Some(error));
                        again.push(base);
                    }
                }
            }
            failure = failure.or(self.release_idle_holds().err());
        }
        again.into_iter().for_each(|base| bases.note_shrunk(base));
        failure.map_or(Ok(()), Err)
    }

    /// Encodes again what alone keeps chunks of a container, and counts them in `encoded`. `false`: one of them changed meanwhile.
    fn give_back_base(&self, base: ContainerId, encoded: &mut usize) -> Result<bool> {
        let Some(held) = self.containers.find_held(base)? else {
            return Ok(true);
        };
        let mut is_done = true;
        for id in self.needing(&held)? {
            *encoded += 1;
            match self.encode_without_base(id) {
                Ok(done) => is_done &= done,
                Err(error) => pass_over_damage(error, id).map_or(Ok(()), Err)?,
            }
        }
        Ok(is_done)
    }

    /// Releases the holds of containers that need no base any more.
    ///
    /// # Errors
    /// As `give_back_bases`.
    pub fn release_idle_holds(&self) -> Result<()> {
        let bases = &self.containers.bases;
        let mut idle = bases.take_idle().into_iter();
        while let Some(id) = idle.next() {
            let apply = |batch| self.spans.apply(batch);
            match self.containers.release_hold(id, apply) {
                Ok(dead) => self.queue.add(dead),
                Err(error) => {
                    if let Some(error) = pass_over_damage(error, id) {
                        bases.note_idle(id);
                        idle.for_each(|id| bases.note_idle(id));
                        return Err(error);
                    }
                }
            }
        }
        Ok(())
    }

    /// The containers of which the holds alone keep chunks of a base.
    fn needing(&self, held: &HeldBase) -> Result<Vec<ContainerId>> {
        let mut by_holds = vec![0; held.counts.0.len()];
        let mut holds = Vec::new();
        for id in &held.holders {
            let hold = match load_hold(&self.store, *id) {
                Err(error) if error.is_damage() => {
                    pass_over_damage(error, *id).map_or(Ok(None), Err)
                }
                hold => hold,
            };
            let mut chunks = Vec::new();
            let runs = hold?.unwrap_or_default();
            for (container, positions) in runs.iter().filter_map(|run| run.in_container()) {
                if container == held.container.id {
                    let named = held.container.chunks_over(&positions);
                    chunks.extend(named.unwrap_or_default());
                }
            }
            chunks.iter().for_each(|i| by_holds[*i] += 1);
            holds.push((*id, chunks));
        }
        let is_kept = |i: &usize| held.counts.0[*i] == by_holds[*i];
        let needing = holds.into_iter().filter(|(_, c)| c.iter().any(is_kept));
        Ok(needing.map(|(id, _)| id).collect())
    }

    /// Encodes a container again, without its base. `false`: it changed meanwhile, and has one still.
    fn encode_without_base(&self, id: ContainerId) -> Result<bool> {
        let Some(container) = self.containers.find(id)? else {
            return Ok(true);
        };
        if container.base().is_none() {
            return Ok(true);
        }
        let mut encoder = ContainerEncoder::new(CostModel {
            goal: CostGoal::Bytes,
            speeds: CodecSpeeds::DEFAULT,
        });
        let layout = self.containers.layout(&container)?;
        let hint = CodecHint {
            codec: HintedCodec::Auto,
            element: layout.map(|layout| layout.element),
            ..CodecHint::default()
        };
        let origin = RawOrigin {
            log: 0,
            // Any address where numbers begin as they do in the container.
            addr: layout.map_or(0, |layout| phase_address(&layout)),
            hint,
        };
        let mut chooser = CodecChooser::new(hint);
        self.recode_container(&container, &origin, (&mut encoder, &mut chooser), |_, _| {
            true
        })?;
        let now = self.containers.load(id)?;
        Ok(now.is_none_or(|now| now.base().is_none()))
    }
}

/// An error that is not damage.
fn pass_over_damage(error: Error, container: ContainerId) -> Option<Error> {
    if !error.is_damage() {
        return Some(error);
    }
    tracing::warn!(container, %error, "a base is kept because of damage");
    None
}

/// The first address from which on numbers begin at this phase.
fn phase_address(layout: &ElementLayout) -> u64 {
    let width = layout.element.width() as u64;
    (width - u64::from(layout.phase) % width) % width
}
