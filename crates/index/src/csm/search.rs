//! Galloping search in a sorted sequence, from a guess of where the answer is.

/// About where `value` is among `len` values from `first` to `last`, if they are regular.
pub fn interpolate(value: u64, first: u64, last: u64, len: usize) -> usize {
    let (above, all) = (value.saturating_sub(first), last.saturating_sub(first));
    if all == 0 || above > all {
        return if value <= first { 0 } else { len };
    }
    (above as f64 / all as f64 * (len.saturating_sub(1)) as f64 + 0.5) as usize
}

/// The first of `len` items, in order, for which `below` is false; the search goes out from `hint`.
pub fn from_hint(hint: usize, len: usize, below: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (0, len);
    let hint = hint.min(len);
    if hint == len || !below(hint) {
        high = hint;
        let mut step = 1;
        while high > low {
            let probe = high.saturating_sub(step).max(low);
            if below(probe) {
                low = probe + 1;
                break;
            }
            (high, step) = (probe, step * 2);
        }
    } else {
        low = hint + 1;
        let mut step = 1;
        while low < high {
            let probe = (low + step - 1).min(high - 1);
            if !below(probe) {
                high = probe;
                break;
            }
            (low, step) = (probe + 1, step * 2);
        }
    }
    while low < high {
        let middle = low + (high - low) / 2;
        if below(middle) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_search_from_any_hint_finds_the_same(len in 0usize..100, first in 0usize..110, hint in 0usize..110) {
            prop_assert_eq!(from_hint(hint, len, |i| i < first), first.min(len));
        }

        #[test]
        fn regular_values_are_guessed(first: u32, step in 1u64..1 << 40, len in 1usize..300, at in 0usize..300) {
            let first = u64::from(first);
            let value = |i: usize| first + i as u64 * step;
            prop_assert_eq!(interpolate(value(at % len), first, value(len - 1), len), at % len);
            prop_assert!(interpolate(value(at), first, value(len - 1), len) <= len);
        }
    }
}
