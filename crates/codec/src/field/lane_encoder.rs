//! Encodes lanes.
//!
//! Numbers are taken in blocks of [`BLOCK`]. For a block, symbols, tables and the bits of each number are found by loops
//! without branches over arrays, which compile to vector instructions; what remains to be done one after the other is to append
//! some numbers at once to the bits. Nothing is written by a loop over bits: an append is one unaligned store of 8 bytes.
//!
//! Invariant: blocks leave no trace in the bits. They are those of the numbers one by one.
use super::choose_predictor::SymbolCounts;
use super::huffman::{self, CodeLengths, TABLE};
use super::lanes::{SLACK, TABLES, TableUse, low};
use super::symbols::{ESCAPE, SYMBOLS, SymbolMap};
use crate::element::Word;

/// Numbers that are encoded together: those of a lane of 32 bits.
pub(super) const BLOCK: usize = 128;
/// The symbol has no code in the table, and is coded as [`ESCAPE`].
const ESCAPED: u32 = 1 << 15;
/// The most bits that are appended at once: 7 can be held, and a word has 64.
const APPENDED_BITS: u32 = 56;
/// Units of costs in a bit.
const COST_UNITS: u32 = 4;
/// What a symbol without a code is taken to cost: 256 of them are less than 16 bits.
const NO_CODE_COST: u32 = 40 * COST_UNITS;

/// Finds where in tables of codes the symbols of some numbers are.
#[derive(Clone, Copy)]
pub(super) struct SymbolIndex {
    map: SymbolMap,
    tables: TableUse,
}

impl SymbolIndex {
    pub(super) fn new(map: SymbolMap, tables: TableUse) -> SymbolIndex {
        SymbolIndex { map, tables }
    }

    /// The table of the first symbol of a lane that has this one.
    pub(super) fn first(&self, of_lane: u8) -> u32 {
        self.tables.first(of_lane) as u32
    }

    /// The symbols of a block.
    #[inline(always)]
    pub(super) fn symbols<T: Word>(&self, numbers: &[T; BLOCK], symbols: &mut [u32; BLOCK]) {
        self.map.symbols(numbers, symbols);
    }

    /// The indices of a block's symbols, the first of which has a table; returns the table after all. `by_base`: the table of each, if the base
    /// chooses.
    #[inline(always)]
    pub(super) fn find<T: Word>(
        &self,
        numbers: &[T; BLOCK],
        by_base: &[u8; BLOCK],
        table: u32,
        indices: &mut [u32; BLOCK],
    ) -> u32 {
        let mut symbols = [0; BLOCK];
        self.map.symbols(numbers, &mut symbols);
        if let TableUse::ByBase(_) = self.tables {
            for ((index, table), symbol) in indices.iter_mut().zip(by_base).zip(&symbols) {
                *index = u32::from(*table) * SYMBOLS as u32 + *symbol;
            }
            return table;
        }
        let TableUse::BySymbolBefore(thresholds) = self.tables else {
            for (index, symbol) in indices.iter_mut().zip(&symbols) {
                *index = table * SYMBOLS as u32 + *symbol;
            }
            return table;
        };
        let thresholds = thresholds.map(u32::from);
        let mut tables = [0; BLOCK + 1];
        for (table, symbol) in tables[1..].iter_mut().zip(&symbols) {
            let exceeded = thresholds.map(|t| u32::from(*symbol >> 1 > t));
            *table = exceeded.iter().sum();
        }
        tables[0] = table;
        for ((index, table), symbol) in indices.iter_mut().zip(&tables).zip(&symbols) {
            *index = *table * SYMBOLS as u32 + *symbol;
        }
        tables[BLOCK]
    }
}

/// What each symbol takes in each of four tables, in 16 bits each of a word: sums of a lane's do not overflow.
pub(super) struct TableCosts([u64; SYMBOLS]);

