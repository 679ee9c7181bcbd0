//! A compressed column of numbers, one for each slot: an arithmetic progression, a folded pattern, a period whose values
//! grow by constant steps at each repetition, or plain bits; whichever is smallest.

use crate::encode::{self, GAPS};
use crate::parse::parse;
use crate::{Folder, Pattern};
use forebay_codec::varint;

/// See the module.
#[derive(Debug, Clone)]
pub(crate) enum Column {
    Even {
        first: u64,
        step: u64,
    },
    /// Offsets of the pattern's elements.
    Folded(Box<Pattern>),
    /// The first `period` values, each later turn `step` more than the one before.
    Turns {
        period: u64,
        step: u64,
        first: Box<Column>,
    },
    /// The first `period` values, each later turn as much more as `steps` says for each.
    Slopes {
        period: u64,
        first: Box<Column>,
        steps: Box<Column>,
    },
    /// Differences from the smallest value, each of `bits` bits, lowest bits first.
    Plain {
        least: u64,
        bits: u8,
        count: u64,
        bytes: Box<[u8]>,
    },
}

/// The byte in which the value of a slot begins, and the bit in it.
fn place(slot: u64, bits: u8) -> (usize, u32) {
    let at = u128::from(slot) * u128::from(bits);
    ((at / 8) as usize, (at % 8) as u32)
}

const TAG_ARITHMETIC: u8 = 0;
const FOLDED: u8 = 1;
const PLAIN: u8 = 2;
const TAG_PERIODIC: u8 = 3;
const TAG_PERIODIC_LINEAR: u8 = 4;
/// Values of a turn that each have a step, at most.
const MOST_SLOPES: usize = 1 << 24;

impl Column {
    pub(crate) fn new(values: Vec<u64>) -> Column {
        let first = values.first().copied().unwrap_or(0);
        let step = values.get(1).map_or(0, |second| second.wrapping_sub(first));
        if values.windows(2).all(|w| w[1].wrapping_sub(w[0]) == step) {
            return Column::Even { first, step };
        }
        let plain = Column::plain(&values);
        let mut folder = Folder::new();
        if values.iter().all(|v| folder.push(*v, 0).is_ok())
            && let [pattern] = &mut folder.finish()[..]
            && pattern.memory() < plain.memory()
        {
            return Column::Folded(Box::new(std::mem::take(pattern)));
        }
        plain
    }

    /// The same, if the values may repeat after as many as one of `turns`, shifted, or each go on by a step of its own: whatever takes
    /// least memory.
    pub(crate) fn with_periods(values: Vec<u64>, turns: &[u64]) -> Column {
        let count = values.len() as u64;
        let periods = turns.iter().filter(|t| (2..count).contains(*t));
        let others = periods.filter_map(|&period| {
            let (first, later) = values.split_at_checked(usize::try_from(period).ok()?)?;
            let steps = first.iter().zip(later).map(|(a, b)| b.wrapping_sub(*a));
            let steps: Vec<u64> = steps.collect();
            let even = |(i, (a, b)): (usize, (&u64, &u64))| {
                steps.get(i % first.len()) == Some(&b.wrapping_sub(*a))
            };
            if !values.iter().zip(later).enumerate().all(even) {
                return None;
            }
            let same = steps.iter().all(|s| *s == steps[0]);
            let whole = steps.len() == first.len();
            let found = match same {
                true => Column::Turns {
                    period,
                    step: steps[0],
                    first: Box::new(Column::new(first.to_vec())),
                },
                // With two turns there is nothing to gain.
                false if whole && count > 2 * period => Column::Slopes {
                    period,
                    first: Box::new(Column::new(first.to_vec())),
                    steps: Box::new(Column::new(steps)),
                },
                false => return None,
            };
            found.max(count).map(|_| found)
        });
        let others: Vec<Column> = others.collect();
        let plain = std::iter::once_with(|| Column::new(values.clone()));
        let all = others.into_iter().chain(plain);
        all.min_by_key(Column::memory)
            .unwrap_or_else(|| Column::plain(&values))
    }

