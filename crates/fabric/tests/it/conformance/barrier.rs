//! How the ranks of a check wait for each other.
//!
//! A rank that fails must not leave the others waiting for ever: both barriers here end for all when one rank is gone.

use super::LONG;
use super::handlers::{number, read_number};
use forebay_fabric::{Fabric, Handler, Message, Rank, Replier};
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;

/// Where ranks wait for each other.
pub trait RankBarrier: Sync {
    /// Returns when every rank has called it as often as this one.
    ///
    /// # Panics
    /// When another rank failed, or stays away for longer than any healthy check takes.
    fn wait(&self);
}

/// A barrier of the threads of one process.
pub struct ThreadBarrier {
    size: u32,
    state: Mutex<Round>,
    all_here: Condvar,
}

#[derive(Default)]
struct Round {
    number: u64,
    here: u32,
    failed: bool,
}

impl ThreadBarrier {
    /// For `size` threads.
    pub fn new(size: u32) -> ThreadBarrier {
        ThreadBarrier {
            size,
            state: Mutex::default(),
            all_here: Condvar::new(),
        }
    }

    /// While the guard lives, a panic of this thread ends the wait of all.
    pub(super) fn guard_against_panic(&self) -> PanicGuard<'_> {
        PanicGuard(self)
    }
}

impl RankBarrier for ThreadBarrier {
    fn wait(&self) {
        let mut round = self.state.lock();
        let number = round.number;
        round.here += 1;
        if round.here == self.size {
            round.here = 0;
            round.number += 1;
            self.all_here.notify_all();
            return;
        }
        while round.number == number {
            assert!(!round.failed, "another rank failed");
            let wait = self.all_here.wait_for(&mut round, LONG * 2);
            assert!(!wait.timed_out(), "another rank stays away");
        }
    }
}

pub(super) struct PanicGuard<'a>(&'a ThreadBarrier);

impl Drop for PanicGuard<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.state.lock().failed = true;
            self.0.all_here.notify_all();
        }
    }
}

/// A barrier over a fabric that nothing else uses: each rank asks rank 0, which answers when all have asked.
pub struct FabricBarrier {
    end: Arc<dyn Fabric>,
    round: Mutex<u64>,
}

impl FabricBarrier {
    /// A barrier over `end`, which it serves.
    pub fn new(end: Arc<dyn Fabric>) -> FabricBarrier {
        let waiting = Mutex::new(Vec::new());
        let size = end.size() as usize;
        end.serve(Arc::new(BarrierHost { size, waiting }));
        FabricBarrier {
            end,
            round: Mutex::new(0),
        }
    }
}

impl RankBarrier for FabricBarrier {
    fn wait(&self) {
        let mut round = self.round.lock();
        *round += 1;
        let met = self.end.call(0, number(*round), LONG * 2);
        let met = met.map(|m| read_number(&m));
        assert_eq!(met, Ok(Some(*round)), "not all ranks came");
    }
}

/// Rank 0's side; the other ranks are never asked.
struct BarrierHost {
    size: usize,
    waiting: Mutex<Vec<(Rank, Message, Replier)>>,
}

impl Handler for BarrierHost {
    fn request(&self, from: Rank, message: Message, replier: Replier) {
        let mut waiting = self.waiting.lock();
        waiting.push((from, message, replier));
        if waiting.len() < self.size {
            return;
        }
        let mut all = std::mem::take(&mut *waiting);
        drop(waiting);
        // This rank last: it may close its end as soon as it has met.
        all.sort_by_key(|(from, ..)| std::cmp::Reverse(*from));
        for (_, message, replier) in all {
            replier.reply(message);
        }
    }

    fn message(&self, _: Rank, _: Message) {}
}
