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
use forebay_proto::Result;
use std::collections::BTreeSet;

impl Reclaimer {
    /// Has the thread look at bases, if there is something to look at.
    pub fn wake_for_bases(&self) {
        if self.containers.bases.has_work() {
            self.queue.wake();
        }
    }

    /// Looks at bases of which spans name less than before, and encodes anew what keeps the rest; releases idle holds.
    ///
    /// # Errors
    /// The first failure of disk or store: what was not done is done the next time. Damaged records and bytes stay as they are.
    pub fn collect_bases(&self) -> Result<()> {
        let mut failure = None;
        for held in self.containers.bases.take_shrunk() {
            let base = held.base;
            let keeping = self.keeping(&held);
            let freed = keeping.and_then(|keeping| {
                let mut keeping = keeping.into_iter();
                keeping.try_for_each(|id| self.encode_without_base(id))
            });
            if let Err(e) = freed {
                if !e.is_damage() {
                    self.containers.bases.note_shrunk(base);
                }
                failure = failure.or(Some(e));
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
        let mut failure = None;
        for id in self.containers.bases.take_idle() {
            let apply = |batch| self.spans.apply(batch);
            match self.containers.release_hold(id, apply) {
                Ok(dead) => self.queue.add(dead),
                Err(e) => {
                    if !e.is_damage() {
                        self.containers.bases.note_idle(id);
                    }
                    failure = failure.or(Some(e));
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

/// The first address from which on numbers begin at this phase.
fn phase_address(layout: &ElementLayout) -> u64 {
    let width = layout.element.width() as u64;
    (width - u64::from(layout.phase) % width) % width
}
