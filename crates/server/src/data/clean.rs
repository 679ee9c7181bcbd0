//! Work in the background: full segments go to disk ahead of the flushes that will ask for it, and disk space is given
//! back by punching freed parts of segments, removing segments without live bytes, and moving the last live bytes out of
//! mostly dead ones.
//!
//! Order: the batch that freed the bytes is on disk before their space goes (else a power loss would bring the records
//! back without the bytes). Moved bytes are on disk before the records name them, and the records before the old
//! segment goes. A span that changed while its bytes were copied stays where it was.
use super::{
    Inner,
    free::Place,
    header::HEADER,
    segment::Segment,
    spans::{self, Span},
};
use crate::{Error, Result, keys};
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, TrySendError};
use forebay_storage::Batch;
use parking_lot::Mutex;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Freed bytes that wake the cleaner at once; fewer wait for a moment, so that one sync serves many frees.
const WAKE_BYTES: u64 = 16 << 20;
const WAIT: Duration = Duration::from_millis(500);
/// Mostly dead segments that are worth a pass over all spans at once; fewer wait this long.
const SEGMENTS: usize = 8;
const BETWEEN_PASSES: Duration = Duration::from_secs(10);
/// Copied bytes of one batch of moves.
const MOVE_BYTES: u64 = 16 << 20;

/// Freed places that wait for the cleaner.
pub struct Work {
    dead: Mutex<(Vec<Place>, u64)>,
    wake: Sender<()>,
}

impl Work {
    /// Also the end that the thread listens on.
    pub fn new() -> (Work, Receiver<()>) {
        let (wake, woken) = crossbeam_channel::bounded(1);
        (
            Work {
                dead: Mutex::default(),
                wake,
            },
            woken,
        )
    }

    /// More freed places (perhaps none: then a segment may have lost its last live byte).
    pub fn add(&self, places: Vec<Place>) {
        let mut dead = self.dead.lock();
        dead.1 += places.iter().map(|p| p.end - p.start).sum::<u64>();
        dead.0.extend(places);
        drop(dead);
        self.wake();
    }

    /// There is something to do.
    pub fn wake(&self) {
        match self.wake.try_send(()) {
            Ok(()) | Err(TrySendError::Full(()) | TrySendError::Disconnected(())) => {}
        }
    }

    /// Could not be done now; the next free tries again.
    fn put_back(&self, places: Vec<Place>) {
        self.dead.lock().0.extend(places);
    }

    fn take(&self) -> Vec<Place> {
        let mut dead = self.dead.lock();
        dead.1 = 0;
        std::mem::take(&mut dead.0)
    }

    fn bytes(&self) -> u64 {
        self.dead.lock().1
    }

    /// Nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        self.dead.lock().0.is_empty()
    }
}

/// The thread: syncs ahead at once, cleans some time after a free, until the sender of `stop` is dropped.
pub fn run(inner: &Inner, woken: &Receiver<()>, stop: &Receiver<()>) {
    let mut last_pass: Option<Instant> = None;
    loop {
        crossbeam_channel::select! {
            recv(woken) -> _ => {}
            recv(stop) -> _ => return,
        }
        if let Err(error) = inner.segments.sync_ahead() {
            inner.health.note_sync(error);
        }
        if inner.work.is_empty() && inner.segments.sealed(|u| u.live == 0).is_empty() {
            continue;
        }
        if inner.work.bytes() < WAKE_BYTES
            && !matches!(stop.recv_timeout(WAIT), Err(RecvTimeoutError::Timeout))
        {
            return;
        }
        let candidates = inner.mostly_dead().len();
        let due = last_pass.is_none_or(|t| t.elapsed() > BETWEEN_PASSES);
        let pass = candidates >= SEGMENTS || (candidates > 0 && due);
        if pass {
            last_pass = Some(Instant::now());
        }
        if let Err(error) = inner.clean(pass) {
            tracing::warn!(%error, "could not give disk space back; trying again after the next delete");
        }
    }
}

impl Inner {
    /// Segments that the cleaner would empty.
    pub(super) fn mostly_dead(&self) -> Vec<u32> {
        self.segments
            .sealed(|u| !u.pinned && u.live > 0 && u.live * 4 < u.len.saturating_sub(HEADER))
    }

