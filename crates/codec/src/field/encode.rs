//! Encodes a container: codes by a part of its spans, then span by span, as `plan` chose.
use super::FieldError;
use super::choose_predictor::{SymbolCounts, number};
use super::head::{self, CONTAINER, FieldParameters, NumberSource, SymbolModel};
use super::huffman::{self, CodeLengths};
use super::lane_encoder::{BLOCK, LaneEncoder, SymbolIndex, first_block};
use super::lanes::{CONTEXTS, LANES, SLACK, lane_len};
use super::plan::{EncodingPlan, FieldContainer, LEAST_GAIN, against};
use super::predict::Predictor;
use super::span::{CONSTANT, LaneTable, RAW, SPAN};
use super::symbols::{ESCAPE, SYMBOLS};
use crate::element::{ElementLayout, Word};

/// The lanes of a span have fewer bytes, whatever the numbers: 2,048 of 16 raw bits and a code of 10.
const LANES_MASK: usize = 8191;
/// Elements of a span, at most.
const ELEMENTS: usize = SPAN / 2;

/// Up to so many symbols have a code in every context, also where a part of the spans does not show them.
const COMMON_SYMBOLS: usize = 64;

/// An encoded container: a head, and spans that are decoded apart.
#[derive(Debug, Default, Clone)]
pub struct Encoded {
    /// The head.
    pub head: Vec<u8>,
    /// The spans, one after the other.
    pub spans: Vec<u8>,
    /// Where each span ends in `spans`.
    pub ends: Vec<u32>,
}

impl Encoded {
    /// The bytes of a span.
    pub fn span(&self, index: usize) -> &[u8] {
        let start = match index {
            0 => 0,
            _ => self.ends[index - 1] as usize,
        };
        &self.spans[start..self.ends[index] as usize]
    }

    /// All bytes: head and spans.
    pub fn total_len(&self) -> usize {
        self.head.len() + self.spans.len()
    }

    fn clear(&mut self) {
        self.head.clear();
        self.spans.clear();
        self.ends.clear();
    }

    fn set_raw(&mut self, src: &[u8]) {
        self.clear();
        head::put_raw(src.len(), &mut self.head);
        self.spans.extend_from_slice(src);
        self.ends
            .extend((1..=head::spans(src.len())).map(|i| (i * SPAN).min(src.len()) as u32));
    }
}

/// Encodes a container of one layout: the raw bytes of at most 256 spans.
///
/// # Errors
/// [`FieldError::TooLong`] if there are more than [`CONTAINER`] bytes.
pub fn encode(layout: &ElementLayout, src: &[u8], out: &mut Encoded) -> Result<(), FieldError> {
    encode_any(layout, src, None, out)
}

/// Encodes a container against `base`: bytes as many as these, which the decoder has too, such as an earlier checkpoint's.
///
/// # Errors
/// [`FieldError::TooLong`] if there are more than [`CONTAINER`] bytes, [`FieldError::Base`] if `base` has another length.
pub fn encode_against(
    base: &[u8],
    layout: &ElementLayout,
    src: &[u8],
    out: &mut Encoded,
) -> Result<(), FieldError> {
    if base.len() != src.len() {
        return Err(FieldError::Base);
    }
    encode_any(layout, src, Some(base), out)
}

fn encode_any(
    layout: &ElementLayout,
    src: &[u8],
    base: Option<&[u8]>,
    out: &mut Encoded,
) -> Result<(), FieldError> {
    if src.len() > CONTAINER {
        return Err(FieldError::TooLong);
    }
    out.clear();
    let shrinks = match layout.element.width() {
        2 => encode_words::<i16>(layout, src, base, out),
        4 => encode_words::<i32>(layout, src, base, out),
        _ => encode_words::<i64>(layout, src, base, out),
    };
    if !shrinks {
        out.set_raw(src);
    }
    Ok(())
}

fn encode_words<T: Word>(
    layout: &ElementLayout,
    src: &[u8],
    base: Option<&[u8]>,
    out: &mut Encoded,
) -> bool {
    let mut container: FieldContainer<T> = FieldContainer {
        src,
        base,
        element: layout.element,
        phase: layout.phase as usize % T::BYTES,
        hint: layout.stride as usize,
        indexed: None,
    };
    let Some(plan) = container.plan() else {
        return false;
    };
    super::dispatch::encode_spans(&container, &plan, out)
}

