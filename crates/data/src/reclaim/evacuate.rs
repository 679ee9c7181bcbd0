//! Moving the last live bytes out of mostly dead segments.
//!
//! Order: moved bytes are on disk before the records name them, and the records before the old segment goes. A span that
//! changed while its bytes were copied stays where it was.
//!
//! Invariant: a copy counts as live in its new segment from its reservation on, until its span is recorded there and the
//! old one counts no more, or until the copy is discarded: whatever fails in between.
use super::Reclaimer;
use crate::segment::Segment;
use crate::span::{self, Span};
use crate::span_table::SpanMove;
use crate::verified_read::read_stored;
use forebay_proto::Result;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

/// Copied bytes of one batch of moves.
const MOVE_BYTES: u64 = 16 << 20;

/// Copies whose spans are not recorded yet.
#[derive(Default)]
struct Copies {
    moves: Vec<SpanMove>,
    /// The segments they are in.
    segments: BTreeMap<u32, Arc<Segment>>,
    bytes: u64,
}

impl Reclaimer {
    /// Moves every live span out of these segments. A damaged span stays and pins its segment; one that cannot be read or
    /// copied now stays, and the others are moved all the same.
    ///
    /// # Errors
    /// The first failure of disk or store. What was copied before is moved.
    pub(super) fn evacuate(&self, segments: &HashSet<u32>) -> Result<()> {
        let mut copies = Copies::default();
        let copied = self.copy_spans(segments, &mut copies);
        copied.and(self.record_moves(copies))
    }

    /// Copies the spans. What it leaves in `copies` is still to be recorded, also after a failure.
    fn copy_spans(&self, segments: &HashSet<u32>, copies: &mut Copies) -> Result<()> {
        let mut unreadable = None;
        for span in span::all(&self.store) {
            let span = span?;
            if !segments.contains(&span.segment) {
                continue;
            }
            match read_stored(&self.segments, &span) {
                Ok(Some(stored)) => self.copy_span(span, &stored, copies)?,
                Ok(None) => {
                    // Freed meanwhile, or damaged.
                    if self.spans.is_current(&span)? {
                        tracing::warn!(
                            segment = span.segment,
                            log = span.log,
                            "damaged bytes stay where they are"
                        );
                        self.segments.pin(span.segment);
                    }
                }
                Err(e) => unreadable = unreadable.or(Some(e)),
            }
        }
        unreadable.map_or(Ok(()), Err)
    }

    fn copy_span(&self, span: Span, stored: &[u8], copies: &mut Copies) -> Result<()> {
        let (segment, offset) = self.segments.reserve(span.log, stored.len() as u64)?;
        let new = Span {
            segment: segment.number,
            offset,
            ..span.clone()
        };
        if let Err(e) = self.segments.write(&segment, offset, stored) {
            self.discard(&[new]);
            return Err(e);
        }
        copies.bytes += stored.len() as u64;
        copies.moves.push(SpanMove { old: span, new });
        copies.segments.insert(segment.number, segment);
        if copies.bytes >= MOVE_BYTES {
            self.record_moves(std::mem::take(copies))?;
        }
        Ok(())
    }

    /// Records finished copies, unless their span changed.
    fn record_moves(&self, mut copies: Copies) -> Result<()> {
        let mut segments = copies.segments.values();
        let synced = segments.try_for_each(|segment| self.segments.sync(segment));
        let recorded = synced.and_then(|()| self.spans.relocate(&mut copies.moves));
        let unused: Vec<Span> = copies.moves.into_iter().map(|m| m.new).collect();
        self.discard(&unused);
        recorded
    }
}
