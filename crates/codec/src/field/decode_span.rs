//! Decodes a span: all of it, or the bytes of a range, for which only the lanes that hold them are decoded, and each no further
//! than needed.
use super::FieldError;
use super::decode::{OpenedModel, WordDecoder};
use super::head::NumberSource;
use super::lanes::{LANES, SLACK, lane_len};
use super::plan::against;
use super::predict::Predictor;
use super::span::{LaneTable, SPAN, SpanEdges};
use crate::element::Word;
use std::ops::Range;

/// An encoded span of lanes is at most as long as a raw one.
const SPAN_MASK: usize = SPAN - 1;
/// The bytes of a lane, at most: 128 numbers of 64 raw bits and a code of 10 bits each.
const WIDE_LANE_MASK: usize = 2047;
/// The same of elements of 32 or 16 bits.
const LANE_MASK: usize = 1023;
/// The most elements of a lane.
const LANE: usize = 256;

/// A span to decode.
pub(super) struct SpanJob<'a> {
    pub(super) codes: &'a OpenedModel,
    pub(super) span: &'a [u8],
    pub(super) base: &'a [u8],
    pub(super) edges: SpanEdges,
}

impl SpanJob<'_> {
    pub(super) fn raw(&self, range: Range<usize>, out: &mut [u8]) -> Result<(), FieldError> {
        if self.span.len() != 1 + self.edges.len {
            return Err(FieldError::Span);
        }
        out.copy_from_slice(&self.span[1..][range]);
        Ok(())
    }

    pub(super) fn constant(&self, range: Range<usize>, out: &mut [u8]) -> Result<(), FieldError> {
        let width = self.codes.element.width();
        let outside = self.edges.outside();
        if self.span.len() != 1 + outside + width {
            return Err(FieldError::Span);
        }
        let element = &self.span[1 + outside..];
        self.copy_edges(&range, out);
        let elements = self.edges.range();
        for at in range.start.max(elements.start)..range.end.min(elements.end) {
            out[at - range.start] = element[(at - elements.start) % width];
        }
        Ok(())
    }

    /// The bytes of a range that are no elements, of which the span has all.
    fn copy_edges(&self, range: &Range<usize>, out: &mut [u8]) {
        if range.start >= self.edges.before && range.end <= self.edges.range().end {
            return;
        }
        let edges = &self.span[1..1 + self.edges.outside()];
        let end = self.edges.range().end;
        for at in
            (range.start..range.end.min(self.edges.before)).chain(range.start.max(end)..range.end)
        {
            let i = if at < end {
                at
            } else {
                at - self.edges.elements
            };
            out[at - range.start] = edges[i];
        }
    }

    /// Decodes a span of lanes.
    #[inline(always)]
    pub(super) fn decode<T: Word>(
        &self,
        decoder: &WordDecoder<T>,
        range: Range<usize>,
        out: &mut [u8],
    ) -> Result<(), FieldError> {
        let n = self.edges.elements / T::BYTES;
        let before = 1 + self.edges.outside();
        if n == 0 || self.span.len() < before {
            return Err(FieldError::Span);
        }
        self.copy_edges(&range, out);
        let lane = lane_len::<T>();
        let table = LaneTable::<T>::parse(
            self.span,
            before,
            n.div_ceil(lane),
            self.codes.reference_bits,
        )?;
        let elements = self.edges.range();
        // From and to, in bytes of the elements.
        let from = range.start.clamp(elements.start, elements.end) - elements.start;
        let to = range.end.clamp(elements.start, elements.end) - elements.start;
        if from >= to {
            return Ok(());
        }
        let out = &mut out[elements.start + from - range.start..][..to - from];
        if from == 0 && to == self.edges.elements {
            return self.decode_all(decoder, &table, out);
        }
        let lane_bytes = lane * T::BYTES;
        let mut numbers = [T::default(); LANE];
        let mut bytes = [0; LANE * 8];
        for k in from / lane_bytes..to.div_ceil(lane_bytes) {
            let start = k * lane_bytes;
            let (a, b) = (from.max(start) - start, to.min(start + lane_bytes) - start);
            let (first, end) = (a / T::BYTES, b.div_ceil(T::BYTES));
            let all = (n - k * lane).min(lane);
            // With a stride, later values are needed by none.
            let numbers = &mut numbers[..end.min(all)];
            self.decode_lane(decoder, &table, k, all, numbers)?;
            let base = if self.base.is_empty() {
                self.base
            } else {
                &self.base[self.edges.range()][start + first * T::BYTES..]
            };
            let bytes = &mut bytes[..(end - first) * T::BYTES];
            self.store(decoder, &numbers[first..], base, bytes)?;
            let skip = a - first * T::BYTES;
            out[start + a - from..][..b - a].copy_from_slice(&bytes[skip..][..b - a]);
        }
        Ok(())
    }

    #[inline(always)]
    fn decode_all<T: Word>(
        &self,
        decoder: &WordDecoder<T>,
        table: &LaneTable<T>,
        out: &mut [u8],
    ) -> Result<(), FieldError> {
        let mut buffer = [0; SPAN_MASK + 1 + SLACK];
        buffer[..self.span.len()].copy_from_slice(self.span);
        // An array as large as the elements of a span, not more: it is filled with zeros each time.
        match T::BYTES {
            2 => self.decode_into(decoder, table, &buffer, &mut [T::default(); SPAN / 2], out),
            4 => self.decode_into(decoder, table, &buffer, &mut [T::default(); SPAN / 4], out),
            _ => self.decode_into(decoder, table, &buffer, &mut [T::default(); SPAN / 8], out),
        }
    }

    #[inline(always)]
    fn decode_into<T: Word>(
        &self,
        decoder: &WordDecoder<T>,
        table: &LaneTable<T>,
        buffer: &[u8; SPAN_MASK + 1 + SLACK],
        numbers: &mut [T],
        out: &mut [u8],
    ) -> Result<(), FieldError> {
        let numbers = &mut numbers[..self.edges.elements / T::BYTES];
        let lane = lane_len::<T>();
        for (four, numbers) in numbers.chunks_mut(4 * lane).enumerate() {
            let k = 4 * four;
            if numbers.len() == 4 * lane {
                let (ab, cd) = numbers.split_at_mut(2 * lane);
                let ((a, b), (c, d)) = (ab.split_at_mut(lane), cd.split_at_mut(lane));
                self.decode_lanes::<T, 4, SPAN_MASK>(
                    decoder,
                    table,
                    k,
                    buffer,
                    0,
                    [a, b, c, d],
                    true,
                )?;
            } else {
                for (i, numbers) in numbers.chunks_mut(lane).enumerate() {
                    self.decode_lanes::<T, 1, SPAN_MASK>(
                        decoder,
                        table,
                        k + i,
                        buffer,
                        0,
                        [numbers],
                        true,
                    )?;
                }
            }
        }
        let base = if self.base.is_empty() {
            self.base
        } else {
            &self.base[self.edges.range()]
        };
        self.store(decoder, numbers, base, out)
    }

    /// Decodes the beginning of a lane, which has `all` numbers.
    #[inline(always)]
    fn decode_lane<T: Word>(
        &self,
        decoder: &WordDecoder<T>,
        table: &LaneTable<T>,
        k: usize,
        all: usize,
        numbers: &mut [T],
    ) -> Result<(), FieldError> {
        let (start, end) = (table.bounds[k] as usize, table.bounds[k + 1] as usize);
        let lane = &self.span[start..end];
        let whole = numbers.len() == all;
        macro_rules! run {
            ($mask:ident) => {{
                let mut buffer = [0; $mask + 1 + SLACK];
                let copy = buffer.get_mut(..lane.len()).ok_or(FieldError::Span)?;
                copy.copy_from_slice(lane);
                self.decode_lanes::<T, 1, $mask>(
                    decoder,
                    table,
                    k,
                    &buffer,
                    start,
                    [numbers],
                    whole,
                )
            }};
        }
        match T::BYTES {
            8 => run!(WIDE_LANE_MASK),
            _ => run!(LANE_MASK),
        }
    }

    /// Decodes `K` lanes from the `k`th on, out of a buffer that begins with the byte `skipped` of the span.
    #[inline(always)]
    #[allow(clippy::too_many_arguments)]
    fn decode_lanes<T: Word, const K: usize, const MASK: usize>(
        &self,
        decoder: &WordDecoder<T>,
        table: &LaneTable<T>,
        k: usize,
        buffer: &[u8],
        skipped: usize,
        mut out: [&mut [T]; K],
        whole: bool,
    ) -> Result<(), FieldError> {
        let model = &self.codes.model;
        let bounds = &table.bounds[k..][..K + 1];
        let starts = std::array::from_fn(|i| (usize::from(bounds[i]) - skipped) * 8);
        let has_references = model.predictor != Predictor::None;
        let from = usize::from(has_references);
        let rest = out.each_mut().map(|lane| &mut lane[from..]);
        let ends = decoder.lanes.decode::<K, MASK>(buffer, starts, rest);
        if has_references {
            for (lane, reference) in out.iter_mut().zip(&table.references[k..]) {
                lane[0] = *reference;
            }
        }
        model.predictor.restore(model.stride, out);
        for (i, at) in ends.into_iter().enumerate() {
            let (end, at) = (usize::from(bounds[i + 1]) - skipped, at.div_ceil(8));
            if at > end || (whole && at != end) {
                return Err(FieldError::Span);
            }
        }
        Ok(())
    }

    /// Numbers as elements; `base` begins with the element of the first.
    #[inline(always)]
    fn store<T: Word>(
        &self,
        decoder: &WordDecoder<T>,
        numbers: &[T],
        base: &[u8],
        out: &mut [u8],
    ) -> Result<(), FieldError> {
        let model = &self.codes.model;
        let shift = model.shift;
        let out = out.chunks_exact_mut(T::BYTES).zip(numbers);
        let base = base.chunks_exact(T::BYTES).map(T::load);
        match model.source {
            NumberSource::Ordered => out.for_each(|(out, x)| x.unordered(shift).store(out)),
            NumberSource::Rotated => out.for_each(|(out, x)| x.unrotated(shift).store(out)),
            NumberSource::BaseDifference => {
                for ((out, x), base) in out.zip(base) {
                    x.plus(base.ordered(0)).unordered(0).store(out);
                }
            }
            NumberSource::BaseXor => {
                for ((out, x), base) in out.zip(base) {
                    against(NumberSource::BaseXor, *x, base).store(out);
                }
            }
            NumberSource::Dictionary => {
                let mut outside = false;
                for (out, x) in out {
                    let value = decoder.dictionary.get(x.bits() as usize);
                    outside |= value.is_none();
                    value
                        .copied()
                        .unwrap_or_default()
                        .unordered(shift)
                        .store(out);
                }
                if outside {
                    return Err(FieldError::Dictionary);
                }
            }
        }
        Ok(())
    }
}

// The references of a table and the lanes of a span are as many.
const _: () = assert!(LANES * 256 == SPAN / 2 && LANES * 128 == SPAN / 4);