impl TableCosts {
    /// Of a code for each table.
    pub(super) fn of_codes(lengths: &[CodeLengths]) -> TableCosts {
        Self::new(lengths.len(), |table, symbol| {
            match lengths[table][symbol] {
                // Of a symbol without code, an escape, which is long.
                0 => NO_CODE_COST,
                _ => huffman::length(&lengths[table], symbol) * COST_UNITS,
            }
        })
    }

    /// Of codes that would be made for so many symbols in each table.
    pub(super) fn of_counts(counts: &[SymbolCounts; TABLES]) -> TableCosts {
        let totals = counts
            .each_ref()
            .map(|counts| (counts.0.iter().sum::<u32>().max(1) as f32).log2());
        Self::new(TABLES, |table, symbol| match counts[table].0[symbol] {
            0 => NO_CODE_COST,
            count => ((totals[table] - (count as f32).log2()) * COST_UNITS as f32) as u32,
        })
    }

    fn new(tables: usize, cost: impl Fn(usize, usize) -> u32) -> TableCosts {
        let of_symbol = |symbol| {
            let costs = (0..tables).rev().map(|table| cost(table, symbol));
            costs.fold(0, |all, cost| all << 16 | u64::from(cost.min(NO_CODE_COST)))
        };
        TableCosts(std::array::from_fn(of_symbol))
    }

    /// Costs of some symbols, added.
    #[inline(always)]
    pub(super) fn sum(&self, symbols: impl Iterator<Item = usize>) -> u64 {
        symbols.map(|symbol| self.0[symbol % SYMBOLS]).sum()
    }

    /// The table with the least cost of such a sum.
    #[inline(always)]
    pub(super) fn least(sum: u64) -> u8 {
        let of_table = |table: u8| sum >> (16 * table) & 0xffff;
        let mut least = 0;
        for table in 1..TABLES as u8 {
            if of_table(table) < of_table(least) {
                least = table;
            }
        }
        least
    }
}

/// The first numbers as a block, in place or, if they are fewer, in a copy that ends with zeros.
#[inline(always)]
pub(super) fn first_block<'a, T: Word>(
    numbers: &'a [T],
    copy: &'a mut [T; BLOCK],
) -> &'a [T; BLOCK] {
    if let Some(block) = numbers.first_chunk() {
        return block;
    }
    *copy = [T::default(); BLOCK];
    copy[..numbers.len()].copy_from_slice(numbers);
    copy
}

/// The tables of a block from some number on; zeros if the base chooses none.
#[inline(always)]
pub(super) fn tables_of_block(by_base: &[u8], first: usize) -> [u8; BLOCK] {
    let mut tables = [0; BLOCK];
    let from = by_base.get(first..).unwrap_or_default();
    let n = from.len().min(BLOCK);
    tables[..n].copy_from_slice(&from[..n]);
    tables
}

/// What an encoder of lanes needs of the codes.
pub(super) struct LaneEncoder {
    index: SymbolIndex,
    /// By table and symbol: the code (9 bits), [`ESCAPED`], the length of the code (8 bits from the 16th on), the raw bits (8).
    codes: Box<[u32; TABLES * SYMBOLS]>,
}

/// Bits on their way into a buffer.
struct BitAppender<'a, const MASK: usize> {
    buffer: &'a mut [u8],
    at: usize,
    held: u64,
    count: u32,
}

impl<const MASK: usize> BitAppender<'_, MASK> {
    #[inline(always)]
    fn append(&mut self, bits: u64, n: u32) {
        self.held |= bits << (self.count & 63);
        self.count += n;
        self.buffer[self.at & MASK..][..8].copy_from_slice(&self.held.to_le_bytes());
        self.at += (self.count >> 3) as usize;
        self.held >>= self.count & 56;
        self.count &= 7;
    }

    /// Appends two that are together at most 64 bits.
    #[inline(always)]
    fn append_two(&mut self, (a, a_bits): (u64, u32), (b, b_bits): (u64, u32)) {
        if a_bits + b_bits <= APPENDED_BITS {
            self.append(a | b << (a_bits & 63), a_bits + b_bits);
        } else {
            self.append(a, a_bits);
            self.append(b, b_bits);
        }
    }
}

