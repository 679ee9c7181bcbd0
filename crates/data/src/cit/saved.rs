//! The index of chunks in a file, so that a start need not read the fingerprints of all containers.
//!
//! ```text
//!  0  4  "FCIT"
//!  4  1  version = 1
//!  5  1  r: one chunk of every 2^r has an entry
//!  6  2  n, number of parts, little-endian as all
//!  8  8  stamp: given by the caller, and new whenever the containers may have changed
//! 16 4n  entries of each part
//!     8  for each entry, part by part, ascending: its slot (`slots`)
//!     4  CRC32C of all before
//! ```
//! Entries of cached lists are left out. A file that deviates from this form is refused, and the index is rebuilt from the
//! containers. A superfluous entry would cost a list read and a missing one a duplicate, so neither makes a wrong result.
use super::slots::Entry;
use super::{CACHED, Cit, CitOptions, MAX_LEVEL};
use std::sync::atomic::Ordering::Relaxed;

const MAGIC: &[u8; 4] = b"FCIT";
const VERSION: u8 = 1;
const HEAD: usize = 16;

impl Cit {
    /// The file's bytes. `stamp`: a number that is never used twice; [`Cit::decode`] accepts only the same one.
    pub fn encode(&self, stamp: u64) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&[VERSION, self.rate.load(Relaxed) as u8]);
        out.extend_from_slice(&(self.shards.len() as u16).to_le_bytes());
        out.extend_from_slice(&stamp.to_le_bytes());
        let counts = out.len();
        out.resize(counts + 4 * self.shards.len(), 0);
        for (i, shard) in self.shards.iter().enumerate() {
            let start = out.len();
            // Not under the lock while it is sorted.
            let mut entries: Vec<u64> = {
                let shard = shard.lock();
                out.reserve(8 * shard.len());
                let kept = shard.iter().filter(|entry| entry.level != CACHED);
                kept.map(Entry::packed).collect()
            };
            entries.sort_unstable();
            for entry in &entries {
                out.extend_from_slice(&entry.to_le_bytes());
            }
            let count = ((out.len() - start) / 8) as u32;
            out[counts + 4 * i..][..4].copy_from_slice(&count.to_le_bytes());
        }
        let crc = forebay_checksum::crc32c(&out);
        out.extend_from_slice(&crc.to_le_bytes());
        out
    }

    /// Decodes a file. `None`: it is damaged, or of another version, stamp or budget; then the index must be rebuilt.
    pub fn decode(options: CitOptions, stamp: u64, saved: &[u8]) -> Option<Cit> {
        let cit = Cit::new(options);
        let (body, crc) = saved.split_last_chunk::<4>()?;
        let (head, rest) = body.split_first_chunk::<HEAD>()?;
        let shards = cit.shards.len();
        let same = head[..5] == [MAGIC, &[VERSION][..]].concat()
            && head[6..8] == (shards as u16).to_le_bytes()
            && head[8..] == stamp.to_le_bytes();
        let rate = head[5];
        if !same || rate > MAX_LEVEL || forebay_checksum::crc32c(body) != u32::from_le_bytes(*crc) {
            return None;
        }
        let (counts, entries) = rest.split_at_checked(4 * shards)?;
        let (counts, _) = counts.as_chunks::<4>();
        let (mut entries, odd) = entries.as_chunks::<8>();
        cit.rate.store(u32::from(rate), Relaxed);
        for (count, shard) in counts.iter().zip(&cit.shards) {
            let (own, others) = entries.split_at_checked(u32::from_le_bytes(*count) as usize)?;
            entries = others;
            let mut shard = shard.lock();
            for slot in own {
                let entry = Entry::unpacked(u64::from_le_bytes(*slot))?;
                if entry.level < rate || entry.level == CACHED {
                    return None;
                }
                shard.insert(entry);
            }
            cit.count_bytes(0, shard.memory());
        }
        (entries.is_empty() && odd.is_empty()).then_some(cit)
    }
}
