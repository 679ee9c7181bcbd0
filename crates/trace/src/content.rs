//! The content of a write: bytes that follow from the file, their offset, and the number of the write.
//!
//! Words of eight bytes stand at multiples of eight in the file, so any part of a write can be made or checked alone,
//! and writes, files and places look different from each other and from holes: what is lost, stale or misplaced shows.

/// Bytes of one write. `sequence` 0 is what a file held before the trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Content {
    key: u64,
}

impl Content {
    /// The content of write number `sequence` to file number `file`.
    pub fn new(file: u32, sequence: u64) -> Content {
        Content {
            key: mix(u64::from(file) ^ 0x464F_5245_4241_5921).wrapping_add(mix(sequence)),
        }
    }

    /// The word at `index * 8`.
    fn word(self, index: u64) -> [u8; 8] {
        // One round is enough to tell places apart, and keeps pace with memory.
        let z = (index.wrapping_add(self.key)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (z ^ (z >> 29) ^ self.key).to_le_bytes()
    }

    /// Fills `buf` with the bytes at `offset`.
    pub fn fill(self, offset: u64, buf: &mut [u8]) {
        let head = (offset.wrapping_neg() % 8).min(buf.len() as u64) as usize;
        let (first, rest) = buf.split_at_mut(head);
        if head > 0 {
            let within = (offset % 8) as usize;
            first.copy_from_slice(&self.word(offset / 8)[within..within + head]);
        }
        let mut index = offset.div_ceil(8);
        let (words, last) = rest.as_chunks_mut::<8>();
        for word in words {
            *word = self.word(index);
            index += 1;
        }
        if !last.is_empty() {
            last.copy_from_slice(&self.word(index)[..last.len()]);
        }
    }

    /// The index of the first byte of `buf` that is not what stands at `offset`, and what should be there.
    pub fn verify(self, offset: u64, buf: &[u8]) -> Result<(), (usize, u8)> {
        let head = (offset.wrapping_neg() % 8).min(buf.len() as u64) as usize;
        let (first, rest) = buf.split_at(head);
        let mut expected = [0; 8];
        self.fill(offset, &mut expected[..head]);
        differ(&expected[..head], first, 0)?;
        let mut index = offset.div_ceil(8);
        let (words, last) = rest.as_chunks::<8>();
        for (i, word) in words.iter().enumerate() {
            let expected = self.word(index);
            if *word != expected {
                return differ(&expected, word, head + i * 8);
            }
            index += 1;
        }
        differ(
            &self.word(index)[..last.len()],
            last,
            buf.len() - last.len(),
        )
    }
}

/// Verifies that `buf` is a hole.
pub fn verify_zeros(buf: &[u8]) -> Result<(), (usize, u8)> {
    match buf.iter().position(|b| *b != 0) {
        Some(at) => Err((at, 0)),
        None => Ok(()),
    }
}

fn differ(expected: &[u8], found: &[u8], at: usize) -> Result<(), (usize, u8)> {
    match expected.iter().zip(found).position(|(e, f)| e != f) {
        Some(i) => Err((at + i, expected[i])),
        None => Ok(()),
    }
}

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30))
        .wrapping_add(0x9E37_79B9_7F4A_7C15)
        .wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_part_is_the_same_as_in_the_whole(start in 0..100u64, len in 0..200usize, base in 0..u64::MAX / 2, seq: u64) {
            let content = Content::new(3, seq);
            let mut whole = vec![0; 300];
            content.fill(base, &mut whole);
            let mut part = vec![0; len];
            content.fill(base + start, &mut part);
            let place = start as usize..start as usize + len;
            prop_assert_eq!(&whole[place], &part[..]);
            prop_assert_eq!(content.verify(base + start, &part), Ok(()));
        }

        #[test]
        fn the_first_wrong_byte_is_found(len in 1..200usize, at: prop::sample::Index, offset in 0..99u64, flip in 1..=255u8) {
            let content = Content::new(0, 1);
            let mut buf = vec![0; len];
            content.fill(offset, &mut buf);
            let at = at.index(len);
            let right = buf[at];
            for b in &mut buf[at..] {
                *b ^= flip;
            }
            prop_assert_eq!(content.verify(offset, &buf), Err((at, right)));
        }
    }

    #[test]
    fn writes_files_and_places_differ() {
        let page = |file, seq, offset| {
            let mut buf = [0; 64];
            Content::new(file, seq).fill(offset, &mut buf);
            buf
        };
        let mut pages = std::collections::HashSet::new();
        for file in 0..20 {
            for seq in 0..20 {
                for place in 0..20 {
                    assert!(pages.insert(page(file, seq, place * 4096)));
                }
            }
        }
        assert!(!pages.contains(&[0; 64]));
    }
}
