//! Combining requests of one rank that ask the same thing.
//!
//! # Invariants
//! - A request never joins one that was already sent: that one may answer with a state older than the request. Those that come
//!   while one is in flight are merged and form the next one, which is sent when the first is over.
//! - So an answer never shows a state from before its request came, and a burst of `n` requests sends two.
//! - One of the requesters sends; the others wait. If it panics, the others get [`SenderPanicked`], and the next request goes on.
//! - Nothing is kept for a key that nobody asks about.

use parking_lot::{Condvar, Mutex};
use std::collections::HashMap;
use std::hash::Hash;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

/// The request was sent by another thread, which panicked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the thread that sent the combined request panicked")]
pub struct SenderPanicked;

/// Combines requests `Q` by what they are about, `K`. An answer `A` goes to all who asked; a failure is an answer too.
pub struct Combiner<K, Q, A> {
    /// The keys about which a request is in flight, each with those that came meanwhile.
    in_flight: Mutex<HashMap<K, Option<NextBatch<Q, A>>>>,
}

/// The requests that came while one was in flight.
struct NextBatch<Q, A> {
    request: Q,
    batch: Arc<Batch<A>>,
}

struct Batch<A> {
    state: Mutex<BatchState<A>>,
    changed: Condvar,
}

enum BatchState<A> {
    Waiting,
    /// The first of the batch may send.
    MaySend,
    Done(Result<A, SenderPanicked>),
}

impl<A> Batch<A> {
    fn set(&self, state: BatchState<A>) {
        *self.state.lock() = state;
        self.changed.notify_all();
    }
}

impl<K, Q, A> Default for Combiner<K, Q, A> {
    fn default() -> Self {
        Combiner {
            in_flight: Mutex::default(),
        }
    }
}

enum CallerRole<Q, A> {
    Send(Q),
    Lead(Arc<Batch<A>>),
    Join(Arc<Batch<A>>),
}

impl<K: Eq + Hash + Clone, Q, A: Clone> Combiner<K, Q, A> {
    /// Asks: by `send` if none is in flight about `key`; else with those that come meanwhile, `merge`d, by the `send` of the
    /// first of them. `merge` must be quick, as it runs under a lock, and if it panics leave the first request whole.
    ///
    /// Waits as long as the request in flight and its own take: what `send` does needs a deadline of its own.
    ///
    /// # Errors
    /// `Panicked` if another thread sent it, and panicked.
    ///
    /// # Panics
    /// When `send` or `merge` does, here.
    pub fn ask(
        &self,
        key: K,
        request: Q,
        merge: impl FnOnce(&mut Q, Q),
        send: impl FnOnce(Q) -> A,
    ) -> Result<A, SenderPanicked> {
        match self.send_or_join(&key, request, merge) {
            CallerRole::Send(request) => {
                let _next = StartNextBatch {
                    of: self,
                    key: &key,
                };
                Ok(send(request))
            }
            CallerRole::Join(batch) => batch.outcome(),
            CallerRole::Lead(batch) => {
                batch.wait_for_turn();
                let _next = StartNextBatch {
                    of: self,
                    key: &key,
                };
                let Some(request) = self.take_request(&key) else {
                    // Cannot be: only the leader takes the request, and it does so once. Waiters are told all the same.
                    batch.set(BatchState::Done(Err(SenderPanicked)));
                    return Err(SenderPanicked);
                };
                match catch_unwind(AssertUnwindSafe(|| send(request))) {
                    Ok(answer) => {
                        batch.set(BatchState::Done(Ok(answer.clone())));
                        Ok(answer)
                    }
                    Err(panic) => {
                        batch.set(BatchState::Done(Err(SenderPanicked)));
                        resume_unwind(panic)
                    }
                }
            }
        }
    }

    fn send_or_join(&self, key: &K, request: Q, merge: impl FnOnce(&mut Q, Q)) -> CallerRole<Q, A> {
        let mut in_flight = self.in_flight.lock();
        let Some(next) = in_flight.get_mut(key) else {
            in_flight.insert(key.clone(), None);
            return CallerRole::Send(request);
        };
        match next {
            None => {
                let batch = Arc::new(Batch {
                    state: Mutex::new(BatchState::Waiting),
                    changed: Condvar::new(),
                });
                *next = Some(NextBatch {
                    request,
                    batch: batch.clone(),
                });
                CallerRole::Lead(batch)
            }
            Some(next) => {
                merge(&mut next.request, request);
                CallerRole::Join(next.batch.clone())
            }
        }
    }

    /// The merged request of the batch whose turn it is; from now on nobody joins it.
    fn take_request(&self, key: &K) -> Option<Q> {
        let mut in_flight = self.in_flight.lock();
        Some(in_flight.get_mut(key)?.take()?.request)
    }
}

impl<A: Clone> Batch<A> {
    /// Waits until the first of the batch may send.
    fn wait_for_turn(&self) {
        let mut state = self.state.lock();
        while matches!(*state, BatchState::Waiting) {
            self.changed.wait(&mut state);
        }
    }

    fn outcome(&self) -> Result<A, SenderPanicked> {
        let mut state = self.state.lock();
        loop {
            if let BatchState::Done(outcome) = &*state {
                return outcome.clone();
            }
            self.changed.wait(&mut state);
        }
    }
}

/// When a request is over, however it ended, the next batch has its turn.
struct StartNextBatch<'a, K: Eq + Hash, Q, A> {
    of: &'a Combiner<K, Q, A>,
    key: &'a K,
}

impl<K: Eq + Hash, Q, A> Drop for StartNextBatch<'_, K, Q, A> {
    fn drop(&mut self) {
        let mut in_flight = self.of.in_flight.lock();
        match in_flight.get(self.key) {
            Some(Some(next)) => next.batch.set(BatchState::MaySend),
            _ => {
                in_flight.remove(self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests;
