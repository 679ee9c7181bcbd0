//! Entries of one part of the table: a sorted array with gaps, by open addressing (ordered linear probing).
//!
//! ```text
//! entry   24 bits  hash: of the fingerprint
//!          4 bits  level: how long the entry stays when entries are thinned out
//!         36 bits  container
//! ```
//! An entry's home is the slot `hash * homes / 2^24`, and entries are in the order of their hashes. So a search ends at the first
//! larger hash, growing copies in order, and a removal closes the gap: there are no marks of removed entries. Where a chunk lies in
//! its container is not kept: its list is searched anyway, to make sure of the fingerprint.
//!
//! Invariants: hashes ascend; no entry lies before its home; no empty slot lies between an entry and its home.
use super::MAX_CONTAINERS;

/// Bits of a hash.
const HASH_BITS: u32 = 24;
const HASH_SHIFT: u32 = 64 - HASH_BITS;
const LEVEL_SHIFT: u32 = 36;
const EMPTY: u64 = u64::MAX;
/// Load factor: at most this many of 10 homes are used.
const LOAD: usize = 9;
/// Slots after the last home in a new table.
const SLACK: usize = 16;
/// Entries with the same hash, at most. More would mean that fingerprints do not tell chunks apart.
const SAME_HASH: usize = 16;

/// A fingerprint's hash in one part of the table.
pub type Hash = u32;

/// The fields of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// Below 2^24.
    pub hash: Hash,
    /// Below 16.
    pub level: u8,
    /// Below [`MAX_CONTAINERS`].
    pub container: u64,
}

impl Entry {
    /// The entry as a slot's value.
    pub fn packed(self) -> u64 {
        u64::from(self.hash) << HASH_SHIFT | u64::from(self.level) << LEVEL_SHIFT | self.container
    }

    /// Decodes a slot's value; `None`: the slot is empty.
    pub fn unpacked(slot: u64) -> Option<Entry> {
        let container = slot & ((1 << LEVEL_SHIFT) - 1);
        (container < MAX_CONTAINERS).then_some(Entry {
            hash: hash_of(slot),
            level: (slot >> LEVEL_SHIFT) as u8 & 15,
            container,
        })
    }
}

fn hash_of(slot: u64) -> Hash {
    (slot >> HASH_SHIFT) as Hash
}

/// See the head of this module.
#[derive(Debug, Default)]
pub struct SlotTable {
    slots: Vec<u64>,
    homes: usize,
    len: usize,
}

impl SlotTable {
    /// Number of entries.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Its memory, bytes.
    pub fn memory(&self) -> usize {
        8 * self.slots.capacity()
    }

    /// Additional memory if adding an entry makes it grow; 0 if it need not.
    pub fn growth(&self) -> usize {
        match self.is_full() {
            true => 8 * (self.larger() - self.homes),
            false => 0,
        }
    }

    /// The entries with this hash.
    pub fn find(&self, hash: Hash) -> impl Iterator<Item = Entry> {
        let from = self.lower_bound(hash);
        let slots = self.slots.get(from..).unwrap_or_default();
        let same = slots.iter().take_while(move |slot| hash_of(**slot) == hash);
        same.filter_map(|slot| Entry::unpacked(*slot))
    }

    /// Adds an entry, growing if necessary. `false`: it is there already, or there are too many with its hash.
    pub fn insert(&mut self, entry: Entry) -> bool {
        let mut same = 0;
        for known in self.find(entry.hash) {
            same += 1;
            if known == entry || same == SAME_HASH {
                return false;
            }
        }
        if self.is_full() {
            self.resize(self.larger(), |_| true);
        }
        let mut at = self.lower_bound(entry.hash);
        let mut slot = entry.packed();
        // What follows moves by one, up to the next gap.
        while slot != EMPTY {
            if at == self.slots.len() {
                self.slots.reserve_exact(SLACK);
                self.slots.push(EMPTY);
            }
            std::mem::swap(&mut slot, &mut self.slots[at]);
            at += 1;
        }
        self.len += 1;
        true
    }

    /// Removes an entry. `false`: it is not there.
    pub fn remove(&mut self, entry: Entry) -> bool {
        let from = self.lower_bound(entry.hash);
        let same = self.find(entry.hash).position(|known| known == entry);
        let Some(same) = same else {
            return false;
        };
        let mut gap = from + same;
        // Entries behind move back, up to one that is at home.
        while let Some(next) = self.slots.get(gap + 1).copied()
            && next != EMPTY
            && self.home(hash_of(next)) <= gap
        {
            self.slots[gap] = next;
            gap += 1;
        }
        self.slots[gap] = EMPTY;
        self.len -= 1;
        true
    }