/// The bits of a code and of the raw bits after it.
#[inline(always)]
fn widths(code: u32) -> (u32, u32) {
    (code >> 16 & 63, code >> 24)
}

impl LaneEncoder {
    /// `lengths` has one code for each table. A symbol without a code is coded as [`ESCAPE`].
    pub(super) fn new<T: Word>(
        map: SymbolMap,
        tables: TableUse,
        lengths: &[CodeLengths],
    ) -> LaneEncoder {
        let mut codes = Box::new([0; TABLES * SYMBOLS]);
        for (lengths, codes) in lengths.iter().zip(codes.chunks_exact_mut(SYMBOLS)) {
            let bits = huffman::codes(lengths);
            for symbol in 0..SYMBOLS {
                let coded = if lengths[symbol] > 0 { symbol } else { ESCAPE };
                let (_, raw) = map.interval(coded, T::BITS).unwrap_or((0, T::BITS));
                let length = huffman::length(lengths, coded);
                let escaped = if coded == symbol { 0 } else { ESCAPED };
                codes[symbol] = u32::from(bits[coded]) | escaped | length << 16 | raw << 24;
            }
        }
        LaneEncoder {
            index: SymbolIndex::new(map, tables),
            codes,
        }
    }

    /// The table that costs a lane least: the first `n` of some numbers.
    #[inline(always)]
    pub(super) fn best_table<T: Word>(&self, costs: &TableCosts, numbers: &[T], n: usize) -> u8 {
        let mut copy = [T::default(); BLOCK];
        let mut symbols = [0; BLOCK];
        let mut sum = 0;
        for first in (0..n).step_by(BLOCK) {
            let block = first_block(&numbers[first..], &mut copy);
            self.index.symbols(block, &mut symbols);
            let symbols = &symbols[..BLOCK.min(n - first)];
            sum += costs.sum(symbols.iter().map(|s| *s as usize));
        }
        TableCosts::least(sum)
    }

    /// Writes a lane, the first `n` of some numbers, to `buffer[at..]`, coded by this table if lanes have one of their own, or by these if the
    /// base chooses. What follows them is not written, but saves a copy of the last block. Returns where the lane ends. `MASK + 1` is a power of two, and the buffer
    /// has `MASK + 1 + SLACK` bytes; a lane that is longer overwrites its beginning.
    #[inline(always)]
    pub(super) fn encode<T: Word, const MASK: usize>(
        &self,
        numbers: &[T],
        n: usize,
        (table, by_base): (u8, &[u8]),
        buffer: &mut [u8],
        at: usize,
    ) -> usize {
        assert!(buffer.len() > MASK + SLACK);
        let mut out = BitAppender::<MASK> {
            buffer,
            at,
            held: 0,
            count: 0,
        };
        let mut table = self.index.first(table);
        let mut copy = [T::default(); BLOCK];
        for first in (0..n).step_by(BLOCK) {
            let block = first_block(&numbers[first..], &mut copy);
            let tables = tables_of_block(by_base, first);
            table = self.encode_block(block, &tables, BLOCK.min(n - first), table, &mut out);
        }
        out.at + (out.count > 0) as usize
    }

