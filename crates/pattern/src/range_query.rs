//! Range queries on patterns without enumerating elements: the log bytes that lie in a range of the file, and the range in which
//! one pattern has all bytes of another.
//!
//! ```text
//! loop    iterations inside the range: one run of the log
//!         iterations across an end of the range: each item is queried. There are at most two, unless iterations overlap
//! ```

use crate::Pattern;
use crate::pattern::element;
use crate::shape::{Arena, Shape, ShapeKind};
use crate::stack::Term;
use std::collections::HashSet;
use std::ops::Range;

impl Pattern {
    /// Log addresses of the bytes in a range of offsets, in log order, of a pattern that is increasing. Takes a binary search for each end.
    pub fn within(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        let first = self
            .terms
            .partition_point(|t| self.term_bounds(t).1 <= range.start);
        let met = self.terms[first..]
            .iter()
            .take_while(|t| self.term_bounds(t).0 < range.end);
        let mut runs: Vec<Range<u64>> = Vec::new();
        for term in met {
            let (start, end) = (
                self.addr_of(term, range.start),
                self.addr_of(term, range.end),
            );
            match runs.last_mut() {
                Some(last) if last.end == start => last.end = end,
                _ => runs.push(start..end),
            }
        }
        runs.retain(|run| !run.is_empty());
        runs
    }

    /// Address of the first byte at `offset` or after it, in an increasing term; the term's end if there is none.
    fn addr_of(&self, term: &Term, offset: u64) -> u64 {
        let (mut from, mut to) = (0, self.arena.elements(term.shape));
        while from < to {
            let mid = from.midpoint(to);
            match element(&self.arena, term, mid).end() <= offset {
                true => from = mid + 1,
                false => to = mid,
            }
        }
        if from == self.arena.elements(term.shape) {
            return term.addr.saturating_add(self.arena.bytes(term.shape));
        }
        let e = element(&self.arena, term, from);
        e.addr + offset.saturating_sub(e.offset)
    }

    /// Log addresses of the bytes in a range of offsets, in log order, of any pattern of one log. `left` steps may be taken, and are
    /// taken from it; `None` if they do not do.
    pub fn gather(&self, range: &Range<u64>, left: &mut u64) -> Option<Vec<Range<u64>>> {
        let mut gathered = RunGatherer {
            arena: &self.arena,
            range: (range.start.into(), range.end.into()),
            left,
            runs: Vec::new(),
        };
        for term in &self.terms {
            let all = self.arena.elements(term.shape);
            gathered.shape(term.shape, all, term.start.into(), term.addr)?;
        }
        let mut runs = gathered.runs;
        runs.sort_unstable_by_key(|r| r.start);
        runs.dedup_by(|next, last| {
            let joined = next.start <= last.end;
            if joined {
                last.end = last.end.max(next.end);
            }
            joined
        });
        Some(runs)
    }

    /// A range in which this pattern has every byte that `other` has, and outside of which it has none of them. `None` if that is not
    /// known from their strides: both must be the same, or rows of one stride.
    pub fn covers(&self, other: &Pattern) -> Option<Range<u64>> {
        if self.same_places(other) {
            let (lo, hi) = other.bounds();
            return Some(lo..hi);
        }
        let (own, other) = (self.row()?, other.row()?);
        let stride = match (own.count, other.count) {
            (_, 1) => own.stride,
            (1, _) => other.stride,
            _ => own.stride,
        };
        let of_stride = |row: &EvenRow| row.count == 1 || row.stride == stride;
        if !of_stride(&own) || !of_stride(&other) || stride < own.len {
            return None;
        }
        // Where the other's first element is in one of the own ones, and in which.
        let ahead = other.start - own.start;
        let (place, rest) = (ahead.div_euclid(stride), ahead.rem_euclid(stride));
        if rest + other.len > own.len {
            return None;
        }
        let first = (-place).clamp(0, other.count);
        let behind = (own.count - place).clamp(first, other.count);
        let start = other.start + first * stride;
        let end = match behind > first {
            true => other.start + (behind - 1) * stride + other.len,
            false => start,
        };
        Some(u64::try_from(start).ok()?..u64::try_from(end).ok()?)
    }

    /// Whether both have the same elements in the same order, wherever in the log.
    fn same_places(&self, other: &Pattern) -> bool {
        let mut known = HashSet::new();
        let terms = self.terms.iter().zip(&other.terms);
        let mut same = |(a, b): (&Term, &Term)| {
            a.start == b.start
                && same_shape(&self.arena, a.shape, &other.arena, b.shape, &mut known)
        };
        self.terms.len() == other.terms.len() && terms.into_iter().all(&mut same)
    }

