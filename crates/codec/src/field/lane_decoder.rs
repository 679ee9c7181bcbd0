//! Decodes lanes.
//!
//! One load gives at least 57 bits, of which some numbers are decoded before the next load: as many as mostly fit. Whether they
//! did is known from their lengths afterwards; else they are decoded again, one by one. What was read beyond the bits of the load
//! was zeros, and the code of the first number that does not fit makes the lengths exceed 57, whatever it seemed to be: a code
//! that seems shorter than it is would be the beginning of another.
use super::huffman::{self, CodeLengths, TABLE};
use super::lanes::{CONTEXTS, SLACK, SymbolContexts, low};
use super::symbols::{SYMBOLS, SymbolMap};
use crate::element::Word;

/// The bits that a load gives at least.
const LOADED_BITS: u32 = 57;

/// What a decoder of lanes needs of the codes.
pub(super) struct LaneDecoder<T> {
    /// By context and the next bits, entries of 32 bits:
    ///
    /// ```text
    ///  0      6     10        12     16       22    24       32
    /// +------+-----+---------+------+--------+-----+--------+
    /// | bits |     | context | more | length |     | symbol |
    /// +------+-----+---------+------+--------+-----+--------+
    /// ```
    /// `bits` are those of the code and the raw bits, at most 63, and `more` what is above. `length` are those of the code,
    /// `context` that of the next symbol. Each is where an instruction can use it without a mask, or is a mask only.
    tables: Box<[u32; CONTEXTS * TABLE]>,
    /// The lower ends of the symbols.
    lower: [T; SYMBOLS],
    first: usize,
    /// How many numbers are decoded from one load.
    group: usize,
}

impl<T: Word> LaneDecoder<T> {
    /// `lengths` has one code for each context; `None` if it has a symbol that is none of the map's.
    pub(super) fn new(
        map: SymbolMap,
        contexts: SymbolContexts,
        lengths: &[CodeLengths],
    ) -> Option<LaneDecoder<T>> {
        let mut tables = Box::new([0; CONTEXTS * TABLE]);
        let mut lower = [T::default(); SYMBOLS];
        // Bits of a number, in the mean that the codes let expect, times the entries of a table.
        let mut mean = 0;
        for (lengths, table) in lengths.iter().zip(tables.chunks_exact_mut(TABLE)) {
            let codes = huffman::codes(lengths);
            let mut of_table = 0;
            for symbol in (0..SYMBOLS).filter(|s| lengths[*s] > 0) {
                let (low, raw) = map.interval(symbol, T::BITS)?;
                lower[symbol] = T::truncate(low);
                let length = huffman::length(lengths, symbol);
                let bits = (length + raw).min(63);
                let entry = bits
                    | (length + raw - bits) << 12
                    | (contexts.after(symbol) as u32) << 10
                    | length << 16
                    | (symbol as u32) << 24;
                for slot in (usize::from(codes[symbol])..TABLE).step_by(1 << length) {
                    table[slot] = entry;
                    of_table += length + raw;
                }
            }
            mean = mean.max(of_table as usize / TABLE);
        }
        Some(LaneDecoder {
            tables,
            lower,
            first: contexts.first() * TABLE,
            group: match mean {
                0..=12 => 4,
                13..=27 => 2,
                _ => 1,
            },
        })
    }

    /// Decodes `K` lanes side by side, the first numbers of each, as many as `out[k]` has. `starts` are where they begin in the
    /// buffer, in bits; returns where they end. `MASK` as for the encoder.
    #[inline(always)]
    pub(super) fn decode<const K: usize, const MASK: usize>(
        &self,
        buffer: &[u8],
        starts: [usize; K],
        out: [&mut [T]; K],
    ) -> [usize; K] {
        match self.group {
            4 => self.decode_groups::<K, 4, MASK>(buffer, starts, out),
            2 => self.decode_groups::<K, 2, MASK>(buffer, starts, out),
            _ => self.decode_groups::<K, 1, MASK>(buffer, starts, out),
        }
    }

    #[inline(always)]
    fn decode_groups<const K: usize, const G: usize, const MASK: usize>(
        &self,
        buffer: &[u8],
        starts: [usize; K],
        out: [&mut [T]; K],
    ) -> [usize; K] {
        assert!(buffer.len() > MASK + SLACK);
        let n = out[0].len();
        let groups = out.map(|lane| lane[..n].as_chunks_mut::<G>());
        let mut at = starts;
        let mut contexts = [self.first; K];
        for i in 0..n / G {
            for k in 0..K {
                let numbers = &mut groups[k].0[i];
                (at[k], contexts[k]) =
                    self.decode_group::<G, MASK>(buffer, at[k], contexts[k], numbers);
            }
        }
        for k in 0..K {
            let rest = &mut *groups[k].1;
            (at[k], contexts[k]) = self.decode_one_by_one::<MASK>(buffer, at[k], contexts[k], rest);
        }
        at
    }

    #[inline(always)]
    fn load<const MASK: usize>(buffer: &[u8], at: usize) -> u64 {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&buffer[at >> 3 & MASK..][..8]);
        u64::from_le_bytes(bytes) >> (at & 7)
    }

    #[inline(always)]
    fn entry(&self, context: usize, bits: u64) -> u32 {
        self.tables[context & (TABLE * (CONTEXTS - 1)) | bits as usize & (TABLE - 1)]
    }

    /// Decodes some numbers; returns where they end, and the context after them.
    #[inline(always)]
    fn decode_group<const G: usize, const MASK: usize>(
        &self,
        buffer: &[u8],
        at: usize,
        context: usize,
        out: &mut [T; G],
    ) -> (usize, usize) {
        let mut bits = Self::load::<MASK>(buffer, at);
        let mut of_group = 0;
        let mut next = context;
        for out in out.iter_mut() {
            let entry = self.entry(next, bits);
            let of_number = entry & 63;
            let raw = bits & !(u64::MAX << of_number);
            let raw = raw >> (entry >> 16 & 63);
            bits >>= of_number;
            next = entry as usize & (TABLE * (CONTEXTS - 1));
            of_group += of_number;
            *out = self.lower[(entry >> 24) as usize].plus(T::truncate(raw));
        }
        if of_group > LOADED_BITS {
            return self.decode_one_by_one::<MASK>(buffer, at, context, out);
        }
        (at + of_group as usize, next)
    }

    /// Decodes any numbers, with a load for each.
    #[cold]
    #[inline(never)]
    fn decode_one_by_one<const MASK: usize>(
        &self,
        buffer: &[u8],
        mut at: usize,
        mut context: usize,
        out: &mut [T],
    ) -> (usize, usize) {
        for out in out {
            let bits = Self::load::<MASK>(buffer, at);
            let entry = self.entry(context, bits);
            let (of_number, length) = ((entry & 63) + (entry >> 12 & 15), entry >> 16 & 63);
            let raw = if of_number <= LOADED_BITS {
                low(bits, of_number) >> length
            } else {
                let at = at + length as usize;
                let (lower, upper) = (
                    Self::load::<MASK>(buffer, at),
                    Self::load::<MASK>(buffer, at + 32),
                );
                low(lower & 0xffff_ffff | upper << 32, of_number - length)
            };
            at += of_number as usize;
            context = entry as usize;
            *out = self.lower[(entry >> 24) as usize].plus(T::truncate(raw));
        }
        (at, context)
    }
}
