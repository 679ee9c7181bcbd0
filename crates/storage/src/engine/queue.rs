//! Group commit: one thread writes for all that wait.
//!
//! A thread that finds no leader becomes the leader and commits its own batch alone; threads that come meanwhile queue up and
//! sleep. When the leader is done, the thread that has waited longest becomes the next leader, and commits as many of the
//! batches queued by then as fit a group (`GROUP_BYTES`). Each thread is woken once, as leader or with its outcome. If a leader
//! panics, the batches of its group get the outcomes that were known, and the next leader is woken.
use super::GroupSummary;
use crate::{Batch, Error};
use parking_lot::Mutex;
use std::sync::Arc;
use std::thread::Thread;

/// Most bytes that one group takes from the queue (estimated).
const GROUP_BYTES: u64 = 1 << 20;

/// A batch on its way, and how it ended.
pub(crate) struct QueuedBatch {
    /// What to apply.
    pub batch: Batch,
    /// What engines may want to know of it.
    pub load: GroupSummary,
    /// The outcome, once known.
    pub outcome: Option<Result<(), Error>>,
}

impl QueuedBatch {
    /// Not committed yet.
    pub fn new(batch: Batch, load: GroupSummary) -> QueuedBatch {
        QueuedBatch {
            batch,
            load,
            outcome: None,
        }
    }
}

enum WaiterState {
    Waiting(QueuedBatch),
    Taken,
    Leads(QueuedBatch),
    Done(QueuedBatch),
}

struct Waiter {
    state: Mutex<WaiterState>,
    thread: Thread,
}

#[derive(Default)]
struct QueueState {
    led: bool,
    waiting: std::collections::VecDeque<Arc<Waiter>>,
}

/// See the [module](self).
#[derive(Default)]
pub(crate) struct Queue {
    inner: Mutex<QueueState>,
}

impl Queue {
    /// Runs `commit` on this batch, alone or in a group, in this thread or in another. Returns the batch
    /// with its outcome. `commit` sets the outcome of each batch that it gets; a batch comes back without one if `commit`
    /// panicked in the thread that ran it.
    pub fn run(&self, queued: QueuedBatch, commit: impl FnOnce(&mut [QueuedBatch])) -> QueuedBatch {
        let mut inner = self.inner.lock();
        if !inner.led {
            inner.led = true;
            drop(inner);
            let _lead = LeadGuard(self);
            let mut group = [queued];
            commit(&mut group);
            let [queued] = group;
            return queued;
        }
        let waiter = Arc::new(Waiter {
            state: Mutex::new(WaiterState::Waiting(queued)),
            thread: std::thread::current(),
        });
        inner.waiting.push_back(waiter.clone());
        drop(inner);
        let own = loop {
            std::thread::park();
            let mut state = waiter.state.lock();
            match std::mem::replace(&mut *state, WaiterState::Taken) {
                WaiterState::Done(queued) => return queued,
                WaiterState::Leads(queued) => break queued,
                other => *state = other,
            }
        };
        let _lead = LeadGuard(self);
        let mut group = LeaderGroup {
            batches: vec![own],
            followers: Vec::new(),
        };
        group.followers = self.take(group.batches[0].load.bytes, &mut group.batches);
        commit(&mut group.batches);
        match group.end() {
            Some(queued) => queued,
            None => unreachable!("the leader's own batch is the first of its group"),
        }
    }

    /// Moves waiting batches into the group while they are small enough together.
    fn take(&self, mut bytes: u64, group: &mut Vec<QueuedBatch>) -> Vec<Arc<Waiter>> {
        let mut inner = self.inner.lock();
        let mut others = Vec::new();
        while let Some(waiter) = inner.waiting.front() {
            let mut state = waiter.state.lock();
            match std::mem::replace(&mut *state, WaiterState::Taken) {
                WaiterState::Waiting(queued) if bytes + queued.load.bytes <= GROUP_BYTES => {
                    bytes += queued.load.bytes;
                    group.push(queued);
                }
                other => {
                    *state = other;
                    break;
                }
            }
            drop(state);
            others.extend(inner.waiting.pop_front());
        }
        others
    }
}

/// A leader's group: its own batch, and those of the threads that sleep until they get theirs back.
struct LeaderGroup {
    batches: Vec<QueuedBatch>,
    followers: Vec<Arc<Waiter>>,
}

