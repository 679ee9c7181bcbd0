//! Finds damaged chunks before a new span names them, and heals them with the same bytes.
//!
//! Settling discards new bytes if the same chunk is stored already. It must not discard a good copy for a damaged one. So before
//! any chunk of a container is named again, the whole container is read and its checksums are compared. This is remembered
//! ([`VerifiedContainers`]), so it mostly happens once in the life of the process. A container that this process wrote or moved
//! itself is not read.
//!
//! To heal a chunk, its container is moved: the other chunks are copied as they are, this one is written from the new bytes. Then
//! all spans that name it can be read again. An encoded container is rewritten as a plain one: chunks that decode are copied, and the
//! healed one gets the new bytes. Chunks that do not decode stay damaged: they keep their checksums, so reads of them still fail. If the
//! container has a base, it is left as it is then, because the base may be healed.
use super::Settler;
use crate::container::{ChunkCounts, Container, ContainerId, ContainerMove, EncodedParts};
use crate::pieces::ChecksummedPieces;
use crate::segment::{Lane, SegmentRange};
use crate::verified_read::{CoalescedReadBuffer, WantedPart};
use forebay_proto::Result;
use parking_lot::Mutex;
use std::collections::HashSet;
use std::ops::Range;

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
    pub(super) fn verify(&self, container: &Container, counts: &ChunkCounts) -> Result<bool> {
        let epoch = self.containers.damaged.epoch();
        if self.verified.contains(container.id, epoch) {
            return Ok(true);
        }
        let mut damaged = Vec::new();
        for stretch in container.stretches(|i| counts.0[i] > 0) {
            let bytes = self.stored(container, &stretch)?;
            for part in container.piece_of(stretch.start)..=container.piece_of(stretch.end - 1) {
                let at = container.piece(part);
                let at = (at.start - stretch.start) as usize..(at.end - stretch.start) as usize;
                if !at.is_empty()
                    && forebay_checksum::crc32c(&bytes[at]) != container.checksum(part)
                {
                    damaged.extend(container.chunks_of_part(part));
                }
            }
        }
        if container.base().is_some() {
            damaged.extend(self.undecodable(container, counts)?);
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

    /// The named chunks of a container with a base that do not decode: the base may be damaged.
    fn undecodable(&self, container: &Container, counts: &ChunkCounts) -> Result<Vec<usize>> {
        let mut buffer = CoalescedReadBuffer::of(&self.buffers);
        let all = (self.containers).read_named(container, |i| counts.0[i] > 0, &mut buffer);
        match all {
            Err(error) if !error.is_damage() => return Err(error),
            Ok(Ok(_)) => return Ok(Vec::new()),
            Ok(Err(_)) | Err(_) => {}
        }
        let mut damaged = Vec::new();
        for chunk in (0..container.count()).filter(|i| counts.0[*i] > 0) {
            match (self.containers).read_named(container, |i| i == chunk, &mut buffer) {
                Err(error) if !error.is_damage() => return Err(error),
                Ok(Ok(_)) => {}
                Ok(Err(_)) | Err(_) => damaged.push(chunk),
            }
        }
        Ok(damaged)
    }

    /// Stored bytes, unverified; zeros where the file has none.
    fn stored(&self, container: &Container, stretch: &Range<u64>) -> Result<Vec<u8>> {
        let mut bytes = vec![0; (stretch.end - stretch.start) as usize];
        if let Some(file) = self.segments.file(container.segment)? {
            let read = file.read_at(&mut bytes, container.segment_offset(stretch.start));
            read.map_err(|e| {
                crate::poison::io_error("read", &self.segments.path(container.segment), e)
            })?;
        }
        Ok(bytes)
    }

    /// The raw bytes of all named chunks, one behind the other: of `chunk` these, of the others what is stored. `None`: others need bytes of
    /// a base that cannot be read now.
    fn healed_bytes(
        &self,
        container: &Container,
        counts: &ChunkCounts,
        chunk: usize,
        bytes: &[u8],
    ) -> Result<Option<Vec<u8>>> {
        let mut all = Vec::with_capacity(container.named_raw_len(counts) as usize);
        for i in (0..container.count()).filter(|i| counts.0[*i] > 0) {
            if i == chunk {
                all.extend_from_slice(bytes);
                continue;
            }
            let positions = container.positions(i);
            match container.encoded() {
                None => all.extend_from_slice(&self.stored(container, &positions)?),
                Some(_) => {
                    let is_whole = self.decode_undamaged(container, positions, &mut all)?;
                    if !is_whole && container.base().is_some() {
                        return Ok(None);
                    }
                }
            }
        }
        Ok(Some(all))
    }

    /// Appends these raw bytes of an encoded container; zeros where a piece is damaged. Whether none was.
    fn decode_undamaged(
        &self,
        container: &Container,
        positions: Range<u64>,
        all: &mut Vec<u8>,
    ) -> Result<bool> {
        let mut is_whole = true;
        let mut buffer = CoalescedReadBuffer::of(&self.buffers);
        for part in EncodedParts::over(&positions) {
            let raw = EncodedParts::raw_positions(part, container.bytes());
            let (from, to) = (positions.start.max(raw.start), positions.end.min(raw.end));
            let begin = all.len();
            all.resize(begin + (to - from) as usize, 0);
            let wanted = WantedPart {
                at: from,
                into: &mut all[begin..],
            };
            let read = (self.containers).read_parts(container, &mut buffer, &mut [wanted]);
            match read {
                Ok(None) => {}
                Err(error) if !error.is_damage() => return Err(error),
                Ok(Some(_)) | Err(_) => {
                    is_whole = false;
                    all[begin..].fill(0);
                }
            }
        }
        Ok(is_whole)
    }

    /// Heals a damaged chunk with `bytes`. `true`: it is whole, and may be named again.
    pub(super) fn heal(
        &self,
        container: &Container,
        counts: &ChunkCounts,
        chunk: usize,
        bytes: &[u8],
    ) -> Result<bool> {
        let Some(all) = self.healed_bytes(container, counts, chunk, bytes)? else {
            // What needs the base may be readable again later, and would not be from zeros.
            return Ok(false);
        };
        let len = all.len() as u64;
        let (segment, offset) = self.segments.reserve(Lane::Containers, len)?;
        let place = SegmentRange::new(segment.number, offset, len);
        let written = self.segments.write(&segment, offset, &all);
        let mut moves = vec![ContainerMove {
            old: container.clone(),
            new: container.moved(counts, segment.number, offset).into_plain(),
        }];
        let moved = written
            .map_err(|e| self.poison.note(e))
            .and_then(|()| self.segments.sync(&segment))
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
