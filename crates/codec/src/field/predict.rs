//! Predictors: what a value is expected to be, from values before it in its lane. What is stored is the residual: the value less what
//! was expected, modulo two to the power of its bits.
//!
//! With `s` the stride, `x` a lane, and `d[i] = x[i] - x[i-s]`:
//!
//! | predictor | expects | for smooth data |
//! |---|---|---|
//! | `None` | nothing: the number itself is coded | weights |
//! | `First` | `x[i-s]` | rough, or of steps |
//! | `Half` | `x[i-s] + d[i-s] / 2`, rounded down | in between |
//! | `Second` | `x[i-s] + d[i-s]`: a line | smooth |
//! | `Third` | `x[i-s] + 2 d[i-s] - d[i-2s]`: a parabola | very smooth |
//!
//! Optionally, the element one row before is first subtracted from each element of the piece. With `First`, a value is then expected
//! where a plane through its neighbours before and above is (the Lorenzo predictor).
//!
//! The first value of a lane is its reference, in the head of the piece. The other values before `s` are expected to be the one
//! just before; those before `2s` `x[i-s]`; those before `3s` what `Second` expects, if the predictor is `Third`.
use crate::element::Word;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Predictor {
    None = 0,
    First = 1,
    Half = 2,
    Second = 3,
    Third = 4,
}

impl Predictor {
    /// Those that predict.
    pub(super) const DIFFERENCES: [Predictor; 4] = [
        Predictor::First,
        Predictor::Half,
        Predictor::Second,
        Predictor::Third,
    ];

    pub(super) fn from_code(code: u8) -> Option<Predictor> {
        match code {
            0 => Some(Predictor::None),
            1 => Some(Predictor::First),
            2 => Some(Predictor::Half),
            3 => Some(Predictor::Second),
            4 => Some(Predictor::Third),
            _ => None,
        }
    }

    /// The residuals of a lane, the first of which is the first value. `out` is as long as `x`.
    #[inline(always)]
    pub(super) fn residuals<T: Word>(self, stride: usize, x: &[T], out: &mut [T]) {
        let n = x.len().min(out.len());
        let (x, out) = (&x[..n], &mut out[..n]);
        let s = stride.max(1);
        if n == 0 || self == Predictor::None {
            out.copy_from_slice(x);
            return;
        }
        out[0] = x[0];
        for i in 1..s.min(n) {
            out[i] = x[i].minus(x[i - 1]);
        }
        // How many values have a simpler predictor.
        let simple = match self {
            Predictor::None | Predictor::First => n,
            Predictor::Half | Predictor::Second => 2 * s,
            Predictor::Third => 3 * s,
        };
        for i in s..simple.min(n) {
            let first = x[i].minus(x[i - s]);
            out[i] = if i < 2 * s || self == Predictor::First {
                first
            } else {
                first.minus(x[i - s].minus(x[i - 2 * s]))
            };
        }
        if n <= simple {
            return;
        }
        let (now, out) = (&x[simple..], &mut out[simple..]);
        let before = |k: usize| &x[simple - k * s..][..now.len()];
        let (a, b) = (before(1), before(2));
        match self {
            Predictor::Half => {
                for (((out, x), a), b) in out.iter_mut().zip(now).zip(a).zip(b) {
                    *out = x.minus(*a).minus(a.minus(*b).half());
                }
            }
            Predictor::Third => {
                let c = before(3);
                for ((((out, x), a), b), c) in out.iter_mut().zip(now).zip(a).zip(b).zip(c) {
                    let ab = a.minus(*b);
                    *out = x.minus(*a).minus(ab).minus(ab.minus(b.minus(*c)));
                }
            }
            _ => {
                for (((out, x), a), b) in out.iter_mut().zip(now).zip(a).zip(b) {
                    *out = x.minus(*a).minus(a.minus(*b));
                }
            }
        }
    }

    /// The inverse of [`residuals`](Self::residuals), in place, of lanes side by side: each row has one number of each lane.
    #[inline(always)]
    pub(super) fn restore<T: Word, const K: usize>(self, stride: usize, rows: &mut [[T; K]]) {
        match (self, stride) {
            (Predictor::None, _) => {}
            (Predictor::First, 0 | 1) => restore_running::<T, K, 1>(rows),
            (Predictor::Half, 0 | 1) => restore_running::<T, K, 2>(rows),
            (Predictor::Second, 0 | 1) => restore_running::<T, K, 3>(rows),
            (Predictor::Third, 0 | 1) => restore_running::<T, K, 4>(rows),
            _ => self.restore_strided(stride, rows),
        }
    }

