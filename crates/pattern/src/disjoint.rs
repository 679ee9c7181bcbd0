//! Whether two patterns surely share no byte, without a look at their elements.
//!
//! ```text
//! path    from a shape down to one of its leaves:   start + k0 * stride0 + k1 * stride1 + ... + [0, len)
//! modulo  m: steps whose stride is a multiple of m are gone, the others widen the leaf: [lo, lo + width) modulo m
//! ```
//!
//! Two paths share no byte if their bounds are apart, or if for one modulus their widened leaves are apart. The moduli tried are
//! the common divisors of the largest strides of both, of the two largest, of the three largest...: so ranks that interleave are told
//! apart, tiles, blocks of a cube, and what lies beside what was merged already. What is not told apart so is halved, as often as
//! the budget allows.
//!
//! # Invariants
//! 1. The answer is never true when a byte is in both. It may be false when none is.
//! 2. The cost is bounded by [`MOST_PARTS`] and [`MOST_PAIRS`], however many elements there are.

use crate::global::{Axis, Global};
use crate::segment::Segment;
use crate::shape::{Arena, Kind, Shape};
use crate::stack::Term;

/// Terms or slots of one side that lie in the bounds of the other, at most.
const MOST_PARTS: usize = 1 << 13;
/// Pairs of parts, and of paths, at most.
pub(crate) const MOST_PAIRS: usize = 1 << 14;
/// Paths of a shape, at most.
const MOST_PATHS: usize = 1 << 8;

impl Segment {
    /// Whether it is certain that no byte is in both. From bounds and strides, so `false` says only that one may be; bytes
    /// behind a limit count as not there where bounds show it.
    pub fn surely_disjoint(&self, other: &Segment) -> bool {
        let within = parts_bounds(other.pattern.bounds(), other.limit);
        let Some(own) = self.parts(within) else {
            return false;
        };
        let within = parts_bounds(self.pattern.bounds(), self.limit);
        other.parts(within).is_some_and(|other| apart(own, other))
    }

    /// The terms that reach into `within`; `None` if they are too many.
    fn parts(&self, within: (u64, u64)) -> Option<Vec<Part<'_>>> {
        let all = self.pattern.terms.iter().map(|term| {
            let (lo, hi) = parts_bounds(self.pattern.term_bounds(term), self.limit);
            Part::new(&self.pattern.arena, term, (lo, hi))
        });
        some(all.filter(|p| p.reaches(within)))
    }
}

impl Global {
    /// Whether it is certain that no byte is in both. From bounds and strides, so `false` says only that one may be.
    pub fn surely_disjoint(&self, other: &Segment) -> bool {
        let within = parts_bounds(other.pattern.bounds(), other.limit);
        let Some(own) = self.parts(within) else {
            return false;
        };
        other
            .parts(self.bounds())
            .is_some_and(|other| apart(own, other))
    }

    /// All slots as one part, or, if they are in a table, those that reach into `within`.
    fn parts(&self, within: (u64, u64)) -> Option<Vec<Part<'_>>> {
        let (lo, hi) = self.bounds();
        let part = |lo: u64, hi: u64, start: u64, slots| Part {
            lo,
            hi,
            arena: &self.arena,
            shape: self.shape,
            start,
            slots,
        };
        let table = self.axes.iter().find_map(|a| match a {
            Axis::Table(starts) => Some(starts),
            _ => None,
        });
        let Some(starts) = table else {
            let slots = self.axes.iter().filter_map(|a| match a {
                Axis::Slots { stride, count, .. } => Some((*stride, *count)),
                _ => None,
            });
            let all = part(lo, hi, self.start, slots.collect());
            return Some(Vec::from_iter(all.reaches(within).then_some(all)));
        };
        let shape = self.arena.bounds(self.shape);
        let each = starts.iter().map(|&at| {
            let start = self.start.wrapping_add(at);
            let end = |rel: i64| start.wrapping_add(rel as u64);
            let (lo, hi) = parts_bounds((end(shape.0), end(shape.1)), self.limit);
            part(lo, hi, start, Vec::new())
        });
        some(each.filter(|p| p.reaches(within)))
    }
}

