//! Moving the last live bytes out of mostly dead segments.
//!
//! Order: moved bytes are on disk before the records name them, and the records before the old segment goes. A span that
//! changed while its bytes were copied stays where it was.
//!
//! Invariant: a copy counts as live in its new segment from its reservation on, until its span is recorded there and the
//! old one counts no more, or until the copy is undone: whatever fails in between.
use super::{
    Inner,
    segment::Segment,
    spans::{self, Span},
};
use crate::{Error, Result, keys};
use forebay_storage::Batch;
use std::collections::HashSet;
use std::sync::Arc;

/// Copied bytes of one batch of moves.
const MOVE_BYTES: u64 = 16 << 20;

/// A copied span: as it was, as it will be, and where its bytes are now.
type Move = (Span, Span, Arc<Segment>);

impl Inner {
    /// Moves every live span out of these segments. A damaged span stays and pins its segment; one that cannot be read or
    /// copied now stays, and the others are moved all the same.
    ///
    /// # Errors
    /// The first failure of disk or store. What was copied before is moved.
    pub(super) fn empty(&self, segments: &HashSet<u32>) -> Result<()> {
        let mut moves = Vec::new();
        let copied = self.copy(segments, &mut moves);
        copied.and(self.settle(moves))
    }

    /// Copies the spans; what it leaves in `moves` is still to be settled, also after a failure.
    fn copy(&self, segments: &HashSet<u32>, moves: &mut Vec<Move>) -> Result<()> {
        let mut bytes = 0;
        let mut unreadable = None;
        for span in spans::all(&self.store) {
            let span = span?;
            if !segments.contains(&span.segment) {
                continue;
            }
            let stored = match self.read_stored(&span) {
                Ok(Some(stored)) => stored,
                Ok(None) => {
                    // Freed meanwhile, or damaged.
                    if spans::find(&self.store, span.log, span.live.start)?.as_ref() == Some(&span)
                    {
                        tracing::warn!(
                            segment = span.segment,
                            log = span.log,
                            "damaged bytes stay where they are"
                        );
                        self.segments.pin(span.segment);
                    }
                    continue;
                }
                Err(e) => {
                    unreadable = unreadable.or(Some(e));
                    continue;
                }
            };
            let (segment, offset) = self.segments.reserve(span.log, stored.len() as u64)?;
            let moved = Span {
                segment: segment.number,
                offset,
                ..span.clone()
            };
            if let Err(e) = self.segments.write(&segment, offset, &stored) {
                self.unstore(&[moved]);
                return Err(e);
            }
            bytes += stored.len() as u64;
            moves.push((span, moved, segment));
            if bytes >= MOVE_BYTES {
                self.settle(std::mem::take(moves))?;
                bytes = 0;
            }
        }
        unreadable.map_or(Ok(()), Err)
    }

    /// Records finished copies, unless their span changed.
    fn settle(&self, mut moves: Vec<Move>) -> Result<()> {
        let undo = |moves: &[Move]| {
            let copies: Vec<Span> = moves.iter().map(|(_, new, _)| new.clone()).collect();
            self.unstore(&copies);
        };
        let mut synced = HashSet::new();
        for (_, _, segment) in &moves {
            if synced.insert(segment.number)
                && let Err(e) = self.segments.sync(segment)
            {
                undo(&moves);
                return Err(e);
            }
        }
        let locks = self.locks.lock(moves.iter().map(|(old, _, _)| old.log));
        // The records stay as large as they were, and the old segments go: on a full disk too.
        let mut batch = Batch::reclaiming();
        let mut changed = Vec::new();
        let mut at = 0;
        while at < moves.len() {
            let old = &moves[at].0;
            let same = self
                .store
                .get(keys::SPANS, &old.key())
                .map_err(Error::from)
                .map(|now| now.is_some_and(|value| value[..] == old.value()[..]));
            match same {
                Ok(true) => {
                    moves[at].1.put(&mut batch);
                    at += 1;
                }
                Ok(false) => changed.push(moves.swap_remove(at)),
                Err(e) => {
                    undo(&moves);
                    undo(&changed);
                    return Err(e);
                }
            }
        }
        undo(&changed);
        if let Err(e) = self.apply_with_seals(batch) {
            undo(&moves);
            return Err(e);
        }
        for (old, _, _) in &moves {
            self.cache.forget(old.log, [old.live.end]);
            self.segments.release(old.segment, old.stored_len());
        }
        drop(locks);
        Ok(())
    }
}