    #[inline(always)]
    fn restore_strided<T: Word, const K: usize>(self, s: usize, rows: &mut [[T; K]]) {
        let n = rows.len();
        let sum = |rows: &mut [[T; K]], from: usize, s: usize| {
            for i in from..n {
                rows[i] = plus(rows[i], rows[i - s]);
            }
        };
        match self {
            Predictor::None | Predictor::First => {}
            Predictor::Half => {
                for i in 2 * s..n {
                    rows[i] = plus(rows[i], rows[i - s].map(T::half));
                }
            }
            Predictor::Second => sum(rows, 2 * s, s),
            Predictor::Third => {
                sum(rows, 3 * s, s);
                sum(rows, 2 * s, s);
            }
        }
        let first = &mut rows[..s.min(n)];
        for i in 1..first.len() {
            first[i] = plus(first[i], first[i - 1]);
        }
        sum(rows, s, s);
    }
}

#[inline(always)]
fn plus<T: Word, const K: usize>(a: [T; K], b: [T; K]) -> [T; K] {
    std::array::from_fn(|k| a[k].plus(b[k]))
}

/// Restores rows by a predictor of stride 1, whose code is `P`: on the way are the last row, its difference to the row before, and the
/// difference of that.
#[inline(always)]
fn restore_running<T: Word, const K: usize, const P: u8>(rows: &mut [[T; K]]) {
    const FIRST: u8 = Predictor::First as u8;
    const HALF: u8 = Predictor::Half as u8;
    const SECOND: u8 = Predictor::Second as u8;
    let zero = [T::default(); K];
    let (mut value, mut first, mut second) = (zero, zero, zero);
    for (i, row) in rows.iter_mut().enumerate() {
        // Nothing predicts the first value of a lane, and only `First` the second one.
        if i < 3 {
            second = zero;
            if i < 2 {
                first = zero;
            }
        }
        match P {
            FIRST => first = *row,
            HALF => first = plus(first.map(T::half), *row),
            SECOND => first = plus(first, *row),
            _ => {
                second = plus(second, *row);
                first = plus(first, second);
            }
        }
        value = plus(value, first);
        *row = value;
    }
}

/// Numbers less those a row before; the first `row` ones stay.
#[inline(always)]
pub(super) fn subtract_row<T: Word>(row: usize, numbers: &mut [T]) {
    for i in (row..numbers.len()).rev() {
        numbers[i] = numbers[i].minus(numbers[i - row]);
    }
}

/// The inverse of [`subtract_row`].
#[inline(always)]
pub(super) fn add_row<T: Word>(row: usize, numbers: &mut [T]) {
    if row == 0 {
        return;
    }
    for i in row..numbers.len() {
        numbers[i] = numbers[i].plus(numbers[i - row]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn expected(p: Predictor, s: usize, x: &[i32], i: usize) -> i32 {
        let at = |k: usize| x[i - k * s];
        let d1 = |k: usize| at(k).wrapping_sub(at(k + 1));
        match (p, i / s) {
            (Predictor::None, _) | (_, 0) if p == Predictor::None || i == 0 => 0,
            (_, 0) => x[i - 1],
            (Predictor::First, _) | (_, 1) => at(1),
            (Predictor::Half, _) => at(1).wrapping_add(d1(1) >> 1),
            (Predictor::Second, _) | (_, 2) => at(1).wrapping_add(d1(1)),
            _ => at(1)
                .wrapping_add(d1(1))
                .wrapping_add(d1(1).wrapping_sub(d1(2))),
        }
    }

    proptest! {
        #[test]
        fn residuals_are_as_defined_and_lanes_come_back(
            x in proptest::collection::vec(any::<i32>(), 0..140),
            s in 1usize..70,
            code in 0u8..5,
        ) {
            let p = Predictor::from_code(code).unwrap();
            let mut r = vec![0; x.len()];
            p.residuals(s, &x, &mut r);
            for i in 0..x.len() {
                prop_assert_eq!(r[i], x[i].wrapping_sub(expected(p, s, &x, i)), "{}", i);
            }
            let mut rows: Vec<[i32; 2]> = r.iter().map(|r| [*r; 2]).collect();
            p.restore(s, &mut rows);
            let expected: Vec<[i32; 2]> = x.iter().map(|x| [*x; 2]).collect();
            prop_assert_eq!(rows, expected);
            let mut differences = x.clone();
            subtract_row(s, &mut differences);
            for i in 0..x.len() {
                let before = if i < s { 0 } else { x[i - s] };
                prop_assert_eq!(differences[i], x[i].wrapping_sub(before));
            }
            add_row(s, &mut differences);
            prop_assert_eq!(differences, x);
        }
    }
}
