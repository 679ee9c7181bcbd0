//! Blocks: the unit of compression, 4 KiB of records by default.
//!
//! ```text
//!  columns of a block, coded by `forebay_codec`: fid | offset | len | member | log | addr | seq          len 0: a delete
//! ```
//!
//! Invariant: the records of a block ascend strictly by key, `first` is its least key and `last` its greatest.
use super::record::{Key, RECORD, Record};
use crate::MAX_EXTENT;
use bytes::Bytes;
use forebay_codec::{Columns, Encoder};

/// Columns of a block.
pub(in crate::csm) const COLUMNS: usize = 7;
/// No block has more records, whatever the settings: 16 MiB of them.
pub(in crate::csm) const MAX_RECORDS: usize = (16 << 20) / RECORD;

/// A compressed block, with its bytes or elsewhere's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block<B = Bytes> {
    /// The least key.
    pub first: Key,
    /// The greatest key.
    pub last: Key,
    /// Number of records.
    pub records: u32,
    /// Whether some of them are deletes.
    pub deletes: bool,
    /// Its bytes.
    pub bytes: B,
}

impl<B: AsRef<[u8]>> Block<B> {
    /// Whether the key ranges have a key in common.
    pub fn overlaps(&self, other: &Block<B>) -> bool {
        self.first <= other.last && other.first <= self.last
    }

    /// Appends its records to `out`. `None` if the bytes are not a block with this range and number of records.
    pub fn records(&self, out: &mut Vec<Record>) -> Option<()> {
        let bytes = self.bytes.as_ref();
        records_of(bytes, (self.first, self.last), self.records, out)
    }
}

/// Appends the records of a block to `out`. `None` if the bytes are not a block of this key range and number of records.
pub fn records_of(
    bytes: &[u8],
    range: (Key, Key),
    count: u32,
    out: &mut Vec<Record>,
) -> Option<()> {
    let start = out.len();
    decode_columns(bytes, out)?;
    let records = &out[start..];
    let as_told = records.len() == count as usize
        && records.first().is_some_and(|r| r.key == range.0)
        && records.last().is_some_and(|r| r.key == range.1)
        && records.is_sorted_by(|a, b| a.key < b.key);
    as_told.then_some(())
}

/// Appends the columns of the records, in any order, to `out`.
pub fn encode_columns(records: &[Record], out: &mut Vec<u8>) {
    Coder::default().encode(records, out);
}

/// Appends the records of these columns to `out`. `None` if they are none.
pub fn decode_columns(bytes: &[u8], out: &mut Vec<Record>) -> Option<()> {
    let columns = Columns::<COLUMNS>::open(bytes, MAX_RECORDS)?;
    let start = out.len();
    let [mut a, mut b] = [Vec::new(), Vec::new()];
    columns.column(0, &mut a)?;
    columns.column(1, &mut b)?;
    out.extend(a.iter().zip(&b).map(|(fid, offset)| {
        Record::delete(Key {
            fid: *fid,
            offset: *offset,
        })
    }));
    let records = &mut out[start..];
    columns.column(2, &mut a)?;
    columns.column(3, &mut b)?;
    for (record, (len, member)) in records.iter_mut().zip(a.iter().zip(&b)) {
        if *len > MAX_EXTENT {
            return None;
        }
        record.len = *len as u32;
        record.member = u16::try_from(*member).ok()?;
    }
    columns.column(4, &mut a)?;
    columns.column(5, &mut b)?;
    for (record, (log, addr)) in records.iter_mut().zip(a.iter().zip(&b)) {
        (record.log, record.addr) = (*log, *addr);
    }
    columns.column(6, &mut a)?;
    for (record, seq) in records.iter_mut().zip(&a) {
        record.seq = *seq;
    }
    Some(())
}

/// Buffers for coding records by columns.
#[derive(Debug, Default)]
struct Coder {
    columns: [Vec<u64>; COLUMNS],
    encoder: Encoder,
}

