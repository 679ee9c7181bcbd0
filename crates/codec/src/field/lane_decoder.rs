//! Decodes lanes.
//!
//! One load gives at least 57 bits. From it a group of numbers is decoded, as many as usually fit. If the lengths of their codes
//! add up to more than 57, the group did not fit, and is decoded again one number at a time. The sum always shows this: beyond the
//! loaded bits the decoder reads zeros, and because no code is the beginning of another, a code that was cut off cannot be taken
//! for a shorter one that would still fit.
//!
//! Lanes that are decoded side by side give *rows*: the first number of each lane, the second of each, and so on.
use super::huffman::{self, CodeLengths, TABLE};
use super::lanes::{SLACK, TABLES, TableUse, low};
use super::symbols::{SYMBOLS, SymbolMap};
use crate::element::Word;

/// The bits that a load gives at least.
const LOADED_BITS: u32 = 57;
/// Where the upper half of an entry has the next table: above the bits of all numbers of a load, and where it is a part of an index.
const TABLE_SHIFT: u32 = TABLE.trailing_zeros();
/// The most numbers that are decoded from one load.
const MAX_GROUP: usize = 8;
/// Lanes in one step of the loop over lanes, which is unrolled.
const LANES_PER_STEP: usize = 2;
/// The bits of some entries, added.
const SUM_MASK: u32 = (1 << TABLE_SHIFT) - 1;

const _: () = assert!(MAX_GROUP * 63 <= SUM_MASK as usize);
const _: () = assert!(16 + TABLE_SHIFT + TABLES.trailing_zeros() <= u32::BITS);

/// How bits are taken out of a word.
pub(super) trait BitExtraction {
    /// The bits from `control`'s lowest byte on, as many as its second byte says; anything if they do not end within the word.
    fn extract(bits: u64, control: u64) -> u64;
}

/// By shift and mask.
pub(super) struct PortableExtraction;

impl BitExtraction for PortableExtraction {
    #[inline(always)]
    fn extract(bits: u64, control: u64) -> u64 {
        bits >> (control & 63) & !(u64::MAX << (control >> 8 & 63))
    }
}

/// What a decoder of lanes needs of the codes. In one piece of memory, so that one value that is read alone waits for few fetches.
pub(super) struct LaneDecoder<T> {
    /// By table and the next bits:
    ///
    /// ```text
    ///  0        8      16     22    25      27    32
    /// +--------+------+------+-----+-------+-----+
    /// | length | raw  | bits |     | table |     |
    /// +--------+------+------+-----+-------+-----+
    /// ```
    /// `length` are the bits of the code and `raw` those after it, `bits` both together, but at most 63; `table` is that of the next symbol.
    /// Each is where an instruction can use it without a mask, or is a mask only; of some entries `bits` can be added without one.
    entries: [u32; TABLES * TABLE],
    /// The same: the lower end of the symbol's interval.
    lower: [T; TABLES * TABLE],
    /// How many numbers are decoded from one load.
    group: usize,
    /// Whether a symbol chooses the table of the next one; else a lane has one table.
    chained: bool,
}

/// Where a lane is decoded: the next bit, and the table of the next symbol, as in the upper half of an entry.
#[derive(Debug, Clone, Copy)]
pub(super) struct LaneCursor {
    at: u32,
    table: u32,
}

impl LaneCursor {
    /// At this bit, with this table.
    pub(super) fn new(at: usize, table: usize) -> LaneCursor {
        LaneCursor {
            // Both are small: a piece has 4 KiB.
            at: at as u32,
            table: (table << TABLE_SHIFT) as u32,
        }
    }

    /// The byte behind what was decoded.
    pub(super) fn end(self) -> usize {
        self.at.div_ceil(8) as usize
    }
}

impl<T: Word> LaneDecoder<T> {
    /// `lengths` has one code for each table; `None` if it has a symbol that is none of the map's.
    pub(super) fn new(
        map: SymbolMap,
        tables: TableUse,
        lengths: &[CodeLengths],
    ) -> Option<Box<LaneDecoder<T>>> {
        let mut decoder = Box::new(LaneDecoder {
            entries: [0; TABLES * TABLE],
            lower: [T::default(); TABLES * TABLE],
            group: 1,
            chained: matches!(tables, TableUse::BySymbolBefore(_)),
        });
        // Bits of a number, in the mean that the codes let expect, times the entries of a table.
        let mut mean = 0;
        let lower = decoder.lower.chunks_exact_mut(TABLE);
        let of_tables = decoder.entries.chunks_exact_mut(TABLE).zip(lower);
        for (table, (lengths, (entries, lower))) in lengths.iter().zip(of_tables).enumerate() {
            // A table without a symbol stays the lane's: how far a lane is decoded must not change its numbers.
            entries.fill((table as u32) << (16 + TABLE_SHIFT));
            let codes = huffman::codes(lengths);
            let mut of_table = 0;
            for symbol in (0..SYMBOLS).filter(|s| lengths[*s] > 0) {
                let (low, raw) = map.interval(symbol, T::BITS)?;
                let length = huffman::length(lengths, symbol);
                let entry = length
                    | raw << 8
                    | (length + raw).min(63) << 16
                    | (tables.after(table, symbol) as u32) << (16 + TABLE_SHIFT);
                for slot in (usize::from(codes[symbol])..TABLE).step_by(1 << length) {
                    entries[slot] = entry;
                    lower[slot] = T::truncate(low);
                    of_table += length + raw;
                }
            }
            mean = mean.max(of_table as usize / TABLE);
        }
        decoder.group = match mean {
            0..=5 => MAX_GROUP,
            6..=12 => 4,
            13..=27 => 2,
            _ => 1,
        };
        Some(decoder)
    }

