//! A map from file offsets to where their bytes are: what pending writes and cached windows are made of.
//!
//! Invariants: intervals never overlap and are never empty; neighbours that continue each other (in the file and in the
//! log) are one interval, so a sequential writer costs one entry, however long it writes.
use crate::Member;
use forebay_data::LogId;
use forebay_pattern::{RangeMap, RangeValue};
use std::ops::{Deref, Range};

/// Where the bytes of an interval are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ByteSource {
    /// In a log, from `addr` on.
    Log {
        /// Whose log.
        member: Member,
        /// Which one.
        log: LogId,
        /// Address of the interval's first byte.
        addr: u64,
    },
    /// Nowhere: they read as zeros.
    Hole,
}

impl ByteSource {
    /// In this log.
    pub fn log(member: Member, log: LogId, addr: u64) -> ByteSource {
        ByteSource::Log { member, log, addr }
    }
}

impl RangeValue for ByteSource {
    /// The source of the byte `by` further on.
    fn advance(self, by: u64) -> ByteSource {
        match self {
            ByteSource::Log { member, log, addr } => ByteSource::Log {
                member,
                log,
                addr: addr + by,
            },
            ByteSource::Hole => ByteSource::Hole,
        }
    }
}

/// Memory of one interval, about: a map entry with its share of the tree; bytes.
pub const INTERVAL_MEMORY: u64 = 80;

/// Disjoint intervals of one file. Offsets in bytes.
#[derive(Debug, Clone, Default)]
pub struct Intervals {
    map: RangeMap<ByteSource>,
    /// Bytes in logs, holes not counted.
    bytes: u64,
}

impl Intervals {
    /// Bytes in logs, holes not counted.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        *self = Intervals::default();
    }

    /// Maps these bytes to `source`. `displaced` is called with each mapping that this replaces.
    pub fn insert(
        &mut self,
        range: Range<u64>,
        source: ByteSource,
        mut displaced: impl FnMut(Range<u64>, ByteSource),
    ) {
        if range.is_empty() {
            return;
        }
        let bytes = &mut self.bytes;
        *bytes += weight(&range, source);
        self.map.insert_joined(range, source, |cut, source| {
            *bytes -= weight(&cut, source);
            displaced(cut, source);
        });
    }
}

/// Lookups are those of the map.
impl Deref for Intervals {
    type Target = RangeMap<ByteSource>;

    fn deref(&self) -> &RangeMap<ByteSource> {
        &self.map
    }
}

fn weight(range: &Range<u64>, source: ByteSource) -> u64 {
    if source == ByteSource::Hole {
        0
    } else {
        range.end - range.start
    }
}

/// Where the bytes of a read are, from its first byte on.
#[derive(Default)]
pub struct ReadPlan {
    /// What is known, by offset.
    pub found: Vec<(Range<u64>, ByteSource)>,
    /// What must be asked first, by offset.
    pub missing: Vec<Range<u64>>,
    /// Up to where every byte is in one of the two: the end of the read, or before it if there are many pieces.
    pub until: u64,
}

impl ReadPlan {
    /// Nothing of the range is known.
    pub fn unknown(range: Range<u64>) -> ReadPlan {
        ReadPlan {
            found: Vec::new(),
            until: range.end,
            missing: std::iter::once(range).collect(),
        }
    }

    /// What is known, moved so that the file's offset `start` is at `place`.
    pub fn placed(self, start: u64, place: u64) -> impl Iterator<Item = (Range<u64>, ByteSource)> {
        let at = move |offset: u64| place + (offset - start);
        let found = self.found.into_iter();
        found.map(move |(part, source)| (at(part.start)..at(part.end), source))
    }
}

