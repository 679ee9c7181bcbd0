//! Which numbers bytes are, if nobody says: their type, stride and phase.
//!
//! A sample is read as each type, and scored in bits a byte by two models: the difference from the value `stride` earlier (fields), and
//! the entropy of the exponent plus all other bits as they are (weights). The cheapest type and model win. Low bits that are zero in all values count
//! nothing. Read as the wrong type, exponents are partly bits of a mantissa, which are nearly random, so the right type is the cheapest.
use crate::element::{ElementLayout, ElementType};

/// Values that are looked at, of each type.
const VALUES: usize = 256;
/// Types, the true one before one that seems as good in a sample: halves of binary64 taken for pairs of binary32, part of a mantissa
/// of binary16 taken for an exponent of bfloat16.
const TYPES: [ElementType; 4] = [
    ElementType::F64,
    ElementType::F32,
    ElementType::F16,
    ElementType::Bf16,
];
/// Runs of values that follow each other.
const RUNS: usize = 4;
/// Strides that are tried.
const STRIDES: [usize; 5] = [1, 2, 3, 4, 6];
/// Bits of a residual beside its own: its length.
const LENGTH_BITS: f64 = 2.0;
/// A layout, and what a byte is expected to become with it: 1 if nothing is gained.
#[derive(Debug, Clone, Copy)]
pub(super) struct LayoutGuess {
    pub layout: ElementLayout,
    pub cost: f64,
}

/// The best layout for bytes of a file from offset `at` on. What is known is not guessed.
pub(super) fn guess(
    at: u64,
    bytes: &[u8],
    element: Option<ElementType>,
    stride: Option<u32>,
    row: u32,
) -> LayoutGuess {
    let types = match &element {
        Some(element) => std::slice::from_ref(element),
        None => &TYPES[..],
    };
    let layout = |element: ElementType, stride, first: u64| ElementLayout {
        element,
        stride,
        // Less than an element.
        phase: ((first + element.width() as u64 * 8 - at % 8) % element.width() as u64) as u32,
        row,
    };
    let mut best = best_stride(layout(types[0], 1, 0), bytes, stride);
    for element in &types[1..] {
        best = best.or(best_stride(layout(*element, 1, 0), bytes, stride));
    }
    // Whoever names a type begins with a number, or has a head that is a multiple of it.
    if element.is_none() {
        let ends = steady_bytes(at, bytes);
        for element in types {
            let width = element.width();
            for first in 1..width {
                if (0..8).any(|end| ends[end] && (end + 1) % width == first) {
                    let mut other = best_stride(layout(*element, 1, first as u64), bytes, stride);
                    // Some are tried, and one is always the best by chance.
                    other.cost += 0.02;
                    best = best.or(other);
                }
            }
        }
    }
    best
}

impl LayoutGuess {
    /// The other if it is cheaper by more than chance.
    fn or(self, other: LayoutGuess) -> LayoutGuess {
        if other.cost < self.cost * 0.98 {
            other
        } else {
            self
        }
    }
}

/// The bytes of eight that change least from eight to eight, by their offset in the file: numbers end with these.
fn steady_bytes(at: u64, bytes: &[u8]) -> [bool; 8] {
    let bytes = &bytes[..bytes.len().min(8 * VALUES)];
    let mut equal = [0u32; 8];
    let eights = bytes.as_chunks::<8>().0;
    for (before, next) in eights.iter().zip(eights.iter().skip(1)) {
        for (count, (a, b)) in equal.iter_mut().zip(before.iter().zip(next)) {
            *count += u32::from(a == b);
        }
    }
    let most = equal.iter().max().map_or(0, |most| most - most / 32);
    std::array::from_fn(|offset| equal[(offset + 8 - (at % 8) as usize) % 8] >= most)
}

