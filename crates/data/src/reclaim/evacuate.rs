//! Evacuates mostly dead segments: moves the last live bytes (raw spans, and chunks of containers that are still named) to a new
//! segment.
//!
//! Order: moved bytes are on disk before the records name them, and the records before the old segment is removed. A span or
//! container that changed while its bytes were copied stays where it was.
//!
//! Invariant: a copy counts as live in the new segment from its reservation on. Whatever fails in between, it is then either
//! recorded there and the old one no longer counted, or discarded and no longer counted itself.
use super::Reclaimer;
use crate::container::{self, ContainerMove};
use crate::pieces::ChecksummedPieces;
use crate::segment::{Lane, Segment, SegmentRange};
use crate::span::{self, RawBytes, Span, SpanBytes};
use crate::span_table::SpanMove;
use crate::verified_read::read_stored;
use forebay_proto::Result;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::slice;
use std::sync::Arc;

/// Copied bytes of one batch of moves.
const MOVE_BYTES: u64 = 16 << 20;

/// Copies that are not recorded yet.
#[derive(Default)]
struct Copies {
    spans: Vec<SpanMove>,
    containers: Vec<ContainerMove>,
    /// The segments they are in.
    segments: BTreeMap<u32, Arc<Segment>>,
    bytes: u64,
}

impl Reclaimer {
    /// Moves every live span and container out of these segments. A damaged one stays and pins its segment; one that cannot be
    /// read or copied now stays, and the others are moved all the same.
    ///
    /// # Errors
    /// The first failure of disk or store. What was copied before is moved.
    pub(super) fn evacuate(&self, segments: &BTreeSet<u32>) -> Result<()> {
        let mut copies = Copies::default();
        let copied = self.copy_spans(segments, &mut copies);
        let copied = copied.and_then(|()| self.copy_containers(segments, &mut copies));
        copied.and(self.record_moves(copies))
    }

    /// Copies the spans. The caller records what is left in `copies`, also after a failure.
    fn copy_spans(&self, segments: &BTreeSet<u32>, copies: &mut Copies) -> Result<()> {
        let mut unreadable = None;
        for span in span::all(&self.store) {
            let span = span?;
            let Some(raw) = span.raw().filter(|raw| segments.contains(&raw.segment)) else {
                continue;
            };
            match self.read_stretches(raw, slice::from_ref(&raw.stored)) {
                Ok(Some(stored)) => {
                    let (segment, offset) = self.copy(Lane::Log(span.log), &stored, copies)?;
                    let bytes = SpanBytes::Raw(RawBytes {
                        segment,
                        offset,
                        ..raw.clone()
                    });
                    let new = Span {
                        bytes,
                        ..span.clone()
                    };
                    copies.spans.push(SpanMove { old: span, new });
                    self.record_if_full(copies)?;
                }
                // Freed meanwhile, or damaged.
                Ok(None) if self.spans.is_current(&span)? => self.keep_damaged(raw),
                Ok(None) => {}
                Err(e) => unreadable = unreadable.or(Some(e)),
            }
        }
        unreadable.map_or(Ok(()), Err)
    }

    /// Copies the containers, without the chunks whose count is 0, in the same way.
    fn copy_containers(&self, segments: &BTreeSet<u32>, copies: &mut Copies) -> Result<()> {
        let mut unreadable = None;
        for old in container::all(&self.store) {
            let old = old?;
            if !segments.contains(&old.segment) {
                continue;
            }
            let Some(counts) = self.containers.counts(&old)? else {
                // Freed meanwhile.
                continue;
            };
            match self.read_stretches(&old, &old.stretches(|i| counts.0[i] > 0)) {
                Ok(Some(stored)) => {
                    let (segment, offset) = self.copy(Lane::Containers, &stored, copies)?;
                    let new = old.moved(&counts, segment, offset);
                    copies.containers.push(ContainerMove { old, new });
                    self.record_if_full(copies)?;
                }
                // The same.
                Ok(None) if self.containers.counts(&old)? == Some(counts) => {
                    self.keep_damaged(&old);
                }
                Ok(None) => {}
                Err(e) => unreadable = unreadable.or(Some(e)),
            }
        }
        unreadable.map_or(Ok(()), Err)
    }

    fn keep_damaged(&self, pieces: &impl ChecksummedPieces) {
        let (segment, what) = (pieces.segment(), pieces.describe(0));
        tracing::warn!(segment, "{what} and on: damaged bytes stay where they are");
        self.segments.pin(segment);
    }

    /// The verified bytes of these positions; `None`: they are damaged or missing.
    fn read_stretches(
        &self,
        pieces: &impl ChecksummedPieces,
        stretches: &[Range<u64>],
    ) -> Result<Option<Vec<u8>>> {
        let mut bytes = Vec::new();
        for stretch in stretches {
            match read_stored(&self.segments, pieces, stretch)? {
                Some(stored) if bytes.is_empty() => bytes = stored,
                Some(stored) => bytes.extend_from_slice(&stored),
                None => return Ok(None),
            }
        }
        Ok(Some(bytes))
    }

    /// Writes bytes to another segment. Returns the segment and the offset.
    fn copy(&self, lane: Lane, bytes: &[u8], copies: &mut Copies) -> Result<(u32, u32)> {
        let len = bytes.len() as u64;
        let (segment, offset) = self.segments.reserve(lane, len)?;
        let number = segment.number;
        if let Err(e) = self.segments.write(&segment, offset, bytes) {
            self.discard_bytes(std::iter::once(SegmentRange::new(number, offset, len)));
            return Err(e);
        }
        copies.bytes += len;
        copies.segments.insert(number, segment);
        Ok((number, offset))
    }

    fn record_if_full(&self, copies: &mut Copies) -> Result<()> {
        match copies.bytes >= MOVE_BYTES {
            true => self.record_moves(std::mem::take(copies)),
            false => Ok(()),
        }
    }

    /// Records finished copies, except of spans and containers that have changed.
    fn record_moves(&self, mut copies: Copies) -> Result<()> {
        let mut segments = copies.segments.values();
        let synced = segments.try_for_each(|segment| self.segments.sync(segment));
        let recorded = synced.and_then(|()| {
            self.spans.relocate(&mut copies.spans)?;
            let apply = |batch| self.spans.apply(batch);
            self.containers.relocate(&mut copies.containers, apply)
        });
        let unused: Vec<Span> = copies.spans.into_iter().map(|m| m.new).collect();
        self.discard(&unused);
        let unused = copies.containers.iter();
        self.discard_bytes(unused.flat_map(|m| m.new.places(|_| true)));
        recorded.map(|dead| self.queue.add(dead))
    }
}