    /// Fetches the entries of the first so many tables, all at once. A lane that is decoded alone looks up one after the other, and would wait
    /// for each that is in no near cache.
    #[inline(always)]
    pub(super) fn fetch(&self, tables: usize) {
        const LINE: usize = 64 / size_of::<u32>();
        let of_tables = &self.entries[..tables.min(TABLES) * TABLE];
        let any = of_tables.iter().step_by(LINE).fold(0, |all, e| all | e);
        std::hint::black_box(any);
    }

    /// Decodes `K` lanes side by side, `counts[k]` numbers of each, into the column `k` of `rows`. Returns where they end. `MASK` is
    /// as for the encoder; at most as many numbers as there are rows are decoded.
    #[inline(always)]
    pub(super) fn decode_rows<B: BitExtraction, const K: usize, const MASK: usize>(
        &self,
        buffer: &[u8],
        cursors: [LaneCursor; K],
        counts: [usize; K],
        rows: &mut [[T; K]],
    ) -> [LaneCursor; K] {
        macro_rules! groups {
            ($group:expr, $chained:expr) => {
                self.decode_groups::<B, K, $group, $chained, MASK>(buffer, cursors, counts, rows)
            };
        }
        match (self.group, self.chained) {
            (MAX_GROUP, true) => groups!(MAX_GROUP, true),
            (MAX_GROUP, false) => groups!(MAX_GROUP, false),
            (4, true) => groups!(4, true),
            (4, false) => groups!(4, false),
            (2, true) => groups!(2, true),
            (2, false) => groups!(2, false),
            (_, true) => groups!(1, true),
            (_, false) => groups!(1, false),
        }
    }

    #[inline(always)]
    fn decode_groups<
        B: BitExtraction,
        const K: usize,
        const G: usize,
        const CHAINED: bool,
        const MASK: usize,
    >(
        &self,
        buffer: &[u8],
        mut cursors: [LaneCursor; K],
        counts: [usize; K],
        rows: &mut [[T; K]],
    ) -> [LaneCursor; K] {
        assert!(buffer.len() > MASK + SLACK);
        let common = counts.into_iter().fold(rows.len(), usize::min);
        let (groups, rest) = rows[..common].as_chunks_mut::<G>();
        for group in groups {
            // Unrolled by hand, because the compiler does not unroll this loop.
            for step in 0..K / LANES_PER_STEP {
                for i in 0..LANES_PER_STEP {
                    let k = LANES_PER_STEP * step + i;
                    cursors[k] =
                        self.decode_group::<B, K, G, CHAINED, MASK>(buffer, cursors[k], group, k);
                }
            }
            let rest = cursors.iter_mut().enumerate();
            for (k, cursor) in rest.skip(K / LANES_PER_STEP * LANES_PER_STEP) {
                *cursor = self.decode_group::<B, K, G, CHAINED, MASK>(buffer, *cursor, group, k);
            }
        }
        for row in rest.as_chunks_mut().0 {
            for (k, cursor) in cursors.iter_mut().enumerate() {
                *cursor = self.decode_group::<B, K, 1, CHAINED, MASK>(buffer, *cursor, row, k);
            }
        }
        // Lanes that are longer than the shortest.
        for (k, (cursor, count)) in cursors.iter_mut().zip(counts).enumerate() {
            for row in rows.as_chunks_mut().0.iter_mut().take(count).skip(common) {
                *cursor = self.decode_group::<B, K, 1, CHAINED, MASK>(buffer, *cursor, row, k);
            }
        }
        cursors
    }

