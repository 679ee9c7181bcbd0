//! One rank's part in one collective, as a state machine: no clock, no thread, no network.
//!
//! ```text
//! own value and one of each child, in any order -> Up (or, at the root, Execute), once -> answered, once
//! ```
//! - A value is combined as it comes, so one value is kept, however many children there are. The combining function must be
//!   commutative and associative, as far as its caller can tell the results apart.
//! - What comes twice, from a rank that is no child, or after the end, is refused and changes nothing.
//! - After a failure nothing goes up any more.

/// What to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReductionStep<V> {
    /// Wait for more.
    Wait,
    /// Send this to the parent, which answers.
    Up(u32, V),
    /// This is the root: everyone's value is in it.
    Execute(V),
}

/// Why a value was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReductionError {
    /// The sender is no child of this rank in this tree.
    #[error("not a child")]
    NotAChild,
    /// Its value is here already.
    #[error("here already")]
    Twice,
    /// The operation has failed or is answered.
    #[error("over")]
    Over,
}

/// One rank in one collective. Ranks are whatever numbers the caller uses.
#[derive(Debug)]
pub struct Reduction<V> {
    parent: Option<u32>,
    /// In the order in which they are answered, and whether their value is here.
    children: Vec<(u32, bool)>,
    own: bool,
    missing: usize,
    value: Option<V>,
    over: bool,
}

impl<V> Reduction<V> {
    /// A rank below `parent` (none: the root) that waits for its own value and those of `children`.
    pub fn new(parent: Option<u32>, children: impl IntoIterator<Item = u32>) -> Reduction<V> {
        let children: Vec<_> = children.into_iter().map(|c| (c, false)).collect();
        Reduction {
            parent,
            missing: children.len() + 1,
            children,
            own: false,
            value: None,
            over: false,
        }
    }

    /// This rank's own value.
    ///
    /// # Errors
    /// `Twice`, `Over`.
    pub fn own(
        &mut self,
        value: V,
        combine: impl FnOnce(V, V) -> V,
    ) -> Result<ReductionStep<V>, ReductionError> {
        if self.over {
            return Err(ReductionError::Over);
        }
        if std::mem::replace(&mut self.own, true) {
            return Err(ReductionError::Twice);
        }
        Ok(self.take(value, combine))
    }

    /// A child's value.
    ///
    /// # Errors
    /// All of [`ReductionError`].
    pub fn child(
        &mut self,
        from: u32,
        value: V,
        combine: impl FnOnce(V, V) -> V,
    ) -> Result<ReductionStep<V>, ReductionError> {
        let child = self.children.iter_mut().find(|(c, _)| *c == from);
        let (_, here) = child.ok_or(ReductionError::NotAChild)?;
        if self.over {
            return Err(ReductionError::Over);
        }
        if std::mem::replace(here, true) {
            return Err(ReductionError::Twice);
        }
        Ok(self.take(value, combine))
    }

    fn take(&mut self, value: V, combine: impl FnOnce(V, V) -> V) -> ReductionStep<V> {
        self.missing -= 1;
        let value = match self.value.take() {
            Some(sum) => combine(sum, value),
            None => value,
        };
        if self.missing > 0 {
            self.value = Some(value);
            return ReductionStep::Wait;
        }
        match self.parent {
            Some(parent) => ReductionStep::Up(parent, value),
            None => ReductionStep::Execute(value),
        }
    }

    /// Children whose value is not here yet.
    pub fn absent(&self) -> impl Iterator<Item = u32> + '_ {
        self.children.iter().filter(|(_, here)| !here).map(|c| c.0)
    }

    /// Ends it: answered or failed. Returns the children to tell, in order: those whose value is here. Nobody the second time.
    pub fn end(&mut self) -> impl Iterator<Item = u32> + '_ {
        let first = !std::mem::replace(&mut self.over, true);
        self.value = None;
        self.children
            .iter()
            .filter(move |(_, here)| first && *here)
            .map(|c| c.0)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tree::{Tree, TreeShape};
    use super::super::{NetworkCost, topology::fan_in};
    use super::*;
    use proptest::prelude::*;

    fn add(a: u64, b: u64) -> u64 {
        a + b
    }

    #[test]
    fn strangers_duplicates_and_latecomers_change_nothing() {
        let mut r = Reduction::new(Some(9), [4, 5]);
        assert_eq!(r.child(4, 1, add), Ok(ReductionStep::Wait));
        assert_eq!(r.child(4, 1, add), Err(ReductionError::Twice));
        assert_eq!(r.child(6, 1, add), Err(ReductionError::NotAChild));
        assert_eq!(r.own(10, add), Ok(ReductionStep::Wait));
        assert_eq!(r.own(10, add), Err(ReductionError::Twice));
        assert_eq!(r.absent().collect::<Vec<_>>(), [5]);
        assert_eq!(r.child(5, 100, add), Ok(ReductionStep::Up(9, 111)));
        assert_eq!(r.end().collect::<Vec<_>>(), [4, 5]);
        assert_eq!(r.end().count(), 0);
        assert_eq!(r.child(5, 1, add), Err(ReductionError::Over));
    }

    #[test]
    fn after_a_failure_nothing_goes_up() {
        let mut r = Reduction::new(None, [1, 2]);
        assert_eq!(r.child(2, 1, add), Ok(ReductionStep::Wait));
        assert_eq!(r.end().collect::<Vec<_>>(), [2]);
        assert_eq!(r.own(1, add), Err(ReductionError::Over));
        assert_eq!(r.child(1, 1, add), Err(ReductionError::Over));
    }

    proptest! {
        /// A network that delivers in any order: everyone's value is counted once and everyone is answered once.
        #[test]
        fn every_value_counts_once_in_any_order(
            n in 1u32..70,
            root in 0u32..,
            shape in prop_oneof![
                Just(TreeShape::Ring),
                Just(TreeShape::Direct),
                (1u32..30).prop_map(|hop| TreeShape::Fitted(NetworkCost { hop, gap: 1 })),
            ],
            mut random in any::<u64>(),
        ) {
            let root = root % n;
            let tree = Tree::new(shape, n);
            let mut ranks: Vec<Reduction<u64>> = (0..n)
                .map(|i| Reduction::new(tree.parent(i, root), tree.children(i, root)))
                .collect();
            // (to, from, value): a message; from oneself, the own value.
            let mut under_way: Vec<(u32, u32, u64)> = (0..n).map(|i| (i, i, 1 + u64::from(i))).collect();
            let (mut executed, mut at_root) = (None, 0);
            while !under_way.is_empty() {
                random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                let (to, from, value) = under_way.swap_remove((random >> 33) as usize % under_way.len());
                let rank = &mut ranks[to as usize];
                let step = if to == from { rank.own(value, add) } else { rank.child(from, value, add) };
                at_root += u32::from(to == root && from != root);
                match step.unwrap() {
                    ReductionStep::Wait => {}
                    ReductionStep::Up(parent, sum) => under_way.push((parent, to, sum)),
                    ReductionStep::Execute(sum) => prop_assert!(executed.replace(sum).is_none()),
                }
            }
            prop_assert_eq!(executed, Some((1..=u64::from(n)).sum()));
            if shape != TreeShape::Direct {
                prop_assert_eq!(at_root, fan_in(n));
            }
            let mut answered = 0;
            let mut stack = vec![root];
            while let Some(i) = stack.pop() {
                answered += 1;
                stack.extend(ranks[i as usize].end());
            }
            prop_assert_eq!(answered, n);
        }
    }
}
