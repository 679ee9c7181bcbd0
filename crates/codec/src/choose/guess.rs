//! Which numbers bytes are, if nobody says: their type, stride and phase.
//!
//! Some values are looked at as each type. Two costs are counted, in bits a byte of the content: those of a difference from the value
//! `stride` before (as of a field), and those of the exponent's entropy with all other bits (as of weights). Looked at as the
//! wrong type, exponents are partly bits of a mantissa, which are nearly random, so the right type is the cheapest.
use crate::element::{ElementType, Layout};

/// Values that are looked at, of each type.
const VALUES: usize = 512;
/// Types, a simpler one before one that finds as much in the same bytes: the mantissa of binary16 taken for an exponent of bfloat16
/// has hardly more entropy in a sample.
const TYPES: [ElementType; 4] = [
    ElementType::F32,
    ElementType::F64,
    ElementType::F16,
    ElementType::Bf16,
];
/// Strides that are tried.
const STRIDES: [usize; 5] = [1, 2, 3, 4, 6];
/// Bits of a residual beside its own: its length.
const LENGTH_BITS: f64 = 2.0;
/// A layout, and what a byte is expected to become with it: 1 if nothing is gained.
#[derive(Debug, Clone, Copy)]
pub(super) struct Guess {
    pub layout: Layout,
    pub cost: f64,
}

/// The best layout for bytes of a file from offset `at` on. What is known is not guessed.
pub(super) fn guess(
    at: u64,
    bytes: &[u8],
    element: Option<ElementType>,
    stride: Option<u32>,
    row: u32,
) -> Guess {
    let types = match &element {
        Some(element) => std::slice::from_ref(element),
        None => &TYPES[..],
    };
    let layout = |element: ElementType, stride, first: u64| Layout {
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

impl Guess {
    /// The other if it is cheaper by more than chance.
    fn or(self, other: Guess) -> Guess {
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
fn best_stride(layout: Layout, bytes: &[u8], stride: Option<u32>) -> Guess {
    let values = sample(&layout, bytes);
    let known = stride.map(|stride| [stride as usize]);
    let strides = known.as_ref().map_or(&STRIDES[..], |known| &known[..]);
    let width = layout.element.width();
    let mut best = Guess {
        layout: Layout {
            stride: stride.unwrap_or(1),
            ..layout
        },
        cost: exponent_cost(layout.element, &values),
    };
    for stride in strides {
        let cost = difference_cost(8 * width as u32, &values, *stride);
        // A stride that is hardly better is there by chance.
        if cost < best.cost * 0.98 {
            best.cost = cost;
            best.layout.stride = *stride as u32;
        }
    }
    best
}

/// Values at the beginning, in the middle and at the end, as integers in the order of the numbers.
fn sample(layout: &Layout, bytes: &[u8]) -> Vec<Vec<u64>> {
    let width = layout.element.width();
    let bits = 8 * width as u32;
    let elements = bytes.get(layout.phase as usize..).unwrap_or_default();
    let n = elements.len() / width;
    let ordered = |bytes: &[u8]| {
        let mut word = [0; 8];
        word[..width].copy_from_slice(bytes);
        let value = u64::from_le_bytes(word);
        let sign = value >> (bits - 1);
        value ^ (sign.wrapping_neg() & (u64::MAX >> (65 - bits)))
    };
    let each = VALUES / 4;
    let starts = match n {
        0 => Vec::new(),
        n if n <= VALUES => vec![(0, n)],
        n => (0..4).map(|k| (k * (n - each) / 3, each)).collect(),
    };
    let run = |(start, len): (usize, usize)| {
        let run = &elements[start * width..(start + len) * width];
        run.chunks_exact(width).map(ordered).collect()
    };
    starts.into_iter().map(run).collect()
}

/// Bits a bit of differences from the value `stride` before.
fn difference_cost(bits: u32, values: &[Vec<u64>], stride: usize) -> f64 {
    let (mut sum, mut count) = (0.0, 0u32);
    for run in values {
        for (before, value) in run.iter().zip(run.iter().skip(stride)) {
            // As a signed number of so many bits, sign last.
            let difference = value.wrapping_sub(*before) << (64 - bits);
            let folded = (difference << 1) ^ ((difference as i64 >> 63) as u64);
            let folded = folded >> (64 - bits);
            sum += f64::from(64 - folded.leading_zeros());
            count += 1;
        }
    }
    if count == 0 {
        return f64::INFINITY;
    }
    (sum / f64::from(count) + LENGTH_BITS) / f64::from(bits)
}

/// Bits a bit of exponents by their entropy, and all other bits as they are.
fn exponent_cost(element: ElementType, values: &[Vec<u64>]) -> f64 {
    let mantissa = element.mantissa_bits();
    let bits = 8 * element.width() as u32;
    let mut counts = [0u32; 2048];
    let mut total = 0u32;
    for value in values.iter().flatten() {
        // The sign is gone into the order: it is the top bit, which is cut off.
        counts[(value >> mantissa) as usize & ((1 << (bits - 1 - mantissa)) - 1)] += 1;
        total += 1;
    }
    if total == 0 {
        return f64::INFINITY;
    }
    let total = f64::from(total);
    let used = counts.iter().filter(|count| **count > 0);
    let entropy: f64 = used
        .clone()
        .map(|count| f64::from(*count) / total * (total / f64::from(*count)).log2())
        .sum();
    // A sample has less entropy than what it is of (Miller and Madow).
    let entropy = entropy + (used.count() as f64 - 1.0) / (2.0 * total) * std::f64::consts::LOG2_E;
    (entropy + 1.0 + f64::from(mantissa)) / f64::from(bits)
}
