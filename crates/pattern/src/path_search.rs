//! Decides whether two paths have a byte in common (for `commit_validation` and `disjoint`), by a search through the distances
//! between their leaves.
//!
//! ```text
//! distance   from a leaf of `a` to one of `b`:  d + k0 * stride0 + k1 * stride1 + ...,  low <= k <= high,  stride0 > stride1 > ...
//!            d: between the first leaves. A step of `b` adds (k from 0 up), one of `a` subtracts (k from 0 down).
//!            Steps of equal strides are joined.
//! window     they overlap if  -(length of b's leaves) < distance < length of a's leaves
//! ```
//!
//! From the largest stride to the smallest, only those k are tried from which the smaller strides can still reach the window. With
//! nested strides that is one or two k for each, so a few steps decide blocks of a cube, tiles, and diagonals of blocks. Where more
//! k are possible, residues modulo common divisors of the strides are checked first. They decide for ranks that interleave, however
//! many elements these have.
//!
//! # Invariants
//! 1. Paths that are called disjoint share no byte. Disjoint paths may not be recognised as such if the steps are used up, or if
//!    numbers reach [`MAX_SPAN`].
//! 2. Each k that is tried costs a step, and so does each pair of paths whose bounds overlap. Other pairs are limited to
//!    [`PAIRS_PER_STEP`] for each step; when they are used up, so are the steps.

use crate::encode::gcd;
use crate::path::{Path, PlacedTerm};

/// Two paths are compared only if they span less together, so that sums fit.
const MAX_SPAN: i128 = 1 << 62;
/// Pairs of paths whose bounds may be compared for each step.
const PAIRS_PER_STEP: usize = 16;
/// Residues are checked only if at least this many k are possible.
const MIN_STEPS_FOR_RESIDUES: i64 = 3;

/// Compares paths, within a budget of steps.
pub(crate) struct PathSearch {
    /// Steps that may be taken.
    pub(crate) left: usize,
    looks: usize,
    steps: Vec<SearchStep>,
}

/// One stride of the distance, with the bounds of its k.
#[derive(Debug, Clone, Copy)]
struct SearchStep {
    stride: i64,
    low: i64,
    high: i64,
    /// The least and the most that this stride and all smaller ones add.
    reach: (i64, i64),
}

impl PathSearch {
    pub(crate) fn new(left: usize) -> PathSearch {
        PathSearch {
            left,
            looks: left.saturating_mul(PAIRS_PER_STEP),
            steps: Vec::new(),
        }
    }

    /// Whether it is certain that no byte is in both terms.
    pub(crate) fn terms_disjoint(&mut self, a: &PlacedTerm<'_>, b: &PlacedTerm<'_>) -> bool {
        match (a.paths(&mut self.left), b.paths(&mut self.left)) {
            (Some(a), Some(b)) => self.paths_disjoint(a, b),
            _ => false,
        }
    }

    /// Whether it is certain that no byte is in a path of `a` and in one of `b`.
    fn paths_disjoint(&mut self, a: &[Path], b: &[Path]) -> bool {
        a.iter().all(|a| b.iter().all(|b| self.disjoint(a, b)))
    }

    /// Whether it is certain that no byte of these paths is in two of their leaves.
    pub(crate) fn leaves_disjoint(&mut self, paths: &[Path]) -> bool {
        let mut others = paths.iter().enumerate();
        paths.iter().all(Path::nests)
            && others.all(|(i, a)| paths[..i].iter().all(|b| self.disjoint(a, b)))
    }

    /// Whether it is certain that no byte is in both.
    fn disjoint(&mut self, a: &Path, b: &Path) -> bool {
        let Some(looks) = self.looks.checked_sub(1) else {
            self.left = 0;
            return false;
        };
        self.looks = looks;
        let distance = b.start - a.start;
        let bounds = distance >= a.span || -distance >= b.span;
        if bounds || a.len == 0 || b.len == 0 {
            return true;
        }
        if self.left == 0 || a.span.saturating_add(b.span) >= MAX_SPAN {
            return false;
        }
        self.left -= 1;
        self.join(&a.steps, &b.steps);
        // Less than one of the spans.
        let distance = distance as i64;
        let window = (1 - b.len as i64, a.len as i64 - 1);
        unreached(&self.steps, distance, window, &mut self.left)
    }

    /// The steps of both, by stride. All fits: the spans do.
    fn join(&mut self, mut a: &[(u64, u64)], mut b: &[(u64, u64)]) {
        self.steps.clear();
        loop {
            let stride = match (a.first(), b.first()) {
                (None, None) => break,
                (a, b) => a.map_or(0, |a| a.0).max(b.map_or(0, |b| b.0)),
            };
            let (low, high) = (most(&mut a, stride), most(&mut b, stride));
            // A step of no stride only comes to the same place again.
            if stride > 0 {
                self.steps.push(SearchStep {
                    stride: stride as i64,
                    low: -low,
                    high,
                    reach: (0, 0),
                });
            }
        }
        let mut reach = (0, 0);
        for step in self.steps.iter_mut().rev() {
            reach.0 += step.stride * step.low;
            reach.1 += step.stride * step.high;
            step.reach = reach;
        }
    }
}

/// Takes the steps of this stride from the front; the largest k of all together.
fn most(steps: &mut &[(u64, u64)], stride: u64) -> i64 {
    let mut most = 0;
    while let [(first, count), rest @ ..] = *steps
        && *first == stride
    {
        most += match stride {
            0 => 0,
            _ => (*count - 1) as i64,
        };
        *steps = rest;
    }
    most
}

/// What these steps add together, at least and at most.
fn sum_bounds(steps: &[SearchStep]) -> (i64, i64) {
    steps.first().map_or((0, 0), |s| s.reach)
}

/// Whether it is certain that no distance from `at` on is in the window.
fn unreached(steps: &[SearchStep], at: i64, window: (i64, i64), left: &mut usize) -> bool {
    let Some((step, rest)) = steps.split_first() else {
        return at < window.0 || window.1 < at;
    };
    let (low, high) = sum_bounds(rest);
    let from = ceil(window.0 - high - at, step.stride).max(step.low);
    let to = (window.1 - low - at).div_euclid(step.stride).min(step.high);
    if from > to {
        return true;
    }
    if rest.is_empty() {
        return false;
    }
    if to - from >= MIN_STEPS_FOR_RESIDUES && window_has_no_residue(steps, at, window) {
        return true;
    }
    (from..=to).all(|k| match left.checked_sub(1) {
        None => false,
        Some(fewer) => {
            *left = fewer;
            unreached(rest, at + k * step.stride, window, left)
        }
    })
}

/// Whether for a common divisor of the largest strides no residue is in the window, however far the other steps widen it.
fn window_has_no_residue(steps: &[SearchStep], at: i64, window: (i64, i64)) -> bool {
    let mut modulus = 0;
    steps.iter().any(|step| {
        modulus = gcd(modulus as u64, step.stride) as i64;
        let others = steps.iter().filter(|s| s.stride % modulus != 0);
        let (low, high) = others.fold((0, 0), |(low, high), s| {
            (low + s.stride * s.low, high + s.stride * s.high)
        });
        let (from, to) = (window.0 - high - at, window.1 - low - at);
        // The first multiple from there on.
        ceil(from, modulus) * modulus > to
    })
}

/// Division that rounds up; `by` is positive.
fn ceil(of: i64, by: i64) -> i64 {
    -(-of).div_euclid(by)
}

#[cfg(test)]
mod tests;