    /// The pattern as elements of one length at even distances, lowest first.
    fn row(&self) -> Option<EvenRow> {
        let [term] = self.terms[..] else {
            return None;
        };
        let start = i128::from(term.start);
        let id = match term.shape.kind() {
            ShapeKind::Leaf(len) => {
                return Some(EvenRow {
                    start,
                    stride: i128::from(len),
                    count: 1,
                    len: i128::from(len),
                });
            }
            ShapeKind::Loop(id) => id,
        };
        let l = self.arena.get(id);
        let [item] = self.arena.body(l) else {
            return None;
        };
        let ShapeKind::Leaf(len) = item.shape.kind() else {
            return None;
        };
        let (stride, count) = (i128::from(l.steps.stride), i128::from(l.steps.elements));
        Some(EvenRow {
            start: start + stride.min(0) * (count - 1),
            stride: stride.abs(),
            count,
            len: i128::from(len),
        })
    }
}

/// Elements of one length at even distances.
struct EvenRow {
    start: i128,
    stride: i128,
    count: i128,
    len: i128,
}

/// `known`: pairs of loops that are the same.
fn same_shape(
    a: &Arena,
    one: Shape,
    b: &Arena,
    other: Shape,
    known: &mut HashSet<(u32, u32)>,
) -> bool {
    let (i, j) = match (one.kind(), other.kind()) {
        (ShapeKind::Loop(i), ShapeKind::Loop(j)) => (i, j),
        (one, other) => return one == other,
    };
    if known.contains(&(i, j)) {
        return true;
    }
    let (l, m) = (a.get(i), b.get(j));
    let (items, others) = (a.body(l), b.body(m));
    let same = (l.steps.stride, l.steps.elements) == (m.steps.stride, m.steps.elements)
        && items.len() == others.len()
        && items
            .iter()
            .zip(others)
            .all(|(x, y)| x.rel == y.rel && same_shape(a, x.shape, b, y.shape, known));
    if same {
        known.insert((i, j));
    }
    same
}

/// Runs found so far.
struct RunGatherer<'a> {
    arena: &'a Arena,
    range: (i128, i128),
    left: &'a mut u64,
    runs: Vec<Range<u64>>,
}

impl RunGatherer<'_> {
    fn push(&mut self, start: u64, end: u64) {
        match self.runs.last_mut() {
            _ if start >= end => {}
            Some(last) if last.end == start => last.end = end,
            _ => self.runs.push(start..end),
        }
    }

    /// The first `elements` of a shape that lies at `start` and `addr`. `None`: no steps are left.
    fn shape(&mut self, shape: Shape, elements: u64, start: i128, addr: u64) -> Option<()> {
        *self.left = self.left.checked_sub(1)?;
        let (from, to) = self.range;
        let (lo, hi) = self.arena.bounds(shape);
        let (lo, hi) = (start + i128::from(lo), start + i128::from(hi));
        if hi <= from || to <= lo {
            return Some(());
        }
        if from <= lo && hi <= to {
            self.push(addr, addr + self.arena.cut_bytes(shape, elements));
            return Some(());
        }
        let id = match shape.kind() {
            ShapeKind::Leaf(_) => {
                // Both lie in the leaf.
                let at = |x: i128| addr + (x.clamp(lo, hi) - lo) as u64;
                self.push(at(from), at(to));
                return Some(());
            }
            ShapeKind::Loop(id) => id,
        };
        let l = self.arena.get(id);
        let (full, tail) = ((elements / l.per) as i128, elements % l.per);
        let (from, to) = (from - start, to - start);
        let (reach, inside) = match l.steps.stride {
            0 => (0..full, 0..0),
            _ => (l.iterations_reaching(from, to), l.inside(from, to)),
        };
        let clamp = |r: Range<i128>| r.start.clamp(0, full)..r.end.clamp(0, full);
        let (reach, mut inside) = (clamp(reach), clamp(inside));
        if inside.start >= inside.end {
            inside = reach.end..reach.end;
        }
        for k in reach.start..inside.start {
            self.iteration(id, l.per, k, start, addr)?;
        }
        let at = |k: i128| addr + k as u64 * l.per_bytes;
        self.push(at(inside.start), at(inside.end));
        for k in inside.end..reach.end {
            self.iteration(id, l.per, k, start, addr)?;
        }
        match tail {
            0 => Some(()),
            tail => self.iteration(id, tail, full, start, addr),
        }
    }

    /// The first `elements` of iteration `k`.
    fn iteration(&mut self, id: u32, elements: u64, k: i128, start: i128, addr: u64) -> Option<()> {
        let (arena, l) = (self.arena, self.arena.get(id));
        let start = start + k * i128::from(l.steps.stride);
        let addr = addr + k as u64 * l.per_bytes;
        let items = arena.body(l).iter();
        for item in items.take_while(|i| i.elements_before < elements) {
            let count = arena.elements(item.shape);
            let count = count.min(elements - item.elements_before);
            let at = start + i128::from(item.rel);
            self.shape(item.shape, count, at, addr + item.bytes_before)?;
        }
        Some(())
    }
}
