//! Requests that wait for blocks of one table file, and which region is read for them next.
use super::{Alpha, Region, cluster};
use std::collections::BTreeMap;

/// Requests between two clusterings (the paper's n/1000 levels).
const LEVEL: u64 = 1000;

/// See the head of this file. `R` is what a request needs to be answered.
///
/// Invariant: every request that was added is in exactly one round.
#[derive(Debug)]
pub struct PendingBlockReads<R> {
    alpha: Alpha,
    /// Requests by block, and what they count.
    waiting: BTreeMap<u32, (u64, Vec<R>)>,
    /// How many wait, each counted as told.
    pub count: u64,
    /// The level of `count` when the regions were formed.
    level: u64,
    /// What the last clustering left to read, in ascending order, and how many requests wait in each.
    regions: Vec<(Region, u64)>,
}

/// What one I/O is for.
#[derive(Debug, PartialEq, Eq)]
pub struct ReadRound<R> {
    /// What to read.
    pub region: Region,
    /// The requests by block, in ascending order of blocks. Blocks of the region that nobody asked for are not here.
    pub requests: Vec<(u32, Vec<R>)>,
}

impl<R> PendingBlockReads<R> {
    /// No requests yet.
    pub fn new(alpha: Alpha) -> PendingBlockReads<R> {
        PendingBlockReads {
            alpha,
            waiting: BTreeMap::new(),
            count: 0,
            level: 0,
            regions: Vec::new(),
        }
    }

    /// A request that counts as `count` of them: it is for that many things in `block`.
    pub fn add(&mut self, block: u32, count: u64, request: R) {
        let waiting = self.waiting.entry(block);
        let (counted, requests) = waiting.or_insert((0, Vec::new()));
        *counted += count;
        requests.push(request);
        self.count += count;
        let at = self.regions.partition_point(|(r, _)| r.last < block);
        if let Some((_, counted)) = self.regions.get_mut(at).filter(|(r, _)| r.holds(block)) {
            *counted += count;
        }
    }

    /// Takes the region with the highest request density (equation 2: requests by blocks), and all its requests. `None` if
    /// nothing waits. What is read may be more than the region: `widen` says what, and whatever waits for that is in the round.
    ///
    /// Clusters anew when the number of waiting requests has reached another level, or no region of the last clustering is left;
    /// what was asked for between two clusterings and lies in no region waits until then.
    pub fn round(&mut self, widen: impl FnOnce(Region) -> Region) -> Option<ReadRound<R>> {
        if self.waiting.is_empty() {
            return None;
        }
        if self.regions.is_empty() || self.count / LEVEL != self.level {
            let requested: Vec<u32> = self.waiting.keys().copied().collect();
            let regions = cluster(&requested, self.alpha).into_iter();
            self.regions = regions.map(|r| (r, self.requests(r))).collect();
            self.level = self.count / LEVEL;
        }
        let regions = self.regions.iter().enumerate();
        // Of equals the first in the file.
        let densest = regions.max_by(|(i, a), (j, b)| denser(**a, **b).then(j.cmp(i)));
        let (region, _) = *densest?.1;
        let wide = widen(region);
        let region = Region {
            first: wide.first.min(region.first),
            last: wide.last.max(region.last),
        };
        self.remove_region(region);
        let mut rest = self.waiting.split_off(&region.first);
        if let Some(behind) = region.last.checked_add(1) {
            self.waiting.append(&mut rest.split_off(&behind));
        }
        self.count -= rest.values().map(|(count, _)| count).sum::<u64>();
        let requests = rest.into_iter().map(|(block, (_, r))| (block, r));
        let requests = requests.collect();
        Some(ReadRound { region, requests })
    }

    /// Takes the blocks of `region` out of the regions that are left to read. If one of these reaches beyond it, all are formed anew.
    fn remove_region(&mut self, region: Region) {
        let outside = |r: &(Region, u64)| r.0.last < region.first || r.0.first > region.last;
        let inside = |r: &(Region, u64)| region.holds(r.0.first) && region.holds(r.0.last);
        let whole = self.regions.iter().all(|r| outside(r) || inside(r));
        self.regions.retain(outside);
        if !whole {
            self.regions.clear();
        }
    }

    fn requests(&self, region: Region) -> u64 {
        let blocks = self.waiting.range(region.first..=region.last);
        blocks.map(|(_, (count, _))| count).sum()
    }
}