impl Coder {
    fn encode(&mut self, records: &[Record], out: &mut Vec<u8>) {
        let fields: [fn(&Record) -> u64; COLUMNS] = [
            |r| r.key.fid,
            |r| r.key.offset,
            |r| r.len.into(),
            |r| r.member.into(),
            |r| r.log,
            |r| r.addr,
            |r| r.seq,
        ];
        for (column, field) in self.columns.iter_mut().zip(fields) {
            column.clear();
            column.extend(records.iter().map(field));
        }
        self.encoder
            .encode(&self.columns.each_ref().map(|c| &c[..]), out);
    }
}

/// Cuts ascending records into blocks.
#[derive(Debug)]
pub struct BlockSplitter {
    /// Records of a full block.
    pub full: usize,
    pending: Vec<Record>,
    coder: Coder,
    bytes: Vec<u8>,
}

impl BlockSplitter {
    /// Cuts blocks of about `block_bytes` before compression.
    pub fn new(block_bytes: usize) -> BlockSplitter {
        BlockSplitter {
            full: (block_bytes / RECORD).clamp(1, MAX_RECORDS),
            pending: Vec::new(),
            coder: Coder::default(),
            bytes: Vec::new(),
        }
    }

    /// Records that wait for their block.
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// The last record that waits.
    pub fn last(&self) -> Option<&Record> {
        self.pending.last()
    }

    /// Adds a record, whose key is above those before; the block, if that fills one.
    pub fn add(&mut self, record: Record) -> Option<Block> {
        self.pending.push(record);
        if self.pending.len() < self.full {
            return None;
        }
        self.cut()
    }

    /// Forgets what waits.
    pub fn clear(&mut self) {
        self.pending.clear();
    }

    /// The block of what waits, if anything does.
    pub fn cut(&mut self) -> Option<Block> {
        let pending = std::mem::take(&mut self.pending);
        let block = self.encode(&pending);
        self.pending = pending;
        self.pending.clear();
        block
    }

    /// The block of these records, ascending; `None` for none.
    pub fn encode(&mut self, records: &[Record]) -> Option<Block> {
        let (first, last) = (records.first()?, records.last()?);
        self.bytes.clear();
        self.coder.encode(records, &mut self.bytes);
        Some(Block {
            first: first.key,
            last: last.key,
            records: records.len() as u32,
            deletes: records.iter().any(|r| r.len == 0),
            bytes: Bytes::copy_from_slice(&self.bytes),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::records;
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn records_come_back_in_blocks_of_the_size_asked_for(
            records in records(300), block_bytes in 1usize..8000,
        ) {
            let mut splitter = BlockSplitter::new(block_bytes);
            let mut blocks: Vec<Block> = records.iter().filter_map(|r| splitter.add(*r)).collect();
            blocks.extend(splitter.cut());
            prop_assert_eq!(splitter.cut(), None);
            let mut back = Vec::new();
            for (i, block) in blocks.iter().enumerate() {
                block.records(&mut back).unwrap();
                prop_assert!(i + 1 == blocks.len() || block.records as usize == (block_bytes / RECORD).max(1));
            }
            prop_assert_eq!(back, records);
        }

        #[test]
        fn a_block_whose_range_or_count_is_another_is_refused(records in records(50)) {
            let Some(block) = BlockSplitter::new(1 << 20).encode(&records) else { return Ok(()) };
            let mut out = Vec::new();
            let wrong = [
                Block { records: block.records + 1, ..block.clone() },
                Block { first: Key { fid: block.first.fid ^ 1, ..block.first }, ..block.clone() },
                Block { last: Key { offset: block.last.offset ^ 1, ..block.last }, ..block.clone() },
                Block { bytes: block.bytes.slice(1..), ..block.clone() },
            ];
            for block in wrong {
                prop_assert!(block.records(&mut out).is_none());
            }
        }
    }
}
