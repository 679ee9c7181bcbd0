//! Where anchors lay on the grid when they were cut last: an approximate map in a fixed number of bytes.
//!
//! ```text
//! slot    32 - p bits  tag: bits of the anchor's identity, never 0; a slot of 0 is empty
//!              p bits  offset of the anchor from the line of the grid before it; 2^p is the chunk size
//!
//! saved   0  4  "FBAN"
//!         4  1  version = 1
//!         5  1  p
//!         6  2  zero
//!         8  8  n, number of slots, little-endian as all
//!        16 4n  slots
//!           4   CRC32C of all before
//! ```
//! A bucket is [`WAYS`] slots that lie in one line of the processor's cache. An anchor belongs to one bucket. In a full one it
//! takes the slot that its identity names: so the table holds all anchors while they fit, then a random part of
//! them, newer ones more likely. One anchor of those near each other is enough to find the grid again.
//!
//! Invariants: a lookup may answer for another anchor with the same tag (one in some 10,000 for 64 KiB chunks, in some 100,000
//! for 4 KiB), and an answer may be old: it is a hint. Threads share the slots without a lock; each is read and written whole.
use super::{ChunkSize, anchor::Anchor};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Slots of a bucket.
const WAYS: usize = 8;
const MAGIC: &[u8; 4] = b"FBAN";
const VERSION: u8 = 1;
const HEAD: usize = 16;

/// Remembers how content was cut, so that the same content elsewhere is cut at the same places. One table for all logs of a store, shared
/// by threads. A hint: without it fewer duplicates are found.
#[derive(Debug)]
pub struct AnchorTable {
    size: ChunkSize,
    slots: Box<[AtomicU32]>,
}

impl AnchorTable {
    /// An empty table of `budget` bytes for chunks of this size.
    pub fn new(size: ChunkSize, budget: usize) -> AnchorTable {
        let buckets = (budget / (4 * WAYS)).max(1);
        AnchorTable {
            size,
            slots: (0..buckets * WAYS).map(|_| AtomicU32::new(0)).collect(),
        }
    }

    /// The chunk size it is for.
    pub fn chunk_size(&self) -> ChunkSize {
        self.size
    }

    /// Its memory, bytes.
    pub fn memory(&self) -> usize {
        4 * self.slots.len()
    }

    /// The anchor's distance from the line of the grid before it, when it was cut last.
    pub(super) fn offset(&self, anchor: &Anchor) -> Option<u64> {
        let (bucket, tag) = self.bucket(anchor);
        let slots = bucket.iter().map(|slot| slot.load(Relaxed));
        let mut same = slots.filter(|slot| slot & self.tag_mask() == tag);
        same.next().map(|slot| u64::from(slot & !self.tag_mask()))
    }

    /// Remembers the anchor's distance from the line before it.
    pub(super) fn learn(&self, anchor: &Anchor, offset: u64) {
        let (bucket, tag) = self.bucket(anchor);
        let new = tag | (offset as u32 & !self.tag_mask());
        let mut slot = &bucket[anchor.id as usize % WAYS];
        let mut empty = None;
        for at in bucket {
            match at.load(Relaxed) {
                // Most are known: their line stays shared by all processors.
                same if same == new => return,
                same if same & self.tag_mask() == tag => {
                    empty = Some(at);
                    break;
                }
                0 => empty = empty.or(Some(at)),
                _ => {}
            }
        }
        slot = empty.unwrap_or(slot);
        slot.store(new, Relaxed);
    }

    fn tag_mask(&self) -> u32 {
        !(self.size.0 - 1)
    }

    /// Identities have 60 bits: the bucket comes of the upper half, the tag of the lower.
    fn bucket(&self, anchor: &Anchor) -> (&[AtomicU32], u32) {
        let upper = (anchor.id >> 28) & 0xFFFF_FFFF;
        let buckets = (self.slots.len() / WAYS) as u64;
        let first = ((upper * buckets) >> 32) as usize * WAYS;
        let tag = (anchor.id as u32) << 4 & self.tag_mask();
        let tag = if tag == 0 { self.size.0 } else { tag };
        (&self.slots[first..first + WAYS], tag)
    }

