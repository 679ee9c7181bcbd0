//! The metadata region: key range, place and checksum of every block, for binary search.
//!
//! ```text
//!  columns, one row a block, coded by `forebay_codec`:
//!  first fid | first offset | last fid | last offset | records | deletes, 0 or 1 | length | CRC32C
//! ```
//!
//! Blocks stand one after the other from the first on, so their offsets are the sums of the lengths before.
use super::super::block::{self, Block, records_of};
use super::super::record::{Key, Record};
use forebay_codec::{Columns, Encoder};

const COLUMNS: usize = 8;
/// No table has more blocks, whatever the settings.
pub const MAX_TABLE_BLOCKS: usize = 1 << 20;

/// What is known of a block without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockLocation {
    /// The least key.
    pub first: Key,
    /// The greatest key.
    pub last: Key,
    /// Where it starts in the file, bytes.
    pub offset: u64,
    /// Its length, bytes.
    pub length: u32,
    /// CRC32C of its bytes.
    pub crc: u32,
    /// Number of records.
    pub records: u32,
    /// Whether some of them are deletes.
    pub deletes: bool,
}

impl BlockLocation {
    /// The place of `block` if it is written at `offset`.
    pub fn of(block: &Block, offset: u64) -> BlockLocation {
        BlockLocation {
            first: block.first,
            last: block.last,
            offset,
            length: block.bytes.len() as u32,
            crc: forebay_checksum::crc32c(&block.bytes),
            records: block.records,
            deletes: block.deletes,
        }
    }

    /// Appends its records, of these bytes, to `out`. `None` if they are not this block.
    pub fn records_in(&self, bytes: &[u8], out: &mut Vec<Record>) -> Option<()> {
        records_of(bytes, (self.first, self.last), self.records, out)
    }

    /// The offset after its last byte.
    pub fn end(&self) -> u64 {
        self.offset + u64::from(self.length)
    }
}

/// Appends the region of these blocks, which follow each other.
pub fn encode(places: &[BlockLocation], out: &mut Vec<u8>) {
    let fields: [fn(&BlockLocation) -> u64; COLUMNS] = [
        |p| p.first.fid,
        |p| p.first.offset,
        |p| p.last.fid,
        |p| p.last.offset,
        |p| p.records.into(),
        |p| p.deletes.into(),
        |p| p.length.into(),
        |p| p.crc.into(),
    ];
    let columns = fields.map(|field| places.iter().map(field).collect::<Vec<u64>>());
    Encoder::default().encode(&columns.each_ref().map(|c| &c[..]), out);
}

/// Reads the region of `blocks` blocks, the first of them at `start`. `None` if it is not one.
pub fn decode(bytes: &[u8], blocks: u32, start: u64) -> Option<Vec<BlockLocation>> {
    let columns = Columns::<COLUMNS>::open(bytes, (blocks as usize).min(MAX_TABLE_BLOCKS))?;
    if columns.rows() != blocks as usize {
        return None;
    }
    let mut fields: [Vec<u64>; COLUMNS] = Default::default();
    for (k, field) in fields.iter_mut().enumerate() {
        columns.column(k, field)?;
    }
    let mut places = Vec::with_capacity(columns.rows());
    let mut offset = start;
    let rows = (0..columns.rows()).map(|i| fields.each_ref().map(|field| field[i]));
    for [
        fid,
        from,
        last_fid,
        last_from,
        records,
        deletes,
        length,
        crc,
    ] in rows
    {
        let place = BlockLocation {
            first: Key { fid, offset: from },
            last: Key {
                fid: last_fid,
                offset: last_from,
            },
            offset,
            length: u32::try_from(length).ok()?,
            crc: u32::try_from(crc).ok()?,
            // So many fit into a block.
            records: u32::try_from(records)
                .ok()
                .filter(|n| *n as usize <= block::MAX_RECORDS)?,
            deletes: deletes != 0,
        };
        offset = place.end();
        places.push(place);
    }
    let ascending = places.iter().all(|p| p.first <= p.last)
        && places.windows(2).all(|pair| pair[0].last < pair[1].first);
    ascending.then_some(places)
}
