//! Finding chunks that follow each other, where only some have entries: an entry of any of them leads to a list in which others
//! are, and the end of one list to the next container.
use super::{ChunkLocation, Cit, FingerprintLists};
use crate::fingerprint::Fingerprint;
use forebay_proto::Result;
use std::collections::HashMap;
use std::sync::atomic::Ordering::Relaxed;

/// Lists that one batch reads ahead.
const MOST_READ_AHEAD: usize = 16;

impl Cit {
    /// As `find` for chunks that follow each other, which finds more than one `find` for each: neighbours of what is found
    /// are found by it. Best with 256 or more at a time. `accept` is told which of them it is.
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
            // Reads of other threads may count too: then one looks again in vain.
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

    /// Reads the lists of containers behind those of which one of the last chunks was found. Whether it read one.
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
