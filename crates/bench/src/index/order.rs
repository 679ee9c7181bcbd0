//! In which order batches arrive at the server: pure, from a seed.
//!
//! A writer sends its records in batches. The order says whose batch comes next, and in which order a writer's records are.
//! - **Lockstep**: writers in turn, a batch each; a writer's records in file order.
//! - **Drift**: each writer has a speed of its own; the fastest is done when the slowest is half done, the others lie evenly between.
//!   Each batch lasts, besides, between half and one and a half times its writer's usual time. Records in file order.
//! - **Random**: the next batch is any of those left, of whichever writer; a writer's records are shuffled over all it writes.
use super::workload::{Record, Workload};
use forebay_testkit::random::Random;
use forebay_trace::workload::Shuffle;

/// An order of arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Order {
    /// In turn.
    Lockstep,
    /// At different speeds.
    Drift,
    /// Any.
    Random,
}

/// Batches as they arrive; an iterator of vectors of records.
pub struct Arrivals<'a> {
    work: &'a Workload,
    order: Order,
    size: u64,
    random: Random,
    writers: Vec<WriterProgress>,
    /// The writer whose turn it is, in lockstep.
    turn: usize,
    /// Batches left.
    left: u64,
}

struct WriterProgress {
    /// Records sent.
    sent: u64,
    /// Batches left.
    left: u64,
    /// Usual time of a batch.
    pace: u64,
    /// When its next batch is ready.
    ready: u64,
    shuffle: Shuffle,
}

/// The usual time of a batch of the fastest writer; the slowest needs twice that.
const FASTEST_BATCH_TIME: u64 = 1 << 20;

impl<'a> Arrivals<'a> {
    /// The batches of `size` records of a workload.
    pub fn new(work: &'a Workload, order: Order, size: u64, seed: u64) -> Arrivals<'a> {
        let mut random = Random::new(seed);
        let n = work.writers();
        let mut ranks: Vec<u64> = (0..u64::from(n)).collect();
        for i in (1..ranks.len()).rev() {
            ranks.swap(i, random.below(i as u64 + 1) as usize);
        }
        let writers = (0..n).zip(ranks).map(|(w, rank)| {
            let pace = FASTEST_BATCH_TIME + FASTEST_BATCH_TIME * rank / u64::from(n - 1).max(1);
            WriterProgress {
                sent: 0,
                left: work.each(w).div_ceil(size),
                pace,
                ready: random.around(pace),
                shuffle: Shuffle {
                    n: work.each(w),
                    seed: random.next(),
                },
            }
        });
        let writers: Vec<WriterProgress> = writers.collect();
        let left = writers.iter().map(|w| w.left).sum();
        Arrivals {
            work,
            order,
            size,
            random,
            writers,
            turn: 0,
            left,
        }
    }

    /// Number of batches to come.
    pub fn batches(&self) -> u64 {
        self.left
    }

    /// Whose batch is next; some are left.
    fn choose(&mut self) -> usize {
        match self.order {
            Order::Lockstep => {
                while self.writers[self.turn].left == 0 {
                    self.turn = (self.turn + 1) % self.writers.len();
                }
                let chosen = self.turn;
                self.turn = (self.turn + 1) % self.writers.len();
                chosen
            }
            Order::Drift => {
                let going = self.writers.iter().enumerate().filter(|(_, w)| w.left > 0);
                let next = going.min_by_key(|(w, writer)| (writer.ready, *w));
                next.map_or(0, |(w, _)| w)
            }
            Order::Random => {
                let mut at = self.random.below(self.left);
                let holds = |w: &WriterProgress| {
                    let inside = at < w.left;
                    at = at.wrapping_sub(w.left);
                    inside
                };
                self.writers.iter().position(holds).unwrap_or(0)
            }
        }
    }
}

impl Iterator for Arrivals<'_> {
    type Item = Vec<Record>;

    fn next(&mut self) -> Option<Vec<Record>> {
        if self.left == 0 {
            return None;
        }
        let w = self.choose();
        self.left -= 1;
        let writer = &mut self.writers[w];
        let from = writer.sent;
        writer.sent = (from + self.size).min(self.work.each(w as u32));
        writer.left -= 1;
        writer.ready += self.random.around(writer.pace);
        let record = |i| {
            let i = match self.order {
                Order::Random => writer.shuffle.at(i),
                _ => i,
            };
            self.work.record(w as u32, i)
        };
        Some((from..writer.sent).map(record).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ior(each: u64) -> Workload {
        Workload::Strided {
            writers: 16,
            each,
            len: 1024,
        }
    }

    #[test]
    fn every_record_comes_once_in_every_order() {
        for work in [ior(1000), Workload::bt(14, 4)] {
            for order in [Order::Lockstep, Order::Drift, Order::Random] {
                let arrivals = Arrivals::new(&work, order, 64, 5);
                let expected = arrivals.batches();
                let batches: Vec<_> = arrivals.collect();
                assert_eq!(batches.len() as u64, expected);
                let mut all: Vec<_> = batches.concat();
                assert!(batches.iter().all(|b| b.iter().all(|r| r.log == b[0].log)));
                all.sort_unstable_by_key(|r| (r.log, r.addr));
                let writers = 0..work.writers();
                let records = writers.flat_map(|w| (0..work.each(w)).map(move |i| (w, i)));
                let expected: Vec<_> = records.map(|(w, i)| work.record(w, i)).collect();
                assert_eq!(all, expected, "{order:?}");
            }
        }
    }

    #[test]
    fn drifting_writers_get_far_apart_and_a_seed_repeats_them() {
        let work = ior(64 * 100);
        let batches: Vec<_> = Arrivals::new(&work, Order::Drift, 64, 1).collect();
        let mut sent = [0u64; 16];
        let mut apart = 0;
        for batch in &batches {
            sent[batch[0].log as usize] += 1;
            let least = sent.iter().min().copied().unwrap();
            apart = apart.max(sent.iter().max().unwrap() - least);
        }
        assert!((40..=60).contains(&apart), "{apart} batches of 100 apart");
        let again: Vec<_> = Arrivals::new(&work, Order::Drift, 64, 1).collect();
        let other: Vec<_> = Arrivals::new(&work, Order::Drift, 64, 2).collect();
        assert!(batches == again && batches != other);
    }

    #[test]
    fn random_records_of_a_batch_are_spread_over_the_file() {
        let work = ior(4096);
        for batch in Arrivals::new(&work, Order::Random, 1024, 3) {
            let mut near = 0;
            for pair in batch.windows(2) {
                near += u32::from(pair[0].offset.abs_diff(pair[1].offset) < 1 << 20);
            }
            assert!(near < 100, "{near} of 1,023 neighbours are near");
        }
    }
}
