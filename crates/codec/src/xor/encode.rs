//! Encoding (Algorithm 1).
//!
//! The widths of a container come from a histogram of the values' widths in every eighth piece: adjacent widths are merged, each time the two
//! that add the fewest bits, until 16 are left.
//!
//! The inner loop has no branch that is hard to foretell. One look into a table gives a value's code and width. The bits are put behind
//! those of the value before in a word of 64 bits, all of which is stored; the output position advances by the complete bytes only.
use super::{PARAMETERS_LEN, WIDTHS, load};
use crate::container::{EncodedContainer, PIECE_LEN, PieceEdges};
use crate::cpu::dispatch;
use crate::element::ElementLayout;

/// Every so many pieces one is looked at for the widths.
const SAMPLED: usize = 8;
/// The most elements of a piece.
const MAX_ELEMENTS: usize = PIECE_LEN / 2;
/// Room for the bits of a piece, of which the last are stored eight bytes at once.
const BITS_LEN: usize = PIECE_LEN + 8;

/// How the values of a container are written.
struct CodeTable {
    /// By the number of bits of a value: the code, and above it the width.
    codes: [u16; 65],
    /// Two at once: each value waits for the position that the one before it leaves. Only where nearly all pairs fit [`MAX_PUT`]: a wrong
    /// guess of the processor costs as much as ten values.
    in_pairs: bool,
}

/// Buffers of a piece.
struct XorPieceBuffers {
    codes: [u8; MAX_ELEMENTS],
    bits: [u8; BITS_LEN],
}

/// Encodes all pieces of a container of elements of `B` bytes.
pub(super) fn container<const B: usize>(
    layout: &ElementLayout,
    spacing: usize,
    stride: usize,
    src: &[u8],
    out: &mut EncodedContainer,
) {
    let mut counts = [0; 65];
    for raw in src.chunks(PIECE_LEN).step_by(SAMPLED) {
        let edges = PieceEdges::of(layout, raw.len());
        let elements = &raw[edges.lead..raw.len() - edges.tail];
        count_bits::<B>(elements, spacing, stride, &mut counts);
    }
    let widths = choose_widths(&counts, 8 * B);
    let table = CodeTable {
        codes: code_table(&widths),
        in_pairs: B < 8 && are_mostly_narrow(&counts),
    };
    let head = out.head_mut();
    head.reserve(PARAMETERS_LEN);
    // Neither is more than the elements of a piece.
    head.extend((spacing as u16).to_le_bytes());
    head.extend((stride as u16).to_le_bytes());
    head.extend(widths);
    let mut piece = XorPieceBuffers {
        codes: [0; MAX_ELEMENTS],
        bits: [0; BITS_LEN],
    };
    for raw in src.chunks(PIECE_LEN) {
        let edges = PieceEdges::of(layout, raw.len());
        out.push_piece(raw, |bytes| {
            let elements = edges.put(raw, bytes);
            put_piece::<B>(elements, spacing, stride, &table, &mut piece, bytes);
            true
        });
    }
}

/// Counts values by their number of bits.
fn count_bits<const B: usize>(
    elements: &[u8],
    spacing: usize,
    stride: usize,
    counts: &mut [u32; 65],
) {
    for part in elements.chunks(spacing * B) {
        // Points are seldom, and have any width.
        let neighbours = part.chunks_exact(B).zip(part.chunks_exact(B).skip(stride));
        for (before, value) in neighbours {
            counts[bit_len(load::<B>(before) ^ load::<B>(value))] += 1;
        }
    }
}

#[inline(always)]
fn bit_len(value: u64) -> usize {
    (u64::BITS - value.leading_zeros()) as usize
}

/// The 16 widths, the last of them `whole`.
fn choose_widths(counts: &[u32; 65], whole: usize) -> [u8; WIDTHS] {
    // Each width with its values; a width that goes gives its values to the next.
    let mut classes: Vec<(u8, u32)> = (0..=whole).map(|w| (w as u8, counts[w])).collect();
    while classes.len() > WIDTHS {
        let cost = |i: usize| {
            let ((width, count), (next, _)) = (classes[i], classes[i + 1]);
            u64::from(count) * u64::from(next - width)
        };
        let Some(cheapest) = (0..classes.len() - 1).min_by_key(|i| cost(*i)) else {
            break;
        };
        let (_, count) = classes.remove(cheapest);
        classes[cheapest].1 += count;
    }
    std::array::from_fn(|i| classes[i].0)
}

/// Whether two values have seldom more than [`MAX_PUT`] bits.
fn are_mostly_narrow(counts: &[u32; 65]) -> bool {
    let half = MAX_PUT as usize / 2;
    let wide: u32 = counts[half + 1..].iter().sum();
    let all: u32 = counts.iter().sum();
    wide <= all / 16
}

fn code_table(widths: &[u8; WIDTHS]) -> [u16; 65] {
    std::array::from_fn(|bits| {
        let code = widths.iter().position(|width| usize::from(*width) >= bits);
        // More bits than an element has do not occur.
        let code = code.unwrap_or(WIDTHS - 1);
        code as u16 | u16::from(widths[code]) << 8
    })
}

