//! What the spans of a container are encoded by, chosen by a sample of its lanes.
use super::choose_predictor::{LaneSample, ModelCandidate};
use super::dictionary::{self, IndexedValues, PackedDictionary};
use super::head::{self, NumberSource, SymbolModel};
use super::lanes::{SymbolContexts, lane_len};
use super::predict::Predictor;
use super::span::{SPAN, SpanEdges};
use crate::element::{ElementType, Word};

/// A container that would shrink by less than one part in so many stays raw.
pub(super) const LEAST_GAIN: usize = 64;

/// The elements of a container, as the encoder sees them.
pub(super) struct FieldContainer<'a, T> {
    pub(super) src: &'a [u8],
    pub(super) base: Option<&'a [u8]>,
    pub(super) element: ElementType,
    pub(super) phase: usize,
    pub(super) hint: usize,
    pub(super) indexed: Option<IndexedValues<T>>,
}

/// What the spans of a container are encoded by.
pub(super) struct EncodingPlan {
    pub(super) candidate: ModelCandidate,
    pub(super) dictionary: Option<PackedDictionary>,
}

impl<T: Word> FieldContainer<'_, T> {
    pub(super) fn edges(&self, span: usize) -> SpanEdges {
        let len = (self.src.len() - span * SPAN).min(SPAN);
        SpanEdges::new(len, self.phase, T::BYTES)
    }

    /// The bytes of a span's elements, of the container or its base.
    pub(super) fn elements<'b>(&self, of: &'b [u8], span: usize) -> &'b [u8] {
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

    fn sample(&self, of: &[u8]) -> LaneSample<T> {
        let mut sample = LaneSample {
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
    fn shift(&self, sample: &LaneSample<T>) -> u32 {
        let zeros = |bits: u64| if bits == 0 { 0 } else { bits.trailing_zeros() };
        let some = zeros(sample.words.iter().fold(0, |all, w| all | w.bits()));
        if some == 0 {
            return 0;
        }
        zeros(self.words().fold(0, |all, w| all | w.bits())).min(T::BITS - 1)
    }

    /// Chooses; `None` if nothing helps.
    pub(super) fn plan(&mut self) -> Option<EncodingPlan> {
        let sample = self.sample(self.src);
        if sample.words.is_empty() {
            return None;
        }
        let shift = self.shift(&sample);
        let ordered: Vec<T> = sample.words.iter().map(|w| w.ordered(shift)).collect();
        let mut best = sample.best_predictor(NumberSource::Ordered, shift, self.hint, &ordered);
        if let Some(window) = sample.best_window(self.element, shift)
            && window.cost < best.cost
        {
            best = window;
        }
        if let Some(base) = self.base {
            let base = self.sample(base);
            for source in [NumberSource::BaseDifference, NumberSource::BaseXor] {
                let pairs = sample.words.iter().zip(&base.words);
                let numbers: Vec<T> = pairs.map(|(w, b)| against(source, *w, *b)).collect();
                let model = SymbolModel {
                    source,
                    shift: 0,
                    predictor: Predictor::None,
                    stride: 1,
                    map: super::symbols::SymbolMap::Signed,
                    contexts: SymbolContexts::ONE,
                };
                let other = sample.evaluate(model, &numbers);
                if other.cost < best.cost {
                    best = other;
                }
            }
        }
        let dictionary = self.dictionary(&sample, &ordered, shift, &mut best);
        let raw = T::BITS as f32 * (1.0 - 1.0 / LEAST_GAIN as f32);
        (best.cost < raw).then_some(EncodingPlan {
            candidate: best,
            dictionary,
        })
    }

    /// A dictionary, if it is better than what is best without.
    fn dictionary(
        &mut self,
        sample: &LaneSample<T>,
        ordered: &[T],
        shift: u32,
        best: &mut ModelCandidate,
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
        if packed.packed_len() > dictionary::MAX_PACKED_LEN {
            return None;
        }
        let places = ordered
            .iter()
            .map(|x| indexed.values.partition_point(|v| v < x));
        let places: Vec<T> = places.map(|p| T::truncate(p as u64)).collect();
        let mut other = sample.best_predictor(NumberSource::Dictionary, shift, self.hint, &places);
        other.cost += (8 * packed.packed_len()) as f32 / elements as f32;
        if other.cost >= best.cost {
            return None;
        }
        *best = other;
        self.indexed = Some(indexed);
        Some(packed)
    }
}

/// The number of an element, by a source that has a base.
#[inline(always)]
pub(super) fn against<T: Word>(source: NumberSource, word: T, base: T) -> T {
    match source {
        NumberSource::BaseXor => T::truncate(word.bits() ^ base.bits()),
        _ => word.ordered(0).minus(base.ordered(0)),
    }
}
