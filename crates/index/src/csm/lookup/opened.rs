//! A block opened for lookups: offsets are decoded at once, to search them; the other columns whole if many records are wanted, or
//! value by value if few.
use crate::MAX_EXTENT;
use crate::csm::block::{COLUMNS, MOST};
use crate::csm::record::{Key, Record};
use forebay_codec::Columns;
use std::ops::Range;

/// Columns behind those of the key.
const REST: usize = COLUMNS - 2;
/// From so many wanted records on, decoding whole columns costs less.
const MANY: usize = 4;

/// See the head of this file. Made for one block after the other, it keeps its buffers.
#[derive(Default)]
pub struct Opened<'a> {
    columns: Option<Columns<'a, COLUMNS>>,
    /// The file, if all records are of one.
    fid: Option<u64>,
    /// The files, if not.
    fids: Vec<u64>,
    offsets: Vec<u64>,
    /// len, member, log, addr, seq; decoded if `whole`.
    rest: [Vec<u64>; REST],
    whole: bool,
    scratch: Vec<u64>,
}

impl<'a> Opened<'a> {
    /// Opens the block with the keys from `first` to `last`. `None` if the bytes are no such block.
    pub fn open(&mut self, bytes: &'a [u8], first: Key, last: Key) -> Option<()> {
        self.whole = false;
        self.columns = None;
        let columns = Columns::open(bytes, MOST)?;
        columns.column(1, &mut self.offsets)?;
        self.fid = (first.fid == last.fid).then_some(first.fid);
        if self.fid.is_none() {
            columns.column(0, &mut self.fids)?;
        }
        self.columns = Some(columns);
        let end = self.rows().checked_sub(1)?;
        (self.key(0) == first && self.key(end) == last).then_some(())
    }

    /// Number of records.
    pub fn rows(&self) -> usize {
        self.offsets.len()
    }

    /// The key of a record.
    pub fn key(&self, row: usize) -> Key {
        Key {
            fid: self.fid.unwrap_or_else(|| self.fids[row]),
            offset: self.offsets[row],
        }
    }

    /// The first record at or above `key`; perhaps `hint`.
    pub fn at_or_above(&self, key: Key, hint: usize) -> usize {
        match self.fid {
            Some(fid) if fid < key.fid => self.rows(),
            Some(fid) if fid > key.fid => 0,
            Some(_) => {
                let offsets = &self.offsets[..];
                if hint < offsets.len()
                    && offsets[hint] >= key.offset
                    && hint
                        .checked_sub(1)
                        .is_none_or(|before| offsets[before] < key.offset)
                {
                    return hint;
                }
                offsets.partition_point(|offset| *offset < key.offset)
            }
            None => {
                let start = self.fids.partition_point(|fid| *fid < key.fid);
                let end = self.fids.partition_point(|fid| *fid <= key.fid);
                let within = &self.offsets[start..end.max(start)];
                start + within.partition_point(|offset| *offset < key.offset)
            }
        }
    }

    /// Makes ready for the reading of `wanted` records, about.
    pub fn expect(&mut self, wanted: usize) -> Option<()> {
        if wanted < MANY || self.whole {
            return Some(());
        }
        for (k, values) in self.rest.iter_mut().enumerate() {
            self.columns.as_ref()?.column(k + 2, values)?;
        }
        self.whole = true;
        Some(())
    }

    /// Appends the records of these rows. `None` if the block holds none there.
    pub fn records(&mut self, rows: Range<usize>, out: &mut Vec<Record>) -> Option<()> {
        self.expect(rows.len())?;
        for row in rows {
            let [len, member, log, addr, seq] = if self.whole {
                let rest = self.rest.each_ref();
                rest.map(|values| values[row])
            } else {
                let columns = self.columns.as_ref()?;
                let mut rest = [0; REST];
                for (k, value) in rest.iter_mut().enumerate() {
                    *value = columns.value(k + 2, row, &mut self.scratch)?;
                }
                rest
            };
            if len > MAX_EXTENT {
                return None;
            }
            out.push(Record {
                key: self.key(row),
                len: len as u32,
                member: u16::try_from(member).ok()?,
                log,
                addr,
                seq,
            });
        }
        Some(())
    }
}
