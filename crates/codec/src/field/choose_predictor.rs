//! Chooses how a container's elements become symbols, by the cost of a sample of its lanes.
//!
//! The cost of a candidate is the entropy of its symbols plus their raw bits. Tables that depend on the symbol before are ignored: they save about
//! the same for every candidate.
use super::lanes::{TABLES, TableUse};
use super::parameters::{MAX_STRIDE, NumberSource, SymbolModel};
use super::predict::Predictor;
use super::symbols::{ESCAPE, SYMBOLS, SymbolMap};
use crate::element::{ElementType, Word};

/// A sample: lanes of elements.
pub(super) struct LaneSample<T> {
    /// All in a row.
    pub(super) words: Vec<T>,
    /// Where each lane ends.
    pub(super) ends: Vec<usize>,
}

/// How often each symbol occurs.
#[derive(Clone)]
pub(super) struct SymbolCounts(pub(super) [u32; SYMBOLS]);

impl SymbolCounts {
    /// The bits that the symbols take, with the best code, and their raw bits.
    pub(super) fn cost(&self, map: SymbolMap, bits: u32) -> f32 {
        let present = || self.0.iter().enumerate().filter(|(_, n)| **n > 0);
        let total: u32 = present().map(|(_, n)| n).sum();
        let of_total = (total as f32).log2();
        let cost = present().map(|(symbol, n)| {
            let raw = map.interval(symbol, bits).map_or(bits, |(_, raw)| raw);
            // No code has less than a bit, or more than nine; a sole symbol has none.
            let code = of_total - (*n as f32).log2();
            let code = if *n == total {
                0.0
            } else {
                code.clamp(0.5, 10.0)
            };
            *n as f32 * (code + raw as f32)
        });
        cost.sum()
    }
}

/// A way, what it costs, and what it was measured by.
#[derive(Clone)]
pub(super) struct ModelCandidate {
    pub(super) model: SymbolModel,
    /// Bits of an element.
    pub(super) cost: f32,
    counts: SymbolCounts,
}

impl ModelCandidate {
    /// Thresholds of bit lengths that divide the sample, for tables by the symbol before.
    pub(super) fn thresholds(&self) -> [u8; TABLES - 1] {
        let mut lengths = [0u32; SYMBOLS / 2];
        for (symbol, n) in self.counts.0.iter().enumerate() {
            lengths[symbol / 2] += n;
        }
        let total: u32 = lengths.iter().sum();
        let quantile = |percent: u32| {
            let mut rest = u64::from(total) * u64::from(percent) / 100;
            let at = lengths.iter().position(|n| {
                let here = u64::from(*n) > rest;
                rest = rest.saturating_sub((*n).into());
                here
            });
            at.unwrap_or(0) as u8
        };
        [quantile(20), quantile(50), quantile(80)]
    }
}

impl<T: Word> LaneSample<T> {
    pub(super) fn new() -> LaneSample<T> {
        LaneSample {
            words: Vec::new(),
            ends: Vec::new(),
        }
    }

    fn lanes<'a>(&'a self, numbers: &'a [T]) -> impl Iterator<Item = &'a [T]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(a, b)| &numbers[a..*b])
    }

    /// What a model costs, given the numbers of the sample by its source.
    pub(super) fn evaluate(&self, model: SymbolModel, numbers: &[T]) -> ModelCandidate {
        let mut counts = [0; SYMBOLS];
        let mut residuals = vec![T::default(); numbers.len()];
        let from = usize::from(model.predictor != Predictor::None);
        for lane in self.lanes(numbers) {
            let residuals = &mut residuals[..lane.len()];
            model.predictor.residuals(model.stride, lane, residuals);
            for residual in residuals.iter().skip(from) {
                counts[model.map.symbol(*residual)] += 1;
            }
        }
        let counts = SymbolCounts(counts);
        let references = (from * self.ends.len()) as f32 * (T::BITS as f32 * 0.65);
        let cost = (counts.cost(model.map, T::BITS) + references) / numbers.len().max(1) as f32;
        ModelCandidate {
            model,
            cost,
            counts,
        }
    }

    /// The best predictor for numbers.
    pub(super) fn best_predictor(
        &self,
        source: NumberSource,
        shift: u32,
        hint: usize,
        numbers: &[T],
    ) -> ModelCandidate {
        let try_one = |predictor, stride| {
            let model = SymbolModel {
                source,
                shift,
                predictor,
                stride,
                map: SymbolMap::Signed,
                tables: TableUse::One,
                row: 0,
            };
            self.evaluate(model, numbers)
        };
        let mut best = try_one(Predictor::First, 1);
        let mut strides = vec![2, 3, 4];
        if hint > 4 && hint <= MAX_STRIDE {
            strides.push(hint);
        }
        for stride in strides {
            let other = try_one(Predictor::First, stride);
            if other.cost < best.cost {
                best = other;
            }
        }
        let strides = if best.model.stride == 1 {
            vec![1]
        } else {
            vec![1, best.model.stride]
        };
        for stride in strides {
            for predictor in &Predictor::DIFFERENCES[1..] {
                let other = try_one(*predictor, stride);
                if other.cost < best.cost {
                    best = other;
                }
            }
        }
        best
    }

    /// The best window for elements that nothing predicts: the exponent, and some bits of the fraction.
    pub(super) fn best_window(&self, element: ElementType, shift: u32) -> Option<ModelCandidate> {
        let all_positive = self.words.iter().all(|w| w.extend() >= 0);
        let source = if all_positive {
            NumberSource::Ordered
        } else {
            NumberSource::Rotated
        };
        let numbers: Vec<T> = self
            .words
            .iter()
            .map(|w| number(source, shift, *w))
            .collect();
        // A rotated word has the sign below the fraction.
        let fraction = (element.mantissa_bits() + u32::from(!all_positive)).checked_sub(shift)?;
        let mut best: Option<ModelCandidate> = None;
        for finer in 0..3 {
            let raw = fraction.checked_sub(finer)?;
            let top = numbers.iter().map(|n| n.bits() >> raw).max()?;
            let lowest = top.saturating_sub(ESCAPE as u64 - 1);
            let map = SymbolMap::Window {
                raw: raw as u8,
                lowest: u16::try_from(lowest).ok()?,
            };
            if raw + 16 < T::BITS {
                break;
            }
            let model = SymbolModel {
                source,
                shift,
                predictor: Predictor::None,
                stride: 1,
                map,
                tables: TableUse::One,
                row: 0,
            };
            let other = self.evaluate(model, &numbers);
            // Symbols that are finer are more, and the sample does not tell what their lengths cost.
            if best.as_ref().is_none_or(|b| other.cost < b.cost * 0.998) {
                best = Some(other);
            }
        }
        best
    }
}

/// The number of an element, by a source that needs nothing else.
#[inline(always)]
pub(super) fn number<T: Word>(source: NumberSource, shift: u32, word: T) -> T {
    match source {
        NumberSource::Rotated => word.rotated(shift),
        _ => word.ordered(shift),
    }
}
