//! Decodes a piece: all of it, or the bytes of a range, for which only the lanes that hold them are decoded, and each no further
//! than needed.
use super::FieldError;
use super::base_tables::{BaseTables, Thresholds};
use super::decode::{OpenedModel, WordDecoder};
use super::lane_decoder::{BitExtraction, LaneCursor};
use super::lanes::{LANES, SLACK, TableUse, lane_len};
use super::parameters::NumberSource;
use super::piece::LaneTable;
use super::plan::against;
use super::predict::{Predictor, add_row};
use crate::container::{PIECE_LEN, PieceEdges};
use crate::element::Word;
use std::ops::Range;

/// An encoded piece of lanes is at most as long as a raw one.
const PIECE_MASK: usize = PIECE_LEN - 1;
/// The bytes of a lane, at most: 128 numbers of 64 raw bits and a code of 9 bits each.
const WIDE_LANE_MASK: usize = 2047;
/// The same of elements of 32 or 16 bits.
const LANE_MASK: usize = 1023;
/// The most elements of a lane.
const MAX_LANE: usize = 256;

/// A piece to decode.
pub(super) struct PieceJob<'a> {
    pub(super) opened: &'a OpenedModel,
    pub(super) piece: &'a [u8],
    pub(super) base: &'a [u8],
    pub(super) edges: PieceEdges,
}

