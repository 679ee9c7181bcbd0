//! Decoding (Algorithm 2), of whole pieces or from the reference point before a value.
//!
//! A value's bits are read as the low part of the eight bytes in which they begin. Where these would go beyond the piece, zeros are
//! read, so a damaged code never reads out of bounds. A part is refused if its values do not use exactly the bits it has.
use super::{MAX_STRIDE, PARAMETERS_LEN, WIDTHS, load, points};
use crate::container::head::ContainerHead;
use crate::container::{PIECE_LEN, PieceEdges};
use crate::cpu::dispatch;
use crate::element::ElementLayout;
use crate::error::CodecError;
use std::ops::Range;

/// Widths by a byte of two codes.
type PairTable = [[u8; 2]; 256];

/// The parameters of a container.
#[derive(Debug)]
pub(crate) struct XorDecoder {
    layout: ElementLayout,
    spacing: usize,
    stride: usize,
    pairs: Box<PairTable>,
}

/// The parts of a piece.
struct XorPieceParts<'a> {
    /// Where the parts after the first begin.
    starts: &'a [[u8; 2]],
    codes: &'a [u8],
    bits: &'a [u8],
}

impl XorDecoder {
    pub fn open(head: &ContainerHead, parameters: &[u8]) -> Result<XorDecoder, CodecError> {
        let Ok(parameters) = <&[u8; PARAMETERS_LEN]>::try_from(parameters) else {
            return Err(CodecError::DamagedHead(
                "the parameters are not those of xor",
            ));
        };
        let number = |at| usize::from(u16::from_le_bytes([parameters[at], parameters[at + 1]]));
        let (spacing, stride) = (number(0), number(2));
        let widths: [u8; WIDTHS] = std::array::from_fn(|i| parameters[4 + i]);
        if !points::is_spacing(spacing) {
            return Err(CodecError::DamagedHead(
                "reference points cannot be so far apart",
            ));
        }
        if stride == 0 || stride > MAX_STRIDE || stride > spacing {
            return Err(CodecError::DamagedHead("neighbours cannot be so far apart"));
        }
        let whole = 8 * head.layout.element.width();
        if !widths.is_sorted() || usize::from(widths[WIDTHS - 1]) != whole {
            return Err(CodecError::DamagedHead(
                "the widths are not those of the elements",
            ));
        }
        let pair = |byte: usize| [widths[byte % WIDTHS], widths[byte / WIDTHS]];
        Ok(XorDecoder {
            layout: head.layout,
            spacing,
            stride,
            pairs: Box::new(std::array::from_fn(pair)),
        })
    }

    pub fn decode_piece(&self, encoded: &[u8], out: &mut [u8]) -> Result<(), CodecError> {
        let edges = PieceEdges::of(&self.layout, out.len());
        let (encoded, elements) = edges.take(encoded, out)?;
        let parts = self.parts(encoded, edges.elements)?;
        let len = self.spacing * self.layout.element.width();
        let mut at = 0;
        for (k, part) in elements.chunks_mut(len).enumerate() {
            if self.start(&parts, k) != at {
                return Err(CodecError::DamagedPiece(
                    "a part is not where the one before ends",
                ));
            }
            at = self.decode_part(&parts, k, at, part);
        }
        if at.div_ceil(8) != parts.bits.len() {
            return Err(CodecError::DamagedPiece(
                "it has other bits than its codes say",
            ));
        }
        Ok(())
    }

    pub fn decode_range(
        &self,
        encoded: &[u8],
        raw_len: usize,
        range: Range<usize>,
        out: &mut [u8],
    ) -> Result<(), CodecError> {
        let edges = PieceEdges::of(&self.layout, raw_len);
        let size = self.layout.element.width();
        let elements_end = raw_len - edges.tail;
        if range.start < edges.lead || range.end > elements_end || range.is_empty() {
            let mut whole = [0; PIECE_LEN];
            self.decode_piece(encoded, &mut whole[..raw_len])?;
            out.copy_from_slice(&whole[range]);
            return Ok(());
        }
        let Some(encoded) = encoded.get(edges.len()..) else {
            return Err(CodecError::DamagedPiece("it ends within an edge"));
        };
        let parts = self.parts(encoded, edges.elements)?;
        // Elements that the range touches, and the part of the first.
        let first = (range.start - edges.lead) / size;
        let end = (range.end - edges.lead).div_ceil(size);
        let part_start = first - first % self.spacing;
        let mut decoded = [0; PIECE_LEN];
        for k in first / self.spacing..end.div_ceil(self.spacing) {
            let from = k * self.spacing;
            let to = (from + self.spacing).min(end);
            let part = &mut decoded[(from - part_start) * size..(to - part_start) * size];
            let at = self.start(&parts, k);
            if self.decode_part(&parts, k, at, part) > 8 * parts.bits.len() {
                return Err(CodecError::DamagedPiece(
                    "it has fewer bits than its codes say",
                ));
            }
        }
        let from = range.start - edges.lead - part_start * size;
        out.copy_from_slice(&decoded[from..from + range.len()]);
        Ok(())
    }

