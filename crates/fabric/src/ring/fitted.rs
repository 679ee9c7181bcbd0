//! The fitted tree: the fastest tree in the LogP model whose ranks have at most `ceil(log2 n)` children, the limit of the log-ring.
//!
//! Why: on the log-ring the rank at distance `2^k - 1` is `k` hops from the root, so an operation lasts `k` times one message.
//! Where a message lasts several times the gap between two sends of one rank, it is faster if ranks near the root serve more
//! children.
//!
//! The algorithm is the optimal broadcast of Karp, Sahay, Santos and Schauser (Optimal broadcast and summation in the LogP model,
//! SPAA 1993), with a limit on children: each rank that was reached sends on as fast as it can, each time to a rank not yet
//! reached. A reduction runs the same tree backwards: the child served first on the way down comes in last on the way up.
//!
//! Positions are numbered in the order in which they are reached. The number is the distance from the root, and gives the rank as
//! on the log-ring.
//!
//! A message lasts `hop` (in LogP: L + 2o), and a rank starts one every `gap` (g). With `hop >= gap`, a rank reached within a gap
//! reaches nobody else in that gap, so the number of reached positions at most doubles in each gap. So the root's child `j`,
//! counted from 0, has position `2^j` at most, and the root has exactly `ceil(log2 n)` children. The depth has the same bound: a
//! test checks every size up to 16,384.

use super::topology::fan_in;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// What a tree is fitted to. Only the ratio matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct NetworkCost {
    /// Nanoseconds from the start of sending a message to the end of receiving it.
    pub hop: u32,
    /// Nanoseconds between the starts of two messages of one rank.
    pub gap: u32,
}

impl Default for NetworkCost {
    /// A message lasts as long as five sent in a row: InfiniBand as `bench` has it.
    fn default() -> NetworkCost {
        NetworkCost { hop: 5, gap: 1 }
    }
}

impl NetworkCost {
    /// With the smallest values that mean anything: a gap of at least 1, a hop of at least a gap.
    pub(super) fn clamped(self) -> NetworkCost {
        let gap = self.gap.max(1);
        NetworkCost {
            hop: self.hop.max(gap),
            gap,
        }
    }
}

/// The parents by distance; that of the root is the root.
pub(super) fn parents(n: u32, fit: NetworkCost) -> Vec<u32> {
    grow(n, fit, fan_in(n)).0
}

/// When each of `n` positions is reached, in nanoseconds, in ascending order; `limit` children at most, `u32::MAX` for the best
/// tree there is. Those of fewer positions are the beginning of it as long as the limit is the same.
pub fn arrival_times(n: u32, fit: NetworkCost, limit: u32) -> Vec<u64> {
    grow(n, fit, limit).1
}

/// The parents by distance, and when each position is reached; `limit` children at most.
pub(super) fn grow(n: u32, fit: NetworkCost, limit: u32) -> (Vec<u32>, Vec<u64>) {
    let fit = fit.clamped();
    let (hop, gap) = (u64::from(fit.hop), u64::from(fit.gap));
    let mut parents = Vec::with_capacity(n as usize);
    let mut times = Vec::with_capacity(n as usize);
    parents.push(0);
    times.push(0);
    // (when the message arrives, who sends it, the how-manieth of its messages); the nearest to the root wins a tie.
    let mut next = BinaryHeap::from([Reverse((hop, 0u32, 1u32))]);
    while (parents.len() as u32) < n {
        let Some(Reverse((time, from, count))) = next.pop() else {
            break;
        };
        let position = parents.len() as u32;
        parents.push(from);
        times.push(time);
        if count < limit.max(1) {
            next.push(Reverse((time + gap, from, count + 1)));
        }
        next.push(Reverse((time + hop, position, 1)));
    }
    (parents, times)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last(n: u32, fit: NetworkCost, limit: u32) -> u64 {
        arrival_times(n, fit, limit)[n as usize - 1]
    }

    #[test]
    fn a_hop_as_short_as_a_gap_gives_the_binomial_tree() {
        let parents = parents(8, NetworkCost { hop: 1, gap: 1 });
        assert_eq!(parents, [0, 0, 0, 1, 0, 1, 2, 3]);
    }

    #[test]
    fn without_a_limit_a_long_hop_gives_a_star() {
        let fit = NetworkCost { hop: 100, gap: 1 };
        assert_eq!(grow(9, fit, u32::MAX).0, [0; 9]);
        assert_eq!(last(9, fit, u32::MAX), 107);
        // The limit costs a second level.
        assert_eq!(last(9, fit, 4), 202);
    }

    /// Every size up to the largest asked for. The tree of `n` is the beginning of that of the next power of two.
    #[test]
    fn fan_in_and_depth_for_every_size_and_several_networks() {
        for (hop, gap) in [(1, 1), (3, 2), (5, 1), (5858, 1170), (40, 1), (1000, 1)] {
            let fit = NetworkCost { hop, gap };
            for k in 1..=14u32 {
                let whole = parents(1 << k, fit);
                let mut fan_ins = vec![0u32; 1 << k];
                let mut depths = vec![0u32; 1 << k];
                for n in 2..=1u32 << k {
                    let (added, up) = (n as usize - 1, whole[n as usize - 1] as usize);
                    fan_ins[up] += 1;
                    depths[added] = depths[up] + 1;
                    assert!(fan_ins[up] <= k && depths[added] <= k, "{n} {fit:?}");
                    if n > 1 << (k - 1) {
                        assert_eq!((fan_ins[0], fan_in(n)), (k, k), "{n} {fit:?}");
                    }
                }
                let some = (1 << (k - 1)) + 1 + (1 << k) / 5;
                let some = some.min(1 << k);
                assert_eq!(parents(some, fit)[..], whole[..some as usize]);
            }
        }
    }

    /// Against every tree there is, for small sizes.
    #[test]
    fn no_tree_is_faster() {
        // The least time to reach n positions with `limit` children each, by trying all splits.
        fn best(n: usize, limit: u32, fit: NetworkCost) -> u64 {
            // reach[k][n]: with k children still allowed.
            fn go(n: usize, allowed: u32, limit: u32, fit: NetworkCost) -> u64 {
                if n == 1 {
                    return 0;
                }
                if allowed == 0 {
                    return u64::MAX / 2;
                }
                (1..n)
                    .map(|first| {
                        let below = u64::from(fit.hop) + go(first, limit, limit, fit);
                        let rest = match n - first {
                            1 => 0,
                            rest => u64::from(fit.gap) + go(rest, allowed - 1, limit, fit),
                        };
                        below.max(rest)
                    })
                    .min()
                    .unwrap_or(0)
            }
            go(n, limit, limit, fit)
        }
        for (hop, gap) in [(1, 1), (3, 2), (5, 1), (9, 2)] {
            let fit = NetworkCost { hop, gap };
            for n in 2..=9u32 {
                for limit in [fan_in(n), 16] {
                    assert_eq!(
                        last(n, fit, limit),
                        best(n as usize, limit, fit),
                        "{n} {fit:?} {limit}"
                    );
                }
            }
        }
    }
}
