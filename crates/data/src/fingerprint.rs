//! Fingerprints: 160 bits of a hash of a chunk's bytes, by which equal chunks are found.
//!
//! Invariant: two chunks are taken as equal only if their fingerprints are equal and, for a kind that
//! [`needs_compare`](FingerprintKind::needs_compare), their bytes were compared too.
mod page_batch;

use page_batch::{MAX_PAGES, PAGE_BYTES, hash_pages};
use sha1::{Digest, Sha1};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Range;

/// Bytes of a fingerprint.
pub const FINGERPRINT_BYTES: usize = 20;

/// A chunk's fingerprint.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fingerprint(pub [u8; FINGERPRINT_BYTES]);

impl Hash for Fingerprint {
    /// Its bits are evenly distributed: some of them tell fingerprints apart as well as all, in half of the time.
    fn hash<H: Hasher>(&self, state: &mut H) {
        let (first, _) = self.0.as_chunks::<8>();
        state.write_u64(u64::from_le_bytes(first[0]));
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl Fingerprint {
    fn of_blake3(hash: &[u8; 32]) -> Fingerprint {
        let mut out = [0; FINGERPRINT_BYTES];
        out.copy_from_slice(&hash[..FINGERPRINT_BYTES]);
        Fingerprint(out)
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
                return Fingerprint::of_blake3(blake3::hash(chunk).as_bytes());
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

/// Makes the fingerprints of chunks that lie in one buffer; of chunks of 4 KiB several at a time, which is faster.
///
/// Invariant: each chunk that was pushed is reported exactly once, at the latest by [`FingerprintBatch::finish`].
pub struct FingerprintBatch<'a> {
    kind: FingerprintKind,
    /// The buffer.
    bytes: &'a [u8],
    /// Chunks of 4 KiB that wait for others: the number of each, and where it lies.
    waiting: Vec<(usize, &'a [u8; PAGE_BYTES])>,
}

impl<'a> FingerprintBatch<'a> {
    /// An empty one for chunks of `bytes`.
    pub fn new(kind: FingerprintKind, bytes: &'a [u8]) -> FingerprintBatch<'a> {
        FingerprintBatch {
            kind,
            bytes,
            waiting: Vec::with_capacity(MAX_PAGES),
        }
    }

    /// Adds the chunk at `place`. Calls `found` with the number and the fingerprint of each chunk that is hashed now.
    pub fn push(
        &mut self,
        number: usize,
        place: Range<usize>,
        mut found: impl FnMut(usize, Fingerprint),
    ) {
        let chunk = &self.bytes[place];
        match chunk.as_array() {
            Some(page) if self.kind == FingerprintKind::Blake3 => {
                self.waiting.push((number, page));
                if self.waiting.len() == MAX_PAGES {
                    self.finish(found);
                }
            }
            _ => found(number, self.kind.of(chunk)),
        }
    }

    /// Hashes and reports the chunks that still wait.
    pub fn finish(&mut self, mut found: impl FnMut(usize, Fingerprint)) {
        let mut pages = [&[0; PAGE_BYTES]; MAX_PAGES];
        for (page, (_, waiting)) in pages.iter_mut().zip(&self.waiting) {
            *page = waiting;
        }
        let hashes = hash_pages(&pages[..self.waiting.len()]);
        for ((number, _), hash) in self.waiting.drain(..).zip(hashes) {
            found(number, Fingerprint::of_blake3(&hash));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_testkit::random::{Random, seeded_bytes};

    #[test]
    fn each_chunk_of_a_batch_is_reported_once_with_its_own_fingerprint() {
        let bytes = seeded_bytes(2, 1 << 20);
        let mut random = Random::new(3);
        for kind in [FingerprintKind::Blake3, FingerprintKind::Sha1] {
            let mut places = Vec::new();
            let mut at = 0;
            while at + PAGE_BYTES <= bytes.len() {
                let len = if random.chance(80) {
                    PAGE_BYTES
                } else {
                    1 + random.index(PAGE_BYTES)
                };
                places.push(at..at + len);
                at += len;
            }
            let mut told = vec![None; places.len()];
            let mut tell = |number: usize, fingerprint| {
                assert_eq!(told[number].replace(fingerprint), None, "reported twice");
            };
            let mut batch = FingerprintBatch::new(kind, &bytes);
            for (number, place) in places.iter().enumerate() {
                batch.push(number, place.clone(), &mut tell);
            }
            batch.finish(&mut tell);
            batch.finish(&mut tell);
            for (place, told) in places.iter().zip(told) {
                assert_eq!(told, Some(kind.of(&bytes[place.clone()])));
            }
        }
    }
}
