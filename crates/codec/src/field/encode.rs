//! Encodes a container: a model by a sample, codes by a part of its spans, then span by span.
use super::FieldError;
use super::choose_predictor::{Candidate, Counts, Sample, number};
use super::dictionary::{self, Indexed, PackedDictionary};
use super::head::{self, CONTAINER, Head, Model, Source};
use super::huffman::{self, Lengths};
use super::lane_encoder::{BLOCK, LaneEncoder, SymbolIndex, block_of};
use super::lanes::{CONTEXTS, Contexts, LANES, SLACK, lane_len};
use super::predict::Predictor;
use super::span::{CONSTANT, Edges, LaneTable, RAW, SPAN};
use super::symbols::{ESCAPE, SYMBOLS};
use crate::element::{ElementType, Layout, Word};

/// The lanes of a span have fewer bytes, whatever the numbers: 2,048 of 16 raw bits and a code of 10.
const LANES_MASK: usize = 8191;
/// Elements of a span, at most.
const ELEMENTS: usize = SPAN / 2;
/// A container that would shrink by less than one part in so many stays raw.
const LEAST_GAIN: usize = 64;

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
pub fn encode(layout: &Layout, src: &[u8], out: &mut Encoded) -> Result<(), FieldError> {
    encode_any(layout, src, None, out)
}

/// Encodes a container against `base`: bytes as many as these, which the decoder has too, such as an earlier checkpoint's.
///
/// # Errors
/// [`FieldError::TooLong`] if there are more than [`CONTAINER`] bytes, [`FieldError::Base`] if `base` has another length.
pub fn encode_against(
    base: &[u8],
    layout: &Layout,
    src: &[u8],
    out: &mut Encoded,
) -> Result<(), FieldError> {
    if base.len() != src.len() {
        return Err(FieldError::Base);
    }
    encode_any(layout, src, Some(base), out)
}

fn encode_any(
    layout: &Layout,
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

/// The elements of a container, as the encoder sees them.
pub(super) struct Container<'a, T> {
    src: &'a [u8],
    base: Option<&'a [u8]>,
    element: ElementType,
    phase: usize,
    hint: usize,
    indexed: Option<Indexed<T>>,
}