impl PieceJob<'_> {
    pub(super) fn constant(&self, range: Range<usize>, out: &mut [u8]) -> Result<(), FieldError> {
        let width = self.opened.layout.element.width();
        let edges = self.edges.len();
        if self.piece.len() != 1 + edges + width {
            return Err(FieldError::Piece);
        }
        let element = &self.piece[1 + edges..];
        self.copy_edges(&range, out);
        let elements = self.edges.range();
        for at in range.start.max(elements.start)..range.end.min(elements.end) {
            out[at - range.start] = element[(at - elements.start) % width];
        }
        Ok(())
    }

    /// The bytes of a range that are no elements, of which the piece has all.
    fn copy_edges(&self, range: &Range<usize>, out: &mut [u8]) {
        let elements = self.edges.range();
        if range.start >= elements.start && range.end <= elements.end {
            return;
        }
        let edges = &self.piece[1..1 + self.edges.len()];
        let lead = range.start..range.end.min(elements.start);
        for at in lead.chain(range.start.max(elements.end)..range.end) {
            let i = if at < elements.end {
                at
            } else {
                at - elements.len()
            };
            out[at - range.start] = edges[i];
        }
    }

    /// Decodes a piece of lanes.
    #[inline(always)]
    pub(super) fn decode<T: Word, B: BitExtraction>(
        &self,
        decoder: &WordDecoder<T>,
        range: Range<usize>,
        out: &mut [u8],
    ) -> Result<(), FieldError> {
        let n = self.edges.elements;
        let before = 1 + self.edges.len();
        if n == 0 || self.piece.len() < before {
            return Err(FieldError::Piece);
        }
        self.copy_edges(&range, out);
        let lane = lane_len::<T>();
        let table = LaneTable::<T>::parse(
            self.piece,
            before,
            n.div_ceil(lane),
            self.opened.model.tables,
            self.opened.reference_bits,
        )?;
        let elements = self.edges.range();
        // From and to, in bytes of the elements.
        let from = range.start.clamp(elements.start, elements.end) - elements.start;
        let to = range.end.clamp(elements.start, elements.end) - elements.start;
        if from >= to {
            return Ok(());
        }
        let out = &mut out[elements.start + from - range.start..][..to - from];
        if from == 0 && to == elements.len() {
            return self.decode_all::<T, B>(decoder, &table, out);
        }
        if self.opened.model.row > 0 {
            // Every row is needed for the one after it.
            let mut all = [0; PIECE_LEN];
            let all = &mut all[..elements.len()];
            self.decode_all::<T, B>(decoder, &table, all)?;
            out.copy_from_slice(&all[from..to]);
            return Ok(());
        }
        let lane_bytes = lane * T::BYTES;
        let mut numbers = [[T::default()]; MAX_LANE];
        for k in from / lane_bytes..to.div_ceil(lane_bytes) {
            let start = k * lane_bytes;
            let (a, b) = (from.max(start) - start, to.min(start + lane_bytes) - start);
            let (first, end) = (a / T::BYTES, b.div_ceil(T::BYTES));
            let all = (n - k * lane).min(lane);
            // With a stride, later values are needed by none.
            let numbers = &mut numbers[..end.min(all)];
            self.decode_lane::<T, B>(decoder, &table, k, all, numbers)?;
            let base = self.base_of(start + first * T::BYTES);
            let numbers = numbers[first..].iter().map(|[number]| *number);
            let out = &mut out[start + a - from..][..b - a];
            if out.len() == (end - first) * T::BYTES {
                self.store(decoder, numbers, base, out)?;
                continue;
            }
            // A part of an element at an end.
            let mut bytes = [0; MAX_LANE * 8];
            let bytes = &mut bytes[..(end - first) * T::BYTES];
            self.store(decoder, numbers, base, bytes)?;
            let skip = a - first * T::BYTES;
            out.copy_from_slice(&bytes[skip..][..b - a]);
        }
        Ok(())
    }

    /// The bytes of the base from so many bytes of elements on.
    fn base_of(&self, at: usize) -> &[u8] {
        match self.base {
            [] => &[],
            base => &base[self.edges.range()][at..],
        }
    }

    #[inline(always)]
    fn decode_all<T: Word, B: BitExtraction>(
        &self,
        decoder: &WordDecoder<T>,
        table: &LaneTable<T>,
        out: &mut [u8],
    ) -> Result<(), FieldError> {
        let mut buffer = [0; PIECE_MASK + 1 + SLACK];
        buffer[..self.piece.len()].copy_from_slice(self.piece);
        // As many rows as a lane has numbers.
        match T::BYTES {
            2 => self.decode_rows::<T, B, LANES>(
                decoder,
                table,
                &buffer,
                &mut [[T::default(); LANES]; 256],
                out,
            ),
            4 => self.decode_rows::<T, B, LANES>(
                decoder,
                table,
                &buffer,
                &mut [[T::default(); LANES]; 128],
                out,
            ),
            _ => self.decode_rows::<T, B, 4>(
                decoder,
                table,
                &buffer,
                &mut [[T::default(); 4]; 128],
                out,
            ),
        }
    }

    /// Decodes all lanes side by side.
    #[inline(always)]
    fn decode_rows<T: Word, B: BitExtraction, const K: usize>(
        &self,
        decoder: &WordDecoder<T>,
        table: &LaneTable<T>,
        buffer: &[u8; PIECE_MASK + 1 + SLACK],
        rows: &mut [[T; K]],
        out: &mut [u8],
    ) -> Result<(), FieldError> {
        let n = out.len() / T::BYTES;
        let lane = rows.len();
        let model = &self.opened.model;
        let counts: [usize; K] = std::array::from_fn(|k| n.saturating_sub(k * lane).min(lane));
        self.decode_lanes::<T, B, K, PIECE_MASK>(decoder, table, 0, buffer, 0, counts, rows)?;
        if model.row > 0 {
            let mut numbers = [T::default(); PIECE_LEN / 2];
            let numbers = &mut numbers[..n];
            for (k, numbers) in numbers.chunks_mut(lane).enumerate().take(K) {
                for (number, row) in numbers.iter_mut().zip(&*rows) {
                    *number = row[k];
                }
            }
            add_row(model.row, numbers);
            return self.store(decoder, numbers.iter().copied(), self.base_of(0), out);
        }
        let columns = out.chunks_mut(lane * T::BYTES).enumerate().take(K);
        if model.source == NumberSource::Ordered {
            // Rows are vectors, columns are not.
            for x in rows.as_flattened_mut() {
                *x = x.unordered(model.shift);
            }
            for (k, out) in columns {
                for (out, row) in out.chunks_exact_mut(T::BYTES).zip(&*rows) {
                    row[k].store(out);
                }
            }
            return Ok(());
        }
        for (k, out) in columns {
            let numbers = rows.iter().map(|row| row[k]);
            self.store(decoder, numbers, self.base_of(k * lane * T::BYTES), out)?;
        }
        Ok(())
    }

    /// Decodes the beginning of a lane, which has `all` numbers.
    #[inline(always)]
    fn decode_lane<T: Word, B: BitExtraction>(
        &self,
        decoder: &WordDecoder<T>,
        table: &LaneTable<T>,
        k: usize,
        all: usize,
        numbers: &mut [[T; 1]],
    ) -> Result<(), FieldError> {
        let (start, end) = (table.bounds[k] as usize, table.bounds[k + 1] as usize);
        let lane = &self.piece[start..end];
        decoder.lanes.fetch(self.opened.model.tables.count());
        let counts = [numbers.len().min(all)];
        macro_rules! run {
            ($mask:ident) => {{
                let mut buffer = [0; $mask + 1 + SLACK];
                let copy = buffer.get_mut(..lane.len()).ok_or(FieldError::Piece)?;
                copy.copy_from_slice(lane);
                self.decode_lanes::<T, B, 1, $mask>(
                    decoder, table, k, &buffer, start, counts, numbers,
                )
            }};
        }
        match T::BYTES {
            8 => run!(WIDE_LANE_MASK),
            _ => run!(LANE_MASK),
        }
    }

    /// Decodes `K` lanes from the `k`th on, so many numbers of each, out of a buffer that begins with the byte `skipped` of the piece.
    #[inline(always)]
    #[allow(clippy::too_many_arguments, reason = "a kernel takes its state apart")]
    fn decode_lanes<T: Word, B: BitExtraction, const K: usize, const MASK: usize>(
        &self,
        decoder: &WordDecoder<T>,
        table: &LaneTable<T>,
        k: usize,
        buffer: &[u8],
        skipped: usize,
        counts: [usize; K],
        rows: &mut [[T; K]],
    ) -> Result<(), FieldError> {
        let model = &self.opened.model;
        let lane = |i: usize| (k + i).min(LANES - 1);
        let cursors = std::array::from_fn(|i| {
            let start = usize::from(table.bounds[lane(i)]) - skipped;
            LaneCursor::new(start * 8, model.tables.first(table.tables[lane(i)]))
        });
        let has_references = model.predictor != Predictor::None;
        let from = usize::from(has_references);
        let rest = counts.map(|count| count.saturating_sub(from));
        let lanes = &decoder.lanes;
        let ends = match model.tables {
            TableUse::ByBase(thresholds) => {
                let tables = self.tables_by_base::<T, K>(thresholds, k, counts);
                lanes.decode_rows_by_base::<K, MASK>(buffer, cursors, counts, &tables, rows)
            }
            _ => lanes.decode_rows::<B, K, MASK>(buffer, cursors, rest, &mut rows[from..]),
        };
        if has_references {
            rows[0] = std::array::from_fn(|i| table.references[lane(i)]);
        }
        model.predictor.restore(model.stride, rows);
        for (i, cursor) in ends.into_iter().enumerate() {
            if counts[i] == 0 {
                continue;
            }
            let end = usize::from(table.bounds[lane(i) + 1]) - skipped;
            let whole = counts[i] == self.lane_count::<T>(k + i);
            if cursor.end() > end || (whole && cursor.end() != end) {
                return Err(FieldError::Piece);
            }
        }
        Ok(())
    }

    /// The tables that the base chooses for so many numbers of each of `K` lanes from the `k`th on.
    #[inline(always)]
    fn tables_by_base<T: Word, const K: usize>(
        &self,
        thresholds: Thresholds,
        k: usize,
        counts: [usize; K],
    ) -> [[u8; K]; MAX_LANE] {
        let fraction = self.opened.layout.element.mantissa_bits();
        let of_base = BaseTables::new(thresholds, fraction);
        let mut tables = [[0; K]; MAX_LANE];
        for (i, count) in counts.into_iter().enumerate() {
            let start = (k + i) * lane_len::<T>() * T::BYTES;
            let base = match count {
                0 => &[][..],
                _ => self.base_of(start),
            };
            let words = base.chunks_exact(T::BYTES).take(count);
            for (table, word) in tables.iter_mut().zip(words) {
                table[i] = of_base.table(T::load(word));
            }
        }
        tables
    }

    /// How many numbers a lane has.
    fn lane_count<T: Word>(&self, lane: usize) -> usize {
        let len = lane_len::<T>();
        self.edges.elements.saturating_sub(lane * len).min(len)
    }

    /// Numbers as elements; `base` begins with the element of the first.
    #[inline(always)]
    fn store<T: Word>(
        &self,
        decoder: &WordDecoder<T>,
        numbers: impl Iterator<Item = T>,
        base: &[u8],
        out: &mut [u8],
    ) -> Result<(), FieldError> {
        let model = &self.opened.model;
        let shift = model.shift;
        let out = out.chunks_exact_mut(T::BYTES).zip(numbers);
        let base = base.chunks_exact(T::BYTES);
        match model.source {
            NumberSource::Ordered => {
                for (out, x) in out {
                    x.unordered(shift).store(out);
                }
            }
            NumberSource::Rotated => {
                for (out, x) in out {
                    x.unrotated(shift).store(out);
                }
            }
            NumberSource::BaseDifference => {
                for ((out, x), base) in out.zip(base) {
                    x.plus(T::load(base).ordered(0)).unordered(0).store(out);
                }
            }
            NumberSource::BaseXor => {
                for ((out, x), base) in out.zip(base) {
                    against(NumberSource::BaseXor, x, T::load(base)).store(out);
                }
            }
            NumberSource::Dictionary => {
                let mut outside = false;
                for (out, x) in out {
                    let value = decoder.dictionary.get(x.bits() as usize);
                    outside |= value.is_none();
                    value.copied().unwrap_or_default().store(out);
                }
                if outside {
                    return Err(FieldError::Dictionary);
                }
            }
        }
        Ok(())
    }
}

// The references of a table and the lanes of a piece are as many.
const _: () = assert!(LANES * 256 == PIECE_LEN / 2 && LANES * 128 == PIECE_LEN / 4);
