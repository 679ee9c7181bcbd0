//! A column of numbers, one a slot: a progression, folded, or plain, whatever is smallest.

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
    /// Differences from the smallest value, of so many bytes each, little-endian.
    Plain {
        least: u64,
        width: u8,
        bytes: Box<[u8]>,
    },
}

const EVEN: u8 = 0;
const FOLDED: u8 = 1;
const PLAIN: u8 = 2;
const TURNS: u8 = 3;

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

    /// The same, if the values may repeat after as many as one of `turns`, shifted.
    pub(crate) fn turning(values: Vec<u64>, turns: &[u64]) -> Column {
        for &period in turns.iter().filter(|t| **t > 1) {
            let Some(later) = usize::try_from(period).ok().and_then(|p| values.get(p..)) else {
                continue;
            };
            let step = later.first().map_or(0, |v| v.wrapping_sub(values[0]));
            let same = |(a, b): (&u64, &u64)| b.wrapping_sub(*a) == step;
            if !later.is_empty() && values.iter().zip(later).all(same) {
                let first = Box::new(Column::new(values[..period as usize].to_vec()));
                return Column::Turns {
                    period,
                    step,
                    first,
                };
            }
        }
        Column::new(values)
    }

    fn plain(values: &[u64]) -> Column {
        let least = values.iter().min().copied().unwrap_or(0);
        let range = values.iter().max().map_or(0, |most| most - least);
        let width = (64 - range.leading_zeros()).div_ceil(8).max(1) as u8;
        let each = |v: &u64| (v - least).to_le_bytes().into_iter().take(width.into());
        Column::Plain {
            least,
            width,
            bytes: values.iter().flat_map(each).collect(),
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
            Column::Plain {
                least,
                width,
                bytes,
            } => {
                let width = usize::from(*width);
                let mut value = [0; 8];
                if let Some(there) = bytes
                    .get(slot as usize * width..)
                    .and_then(|b| b.get(..width))
                {
                    value[..width].copy_from_slice(there);
                }
                least + u64::from_le_bytes(value)
            }
        }
    }

    /// The largest of `count` values. `None` if a progression leaves 64 bits.
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
            Column::Plain { .. } => (0..count).map(|slot| self.get(slot)).max(),
        }
    }

    pub(crate) fn memory(&self) -> usize {
        match self {
            Column::Even { .. } => 0,
            Column::Folded(pattern) => pattern.memory(),
            Column::Turns { first, .. } => size_of::<Column>() + first.memory(),
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
    /// ```
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        match self {
            Column::Even { first, step } => {
                out.push(EVEN);
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
                out.push(TURNS);
                varint::put(out, *period);
                varint::put(out, varint::fold(*step));
                first.put(out);
            }
            Column::Plain { width, bytes, .. } => {
                out.push(PLAIN);
                let mut before = 0;
                for slot in 0..bytes.len() as u64 / u64::from(*width) {
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
            EVEN => Ok(Column::Even {
                first: next()?,
                step: varint::unfold(next()?),
            }),
            TURNS => {
                let (period, step) = (next()?, varint::unfold(next()?));
                if period == 0 || period >= count || bytes.first() == Some(&TURNS) {
                    return Err("a column turns wrongly");
                }
                let first = Box::new(Column::take(bytes, period)?);
                Ok(Column::Turns {
                    period,
                    step,
                    first,
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
}