    /// Removes entries for which `keep` is false, and shrinks the memory.
    pub fn retain(&mut self, keep: impl Fn(Entry) -> bool) {
        let kept = self.iter().filter(|entry| keep(*entry)).count();
        self.resize(kept * 10 / LOAD + 1, keep);
    }

    /// All entries, by their hashes.
    pub fn iter(&self) -> impl Iterator<Item = Entry> {
        self.slots.iter().filter_map(|slot| Entry::unpacked(*slot))
    }

    fn is_full(&self) -> bool {
        self.len >= self.homes * LOAD / 10
    }

    fn larger(&self) -> usize {
        self.homes + self.homes / 8 + 16
    }

    fn home(&self, hash: Hash) -> usize {
        ((u64::from(hash) * self.homes as u64) >> HASH_BITS) as usize
    }

    /// The first slot from the hash's home on that is empty or has this hash or a larger one.
    fn lower_bound(&self, hash: Hash) -> usize {
        let home = self.home(hash).min(self.slots.len());
        let smaller = |slot: &u64| *slot != EMPTY && hash_of(*slot) < hash;
        home + self.slots[home..]
            .iter()
            .take_while(|slot| smaller(slot))
            .count()
    }

    fn resize(&mut self, homes: usize, keep: impl Fn(Entry) -> bool) {
        let old = std::mem::take(&mut self.slots);
        self.homes = homes;
        self.len = 0;
        self.slots = Vec::with_capacity(homes + SLACK);
        for entry in old.into_iter().filter_map(Entry::unpacked) {
            if keep(entry) {
                let home = self.home(entry.hash);
                if self.slots.len() < home {
                    self.slots.resize(home, EMPTY);
                }
                self.slots.push(entry.packed());
                self.len += 1;
            }
        }
        if self.slots.len() < homes {
            self.slots.resize(homes, EMPTY);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    /// Few hashes, also the first and the last, so that they meet.
    fn entries() -> impl Strategy<Value = Entry> {
        let hash = prop_oneof![0u32..40, (1u32 << 24) - 40..1 << 24, 0u32..1 << 24];
        let container = prop_oneof![0u64..5, MAX_CONTAINERS - 3..MAX_CONTAINERS];
        (hash, 0u8..16, container).prop_map(|(hash, level, container)| Entry {
            hash,
            level,
            container,
        })
    }

    proptest! {
        #[test]
        fn it_holds_what_a_set_holds(steps in prop::collection::vec((0u32..10, entries()), 0..400)) {
            let mut table = SlotTable::default();
            let mut model: BTreeSet<Entry> = BTreeSet::new();
            for (step, entry) in steps {
                let same = model.iter().filter(|e| e.hash == entry.hash).count();
                match step {
                    0..6 if same < SAME_HASH => prop_assert_eq!(table.insert(entry), model.insert(entry)),
                    6..9 => prop_assert_eq!(table.remove(entry), model.remove(&entry)),
                    9 if entry.level > 12 => {
                        table.retain(|e| e.level != entry.level);
                        model.retain(|e| e.level != entry.level);
                    }
                    _ => {}
                }
                let mut found: Vec<Entry> = table.find(entry.hash).collect();
                found.sort();
                prop_assert_eq!(found, model.iter().filter(|e| e.hash == entry.hash).copied().collect::<Vec<_>>());
                prop_assert_eq!(table.len(), model.len());
            }
            let all: BTreeSet<Entry> = table.iter().collect();
            prop_assert_eq!(&all, &model);
            prop_assert!(table.iter().map(|e| e.hash).is_sorted());
            for entry in all {
                prop_assert!(table.find(entry.hash).any(|e| e == entry));
            }
        }
    }

    #[test]
    fn an_entry_takes_about_ten_bytes_at_most_and_one_hash_has_few() {
        let mut table = SlotTable::default();
        let mut random = forebay_testkit::random::Random::new(1);
        for container in 0..100_000 {
            let hash = random.below(1 << 24) as u32;
            table.insert(Entry {
                hash,
                level: 0,
                container,
            });
            assert!(table.len() < 1000 || table.memory() * 10 <= table.len() * 102 + 2000);
        }
        let mut table = SlotTable::default();
        let added = (0..100).filter(|i| {
            table.insert(Entry {
                hash: 7,
                level: 0,
                container: *i,
            })
        });
        assert_eq!(added.count(), SAME_HASH);
    }
}
