//! The lanes of a span: runs of numbers that can be decoded apart, as bits. What encodes them; `lane_decoder` decodes.
//!
//! A number is the code of its symbol and the raw bits, low bits first; the code is from the table that the symbol before
//! chooses. Nothing is read or written by a loop over bits: each number is one unaligned load or store of 8 bytes.
//!
//! Invariant: an index into a buffer of bits is masked, so that damaged bits lead to wrong numbers, never outside the buffer.
use super::huffman::{self, Lengths, TABLE};
use super::symbols::{ESCAPE, SYMBOLS, SymbolMap};
use crate::element::Word;

/// The most tables of codes that a container has.
pub(super) const CONTEXTS: usize = 4;
/// The most lanes of a span.
pub(super) const LANES: usize = 8;
/// Which table codes the first symbol of a lane, if there are four.
const FIRST_CONTEXT: usize = 1;
/// The bytes of a buffer of bits after the place that an index can name.
pub(super) const SLACK: usize = 8;

/// Elements in a lane: at most eight lanes in a span, and few numbers to pass on the way to one.
pub(super) const fn lane_len<T: Word>() -> usize {
    if T::BYTES == 2 { 256 } else { 128 }
}

/// Which table codes the symbol after a symbol: the number of thresholds that its bit length exceeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Contexts {
    /// Ascending; `None`: there is one table.
    pub(super) thresholds: Option<[u8; CONTEXTS - 1]>,
}

impl Contexts {
    pub(super) const ONE: Contexts = Contexts { thresholds: None };

    pub(super) fn count(self) -> usize {
        self.thresholds.map_or(1, |_| CONTEXTS)
    }

    pub(super) fn first(self) -> usize {
        self.thresholds.map_or(0, |_| FIRST_CONTEXT)
    }

    pub(super) fn after(self, symbol: usize) -> usize {
        let exceeded = |t: &&u8| symbol / 2 > usize::from(**t);
        self.thresholds
            .map_or(0, |thresholds| thresholds.iter().filter(exceeded).count())
    }
}

/// The symbol has no code in the context, and is coded as [`ESCAPE`].
const ESCAPED: u32 = 1 << 15;

/// What an encoder of lanes needs of the codes.
pub(super) struct LaneEncoder {
    map: SymbolMap,
    /// By context and symbol: the code (10 bits), [`ESCAPED`], the length of the code (8 bits from the 16th on), the raw bits (8).
    codes: Box<[u32; CONTEXTS * SYMBOLS]>,
    /// Where the codes after a symbol are.
    after: [u16; SYMBOLS],
    first: usize,
}

impl LaneEncoder {
    /// `lengths` has one code for each context. A symbol without a code is coded as [`ESCAPE`].
    pub(super) fn new<T: Word>(
        map: SymbolMap,
        contexts: Contexts,
        lengths: &[Lengths],
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
        let mut after = [0; SYMBOLS];
        for (symbol, after) in after.iter_mut().enumerate() {
            *after = (contexts.after(symbol) * SYMBOLS) as u16;
        }
        LaneEncoder {
            map,
            codes,
            after,
            first: contexts.first() * SYMBOLS,
        }
    }

    /// Writes a lane to `buffer[at..]`; returns where it ends. `MASK + 1` is a power of two, and the buffer has `MASK + 1 + SLACK`
    /// bytes; a lane that is longer overwrites its beginning.
    #[inline(always)]
    pub(super) fn encode<T: Word, const MASK: usize>(
        &self,
        numbers: &[T],
        buffer: &mut [u8],
        at: usize,
    ) -> usize {
        match self.map {
            SymbolMap::Signed => {
                self.encode_by::<T, MASK>(|x| SymbolMap::Signed.symbol(x), numbers, buffer, at)
            }
            map => self.encode_by::<T, MASK>(|x| map.symbol(x), numbers, buffer, at),
        }
    }

    #[inline(always)]
    fn encode_by<T: Word, const MASK: usize>(
        &self,
        symbol_of: impl Fn(T) -> usize,
        numbers: &[T],
        buffer: &mut [u8],
        mut at: usize,
    ) -> usize {
        assert!(buffer.len() > MASK + SLACK);
        let mut context = self.first;
        let (mut held, mut count) = (0u64, 0u32);
        let mut push = |bits: u64, n: u32| {
            held |= bits << count;
            count += n;
            buffer[at & MASK..][..8].copy_from_slice(&held.to_le_bytes());
            at += (count >> 3) as usize;
            held >>= count & 56;
            count &= 7;
        };
        let mut next = |number: T| {
            let symbol = symbol_of(number) & (SYMBOLS - 1);
            let code = self.codes[(context + symbol) & (CONTEXTS * SYMBOLS - 1)];
            // The next context depends on the symbol alone, not on its code: so the loop does not wait for the table. Escapes are
            // rare, and a branch that is predicted is not waited for either.
            context = self.after[symbol].into();
            if code & ESCAPED > 0 {
                context = self.after[ESCAPE].into();
            }
            let (length, raw) = (code >> 16 & 63, code >> 24);
            let code = u64::from(code & (TABLE as u32 - 1));
            (code, length, low(number.bits(), raw), raw)
        };
        // 7 bits can be held, and a word has 64.
        if T::BITS < 64 {
            let (pairs, rest) = numbers.as_chunks::<2>();
            for [a, b] in pairs {
                let (a_code, a_length, a_raw, a_bits) = next(*a);
                let (b_code, b_length, b_raw, b_bits) = next(*b);
                let (a, a_bits) = (a_code | a_raw << a_length, a_length + a_bits);
                let (b, b_bits) = (b_code | b_raw << b_length, b_length + b_bits);
                if a_bits + b_bits <= 56 {
                    push(a | b << (a_bits & 63), a_bits + b_bits);
                } else {
                    push(a, a_bits);
                    push(b, b_bits);
                }
            }
            for number in rest {
                let (code, length, raw, bits) = next(*number);
                push(code | raw << length, length + bits);
            }
        } else {
            for number in numbers {
                let (code, length, raw, bits) = next(*number);
                if length + bits <= 56 {
                    push(code | raw << length, length + bits);
                } else {
                    push(code | (raw & 0xffff_ffff) << length, length + 32);
                    push(raw >> 32, bits - 32);
                }
            }
        }
        at + (count > 0) as usize
    }
}

/// The lowest bits.
#[inline(always)]
pub(super) fn low(bits: u64, n: u32) -> u64 {
    if n >= 64 { bits } else { bits & ((1 << n) - 1) }
}
