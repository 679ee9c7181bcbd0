//! Encodes a container again: its named chunks are written at another place, in another form, and the record follows.
//!
//! Order on disk: new bytes are synced before the record names them, and old ones are reclaimed only after the batch is on disk. If the
//! container changes while it is encoded, what was encoded is given up and the change stands.
use super::Reclaimer;
use crate::container::encoder::{ContainerEncoder, RawOrigin};
use crate::container::{ChunkCounts, Container, ContainerMove};
use crate::segment::{Lane, SegmentRange};
use crate::verified_read::{CoalescedReadBuffer, damage};
use forebay_codec::choose::CodecChooser;
use forebay_proto::Result;

/// Stored bytes of a container.
#[derive(Debug, Clone, Copy, Default)]
pub struct RecodedBytes {
    /// Before.
    pub before: u64,
    /// Now.
    pub after: u64,
}

impl Reclaimer {
    /// Stores a container in the form that `encoder` makes of it, without a base. `is_taken`: whether a form of so many bytes is better than
    /// the one of so many before.
    ///
    /// # Errors
    /// As disk and store; `Corrupt` for damaged bytes, which stay as they are.
    pub fn recode_container(
        &self,
        container: &Container,
        origin: &RawOrigin,
        (encoder, chooser): (&mut ContainerEncoder, &mut CodecChooser),
        is_taken: impl Fn(u64, u64) -> bool,
    ) -> Result<RecodedBytes> {
        let (id, containers) = (container.id, &self.containers);
        // One that is gone, or that changes meanwhile, belongs to spans that have changed.
        let Some((old, counts)) = containers.find_counted(id)? else {
            return Ok(RecodedBytes::default());
        };
        let before = old.named_len(&counts);
        let unchanged = RecodedBytes {
            before,
            after: before,
        };
        let mut buffer = CoalescedReadBuffer::of(&self.buffers);
        let raw = match containers.read_named(&old, |i| counts.0[i] > 0, &mut buffer)? {
            Ok(raw) => raw,
            Err(bad) => {
                // Bytes of a chunk that was freed meanwhile may be punched away.
                let now = containers.find_counted(id)?;
                let is_same = now.is_some_and(|(c, n)| c == old && n == counts);
                let error = damage(&self.segments, &*old, "", &bad);
                return is_same.then_some(error).map_or(Ok(unchanged), Err);
            }
        };
        let (new, place) = match encoder.encode(chooser, origin, &raw, None) {
            Some(form) => {
                if !is_taken(before, form.bytes.len() as u64) {
                    return Ok(unchanged);
                }
                let place = self.write_synced(form.bytes)?;
                let moved = old.moved(&counts, place.segment, place.start as u32);
                (moved.into_plain().into_encoded(form.parts), place)
            }
            None if old.encoded().is_none() => return Ok(unchanged),
            None => {
                if !is_taken(before, old.named_raw_len(&counts)) {
                    return Ok(unchanged);
                }
                let place = self.write_synced(&named_bytes(&old, &counts, &raw))?;
                let moved = old.moved(&counts, place.segment, place.start as u32);
                (moved.into_plain(), place)
            }
        };
        let after = new.named_len(&counts);
        let mut moves = vec![ContainerMove {
            old: (*old).clone(),
            new,
        }];
        let apply = |batch| self.spans.apply(batch);
        let moved = containers.relocate(&mut moves, apply);
        let is_moved = moves.is_empty();
        match is_moved {
            // All that was written, also parts that only dropped chunks have bytes in.
            false => self.discard_bytes(std::iter::once(place)),
            true => self.queue.add(old.places(|i| counts.0[i] > 0)),
        }
        self.queue.add(moved?);
        Ok(match is_moved {
            true => RecodedBytes { before, after },
            false => unchanged,
        })
    }

    /// Writes bytes to a segment, and syncs it.
    ///
    /// # Errors
    /// As the disk: then their space is given back.
    pub fn write_synced(&self, bytes: &[u8]) -> Result<SegmentRange> {
        let (segments, poison) = (&self.segments, &self.poison);
        let (segment, offset) = segments.reserve(Lane::Containers, bytes.len() as u64)?;
        let written = segments.write(&segment, offset, bytes);
        let synced = written
            .map_err(|e| poison.note(e))
            .and_then(|()| segments.sync(&segment));
        let place = SegmentRange::new(segment.number, offset, bytes.len() as u64);
        if let Err(e) = synced {
            self.discard_bytes(std::iter::once(place));
            return Err(e);
        }
        Ok(place)
    }
}

/// The raw bytes of named chunks, one behind the other.
fn named_bytes(container: &Container, counts: &ChunkCounts, raw: &[u8]) -> Vec<u8> {
    let mut named = Vec::with_capacity(container.named_raw_len(counts) as usize);
    for i in (0..container.count()).filter(|i| counts.0[*i] > 0) {
        let positions = container.positions(i);
        named.extend_from_slice(&raw[positions.start as usize..positions.end as usize]);
    }
    named
}