fn encode_words<T: Word>(
    layout: &Layout,
    src: &[u8],
    base: Option<&[u8]>,
    out: &mut Encoded,
) -> bool {
    let mut container: Container<T> = Container {
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

/// What the spans of a container are encoded by.
pub(super) struct Plan {
    candidate: Candidate,
    dictionary: Option<PackedDictionary>,
}

impl<T: Word> Container<'_, T> {
    fn edges(&self, span: usize) -> Edges {
        let len = (self.src.len() - span * SPAN).min(SPAN);
        Edges::new(len, self.phase, T::BYTES)
    }

    /// The bytes of a span's elements, of the container or its base.
    fn elements<'b>(&self, of: &'b [u8], span: usize) -> &'b [u8] {
        &of[span * SPAN..][self.edges(span).range()]
    }

    fn words(&self) -> impl Iterator<Item = T> + '_ {
        let spans = 0..head::spans(self.src.len());
        spans.flat_map(|span| {
            self.elements(self.src, span)
                .chunks_exact(T::BYTES)
                .map(T::load)
        })
    }

    fn sample(&self, of: &[u8]) -> Sample<T> {
        let mut sample = Sample {
            words: Vec::new(),
            ends: Vec::new(),
        };
        let lane = lane_len::<T>();
        let spans = head::spans(self.src.len());
        let most = (self.src.len() / T::BYTES / 128).clamp(512, 2048) / lane;
        let lanes = (spans * (SPAN / T::BYTES / lane)).min(most);
        for i in 0..lanes {
            // Spread over the spans and over the lanes of a span.
            let span = i * spans / lanes;
            let elements = self.elements(of, span);
            let of_span = (elements.len() / (lane * T::BYTES)).max(1);
            let from = (i * 5 % of_span) * lane * T::BYTES;
            let bytes = &elements[from..elements.len().min(from + lane * T::BYTES)];
            sample
                .words
                .extend(bytes.chunks_exact(T::BYTES).map(T::load));
            sample.ends.push(sample.words.len());
        }
        sample
    }

    /// The zeros at the end of all elements.
    fn shift(&self, sample: &Sample<T>) -> u32 {
        let zeros = |bits: u64| if bits == 0 { 0 } else { bits.trailing_zeros() };
        let some = zeros(sample.words.iter().fold(0, |all, w| all | w.bits()));
        if some == 0 {
            return 0;
        }
        zeros(self.words().fold(0, |all, w| all | w.bits())).min(T::BITS - 1)
    }

    /// Chooses; `None` if nothing helps.
    fn plan(&mut self) -> Option<Plan> {
        let sample = self.sample(self.src);
        if sample.words.is_empty() {
            return None;
        }
        let shift = self.shift(&sample);
        let ordered: Vec<T> = sample.words.iter().map(|w| w.ordered(shift)).collect();
        let mut best = sample.best_predictor(Source::Ordered, shift, self.hint, &ordered);
        if let Some(window) = sample.best_window(self.element, shift)
            && window.cost < best.cost
        {
            best = window;
        }
        if let Some(base) = self.base {
            let base = self.sample(base);
            for source in [Source::BaseDifference, Source::BaseXor] {
                let pairs = sample.words.iter().zip(&base.words);
                let numbers: Vec<T> = pairs.map(|(w, b)| against(source, *w, *b)).collect();
                let model = Model {
                    source,
                    shift: 0,
                    predictor: Predictor::None,
                    stride: 1,
                    map: super::symbols::SymbolMap::Signed,
                    contexts: Contexts::ONE,
                };
                let other = sample.evaluate(model, &numbers);
                if other.cost < best.cost {
                    best = other;
                }
            }
        }
        let dictionary = self.dictionary(&sample, &ordered, shift, &mut best);
        let raw = T::BITS as f32 * (1.0 - 1.0 / LEAST_GAIN as f32);
        (best.cost < raw).then_some(Plan {
            candidate: best,
            dictionary,
        })
    }

    /// A dictionary, if it is better than what is best without.
    fn dictionary(
        &mut self,
        sample: &Sample<T>,
        ordered: &[T],
        shift: u32,
        best: &mut Candidate,
    ) -> Option<PackedDictionary> {
        let mut distinct = ordered.to_vec();
        distinct.sort_unstable();
        distinct.dedup();
        let elements = self.src.len() / T::BYTES;
        // A place takes some bits, and a sample with few values more than once is of too many. Numbers of 16 bits are hardly
        // wider than places.
        let most = if T::BITS == 16 { 25 } else { 93 };
        if best.cost < 6.0 || distinct.len() * 100 > ordered.len() * most || elements < 512 {
            return None;
        }
        let limit =
            (elements / 8).min(T::truncate(u64::MAX >> 1 >> (64 - T::BITS)).extend() as usize);
        let indexed = dictionary::index(self.words().map(|w| w.ordered(shift)), elements, limit)?;
        let packed = PackedDictionary::pack(&indexed.values);
        let places = ordered
            .iter()
            .map(|x| indexed.values.partition_point(|v| v < x));
        let places: Vec<T> = places.map(|p| T::truncate(p as u64)).collect();
        let mut other = sample.best_predictor(Source::Dictionary, shift, self.hint, &places);
        other.cost += (8 * packed.packed_len()) as f32 / elements as f32;
        if other.cost >= best.cost {
            return None;
        }
        *best = other;
        self.indexed = Some(indexed);
        Some(packed)
    }

    /// The numbers of a span.
    #[inline(always)]
    fn numbers(&self, model: &Model, span: usize, first: usize, out: &mut [T; ELEMENTS]) -> usize {
        let elements = self.elements(self.src, span);
        let n = elements.len() / T::BYTES;
        let out = &mut out[..n];
        let words = elements.chunks_exact(T::BYTES).map(T::load);
        match (model.source, self.base, &self.indexed) {
            (Source::Dictionary, _, Some(indexed)) => {
                for (out, place) in out.iter_mut().zip(indexed.places(first)) {
                    *out = T::truncate(place.into());
                }
            }
            (source @ (Source::BaseDifference | Source::BaseXor), Some(base), _) => {
                let base = self
                    .elements(base, span)
                    .chunks_exact(T::BYTES)
                    .map(T::load);
                for ((out, word), base) in out.iter_mut().zip(words).zip(base) {
                    *out = against(source, word, base);
                }
            }
            (Source::Rotated, ..) => {
                for (out, word) in out.iter_mut().zip(words) {
                    *out = number(Source::Rotated, model.shift, word);
                }
            }
            _ => {
                for (out, word) in out.iter_mut().zip(words) {
                    *out = number(Source::Ordered, model.shift, word);
                }
            }
        }
        n
    }

    /// Codes for a model with contexts or without, whichever is smaller, by a part of the spans.
    #[inline(always)]
    fn codes(&self, plan: &Plan) -> (Model, Vec<Lengths>) {
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
            Counts([0; SYMBOLS]),
            Counts([0; SYMBOLS]),
            Counts([0; SYMBOLS]),
            Counts([0; SYMBOLS]),
        ];
        let mut indices = [0; BLOCK];
        let mut numbers = [T::default(); ELEMENTS];
        let mut residuals = [T::default(); ELEMENTS];
        let from = usize::from(model.predictor != Predictor::None);
        let per_span = self.edges(0).elements / T::BYTES;
        for span in (0..spans).step_by(step) {
            let n = self.numbers(&model, span, span * per_span, &mut numbers);
            for lane in numbers[..n].chunks(lane_len::<T>()) {
                let residuals = &mut residuals[..lane.len()];
                model.predictor.residuals(model.stride, lane, residuals);
                let mut context = index.first();
                for block in residuals[from..].chunks(BLOCK) {
                    context = index.find(&block_of(block), context, &mut indices);
                    for index in &indices[..block.len()] {
                        let index = *index as usize;
                        counts[index / SYMBOLS % CONTEXTS].0[index % SYMBOLS] += 1;
                    }
                }
            }
        }
        let counts = &mut counts[..model.contexts.count()];
        let mut all = Counts([0; SYMBOLS]);
        for counts in counts.iter() {
            for (all, n) in all.0.iter_mut().zip(&counts.0) {
                *all += n;
            }
        }
        // What is not counted is rare: it has a place of its own, which is given the least.
        if step > 1 {
            for counts in counts.iter_mut().chain([&mut all]) {
                let total: u32 = counts.0.iter().sum();
                counts.0[ESCAPE] += 1 + total / 8192;
            }
        }
        let lengths: Vec<Lengths> = counts.iter().map(|c| huffman::lengths(&c.0)).collect();
        let plain_lengths = vec![huffman::lengths(&all.0)];
        let cost = |lengths: &[Lengths], counts: &[Counts]| {
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
    pub(super) fn encode_spans(&self, plan: &Plan, out: &mut Encoded) -> bool {
        let (model, lengths) = self.codes(plan);
        let encoder = LaneEncoder::new::<T>(model.map, model.contexts, &lengths);
        let head = Head {
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
                    let residuals = &mut residuals[..lane.len()];
                    model.predictor.residuals(model.stride, lane, residuals);
                    let end = encoder.encode::<T, LANES_MASK>(&residuals[from..], &mut buffer, at);
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

/// The number of an element, by a source that has a base.
#[inline(always)]
pub(super) fn against<T: Word>(source: Source, word: T, base: T) -> T {
    match source {
        Source::BaseXor => T::truncate(word.bits() ^ base.bits()),
        _ => word.ordered(0).minus(base.ordered(0)),
    }
}