impl<T: Word> FieldContainer<'_, T> {
    /// The numbers of a span.
    #[inline(always)]
    fn numbers(
        &self,
        model: &SymbolModel,
        span: usize,
        first: usize,
        out: &mut [T; ELEMENTS],
    ) -> usize {
        let elements = self.elements(self.src, span);
        let n = elements.len() / T::BYTES;
        let out = &mut out[..n];
        let words = elements.chunks_exact(T::BYTES).map(T::load);
        match (model.source, self.base, &self.indexed) {
            (NumberSource::Dictionary, _, Some(indexed)) => {
                for (out, place) in out.iter_mut().zip(indexed.places(first)) {
                    *out = T::truncate(place.into());
                }
            }
            (source @ (NumberSource::BaseDifference | NumberSource::BaseXor), Some(base), _) => {
                let base = self
                    .elements(base, span)
                    .chunks_exact(T::BYTES)
                    .map(T::load);
                for ((out, word), base) in out.iter_mut().zip(words).zip(base) {
                    *out = against(source, word, base);
                }
            }
            (NumberSource::Rotated, ..) => {
                for (out, word) in out.iter_mut().zip(words) {
                    *out = number(NumberSource::Rotated, model.shift, word);
                }
            }
            _ => {
                for (out, word) in out.iter_mut().zip(words) {
                    *out = number(NumberSource::Ordered, model.shift, word);
                }
            }
        }
        n
    }

    /// OpenedModel for a model with contexts or without, whichever is smaller, by a part of the spans.
    #[inline(always)]
    fn codes(&self, plan: &EncodingPlan) -> (SymbolModel, Vec<CodeLengths>) {
        let plain = plan.candidate.model;
        let mut model = plan.candidate.with_contexts();
        let spans = head::spans(self.src.len());
        let step = match spans {
            0..=8 => 1,
            9..=32 => 2,
            33..=128 => 4,
            _ => 8,
        };
        let index = SymbolIndex::new(model.map, model.contexts);
        let mut counts = [
            SymbolCounts([0; SYMBOLS]),
            SymbolCounts([0; SYMBOLS]),
            SymbolCounts([0; SYMBOLS]),
            SymbolCounts([0; SYMBOLS]),
        ];
        let mut indices = [0; BLOCK];
        let mut copy = [T::default(); BLOCK];
        let mut numbers = [T::default(); ELEMENTS];
        let mut residuals = [T::default(); ELEMENTS];
        let from = usize::from(model.predictor != Predictor::None);
        let per_span = self.edges(0).elements / T::BYTES;
        for span in (0..spans).step_by(step) {
            let n = self.numbers(&model, span, span * per_span, &mut numbers);
            for lane in numbers[..n].chunks(lane_len::<T>()) {
                model
                    .predictor
                    .residuals(model.stride, lane, &mut residuals);
                let mut context = index.first();
                for first in (from..lane.len()).step_by(BLOCK) {
                    let block = first_block(&residuals[first..], &mut copy);
                    context = index.find(block, context, &mut indices);
                    for index in &indices[..BLOCK.min(lane.len() - first)] {
                        let index = *index as usize;
                        counts[index / SYMBOLS % CONTEXTS].0[index % SYMBOLS] += 1;
                    }
                }
            }
        }
        let counts = &mut counts[..model.contexts.count()];
        let mut all = SymbolCounts([0; SYMBOLS]);
        for counts in counts.iter() {
            for (all, n) in all.0.iter_mut().zip(&counts.0) {
                *all += n;
            }
        }
        // What is not counted is rare: it has a place of its own, which is given the least.
        if step > 1 {
            // What is seen after other symbols only is likely to come in each context, and an escape is long and slow. Of many
            // symbols the codes would become longer.
            if all.0.iter().filter(|n| **n > 0).count() <= COMMON_SYMBOLS {
                for counts in counts.iter_mut() {
                    for (n, all) in counts.0.iter_mut().zip(&all.0) {
                        *n = (*n).max(1.min(*all));
                    }
                }
            }
            for counts in counts.iter_mut().chain([&mut all]) {
                let total: u32 = counts.0.iter().sum();
                counts.0[ESCAPE] += 1 + total / 8192;
            }
        }
        let lengths: Vec<CodeLengths> = counts.iter().map(|c| huffman::lengths(&c.0)).collect();
        let plain_lengths = vec![huffman::lengths(&all.0)];
        let cost = |lengths: &[CodeLengths], counts: &[SymbolCounts]| {
            let mut head = Vec::new();
            let mut bits = 0;
            for (lengths, counts) in lengths.iter().zip(counts) {
                huffman::put(lengths, &mut head);
                for (symbol, n) in counts.0.iter().enumerate() {
                    bits += u64::from(*n) * u64::from(huffman::length(lengths, symbol));
                }
            }
            bits * step as u64 + 8 * head.len() as u64
        };
        let (with, without) = (cost(&lengths, counts), cost(&plain_lengths, &[all]));
        // Four tables are slower than one.
        if with + without / 100 < without {
            return (model, lengths);
        }
        model.contexts = plain.contexts;
        (model, plain_lengths)
    }

    /// Encodes all spans; `false` if they do not shrink.
    #[inline(always)]
    pub(super) fn encode_spans(&self, plan: &EncodingPlan, out: &mut Encoded) -> bool {
        let (model, lengths) = self.codes(plan);
        let encoder = LaneEncoder::new::<T>(model.map, model.contexts, &lengths);
        let head = FieldParameters {
            raw_len: self.src.len(),
            element: self.element,
            phase: self.phase,
            model,
            lengths,
            dictionary: plan.dictionary.clone(),
        };
        head.put(&mut out.head);
        let reference_bits = head.reference_bits();
        let mut numbers = [T::default(); ELEMENTS];
        let mut residuals = [T::default(); ELEMENTS];
        let mut buffer = [0; LANES_MASK + 1 + SLACK];
        let mut first = 0;
        for span in 0..head::spans(self.src.len()) {
            let edges = self.edges(span);
            let raw = &self.src[span * SPAN..][..edges.len];
            let n = self.numbers(&model, span, first, &mut numbers);
            first += n;
            let start = out.spans.len();
            let elements = &raw[edges.range()];
            let outside = (&raw[..edges.before], &raw[edges.range().end..]);
            if n > 1
                && !model.source.has_base()
                && elements[T::BYTES..] == elements[..elements.len() - T::BYTES]
            {
                out.spans.push(CONSTANT);
                out.spans.extend_from_slice(outside.0);
                out.spans.extend_from_slice(outside.1);
                out.spans.extend_from_slice(&elements[..T::BYTES]);
            } else if n > 0 {
                let from = usize::from(model.predictor != Predictor::None);
                let (mut references, mut lens, mut lanes) = ([T::default(); LANES], [0; LANES], 0);
                let mut at = 0;
                for lane in numbers[..n].chunks(lane_len::<T>()) {
                    model
                        .predictor
                        .residuals(model.stride, lane, &mut residuals);
                    let (rest, n) = (&residuals[from..], lane.len() - from);
                    let end = encoder.encode::<T, LANES_MASK>(rest, n, &mut buffer, at);
                    references[lanes] = lane[0];
                    lens[lanes] = end - at;
                    lanes += 1;
                    at = end;
                }
                if at + edges.outside() < raw.len() {
                    let references = if from == 1 { &references[..lanes] } else { &[] };
                    LaneTable::put(
                        outside,
                        references,
                        reference_bits,
                        &lens[..lanes],
                        &mut out.spans,
                    );
                    out.spans.extend_from_slice(&buffer[..at]);
                }
            }
            let len = out.spans.len() - start;
            if len == 0 || len > raw.len() {
                out.spans.truncate(start);
                out.spans.push(RAW);
                out.spans.extend_from_slice(raw);
            }
            out.ends.push(out.spans.len() as u32);
        }
        out.total_len() + self.src.len() / LEAST_GAIN < self.src.len()
    }
}
