//! The fingerprints of a container's chunks. They are made once, with the container, and never change.
//!
//! ```text
//! 0  1  version = 1
//! 1  1  kind of the fingerprints: 0 BLAKE3, 1 SHA-1, 2 of 8 bits, for tests
//! 2     20 for each chunk; all zero: it has none, and is never found
//! ```
use crate::fingerprint::{FINGERPRINT_BYTES, Fingerprint, FingerprintKind};

const VERSION: u8 = 1;
/// Stands for a missing fingerprint.
const NONE: [u8; FINGERPRINT_BYTES] = [0; FINGERPRINT_BYTES];

/// See the head of this file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fingerprints {
    /// Their kind. If it is not the store's kind, they are not used.
    pub kind: FingerprintKind,
    /// By chunk.
    pub of: Vec<Option<Fingerprint>>,
}

/// The number of a kind in records.
pub fn fingerprint_tag(kind: FingerprintKind) -> u8 {
    match kind {
        FingerprintKind::Blake3 => 0,
        FingerprintKind::Sha1 => 1,
        FingerprintKind::EightBits => 2,
    }
}

impl Fingerprints {
    /// The value of the record.
    pub fn value(&self) -> Vec<u8> {
        let mut value = vec![VERSION, fingerprint_tag(self.kind)];
        for fingerprint in &self.of {
            value.extend_from_slice(&fingerprint.map_or(NONE, |f| f.0));
        }
        value
    }

    /// Decodes a record; `None`: it is invalid.
    pub fn decode(value: &[u8]) -> Option<Fingerprints> {
        let (&[version, of], rest) = value.split_first_chunk()?;
        let kinds = [
            FingerprintKind::Blake3,
            FingerprintKind::Sha1,
            FingerprintKind::EightBits,
        ];
        let kind = kinds
            .into_iter()
            .find(|kind| fingerprint_tag(*kind) == of)?;
        let (all, odd) = rest.as_chunks::<FINGERPRINT_BYTES>();
        let known =
            |bytes: &[u8; FINGERPRINT_BYTES]| (*bytes != NONE).then_some(Fingerprint(*bytes));
        (version == VERSION && odd.is_empty()).then(|| Fingerprints {
            kind,
            of: all.iter().map(known).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprints_come_back_and_missing_ones_are_missing() {
        let all = Fingerprints {
            kind: FingerprintKind::Sha1,
            of: vec![
                Some(FingerprintKind::Sha1.of(b"one")),
                None,
                Some(FingerprintKind::Sha1.of(b"two")),
            ],
        };
        let mut value = all.value();
        assert_eq!(Fingerprints::decode(&value), Some(all));
        assert_eq!(Fingerprints::decode(&value[..value.len() - 1]), None);
        value[0] = 9;
        assert_eq!(Fingerprints::decode(&value), None);
        assert_eq!(Fingerprints::decode(&[1]), None);
    }
}
