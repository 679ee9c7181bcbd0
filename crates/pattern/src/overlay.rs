//! Ranges laid over each other: a later one hides what it covers of those before. The results never overlap, so a lookup finds
//! one range.

use std::collections::BTreeMap;
use std::ops::Range;

/// Ranges and what they hold, none over another.
#[derive(Debug, Clone, Default)]
pub(crate) struct Overlay(BTreeMap<u64, (u64, usize)>);

impl Overlay {
    /// `range` holds `what` now.
    pub(crate) fn lay(&mut self, range: Range<u64>, what: usize) {
        if range.is_empty() {
            return;
        }
        if let Some((&lo, &(hi, below))) = self.0.range(..range.start).next_back()
            && hi > range.start
        {
            self.0.insert(lo, (range.start, below));
            if hi > range.end {
                self.0.insert(range.end, (hi, below));
            }
        }
        while let Some((&lo, &(hi, below))) = self.0.range(range.clone()).next() {
            self.0.remove(&lo);
            if hi > range.end {
                self.0.insert(range.end, (hi, below));
            }
        }
        self.0.insert(range.start, (range.end, what));
    }

    /// The ranges in order.
    pub(crate) fn ranges(self) -> impl Iterator<Item = (Range<u64>, usize)> {
        self.0.into_iter().map(|(lo, (hi, what))| (lo..hi, what))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_last_one_laid_is_seen(laid in proptest::collection::vec((0u64..60, 0u64..20), 0..40)) {
            let (mut overlay, mut model) = (Overlay::default(), [None; 80]);
            for (what, (start, len)) in laid.into_iter().enumerate() {
                overlay.lay(start..start + len, what);
                model[start as usize..(start + len) as usize].fill(Some(what));
            }
            let (mut found, mut end) = ([None; 80], 0);
            for (range, what) in overlay.ranges() {
                prop_assert!(range.start >= end && !range.is_empty());
                end = range.end;
                found[range.start as usize..range.end as usize].fill(Some(what));
            }
            prop_assert_eq!(found, model);
        }
    }
}
