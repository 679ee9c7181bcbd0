//! The holes of a file as disjoint ranges, each with the newest commit whose bytes are gone there.
use std::collections::BTreeMap;
use std::ops::Range;

/// Disjoint ranges: start to (end, sequence).
#[derive(Debug, Clone, Default)]
pub(super) struct Holes(BTreeMap<u64, (u64, u64)>);

impl Holes {
    /// Bytes of commits up to `seq` are gone here; they may be gone already.
    pub(super) fn lay(&mut self, range: Range<u64>, seq: u64) {
        if range.is_empty() {
            return;
        }
        self.split(range.start);
        self.split(range.end);
        let mut at = range.start;
        let mut gaps = Vec::new();
        for (start, (end, known)) in self.0.range_mut(range.clone()) {
            gaps.push(at..*start);
            *known = seq.max(*known);
            at = *end;
        }
        gaps.push(at..range.end);
        for gap in gaps.into_iter().filter(|g| !g.is_empty()) {
            self.0.insert(gap.start, (gap.end, seq));
        }
    }

    fn split(&mut self, at: u64) {
        if let Some((_, held)) = self.0.range_mut(..at).next_back()
            && held.0 > at
        {
            let behind = *held;
            held.0 = at;
            self.0.insert(at, behind);
        }
    }

    /// The newest commit whose bytes are gone at `at`, and up to where that holds.
    pub(super) fn at(&self, at: u64) -> (Option<u64>, u64) {
        if let Some((_, (end, seq))) = self.0.range(..=at).next_back()
            && *end > at
        {
            return (Some(*seq), *end);
        }
        let next = self.0.range(at..).next().map(|(start, _)| *start);
        (None, next.unwrap_or(u64::MAX))
    }

    /// Bytes of memory held, about.
    pub(super) fn memory(&self) -> usize {
        self.0.len() * 40
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_newest_hole_over_a_byte_counts(
            laid in prop::collection::vec((0u64..50, 0u64..30, 0u64..9), 0..20),
        ) {
            let (mut holes, mut model) = (Holes::default(), [None; 90]);
            for (start, len, seq) in laid {
                holes.lay(start..start + len, seq);
                for byte in &mut model[start as usize..(start + len) as usize] {
                    *byte = Some(byte.unwrap_or(0).max(seq));
                }
            }
            let mut at = 0;
            while at < 90 {
                let (seq, end) = holes.at(at);
                prop_assert!(end > at);
                let behind = end.min(90);
                prop_assert!(model[at as usize..behind as usize].iter().all(|m| *m == seq));
                at = behind;
            }
        }
    }
}