    fn plain(values: &[u64]) -> Column {
        let least = values.iter().min().copied().unwrap_or(0);
        let range = values.iter().max().map_or(0, |most| most - least);
        let bits = (64 - range.leading_zeros()).max(1) as u8;
        let mut bytes = vec![0; (values.len() * usize::from(bits)).div_ceil(8)];
        for (slot, value) in values.iter().enumerate() {
            let (first, shift) = place(slot as u64, bits);
            let shifted = u128::from(value - least) << shift;
            let into = bytes.iter_mut().skip(first);
            for (byte, more) in into.zip(shifted.to_le_bytes()) {
                *byte |= more;
            }
        }
        Column::Plain {
            least,
            bits,
            count: values.len() as u64,
            bytes: bytes.into(),
        }
    }

    #[inline]
    pub(crate) fn get(&self, slot: u64) -> u64 {
        match self {
            Column::Even { first, step } => first.wrapping_add(step.wrapping_mul(slot)),
            Column::Folded(pattern) => pattern.get(slot).map_or(0, |e| e.offset),
            Column::Turns {
                period,
                step,
                first,
            } => first
                .get(slot % period)
                .wrapping_add(step.wrapping_mul(slot / period)),
            Column::Slopes {
                period,
                first,
                steps,
            } => {
                let (turn, at) = (slot / period, slot % period);
                first.get(at).wrapping_add(steps.get(at).wrapping_mul(turn))
            }
            Column::Plain {
                least,
                bits,
                bytes,
                count,
            } => {
                if slot >= *count {
                    return *least;
                }
                let (first, shift) = place(slot, *bits);
                let mut value = [0; 16];
                let there = bytes.get(first..).unwrap_or_default();
                let len = there.len().min(9);
                value[..len].copy_from_slice(&there[..len]);
                let mask = u64::MAX >> (64 - bits);
                least + ((u128::from_le_bytes(value) >> shift) as u64 & mask)
            }
        }
    }

    /// The largest of `count` values, or a bit more. `None` if a progression leaves 64 bits.
    pub(crate) fn max(&self, count: u64) -> Option<u64> {
        match self {
            Column::Even { first, step } => {
                let steps = i128::from(count.saturating_sub(1)) * i128::from(*step as i64);
                let last = u64::try_from(i128::from(*first) + steps).ok()?;
                Some(last.max(*first))
            }
            Column::Folded(pattern) => Some(pattern.bounds().1),
            Column::Turns {
                period,
                step,
                first,
            } => {
                let turns = i128::from(count.saturating_sub(1) / period) * i128::from(*step as i64);
                let most = first.max(*period)?;
                let last = u64::try_from(i128::from(most) + turns).ok()?;
                Some(last.max(most))
            }
            Column::Slopes {
                period,
                first,
                steps,
            } => {
                // From outside a period may be anything.
                let all = (0..*period.min(&count)).take(MOST_SLOPES + 1);
                let ends = all.map(|at| {
                    let turns = (count - 1 - at) / period;
                    let more = steps.get(at).checked_mul(turns)?;
                    first.get(at).checked_add(more)
                });
                let most = ends.reduce(|a, b| Some(a?.max(b?)))?;
                most.filter(|_| *period <= MOST_SLOPES as u64)
            }
            Column::Plain { .. } => (0..count).map(|slot| self.get(slot)).max(),
        }
    }

    pub(crate) fn memory(&self) -> usize {
        match self {
            Column::Even { .. } => 0,
            Column::Folded(pattern) => pattern.memory(),
            Column::Turns { first, .. } => size_of::<Column>() + first.memory(),
            Column::Slopes { first, steps, .. } => {
                2 * size_of::<Column>() + first.memory() + steps.memory()
            }
            Column::Plain { bytes, .. } => bytes.len(),
        }
    }

