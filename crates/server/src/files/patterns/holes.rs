//! The holes of a file as disjoint ranges, each with the newest commit whose bytes are gone there.
use forebay_pattern::RangeMap;
use std::ops::Range;

/// Disjoint ranges, each with a sequence.
#[derive(Debug, Clone, Default)]
pub(super) struct Holes(RangeMap<u64>);

impl Holes {
    /// Bytes of commits up to `seq` are gone here; they may be gone already.
    pub(super) fn insert(&mut self, range: Range<u64>, seq: u64) {
        let newer = self.0.get(range.clone()).filter(|(_, known)| *known > seq);
        let newer: Vec<_> = newer.collect();
        self.0.insert(range, seq);
        for (part, known) in newer {
            self.0.insert(part, known);
        }
    }

    /// The newest commit whose bytes are gone at `at`, and up to where that holds.
    pub(super) fn at(&self, at: u64) -> (Option<u64>, u64) {
        self.0.segment(at)
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
                holes.insert(start..start + len, seq);
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
