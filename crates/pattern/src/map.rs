//! The map of a file: its segments and global patterns by offset.
//!
//! Entries (a global pattern, a term, an extent) are sorted by their lowest byte; each node of the implicit balanced tree over
//! them knows the highest byte below it. So the entries around an offset are found in O(log m), and so is the end of a hole.
//!
//! # Invariants
//! 1. Of several extents that hold a byte, the one with the largest sequence wins; in one commit, that with the larger log
//!    address, which was written later; of different logs, that with the larger (member, log).
//! 2. A piece ends before any place where a newer extent may start. A hole ends before any byte that is held.

use crate::element::Element;
use crate::global::GlobalPattern;
use crate::loop_distribution::{ShapePart, distribute};
use crate::range_map::RangeMap;
use crate::shape::{Arena, ShapeKind};
use crate::shape_lookup;
use crate::stack::Term;
use crate::{PlacedExtent, Segment};

/// Items into which a term is split, at most: each is an entry of some 400 bytes.
const MAX_SPLIT_ITEMS: usize = 64;
/// Steps of searching for the end of a hole, at most. Then a hole is reported that may continue.
const MAX_HOLE_STEPS: usize = 64;

/// What is at an offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MapLookup {
    /// Bytes from this offset on, in one log.
    Data(PlacedExtent),
    /// No byte of the map up to here; there may be one here.
    Hole(u64),
    /// No byte from here on.
    End,
}

#[derive(Debug, Clone)]
pub(crate) enum EntryPart {
    /// A term of a segment: an extent, or loops that overlap.
    Term {
        term: Term,
        segment: u32,
    },
    GlobalPattern(Box<GlobalPattern>),
}

#[derive(Debug, Clone)]
pub(crate) struct MapEntry {
    pub(crate) lo: u64,
    pub(crate) hi: u64,
    /// The newest sequence in it.
    newest: u64,
    pub(crate) part: EntryPart,
}

impl MapEntry {
    /// The extent and its segment, if it is a single one of a segment.
    #[inline]
    pub(crate) fn extent(&self) -> Option<(Element, u32)> {
        let EntryPart::Term { term, segment } = self.part else {
            return None;
        };
        let ShapeKind::Leaf(len) = term.shape.kind() else {
            return None;
        };
        let (offset, addr) = (term.start, term.addr);
        Some((Element { offset, len, addr }, segment))
    }
}

/// A term as patterns of one slot, best such that can be gone through by rows: that takes a few additions an extent, where loops
/// that overlap are looked up extent by extent. So a term of which that is not so is split into its items, if there are few. `None`:
/// its extents overlap.
fn as_rows(segment: &Segment, term: &Term) -> Option<Vec<GlobalPattern>> {
    let arena = &segment.pattern.arena;
    let whole = GlobalPattern::single(segment, arena, term);
    if whole.as_ref().is_some_and(|global| global.lattice.joined) {
        return whole.map(|global| vec![global]);
    }
    let split = || {
        let mut to = Arena::default();
        let parts = distribute(arena, &mut to, term.shape, arena.depth(term.shape))?;
        if parts.len() > MAX_SPLIT_ITEMS {
            return None;
        }
        let part = |part: &ShapePart| {
            let term = Term {
                start: term.start.checked_add_signed(part.rel)?,
                addr: term.addr.checked_add(part.addr)?,
                shape: part.shape,
            };
            GlobalPattern::single(segment, &to, &term).filter(|global| global.lattice.joined)
        };
        parts.iter().map(part).collect()
    };
    split().or_else(|| whole.map(|global| vec![global]))
}

/// See the module.
#[derive(Debug, Clone, Default)]
pub struct PatternMap {
    pub(crate) entries: Vec<MapEntry>,
    /// Highest byte of the subtree whose root is the entry.
    highest: Vec<u64>,
    /// Heads of segments, and the loops of those that have overlapping terms.
    segments: Vec<Segment>,
}

impl PatternMap {
    /// The map of these patterns.
    pub fn new(globals: Vec<GlobalPattern>, segments: Vec<Segment>) -> PatternMap {
        let mut map = PatternMap::default();
        for global in globals {
            map.add(global);
        }
        for segment in segments {
            map.add_segment(segment);
        }
        map.flatten();
        map.entries.retain(|e| e.lo < e.hi);
        map.entries.sort_by_key(|e| e.lo);
        map.entries.shrink_to_fit();
        map.highest = vec![0; map.entries.len()];
        map.raise(0, map.entries.len());
        map
    }

