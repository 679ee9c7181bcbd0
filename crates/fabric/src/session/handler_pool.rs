//! Threads for request handlers, as many as handlers run at once.
//!
//! Handlers may block, and may call ranks whose handlers call back, so a bound on the threads could make all of them
//! wait for a thread. A thread that found no work for a while ends.

use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

/// How long a thread waits for more work before it ends.
const IDLE_THREAD_LIFE: Duration = Duration::from_secs(5);

type Task = Box<dyn FnOnce() + Send>;

#[derive(Default)]
pub(super) struct HandlerPool {
    state: Mutex<PoolState>,
    work: Condvar,
}

#[derive(Default)]
struct PoolState {
    tasks: VecDeque<Task>,
    /// Threads that wait, those being woken included.
    idle: usize,
}

impl HandlerPool {
    /// Runs `task` on a thread of the pool, at once. Never waits.
    pub fn run(self: &Arc<HandlerPool>, task: impl FnOnce() + Send + 'static) {
        let mut state = self.state.lock();
        state.tasks.push_back(Box::new(task));
        // Each task that waits has an idle thread of its own, which wakes for it or finds it on its way out.
        if state.tasks.len() <= state.idle {
            self.work.notify_one();
            return;
        }
        drop(state);
        let pool = Arc::clone(self);
        let started = std::thread::Builder::new()
            .name("requests".into())
            .spawn(move || pool.serve());
        if let Err(error) = started {
            // The task stays for the next thread that is free; its requester has a deadline.
            tracing::error!(%error, "no thread for a request");
        }
    }

    fn serve(&self) {
        let mut state = self.state.lock();
        loop {
            if let Some(task) = state.tasks.pop_front() {
                drop(state);
                // A handler that panics has dropped its replier: its requester knows. The pool goes on.
                if std::panic::catch_unwind(AssertUnwindSafe(task)).is_err() {
                    tracing::error!("a request handler panicked");
                }
                state = self.state.lock();
                continue;
            }
            state.idle += 1;
            let waited = self.work.wait_for(&mut state, IDLE_THREAD_LIFE);
            state.idle -= 1;
            if waited.timed_out() && state.tasks.is_empty() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crossbeam_channel::{bounded, unbounded};

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn tasks_that_wait_for_later_ones_do_not_block_them() {
        let pool = Arc::new(HandlerPool::default());
        let (done, finished) = unbounded();
        let gates: Vec<_> = (0..50).map(|_| bounded::<()>(1)).collect();
        for i in 0..50 {
            let done = done.clone();
            let (own, next) = (
                gates[i].1.clone(),
                gates.get(i.wrapping_sub(1)).map(|g| g.0.clone()),
            );
            pool.run(move || {
                if i < 49 {
                    own.recv_timeout(LONG).unwrap();
                }
                if let Some(next) = next {
                    next.send(()).unwrap();
                }
                done.send(i).unwrap();
            });
        }
        let order: Vec<usize> = (0..50)
            .map(|_| finished.recv_timeout(LONG).unwrap())
            .collect();
        assert!(order.contains(&0) && order.len() == 50);
    }

    #[test]
    fn a_panic_ends_its_task_only() {
        let pool = Arc::new(HandlerPool::default());
        let (done, finished) = unbounded();
        pool.run(|| panic!("as the test wants"));
        pool.run(move || done.send(1).unwrap());
        assert_eq!(finished.recv_timeout(LONG), Ok(1));
    }
}
