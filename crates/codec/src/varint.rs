//! Integers of 1 to 10 bytes: 7 bits a byte, low bits first, the top bit set on all but the last. Signed ones fold their sign
//! into the lowest bit (zigzag), so that small differences of either sign are short.

/// Appends `value`.
#[inline]
pub fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// The bytes that [`put`] takes.
pub fn len(value: u64) -> usize {
    (70 - (value | 1).leading_zeros() as usize) / 7
}

/// Takes the next integer off `bytes`; `None` at their end, or if it has more than 64 bits.
#[inline]
pub fn take(bytes: &mut &[u8]) -> Option<u64> {
    let (&first, rest) = bytes.split_first()?;
    *bytes = rest;
    if first < 0x80 {
        return Some(first.into());
    }
    let mut value = u64::from(first & 0x7f);
    for shift in (7..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        if shift == 63 && byte > 1 {
            return None;
        }
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

/// The sign in the lowest bit.
pub fn fold(difference: u64) -> u64 {
    (difference << 1) ^ ((difference as i64 >> 63) as u64)
}

/// The inverse of [`fold`].
#[inline]
pub fn unfold(folded: u64) -> u64 {
    (folded >> 1) ^ (folded & 1).wrapping_neg()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn integers_come_back_and_have_the_length_told(value: u64, shift in 0u32..64) {
            let value = value >> shift;
            let mut out = Vec::new();
            put(&mut out, value);
            prop_assert_eq!(out.len(), len(value));
            let mut rest = &out[..];
            prop_assert_eq!(take(&mut rest), Some(value));
            prop_assert!(rest.is_empty());
            prop_assert_eq!(take(&mut &out[..out.len() - 1]), None);
            prop_assert_eq!(unfold(fold(value)), value);
        }
    }

    #[test]
    fn small_differences_of_either_sign_are_short_and_what_is_too_long_is_refused() {
        assert_eq!([0, 1, u64::MAX, 63].map(|d| len(fold(d))), [1; 4]);
        assert_eq!(take(&mut &[0xff; 10][..]), None);
        assert_eq!(take(&mut &[0x80; 11][..]), None);
    }
}
