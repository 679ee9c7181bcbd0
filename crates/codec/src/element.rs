//! Elements of an array of floats: their type, where they lie in bytes, and integers in the order of their values.
//!
//! The ordered integer of a float is its bits with all but the sign inverted where the sign is set, so that floats that are
//! close have integers that are close, on both sides of zero. It is a bijection of all bit patterns: NaNs keep their payloads,
//! the two zeros stay apart.
//!
//! Invariant: nothing here fails. A wrong layout describes the same bytes as other numbers, which compress worse.

/// The type of the elements of an array. All are little-endian.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ElementType {
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary64.
    F64,
    /// bfloat16: the upper half of a binary32.
    Bf16,
    /// IEEE 754 binary16.
    F16,
}

impl ElementType {
    /// Every type.
    pub const ALL: [ElementType; 4] = [
        ElementType::F32,
        ElementType::F64,
        ElementType::Bf16,
        ElementType::F16,
    ];

    /// The bytes of an element.
    pub const fn width(self) -> usize {
        match self {
            ElementType::F32 => 4,
            ElementType::F64 => 8,
            ElementType::Bf16 | ElementType::F16 => 2,
        }
    }

    /// The bits of the fraction.
    pub(crate) const fn mantissa_bits(self) -> u32 {
        match self {
            ElementType::F32 => 23,
            ElementType::F64 => 52,
            ElementType::Bf16 => 7,
            ElementType::F16 => 10,
        }
    }

    /// As stored in heads.
    pub const fn code(self) -> u8 {
        match self {
            ElementType::F32 => 0,
            ElementType::F64 => 1,
            ElementType::Bf16 => 2,
            ElementType::F16 => 3,
        }
    }

    /// The inverse of [`code`](Self::code).
    pub const fn from_code(code: u8) -> Option<ElementType> {
        match code {
            0 => Some(ElementType::F32),
            1 => Some(ElementType::F64),
            2 => Some(ElementType::Bf16),
            3 => Some(ElementType::F16),
            _ => None,
        }
    }
}

/// How the bytes of a file are an array. All of it is a hint: any bytes can be coded by any layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ElementLayout {
    /// The type of the elements.
    pub element: ElementType,
    /// The neighbour of a value is so many elements before it: 1, or the number of interleaved variables. 0 is 1.
    pub stride: u32,
    /// Bytes before the first whole element of each span. What is not below the width is taken modulo the width.
    pub phase: u32,
    /// Elements in a row of the array; 0: unknown. Used by `field` if at most half a piece, which decodes alone.
    pub row: u32,
}

impl ElementLayout {
    /// Elements of this type side by side, the first at the first byte.
    pub const fn plain(element: ElementType) -> ElementLayout {
        ElementLayout {
            element,
            stride: 1,
            phase: 0,
            row: 0,
        }
    }
}

/// The bits of an element as a signed integer, with the arithmetic of predictors. All of it wraps.
pub(crate) trait Word: Copy + Default + Eq + Ord + std::fmt::Debug + 'static {
    const BITS: u32;
    const BYTES: usize = Self::BITS as usize / 8;

    fn load(bytes: &[u8]) -> Self;
    fn store(self, bytes: &mut [u8]);
    /// The lowest bits of a number.
    fn truncate(bits: u64) -> Self;
    /// With zeros before.
    fn bits(self) -> u64;
    /// With the sign before.
    fn extend(self) -> i64;
    fn plus(self, other: Self) -> Self;
    fn minus(self, other: Self) -> Self;
    /// Half of it, rounded down.
    fn half(self) -> Self;

    /// The ordered integer of a float, without its `shift` lowest bits, which must be zero in the float.
    fn ordered(self, shift: u32) -> Self;
    /// The inverse of [`ordered`](Self::ordered).
    fn unordered(self, shift: u32) -> Self;

    /// The float without its `shift` lowest bits, which must be zero, and with the sign below the rest.
    fn rotated(self, shift: u32) -> Self;
    /// The inverse of [`rotated`](Self::rotated).
    fn unrotated(self, shift: u32) -> Self;
}

macro_rules! word {
    ($signed:ty, $unsigned:ty) => {
        impl Word for $signed {
            const BITS: u32 = <$signed>::BITS;

            #[inline(always)]
            fn load(bytes: &[u8]) -> Self {
                let mut word = [0; size_of::<$signed>()];
                word.copy_from_slice(bytes);
                <$signed>::from_le_bytes(word)
            }

            #[inline(always)]
            fn store(self, bytes: &mut [u8]) {
                bytes.copy_from_slice(&self.to_le_bytes());
            }

            #[inline(always)]
            fn truncate(bits: u64) -> Self {
                bits as $signed
            }

            #[inline(always)]
            fn bits(self) -> u64 {
                self as $unsigned as u64
            }

            #[inline(always)]
            fn extend(self) -> i64 {
                self as i64
            }

            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                self.wrapping_add(other)
            }

            #[inline(always)]
            fn minus(self, other: Self) -> Self {
                self.wrapping_sub(other)
            }

            #[inline(always)]
            fn half(self) -> Self {
                self >> 1
            }

            #[inline(always)]
            fn ordered(self, shift: u32) -> Self {
                let sign = self >> (Self::BITS - 1);
                (self ^ (sign & <$signed>::MAX)) >> shift
            }

            #[inline(always)]
            fn unordered(self, shift: u32) -> Self {
                let sign = self >> (Self::BITS - 1);
                (self ^ (sign & (<$signed>::MAX >> shift))) << shift
            }

            #[inline(always)]
            fn rotated(self, shift: u32) -> Self {
                let bits = self as $unsigned;
                ((((bits << 1) >> shift) & !1) | (bits >> (Self::BITS - 1))) as $signed
            }

            #[inline(always)]
            fn unrotated(self, shift: u32) -> Self {
                let bits = self as $unsigned;
                ((((bits & !1) << shift) >> 1) | (bits << (Self::BITS - 1))) as $signed
            }
        }
    };
}

word!(i16, u16);
word!(i32, u32);
word!(i64, u64);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_pattern_of_16_bits_comes_back_with_any_shift_that_its_zeros_allow() {
        for bits in 0..=u16::MAX {
            let word = bits as i16;
            for shift in 0..=bits.trailing_zeros().min(15) {
                assert_eq!(word.ordered(shift).unordered(shift), word, "{bits:x}");
                assert_eq!(word.rotated(shift).unrotated(shift), word, "{bits:x}");
            }
        }
    }

    #[test]
    fn the_order_of_integers_is_the_order_of_floats() {
        let floats = [
            f32::NEG_INFINITY,
            -1e30,
            -1.0,
            -1e-45,
            -0.0,
            0.0,
            1e-45,
            1e-20,
            1.0,
            1.5,
            f32::INFINITY,
        ];
        let ordered = floats.map(|f| (f.to_bits() as i32).ordered(0));
        assert!(ordered.is_sorted_by(|a, b| a < b), "{ordered:?}");
        assert_eq!(ordered[5] - ordered[4], 1);
    }

    proptest! {
        #[test]
        fn words_come_back(word: i64, shift in 0u32..63) {
            let wide = word << shift;
            prop_assert_eq!(wide.ordered(shift).unordered(shift), wide);
            prop_assert_eq!(wide.rotated(shift).unrotated(shift), wide);
            let narrow = (word as i32) << (shift / 2);
            prop_assert_eq!(narrow.ordered(shift / 2).unordered(shift / 2), narrow);
            prop_assert_eq!(narrow.rotated(shift / 2).unrotated(shift / 2), narrow);
        }
    }
}
