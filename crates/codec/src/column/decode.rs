//! Decodes a column, whole or only as far as a value is needed.
//!
//! Each token is read once, and no more than the given number of rows is produced.
use super::{LONG_MATCH, SHORTEST_MATCH};
use crate::varint;

/// Fills `values` from the tokens of `bytes`, and returns how many it filled: all, or if `LAZY` those before a match that reaches
/// the end, and where that copies from.
#[inline(always)]
fn fill<const LAZY: bool>(bytes: &mut &[u8], values: &mut [u64]) -> Option<(usize, Option<usize>)> {
    let (mut at, rows) = (0, values.len());
    while at < rows {
        let (&token, rest) = bytes.split_first()?;
        *bytes = rest;
        let n = usize::from(token & 0x7f);
        if token < 0x80 {
            let end = at + n + 1;
            literals(bytes, values, at, end)?;
            at = end;
            continue;
        }
        let more = match n {
            LONG_MATCH => usize::try_from(varint::take(bytes)?).ok()?,
            _ => 0,
        };
        let end = at.checked_add(n + SHORTEST_MATCH)?.checked_add(more)?;
        let distance = usize::try_from(varint::take(bytes)?).ok()?;
        let from = at.checked_sub(distance.checked_add(1)?)?;
        if end > rows {
            return None;
        }
        if LAZY && end == rows {
            return Some((at, Some(from)));
        }
        copy(values, from, at, end);
        at = end;
    }
    Some((at, None))
}

/// Reads a column of `values.len()` rows; all of `bytes` must belong to it. `None` if they are no such column.
pub fn decode(mut bytes: &[u8], values: &mut [u64]) -> Option<()> {
    if bytes.is_empty() {
        values.fill(0);
        return Some(());
    }
    fill::<false>(&mut bytes, values)?;
    bytes.is_empty().then_some(())
}

/// A column decoded as far as any of its values needs: all but a match at its end, which regular columns have. Keeps its buffer
/// from one column to the next.
#[derive(Debug, Default)]
pub struct LazyColumn {
    rows: usize,
    /// The values before the last match.
    values: Vec<u64>,
    /// How many these are.
    known: usize,
    /// How far back the last match copies from.
    distance: usize,
    /// The value before those that it copies.
    before: u64,
    /// What the value grows by in `distance` rows.
    sum: u64,
}

impl LazyColumn {
    /// Decodes a column of `rows` rows; all of `bytes` must belong to it. `None`: they are no such column.
    pub(crate) fn read(&mut self, mut bytes: &[u8], rows: usize) -> Option<()> {
        self.rows = rows;
        (self.known, self.distance, self.before, self.sum) = (0, 1, 0, 0);
        if bytes.is_empty() {
            return Some(());
        }
        if self.values.len() < rows {
            self.values.resize(rows, 0);
        }
        let values = &mut self.values[..rows];
        let (known, match_from) = fill::<true>(&mut bytes, values)?;
        if let Some(from) = match_from {
            self.distance = known - from;
            self.before = from.checked_sub(1).map_or(0, |before| values[before]);
            self.sum = values[known - 1].wrapping_sub(self.before);
        }
        self.known = known;
        bytes.is_empty().then_some(())
    }

    /// Number of rows.
    #[inline]
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The value of a row, of those there are.
    #[inline(always)]
    pub fn get(&self, row: usize) -> u64 {
        if row < self.known {
            return self.values[row];
        }
        // The differences repeat every `distance` rows, so the value grows by the same sum each time.
        let behind = row + 1 - self.known;
        if self.distance == 1 {
            return self
                .before
                .wrapping_add(self.sum.wrapping_mul(behind as u64 + 1));
        }
        self.periodic(behind)
    }

    /// The value `behind` rows after the last known one, if differences repeat.
    fn periodic(&self, behind: usize) -> u64 {
        // Rows of a block are few: a short division.
        let (turns, part) = (
            behind as u32 / self.distance as u32,
            behind as u32 % self.distance as u32,
        );
        let part = match part {
            0 => self.before,
            part => self.values[self.known - self.distance + part as usize - 1],
        };
        part.wrapping_add(self.sum.wrapping_mul(u64::from(turns) + 1))
    }
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
