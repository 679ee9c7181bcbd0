//! A second-order history of a file's readers: which request followed each pair of requests. Readers of a shared file often make
//! the same requests one after the other even without a loop, for example when all ranks open one HDF5 file. It is keyed by two
//! requests, because a single one (of a header) may be repeated with a different successor each time.
//!
//! Invariant: at most twice [`MAX_STEPS`] steps. Once there are `MAX_STEPS` new ones, they replace the old ones.
use forebay_pattern::ReadRequest;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

const MAX_STEPS: usize = 4096;
/// Memory of a step, about.
const STEP_MEMORY: u64 = 40;

/// The two requests before, as one number.
type StepKey = u64;

#[derive(Debug, Default)]
struct HistoryGenerations {
    new: HashMap<StepKey, ReadRequest>,
    old: HashMap<StepKey, ReadRequest>,
}

/// Steps of all readers of a file.
#[derive(Debug, Default)]
pub struct RequestHistory(Mutex<HistoryGenerations>);

impl RequestHistory {
    /// Memory, about, bytes.
    pub fn memory(&self) -> u64 {
        let inner = self.0.lock();
        (inner.new.capacity() + inner.old.capacity()) as u64 * STEP_MEMORY
    }

    fn add(&self, before: StepKey, next: ReadRequest) {
        let mut inner = self.0.lock();
        if inner.new.len() >= MAX_STEPS {
            inner.old = std::mem::take(&mut inner.new);
        }
        inner.new.insert(before, next);
    }

    /// What follows, at most `count` requests.
    fn ahead(&self, mut from: (ReadRequest, ReadRequest), count: usize) -> Vec<ReadRequest> {
        let inner = self.0.lock();
        let mut out = Vec::new();
        while out.len() < count {
            let before = before(from.0, from.1);
            let Some(next) = inner.new.get(&before).or_else(|| inner.old.get(&before)) else {
                break;
            };
            out.push(*next);
            from = (from.1, *next);
        }
        out
    }
}

fn before(a: ReadRequest, b: ReadRequest) -> StepKey {
    [a.offset, a.len, b.offset, b.len]
        .into_iter()
        .fold(0, |hash, part| {
            let mixed = (hash ^ part).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            mixed ^ (mixed >> 29)
        })
}

/// One reader that follows.
#[derive(Debug)]
pub struct HistoryPredictor {
    steps: Arc<RequestHistory>,
    last: Option<ReadRequest>,
    here: Option<ReadRequest>,
    next: Option<ReadRequest>,
}

impl HistoryPredictor {
    /// Of a reader that has read nothing yet.
    pub fn new(steps: Arc<RequestHistory>) -> HistoryPredictor {
        HistoryPredictor {
            steps,
            last: None,
            here: None,
            next: None,
        }
    }

    /// The reader reads this. Whether someone has made this step before.
    pub fn observe(&mut self, request: ReadRequest) -> bool {
        let right = self.next == Some(request);
        if !right && let (Some(a), Some(b)) = (self.last, self.here) {
            self.steps.add(before(a, b), request);
        }
        self.last = self.here.replace(request);
        self.next = self.predict(1).first().copied();
        right
    }

    /// The next requests, at most `count`.
    pub fn predict(&self, count: usize) -> Vec<ReadRequest> {
        match (self.last, self.here) {
            (Some(a), Some(b)) => self.steps.ahead((a, b), count),
            _ => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(offset: u64) -> ReadRequest {
        ReadRequest { offset, len: 512 }
    }

    #[test]
    fn a_second_reader_is_foreseen_from_its_third_request_on() {
        let steps = Arc::new(RequestHistory::default());
        let path = [680, 136, 1504, 680, 9000, 136, 77];
        let mut first = HistoryPredictor::new(steps.clone());
        assert!(path.iter().all(|o| !first.observe(request(*o))));
        let mut second = HistoryPredictor::new(steps);
        let right: Vec<bool> = path.iter().map(|o| second.observe(request(*o))).collect();
        assert_eq!(right, [false, false, true, true, true, true, true]);
    }

    #[test]
    fn all_the_way_ahead_is_seen() {
        let steps = Arc::new(RequestHistory::default());
        let mut first = HistoryPredictor::new(steps.clone());
        let path = (0..50u64).map(|k| request(k * k * 100));
        assert_eq!(path.filter(|r| first.observe(*r)).count(), 0);
        let mut second = HistoryPredictor::new(steps);
        second.observe(request(0));
        second.observe(request(100));
        let ahead: Vec<u64> = second.predict(99).iter().map(|r| r.offset).collect();
        assert_eq!(ahead, (2..50).map(|k| k * k * 100).collect::<Vec<u64>>());
    }

    #[test]
    fn memory_is_bounded() {
        let steps = Arc::new(RequestHistory::default());
        let mut reader = HistoryPredictor::new(steps.clone());
        for k in 0..100_000u64 {
            reader.observe(request(k.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20));
        }
        assert!(steps.memory() < 1 << 20, "{}", steps.memory());
    }
}
