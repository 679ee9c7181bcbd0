//! Work in the background: full segments go to disk ahead of the flushes that will ask for it, and disk space is given
//! back by punching freed parts of segments, removing segments without live bytes, and moving the last live bytes out of
//! mostly dead ones (`moves`).
//!
//! Order: the batch that freed the bytes is on disk before their space goes (else a power loss would bring the records
//! back without the bytes). One failure keeps nothing else from being given back, and while anything is left to do the
//! thread looks again without being woken.
use super::{Inner, free::Place, header::HEADER};
use crate::{Error, Result};
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, TrySendError};
use parking_lot::Mutex;
use std::collections::HashSet;
use std::time::{Duration, Instant};

/// Freed bytes that wake the cleaner at once; fewer wait for a moment, so that one sync serves many frees.
const WAKE_BYTES: u64 = 16 << 20;
const WAIT: Duration = Duration::from_millis(500);
/// Mostly dead segments that are worth a pass over all spans at once; fewer wait this long.
const SEGMENTS: usize = 8;
const BETWEEN_PASSES: Duration = Duration::from_secs(10);
/// After failures the wait doubles up to so many times.
const DOUBLINGS: u32 = 5;

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

    /// Could not be done now; it is tried again after a while, and at the next free.
    fn put_back(&self, places: Vec<Place>) {
        self.dead.lock().0.extend(places);
    }

    /// How many places wait.
    pub fn places(&self) -> u64 {
        self.dead.lock().0.len() as u64
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

/// When mostly dead segments get a pass, and when the thread looks again by itself.
#[derive(Default)]
struct Pace {
    last_pass: Option<Instant>,
    /// Rounds that failed, one after the other.
    failures: u32,
}

impl Pace {
    fn pause(&self) -> Duration {
        BETWEEN_PASSES * (1 << self.failures.min(DOUBLINGS))
    }

    /// Whether so many mostly dead segments are worth a pass now.
    fn due(&self, candidates: usize, now: Instant) -> bool {
        let many = candidates >= SEGMENTS && self.failures == 0;
        let rested = |t| now.saturating_duration_since(t) >= self.pause();
        candidates > 0 && (many || self.last_pass.is_none_or(rested))
    }

    /// How long to wait for a wake-up while so much is left to do; `None`: for ever.
    fn patience(&self, candidates: usize, left: bool) -> Option<Duration> {
        (candidates > 0 || left).then(|| self.pause())
    }

    fn note(&mut self, passed: bool, failed: bool, now: Instant) {
        if passed {
            self.last_pass = Some(now);
        }
        self.failures = if failed { self.failures + 1 } else { 0 };
    }
}

/// The thread: syncs ahead at once, cleans some time after a free, until the sender of `stop` is dropped.
pub fn run(inner: &Inner, woken: &Receiver<()>, stop: &Receiver<()>) {
    let mut pace = Pace::default();
    loop {
        let patience = pace.patience(inner.mostly_dead().len(), inner.has_garbage());
        let timer = patience.map_or_else(crossbeam_channel::never, crossbeam_channel::after);
        crossbeam_channel::select! {
            recv(woken) -> _ => {}
            recv(stop) -> _ => return,
            recv(timer) -> _ => {}
        }
        if let Err(error) = inner.segments.sync_ahead() {
            inner.health.note_sync(error);
        }
        if !inner.has_garbage() && !pace.due(inner.mostly_dead().len(), Instant::now()) {
            continue;
        }
        if inner.work.bytes() < WAKE_BYTES
            && !matches!(stop.recv_timeout(WAIT), Err(RecvTimeoutError::Timeout))
        {
            return;
        }
        let pass = pace.due(inner.mostly_dead().len(), Instant::now());
        let cleaned = inner.clean(pass);
        pace.note(pass, cleaned.is_err(), Instant::now());
        if let Err(error) = cleaned {
            tracing::warn!(%error, "could not give all disk space back; trying again later");
        }
    }
}

impl Inner {
    /// Segments that the cleaner would empty.
    pub(super) fn mostly_dead(&self) -> Vec<u32> {
        self.segments
            .sealed(|u| !u.pinned && u.live > 0 && u.live * 4 < u.len.saturating_sub(HEADER))
    }

    /// Whether there is something to punch or to remove.
    fn has_garbage(&self) -> bool {
        !self.work.is_empty() || !self.segments.sealed(|u| u.live == 0).is_empty()
    }

    /// Gives back what is free; with `move_live`, also empties mostly dead segments. One caller at a time.
    ///
    /// # Errors
    /// The first failure of disk or store; all else was done. What was not done is done later or at the next start.
    pub(super) fn clean(&self, move_live: bool) -> Result<()> {
        let _one = self.cleaning.lock();
        let mut failure = self.give_back().failure;
        if move_live {
            let targets: HashSet<u32> = self.mostly_dead().into_iter().collect();
            if !targets.is_empty() {
                failure = failure.or(self.empty(&targets).err());
                failure = failure.or(self.give_back().failure);
            }
        }
        failure.map_or(Ok(()), Err)
    }

    /// The disk is full: whether cleaning might have helped. Does not wait for a cleaner at work.
    pub(super) fn clean_for_space(&self) -> bool {
        let Some(_one) = self.cleaning.try_lock() else {
            return false;
        };
        let given = self.give_back();
        if let Some(error) = given.failure {
            tracing::warn!(%error, "could not give all disk space back");
        }
        given.any
    }

    /// Removes dead segments and punches freed places.
    fn give_back(&self) -> Given {
        let mut given = Given::default();
        let mut places = self.work.take();
        let empty = self.segments.sealed(|u| u.live == 0);
        if places.is_empty() && empty.is_empty() {
            return given;
        }
        if let Err(e) = self.store.sync() {
            self.work.put_back(places);
            given.failure = Some(e.into());
            return given;
        }
        for segment in &empty {
            given.note(self.segments.remove(*segment));
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
                && !given.note(self.segments.punch(p.segment, start, end - start))
            {
                left.push(p);
            }
        }
        self.work.put_back(left);
        given
    }
}

/// What giving back came to.
#[derive(Default)]
struct Given {
    /// Something was given back.
    any: bool,
    /// The first failure.
    failure: Option<Error>,
}

impl Given {
    /// Whether it went well.
    fn note(&mut self, result: Result<()>) -> bool {
        let well = result.is_ok();
        self.any |= well;
        if self.failure.is_none() {
            self.failure = result.err();
        }
        well
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_mostly_dead_segments_get_their_pass_without_another_wake_up() {
        let (mut pace, start) = (Pace::default(), Instant::now());
        assert!(pace.due(1, start) && !pace.due(0, start));
        pace.note(true, false, start);
        // Too early; and then the thread comes back by itself, and it is not too early.
        assert!(!pace.due(1, start + WAIT) && pace.due(SEGMENTS, start + WAIT));
        let wait = pace.patience(1, false).unwrap();
        assert!(pace.due(1, start + wait));
        assert_eq!(pace.patience(0, false), None);
    }

    #[test]
    fn what_fails_again_and_again_is_tried_again_ever_more_seldom() {
        let (mut pace, start) = (Pace::default(), Instant::now());
        let mut before = Duration::ZERO;
        for _ in 0..DOUBLINGS {
            pace.note(true, true, start);
            let wait = pace.patience(0, true).unwrap();
            assert!(wait > before && !pace.due(SEGMENTS, start + before));
            before = wait;
        }
        pace.note(true, true, start);
        assert_eq!(pace.patience(0, true), Some(before));
        pace.note(true, false, start);
        assert_eq!(pace.patience(0, true), Some(BETWEEN_PASSES));
    }
}
