//! Whether bytes are all zero.

/// Bytes that are looked at before it is decided whether to go on.
const STEP: usize = 64;

/// Whether all bytes are zero; ends soon after the first other byte.
pub fn is_zero(bytes: &[u8]) -> bool {
    let (steps, rest) = bytes.as_chunks::<STEP>();
    let zero = |step: &[u8]| step.iter().fold(0, |any, byte| any | byte) == 0;
    steps.iter().all(|step| zero(step)) && zero(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_byte_anywhere_is_seen() {
        for len in [1, 63, 64, 65, 1000, 4096] {
            let mut bytes = vec![0; len];
            assert!(is_zero(&bytes));
            for at in 0..len {
                bytes[at] = 1 << (at % 8);
                assert!(!is_zero(&bytes), "{at} of {len}");
                bytes[at] = 0;
            }
        }
        assert!(is_zero(&[]));
    }
}
