//! Symbols: a number is one symbol and some raw bits. A symbol is an interval of numbers, whose length is a power of two.
//!
//! | map | the number | symbol | raw bits |
//! |---|---|---|---|
//! | `Signed` | a residual, signed | twice its bit length, one more if it is negative | what is below the top bit |
//! | `Window` | a rotated float | what is above `raw` bits, less `lowest`: the exponent and some of the fraction | the `raw` lowest |
//!
//! The bit length of a negative number is that of its complement, so that 0 and -1 have no raw bits. The raw bits are always
//! the lowest of the number itself; the decoder adds the lower end of the interval. A number that has no symbol of its own is
//! [`ESCAPE`], with all its bits raw.
use crate::element::Word;

/// Symbols have 8 bits.
pub(super) const SYMBOLS: usize = 256;
/// The number in full.
pub(super) const ESCAPE: usize = 255;

/// Which numbers are which symbols.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SymbolMap {
    /// By bit length and sign.
    Signed,
    /// By the bits above `raw`.
    Window { raw: u8, lowest: u16 },
}

impl SymbolMap {
    /// The symbol of a number.
    #[inline(always)]
    pub(super) fn symbol<T: Word>(self, number: T) -> usize {
        match self {
            SymbolMap::Signed => {
                let wide = number.extend();
                let length = 64 - ((wide ^ (wide >> 63)) as u64).leading_zeros();
                (2 * length + (wide < 0) as u32) as usize & (SYMBOLS - 1)
            }
            SymbolMap::Window { raw, lowest } => {
                let above = (number.bits() >> (raw & 63)).wrapping_sub(lowest.into());
                above.min(ESCAPE as u64) as usize
            }
        }
    }

    /// The symbols of some numbers, by a loop without branches.
    #[inline(always)]
    pub(super) fn symbols<T: Word, const N: usize>(self, numbers: &[T; N], out: &mut [u32; N]) {
        match self {
            SymbolMap::Signed => {
                let fits = |x: &T| x.extend() ^ i64::from(x.extend() as i32);
                if T::BITS > 32 && numbers.iter().fold(0, |all, x| all | fits(x)) != 0 {
                    for (out, number) in out.iter_mut().zip(numbers) {
                        *out = self.symbol(*number) as u32;
                    }
                    return;
                }
                for (out, number) in out.iter_mut().zip(numbers) {
                    *out = signed_symbol(number.extend() as i32);
                }
            }
            SymbolMap::Window { raw, lowest } if T::BITS <= 32 => {
                for (out, number) in out.iter_mut().zip(numbers) {
                    let above = number.bits() as u32 >> (raw & 31);
                    *out = above.wrapping_sub(lowest.into()).min(ESCAPE as u32);
                }
            }
            SymbolMap::Window { .. } => {
                for (out, number) in out.iter_mut().zip(numbers) {
                    *out = self.symbol(*number) as u32;
                }
            }
        }
    }

    /// The lower end of a symbol's interval, and how many raw bits it has; `None` if numbers of so many bits have no such symbol.
    pub(super) fn interval(self, symbol: usize, bits: u32) -> Option<(u64, u32)> {
        if symbol == ESCAPE {
            return Some((0, bits));
        }
        match self {
            SymbolMap::Signed => {
                let (length, negative) = (symbol as u32 / 2, symbol % 2 == 1);
                if length >= bits {
                    return None;
                }
                let lower = match (length, negative) {
                    (0, false) => 0,
                    (0, true) => u64::MAX,
                    (_, false) => 1 << (length - 1),
                    (_, true) => (1u64 << length).wrapping_neg(),
                };
                Some((lower, length.saturating_sub(1)))
            }
            SymbolMap::Window { raw, lowest } => {
                let raw = u32::from(raw);
                let above = symbol as u64 + u64::from(lowest);
                let fits = raw < bits && (raw + 16 >= bits) && above >> (bits - raw) == 0;
                fits.then(|| (above << raw, raw))
            }
        }
    }
}

/// The symbol by bit length and sign of a number of 32 bits, without an instruction that counts zeros, of which processors have
/// none for vectors: the length is in the exponent of the float. Without the bit below the top one a float is not rounded up to
/// the next exponent.
#[inline(always)]
fn signed_symbol(number: i32) -> u32 {
    let negative = number >> 31;
    let magnitude = number ^ negative;
    let exponent = ((magnitude & !(magnitude >> 1)) as f32).to_bits() >> 23;
    2 * (exponent.max(126) - 126) + (negative & 1) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn comes_back<T: Word>(map: SymbolMap, number: T) {
        let symbol = map.symbol(number);
        let (lower, raw) = map.interval(symbol, T::BITS).unwrap();
        let mask = if raw == 64 { u64::MAX } else { (1 << raw) - 1 };
        assert_eq!(
            T::truncate(lower.wrapping_add(number.bits() & mask)),
            number
        );
    }

    #[test]
    fn every_number_of_16_bits_is_its_symbol_and_raw_bits() {
        for bits in 0..=u16::MAX {
            comes_back(SymbolMap::Signed, bits as i16);
            for (raw, lowest) in [(8, 0), (8, 100), (6, 900), (0, 0), (12, 15)] {
                comes_back(SymbolMap::Window { raw, lowest }, bits as i16);
            }
        }
    }

    #[test]
    fn symbols_by_floats_are_those_by_counted_zeros() {
        for shift in 0..32 {
            for below in [0, 1, 2, 3, u32::MAX] {
                let number = (1u32 << shift).wrapping_sub(below) as i32;
                for number in [number, !number, number >> 1, number ^ i32::MAX] {
                    let expected = SymbolMap::Signed.symbol(number) as u32;
                    assert_eq!(signed_symbol(number), expected, "{number:x}");
                }
            }
        }
    }

    proptest! {
        #[test]
        fn symbols_of_some_are_the_symbols_of_each(
            number: i64,
            shifts in any::<[u8; 4]>(),
            raw in 17u8..32,
            lowest: u16,
        ) {
            let wide = shifts.map(|s| number >> (s & 63));
            let narrow = wide.map(|x| x as i32);
            for map in [SymbolMap::Signed, SymbolMap::Window { raw, lowest }] {
                let mut out = [0; 4];
                map.symbols(&wide, &mut out);
                prop_assert_eq!(out.map(|s| s as usize), wide.map(|x| map.symbol(x)));
                map.symbols(&narrow, &mut out);
                prop_assert_eq!(out.map(|s| s as usize), narrow.map(|x| map.symbol(x)));
            }
        }

        #[test]
        fn numbers_are_their_symbols_and_raw_bits(number: i64, shift in 0u32..64, lowest: u16, above in 1u8..16) {
            comes_back(SymbolMap::Signed, number >> shift);
            comes_back(SymbolMap::Signed, (number >> shift) as i32);
            comes_back(SymbolMap::Window { raw: 64 - above, lowest: lowest >> (16 - above) }, number >> shift);
            comes_back(SymbolMap::Window { raw: 32 - above, lowest: lowest >> (16 - above) }, (number >> shift) as i32);
        }
    }
}