/// Appends an encoded piece but for its edges.
fn put_piece<const B: usize>(
    elements: &[u8],
    spacing: usize,
    stride: usize,
    table: &CodeTable,
    piece: &mut XorPieceBuffers,
    out: &mut Vec<u8>,
) {
    let mut at = 0;
    for (k, part) in elements.chunks(spacing * B).enumerate() {
        if k > 0 {
            // At most the bits of a piece, 32,768.
            out.extend((at as u16).to_le_bytes());
        }
        let codes = &mut piece.codes[k * spacing..][..part.len() / B];
        at = put_part::<B>(part, stride, table, codes, &mut piece.bits, at);
    }
    let n = elements.len() / B;
    let (pairs, last) = piece.codes[..n].as_chunks::<2>();
    out.extend(pairs.iter().map(|[low, high]| low | high << 4));
    out.extend(last);
    out.extend_from_slice(&piece.bits[..at.div_ceil(8)]);
}

dispatch! {
    /// Encodes the values from one reference point to the next: their bits from bit `at` on. Returns the bit behind the last.
    fn put_part<const B: usize>(
        part: &[u8],
        stride: usize,
        table: &CodeTable,
        codes: &mut [u8],
        bits: &mut [u8; BITS_LEN],
        at: usize,
    ) -> usize {
        let mut writer = XorBitWriter {
            word: u64::from(bits[at / 8]) & ((1 << (at % 8)) - 1),
            free: (at % 8) as u32,
            at: at / 8,
            bits,
        };
        let points = (stride * B).min(part.len());
        let (point_codes, codes) = codes.split_at_mut(points / B);
        for (value, code) in part[..points].chunks_exact(B).zip(point_codes) {
            *code = writer.put_value::<B>(load::<B>(value), table);
        }
        let (neighbours, values) = (part, &part[points..]);
        if B < 8 && table.in_pairs {
            let pairs = values.chunks_exact(2 * B).zip(neighbours.chunks_exact(2 * B));
            let (code_pairs, last_code) = codes.as_chunks_mut::<2>();
            for ((pair, before), codes) in pairs.zip(code_pairs) {
                let (low, low_before) = (load::<B>(&pair[..B]), load::<B>(&before[..B]));
                let (high, high_before) = (load::<B>(&pair[B..]), load::<B>(&before[B..]));
                let (low, high) = (low ^ low_before, high ^ high_before);
                let (low_code, high_code) = (table.codes[bit_len(low)], table.codes[bit_len(high)]);
                *codes = [low_code as u8, high_code as u8];
                let (low_width, high_width) = (low_code >> 8, high_code >> 8);
                let width = u32::from(low_width + high_width);
                if B == 2 || width <= MAX_PUT {
                    writer.put(low | high << low_width, width);
                } else {
                    writer.put(low, low_width.into());
                    writer.put(high, high_width.into());
                }
            }
            if let [code] = last_code {
                let at = values.len() - B;
                let value = load::<B>(&values[at..]) ^ load::<B>(&neighbours[at..]);
                *code = writer.put_value::<B>(value, table);
            }
            return writer.position();
        }
        let pairs = values.chunks_exact(B).zip(neighbours.chunks_exact(B));
        for ((value, before), code) in pairs.zip(codes) {
            *code = writer.put_value::<B>(load::<B>(value) ^ load::<B>(before), table);
        }
        writer.position()
    }
}

/// The most bits that are put at once.
const MAX_PUT: u32 = 56;

/// Writes bits from the low end of each byte.
struct XorBitWriter<'a> {
    bits: &'a mut [u8; BITS_LEN],
    /// Byte at which `word` goes.
    at: usize,
    /// Bits that are not a whole byte yet; at most seven between calls.
    word: u64,
    /// How many these are.
    free: u32,
}

impl XorBitWriter<'_> {
    /// Writes `width` bits, at most [`MAX_PUT`]; `bits` has no others.
    #[inline(always)]
    fn put(&mut self, bits: u64, width: u32) {
        self.word |= bits << self.free;
        self.free += width;
        // The bits of a piece are at most `PIECE_LEN` bytes, behind which there is room for eight.
        self.bits[self.at..self.at + 8].copy_from_slice(&self.word.to_le_bytes());
        self.at += (self.free / 8) as usize;
        self.word >>= self.free & !7;
        self.free %= 8;
    }

    /// Writes a value in the bits of its code, and returns the code.
    #[inline(always)]
    fn put_value<const B: usize>(&mut self, value: u64, table: &CodeTable) -> u8 {
        let code = table.codes[bit_len(value)];
        let width = u32::from(code >> 8);
        if B == 8 {
            self.put(value & 0xffff_ffff, width.min(32));
            self.put(value >> 32, width.saturating_sub(32));
        } else {
            self.put(value, width);
        }
        code as u8
    }

    /// The bit behind the last.
    fn position(&self) -> usize {
        8 * self.at + self.free as usize
    }
}
