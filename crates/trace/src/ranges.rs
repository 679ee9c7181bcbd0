//! An ordered map from byte ranges to values. Ranges do not overlap; the newest set wins; none is empty.

use std::collections::BTreeMap;
use std::ops::Range;

/// Byte ranges with values.
#[derive(Debug, Clone)]
pub struct Ranges<T> {
    /// Start to end and value.
    map: BTreeMap<u64, (u64, T)>,
}

impl<T> Default for Ranges<T> {
    fn default() -> Ranges<T> {
        Ranges {
            map: BTreeMap::new(),
        }
    }
}

impl<T: Clone + PartialEq> Ranges<T> {
    /// Gives all of `range` the value, whatever it had. Joins neighbours of equal value.
    pub fn set(&mut self, range: Range<u64>, value: T) {
        if range.is_empty() {
            return;
        }
        self.clear_range(range.clone());
        let Range { mut start, mut end } = range;
        let before = self.map.range(..start).next_back();
        if let Some((at, _)) = before.filter(|(_, (e, v))| *e == start && *v == value) {
            start = *at;
        }
        if let Some((next_end, _)) = self.map.get(&end).filter(|(_, v)| *v == value) {
            let next_end = *next_end;
            self.map.remove(&end);
            end = next_end;
        }
        self.map.insert(start, (end, value));
    }

    /// Takes the values of `range` away.
    pub fn clear_range(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let before = self.map.range_mut(..range.start).next_back();
        if let Some((_, (end, value))) = before.filter(|(_, (end, _))| *end > range.start) {
            let (old_end, value) = (std::mem::replace(end, range.start), value.clone());
            self.map.insert(range.start, (old_end, value));
        }
        while let Some((&start, _)) = self.map.range(range.clone()).next() {
            if let Some((end, value)) = self.map.remove(&start).filter(|(end, _)| *end > range.end)
            {
                self.map.insert(range.end, (end, value));
            }
        }
    }

    /// The parts of `range` that have values, in order, clipped.
    pub fn get(&self, range: Range<u64>) -> impl Iterator<Item = (Range<u64>, &T)> {
        let before = self
            .map
            .range(..range.start)
            .next_back()
            .filter(|(_, (end, _))| *end > range.start);
        let from = before.map_or(range.start, |(start, _)| *start);
        let found = (!range.is_empty()).then(|| self.map.range(from..range.end));
        found
            .into_iter()
            .flatten()
            .map(move |(start, (end, value))| {
                ((*start).max(range.start)..(*end).min(range.end), value)
            })
    }

    /// All parts of `range` in order, those without a value as `None`.
    pub fn cover(&self, range: Range<u64>) -> Vec<(Range<u64>, Option<T>)> {
        let (mut out, mut at) = (Vec::new(), range.start);
        for (part, value) in self.get(range.clone()) {
            if at < part.start {
                out.push((at..part.start, None));
            }
            at = part.end;
            out.push((part, Some(value.clone())));
        }
        if at < range.end {
            out.push((at..range.end, None));
        }
        out
    }

    /// Everything that has a value.
    pub fn iter(&self) -> impl Iterator<Item = (Range<u64>, &T)> {
        self.map
            .iter()
            .map(|(start, (end, value))| (*start..*end, value))
    }

    /// The end of the last range; 0 if there is none.
    pub fn end(&self) -> u64 {
        self.map.last_key_value().map_or(0, |(_, (end, _))| *end)
    }

    /// Whether nothing has a value.
    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn agrees_with_a_value_per_byte(steps in prop::collection::vec((0..60u64, 0..25u64, prop::option::of(0..4u8)), 1..40)) {
            let mut ranges = Ranges::default();
            let mut model = [None; 90];
            for (start, len, value) in steps {
                match value {
                    Some(v) => ranges.set(start..start + len, v),
                    None => ranges.clear_range(start..start + len),
                }
                model[start as usize..(start + len) as usize].fill(value);
                let mut flat = Vec::new();
                for (part, value) in ranges.cover(5..88) {
                    prop_assert!(!part.is_empty());
                    flat.extend(part.map(|_| value));
                }
                prop_assert_eq!(&flat[..], &model[5..88]);
            }
            let all: Vec<_> = ranges.iter().collect();
            for pair in all.windows(2) {
                prop_assert!(pair[0].0.end < pair[1].0.start || pair[0].1 != pair[1].1);
            }
            prop_assert_eq!(ranges.end(), model.iter().rposition(Option::is_some).map_or(0, |i| i as u64 + 1));
        }
    }
}
