//! Predictors: what a value is expected to be, from values before it in its lane. Coded is the residual, which wraps.
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
//! The first value of a lane is its reference, in the head of the span. The other values before `s` are expected to be the one
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

    /// The inverse of [`residuals`](Self::residuals), in place, of some lanes of one length.
    #[inline(always)]
    pub(super) fn restore<T: Word, const K: usize>(self, stride: usize, lanes: [&mut [T]; K]) {
        match (self, stride) {
            (Predictor::None, _) => {}
            (Predictor::First, 0 | 1) => RunningPredictor::restore::<1, K>(lanes),
            (Predictor::Half, 0 | 1) => RunningPredictor::restore::<2, K>(lanes),
            (Predictor::Second, 0 | 1) => RunningPredictor::restore::<3, K>(lanes),
            (Predictor::Third, 0 | 1) => RunningPredictor::restore::<4, K>(lanes),
            _ => {
                for lane in lanes {
                    self.restore_strided(stride, lane);
                }
            }
        }
    }

    fn restore_strided<T: Word>(self, s: usize, x: &mut [T]) {
        let sum = |x: &mut [T], from: usize| {
            for i in from..x.len() {
                x[i] = x[i].plus(x[i - s]);
            }
        };
        match self {
            Predictor::None | Predictor::First => {}
            Predictor::Half => {
                for i in 2 * s..x.len() {
                    x[i] = x[i].plus(x[i - s].half());
                }
            }
            Predictor::Second => sum(x, 2 * s),
            Predictor::Third => {
                sum(x, 3 * s);
                sum(x, 2 * s);
            }
        }
        for i in 1..s.min(x.len()) {
            x[i] = x[i].plus(x[i - 1]);
        }
        sum(x, s);
    }
}

/// A predictor of stride 1 on its way through a lane: the last value, and its differences to those before.
#[derive(Debug, Clone, Copy)]
struct RunningPredictor<T> {
    value: T,
    first: T,
    second: T,
}

impl<T: Word> RunningPredictor<T> {
    /// Restores lanes side by side, so that none waits for its last value alone. `P` is the predictor's code.
    #[inline(always)]
    #[allow(clippy::needless_range_loop, reason = "an index into several lanes")]
    fn restore<const P: u8, const K: usize>(lanes: [&mut [T]; K]) {
        let n = lanes[0].len();
        if n == 0 {
            return;
        }
        let lanes = lanes.map(|lane| &mut lane[..n]);
        let mut running = lanes.each_ref().map(|lane| RunningPredictor {
            value: lane[0],
            first: T::default(),
            second: T::default(),
        });
        for i in 1..n.min(2) {
            for k in 0..K {
                lanes[k][i] = running[k].next::<P>(lanes[k][i]);
                // Only `First` predicts the second value of a lane.
                running[k].second = T::default();
            }
        }
        for i in 2..n {
            for k in 0..K {
                lanes[k][i] = running[k].next::<P>(lanes[k][i]);
            }
        }
    }

    /// The next value.
    #[inline(always)]
    fn next<const P: u8>(&mut self, residual: T) -> T {
        const FIRST: u8 = Predictor::First as u8;
        const HALF: u8 = Predictor::Half as u8;
        const SECOND: u8 = Predictor::Second as u8;
        match P {
            FIRST => self.first = residual,
            HALF => self.first = self.first.half().plus(residual),
            SECOND => self.first = self.first.plus(residual),
            _ => {
                self.second = self.second.plus(residual);
                self.first = self.first.plus(self.second);
            }
        }
        self.value = self.value.plus(self.first);
        self.value
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
            x in proptest::collection::vec(any::<i32>(), 0..60),
            s in 1usize..9,
            code in 0u8..5,
        ) {
            let p = Predictor::from_code(code).unwrap();
            let mut r = vec![0; x.len()];
            p.residuals(s, &x, &mut r);
            for i in 0..x.len() {
                prop_assert_eq!(r[i], x[i].wrapping_sub(expected(p, s, &x, i)), "{}", i);
            }
            let mut other = r.clone();
            p.restore(s, [&mut r, &mut other]);
            prop_assert_eq!(other, &x[..]);
            prop_assert_eq!(r, x);
        }
    }
}
