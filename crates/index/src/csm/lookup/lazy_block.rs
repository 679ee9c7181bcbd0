//! A block opened for lookups: columns are decoded only as far as any value of them needs (a regular column is a few numbers and a
//! rule), or whole if most records are wanted.
use crate::MAX_EXTENT;
use crate::csm::block::{COLUMNS, MAX_RECORDS};
use crate::csm::record::{Key, Record};
use crate::csm::search::{from_hint, interpolate};
use forebay_codec::{Columns, LazyColumn};
use std::ops::Range;

/// Columns after those of the key.
const VALUE_COLUMNS: usize = COLUMNS - 2;
/// If one record in this many is wanted, decoding whole columns costs less.
const FULL_DECODE_RATIO: usize = 4;

/// See the head of this file. Made for one block after the other, it keeps its buffers.
#[derive(Default)]
pub struct LazyBlock<'a> {
    columns: Option<Columns<'a, COLUMNS>>,
    /// The file, if all records are of one.
    fid: Option<u64>,
    /// The files, if not.
    fids: Vec<u64>,
    offsets: LazyColumn,
    first: u64,
    last: u64,
    /// len, member, log, addr, seq.
    rest: ValueColumns,
}

/// How far the columns after those of the key are decoded.
#[derive(Default)]
struct ValueColumns {
    state: State,
    lazy: [LazyColumn; VALUE_COLUMNS],
    whole: [Vec<u64>; VALUE_COLUMNS],
}

#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum State {
    #[default]
    Closed,
    LazyColumn,
    Whole,
}

impl ValueColumns {
    /// Makes ready for the reading of `wanted` of `rows` records. `None` if the columns are none.
    fn ready(&mut self, columns: &Columns<'_, COLUMNS>, wanted: usize, rows: usize) -> Option<()> {
        if self.state != State::Whole && wanted * FULL_DECODE_RATIO >= rows && wanted > 1 {
            for (k, values) in self.whole.iter_mut().enumerate() {
                columns.column(k + 2, values)?;
            }
            self.state = State::Whole;
        }
        if self.state == State::Closed {
            for (k, values) in self.lazy.iter_mut().enumerate() {
                columns.lazy(k + 2, values)?;
            }
            self.state = State::LazyColumn;
        }
        Some(())
    }

    /// The values of a row.
    #[inline]
    fn row(&self, row: usize) -> [u64; VALUE_COLUMNS] {
        if self.state == State::Whole {
            let [a, b, c, d, e] = &self.whole;
            return [a[row], b[row], c[row], d[row], e[row]];
        }
        let [a, b, c, d, e] = &self.lazy;
        [a.get(row), b.get(row), c.get(row), d.get(row), e.get(row)]
    }
}

impl<'a> LazyBlock<'a> {
    /// Opens the block with the keys from `first` to `last`, for the reading of about `wanted` records. `None` if the bytes are no
    /// such block.
    pub fn open(&mut self, bytes: &'a [u8], first: Key, last: Key, wanted: usize) -> Option<()> {
        self.rest.state = State::Closed;
        self.columns = None;
        let columns = Columns::open(bytes, MAX_RECORDS)?;
        columns.lazy(1, &mut self.offsets)?;
        self.fid = (first.fid == last.fid).then_some(first.fid);
        if self.fid.is_none() {
            columns.column(0, &mut self.fids)?;
        }
        (self.first, self.last) = (first.offset, last.offset);
        let end = self.rows().checked_sub(1)?;
        self.rest.ready(&columns, wanted, end + 1)?;
        self.columns = Some(columns);
        (self.key(0) == first && self.key(end) == last).then_some(())
    }

    /// Number of records.
    #[inline]
    pub fn rows(&self) -> usize {
        self.offsets.rows()
    }

    /// The key of a record.
    #[inline(always)]
    pub fn key(&self, row: usize) -> Key {
        Key {
            fid: self.fid.unwrap_or_else(|| self.fids[row]),
            offset: self.offsets.get(row),
        }
    }

    /// The first record at or above `key`; perhaps `hint`.
    pub fn at_or_above(&self, key: Key, hint: usize) -> usize {
        let rows = self.rows();
        let below = |row: usize| self.offsets.get(row) < key.offset;
        match self.fid {
            Some(fid) if fid < key.fid => rows,
            Some(fid) if fid > key.fid => 0,
            Some(_) => {
                let known = hint < rows && !below(hint) && (hint == 0 || below(hint - 1));
                if known {
                    return hint;
                }
                let near = interpolate(key.offset, self.first, self.last, rows);
                from_hint(near, rows, below)
            }
            None => from_hint(hint, rows, |row| {
                (self.fids[row], self.offsets.get(row)) < (key.fid, key.offset)
            }),
        }
    }

    /// Appends the records of these rows. `None` if the block holds none there.
    pub fn records(&mut self, rows: Range<usize>, out: &mut Vec<Record>) -> Option<()> {
        let all = self.rows();
        self.rest.ready(self.columns.as_ref()?, rows.len(), all)?;
        for row in rows {
            out.push(self.record(row, self.key(row))?);
        }
        Some(())
    }

    /// The record of this row, whose key is known. `None` if the block holds none there.
    #[inline]
    pub fn record(&self, row: usize, key: Key) -> Option<Record> {
        let [len, member, log, addr, seq] = self.rest.row(row);
        if len > MAX_EXTENT {
            return None;
        }
        Some(Record {
            key,
            len: len as u32,
            member: u16::try_from(member).ok()?,
            log,
            addr,
            seq,
        })
    }
}
