//! Decides when a fill may run: bytes put into the kernel's page cache without a request for them (`page_fills`).
//!
//! A fill replaces whatever page the kernel has. So while one is under way, no call may promise newer bytes than those it carries:
//! neither a write of this node, which goes into the same page, nor a call that shows what another node has published.
//!
//! Invariants, under the lock of the file's state:
//! - A fill carries the generation that the file has when it begins. It begins only while no handle here may write the file and
//!   nothing written here is unpublished.
//! - Only one fill at a time. The thread of a fill has a read to answer, whose pages the kernel locks until then; two such threads
//!   could wait for each other's pages.
//! - A call that lets a program write, changes the generation, or drops the file's pages is answered only after all fills that
//!   began before it took effect have ended. Later fills find the new state.
use parking_lot::{Condvar, MutexGuard};
use std::sync::Arc;
use std::time::Instant;

/// See the head of this file.
#[derive(Debug, Default)]
pub struct PageFillGate {
    /// Handles that may write the file.
    writers: u32,
    /// The fill under way.
    under_way: Option<u64>,
    /// Stores begun so far.
    begun: u64,
    ended: Arc<Condvar>,
}

impl PageFillGate {
    /// A handle that may write is there from now on.
    pub fn add_writer(&mut self) {
        self.writers += 1;
    }

    /// One of them is closed.
    pub fn remove_writer(&mut self) {
        self.writers = self.writers.saturating_sub(1);
    }

    /// Whether a handle that may write is there.
    pub fn has_writers(&self) -> bool {
        self.writers > 0
    }

    /// Whether a fill may begin, as far as the gate knows.
    pub fn is_open(&self) -> bool {
        self.writers == 0 && self.under_way.is_none()
    }

    /// A fill begins; the caller has seen that the gate is open.
    pub fn begin(&mut self) {
        self.begun += 1;
        self.under_way = Some(self.begun);
    }

    /// It goes on: nobody has begun to write since.
    pub fn may_go_on(&self) -> bool {
        self.writers == 0
    }

    /// The fill under way has ended.
    pub fn end(&mut self) {
        self.under_way = None;
        self.ended.notify_all();
    }

    /// Whether a fill is under way.
    pub fn is_filling(&self) -> bool {
        self.under_way.is_some()
    }
}

/// Waits for the end of the fill that is under way now, at most until then. Whether it has ended.
pub fn wait_for_fill<S>(
    state: &mut MutexGuard<'_, S>,
    gate: impl Fn(&S) -> &PageFillGate,
    until: Instant,
) -> bool {
    let Some(fill) = gate(state).under_way else {
        return true;
    };
    let ended = gate(state).ended.clone();
    while gate(state).under_way == Some(fill) {
        if ended.wait_until(state, until).timed_out() {
            return gate(state).under_way != Some(fill);
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use parking_lot::Mutex;
    use std::time::Duration;

    #[test]
    fn a_fill_begins_only_while_nobody_writes_and_no_other_is_under_way() {
        let mut gate = PageFillGate::default();
        assert!(gate.is_open());
        gate.add_writer();
        assert!(!gate.is_open());
        gate.remove_writer();
        gate.begin();
        assert!(!gate.is_open() && gate.may_go_on());
        gate.add_writer();
        assert!(!gate.may_go_on());
        gate.end();
        assert!(!gate.is_open(), "the writer is still there");
        gate.remove_writer();
        assert!(gate.is_open());
    }

    #[test]
    fn who_waits_is_woken_by_the_end_of_the_fill_of_then_whatever_begins_next() {
        let gate = Mutex::new(PageFillGate::default());
        let far = Instant::now() + Duration::from_secs(600);
        let wait = |until| wait_for_fill(&mut gate.lock(), |gate| gate, until);
        assert!(wait(far), "none is under way");
        gate.lock().begin();
        assert!(!wait(Instant::now()), "it goes on");
        let (locked, looks) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            let gate = &gate;
            let waits = scope.spawn(move || {
                let mut state = gate.lock();
                locked.send(()).unwrap();
                wait_for_fill(&mut state, |gate| gate, far)
            });
            looks.recv().unwrap();
            // Given up by the other only while it waits.
            let mut gate = gate.lock();
            gate.end();
            gate.begin();
            drop(gate);
            assert!(waits.join().unwrap());
        });
    }
}
