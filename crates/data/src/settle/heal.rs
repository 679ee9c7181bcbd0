//! How a damaged chunk is noticed before it is named again, and healed by the same bytes.
//!
//! So that no good copy is given up for a damaged one, a container is read whole before any of its chunks is named again, once in
//! the life of the process. What this process wrote itself, and what it moved, it has no need to read.
//!
//! A chunk is healed by moving its container: the other chunks as they are, this one with the right bytes. Then all spans that name it
//! have it back.
use super::Settler;
use crate::container::{Container, ContainerId, ContainerMove, Counts};
use crate::pieces::Pieces;
use crate::segment::{Lane, SegmentRange};
use forebay_proto::Result;
use parking_lot::Mutex;
use std::collections::HashSet;

/// Containers that are remembered as read.
const MAX_REMEMBERED: usize = 1 << 20;

#[derive(Default)]
struct VerifiedInEpoch {
    containers: HashSet<ContainerId>,
    /// The epoch of the damaged chunks (`container/damaged`) in which they were read: it ends when these are forgotten.
    epoch: u64,
}

/// Containers that were read whole, or written, by this process. Shared by threads.
#[derive(Default)]
pub struct VerifiedContainers(Mutex<VerifiedInEpoch>);

impl VerifiedContainers {
    /// One more, in the epoch that it was before it was read.
    pub fn add(&self, id: ContainerId, epoch: u64) {
        let mut known = self.0.lock();
        if known.epoch != epoch || known.containers.len() >= MAX_REMEMBERED {
            known.containers.clear();
            known.epoch = epoch;
        }
        known.containers.insert(id);
    }

    fn contains(&self, id: ContainerId, epoch: u64) -> bool {
        let known = self.0.lock();
        known.epoch == epoch && known.containers.contains(&id)
    }
}

impl Settler {
    /// Reads the container, if this process has not yet; damaged chunks are noted. `false`: it is at another place by now, and was not
    /// read whole.
    pub(super) fn verify(&self, container: &Container, counts: &Counts) -> Result<bool> {
        let epoch = self.containers.damaged.epoch();
        if self.verified.contains(container.id, epoch) {
            return Ok(true);
        }
        let mut damaged = Vec::new();
        for stretch in container.stretches(|i| counts.0[i] > 0) {
            let bytes = self.stored(container, &stretch)?;
            for chunk in container.piece_of(stretch.start)..=container.piece_of(stretch.end - 1) {
                let at = container.piece(chunk);
                let at = (at.start - stretch.start) as usize..(at.end - stretch.start) as usize;
                let crc = crc32c::crc32c(&bytes[at]);
                if Some(crc) != container.chunk(chunk).crc {
                    damaged.push(chunk);
                }
            }
        }
        if !damaged.is_empty() && self.containers.load(container.id)?.as_deref() != Some(container)
        {
            return Ok(false);
        }
        let add = |chunk| self.containers.damaged.add(container.id, chunk);
        damaged.into_iter().for_each(add);
        self.verified.add(container.id, epoch);
        Ok(true)
    }

    /// What is stored, right or wrong; zeros where nothing is.
    fn stored(&self, container: &Container, stretch: &std::ops::Range<u64>) -> Result<Vec<u8>> {
        let mut bytes = vec![0; (stretch.end - stretch.start) as usize];
        if let Some(file) = self.segments.file(container.segment)? {
            let read = file.read_at(&mut bytes, container.segment_offset(stretch.start));
            read.map_err(|e| {
                crate::poison::io_error("read", &self.segments.path(container.segment), e)
            })?;
        }
        Ok(bytes)
    }

    /// Heals a chunk with its bytes; whether it did, and it may be named again.
    pub(super) fn heal(
        &self,
        container: &Container,
        counts: &Counts,
        chunk: usize,
        bytes: &[u8],
    ) -> Result<bool> {
        let mut all = Vec::with_capacity(container.stored_len() as usize);
        for stretch in container.stretches(|i| counts.0[i] > 0) {
            let begin = all.len();
            all.extend_from_slice(&self.stored(container, &stretch)?);
            let at = container.piece(chunk);
            if stretch.start <= at.start && at.end <= stretch.end {
                let from = begin + (at.start - stretch.start) as usize;
                all[from..from + bytes.len()].copy_from_slice(bytes);
            }
        }
        let len = all.len() as u64;
        let (segment, offset) = self.segments.reserve(Lane::Containers, len)?;
        let place = SegmentRange::new(segment.number, offset, len);
        let written = self.segments.write(&segment, offset, &all);
        let mut moves = vec![ContainerMove {
            old: container.clone(),
            new: container.moved(counts, segment.number, offset),
        }];
        let moved = written
            .map_err(|e| self.poison.note(e))
            .and_then(|()| {
                let synced = self.segments.sync(&segment);
                synced.map_err(|e| self.poison.note_sync(e))
            })
            // Another thread may have heard of a failure to bring these bytes to disk, which is told once.
            .and_then(|()| self.poison.check())
            .and_then(|()| {
                let apply = |batch| self.spans.apply(batch);
                self.containers.relocate(&mut moves, apply)
            });
        if !moves.is_empty() {
            self.reclaimer.discard_bytes(std::iter::once(place));
        }
        self.reclaimer.queue.add(moved?);
        if moves.is_empty() {
            let old = container.places(|i| counts.0[i] > 0);
            self.reclaimer.queue.add(old);
            self.containers.damaged.remove(container.id, chunk);
            tracing::warn!(
                container = container.id,
                chunk,
                "was damaged, and is healed by the same bytes that were written again"
            );
        }
        Ok(moves.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_read_before_damaged_chunks_were_forgotten_is_read_again() {
        let verified = VerifiedContainers::default();
        verified.add(1, 0);
        assert!(verified.contains(1, 0) && !verified.contains(1, 1));
        // Its reading began before, and ended after.
        verified.add(2, 0);
        assert!(!verified.contains(2, 1));
        verified.add(3, 1);
        assert!(verified.contains(3, 1) && !verified.contains(1, 1));
    }
}
