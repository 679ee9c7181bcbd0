//! An encoded piece that is shorter than its raw bytes.
//!
//! ```text
//!  0     1
//! +-----+-------+---------+
//! | 129 | edges | element |       constant: elements of one bit pattern
//! +-----+-------+---------+
//!
//!  0     1       e        t             t+2
//! +-----+-------+--------+-------------+--------------------------------------------+------+------+-----+
//! |  w  | edges | tables | least, bits | lane lengths, reference, w-bit differences | lane | lane | ... |
//! +-----+-------+--------+-------------+--------------------------------------------+------+------+-----+
//! ```
//! * `edges`: the bytes before the first whole element, then those after the last. None of them is in the number of elements.
//! * `tables`: which table codes each lane, 2 bits a lane, low bits first. Only if lanes have tables of their own.
//! * `least, bits` (16 bits): the bytes of the shortest lane (12), and the width of the lane lengths (4). Absent if there is one lane.
//! * Packed, low bits first, padded to a byte: for all lanes but the last, how much longer than `least` they are; the first
//!   number of the first lane; for each other lane, the first number less that of the lane before, in `w` bits, signed. A
//!   container without predictor has no such references, and `w` is 0.
//! * A lane begins at a byte, and its last byte is padded. It has the numbers but the first, or all if there are no references.
use super::FieldError;
use super::lanes::{LANES, TableUse};
use crate::container::PIECE_LEN;
use crate::element::Word;

pub(super) const CONSTANT: u8 = 129;

/// Where the lanes of a piece are, and their references.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LaneTable<T> {
    /// Where each lane begins and ends, in bytes of the encoded piece.
    pub(super) bounds: [u16; LANES + 1],
    pub(super) references: [T; LANES],
    /// Which table codes it; 0 if lanes have none of their own.
    pub(super) tables: [u8; LANES],
}

/// The bits of a signed number.
fn signed_bits(number: i64) -> u32 {
    65 - ((number ^ (number >> 63)) as u64).leading_zeros()
}

fn sign_extend(bits: u64, width: u32) -> i64 {
    if width == 0 {
        return 0;
    }
    (bits << (64 - width)) as i64 >> (64 - width)
}

/// Bits appended to bytes.
struct PackedBits<'a> {
    out: &'a mut Vec<u8>,
    held: u128,
    count: u32,
}

impl PackedBits<'_> {
    fn put(&mut self, bits: u64, width: u32) {
        let bits = u128::from(bits) & ((1 << width) - 1);
        self.held |= bits << self.count;
        self.count += width;
        while self.count >= 8 {
            self.out.push(self.held as u8);
            self.held >>= 8;
            self.count -= 8;
        }
    }

    fn finish(self) {
        if self.count > 0 {
            self.out.push(self.held as u8);
        }
    }
}

/// Bits of bytes, of which there are enough.
fn bits_at(bytes: &[u8], at: usize, width: u32) -> u64 {
    let from = bytes.get(at / 8..).unwrap_or_default();
    let mut word = [0; 16];
    match from.first_chunk::<16>() {
        Some(all) => word = *all,
        None => word[..from.len()].copy_from_slice(from),
    }
    let bits = u128::from_le_bytes(word) >> (at % 8);
    (bits & ((1 << width) - 1)) as u64
}

impl<T: Word> LaneTable<T> {
    /// Appends the head of a piece of lanes. `references` is empty if there are none; `lengths` are the bytes of the lanes.
    pub(super) fn put(
        edges: (&[u8], &[u8]),
        tables: Option<&[u8]>,
        references: &[T],
        reference_bits: u32,
        lengths: &[usize],
        out: &mut Vec<u8>,
    ) {
        let differences = || references.windows(2).map(|w| w[1].minus(w[0]).extend());
        let width = differences().map(signed_bits).max().unwrap_or(0);
        out.push(width as u8);
        out.extend_from_slice(edges.0);
        out.extend_from_slice(edges.1);
        for four in tables.unwrap_or_default().chunks(4) {
            out.push(four.iter().rev().fold(0, |all, table| all << 2 | table));
        }
        let least = lengths.iter().copied().min().unwrap_or(0);
        let longer = lengths.iter().map(|l| (l - least) as u64);
        let bits = 64 - longer.clone().max().unwrap_or(0).leading_zeros();
        if lengths.len() > 1 {
            out.extend(((least as u16) | (bits as u16) << 12).to_le_bytes());
        }
        let mut writer = PackedBits {
            out,
            held: 0,
            count: 0,
        };
        for longer in longer.take(lengths.len().saturating_sub(1)) {
            writer.put(longer, bits);
        }
        if let Some(first) = references.first() {
            writer.put(first.bits(), reference_bits);
        }
        for difference in differences() {
            writer.put(difference as u64, width);
        }
        writer.finish();
    }

    /// Reads the head of a piece of `lanes` lanes, of which `before` bytes are the tag and the edges. `reference_bits` is 0 if
    /// there are no references.
    ///
    /// # Errors
    /// If the lanes are not within the piece.
    #[inline(always)]
    pub(super) fn parse(
        piece: &[u8],
        before: usize,
        lanes: usize,
        table_use: TableUse,
        reference_bits: u32,
    ) -> Result<LaneTable<T>, FieldError> {
        let width = u32::from(*piece.first().ok_or(FieldError::Truncated)?);
        if width > T::BITS || lanes > LANES || lanes == 0 || piece.len() > PIECE_LEN {
            return Err(FieldError::Piece);
        }
        let mut tables = [0; LANES];
        let mut before = before;
        if table_use == TableUse::ByLane {
            let of_lanes = piece.get(before..before + lanes.div_ceil(4));
            let of_lanes = of_lanes.ok_or(FieldError::Truncated)?;
            for (lane, table) in tables[..lanes].iter_mut().enumerate() {
                *table = of_lanes[lane / 4] >> (lane % 4 * 2) & 3;
            }
            before += of_lanes.len();
        }
        let (mut least, mut bits) = (0, 0);
        let mut packed = before;
        if lanes > 1 {
            let head = piece.get(before..before + 2).ok_or(FieldError::Truncated)?;
            let head = u16::from_le_bytes([head[0], head[1]]);
            (least, bits) = (head & 0xfff, u32::from(head >> 12));
            packed += 2;
        }
        let others = lanes as u32 - 1;
        let differences = if reference_bits > 0 {
            others * width
        } else {
            0
        };
        let all = (others * bits + reference_bits + differences).div_ceil(8) as usize;
        let mut at = packed * 8;
        packed += all;
        if packed > piece.len() {
            return Err(FieldError::Truncated);
        }
        let mut table = LaneTable {
            bounds: [piece.len() as u16; LANES + 1],
            references: [T::default(); LANES],
            tables,
        };
        let mut end = packed as u32;
        table.bounds[0] = packed as u16;
        for bound in &mut table.bounds[1..lanes] {
            end += u32::from(least) + bits_at(piece, at, bits) as u32;
            at += bits as usize;
            if end as usize > piece.len() {
                return Err(FieldError::Truncated);
            }
            *bound = end as u16;
        }
        if reference_bits > 0 {
            let mut reference =
                T::truncate(sign_extend(bits_at(piece, at, reference_bits), reference_bits) as u64);
            at += reference_bits as usize;
            table.references[0] = reference;
            for next in &mut table.references[1..lanes] {
                let difference = sign_extend(bits_at(piece, at, width), width);
                at += width as usize;
                reference = reference.plus(T::truncate(difference as u64));
                *next = reference;
            }
        }
        Ok(table)
    }
}