/// What the layers say of `range`, upper layers first, added to a plan that ends where `range` begins; what no layer knows is missing.
/// Stops when the plan has `most` pieces (at least one).
pub fn resolve(layers: &[&Intervals], range: Range<u64>, most: usize, plan: &mut ReadPlan) {
    let full = |plan: &ReadPlan| plan.found.len() + plan.missing.len() >= most.max(1);
    let end = range.end;
    plan.until = range.start;
    let Some((top, below)) = layers.split_first() else {
        if plan.until < end && !full(plan) {
            plan.missing.push(plan.until..end);
            plan.until = end;
        }
        return;
    };
    for (piece, source) in top.get(range) {
        if plan.until < piece.start {
            resolve(below, plan.until..piece.start, most, plan);
        }
        if plan.until < piece.start || full(plan) {
            return;
        }
        plan.until = piece.end;
        plan.found.push((piece, source));
    }
    resolve(below, plan.until..end, most, plan);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SPACE: u64 = 64;

    fn op() -> impl Strategy<Value = (Range<u64>, u8)> {
        (0..SPACE, 0..20u64, 0..3u8).prop_map(|(s, l, v)| (s..(s + l).min(SPACE), v))
    }

    fn source(kind: u8, offset: u64, stamp: u64) -> ByteSource {
        match kind {
            0 => ByteSource::Hole,
            // Addresses follow offsets, so that neighbours of one stamp join.
            k => ByteSource::Log {
                member: 0,
                log: u64::from(k) + 10 * (stamp % 2),
                addr: 1000 + offset,
            },
        }
    }

    proptest! {
        #[test]
        fn agrees_with_a_byte_by_byte_model(ops in prop::collection::vec(op(), 0..40), ask in (0..SPACE, 0..SPACE)) {
            let mut model: Vec<Option<ByteSource>> = vec![None; SPACE as usize];
            let mut map = Intervals::default();
            for (stamp, (range, kind)) in ops.into_iter().enumerate() {
                let mut displaced = Vec::new();
                let mut hear = |r: Range<u64>, s: ByteSource| for o in r.clone() { displaced.push((o, s.advance(o - r.start))) };
                let value = source(kind, range.start, stamp as u64);
                map.insert(range.clone(), value, &mut hear);
                let expected: Vec<_> = range.clone().filter_map(|o| model[o as usize].map(|s| (o, s))).collect();
                prop_assert_eq!(displaced, expected);
                for o in range.clone() { model[o as usize] = Some(value.advance(o - range.start)); }
            }
            let bytes = model.iter().filter(|s| matches!(s, Some(ByteSource::Log { .. }))).count();
            prop_assert_eq!(map.bytes(), bytes as u64);
            let (a, b) = (ask.0.min(ask.1), ask.0.max(ask.1));
            let mut seen: Vec<Option<ByteSource>> = vec![None; SPACE as usize];
            let mut last = a;
            for (r, s) in map.get(a..b) {
                prop_assert!(r.start >= last && r.end <= b && !r.is_empty());
                last = r.end;
                for o in r.clone() { seen[o as usize] = Some(s.advance(o - r.start)); }
            }
            prop_assert_eq!(&seen[a as usize..b as usize], &model[a as usize..b as usize]);
            for at in 0..SPACE {
                let (source, until) = map.segment(at);
                prop_assert_eq!(source, model[at as usize]);
                prop_assert!(until > at);
                for o in at..until.min(SPACE) {
                    prop_assert_eq!(model[o as usize], source.map(|s| s.advance(o - at)));
                }
            }
            // Neighbours that continue each other are one.
            let all: Vec<_> = map.iter().collect();
            for w in all.windows(2) {
                let joined = w[0].0.end == w[1].0.start && w[0].1.advance(w[0].0.end - w[0].0.start) == w[1].1;
                prop_assert!(!joined, "{:?} and {:?} should be one", w[0], w[1]);
            }
        }

        #[test]
        fn layers_resolve_from_the_top(
            a in prop::collection::vec(op(), 0..10),
            b in prop::collection::vec(op(), 0..10),
            most in 0..12usize,
        ) {
            let build = |ops: Vec<(Range<u64>, u8)>, stamp| {
                let mut map = Intervals::default();
                for (r, k) in ops { map.insert(r.clone(), source(k, r.start, stamp), |_, _| ()); }
                map
            };
            let (top, low) = (build(a, 0), build(b, 1));
            let at = |m: &Intervals, o: u64| m.get(o..o + 1).next().map(|(_, s)| s);
            let mut whole = ReadPlan::default();
            resolve(&[&top, &low], 0..SPACE, usize::MAX, &mut whole);
            let ReadPlan { found, missing, until } = whole;
            prop_assert_eq!(until, SPACE);
            for o in 0..SPACE {
                let expected = at(&top, o).or(at(&low, o));
                let got = found.iter().find(|(r, _)| r.contains(&o)).map(|(r, s)| s.advance(o - r.start));
                prop_assert_eq!(got, expected);
                prop_assert_eq!(missing.iter().any(|r| r.contains(&o)), expected.is_none());
            }
            // With a limit: the same, part by part.
            let (mut at, mut parts) = (0, (Vec::new(), Vec::new()));
            while at < SPACE {
                let mut part = ReadPlan::default();
                resolve(&[&top, &low], at..SPACE, most, &mut part);
                let ReadPlan { found: some, missing: none, until } = part;
                prop_assert!(until > at);
                prop_assert!(some.len() + none.len() <= most.max(1));
                prop_assert_eq!(some.iter().map(|p| p.0.end).chain(none.iter().map(|r| r.end)).max(), Some(until));
                parts.0.extend(some);
                parts.1.extend(none);
                at = until;
            }
            prop_assert_eq!(parts, (found, missing));
        }
    }

    #[test]
    fn a_sequential_writer_costs_one_entry() {
        let mut map = Intervals::default();
        for i in 0..1000u64 {
            map.insert(
                i * 10..(i + 1) * 10,
                ByteSource::Log {
                    member: 1,
                    log: 5,
                    addr: 77 + i * 10,
                },
                |_, _| (),
            );
        }
        assert_eq!(map.len(), 1);
        assert_eq!(map.bytes(), 10_000);
    }
}