    fn parts<'a>(
        &self,
        encoded: &'a [u8],
        elements: usize,
    ) -> Result<XorPieceParts<'a>, CodecError> {
        let starts = 2 * elements.div_ceil(self.spacing).saturating_sub(1);
        let codes = elements.div_ceil(2);
        let cut = encoded
            .split_at_checked(starts)
            .and_then(|(starts, rest)| Some((starts, rest.split_at_checked(codes)?)));
        let Some((starts, (codes, bits))) = cut else {
            return Err(CodecError::DamagedPiece("it ends within its codes"));
        };
        Ok(XorPieceParts {
            starts: starts.as_chunks().0,
            codes,
            bits,
        })
    }

    /// The bit at which a part begins.
    fn start(&self, parts: &XorPieceParts, k: usize) -> usize {
        let start = k.checked_sub(1).and_then(|before| parts.starts.get(before));
        start.map_or(0, |start| usize::from(u16::from_le_bytes(*start)))
    }

    /// Decodes the first elements of part `k`, whose bits begin at `at`. Returns the bit behind the last.
    fn decode_part(&self, parts: &XorPieceParts, k: usize, at: usize, out: &mut [u8]) -> usize {
        let codes = &parts.codes[k * self.spacing / 2..];
        match (self.layout.element.width(), self.stride) {
            (2, 1) => take_part::<2>(codes, parts.bits, at, &self.pairs, out),
            (4, 1) => take_part::<4>(codes, parts.bits, at, &self.pairs, out),
            (_, 1) => take_part::<8>(codes, parts.bits, at, &self.pairs, out),
            (2, stride) => take_strided::<2>(codes, parts.bits, at, &self.pairs, stride, out),
            (4, stride) => take_strided::<4>(codes, parts.bits, at, &self.pairs, stride, out),
            (_, stride) => take_strided::<8>(codes, parts.bits, at, &self.pairs, stride, out),
        }
    }
}

/// The eight bytes in which bit `at` is, from it on: at least 57 bits.
#[inline(always)]
fn word_at(bits: &[u8], at: usize) -> u64 {
    let byte = at / 8;
    let word = match bits.get(byte..byte + 8) {
        Some(word) => load::<8>(word),
        None => last_word(bits, byte),
    };
    word >> (at % 8)
}

/// The same where fewer bytes are left: zeros follow them.
#[cold]
fn last_word(bits: &[u8], byte: usize) -> u64 {
    let rest = bits.get(byte..).unwrap_or_default();
    let mut word = [0; 8];
    for (to, from) in word.iter_mut().zip(rest) {
        *to = *from;
    }
    u64::from_le_bytes(word)
}

#[inline(always)]
fn low_bits(word: u64, width: u8) -> u64 {
    word & ((1 << width) - 1)
}

/// The value of so many bits at `at`, which moves behind it.
#[inline(always)]
fn take_value<const B: usize>(bits: &[u8], at: &mut usize, width: u8) -> u64 {
    if B < 8 {
        let value = low_bits(word_at(bits, *at), width);
        *at += usize::from(width);
        return value;
    }
    // As many as 71 bits with those before it: the ninth byte has the last.
    let (byte, shift) = (*at / 8, (*at % 8) as u32);
    let (word, ninth) = match bits.get(byte..byte + 9) {
        Some(bytes) => (load::<8>(bytes), bytes[8]),
        None => (
            last_word(bits, byte),
            bits.get(byte + 8).copied().unwrap_or(0),
        ),
    };
    *at += usize::from(width);
    let value = (word >> shift) | (u64::from(ninth) << 1) << (63 - shift);
    let above = u64::MAX.checked_shl(u32::from(width)).unwrap_or(0);
    value & !above
}

#[inline(always)]
fn store<const B: usize>(value: u64, out: &mut [u8]) {
    out[..B].copy_from_slice(&value.to_le_bytes()[..B]);
}

dispatch! {
    /// Decodes elements whose neighbour is the one before; the first is a reference point.
    fn take_part<const B: usize>(
        codes: &[u8],
        bits: &[u8],
        at: usize,
        pairs: &PairTable,
        out: &mut [u8],
    ) -> usize {
        let (mut at, mut before) = (at, 0);
        let whole = out.len() / (2 * B);
        let (both, last) = out.split_at_mut(whole * 2 * B);
        for (out, codes) in both.chunks_exact_mut(2 * B).zip(codes) {
            let [low, high] = pairs[usize::from(*codes)];
            if B == 2 {
                let word = word_at(bits, at);
                let first = before ^ low_bits(word, low);
                before = first ^ low_bits(word >> low, high);
                at += usize::from(low) + usize::from(high);
                store::<4>(first | before << 16, out);
            } else {
                let first = before ^ take_value::<B>(bits, &mut at, low);
                before = first ^ take_value::<B>(bits, &mut at, high);
                store::<B>(first, out);
                store::<B>(before, &mut out[B..]);
            }
        }
        if let (false, Some(codes)) = (last.is_empty(), codes.get(whole)) {
            let [low, _] = pairs[usize::from(*codes)];
            store::<B>(before ^ take_value::<B>(bits, &mut at, low), last);
        }
        at
    }
}

dispatch! {
    /// Decodes elements whose neighbour is `stride` before; those without one are reference points.
    fn take_strided<const B: usize>(
        codes: &[u8],
        bits: &[u8],
        at: usize,
        pairs: &PairTable,
        stride: usize,
        out: &mut [u8],
    ) -> usize {
        let mut at = at;
        for i in 0..out.len() / B {
            let width = pairs[usize::from(codes[i / 2])][i % 2];
            let value = take_value::<B>(bits, &mut at, width);
            let before = match i.checked_sub(stride) {
                Some(before) => load::<B>(&out[before * B..]),
                None => 0,
            };
            store::<B>(value ^ before, &mut out[i * B..]);
        }
        at
    }
}
