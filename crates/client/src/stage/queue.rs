//! Tasks on their way from the walk to the workers of a node: bounded, so that a walk cannot run far ahead.
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;

/// See the head of this file.
pub struct Queue<T> {
    most: usize,
    state: Mutex<(VecDeque<T>, bool)>,
    changed: Condvar,
}

impl<T> Queue<T> {
    /// Holds at most `most`.
    pub fn new(most: usize) -> Queue<T> {
        Queue {
            most,
            state: Mutex::new((VecDeque::new(), false)),
            changed: Condvar::new(),
        }
    }

    /// Waits for room. `false`: it was closed.
    pub fn push(&self, item: T) -> bool {
        let mut state = self.state.lock();
        self.changed
            .wait_while(&mut state, |s| s.0.len() >= self.most && !s.1);
        if state.1 {
            return false;
        }
        state.0.push_back(item);
        drop(state);
        self.changed.notify_all();
        true
    }

    /// Waits for one. `None`: it was closed, and everything is taken.
    pub fn pop(&self) -> Option<T> {
        let mut state = self.state.lock();
        self.changed
            .wait_while(&mut state, |s| s.0.is_empty() && !s.1);
        let item = state.0.pop_front();
        drop(state);
        self.changed.notify_all();
        item
    }

    /// No more come.
    pub fn close(&self) {
        self.state.lock().1 = true;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_pushed_is_popped_once_and_a_closed_queue_ends() {
        let queue = Queue::new(3);
        let got = std::thread::scope(|scope| {
            let pop = || std::iter::from_fn(|| queue.pop()).collect::<Vec<u32>>();
            let (a, b) = (scope.spawn(pop), scope.spawn(pop));
            assert!((0..1000).all(|n| queue.push(n)));
            queue.close();
            let mut got = a.join().unwrap();
            got.extend(b.join().unwrap());
            got
        });
        let mut got = got;
        got.sort_unstable();
        assert_eq!(got, (0..1000).collect::<Vec<_>>());
        assert!(!queue.push(1));
    }
}
