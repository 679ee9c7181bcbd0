//! Which bytes of a file are looked at: all of a small one, containers from everywhere in a larger one.
use crate::container::MAX_CONTAINER_LEN;
use std::ops::Range;

/// A container of a file, to be encoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SampledContainer {
    /// Where it begins in the file.
    pub at: u64,
    /// At most [`MAX_CONTAINER_LEN`].
    pub bytes: Vec<u8>,
}

/// Containers of a file of `len` bytes from `offset` on, at most `most` bytes of them but at least one, ascending. If not all fit, the first
/// and the last are among them, and the others lie at even distances.
pub fn sampled_ranges(offset: u64, len: u64, most: u64) -> Vec<Range<u64>> {
    let container = MAX_CONTAINER_LEN as u64;
    let all = len.saturating_sub(offset).div_ceil(container);
    let sampled = all.min((most / container).max(1));
    let range = |k: u64| {
        // 128 bits: files may be of any size.
        let nth = match sampled {
            0 | 1 => 0,
            _ => (u128::from(k) * u128::from(all - 1) / u128::from(sampled - 1)) as u64,
        };
        let start = offset + nth * container;
        start..len.min(start.saturating_add(container))
    };
    (0..sampled).map(range).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_small_file_is_sampled_whole() {
        assert_eq!(
            sampled_ranges(3, 2 * MIB + 5, 64 * MIB),
            [3..MIB + 3, MIB + 3..2 * MIB + 3, 2 * MIB + 3..2 * MIB + 5]
        );
        assert!(sampled_ranges(0, 0, MIB).is_empty());
        assert!(sampled_ranges(9, 9, MIB).is_empty());
    }

    proptest! {
        #[test]
        fn a_sample_is_within_the_limit_and_reaches_both_ends(
            offset in 0u64..100, len in 0u64..1 << 62, most in 2 * MIB..100 * MIB,
        ) {
            let ranges = sampled_ranges(offset, len, most);
            let bytes: u64 = ranges.iter().map(|r| r.end - r.start).sum();
            prop_assert!(bytes <= most);
            prop_assert!(ranges.is_sorted_by(|a, b| a.end <= b.start));
            if len > offset {
                prop_assert_eq!(ranges.first().map(|r| r.start), Some(offset));
                prop_assert_eq!(ranges.last().map(|r| r.end), Some(len));
            }
        }
    }
}