    /// Appends the column:
    ///
    /// ```text
    ///  | 0 | first varint | step, signed |
    ///  | 1 | flags, 1 byte | length varint | body of a segment |
    ///  | 2 | differences, signed, one a slot |
    ///  | 3 | period varint | step, signed | column of the first period |
    ///  | 4 | period varint | column of the first period | column of steps |
    /// ```
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        match self {
            Column::Even { first, step } => {
                out.push(TAG_ARITHMETIC);
                varint::put(out, *first);
                varint::put(out, varint::fold(*step));
            }
            Column::Folded(pattern) => {
                let (flags, body) = encode::body(pattern);
                out.extend([FOLDED, flags]);
                varint::put(out, body.len() as u64);
                out.extend_from_slice(&body);
            }
            Column::Turns {
                period,
                step,
                first,
            } => {
                out.push(TAG_PERIODIC);
                varint::put(out, *period);
                varint::put(out, varint::fold(*step));
                first.put(out);
            }
            Column::Slopes {
                period,
                first,
                steps,
            } => {
                out.push(TAG_PERIODIC_LINEAR);
                varint::put(out, *period);
                first.put(out);
                steps.put(out);
            }
            Column::Plain { count, .. } => {
                out.push(PLAIN);
                let mut before = 0;
                for slot in 0..*count {
                    let value = self.get(slot);
                    varint::put(out, varint::fold(value.wrapping_sub(before)));
                    before = value;
                }
            }
        }
    }

    /// Takes a column of `count` slots off `bytes`.
    pub(crate) fn take(bytes: &mut &[u8], count: u64) -> Result<Column, &'static str> {
        const CUT: &str = "a column is cut off";
        let (&tag, rest) = bytes.split_first().ok_or(CUT)?;
        *bytes = rest;
        let mut next = || varint::take(bytes).ok_or(CUT);
        match tag {
            TAG_ARITHMETIC => Ok(Column::Even {
                first: next()?,
                step: varint::unfold(next()?),
            }),
            TAG_PERIODIC => {
                let (period, step) = (next()?, varint::unfold(next()?));
                let first = Box::new(Column::part(bytes, period, count)?);
                Ok(Column::Turns {
                    period,
                    step,
                    first,
                })
            }
            TAG_PERIODIC_LINEAR => {
                let period = next()?;
                let first = Box::new(Column::part(bytes, period, count)?);
                let steps = Box::new(Column::part(bytes, period, count)?);
                Ok(Column::Slopes {
                    period,
                    first,
                    steps,
                })
            }
            PLAIN => {
                let mut value = 0u64;
                let mut values = Vec::new();
                for _ in 0..count {
                    value = value.wrapping_add(varint::unfold(next()?));
                    values.push(value);
                }
                Ok(Column::plain(&values))
            }
            FOLDED => {
                let (&flags, rest) = bytes.split_first().ok_or(CUT)?;
                *bytes = rest;
                let length = varint::take(bytes).ok_or(CUT)?;
                let length = usize::try_from(length).map_err(|_| CUT)?;
                let (body, rest) = bytes.split_at_checked(length).ok_or(CUT)?;
                *bytes = rest;
                if flags & GAPS != 0 {
                    return Err("a column has gaps");
                }
                let pattern = parse(flags, body, 0)?;
                let fits = pattern.elements() == count;
                fits.then(|| Column::Folded(Box::new(pattern)))
                    .ok_or("a column has another number of slots")
            }
            _ => Err("a column has an unknown form"),
        }
    }

    /// A column of one turn.
    fn part(bytes: &mut &[u8], period: u64, count: u64) -> Result<Column, &'static str> {
        let nested = matches!(bytes.first(), Some(&(TAG_PERIODIC | TAG_PERIODIC_LINEAR)));
        if period == 0 || period >= count || nested {
            return Err("a column turns wrongly");
        }
        Column::take(bytes, period)
    }
}

#[cfg(test)]
mod tests;