impl LeaderGroup {
    /// Wakes the followers with their batches, as they are now. Returns the leader's, the first time.
    fn end(&mut self) -> Option<QueuedBatch> {
        let mut batches = std::mem::take(&mut self.batches).into_iter();
        let own = batches.next();
        for (waiter, queued) in self.followers.drain(..).zip(batches) {
            *waiter.state.lock() = WaiterState::Done(queued);
            waiter.thread.unpark();
        }
        own
    }
}

impl Drop for LeaderGroup {
    fn drop(&mut self) {
        self.end();
    }
}

/// Hands the lead on when dropped.
struct LeadGuard<'a>(&'a Queue);

impl Drop for LeadGuard<'_> {
    fn drop(&mut self) {
        let mut inner = self.0.inner.lock();
        match inner.waiting.pop_front() {
            None => inner.led = false,
            Some(next) => {
                let mut state = next.state.lock();
                if let WaiterState::Waiting(queued) =
                    std::mem::replace(&mut *state, WaiterState::Taken)
                {
                    *state = WaiterState::Leads(queued);
                }
                drop(state);
                next.thread.unpark();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Keyspace;
    use std::sync::atomic::{AtomicUsize, Ordering};

    const LOAD: GroupSummary = GroupSummary {
        reclaiming: false,
        deletes: false,
        bytes: 10,
    };

    #[test]
    fn every_batch_runs_once_and_one_at_a_time() {
        let (queue, inside, ran) = (Queue::default(), AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for thread in 0..8u8 {
                let (queue, inside, ran) = (&queue, &inside, &ran);
                scope.spawn(move || {
                    for i in 0..500u16 {
                        let mut batch = Batch::new();
                        batch.put(Keyspace(thread), i.to_be_bytes().to_vec(), "v");
                        let want = batch.clone();
                        let done = queue.run(QueuedBatch::new(batch, LOAD), |group| {
                            assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                            for queued in group.iter_mut() {
                                assert!(queued.outcome.replace(Ok(())).is_none());
                                ran.fetch_add(1, Ordering::SeqCst);
                            }
                            inside.fetch_sub(1, Ordering::SeqCst);
                        });
                        assert_eq!(done.batch, want);
                        assert!(matches!(done.outcome, Some(Ok(()))));
                    }
                });
            }
        });
        assert_eq!(ran.load(Ordering::SeqCst), 4000);
    }

    fn queued() -> QueuedBatch {
        QueuedBatch::new(Batch::new(), LOAD)
    }

    #[test]
    fn a_leader_that_panics_fails_its_group_and_hands_the_lead_on() {
        let queue = Queue::default();
        let (leads, led) = std::sync::mpsc::channel();
        let groups = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            let queue = &queue;
            let first = scope.spawn(move || {
                queue.run(queued(), |group| {
                    leads.send(()).unwrap();
                    while queue.inner.lock().waiting.len() < 5 {
                        std::thread::yield_now();
                    }
                    group[0].outcome = Some(Ok(()));
                })
            });
            led.recv().unwrap();
            let others: Vec<_> = (0..5)
                .map(|_| {
                    let groups = &groups;
                    scope.spawn(move || {
                        queue.run(queued(), |group| {
                            groups.lock().push(group.len());
                            group[1].outcome = Some(Ok(()));
                            panic!("on purpose");
                        })
                    })
                })
                .collect();
            assert!(matches!(first.join().unwrap().outcome, Some(Ok(()))));
            let ends: Vec<_> = others.into_iter().map(|t| t.join()).collect();
            let count = |f: fn(&std::thread::Result<QueuedBatch>) -> bool| {
                ends.iter().filter(|e| f(e)).count()
            };
            assert_eq!(count(|e| e.is_err()), 1, "the leader");
            assert_eq!(
                count(|e| matches!(
                    e,
                    Ok(QueuedBatch {
                        outcome: Some(Ok(())),
                        ..
                    })
                )),
                1
            );
            assert_eq!(
                count(|e| matches!(e, Ok(QueuedBatch { outcome: None, .. }))),
                3
            );
        });
        assert_eq!(*groups.lock(), [5]);
        let after = queue.run(queued(), |group| group[0].outcome = Some(Ok(())));
        assert!(matches!(after.outcome, Some(Ok(()))));
    }
}
