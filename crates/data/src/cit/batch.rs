//! Finds a sequence of chunks, as they were cut one after the other, while the index is sampled.
//!
//! A single lookup finds a chunk only if it has an entry. A batch finds more, in up to three passes. The first looks up each chunk;
//! each hit caches the list of its container. The second finds chunks that are in a list which the first pass read after their
//! turn. Before the third, where a hit lay in the last quarter of a container, the list of the next container (by number) is read
//! ahead.
use super::{ChunkLocation, Cit, FingerprintLists};
use crate::fingerprint::Fingerprint;
use forebay_proto::Result;
use std::collections::HashMap;
use std::sync::atomic::Ordering::Relaxed;

/// Lists that one batch reads ahead, at most.
const MOST_READ_AHEAD: usize = 16;

impl Cit {
    /// As `find`, for the fingerprints of consecutive chunks; finds more of them than single calls would. Best with 256 or more at a
    /// time. `accept` gets the index of the fingerprint.
    ///
    /// # Errors
    /// As `lists` and `accept`.
    pub fn find_batch(
        &self,
        fingerprints: &[Fingerprint],
        lists: &dyn FingerprintLists,
        mut accept: impl FnMut(usize, ChunkLocation) -> Result<bool>,
    ) -> Result<Vec<Option<ChunkLocation>>> {
        let mut found = vec![None; fingerprints.len()];
        let mut look = |found: &mut Vec<Option<ChunkLocation>>| {
            let before = self.list_reads.load(Relaxed);
            for (i, fingerprint) in fingerprints.iter().enumerate() {
                if found[i].is_none() {
                    found[i] = self.find(fingerprint, lists, |location| accept(i, location))?;
                }
            }
            // Reads of other threads count too: then a pass is repeated for nothing.
            Ok::<_, forebay_proto::Error>(self.list_reads.load(Relaxed) > before)
        };
        let read = look(&mut found)?;
        if !self.is_sampled() {
            return Ok(found);
        }
        if read && found.contains(&None) {
            look(&mut found)?;
        }
        if self.read_ahead(&found, lists)? && found.contains(&None) {
            look(&mut found)?;
        }
        Ok(found)
    }

    /// Where a hit lies in the last quarter of a container, reads the list of the next container. Whether it read one.
    fn read_ahead(
        &self,
        found: &[Option<ChunkLocation>],
        lists: &dyn FingerprintLists,
    ) -> Result<bool> {
        let mut last: HashMap<u64, u32> = HashMap::new();
        for location in found.iter().flatten() {
            let last = last.entry(location.container).or_default();
            *last = location.index.max(*last);
        }
        let mut read = 0;
        for (container, index) in last {
            let Ok(len) = self.lists.len(container) else {
                continue;
            };
            if (index as usize) < len - len / 4 || read == MOST_READ_AHEAD {
                continue;
            }
            if let Err(epoch) = self.lists.len(container + 1) {
                read += usize::from(self.read_list(container + 1, lists, epoch)?);
            }
        }
        Ok(read > 0)
    }
}
