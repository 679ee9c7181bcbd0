//! Tables that the base chooses: each number against a base takes its table by the exponent of the base's number at the same place.
//!
//! Weights change by about as much whatever their size, so small ones change in more bits than large ones. The exponents are divided into as
//! many ranges as there are tables, so that the symbols of each range take the fewest bits.
//!
//! Invariant: thresholds ascend, and a decoder finds the same table from the base alone.
use super::choose_predictor::SymbolCounts;
use super::lanes::TABLES;
use super::symbols::SYMBOLS;
use crate::element::Word;

/// Exponents of fewer numbers than one in so many are counted with their neighbours.
const MIN_SHARE: usize = 32;
/// Groups of exponents that are divided into ranges, at most.
const MAX_GROUPS: usize = MIN_SHARE + 1;

/// Where ranges of exponents end: the table is the number of these thresholds that an exponent exceeds.
pub(super) type Thresholds = [u16; TABLES - 1];

/// Which table a base's numbers choose.
#[derive(Clone, Copy)]
pub(super) struct BaseTables {
    thresholds: Thresholds,
    fraction: u32,
}

impl BaseTables {
    /// By these thresholds, of elements with so many bits of fraction.
    pub(super) fn new(thresholds: Thresholds, fraction: u32) -> BaseTables {
        BaseTables {
            thresholds,
            fraction,
        }
    }

    /// The exponent of an element.
    #[inline(always)]
    pub(super) fn exponent<T: Word>(word: T, fraction: u32) -> u16 {
        (word.bits() >> fraction & ((1 << (T::BITS - 1 - fraction)) - 1)) as u16
    }

    /// The table of the number that is against this element.
    #[inline(always)]
    pub(super) fn table<T: Word>(self, base: T) -> u8 {
        let exponent = Self::exponent(base, self.fraction);
        let exceeded = self.thresholds.map(|t| u8::from(exponent > t));
        exceeded.iter().sum()
    }
}

/// Exponents that follow each other, the last of them, and the symbols of their numbers.
struct ExponentGroup {
    last: u16,
    counts: SymbolCounts,
}

/// Groups of some numbers' exponents, ascending: few, each of many numbers.
fn groups(symbols: &[u8], exponents: &[u16]) -> Vec<ExponentGroup> {
    let mut sorted = exponents.to_vec();
    sorted.sort_unstable();
    let least = sorted.len().div_ceil(MIN_SHARE);
    let mut groups: Vec<ExponentGroup> = Vec::new();
    let mut held = 0;
    for same in sorted.chunk_by(|a, b| a == b) {
        if held == 0 {
            groups.push(ExponentGroup {
                last: same[0],
                counts: SymbolCounts([0; SYMBOLS]),
            });
        }
        if let Some(group) = groups.last_mut() {
            group.last = same[0];
        }
        held = match held + same.len() {
            enough if enough >= least => 0,
            few => few,
        };
    }
    debug_assert!(groups.len() <= MAX_GROUPS);
    for (symbol, exponent) in symbols.iter().zip(exponents) {
        let at = groups.partition_point(|group| group.last < *exponent);
        groups[at].counts.0[usize::from(*symbol)] += 1;
    }
    groups
}

/// Bits of so many symbols, by the best code for them; without their raw bits, which are the same in each table.
fn bits(counts: &[u32; SYMBOLS]) -> f32 {
    let total: u32 = counts.iter().sum();
    let of_total = (total.max(1) as f32).log2();
    let present = counts.iter().filter(|n| **n > 0);
    present
        .map(|n| *n as f32 * (of_total - (*n as f32).log2()))
        .sum()
}

/// Thresholds that divide exponents into ranges whose symbols take the fewest bits. `symbols` and `exponents` are those of the same numbers.
pub(super) fn thresholds(symbols: &[u8], exponents: &[u16]) -> Thresholds {
    let groups = groups(symbols, exponents);
    let n = groups.len();
    // least[k][j]: bits of the first j groups in k + 1 ranges, and where the last of these begins.
    let mut least = vec![vec![(f32::INFINITY, 0); n + 1]; TABLES];
    for first in 0..n {
        let mut counts = [0; SYMBOLS];
        for (end, group) in groups.iter().enumerate().skip(first) {
            for (sum, n) in counts.iter_mut().zip(&group.counts.0) {
                *sum += n;
            }
            let bits = bits(&counts);
            for ranges in 0..TABLES {
                let before = match ranges.checked_sub(1) {
                    None if first == 0 => 0.0,
                    None => f32::INFINITY,
                    Some(fewer) => least[fewer][first].0,
                };
                let found = &mut least[ranges][end + 1];
                if before + bits < found.0 {
                    *found = (before + bits, first);
                }
            }
        }
    }
    // With fewer groups than tables some ranges are empty.
    let mut thresholds = [u16::MAX; TABLES - 1];
    let mut end = n;
    for ranges in (1..TABLES.min(n)).rev() {
        let begin = least[ranges][end].1;
        thresholds[ranges - 1] = groups[begin - 1].last;
        end = begin;
    }
    thresholds
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn thresholds_ascend_and_no_division_into_two_takes_fewer_bits(
            numbers in prop::collection::vec((0u8..12, 100u16..130), 1..600),
        ) {
            let (symbols, exponents): (Vec<u8>, Vec<u16>) = numbers.into_iter().unzip();
            let found = thresholds(&symbols, &exponents);
            prop_assert!(found.is_sorted());
            let all_bits = |thresholds: &[u16]| {
                let mut counts = vec![[0; SYMBOLS]; TABLES];
                for (symbol, exponent) in symbols.iter().zip(&exponents) {
                    let table = thresholds.iter().filter(|t| exponent > *t).count();
                    counts[table][usize::from(*symbol)] += 1;
                }
                counts.iter().map(bits).sum::<f32>()
            };
            let best = all_bits(&found);
            for group in groups(&symbols, &exponents) {
                prop_assert!(best <= all_bits(&[group.last]) * 1.001 + 0.1);
            }
        }
    }

    #[test]
    fn the_exponent_of_an_element_is_without_sign_and_fraction() {
        for (number, exponent) in [(1.0f32, 127), (-1.5, 127), (0.0, 0), (f32::INFINITY, 255)] {
            let word = number.to_bits() as i32;
            assert_eq!(BaseTables::exponent(word, 23), exponent, "{number}");
            assert_eq!(BaseTables::exponent((word >> 16) as i16, 7), exponent);
        }
        assert_eq!(BaseTables::exponent((-2.0f64).to_bits() as i64, 52), 1024);
    }
}
