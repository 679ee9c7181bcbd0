//! The fingerprint index alone: a chain of checkpoints without bytes, whose fingerprints are looked up and stored as settling does.
//!
//! A chunk's number and version in the chain stand for its bytes. Containers are lists of these, from which the index reads
//! fingerprints as it would from the store. `found_ratio` is the share of the unchanged chunks that were found; an exact index
//! would find all.
use super::cases::CHAIN_INPLACE;
use super::chain::{BLOCK_BYTES, Chain};
use crate::fail::{Failure, Result};
use crate::report::Values;
use forebay_data::cit::{ChunkLocation, Cit, CitOptions, FingerprintLists};
use forebay_data::fingerprint::{FINGERPRINT_BYTES, Fingerprint};
use forebay_testkit::random::Random;

/// Memory of the index for each TiB that is stored: what settling is to manage with.
pub const BYTES_PER_TIB: u64 = 64 << 20;
/// Chunks of a container of 1 MiB.
const CONTAINER_CHUNKS: usize = 256;
/// Chunks that are looked up together.
const BATCH_CHUNKS: usize = 256;
const TIB: u64 = 1 << 40;

/// What is stored: contents by container.
#[derive(Default)]
struct StoredContents(Vec<Vec<u64>>);

impl FingerprintLists for StoredContents {
    fn fingerprints(
        &self,
        container: u64,
    ) -> forebay_proto::Result<Option<Vec<Option<Fingerprint>>>> {
        let list = self.0.get(container as usize);
        let fingerprints = |list: &Vec<u64>| list.iter().map(|c| Some(fingerprint(*c))).collect();
        Ok(list.map(fingerprints))
    }
}

impl StoredContents {
    fn push(&mut self, content: u64) -> ChunkLocation {
        if self
            .0
            .last()
            .is_none_or(|list| list.len() == CONTAINER_CHUNKS)
        {
            self.0.push(Vec::with_capacity(CONTAINER_CHUNKS));
        }
        let container = self.0.len() - 1;
        let list = &mut self.0[container];
        list.push(content);
        ChunkLocation {
            container: container as u64,
            index: list.len() as u32 - 1,
        }
    }

    fn at(&self, location: ChunkLocation) -> Option<u64> {
        let list = self.0.get(location.container as usize)?;
        list.get(location.index as usize).copied()
    }

    fn chunks(&self) -> u64 {
        self.0.iter().map(|list| list.len() as u64).sum()
    }
}

/// Stands for the hash of a content.
fn fingerprint(content: u64) -> Fingerprint {
    let mut bytes = [0; FINGERPRINT_BYTES];
    // The states of neighbours would be those of one sequence.
    let state = Random::new(content).next();
    Random::new(state).fill(&mut bytes);
    Fingerprint(bytes)
}

/// A chain of which an exact index would store so many chunks.
///
/// # Errors
/// If the index answers a chunk that is another one.
pub fn run(chunks: u64, seed: u64) -> Result<Values> {
    let checkpoints = CHAIN_INPLACE.checkpoints as u64;
    // All of the first, and a fifth of each other one.
    let size = chunks * 5 / (5 + checkpoints - 1) * BLOCK_BYTES;
    let budget = (chunks * BLOCK_BYTES) / (TIB / BYTES_PER_TIB);
    let cit = Cit::new(CitOptions {
        budget: budget as usize,
    });
    let mut chain = Chain::new(CHAIN_INPLACE, size, seed);
    let mut stored = StoredContents::default();
    let (mut sought, mut repeated, mut found) = (0, 0, 0);
    for checkpoint in 0..checkpoints {
        if checkpoint > 0 {
            chain.advance();
        }
        let mut block = 0;
        for versions in chain.versions().chunks(BATCH_CHUNKS) {
            let contents = (block..).zip(versions);
            let contents = contents.map(|(block, version)| block << 8 | u64::from(*version));
            let contents: Vec<u64> = contents.collect();
            block += versions.len() as u64;
            sought += contents.len() as u64;
            let same = |version: &&u8| checkpoint > 0 && u64::from(**version) < checkpoint;
            repeated += versions.iter().filter(same).count() as u64;
            found += look_up(&cit, &mut stored, &contents)?;
        }
    }
    let stored_bytes = stored.chunks() * BLOCK_BYTES;
    let tib = stored_bytes as f64 / TIB as f64;
    Ok(vec![
        (
            "stored_ratio",
            "ratio",
            stored.chunks() as f64 / sought as f64,
        ),
        ("found_ratio", "ratio", found as f64 / repeated as f64),
        ("cit_bytes_per_tib", "B", cit.stats().memory as f64 / tib),
    ])
}

/// Looks contents up that follow each other, and stores those that are not found; how many are.
fn look_up(cit: &Cit, stored: &mut StoredContents, contents: &[u64]) -> Result<u64> {
    let fingerprints: Vec<Fingerprint> = contents.iter().map(|c| fingerprint(*c)).collect();
    let places = cit.find_batch(&fingerprints, stored, |_, _| Ok(true))?;
    let mut found = 0;
    for ((content, fingerprint), place) in contents.iter().zip(&fingerprints).zip(places) {
        match place {
            Some(place) if stored.at(place) == Some(*content) => found += 1,
            Some(_) => return Err(Failure::new("the index found another chunk")),
            None => cit.insert(stored.push(*content), fingerprint),
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_found_and_stored_makes_up_the_chain() {
        let values = run(1 << 17, 1).unwrap();
        let value = |metric| values.iter().find(|v| v.0 == metric).unwrap().2;
        let (stored, found) = (value("stored_ratio"), value("found_ratio"));
        // In so little memory two lists of containers are cached, so it is less than in the case itself.
        assert!(found > 0.7 && found <= 1.0, "{found}");
        // Of all, 64 % come again.
        assert!((stored - (1.0 - 0.64 * found)).abs() < 0.001, "{stored}");
        let most = BYTES_PER_TIB as f64 * 1.1;
        assert!(value("cit_bytes_per_tib") <= most);
    }
}
