//! Compares fingerprints with the bytes of their chunks.
//!
//! A chunk with a wrong fingerprint reads right. But its bytes are not found when they are written again, and of bytes that do have that
//! fingerprint only a checksum tells that they are not the chunk's.
use super::{ByteCheck, StoredBytes};
use crate::container::{ChunkCounts, Container, load_fingerprints};
use crate::fingerprint::FingerprintBatch;
use forebay_proto::Result;

impl StoredBytes<'_> {
    /// The named chunks of a container whose fingerprint is not that of their bytes; without counts of all stored ones. Of a container with
    /// damaged bytes, and where bytes are not read, none is found. [`StoredBytes::check_container`] goes before.
    ///
    /// # Errors
    /// As the store.
    pub fn wrong_fingerprints(
        &mut self,
        container: &Container,
        counts: Option<&ChunkCounts>,
    ) -> Result<Vec<usize>> {
        if self.byte_check != ByteCheck::Bytes || self.bad.contains_key(&container.id) {
            return Ok(Vec::new());
        }
        let Some(stored) = load_fingerprints(self.store, container.id)? else {
            return Ok(Vec::new());
        };
        let is_named = |i: usize| {
            container.chunk(i).crc.is_some() && counts.is_none_or(|counts| counts.0[i] > 0)
        };
        let is_compared = |i: usize| is_named(i) && stored.of.get(i).is_some_and(Option::is_some);
        if !(0..container.count()).any(is_compared) {
            return Ok(Vec::new());
        }
        let needed = container.needed_parts(is_compared);
        // Whatever keeps the bytes from being decoded, `check_container` has told of it.
        let Ok(Some(raw)) = self.raw_bytes(container, &needed) else {
            return Ok(Vec::new());
        };
        let mut wrong = Vec::new();
        let mut found = |i: usize, fingerprint| {
            if stored.of[i] != Some(fingerprint) {
                wrong.push(i);
            }
        };
        let mut batch = FingerprintBatch::new(stored.kind, &raw);
        for i in (0..container.count()).filter(|i| is_compared(*i)) {
            let positions = container.positions(i);
            let place = positions.start as usize..positions.end as usize;
            batch.push(i, place, &mut found);
        }
        batch.finish(&mut found);
        wrong.sort_unstable();
        Ok(wrong)
    }
}