/// Compares densities without dividing.
fn denser(a: (Region, u64), b: (Region, u64)) -> std::cmp::Ordering {
    let scaled = |(_, requests): (Region, u64), other: Region| {
        u128::from(requests) * u128::from(other.blocks())
    };
    scaled(a, b.0).cmp(&scaled(b, a.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn same(region: Region) -> Region {
        region
    }

    #[test]
    fn the_densest_region_comes_first_and_takes_what_arrived_meanwhile() {
        let mut demand = PendingBlockReads::new(Alpha::default());
        for (block, request) in [
            (0, 'a'),
            (1, 'b'),
            (10, 'c'),
            (10, 'd'),
            (11, 'e'),
            (30, 'f'),
        ] {
            demand.add(block, 1, request);
        }
        let first = demand.round(same).unwrap();
        assert_eq!(
            first.region,
            Region {
                first: 10,
                last: 11
            }
        );
        assert_eq!(first.requests, [(10, vec!['c', 'd']), (11, vec!['e'])]);
        // In a region of the last clustering, and in none.
        demand.add(1, 1, 'g');
        demand.add(31, 1, 'h');
        assert_eq!(demand.count, 5);
        let second = demand.round(same).unwrap();
        assert_eq!(second.requests, [(0, vec!['a']), (1, vec!['b', 'g'])]);
        assert_eq!(demand.round(same).unwrap().requests, [(30, vec!['f'])]);
        assert_eq!(
            demand.round(same).unwrap().region,
            Region {
                first: 31,
                last: 31
            }
        );
        assert_eq!(demand.round(same), None);
    }

    #[test]
    fn another_level_of_requests_clusters_anew() {
        let mut demand = PendingBlockReads::new(Alpha::default());
        for block in [0, 5, 9] {
            demand.add(block, 1, ());
        }
        assert_eq!(
            demand.round(same).unwrap().region,
            Region { first: 0, last: 0 }
        );
        for i in 0..1000 {
            demand.add(5 + i % 5, 1, ());
        }
        assert_eq!(
            demand.round(same).unwrap().region,
            Region { first: 5, last: 9 }
        );
        assert!(demand.waiting.is_empty());
    }

    #[test]
    fn a_request_counts_as_many_as_told() {
        let mut demand = PendingBlockReads::new(Alpha::default());
        demand.add(0, 1, 'a');
        demand.add(7, 3, 'b');
        demand.add(20, 1, 'c');
        assert_eq!((demand.count, demand.waiting.is_empty()), (5, false));
        assert_eq!(demand.round(same).unwrap().requests, [(7, vec!['b'])]);
        // Those that come later count in the regions that are left.
        demand.add(20, 2, 'd');
        assert_eq!(demand.count, 4);
        assert_eq!(demand.round(same).unwrap().requests, [(20, vec!['c', 'd'])]);
        assert_eq!(demand.round(same).unwrap().requests, [(0, vec!['a'])]);
    }

    proptest! {
        #[test]
        fn every_request_is_in_one_round(
            arrivals in proptest::collection::vec(proptest::collection::vec(0u32..40, 0..30), 1..10),
            a in 0.05f64..1.0,
            unit in 1u32..20,
        ) {
            let widen = |r: Region| Region { first: r.first / unit * unit, last: r.last / unit * unit + unit - 1 };
            let mut demand = PendingBlockReads::new(Alpha::new(a).unwrap());
            let (mut added, mut served) = (Vec::new(), Vec::new());
            let mut take = |round: ReadRound<(u32, usize)>| {
                for (block, requests) in round.requests {
                    assert!(round.region.holds(block) && !requests.is_empty());
                    assert!(requests.iter().all(|(b, _)| *b == block));
                    served.extend(requests);
                }
            };
            for blocks in arrivals {
                for block in blocks {
                    demand.add(block, 1, (block, added.len()));
                    added.push((block, added.len()));
                }
                if let Some(round) = demand.round(widen) {
                    take(round);
                }
            }
            while let Some(round) = demand.round(widen) {
                take(round);
            }
            prop_assert!(demand.waiting.is_empty());
            served.sort_unstable_by_key(|(_, n)| *n);
            prop_assert_eq!(served, added);
        }
    }
}