    /// As `decode_rows`, with a table for each number, which the base chose: one number from each load.
    #[inline(always)]
    pub(super) fn decode_rows_by_base<const K: usize, const MASK: usize>(
        &self,
        buffer: &[u8],
        mut cursors: [LaneCursor; K],
        counts: [usize; K],
        tables: &[[u8; K]],
        rows: &mut [[T; K]],
    ) -> [LaneCursor; K] {
        assert!(buffer.len() > MASK + SLACK);
        for (i, (row, tables)) in rows.iter_mut().zip(tables).enumerate() {
            for (k, cursor) in cursors.iter_mut().enumerate() {
                if i < counts[k] {
                    let table = u32::from(tables[k]) << TABLE_SHIFT;
                    (row[k], _) = self.decode_number::<MASK>(buffer, &mut cursor.at, table);
                }
            }
        }
        cursors
    }

    /// Decodes the number at a bit, which moves behind it; returns the table of the next one, too.
    #[inline(always)]
    fn decode_number<const MASK: usize>(
        &self,
        buffer: &[u8],
        at: &mut u32,
        table: u32,
    ) -> (T, u32) {
        let bits = Self::load::<MASK>(buffer, *at);
        let slot = Self::slot(table, bits);
        let entry = self.entries[slot];
        let (length, raw_bits) = (entry & 0xff, entry >> 8 & 0xff);
        let raw = if length + raw_bits <= LOADED_BITS {
            low(bits >> length, raw_bits)
        } else {
            let at = *at + length;
            let (lower, upper) = (
                Self::load::<MASK>(buffer, at),
                Self::load::<MASK>(buffer, at + 32),
            );
            low(lower & 0xffff_ffff | upper << 32, raw_bits)
        };
        *at += length + raw_bits;
        (self.lower[slot].plus(T::truncate(raw)), entry >> 16)
    }

    #[inline(always)]
    fn load<const MASK: usize>(buffer: &[u8], at: u32) -> u64 {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&buffer[at as usize >> 3 & MASK..][..8]);
        u64::from_le_bytes(bytes) >> (at & 7)
    }

    /// Where the entry of the next bits is; `table` as in a cursor.
    #[inline(always)]
    fn slot(table: u32, bits: u64) -> usize {
        let of_table = table as usize & ((TABLES - 1) << TABLE_SHIFT);
        of_table | bits as usize & (TABLE - 1)
    }

    /// Decodes some numbers of lane `k` into its column; returns where they end.
    #[inline(always)]
    fn decode_group<
        B: BitExtraction,
        const K: usize,
        const G: usize,
        const CHAINED: bool,
        const MASK: usize,
    >(
        &self,
        buffer: &[u8],
        cursor: LaneCursor,
        rows: &mut [[T; K]; G],
        k: usize,
    ) -> LaneCursor {
        let mut bits = Self::load::<MASK>(buffer, cursor.at);
        let mut sum = 0u32;
        let mut table = cursor.table;
        for row in rows.iter_mut() {
            let of_lane = if CHAINED { table } else { cursor.table };
            let slot = Self::slot(of_lane, bits);
            let entry = self.entries[slot];
            let raw = B::extract(bits, entry.into());
            let upper = entry >> 16;
            bits >>= upper & 63;
            table = upper;
            sum = sum.wrapping_add(upper);
            row[k] = self.lower[slot].plus(T::truncate(raw));
        }
        let of_group = sum & SUM_MASK;
        if of_group > LOADED_BITS {
            return self.decode_one_by_one::<K, MASK>(buffer, cursor, rows, k);
        }
        let at = cursor.at + of_group;
        LaneCursor { at, table }
    }

    /// Decodes any numbers, with a load for each.
    #[cold]
    #[inline(never)]
    fn decode_one_by_one<const K: usize, const MASK: usize>(
        &self,
        buffer: &[u8],
        cursor: LaneCursor,
        rows: &mut [[T; K]],
        k: usize,
    ) -> LaneCursor {
        let LaneCursor { mut at, mut table } = cursor;
        for row in rows {
            (row[k], table) = self.decode_number::<MASK>(buffer, &mut at, table);
        }
        LaneCursor { at, table }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_lane_whose_table_is_empty_is_that_of_the_whole() {
        let mut sole = [0; SYMBOLS];
        sole[2] = 15;
        let lengths = [sole, [0; SYMBOLS], [0; SYMBOLS], [0; SYMBOLS]];
        for tables in [TableUse::ByLane, TableUse::BySymbolBefore([1, 2, 3])] {
            let decoder = LaneDecoder::<i32>::new(SymbolMap::Signed, tables, &lengths).unwrap();
            let decode = |count: usize| {
                let mut rows = vec![[0]; count];
                let cursor = LaneCursor::new(0, 1);
                let _ = decoder.decode_rows::<PortableExtraction, 1, 1023>(
                    &[0xff; 1024 + SLACK],
                    [cursor],
                    [count],
                    &mut rows,
                );
                rows
            };
            let whole = decode(40);
            for count in 0..40 {
                assert_eq!(decode(count), whole[..count], "{count} with {tables:?}");
            }
        }
    }
}