    /// The bytes of the file, which [`AnchorTable::decode`] reads. An old file is as right as a new one.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEAD + self.memory() + 4);
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&[VERSION, self.size.0.trailing_zeros() as u8, 0, 0]);
        out.extend_from_slice(&(self.slots.len() as u64).to_le_bytes());
        for slot in &self.slots {
            out.extend_from_slice(&slot.load(Relaxed).to_le_bytes());
        }
        let crc = forebay_checksum::crc32c(&out);
        out.extend_from_slice(&crc.to_le_bytes());
        out
    }

    /// The saved table; an empty one if the bytes are damaged, or of another version, chunk size or budget.
    pub fn decode(size: ChunkSize, budget: usize, saved: &[u8]) -> AnchorTable {
        let mut table = AnchorTable::new(size, budget);
        let empty = table.encode();
        let whole = saved.len() == empty.len() && saved[..HEAD] == empty[..HEAD];
        if let Some((body, crc)) = saved.split_last_chunk().filter(|_| whole)
            && u32::from_le_bytes(*crc) == forebay_checksum::crc32c(body)
        {
            let (slots, _) = body[HEAD..].as_chunks();
            table.slots = slots
                .iter()
                .map(|slot| AtomicU32::new(u32::from_le_bytes(*slot)))
                .collect();
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_testkit::random::Random;

    fn anchors(seed: u64, n: usize) -> Vec<(Anchor, u64)> {
        let mut random = Random::new(seed);
        let one = |_| {
            let id = random.next() >> 4;
            (Anchor { addr: 0, id }, random.below(4096))
        };
        (0..n).map(one).collect()
    }

    #[test]
    fn what_fits_is_remembered_and_the_newest_offset_counts() {
        let table = AnchorTable::new(ChunkSize::MIN, 64 << 10);
        let anchors = anchors(1, 4000);
        for (anchor, offset) in &anchors {
            table.learn(anchor, offset ^ 1);
            table.learn(anchor, *offset);
        }
        let right = anchors.iter().filter(|a| table.offset(&a.0) == Some(a.1));
        assert!(right.count() > 3990);
    }

    #[test]
    fn a_full_table_keeps_newer_anchors_rather_and_takes_few_for_others() {
        let table = AnchorTable::new(ChunkSize::MIN, 64 << 10);
        let anchors = anchors(2, 100_000);
        for (anchor, offset) in &anchors {
            table.learn(anchor, *offset);
        }
        let right = |part: &[(Anchor, u64)]| {
            let right = part.iter().filter(|a| table.offset(&a.0) == Some(a.1));
            right.count()
        };
        let (old, new) = (right(&anchors[90_000..92_000]), right(&anchors[98_000..]));
        assert!(new > 1600 && old < new && old > 500, "{old} {new}");
        let strangers = self::anchors(3, 100_000);
        let strangers = strangers.iter().filter(|a| table.offset(&a.0).is_some());
        assert!(strangers.count() < 10);
    }

    #[test]
    fn a_saved_table_reads_back_whole_or_as_an_empty_one() {
        let table = AnchorTable::new(ChunkSize::MIN, 1 << 10);
        for (anchor, offset) in &anchors(4, 500) {
            table.learn(anchor, *offset);
        }
        let saved = table.encode();
        let read = |saved: &[u8]| AnchorTable::decode(ChunkSize::MIN, 1 << 10, saved).encode();
        assert_eq!(read(&saved), saved);
        let empty = AnchorTable::new(ChunkSize::MIN, 1 << 10).encode();
        for at in 0..saved.len() {
            let mut damaged = saved.clone();
            damaged[at] ^= 1 << (at % 8);
            assert_eq!(read(&damaged), empty);
            assert_eq!(read(&saved[..at]), empty);
        }
        let other = ChunkSize(8 << 10);
        let other = AnchorTable::decode(other, 1 << 10, &saved);
        assert!(other.slots.iter().all(|slot| slot.load(Relaxed) == 0));
    }
}
