//! A column of numbers, one a slot: a progression, folded, or plain, whatever is smallest.

use crate::encode;
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
    Plain(Box<[u64]>),
}

const EVEN: u8 = 0;
const FOLDED: u8 = 1;
const PLAIN: u8 = 2;

impl Column {
    pub(crate) fn new(values: Vec<u64>) -> Column {
        let first = values.first().copied().unwrap_or(0);
        let step = values.get(1).map_or(0, |second| second.wrapping_sub(first));
        if values.windows(2).all(|w| w[1].wrapping_sub(w[0]) == step) {
            return Column::Even { first, step };
        }
        let mut folder = Folder::new();
        if values.iter().all(|v| folder.push(*v, 0).is_ok())
            && let [pattern] = &mut folder.finish()[..]
            && pattern.memory() < values.len() * 8
        {
            return Column::Folded(Box::new(std::mem::take(pattern)));
        }
        Column::Plain(values.into())
    }

    #[inline]
    pub(crate) fn get(&self, slot: u64) -> u64 {
        match self {
            Column::Even { first, step } => first.wrapping_add(step.wrapping_mul(slot)),
            Column::Folded(pattern) => pattern.get(slot).map_or(0, |e| e.offset),
            Column::Plain(values) => values.get(slot as usize).copied().unwrap_or(0),
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
            Column::Plain(values) => values.iter().max().copied(),
        }
    }

    pub(crate) fn memory(&self) -> usize {
        match self {
            Column::Even { .. } => 0,
            Column::Folded(pattern) => pattern.memory(),
            Column::Plain(values) => values.len() * 8,
        }
    }

    /// Appends the column:
    ///
    /// ```text
    ///  | 0 | first varint | step, signed |
    ///  | 1 | flags, 1 byte | length varint | body of a segment |
    ///  | 2 | differences, signed, one a slot |
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
            Column::Plain(values) => {
                out.push(PLAIN);
                let mut before = 0;
                for value in values {
                    varint::put(out, varint::fold(value.wrapping_sub(before)));
                    before = *value;
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
            PLAIN => {
                let mut value = 0u64;
                let mut values = Vec::new();
                for _ in 0..count {
                    value = value.wrapping_add(varint::unfold(next()?));
                    values.push(value);
                }
                Ok(Column::Plain(values.into()))
            }
            FOLDED => {
                let (&flags, rest) = bytes.split_first().ok_or(CUT)?;
                *bytes = rest;
                let length = varint::take(bytes).ok_or(CUT)?;
                let length = usize::try_from(length).map_err(|_| CUT)?;
                let (body, rest) = bytes.split_at_checked(length).ok_or(CUT)?;
                *bytes = rest;
                let pattern = encode::parse(flags, body, 0)?;
                let fits = pattern.elements() == count;
                fits.then(|| Column::Folded(Box::new(pattern)))
                    .ok_or("a column has another number of slots")
            }
            _ => Err("a column has an unknown form"),
        }
    }
}