    fn add(&mut self, global: GlobalPattern) {
        let (lo, hi) = global.bounds();
        let newest = global.writers.newest;
        let part = EntryPart::GlobalPattern(Box::new(global));
        self.entries.push(MapEntry {
            lo,
            hi,
            newest,
            part,
        });
    }

    fn add_segment(&mut self, mut segment: Segment) {
        let at = self.segments.len() as u32;
        let (limit, newest) = (segment.limit.unwrap_or(u64::MAX), segment.last);
        let mut kept = false;
        for term in &segment.pattern.terms {
            let is_loop = matches!(term.shape.kind(), ShapeKind::Loop(_));
            if is_loop && let Some(globals) = as_rows(&segment, term) {
                globals.into_iter().for_each(|global| self.add(global));
                continue;
            }
            kept |= is_loop;
            let (lo, hi) = segment.pattern.term_bounds(term);
            self.entries.push(MapEntry {
                lo: lo.min(limit),
                hi: hi.min(limit),
                newest,
                part: EntryPart::Term {
                    term: *term,
                    segment: at,
                },
            });
        }
        // Terms are entries now; only overlapping ones need their loops.
        segment.pattern.forget_terms(kept);
        self.segments.push(segment);
    }

    /// Extents of segments that newer extents of segments hide are left out or cut, so that a byte is in one of them only.
    fn flatten(&mut self) {
        let is_extent = |e: &mut MapEntry| e.extent().is_some();
        let mut leaves: Vec<MapEntry> = self.entries.extract_if(.., is_extent).collect();
        let order = |e: &MapEntry| {
            let (extent, segment) = e.extent().unwrap_or_default();
            (
                e.newest,
                extent.addr,
                self.segments[segment as usize].source,
            )
        };
        leaves.sort_by_key(order);
        let mut seen = RangeMap::default();
        for (place, leaf) in leaves.iter().enumerate() {
            seen.insert(leaf.lo..leaf.hi, place);
        }
        let visible = seen.iter().map(|(range, place)| MapEntry {
            lo: range.start,
            hi: range.end,
            ..leaves[place].clone()
        });
        self.entries.extend(visible);
    }

    fn raise(&mut self, from: usize, to: usize) -> u64 {
        if from >= to {
            return 0;
        }
        let mid = from.midpoint(to);
        let below = self.raise(from, mid).max(self.raise(mid + 1, to));
        self.highest[mid] = below.max(self.entries[mid].hi);
        self.highest[mid]
    }

    /// Number of entries.
    pub fn entries(&self) -> usize {
        self.entries.len()
    }

    /// The offset after the last byte that may be held.
    pub fn end(&self) -> u64 {
        let root = self.entries.len() / 2;
        self.highest.get(root).copied().unwrap_or(0)
    }

    /// Bytes of memory held.
    pub fn memory(&self) -> usize {
        let parts = self.entries.iter().map(|e| match &e.part {
            EntryPart::GlobalPattern(global) => global.memory(),
            _ => 0,
        });
        size_of::<PatternMap>()
            + self.entries.capacity() * size_of::<MapEntry>()
            + self.highest.capacity() * 8
            + parts.sum::<usize>()
            + self.segments.iter().map(Segment::memory).sum::<usize>()
    }

    /// Calls `each` with the entries whose bounds hold `offset`.
    pub(crate) fn around<'a>(
        &'a self,
        from: usize,
        to: usize,
        offset: u64,
        each: &mut impl FnMut(&'a MapEntry),
    ) {
        let (mut from, mut to) = (from, to);
        while from < to {
            let mid = from.midpoint(to);
            if self.highest[mid] <= offset {
                return;
            }
            let entry = &self.entries[mid];
            if entry.lo > offset {
                to = mid;
                continue;
            }
            self.around(from, mid, offset, each);
            if entry.hi > offset {
                each(entry);
            }
            from = mid + 1;
        }
    }