    /// Appends the first `n` numbers of a block; returns the table after it.
    #[inline(always)]
    fn encode_block<T: Word, const MASK: usize>(
        &self,
        numbers: &[T; BLOCK],
        by_base: &[u8; BLOCK],
        n: usize,
        table: u32,
        out: &mut BitAppender<'_, MASK>,
    ) -> u32 {
        let mut indices = [0; BLOCK];
        let mut next = self.index.find(numbers, by_base, table, &mut indices);
        let mut codes = [0; BLOCK];
        for (code, index) in codes.iter_mut().zip(&indices) {
            *code = self.code(*index);
        }
        codes[n..].fill(0);
        // Only a symbol before can have another table chosen.
        let by_symbol = matches!(self.index.tables, TableUse::BySymbolBefore(_));
        if by_symbol && codes.iter().fold(0, |all, code| all | code) & ESCAPED > 0 {
            next = self.escape(table, &indices[..n], &mut codes);
        }
        // More than 32 also if all 32 bits are raw, for which shifts of 32 bits are not enough.
        let most = codes.iter().fold(0, |most, code| {
            let (length, raw) = widths(*code);
            most.max(length + raw + (raw >> 5))
        });
        if most > 32 {
            for (number, code) in numbers.iter().zip(&codes[..n]) {
                append_wide(*number, *code, out);
            }
            return next;
        }
        let (mut bits, mut bit_lens) = ([0u32; BLOCK], [0u32; BLOCK]);
        for i in 0..BLOCK {
            let (length, raw) = widths(codes[i]);
            let number = numbers[i].bits() as u32 & !(u32::MAX << (raw & 31));
            bits[i] = codes[i] & (TABLE as u32 - 1) | number << (length & 31);
            bit_lens[i] = length + raw;
        }
        let all: u32 = bit_lens.iter().sum();
        let single = |i: usize| (u64::from(bits[i]), bit_lens[i]);
        if most > APPENDED_BITS / 2 {
            for i in (0..BLOCK).step_by(2) {
                out.append_two(single(i), single(i + 1));
            }
            return next;
        }
        let mut pairs = [0u64; BLOCK / 2];
        let mut pair_lens = [0u32; BLOCK / 2];
        for i in 0..BLOCK / 2 {
            let ((a, a_bits), (b, b_bits)) = (single(2 * i), single(2 * i + 1));
            pairs[i] = a | b << (a_bits & 63);
            pair_lens[i] = a_bits + b_bits;
        }
        // Two pairs at once if these mostly fit, so that the branch is foreseen.
        if all <= 12 * BLOCK as u32 {
            for i in (0..BLOCK / 2).step_by(2) {
                out.append_two((pairs[i], pair_lens[i]), (pairs[i + 1], pair_lens[i + 1]));
            }
        } else {
            for i in 0..BLOCK / 2 {
                out.append(pairs[i], pair_lens[i]);
            }
        }
        next
    }

    #[inline(always)]
    fn code(&self, index: u32) -> u32 {
        self.codes[index as usize & (TABLES * SYMBOLS - 1)]
    }

    /// Finds the codes anew, one by one: after a symbol that is coded as [`ESCAPE`] comes the table of that.
    #[cold]
    #[inline(never)]
    fn escape(&self, table: u32, indices: &[u32], codes: &mut [u32; BLOCK]) -> u32 {
        let mut table = table as usize;
        for (index, code) in indices.iter().zip(codes) {
            let symbol = *index as usize % SYMBOLS;
            *code = self.code((table * SYMBOLS + symbol) as u32);
            let escaped = *code & ESCAPED > 0;
            table = self
                .index
                .tables
                .after(table, if escaped { ESCAPE } else { symbol });
        }
        table as u32
    }
}

/// Appends a number of any bits.
#[inline(always)]
fn append_wide<T: Word, const MASK: usize>(number: T, code: u32, out: &mut BitAppender<'_, MASK>) {
    let (length, bits) = widths(code);
    let code = u64::from(code & (TABLE as u32 - 1));
    let raw = low(number.bits(), bits);
    if length + bits <= APPENDED_BITS {
        out.append(code | raw << length, length + bits);
    } else {
        out.append(code | (raw & 0xffff_ffff) << length, length + 32);
        out.append(raw >> 32, bits - 32);
    }
}
