//! The log-ring: `n` positions on a ring, each linked to those `2^k` further on.
//!
//! The distance from `i` to a root `j` is `(j - i + n) mod n`. The next hop clears the highest bit of the distance: from `i` it
//! is `i + 2^floor(log2(distance))`. So, below any root and for any `n`, a power of two or not:
//! - the depth of a position is the number of ones in its distance: at most `ceil(log2 n)`;
//! - the children of the position at distance `d` are at `d + 2^k < n` with `2^k > d`: the root has exactly `ceil(log2 n)`,
//!   and no other position has more.
//!
//! Positions are below `n`; functions panic in debug builds if they are not.

/// How far `i` is from `j` around the ring.
pub fn distance(i: u32, j: u32, n: u32) -> u32 {
    debug_assert!(i < n && j < n);
    if j >= i { j - i } else { n - (i - j) }
}

/// The position at distance `d` from `root`.
pub fn at(d: u32, root: u32, n: u32) -> u32 {
    distance(d, root, n)
}

/// `ceil(log2 n)`: messages that reach the root of `n`; 0 if it is alone.
pub fn fan_in(n: u32) -> u32 {
    n.max(1).next_power_of_two().trailing_zeros()
}

/// The distance of the parent of the position at distance `d`; none for the root.
pub fn parent_distance(d: u32) -> Option<u32> {
    Some(d ^ (1 << d.checked_ilog2()?))
}

#[cfg(test)]
mod tests {
    use super::super::tree::{Tree, TreeShape};
    use super::*;
    use proptest::prelude::*;

    /// Where `i` sends what is meant for `root`; none if it is the root.
    fn next_hop(i: u32, root: u32, n: u32) -> Option<u32> {
        let up = parent_distance(distance(i, root, n))?;
        Some(at(up, root, n))
    }

    /// Who sends to `i` what is meant for `root`; the one with the most ranks behind it first.
    fn children(i: u32, root: u32, n: u32) -> impl Iterator<Item = u32> {
        let d = distance(i, root, n);
        child_distances(d, n).map(move |c| at(c, root, n))
    }

    /// The distances of the children of the position at distance `d`, ascending.
    fn child_distances(d: u32, n: u32) -> impl Iterator<Item = u32> {
        let first = d.checked_ilog2().map_or(0, |k| k + 1);
        (first..u32::BITS)
            .map(move |k| u64::from(d) + (1u64 << k))
            .take_while(move |c| *c < u64::from(n))
            .map(|c| c as u32)
    }

    /// Hops from `i` to `root`.
    fn depth(i: u32, root: u32, n: u32) -> u32 {
        distance(i, root, n).count_ones()
    }

    /// The way from `i` to `root`, both included.
    fn path(i: u32, root: u32, n: u32) -> impl Iterator<Item = u32> {
        std::iter::successors(Some(i), move |at| next_hop(*at, root, n))
    }

    #[test]
    fn the_papers_example() {
        assert_eq!(distance(1, 0, 8), 7);
        assert_eq!(path(1, 0, 8).collect::<Vec<_>>(), [1, 5, 7, 0]);
        let mut below: Vec<u32> = children(0, 0, 8).collect();
        below.sort();
        assert_eq!(below, [4, 6, 7]);
        assert_eq!((next_hop(3, 0, 8), next_hop(5, 0, 8)), (Some(7), Some(7)));
        assert_eq!(next_hop(0, 0, 1), None);
    }

    /// Every `n` that is asked for, in distances, which are the same below every root. The tree of `n` is that of `n - 1` and
    /// one more child.
    #[test]
    fn fan_in_and_depth_for_every_size() {
        let mut fan_ins = vec![0u32; 16_384];
        let mut depths = vec![0u32; 16_384];
        let (mut widest, mut deepest) = (0, 0);
        for n in 2..=16_384u32 {
            assert_eq!(Some(fan_in(n)), (0..).find(|k| 1u32 << k >= n));
            let added = n - 1;
            let up = parent_distance(added).unwrap();
            assert!(up < added);
            fan_ins[up as usize] += 1;
            depths[added as usize] = depths[up as usize] + 1;
            assert_eq!(depths[added as usize], depth(0, added, n));
            widest = widest.max(fan_ins[up as usize]);
            deepest = deepest.max(depths[added as usize]);
            // What a rank finds for itself, at the root and beside the new one.
            assert_eq!(child_distances(0, n).count() as u32, fan_ins[0]);
            assert_eq!(child_distances(up, n).count() as u32, fan_ins[up as usize]);
            assert_eq!((fan_ins[0], widest), (fan_in(n), fan_in(n)));
            assert!(deepest <= fan_in(n));
        }
    }

    proptest! {
        #[test]
        fn parents_and_children_agree_below_any_root(n in 1u32..20_000, i in 0u32.., root in 0u32..) {
            let (i, root) = (i % n, root % n);
            for child in children(i, root, n) {
                prop_assert_eq!(next_hop(child, root, n), Some(i));
            }
            if let Some(up) = next_hop(i, root, n) {
                let d = distance(i, root, n);
                prop_assert_eq!(u64::from(up), (u64::from(i) + (1 << d.ilog2())) % u64::from(n));
                prop_assert!(children(up, root, n).any(|c| c == i));
            } else {
                prop_assert_eq!(i, root);
            }
            prop_assert_eq!(path(i, root, n).last(), Some(root));
            prop_assert_eq!(path(i, root, n).count() as u32, depth(i, root, n) + 1);
        }

        #[test]
        fn the_table_of_the_ring_is_the_topology(n in 1u32..3000, i in 0u32.., root in 0u32..) {
            let (i, root, tree) = (i % n, root % n, Tree::new(TreeShape::Ring, n));
            prop_assert_eq!(tree.parent(i, root), next_hop(i, root, n));
            prop_assert!(tree.children(i, root).eq(children(i, root, n)));
        }

        #[test]
        fn the_child_with_most_ranks_behind_it_is_first(n in 2u32..600, d in 0u32..) {
            fn size(d: u32, n: u32) -> u32 {
                1 + child_distances(d, n).map(|c| size(c, n)).sum::<u32>()
            }
            let sizes: Vec<u32> = child_distances(d % n, n).map(|c| size(c, n)).collect();
            prop_assert!(sizes.is_sorted_by(|a, b| a >= b));
        }
    }
}
