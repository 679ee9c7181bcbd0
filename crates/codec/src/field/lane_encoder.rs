//! Encodes lanes.
//!
//! Numbers are taken in blocks of [`BLOCK`]. For a block, symbols, contexts and the bits of each number are found by loops
//! without branches over arrays, which compile to vector instructions; what remains to be done one after the other is to append
//! some numbers at once to the bits. Nothing is written by a loop over bits: an append is one unaligned store of 8 bytes.
//!
//! Invariant: blocks leave no trace in the bits. They are those of the numbers one by one.
use super::huffman::{self, CodeLengths, TABLE};
use super::lanes::{CONTEXTS, SLACK, SymbolContexts, low};
use super::symbols::{ESCAPE, SYMBOLS, SymbolMap};
use crate::element::Word;

/// Numbers that are encoded together: those of a lane of 32 bits.
pub(super) const BLOCK: usize = 128;
/// The symbol has no code in the context, and is coded as [`ESCAPE`].
const ESCAPED: u32 = 1 << 15;
/// The most bits that are appended at once: 7 can be held, and a word has 64.
const APPENDED_BITS: u32 = 56;

/// Finds where in tables of codes, one for each context, the symbols of some numbers are.
pub(super) struct SymbolIndex {
    map: SymbolMap,
    thresholds: [u32; CONTEXTS - 1],
    first: usize,
}

impl SymbolIndex {
    pub(super) fn new(map: SymbolMap, contexts: SymbolContexts) -> SymbolIndex {
        SymbolIndex {
            map,
            // No symbol exceeds the largest.
            thresholds: contexts.thresholds.unwrap_or([u8::MAX; 3]).map(u32::from),
            first: contexts.first(),
        }
    }

    /// The context of the first symbol of a lane.
    pub(super) fn first(&self) -> u32 {
        self.first as u32
    }

    #[inline(always)]
    fn after(&self, symbol: u32) -> u32 {
        let exceeded = self.thresholds.map(|t| u32::from(symbol >> 1 > t));
        exceeded.iter().sum()
    }

    /// The indices of a block's symbols, the first of which has a context; returns the context after all.
    #[inline(always)]
    pub(super) fn find<T: Word>(
        &self,
        numbers: &[T; BLOCK],
        context: u32,
        indices: &mut [u32; BLOCK],
    ) -> u32 {
        let mut symbols = [0; BLOCK];
        self.map.symbols(numbers, &mut symbols);
        let mut contexts = [0; BLOCK + 1];
        for (context, symbol) in contexts[1..].iter_mut().zip(&symbols) {
            *context = self.after(*symbol);
        }
        contexts[0] = context;
        for ((index, context), symbol) in indices.iter_mut().zip(&contexts).zip(&symbols) {
            *index = *context * SYMBOLS as u32 + *symbol;
        }
        contexts[BLOCK]
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

/// What an encoder of lanes needs of the codes.
pub(super) struct LaneEncoder {
    index: SymbolIndex,
    /// By context and symbol: the code (10 bits), [`ESCAPED`], the length of the code (8 bits from the 16th on), the raw bits (8).
    codes: Box<[u32; CONTEXTS * SYMBOLS]>,
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
    /// `lengths` has one code for each context. A symbol without a code is coded as [`ESCAPE`].
    pub(super) fn new<T: Word>(
        map: SymbolMap,
        contexts: SymbolContexts,
        lengths: &[CodeLengths],
    ) -> LaneEncoder {
        let mut codes = Box::new([0; CONTEXTS * SYMBOLS]);
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
            index: SymbolIndex::new(map, contexts),
            codes,
        }
    }

    /// Writes a lane, the first `n` of some numbers, to `buffer[at..]`. What follows them is not written, but saves a copy of the
    /// last block. Returns where the lane ends. `MASK + 1` is a power of two, and the buffer has `MASK + 1 + SLACK` bytes;
    /// a lane that is longer overwrites its beginning.
    #[inline(always)]
    pub(super) fn encode<T: Word, const MASK: usize>(
        &self,
        numbers: &[T],
        n: usize,
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
        let mut context = self.index.first();
        let mut copy = [T::default(); BLOCK];
        for first in (0..n).step_by(BLOCK) {
            let block = first_block(&numbers[first..], &mut copy);
            context = self.encode_block(block, BLOCK.min(n - first), context, &mut out);
        }
        out.at + (out.count > 0) as usize
    }

    /// Appends the first `n` numbers of a block; returns the context after it.
    #[inline(always)]
    fn encode_block<T: Word, const MASK: usize>(
        &self,
        numbers: &[T; BLOCK],
        n: usize,
        context: u32,
        out: &mut BitAppender<'_, MASK>,
    ) -> u32 {
        let mut indices = [0; BLOCK];
        let mut next = self.index.find(numbers, context, &mut indices);
        let mut codes = [0; BLOCK];
        for (code, index) in codes.iter_mut().zip(&indices) {
            *code = self.code(*index);
        }
        codes[n..].fill(0);
        if codes.iter().fold(0, |all, code| all | code) & ESCAPED > 0 {
            next = self.escape(context, &indices[..n], &mut codes);
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
        self.codes[index as usize & (CONTEXTS * SYMBOLS - 1)]
    }

    /// Finds the codes anew, one by one: after a symbol that is coded as [`ESCAPE`] comes the context of that.
    #[cold]
    #[inline(never)]
    fn escape(&self, mut context: u32, indices: &[u32], codes: &mut [u32; BLOCK]) -> u32 {
        for (index, code) in indices.iter().zip(codes) {
            let symbol = index % SYMBOLS as u32;
            *code = self.code(context * SYMBOLS as u32 + symbol);
            let escaped = *code & ESCAPED > 0;
            context = self
                .index
                .after(if escaped { ESCAPE as u32 } else { symbol });
        }
        context
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
