//! Reading a column, whole or one value of it.
//!
//! Both look at every token only once, and never beyond the rows that they were told of.
use super::{LONG, SHORTEST};
use crate::varint;

/// What a token says of the rows from `at` on.
enum Token {
    /// So many differences follow.
    Literals(usize),
    /// Rows up to `end` have the differences of those from `from` on.
    Match { from: usize, end: usize },
}

impl Token {
    /// Takes the token that says something of row `at` of `rows`.
    #[inline]
    fn take(bytes: &mut &[u8], at: usize, rows: usize) -> Option<Token> {
        let (&token, rest) = bytes.split_first()?;
        *bytes = rest;
        let n = usize::from(token & 0x7f);
        if token < 0x80 {
            return (n < rows - at).then_some(Token::Literals(n + 1));
        }
        let more = match n {
            LONG => usize::try_from(varint::take(bytes)?).ok()?,
            _ => 0,
        };
        let end = at.checked_add(n + SHORTEST)?.checked_add(more)?;
        let distance = usize::try_from(varint::take(bytes)?).ok()?;
        let from = at.checked_sub(distance.checked_add(1)?)?;
        (end <= rows).then_some(Token::Match { from, end })
    }
}

/// Reads a column of `values.len()` rows; all of `bytes` must belong to it. `None` if they are no such column.
pub fn decode(mut bytes: &[u8], values: &mut [u64]) -> Option<()> {
    if bytes.is_empty() {
        values.fill(0);
        return Some(());
    }
    let mut at = 0;
    while at < values.len() {
        at = match Token::take(&mut bytes, at, values.len())? {
            Token::Literals(n) => {
                literals(&mut bytes, values, at, at + n)?;
                at + n
            }
            Token::Match { from, end } => {
                copy(values, from, at, end);
                end
            }
        };
    }
    bytes.is_empty().then_some(())
}

/// The value of row `row` of a column of `values.len()` rows. `values` is scratch: only what comes before the token that tells
/// the value is decoded, to be copied from. `None` if the bytes up to there are no such column; those behind are not looked at.
pub fn value(mut bytes: &[u8], row: usize, values: &mut [u64]) -> Option<u64> {
    if bytes.is_empty() {
        return (row < values.len()).then_some(0);
    }
    let mut at = 0;
    while at <= row {
        at = match Token::take(&mut bytes, at, values.len())? {
            Token::Literals(n) => {
                let end = (at + n).min(row + 1);
                literals(&mut bytes, values, at, end)?;
                if end > row {
                    return values.get(row).copied();
                }
                end
            }
            Token::Match { from, end } if row < end => {
                // The differences repeat every `at - from` rows, so the value grows by the same sum each time.
                let before = from.checked_sub(1).map_or(0, |before| values[before]);
                let sum = values[at - 1].wrapping_sub(before);
                let (turns, part) = ((row + 1 - at) / (at - from), (row + 1 - at) % (at - from));
                let part = part
                    .checked_sub(1)
                    .map_or(before, |part| values[from + part]);
                let turns = sum.wrapping_mul(turns as u64 + 1);
                return Some(part.wrapping_add(turns));
            }
            Token::Match { from, end } => {
                copy(values, from, at, end);
                end
            }
        };
    }
    None
}

/// Fills `at..end` from the differences that follow.
#[inline]
fn literals(bytes: &mut &[u8], values: &mut [u64], at: usize, end: usize) -> Option<()> {
    let mut value = at.checked_sub(1).map_or(0, |before| values[before]);
    for slot in values.get_mut(at..end)? {
        value = value.wrapping_add(varint::unfold(varint::take(bytes)?));
        *slot = value;
    }
    Some(())
}

/// Fills `at..end` with differences as those from `from` on; `from < at < end`.
#[inline]
fn copy(values: &mut [u64], from: usize, at: usize, end: usize) {
    let distance = at - from;
    // The value before the first is 0.
    let before = from.checked_sub(1).map_or(0, |before| values[before]);
    // Equal differences: what a value is above the one `distance` before it stays the same.
    let above = values[at - 1].wrapping_sub(before);
    if distance == 1 {
        let mut value = values[at - 1];
        for slot in &mut values[at..end] {
            value = value.wrapping_add(above);
            *slot = value;
        }
        return;
    }
    let mut start = at;
    while start < end {
        let n = distance.min(end - start);
        let (old, new) = values.split_at_mut(start);
        let old = &old[start - distance..];
        for (target, source) in new[..n].iter_mut().zip(old) {
            *target = source.wrapping_add(above);
        }
        start += n;
    }
}
