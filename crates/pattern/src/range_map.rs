//! An ordered map from ranges to values (an interval map): a later range takes the place of what it covers of earlier ones.
//!
//! Invariant: ranges never overlap and are never empty.

use std::collections::BTreeMap;
use std::ops::Range;

/// A value of a range, which may be cut.
pub trait RangeValue: Copy + PartialEq {
    /// The value of what is left without the first `by` bytes of the range.
    #[must_use]
    fn advance(self, _by: u64) -> Self {
        self
    }
}

impl RangeValue for u64 {}
impl RangeValue for usize {}

/// See the head of this file.
#[derive(Debug, Clone)]
pub struct RangeMap<V>(BTreeMap<u64, (u64, V)>);

impl<V> Default for RangeMap<V> {
    fn default() -> RangeMap<V> {
        RangeMap(BTreeMap::new())
    }
}

impl<V: RangeValue> RangeMap<V> {
    /// How many ranges.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Removes `range`. `removed` is called with each part that had a value, in order.
    pub fn remove(&mut self, range: Range<u64>, mut removed: impl FnMut(Range<u64>, V)) {
        if range.is_empty() {
            return;
        }
        self.split(range.start);
        self.split(range.end);
        while let Some((&start, &(end, value))) = self.0.range(range.clone()).next() {
            self.0.remove(&start);
            removed(start..end, value);
        }
    }

    /// A range that goes on over `at` becomes two.
    fn split(&mut self, at: u64) {
        if let Some((start, (end, value))) = self.0.range_mut(..at).next_back()
            && *end > at
        {
            let rest = (std::mem::replace(end, at), value.advance(at - start));
            self.0.insert(at, rest);
        }
    }

    /// Gives `range` a value, whatever it had.
    pub fn insert(&mut self, range: Range<u64>, value: V) {
        self.remove(range.clone(), |_, _| ());
        if !range.is_empty() {
            self.0.insert(range.start, (range.end, value));
        }
    }

    /// The same; the range is joined with the neighbours that it continues, or that continue it. `removed`: as in [`Self::remove`].
    pub fn insert_joined(
        &mut self,
        range: Range<u64>,
        value: V,
        removed: impl FnMut(Range<u64>, V),
    ) {
        if range.is_empty() {
            return;
        }
        let Range { start, mut end } = range;
        let is_last = self.0.last_key_value().is_none_or(|(_, l)| l.0 <= start);
        if !is_last {
            self.remove(start..end, removed);
            if let Some(&(next_end, next)) = self.0.get(&end)
                && value.advance(end - start) == next
            {
                self.0.remove(&end);
                end = next_end;
            }
        }
        let before = match is_last {
            // As those of most writers come: found without a search.
            true => self.0.last_entry().map(|l| (*l.key(), l.into_mut())),
            false => self.0.range_mut(..start).next_back().map(|(s, v)| (*s, v)),
        };
        match before {
            Some((from, (left_end, left)))
                if *left_end == start && left.advance(start - from) == value =>
            {
                *left_end = end;
            }
            _ => drop(self.0.insert(start, (end, value))),
        }
    }

    /// The ranges that overlap `range`, whole, in order.
    pub fn overlapping(&self, range: Range<u64>) -> impl Iterator<Item = (Range<u64>, V)> + '_ {
        let some = !range.is_empty();
        let before = self.0.range(..range.start).next_back();
        let before = before.filter(|(_, (end, _))| some && *end > range.start);
        let rest = some.then(|| self.0.range(range)).into_iter().flatten();
        let found = before.into_iter().chain(rest);
        found.map(|(start, (end, value))| (*start..*end, *value))
    }

    /// The parts of `range` that have a value, in order.
    pub fn get(&self, range: Range<u64>) -> impl Iterator<Item = (Range<u64>, V)> + '_ {
        self.overlapping(range.clone()).map(move |(whole, value)| {
            let start = whole.start.max(range.start);
            let value = value.advance(start - whole.start);
            (start..whole.end.min(range.end), value)
        })
    }

    /// The value at `at`, if it has one, and up to where that holds.
    pub fn segment(&self, at: u64) -> (Option<V>, u64) {
        if let Some((start, (end, value))) = self.0.range(..=at).next_back()
            && *end > at
        {
            return (Some(value.advance(at - start)), *end);
        }
        let next = self.0.range(at..).next();
        (None, next.map_or(u64::MAX, |(start, _)| *start))
    }

    /// All of it, in order.
    pub fn iter(&self) -> impl Iterator<Item = (Range<u64>, V)> + '_ {
        let all = self.0.iter();
        all.map(|(start, (end, value))| (*start..*end, *value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_last_one_inserted_and_not_removed_is_seen(
            inserted in proptest::collection::vec((0u64..60, 0u64..20, proptest::bool::weighted(0.7)), 0..40),
        ) {
            let (mut map, mut model) = (RangeMap::default(), [None; 80]);
            for (value, (start, len, stays)) in inserted.into_iter().enumerate() {
                let mut removed = [None; 80];
                match stays {
                    true => map.insert(start..start + len, value),
                    false => map.remove(start..start + len, |range, value| {
                        removed[range.start as usize..range.end as usize].fill(Some(value));
                    }),
                }
                let bytes = start as usize..(start + len) as usize;
                prop_assert!(stays || removed[bytes.clone()] == model[bytes.clone()]);
                model[bytes].fill(stays.then_some(value));
            }
            let (mut found, mut end) = ([None; 80], 0);
            for (range, value) in map.iter() {
                prop_assert!(range.start >= end && !range.is_empty());
                end = range.end;
                found[range.start as usize..range.end as usize].fill(Some(value));
            }
            prop_assert_eq!(found, model);
            for at in 0..80 {
                prop_assert_eq!(map.segment(at).0, model[at as usize]);
            }
        }
    }
}
