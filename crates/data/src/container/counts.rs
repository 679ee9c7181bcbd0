//! How often spans, and holds of bases, name each chunk of a container: once for each run of each such record that has a byte of it.
//!
//! ```text
//! 0  1  version = 1
//! 1     the count of each chunk, varint
//! ```
use forebay_codec::varint;

const VERSION: u8 = 1;

/// See the head of this file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ChunkCounts(pub Box<[u64]>);

impl ChunkCounts {
    /// Counts of 0 for this many chunks.
    pub fn none(chunks: usize) -> ChunkCounts {
        ChunkCounts(vec![0; chunks].into())
    }

    /// Whether no chunk is named.
    pub fn are_zero(&self) -> bool {
        self.0.iter().all(|count| *count == 0)
    }

    /// The value of the record.
    pub fn value(&self) -> Vec<u8> {
        let mut value = vec![VERSION];
        self.0
            .iter()
            .for_each(|count| varint::put(&mut value, *count));
        value
    }

    /// Decodes the record of a container with this many chunks.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn decode(value: &[u8], chunks: usize) -> Result<ChunkCounts, &'static str> {
        let (version, mut rest) = value.split_first().ok_or("cut short")?;
        if *version != VERSION {
            return Err("unknown version");
        }
        if chunks > rest.len() {
            return Err("cut short");
        }
        let counts = (0..chunks).map(|_| varint::take(&mut rest));
        let counts: Option<Box<[u64]>> = counts.collect();
        match (counts, rest.is_empty()) {
            (Some(counts), true) => Ok(ChunkCounts(counts)),
            _ => Err("of another number of chunks"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn counts_come_back_and_others_are_refused(counts in prop::collection::vec(any::<u64>(), 0..50)) {
            let counts = ChunkCounts(counts.into());
            let (value, n) = (counts.value(), counts.0.len());
            prop_assert_eq!(ChunkCounts::decode(&value, n), Ok(counts));
            prop_assert!(ChunkCounts::decode(&value, n + 1).is_err());
            prop_assert!(n == 0 || ChunkCounts::decode(&value, n - 1).is_err());
            prop_assert!(ChunkCounts::decode(&value[..value.len() - 1], n).is_err());
        }
    }
}