fn parts_bounds((lo, hi): (u64, u64), limit: Option<u64>) -> (u64, u64) {
    let limit = limit.unwrap_or(u64::MAX);
    (lo.min(limit), hi.min(limit))
}

/// All of `parts`, if they are not too many.
fn some<'a>(parts: impl Iterator<Item = Part<'a>>) -> Option<Vec<Part<'a>>> {
    let found: Vec<Part<'a>> = parts.take(MOST_PARTS + 1).collect();
    (found.len() <= MOST_PARTS).then_some(found)
}

/// A shape, or one at every slot.
pub(crate) struct Part<'a> {
    lo: u64,
    hi: u64,
    arena: &'a Arena,
    shape: Shape,
    start: u64,
    /// Stride and count of the slots' steps.
    slots: Vec<(u64, u64)>,
}

impl<'a> Part<'a> {
    /// A term of these bounds.
    pub(crate) fn new(arena: &'a Arena, term: &Term, (lo, hi): (u64, u64)) -> Part<'a> {
        Part {
            lo,
            hi,
            arena,
            shape: term.shape,
            start: term.start,
            slots: Vec::new(),
        }
    }

    fn reaches(&self, within: (u64, u64)) -> bool {
        self.lo < within.1 && within.0 < self.hi
    }

    pub(crate) fn paths(&self) -> Option<Vec<Path>> {
        let (mut out, mut steps) = (Vec::new(), self.slots.clone());
        let done = walk(
            self.arena,
            self.shape,
            self.start.into(),
            &mut steps,
            &mut out,
        );
        done.then_some(out)
    }
}

/// See the module: strides are positive, because a step down is counted from its end.
#[derive(Clone)]
pub(crate) struct Path {
    start: i128,
    len: u64,
    /// Stride and count, in any order.
    steps: Vec<(u64, u64)>,
}

/// Appends the paths of a shape; `false` if there are too many.
fn walk(
    arena: &Arena,
    shape: Shape,
    start: i128,
    steps: &mut Vec<(u64, u64)>,
    out: &mut Vec<Path>,
) -> bool {
    let id = match shape.kind() {
        Kind::Leaf(len) => {
            let steps = steps.clone();
            out.push(Path { start, len, steps });
            return out.len() <= MOST_PATHS;
        }
        Kind::Loop(id) => id,
    };
    let l = arena.get(id);
    // A last iteration that is cut counts as whole, here and in inner loops: more bytes than there are.
    let count = l.steps.elements.div_ceil(l.per);
    let down = i128::from(l.steps.stride.min(0)) * i128::from(count - 1);
    steps.push((l.steps.stride.unsigned_abs(), count));
    let done = arena.body(l).iter().all(|item| {
        walk(
            arena,
            item.shape,
            start + down + i128::from(item.rel),
            steps,
            out,
        )
    });
    steps.pop();
    done
}

/// Whether no part of one side meets one of the other.
fn apart(mut own: Vec<Part<'_>>, mut other: Vec<Part<'_>>) -> bool {
    own.sort_by_key(|p| p.lo);
    other.sort_by_key(|p| p.lo);
    let mut left = MOST_PAIRS;
    let (mut open_own, mut open_other) = (Vec::new(), Vec::new());
    let (mut own, mut other) = (own.iter().peekable(), other.iter().peekable());
    // Parts of both in the order of their starts; each is compared with those of the other side that are still open there.
    loop {
        let mine = match (own.peek(), other.peek()) {
            (Some(a), Some(b)) => a.lo <= b.lo,
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (None, None) => return true,
        };
        let (next, here, there) = match mine {
            true => (own.next(), &mut open_own, &mut open_other),
            false => (other.next(), &mut open_other, &mut open_own),
        };
        let Some(part) = next else {
            return true;
        };
        there.retain(|p: &&Part<'_>| p.hi > part.lo);
        if !there.iter().all(|p| pair(part, p, &mut left)) {
            return false;
        }
        here.push(part);
    }
}

/// Whether it is certain that no byte of a part's paths is in two of its elements; `left` as for `pairs`.
pub(crate) fn none_shared(paths: &[Path], left: &mut usize) -> bool {
    let mut others = paths.iter().enumerate();
    paths.iter().all(Path::nests)
        && others.all(|(i, a)| paths[..i].iter().all(|b| paths_apart(a, b, left)))
}

fn pair(a: &Part<'_>, b: &Part<'_>, left: &mut usize) -> bool {
    let (Some(a), Some(b)) = (a.paths(), b.paths()) else {
        return false;
    };
    pairs(&a, &b, left)
}

/// Whether it is certain that no byte is in both; `left` pairs of paths may be looked at.
pub(crate) fn pairs(a: &[Path], b: &[Path], left: &mut usize) -> bool {
    a.iter().all(|a| b.iter().all(|b| paths_apart(a, b, left)))
}

/// Whether two paths are apart, or the halves of them all, as far as `left` pairs reach.
fn paths_apart(a: &Path, b: &Path, left: &mut usize) -> bool {
    if *left == 0 {
        return false;
    }
    *left -= 1;
    if a.apart(b) {
        return true;
    }
    // What widens the leaves most under the largest modulus is halved.
    let steps = a.steps.iter().chain(&b.steps).filter(|s| s.1 > 1);
    let modulus = steps.map(|s| s.0).max().unwrap_or(0);
    let widest = |p: &Path| {
        let wide = |s: &(u64, u64)| u128::from(s.0) * u128::from(s.1 - 1);
        let steps = p.steps.iter().enumerate();
        let steps = steps.filter(|(_, s)| s.1 > 1 && !s.0.is_multiple_of(modulus));
        steps.map(|(i, s)| (wide(s), i)).max()
    };
    let of_b = widest(b);
    if let Some((wide, step)) = widest(a)
        && of_b.is_none_or(|b| b.0 <= wide)
    {
        return a.halves(step).iter().all(|a| paths_apart(a, b, left));
    }
    of_b.is_some_and(|(_, step)| b.halves(step).iter().all(|b| paths_apart(a, b, left)))
}

impl Path {
    /// Whether each step has room for all smaller ones, so that no byte is reached twice.
    fn nests(&self) -> bool {
        let mut steps: Vec<(u64, u64)> = self.steps.iter().copied().filter(|s| s.1 > 1).collect();
        steps.sort_unstable();
        let mut extent = u128::from(self.len);
        steps.iter().all(|(stride, count)| {
            let fits = u128::from(*stride) >= extent.max(1);
            extent = extent.saturating_add(u128::from(*stride) * u128::from(*count - 1));
            fits
        })
    }

    fn apart(&self, other: &Path) -> bool {
        if self.len == 0 || other.len == 0 {
            return true;
        }
        let ((a, a_width), (b, b_width)) = (self.modulo(0), other.modulo(0));
        if a + a_width <= b || b + b_width <= a {
            return true;
        }
        let steps = self.steps.iter().chain(&other.steps);
        let mut strides: Vec<u64> = steps.filter(|s| s.1 > 1).map(|s| s.0).collect();
        strides.sort_unstable_by(|a, b| b.cmp(a));
        strides.dedup();
        let mut modulus = 0;
        strides.iter().any(|&stride| {
            modulus = gcd(modulus, stride);
            modulus > 0 && {
                let m = i128::from(modulus);
                let ((a, a_width), (b, b_width)) = (self.modulo(modulus), other.modulo(modulus));
                let distance = (b - a).rem_euclid(m);
                a_width <= distance && distance + b_width <= m
            }
        })
    }

    /// The path with the first and with the last iterations of a step.
    fn halves(&self, step: usize) -> [Path; 2] {
        let mut halves = [self.clone(), self.clone()];
        let (stride, count) = self.steps[step];
        halves[0].steps[step].1 = count / 2;
        halves[1].steps[step].1 = count - count / 2;
        halves[1].start += i128::from(stride) * i128::from(count / 2);
        halves
    }

    /// Where the leaf is, and its width with the steps that are no multiples of `m`; of all steps if it is 0.
    fn modulo(&self, m: u64) -> (i128, i128) {
        let wide = self
            .steps
            .iter()
            .filter(|s| m == 0 || !s.0.is_multiple_of(m))
            .map(|s| i128::from(s.0) * i128::from(s.1 - 1));
        (self.start, wide.sum::<i128>() + i128::from(self.len))
    }
}

fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}
