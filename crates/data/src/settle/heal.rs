//! Finds damaged chunks before a new span names them, and heals them with the same bytes.
//!
//! Settling discards new bytes if the same chunk is stored already. It must not discard a good copy for a damaged one. So before
//! any chunk of a container is named again, the whole container is read and its checksums are compared. This is remembered
//! ([`VerifiedContainers`]), so it mostly happens once in the life of the process. A container that this process wrote or moved
//! itself is not read.
//!
//! To heal a chunk, its container is moved: the other chunks are copied as they are, this one is written from the new bytes. Then
//! all spans that name it can be read again.
use super::Settler;
use crate::container::{Container, ContainerId, ContainerMove, Counts};
use crate::pieces::Pieces;
use crate::segment::{Lane, SegmentRange};
use forebay_proto::Result;
use parking_lot::Mutex;
use std::collections::HashSet;

/// Containers that are remembered as verified, at most.
const MAX_REMEMBERED: usize = 1 << 20;

#[derive(Default)]
struct VerifiedInEpoch {
    containers: HashSet<ContainerId>,
    /// The epoch of `container/damaged` in which they were read. A later epoch has forgotten damaged chunks, so all are read again.
    epoch: u64,
}

/// Containers that were read whole, or written, by this process. Shared by threads.
#[derive(Default)]
pub struct VerifiedContainers(Mutex<VerifiedInEpoch>);

impl VerifiedContainers {
    /// Adds a container. `epoch`: the one before its reading began.
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
    /// Reads the container, if it is not verified yet, and notes its damaged chunks. `false`: it was moved or changed meanwhile, so the
    /// result does not count.
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

    /// Stored bytes, unverified; zeros where the file has none.
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

    /// Heals a damaged chunk with `bytes`. `true`: it is whole, and may be named again.
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
            // The kernel reports a failed write-back once: another thread may have got the error.
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