/// The better of the strides, or of that which is known.
fn best_stride(layout: ElementLayout, bytes: &[u8], stride: Option<u32>) -> LayoutGuess {
    let mut buffer = [0; VALUES];
    let sample = ValueSample::of(&layout, bytes, &mut buffer);
    let known = stride.map(|stride| [stride as usize]);
    let strides = known.as_ref().map_or(&STRIDES[..], |known| &known[..]);
    let mut best = LayoutGuess {
        layout: ElementLayout {
            stride: stride.unwrap_or(1),
            ..layout
        },
        cost: sample.exponent_cost(layout.element),
    };
    for stride in strides {
        let cost = sample.difference_cost(*stride);
        // A stride that is hardly better is there by chance.
        if cost < best.cost * 0.98 {
            best.cost = cost;
            best.layout.stride = *stride as u32;
        }
    }
    best
}

/// Values at the beginning, within and at the end, as integers in the order of the numbers.
struct ValueSample<'a> {
    values: &'a [u64],
    /// Values that follow each other.
    run: usize,
    bits: u32,
    /// Bits at the end that are zero in all.
    zeros: u32,
}

impl<'a> ValueSample<'a> {
    fn of(layout: &ElementLayout, bytes: &[u8], buffer: &'a mut [u64; VALUES]) -> ValueSample<'a> {
        let width = layout.element.width();
        let bits = 8 * width as u32;
        let elements = bytes.get(layout.phase as usize..).unwrap_or_default();
        let n = elements.len() / width;
        let (runs, run) = match n {
            n if n <= VALUES => (1, n),
            _ => (RUNS, VALUES / RUNS),
        };
        let mut all = 0;
        for (k, values) in buffer[..runs * run].chunks_mut(run.max(1)).enumerate() {
            let start = k * (n - run) / (RUNS - 1) * width;
            let elements = elements[start..].chunks_exact(width);
            for (value, element) in values.iter_mut().zip(elements) {
                let mut word = [0; 8];
                word[..width].copy_from_slice(element);
                let word = u64::from_le_bytes(word);
                all |= word;
                let sign = word >> (bits - 1);
                *value = word ^ (sign.wrapping_neg() & (u64::MAX >> (65 - bits)));
            }
        }
        ValueSample {
            values: &buffer[..runs * run],
            run: run.max(1),
            bits,
            zeros: if all == 0 { bits } else { all.trailing_zeros() },
        }
    }

    /// Bits a bit of differences from the value `stride` before.
    fn difference_cost(&self, stride: usize) -> f64 {
        let (mut sum, mut count) = (0u32, 0u32);
        for run in self.values.chunks(self.run) {
            let later = run.get(stride..).unwrap_or_default();
            for (before, value) in run.iter().zip(later) {
                // As a signed number of so many bits, the sign last.
                let difference = value.wrapping_sub(*before) << (64 - self.bits);
                let folded = (difference << 1) ^ ((difference as i64 >> 63) as u64);
                let len = 64 - (folded >> (64 - self.bits)).leading_zeros();
                sum += len.saturating_sub(self.zeros);
            }
            count += later.len() as u32;
        }
        if count == 0 {
            return f64::INFINITY;
        }
        (f64::from(sum) / f64::from(count) + LENGTH_BITS) / f64::from(self.bits)
    }

    /// Bits a bit of exponents by their entropy, and all other bits as they are.
    fn exponent_cost(&self, element: ElementType) -> f64 {
        let mantissa = element.mantissa_bits();
        let exponents = 1usize << (self.bits - 1 - mantissa);
        if self.values.is_empty() {
            return f64::INFINITY;
        }
        let mut counts = [0u16; 2048];
        for value in self.values {
            // The sign is the bit above.
            counts[(value >> mantissa) as usize % exponents] += 1;
        }
        let total = self.values.len() as f64;
        let (mut sum, mut used) = (0.0, 0.0);
        for count in counts[..exponents].iter().filter(|count| **count > 0) {
            if *count > 1 {
                sum += f64::from(*count) * f64::from(*count).log2();
            }
            used += 1.0;
        }
        // A sample has less entropy than what it is of (Miller and Madow).
        let entropy =
            total.log2() - sum / total + (used - 1.0) / total / 2.0 * std::f64::consts::LOG2_E;
        let rest = f64::from(mantissa.saturating_sub(self.zeros));
        (entropy + 1.0 + rest) / f64::from(self.bits)
    }
}
