//! Collects bases (`container/bases`): releases holds that no container needs any more, and encodes anew, without a base, what keeps bytes
//! of a file that is gone.
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
use std::collections::BTreeSet;

/// Containers that are encoded anew before other freed space gets its turn.
const CONTAINERS_AT_ONCE: usize = 64;

impl Reclaimer {
    /// Has the thread look at bases, if there is something to look at.
    pub fn wake_for_bases(&self) {
        if self.containers.bases.has_work() {
            self.queue.wake();
        }
    }

    /// Looks at bases of which spans name less than before, encodes anew what keeps the rest, and releases idle holds; some at a time, if
    /// `all` is not set, so that other freed space does not wait.
    ///
    /// # Errors
    /// The first failure of disk or store: what was not done is done the next time. Damaged records and bytes stay as they are, with what they
    /// need.
    pub fn collect_bases(&self, all: bool) -> Result<()> {
        let bases = &self.containers.bases;
        let (mut failure, mut encoded) = (None, 0);
        for held in bases.take_shrunk() {
            if failure.is_some() || encoded >= CONTAINERS_AT_ONCE && !all {
                bases.note_shrunk(held.base);
                continue;
            }
            let keeping = self.keeping(&held);
            let keeping = keeping.map_err(|e| pass_over_damage(e, held.base));
            for id in keeping.as_ref().into_iter().flatten() {
                encoded += 1;
                let done = self.encode_without_base(*id);
                failure = failure.or(done.err().and_then(|e| pass_over_damage(e, *id)));
            }
            failure = failure.or(keeping.err().flatten());
            if failure.is_some() {
                bases.note_shrunk(held.base);
            }
        }
        failure = failure.or(self.release_idle_holds().err());
        failure.map_or(Ok(()), Err)
    }

    /// Releases the holds of containers that need no base any more.
    ///
    /// # Errors
    /// As `collect_bases`.
    pub fn release_idle_holds(&self) -> Result<()> {
        let bases = &self.containers.bases;
        let mut failure = None;
        for id in bases.take_idle() {
            if failure.is_some() {
                bases.note_idle(id);
                continue;
            }
            let apply = |batch| self.spans.apply(batch);
            match self.containers.release_hold(id, apply) {
                Ok(dead) => self.queue.add(dead),
                Err(error) => {
                    failure = pass_over_damage(error, id);
                    if failure.is_some() {
                        bases.note_idle(id);
                    }
                }
            }
        }
        failure.map_or(Ok(()), Err)
    }

    /// The containers that keep chunks of a base which no span names.
    fn keeping(&self, held: &HeldBase) -> Result<BTreeSet<ContainerId>> {
        let Some((base, counts)) = self.containers.find_counted(held.base)? else {
            return Ok(BTreeSet::new());
        };
        let mut by_holds = vec![0; counts.0.len()];
        let mut holds = Vec::new();
        for id in &held.holders {
            let Some(runs) = load_hold(&self.store, *id)? else {
                continue;
            };
            let mut chunks = Vec::new();
            for (container, positions) in runs.iter().filter_map(|run| run.in_container()) {
                if container == base.id {
                    chunks.extend(base.chunks_over(&positions).unwrap_or_default());
                }
            }
            chunks.iter().for_each(|i| by_holds[*i] += 1);
            holds.push((*id, chunks));
        }
        let is_kept = |i: &usize| counts.0[*i] == by_holds[*i];
        let keeping = holds.into_iter().filter(|(_, c)| c.iter().any(is_kept));
        Ok(keeping.map(|(id, _)| id).collect())
    }

    /// Encodes a container anew, without its base.
    fn encode_without_base(&self, id: ContainerId) -> Result<()> {
        let Some(container) = self.containers.find(id)? else {
            return Ok(());
        };
        if container.base().is_none() {
            return Ok(());
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
        Ok(())
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
