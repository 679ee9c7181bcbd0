//! Fingerprints: 160 bits of a hash of a chunk's bytes, by which equal chunks are found.
//!
//! Invariant: two chunks are taken as equal only if their fingerprints are equal and, for a kind that
//! [`needs_compare`](FingerprintKind::needs_compare), their bytes were compared too.
use sha1::{Digest, Sha1};
use std::fmt;

/// Bytes of a fingerprint.
pub const FINGERPRINT_BYTES: usize = 20;

/// A chunk's fingerprint.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fingerprint(pub [u8; FINGERPRINT_BYTES]);

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// How fingerprints are made. All chunks of a store have fingerprints of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub enum FingerprintKind {
    /// BLAKE3, cut to 160 bits: no two different chunks with the same one are known or expected.
    #[default]
    Blake3,
    /// SHA-1, as in the paper. Different inputs with the same one have been published, so bytes are always compared.
    Sha1,
    /// 8 bits, so that tests meet different chunks with the same fingerprint. Not for stores.
    EightBits,
}

impl FingerprintKind {
    /// The fingerprint of a chunk.
    pub fn of(self, chunk: &[u8]) -> Fingerprint {
        let mut out = [0; FINGERPRINT_BYTES];
        match self {
            FingerprintKind::Blake3 => {
                out.copy_from_slice(&blake3::hash(chunk).as_bytes()[..FINGERPRINT_BYTES]);
            }
            FingerprintKind::Sha1 => out.copy_from_slice(&Sha1::digest(chunk)),
            // Zeros stand for no fingerprint in a container's record.
            FingerprintKind::EightBits => out.fill(blake3::hash(chunk).as_bytes()[0].max(1)),
        }
        Fingerprint(out)
    }

    /// Whether equal fingerprints may be of different chunks, so that the bytes must be compared.
    pub fn needs_compare(self) -> bool {
        match self {
            FingerprintKind::Blake3 => false,
            FingerprintKind::Sha1 | FingerprintKind::EightBits => true,
        }
    }
}
