//! Groups: the ranks that take part in a collective, in their order on a ring of their own, and the tree below any of them.

use super::tree::{Tree, TreeShape};
use crate::Rank;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// Why a list of ranks is no group.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GroupError {
    /// No rank in it.
    #[error("a group needs a rank at least")]
    Empty,
    /// The same rank twice.
    #[error("rank {0} is in the group twice")]
    Twice(Rank),
}

/// An explicit list of ranks. Its number and list are the same at all of them. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Group(Arc<GroupData>);

#[derive(Debug)]
struct GroupData {
    number: u64,
    ranks: Vec<Rank>,
    positions: HashMap<Rank, u32>,
    tree: Tree,
    digest: u64,
}

impl Group {
    /// A group of `ranks`; their order is their order on the ring.
    ///
    /// # Errors
    /// `Empty`, `Twice`.
    pub fn new(number: u64, ranks: Vec<Rank>, shape: TreeShape) -> Result<Group, GroupError> {
        let mut positions = HashMap::with_capacity(ranks.len());
        for (at, rank) in ranks.iter().enumerate() {
            if positions.insert(*rank, at as u32).is_some() {
                return Err(GroupError::Twice(*rank));
            }
        }
        if ranks.is_empty() {
            return Err(GroupError::Empty);
        }
        let tree = Tree::new(shape, ranks.len() as u32);
        let digest = digest(&ranks, shape);
        Ok(Group(Arc::new(GroupData {
            number,
            ranks,
            positions,
            tree,
            digest,
        })))
    }

    /// Its number.
    pub fn number(&self) -> u64 {
        self.0.number
    }

    /// Whether `rank` is in it.
    pub fn has(&self, rank: Rank) -> bool {
        self.0.positions.contains_key(&rank)
    }

    /// A digest of list and shape: what members must agree on.
    pub(super) fn digest(&self) -> u64 {
        self.0.digest
    }

    fn position(&self, rank: Rank) -> Option<u32> {
        self.0.positions.get(&rank).copied()
    }

    /// What `rank` does below `root`; `None` if one of them is not in the group.
    pub(super) fn tree_position(&self, rank: Rank, root: Rank) -> Option<TreePosition> {
        let (i, root) = (self.position(rank)?, self.position(root)?);
        let (tree, ranks) = (&self.0.tree, &self.0.ranks);
        Some(TreePosition {
            parent: tree.parent(i, root).map(|p| ranks[p as usize]),
            children: tree.children(i, root).map(|c| ranks[c as usize]).collect(),
            height: tree.height(i, root),
            levels: tree.levels(),
        })
    }
}

/// A rank's place in the tree of one operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TreePosition {
    pub parent: Option<Rank>,
    /// In the order in which they are answered.
    pub children: Vec<Rank>,
    /// Levels below this rank.
    pub height: u32,
    /// Levels below the root.
    pub levels: u32,
}

/// How long an operation may last: a part for the slowest member to come, and one for each level, so that it grows with the
/// logarithm of the group's size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CollectiveTimeouts {
    /// How much later than the first the last member may call.
    pub base: Duration,
    /// For each level of the tree.
    pub per_level: Duration,
}

impl CollectiveTimeouts {
    /// How long a rank with `height` levels below it waits for its children. One level longer than they wait themselves, so
    /// that they can say who is missing.
    pub fn gather(&self, height: u32) -> Duration {
        self.base + self.per_level * height
    }

    /// The longest an operation lasts at one rank, in a tree of `levels`: up, and down again.
    pub fn whole(&self, levels: u32) -> Duration {
        self.gather(levels) + self.base + self.per_level * levels
    }
}

/// FNV-1a over the shape and the ranks.
fn digest(ranks: &[Rank], shape: TreeShape) -> u64 {
    let shape = match shape {
        TreeShape::Ring => [0; 3],
        TreeShape::Direct => [1, 0, 0],
        TreeShape::Fitted(fit) => [2, fit.hop, fit.gap],
        TreeShape::Best(fit) => [3, fit.hop, fit.gap],
    };
    let numbers = shape.iter().chain(ranks).flat_map(|n| n.to_le_bytes());
    numbers.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::super::fitted::NetworkCost;
    use super::*;

    #[test]
    fn a_group_is_a_ring_of_its_own() {
        let group = Group::new(1, vec![40, 7, 9, 3, 12], TreeShape::Ring).unwrap();
        let root = group.tree_position(7, 7).unwrap();
        // Distances 1, 2 and 4 before it on the ring.
        assert_eq!(root.children, [40, 12, 9]);
        assert_eq!((root.parent, root.levels), (None, 2));
        assert_eq!(group.tree_position(3, 7).unwrap().parent, Some(40));
        assert_eq!(group.tree_position(7, 8), None);
        assert!(group.has(9) && !group.has(0));
    }

    #[test]
    fn what_is_no_group() {
        assert_eq!(
            Group::new(1, vec![], TreeShape::Ring).err(),
            Some(GroupError::Empty)
        );
        let twice = Group::new(1, vec![1, 2, 1], TreeShape::Ring).err();
        assert_eq!(twice, Some(GroupError::Twice(1)));
    }

    #[test]
    fn the_plan_tells_lists_and_shapes_apart() {
        let fit = NetworkCost { hop: 5, gap: 1 };
        let digests = [
            digest(&[0, 1, 2], TreeShape::Ring),
            digest(&[0, 2, 1], TreeShape::Ring),
            digest(&[0, 1, 2], TreeShape::Direct),
            digest(&[0, 1, 2], TreeShape::Fitted(fit)),
            digest(&[0, 1, 2], TreeShape::Fitted(NetworkCost { hop: 6, ..fit })),
        ];
        let distinct: std::collections::HashSet<u64> = digests.into();
        assert_eq!(distinct.len(), 5);
    }

    #[test]
    fn limits_grow_with_the_logarithm() {
        let second = Duration::from_secs(1);
        let limits = CollectiveTimeouts {
            base: second * 5,
            per_level: second,
        };
        assert_eq!(limits.gather(0), second * 5);
        assert_eq!(limits.whole(10), second * 30);
    }
}
