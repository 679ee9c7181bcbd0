//! The metadata region: key range, place and checksum of every block, for binary search.
//!
//! ```text
//!  columns, one row a block, coded by `forebay_codec`:
//!  first fid | first offset | last fid | last offset | records | deletes, 0 or 1 | length | CRC32C
//! ```
//!
//! Blocks stand one behind the other from the start of the file, so their offsets are the sums of the lengths before.
use super::super::block::Block;
use super::super::record::Key;
use super::super::search::{from_hint, guess};
use forebay_codec::{Columns, Encoder};
use std::ops::Deref;

const COLUMNS: usize = 8;
/// No table has more blocks, whatever the settings.
pub const MOST: usize = 1 << 20;

/// What is known of a block without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
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

impl Place {
    /// The place of `block` if it is written at `offset`.
    pub fn of(block: &Block, offset: u64) -> Place {
        Place {
            first: block.first,
            last: block.last,
            offset,
            length: block.bytes.len() as u32,
            crc: crc32c::crc32c(&block.bytes),
            records: block.records,
            deletes: block.deletes,
        }
    }

    /// The offset behind its last byte.
    pub fn end(&self) -> u64 {
        self.offset + u64::from(self.length)
    }
}

/// The places of all blocks of a table, in order.
#[derive(Debug, Default)]
pub struct Places {
    list: Box<[Place]>,
    /// The offsets of their least keys, close together for searching; none if the blocks are not all of one file.
    firsts: Box<[u64]>,
}

impl Places {
    /// Of these, which ascend.
    pub fn new(list: Vec<Place>) -> Places {
        let one = match (list.first(), list.last()) {
            (Some(first), Some(last)) => first.first.fid == last.last.fid,
            _ => false,
        };
        let firsts = list.iter().filter(|_| one).map(|p| p.first.offset);
        Places {
            firsts: firsts.collect(),
            list: list.into(),
        }
    }

    /// The number of blocks that start at or before `key`; the search begins at `hint`, or where it is if blocks are regular.
    pub fn above(&self, key: Key, hint: usize) -> usize {
        let firsts = &self.firsts;
        if let ([first, ..], [.., last]) = (&firsts[..], &firsts[..])
            && self.list[0].first.fid == key.fid
        {
            let below = |i: usize| firsts[i] <= key.offset;
            let known = hint > 0 && hint < firsts.len() && below(hint - 1) && !below(hint);
            if known {
                return hint;
            }
            let near = guess(key.offset, *first, *last, firsts.len()) + 1;
            return from_hint(near, firsts.len(), below);
        }
        from_hint(hint, self.list.len(), |i| self.list[i].first <= key)
    }

    /// Whether block `i` starts below `key`. Costs no look at its place.
    pub fn starts_below(&self, i: usize, key: Key) -> bool {
        match self.firsts.get(i) {
            Some(first) => (self.list[0].first.fid, *first) < (key.fid, key.offset),
            None => self.list.get(i).is_some_and(|p| p.first < key),
        }
    }

    /// Memory held, in bytes.
    pub fn bytes(&self) -> usize {
        size_of::<Places>() + size_of_val(&self.list[..]) + size_of_val(&self.firsts[..])
    }
}

impl Deref for Places {
    type Target = [Place];

    fn deref(&self) -> &[Place] {
        &self.list
    }
}

/// Appends the region of these blocks, which follow each other from offset 0.
pub fn encode(places: &[Place], out: &mut Vec<u8>) {
    let fields: [fn(&Place) -> u64; COLUMNS] = [
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

/// Reads the region of `blocks` blocks that end at `end`. `None` if it is not one.
pub fn decode(bytes: &[u8], blocks: u32, end: u64) -> Option<Vec<Place>> {
    let columns = Columns::<COLUMNS>::open(bytes, (blocks as usize).min(MOST))?;
    if columns.rows() != blocks as usize {
        return None;
    }
    let mut fields: [Vec<u64>; COLUMNS] = Default::default();
    for (k, field) in fields.iter_mut().enumerate() {
        columns.column(k, field)?;
    }
    let mut places = Vec::with_capacity(columns.rows());
    let mut offset = 0;
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
        let place = Place {
            first: Key { fid, offset: from },
            last: Key {
                fid: last_fid,
                offset: last_from,
            },
            offset,
            length: u32::try_from(length).ok()?,
            crc: u32::try_from(crc).ok()?,
            records: u32::try_from(records).ok()?,
            deletes: deletes != 0,
        };
        offset = place.end();
        places.push(place);
    }
    let ascending = places.iter().all(|p| p.first <= p.last)
        && places.windows(2).all(|pair| pair[0].last < pair[1].first);
    (ascending && offset == end).then_some(places)
}
