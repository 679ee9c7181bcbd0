//! Memory for the tails of logs: one budget for all, spare buffers for the logs that fill theirs, and the order in which logs
//! must write theirs out when the budget is used up.
//!
//! Invariant: the budget counts the capacity of every tail and of every spare buffer.
use crate::byte_budget::ByteBudget;
use crate::log::{Log, LogState};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Emptied buffers kept for the next full tail.
const MAX_SPARE_BUFFERS: usize = 4;
/// A tail is written out at this size at the latest: the largest span.
const MAX_TAIL: u64 = 1 << 20;
/// The smallest size of a full tail.
const MIN_TAIL: u64 = 64 << 10;

/// Logs by ticket; tickets grow.
#[derive(Default)]
struct Queue {
    logs: BTreeMap<u64, Arc<Log>>,
    last: u64,
}

/// See the head of this file. Shared by threads.
pub struct TailMemory {
    budget: ByteBudget,
    /// Logs with a tail, oldest first: whose buffers go first when memory is short.
    queue: Mutex<Queue>,
    spare: Mutex<Vec<Vec<u8>>>,
}

impl TailMemory {
    /// `limit`: most bytes.
    pub fn new(limit: u64) -> TailMemory {
        TailMemory {
            budget: ByteBudget::new(limit),
            queue: Mutex::default(),
            spare: Mutex::default(),
        }
    }

    /// Memory of tails and spare buffers, bytes.
    pub fn used(&self) -> u64 {
        self.budget.used()
    }

    /// A tail is written out at this size, bytes.
    pub fn tail_limit(&self) -> usize {
        (self.budget.limit / 8).clamp(MIN_TAIL, MAX_TAIL) as usize
    }

    /// What a tail would grow to for `more` bytes, and by how much.
    fn growth(&self, state: &LogState, more: usize) -> (usize, u64) {
        let limit = self.tail_limit();
        let capacity = match state.fills_tails {
            true => limit,
            false => state.tail.capacity_for(more, limit),
        };
        let more = capacity.saturating_sub(state.tail.capacity());
        (capacity, more as u64)
    }

    /// Makes the tail hold `more` bytes. `false`: that is over the budget, and nothing changed.
    pub fn try_grow(&self, state: &mut LogState, more: usize) -> bool {
        let (capacity, add) = self.growth(state, more);
        let fits = self.budget.try_charge(add);
        if fits {
            state.tail.reserve(capacity);
        }
        fits
    }

    /// Whether `try_grow` would be over the budget.
    pub fn is_short(&self, state: &LogState, more: usize) -> bool {
        self.budget.used() + self.growth(state, more).1 > self.budget.limit
    }

    /// The log has a tail now.
    pub fn queue(&self, log: &Arc<Log>, state: &mut LogState) {
        if state.ticket == 0 {
            let mut queue = self.queue.lock();
            queue.last += 1;
            state.ticket = queue.last;
            let ticket = queue.last;
            queue.logs.insert(ticket, log.clone());
        }
    }

    /// The log has no tail any more: its emptied buffer goes back.
    pub fn release(&self, state: &mut LogState, buffer: Vec<u8>) {
        if state.ticket != 0 {
            self.queue.lock().logs.remove(&state.ticket);
            state.ticket = 0;
        }
        self.budget.release(buffer.capacity() as u64);
    }

    /// The log queued longest of those after `ticket`, with its ticket.
    pub fn queued_after(&self, ticket: u64) -> Option<(u64, Arc<Log>)> {
        let queue = self.queue.lock();
        queue
            .logs
            .range(ticket + 1..)
            .next()
            .map(|(t, log)| (*t, log.clone()))
    }

    /// Gives the tail of a log that fills its tails a spare buffer, if there is one.
    pub fn adopt_spare(&self, state: &mut LogState) {
        if !state.fills_tails || state.tail.capacity() > 0 {
            return;
        }
        let mut spare = self.spare.lock();
        let limit = self.tail_limit();
        if let Some(at) = spare.iter().position(|b| b.capacity() >= limit) {
            state.tail.adopt(spare.swap_remove(at));
        }
    }

    /// The tail was written out. A full buffer stays with a log that fills its tails, or becomes a spare one; others go back.
    pub fn reuse(&self, state: &mut LogState, buffer: Vec<u8>) {
        let full = buffer.capacity() >= self.tail_limit();
        if state.fills_tails && full {
            return state.tail.adopt(buffer);
        }
        if full {
            let mut spare = self.spare.lock();
            if spare.len() < MAX_SPARE_BUFFERS {
                return spare.push(buffer);
            }
        }
        self.budget.release(buffer.capacity() as u64);
    }

    /// Gives all spare buffers back.
    pub fn drop_spares(&self) {
        let spare = std::mem::take(&mut *self.spare.lock());
        let bytes = spare.iter().map(|b| b.capacity() as u64).sum();
        self.budget.release(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::OpenLogs;
    use forebay_proto::Fid;

    #[test]
    fn the_budget_counts_tails_and_spares_and_all_of_it_comes_back() {
        let memory = TailMemory::new(1 << 20);
        assert_eq!(memory.tail_limit(), 128 << 10);
        let mut states: Vec<LogState> = (0..9).map(|_| LogState::default()).collect();
        for state in &mut states {
            state.fills_tails = true;
        }
        let grown = states
            .iter_mut()
            .filter_map(|s| memory.try_grow(s, 10).then_some(()));
        assert_eq!((grown.count(), memory.used()), (8, 1 << 20));
        assert!(memory.is_short(&states[8], 10));
        for state in &mut states[..8] {
            state.fills_tails = false;
            let end = state.tail.end();
            let buffer = state.tail.advance(end);
            memory.reuse(state, buffer);
        }
        assert_eq!(memory.used(), (MAX_SPARE_BUFFERS as u64) * (128 << 10));
        memory.adopt_spare(&mut states[8]);
        assert_eq!(states[8].tail.capacity(), 128 << 10);
        memory.drop_spares();
        assert_eq!(memory.used(), 128 << 10);
        let buffer = states[8].tail.advance(0);
        memory.release(&mut states[8], buffer);
        assert_eq!(memory.used(), 0);
    }

    #[test]
    fn logs_queue_once_in_the_order_in_which_they_got_a_tail() {
        let (memory, open) = (TailMemory::new(1 << 20), OpenLogs::default());
        let logs = [3, 1, 2].map(|id| {
            open.add(id, Fid(1), Default::default(), false);
            open.get(id).unwrap()
        });
        for log in logs.iter().chain([&logs[0]]) {
            memory.queue(log, &mut log.state.lock());
        }
        let queued = || {
            let after = |last: &(u64, Arc<Log>)| memory.queued_after(last.0);
            std::iter::successors(memory.queued_after(0), after)
                .map(|(_, log)| log.id)
                .collect::<Vec<_>>()
        };
        assert_eq!(queued(), [3, 1, 2]);
        memory.release(&mut logs[1].state.lock(), Vec::new());
        assert_eq!(queued(), [3, 2]);
    }
}