    pub(crate) fn hit(&self, entry: &MapEntry, offset: u64) -> Option<PlacedExtent> {
        let found = match &entry.part {
            EntryPart::Term { term, segment } => {
                let arena = &self.segments[*segment as usize].pattern.arena;
                let rel = offset.wrapping_sub(term.start) as i64;
                let hit = shape_lookup::hit(arena, term.shape, arena.elements(term.shape), rel)?;
                let extent = Element {
                    offset: term.start.wrapping_add(hit.rel as u64),
                    len: hit.len,
                    addr: term.addr + hit.bytes_before,
                };
                self.placed(*segment, extent)
            }
            EntryPart::GlobalPattern(global) => global.hit(offset)?,
        };
        Some(found.clip(offset..entry.hi))
    }

    pub(crate) fn placed(&self, segment: u32, extent: Element) -> PlacedExtent {
        let segment = &self.segments[segment as usize];
        PlacedExtent {
            offset: extent.offset,
            len: extent.len,
            source: segment.source,
            addr: extent.addr,
            sequence: segment.last,
        }
    }

    /// A place after `offset` where an extent of the entry may start, before which none does.
    fn next_start(&self, entry: &MapEntry, offset: u64) -> Option<u64> {
        let next = match &entry.part {
            EntryPart::Term { term, segment } => {
                let arena = &self.segments[*segment as usize].pattern.arena;
                let rel = offset.wrapping_sub(term.start) as i64;
                let next =
                    shape_lookup::next_start(arena, term.shape, arena.elements(term.shape), rel)?;
                Some(term.start.wrapping_add(next as u64))
            }
            EntryPart::GlobalPattern(global) => global.next_start(offset),
        };
        next.filter(|next| *next < entry.hi)
    }

    fn increasing(entry: &MapEntry) -> bool {
        match &entry.part {
            EntryPart::Term { .. } => entry.extent().is_some(),
            EntryPart::GlobalPattern(global) => global.increasing(),
        }
    }

    /// What is at `offset`.
    pub fn lookup(&self, offset: u64) -> MapLookup {
        self.past_holes(offset, None)
    }

    /// The same, if only sequences above `sequence` count.
    pub fn newer(&self, offset: u64, sequence: u64) -> MapLookup {
        self.past_holes(offset, Some(sequence))
    }

    /// A hole is looked through as far as it goes, within [`MAX_HOLE_STEPS`].
    fn past_holes(&self, offset: u64, above: Option<u64>) -> MapLookup {
        let mut at = offset;
        for _ in 0..MAX_HOLE_STEPS {
            match self.lookup_above(at, above) {
                MapLookup::Data(_) if at > offset => return MapLookup::Hole(at),
                MapLookup::Hole(end) => at = end,
                other => return other,
            }
        }
        MapLookup::Hole(at)
    }

    /// What is at `offset` of the sequences above one, or of all. A hole may go on after its end.
    pub(crate) fn lookup_above(&self, offset: u64, above: Option<u64>) -> MapLookup {
        let counts = |sequence: u64| above.is_none_or(|above| sequence > above);
        let mut best: Option<(PlacedExtent, &MapEntry)> = None;
        self.around(0, self.entries.len(), offset, &mut |entry| {
            if counts(entry.newest)
                && let Some(hit) = self.hit(entry, offset)
                && counts(hit.sequence)
                && best.is_none_or(|(b, _)| hit.order() > b.order())
            {
                best = Some((hit, entry));
            }
        });
        let least = best.map_or(0, |(b, _)| b.sequence);
        let mut end = best.map_or(u64::MAX, |(b, _)| b.end());
        self.around(0, self.entries.len(), offset, &mut |entry| {
            let own =
                best.is_some_and(|(_, e)| std::ptr::eq(e, entry)) && PatternMap::increasing(entry);
            if entry.newest >= least
                && counts(entry.newest)
                && !own
                && let Some(next) = self.next_start(entry, offset)
            {
                end = end.min(next);
            }
        });
        let above = self.entries.partition_point(|e| e.lo <= offset);
        let mut behind = self.entries[above..].iter().take_while(|e| e.lo < end);
        if let Some(entry) = behind.find(|e| e.newest >= least && counts(e.newest)) {
            end = entry.lo;
        }
        match best {
            Some((best, _)) => MapLookup::Data(best.clip(offset..end)),
            None if end == u64::MAX => MapLookup::End,
            None => MapLookup::Hole(end),
        }
    }
}
