//! Pattern units and their discovery (Algorithm 1).

use forebay_codec::varint;

/// Differences that a period has at most.
pub const WINDOW: usize = 6;

/// `init`, then differences, all of them `repeats` times: `deltas.len() * max(repeats, 1)` values, one if there are no
/// differences. The last difference points at the first value behind the unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unit {
    /// The first value.
    pub init: u64,
    /// The differences of one period.
    pub deltas: Vec<i64>,
    /// The number of periods.
    pub repeats: u64,
}

impl Unit {
    /// Number of values.
    pub fn count(&self) -> u64 {
        (self.deltas.len() as u64 * self.repeats.max(1)).max(1)
    }

    /// Value `k`; of one behind the end, what the unit predicts.
    pub fn value(&self, k: u64) -> u64 {
        let period = self.deltas.len() as u64;
        if period == 0 {
            return self.init;
        }
        let sum = |n: usize| {
            self.deltas[..n]
                .iter()
                .fold(0u64, |a, d| a.wrapping_add(*d as u64))
        };
        self.init
            .wrapping_add((k / period).wrapping_mul(self.stride()))
            .wrapping_add(sum((k % period) as usize))
    }

    /// Distance of periods.
    pub(crate) fn stride(&self) -> u64 {
        self.deltas.iter().fold(0, |a, d| a.wrapping_add(*d as u64))
    }

    /// Bytes when written as varints, which is less than the eight bytes a number that the library writes.
    pub fn bytes(&self) -> usize {
        let deltas = self
            .deltas
            .iter()
            .map(|d| varint::len(varint::fold(*d as u64)));
        varint::len(self.init)
            + varint::len(self.deltas.len() as u64)
            + varint::len(self.repeats)
            + deltas.sum::<usize>()
    }
}

/// Units that stand for `values`, by Algorithm 1.
pub fn discover(values: &[u64]) -> Vec<Unit> {
    let deltas: Vec<i64> = values
        .windows(2)
        .map(|w| w[1].wrapping_sub(w[0]) as i64)
        .collect();
    let mut stack: Vec<(Vec<i64>, u64)> = Vec::new();
    let mut i = 0;
    while i < deltas.len() {
        let longest = WINDOW.min(i).min(deltas.len() - i);
        let repeat = (1..=longest)
            .rev()
            .find(|&c| deltas[i - c..i] == deltas[i..i + c]);
        match repeat {
            None => {
                stack.push((vec![deltas[i]], 1));
                i += 1;
            }
            Some(c) => i += repeated(&mut stack, &deltas[i..i + c]),
        }
        if let Some((period, repeats)) = stack.last_mut()
            && period.len() > 1
            && period.iter().all(|d| *d == period[0])
        {
            *repeats *= period.len() as u64;
            period.truncate(1);
        }
    }
    let mut at = 0;
    let mut units: Vec<Unit> = stack
        .into_iter()
        .map(|(deltas, repeats)| {
            let init = values[at];
            at += deltas.len() * repeats as usize;
            Unit {
                init,
                deltas,
                repeats,
            }
        })
        .collect();
    attach_last(&mut units, values);
    units
}

/// `found` repeats what is before it: returns the differences that were used up.
fn repeated(stack: &mut Vec<(Vec<i64>, u64)>, found: &[i64]) -> usize {
    let mut held = 0;
    let mut whole = 0;
    for (period, repeats) in stack.iter().rev() {
        if held >= found.len() {
            break;
        }
        held += period.len() * *repeats as usize;
        whole += 1;
    }
    if held == found.len() {
        stack.truncate(stack.len() - whole);
        stack.push((found.to_vec(), 2));
        return found.len();
    }
    if let Some((period, repeats)) = stack.last_mut() {
        let p = period.len();
        if found.len().is_multiple_of(p) && found.len() <= p * *repeats as usize {
            *repeats += (found.len() / p) as u64;
            return found.len();
        }
    }
    stack.push((vec![found[0]], 1));
    1
}

/// The last value has no difference: it joins a unit of one difference that predicts it, else it is a unit.
fn attach_last(units: &mut Vec<Unit>, values: &[u64]) {
    let Some(&last) = values.last() else {
        return;
    };
    match units.last_mut() {
        Some(unit) if unit.deltas.len() == 1 && unit.value(unit.count()) == last => {
            unit.repeats += 1
        }
        _ => units.push(Unit {
            init: last,
            deltas: Vec::new(),
            repeats: 0,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_period_of_three_is_found_as_one_of_six() {
        let values: Vec<u64> = (0..300)
            .map(|i| i / 3 * 14 + [0, 3, 7][i as usize % 3])
            .collect();
        assert_eq!(discover(&values)[0].deltas.len(), 6);
    }

    proptest! {
        #[test]
        fn units_stand_for_the_values(steps in proptest::collection::vec((0u64..4, 1usize..5), 0..40)) {
            let mut values = vec![];
            let mut at = 100u64;
            for (step, times) in steps {
                for _ in 0..times {
                    values.push(at);
                    at += step;
                }
            }
            let units = discover(&values);
            let back: Vec<u64> = units.iter().flat_map(|u| (0..u.count()).map(|k| u.value(k))).collect();
            prop_assert_eq!(back, values);
        }
    }

    fn cycle(period: &[u64], times: usize) -> Vec<u64> {
        let mut at = 0;
        let steps = period.iter().cycle().take(period.len() * times);
        let ends: Vec<u64> = steps
            .map(|d| {
                at += d;
                at
            })
            .collect();
        [&[0], &ends[..]].concat()
    }

    #[test]
    fn the_example_of_the_paper_and_the_known_faults() {
        let units = discover(&cycle(&[3, 4, 7], 2));
        assert_eq!(units[0].deltas, [3, 4, 7]);
        assert_eq!((units[0].repeats, units[0].value(6)), (2, 28));
        // A stride is one unit.
        assert_eq!(discover(&cycle(&[5], 15)).len(), 1);
        // Longest first: the period is doubled.
        assert_eq!(discover(&cycle(&[3, 4, 7], 100))[0].deltas.len(), 6);
        // A period of seven is not seen.
        assert!(discover(&cycle(&[1, 2, 3, 4, 5, 6, 9], 1000)).len() >= 7000);
    }
}