    /// Gives back what is free; with `move_live`, also empties mostly dead segments. One caller at a time.
    ///
    /// # Errors
    /// As the disk and the store. What was not done is done later or at the next start.
    pub(super) fn clean(&self, move_live: bool) -> Result<()> {
        let _one = self.cleaning.lock();
        self.give_back()?;
        if move_live {
            let targets: HashSet<u32> = self.mostly_dead().into_iter().collect();
            if !targets.is_empty() {
                self.empty(&targets)?;
                self.give_back()?;
            }
        }
        Ok(())
    }

    /// The disk is full: whether cleaning might have helped. Does not wait for a cleaner at work.
    pub(super) fn clean_for_space(&self) -> bool {
        let Some(_one) = self.cleaning.try_lock() else {
            return false;
        };
        match self.give_back() {
            Ok(given) => given,
            Err(error) => {
                tracing::warn!(%error, "could not give disk space back");
                false
            }
        }
    }

    /// Removes dead segments and punches freed places; whether there was any.
    fn give_back(&self) -> Result<bool> {
        let mut places = self.work.take();
        let empty = self.segments.sealed(|u| u.live == 0);
        if places.is_empty() && empty.is_empty() {
            return Ok(false);
        }
        if let Err(e) = self.store.sync() {
            self.work.put_back(places);
            return Err(e.into());
        }
        // One failure keeps nothing else from being given back.
        let mut failure = None;
        for segment in &empty {
            if let Err(e) = self.segments.remove(*segment) {
                failure = failure.or(Some(e));
            }
        }
        places.sort_unstable();
        let mut joined: Vec<Place> = Vec::with_capacity(places.len());
        for p in places {
            match joined.last_mut() {
                Some(last) if last.segment == p.segment && last.end >= p.start => {
                    last.end = last.end.max(p.end)
                }
                _ => joined.push(p),
            }
        }
        let mut left = Vec::new();
        for p in joined {
            // Only whole pages: the others hold a neighbour's bytes.
            let (start, end) = (p.start.next_multiple_of(4096), p.end / 4096 * 4096);
            if start < end
                && self.segments.usage(p.segment).is_some()
                && let Err(e) = self.segments.punch(p.segment, start, end - start)
            {
                failure = failure.or(Some(e));
                left.push(p);
            }
        }
        self.work.put_back(left);
        failure.map_or(Ok(true), Err)
    }

    /// Moves every live span out of these segments. A damaged span stays and pins its segment.
    fn empty(&self, segments: &HashSet<u32>) -> Result<()> {
        let mut moves: Vec<(Span, Span, Arc<Segment>)> = Vec::new();
        let mut bytes = 0;
        for span in spans::all(&self.store) {
            let span = span?;
            if !segments.contains(&span.segment) {
                continue;
            }
            let Some(stored) = self.read_stored(&span)? else {
                // Freed meanwhile, or damaged.
                if spans::find(&self.store, span.log, span.live.start)?.as_ref() == Some(&span) {
                    tracing::warn!(
                        segment = span.segment,
                        log = span.log,
                        "damaged bytes stay where they are"
                    );
                    self.segments.pin(span.segment);
                }
                continue;
            };
            let (segment, offset) = self.segments.reserve(span.log, stored.len() as u64)?;
            if let Err(e) = self.segments.write(&segment, offset, &stored) {
                self.segments.release(segment.number, stored.len() as u64);
                self.settle(std::mem::take(&mut moves))?;
                return Err(e);
            }
            let moved = Span {
                segment: segment.number,
                offset,
                ..span.clone()
            };
            bytes += stored.len() as u64;
            moves.push((span, moved, segment));
            if bytes >= MOVE_BYTES {
                self.settle(std::mem::take(&mut moves))?;
                bytes = 0;
            }
        }
        self.settle(moves)
    }

    /// Records finished copies, unless their span changed.
    fn settle(&self, mut moves: Vec<(Span, Span, Arc<Segment>)>) -> Result<()> {
        let undo = |moves: &[(Span, Span, Arc<Segment>)]| {
            moves
                .iter()
                .for_each(|(_, new, _)| self.segments.release(new.segment, new.stored_len()));
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
        let mut batch = Batch::new();
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
