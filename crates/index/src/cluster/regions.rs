//! Algorithm 1 of MetaKV, and what it is made of: regions and their locality factor.
use std::fmt;

/// The least locality factor of a region: above 0, at most 1. The paper's default is 0.8.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Alpha(f64);

impl Alpha {
    /// `None` outside (0, 1].
    pub fn new(value: f64) -> Option<Alpha> {
        (value > 0.0 && value <= 1.0).then_some(Alpha(value))
    }

    /// The number.
    pub fn get(self) -> f64 {
        self.0
    }
}

impl Default for Alpha {
    fn default() -> Alpha {
        Alpha(0.8)
    }
}

impl fmt::Display for Alpha {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Contiguous blocks of a table file, both ends included. Both ends are requested blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Region {
    /// Number of its first block.
    pub first: u32,
    /// Number of its last block.
    pub last: u32,
}

impl Region {
    /// Number of blocks: last - first + 1.
    pub fn blocks(self) -> u64 {
        u64::from(self.last) - u64::from(self.first) + 1
    }

    /// Whether the block is in it.
    pub fn holds(self, block: u32) -> bool {
        (self.first..=self.last).contains(&block)
    }
}

/// A region while regions are formed: the indices, in the list of requested blocks, of its first and its last.
#[derive(Debug, Clone, Copy)]
struct FormingRegion {
    first: usize,
    last: usize,
}

/// Clusters the requested blocks, in ascending order without repetition, into regions with a locality factor of at least
/// `alpha` (equation 1: requested blocks by blocks). Every requested block is in exactly one region; regions come in ascending order.
///
/// Algorithm 1, as printed: each block joins the regions before it, nearest first, as long as the locality factor of what would
/// be joined stays at `alpha` or above. O(mn) for n blocks and m regions at a time; not always the fewest regions there could be.
pub fn cluster(requested: &[u32], alpha: Alpha) -> Vec<Region> {
    debug_assert!(requested.is_sorted_by(|a, b| a < b));
    let mut regions: Vec<FormingRegion> = Vec::new();
    for (i, block) in requested.iter().enumerate() {
        let joins = |region: &FormingRegion| {
            let count = i - region.first + 1;
            let span = u64::from(block - requested[region.first]) + 1;
            count as f64 / span as f64 >= alpha.get()
        };
        let kept = regions.len() - regions.iter().rev().take_while(|r| joins(r)).count();
        let first = regions.get(kept).map_or(i, |joined| joined.first);
        regions.truncate(kept);
        regions.push(FormingRegion { first, last: i });
    }
    let blocks = |region: FormingRegion| Region {
        first: requested[region.first],
        last: requested[region.last],
    };
    regions.into_iter().map(blocks).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn alpha(value: f64) -> Alpha {
        Alpha::new(value).unwrap()
    }

    fn pairs(requested: &[u32], a: f64) -> Vec<(u32, u32)> {
        let regions = cluster(requested, alpha(a));
        regions.iter().map(|r| (r.first, r.last)).collect()
    }

    #[test]
    fn the_example_of_the_paper() {
        // Its Region 3: ten blocks, eight of them requested.
        let r3 = [20, 21, 22, 24, 25, 27, 28, 29];
        assert_eq!(pairs(&r3, 0.8), [(20, 29)]);
        assert_eq!(pairs(&[], 0.8), []);
        assert_eq!(pairs(&[7], 0.8), [(7, 7)]);
        assert_eq!(pairs(&[1, 3], 0.8), [(1, 1), (3, 3)]);
        assert_eq!(pairs(&[1, 3], 0.6), [(1, 3)]);
        assert_eq!(
            pairs(&[0, 1, 2, 3, u32::MAX], 0.8),
            [(0, 3), (u32::MAX, u32::MAX)]
        );
    }

    #[test]
    fn alpha_is_above_zero_and_at_most_one() {
        for wrong in [0.0, -0.5, 1.01, f64::NAN, f64::INFINITY] {
            assert_eq!(Alpha::new(wrong), None);
        }
        assert_eq!(Alpha::new(1.0).map(Alpha::get), Some(1.0));
        assert_eq!(Alpha::default().get(), 0.8);
    }

    fn locality(requested: &[u32], region: Region) -> f64 {
        let inside = requested.iter().filter(|b| region.holds(**b)).count();
        inside as f64 / region.blocks() as f64
    }

    /// The fewest regions with a locality factor of at least alpha, by trying where the last one starts.
    fn fewest(requested: &[u32], alpha: Alpha) -> usize {
        let mut best = vec![0usize];
        for last in 0..requested.len() {
            let starts = (0..=last).filter(|first| {
                let span = f64::from(requested[last] - requested[*first]) + 1.0;
                (last - first + 1) as f64 / span >= alpha.get()
            });
            best.push(starts.map(|first| best[first] + 1).min().unwrap());
        }
        best[requested.len()]
    }

    /// The algorithm as the paper prints it, line by line.
    fn as_printed(b: &[u32], alpha: Alpha) -> Vec<Region> {
        let mut r: Vec<Region> = Vec::new();
        if b.is_empty() {
            return r;
        }
        let one = |block| Region {
            first: block,
            last: block,
        };
        r.push(one(b[0]));
        for i in 1..b.len() {
            let mut j = r.len() as i64 - 1;
            while j >= 0 {
                let spanning = Region {
                    first: r[j as usize].first,
                    last: b[i],
                };
                if locality(&b[..=i], spanning) < alpha.get() {
                    break;
                }
                j -= 1;
            }
            let next = (j + 1) as usize;
            if next == r.len() {
                r.push(one(b[i]));
            } else {
                let joined = Region {
                    first: r[next].first,
                    last: b[i],
                };
                r.truncate(next);
                r.push(joined);
            }
        }
        r
    }

    proptest! {
        #[test]
        fn regions_cover_each_block_once_at_alpha_or_above(
            requested in proptest::collection::btree_set(0u32..200, 0..60),
            a in prop_oneof![Just(0.8), Just(1.0), 0.01f64..1.0],
        ) {
            let requested: Vec<u32> = requested.into_iter().collect();
            let alpha = alpha(a);
            let regions = cluster(&requested, alpha);
            prop_assert_eq!(&regions, &as_printed(&requested, alpha));
            for pair in regions.windows(2) {
                prop_assert!(pair[0].last < pair[1].first);
            }
            for block in &requested {
                prop_assert_eq!(regions.iter().filter(|r| r.holds(*block)).count(), 1);
            }
            for region in &regions {
                prop_assert!(locality(&requested, *region) >= alpha.get());
                prop_assert!(requested.contains(&region.first) && requested.contains(&region.last));
            }
            prop_assert!(regions.len() >= fewest(&requested, alpha));
        }
    }

    /// How many more regions Algorithm 1 makes than the fewest there could be, over random requests of one table's 256 blocks.
    #[test]
    fn the_gap_to_the_optimum_is_small() {
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        let mut random = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        let (mut made, mut least, mut worst) = (0, 0, 1.0f64);
        for percent in (5..100).step_by(5) {
            for _ in 0..20 {
                let asked = (0..256).filter(|_| random() % 100 < percent);
                let requested: Vec<u32> = asked.collect();
                let regions = cluster(&requested, Alpha::default()).len();
                let best = fewest(&requested, Alpha::default());
                made += regions;
                least += best;
                worst = worst.max(regions as f64 / best.max(1) as f64);
            }
        }
        let gap = made as f64 / least as f64 - 1.0;
        println!(
            "{made} regions, the fewest {least}: {:.1}% more; at worst {worst:.2} times",
            gap * 100.0
        );
        assert!((0.0..0.02).contains(&gap), "{gap}");
    }
}
