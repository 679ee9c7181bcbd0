//! The tree of a collective as a table by distance from the root. Only distances count, so one table serves every root.

use super::fitted::{self, NetworkCost};
use super::topology::{self, at, distance};
use std::sync::Arc;

/// Which tree is laid on the ring.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum TreeShape {
    /// The log-ring of the paper: `ceil(log2 n)` children and levels at most.
    #[default]
    Ring,
    /// As many children at the root, but as few levels as the network makes worth while.
    Fitted(NetworkCost),
    /// Everyone asks the root: `n - 1` children. To compare with.
    Direct,
    /// [`Fitted`](TreeShape::Fitted) without the limit on children: the best there is. To compare with.
    Best(NetworkCost),
}

/// Parents, children and heights by distance from the root. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Tree(Arc<TreeTable>);

#[derive(Debug)]
struct TreeTable {
    parents: Vec<u32>,
    /// The children of `d` are `children[first[d]..first[d + 1]]`, ascending: the largest subtree first.
    first: Vec<u32>,
    children: Vec<u32>,
    heights: Vec<u32>,
}

impl Tree {
    /// The tree of `n` positions, at least one.
    pub fn new(shape: TreeShape, n: u32) -> Tree {
        let n = n.max(1);
        let parents: Vec<u32> = match shape {
            TreeShape::Ring => (0..n)
                .map(|d| topology::parent_distance(d).unwrap_or(0))
                .collect(),
            TreeShape::Fitted(fit) => fitted::parents(n, fit),
            TreeShape::Best(fit) => fitted::grow(n, fit, u32::MAX).0,
            TreeShape::Direct => vec![0; n as usize],
        };
        Tree(Arc::new(TreeTable::new(parents)))
    }

    /// Number of positions.
    pub fn size(&self) -> u32 {
        self.0.parents.len() as u32
    }

    /// Where position `i` sends what is meant for `root`; none if it is the root.
    pub fn parent(&self, i: u32, root: u32) -> Option<u32> {
        let d = distance(i, root, self.size());
        (d > 0).then(|| at(self.0.parents[d as usize], root, self.size()))
    }

    /// Who sends to position `i` what is meant for `root`, in the order in which they are answered.
    pub fn children(&self, i: u32, root: u32) -> impl Iterator<Item = u32> + '_ {
        let n = self.size();
        let d = distance(i, root, n) as usize;
        let (from, to) = (self.0.first[d] as usize, self.0.first[d + 1] as usize);
        self.0.children[from..to]
            .iter()
            .map(move |c| at(*c, root, n))
    }

    /// Levels below position `i`; 0 for one without children.
    pub fn height(&self, i: u32, root: u32) -> u32 {
        self.0.heights[distance(i, root, self.size()) as usize]
    }

    /// Levels below the root.
    pub fn levels(&self) -> u32 {
        self.0.heights[0]
    }
}

impl TreeTable {
    /// `parents[d] < d` for all but the root.
    fn new(parents: Vec<u32>) -> TreeTable {
        let n = parents.len();
        let mut first = vec![0u32; n + 1];
        let mut heights = vec![0u32; n];
        for d in (1..n).rev() {
            let up = parents[d] as usize;
            first[up + 1] += 1;
            heights[up] = heights[up].max(heights[d] + 1);
        }
        for d in 0..n {
            first[d + 1] += first[d];
        }
        let mut place = first.clone();
        let mut children = vec![0u32; n - 1];
        for d in 1..n {
            let place = &mut place[parents[d] as usize];
            children[*place as usize] = d as u32;
            *place += 1;
        }
        TreeTable {
            parents,
            first,
            children,
            heights,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn shapes() -> impl Strategy<Value = TreeShape> {
        let fit = (1u32..50, 1u32..10).prop_map(|(hop, gap)| NetworkCost { hop, gap });
        prop_oneof![
            Just(TreeShape::Ring),
            Just(TreeShape::Direct),
            fit.clone().prop_map(TreeShape::Fitted),
            fit.prop_map(TreeShape::Best)
        ]
    }

    proptest! {
        #[test]
        fn every_position_is_below_every_root_once(shape in shapes(), n in 1u32..200, root in 0u32..) {
            let (root, tree) = (root % n, Tree::new(shape, n));
            let mut seen = vec![0u32; n as usize];
            let mut stack = vec![(root, 0)];
            while let Some((i, depth)) = stack.pop() {
                seen[i as usize] += 1;
                prop_assert!(depth + tree.height(i, root) <= tree.levels());
                for child in tree.children(i, root) {
                    prop_assert_eq!(tree.parent(child, root), Some(i));
                    prop_assert!(tree.height(child, root) < tree.height(i, root));
                    stack.push((child, depth + 1));
                }
            }
            prop_assert!(seen.iter().all(|s| *s == 1));
            prop_assert_eq!(tree.parent(root, root), None);
        }
    }
}
