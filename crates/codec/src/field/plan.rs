//! What the pieces of a container are encoded by, chosen by a sample of its lanes.
use super::choose_predictor::{LaneSample, ModelCandidate};
use super::dictionary::{self, IndexedValues, PackedDictionary};
use super::lanes::{TableUse, lane_len};
use super::parameters::{MAX_STRIDE, NumberSource, SymbolModel, max_row};
use super::predict::{Predictor, subtract_row};
use crate::container::{PIECE_LEN, PieceEdges, piece_count};
use crate::element::{ElementLayout, Word};

/// A container that would shrink by less than one part in so many stays raw.
pub(super) const LEAST_GAIN: usize = 64;

/// Whole pieces by which a row is judged.
const ROW_SAMPLE_PIECES: usize = 4;
/// What differences from the row before cost of the best otherwise, at most.
const ROW_GAIN: f32 = 0.995;

/// The elements of a container, as the encoder sees them.
pub(super) struct FieldContainer<'a, T> {
    pub(super) src: &'a [u8],
    pub(super) base: Option<&'a [u8]>,
    pub(super) layout: ElementLayout,
    pub(super) indexed: Option<IndexedValues<T>>,
}

/// What the pieces of a container are encoded by.
pub(super) struct EncodingPlan {
    pub(super) candidate: ModelCandidate,
    pub(super) dictionary: Option<PackedDictionary>,
}

impl<T: Word> FieldContainer<'_, T> {
    pub(super) fn edges(&self, piece: usize) -> PieceEdges {
        let len = (self.src.len() - piece * PIECE_LEN).min(PIECE_LEN);
        PieceEdges::of(&self.layout, len)
    }

    /// The bytes of a piece's elements, of the container or its base.
    pub(super) fn elements<'b>(&self, of: &'b [u8], piece: usize) -> &'b [u8] {
        &of[piece * PIECE_LEN..][self.edges(piece).range()]
    }

    fn words(&self) -> impl Iterator<Item = T> + '_ {
        let pieces = 0..piece_count(self.src.len());
        pieces.flat_map(|piece| {
            self.elements(self.src, piece)
                .chunks_exact(T::BYTES)
                .map(T::load)
        })
    }

    fn sample(&self, of: &[u8]) -> LaneSample<T> {
        let mut sample = LaneSample::new();
        let lane = lane_len::<T>();
        let pieces = piece_count(self.src.len());
        let most = (self.src.len() / T::BYTES / 128).clamp(512, 2048) / lane;
        let lanes = (pieces * (PIECE_LEN / T::BYTES / lane)).min(most);
        for i in 0..lanes {
            // Spread over the pieces and over the lanes of a piece.
            let piece = i * pieces / lanes;
            let elements = self.elements(of, piece);
            let of_piece = (elements.len() / (lane * T::BYTES)).max(1);
            let from = (i * 5 % of_piece) * lane * T::BYTES;
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
        let mut best = sample.best_predictor(
            NumberSource::Ordered,
            shift,
            self.layout.stride as usize,
            &ordered,
        );
        if let Some(window) = sample.best_window(self.layout.element, shift)
            && window.cost < best.cost
        {
            best = window;
        }
        for row in self.rows() {
            if let Some(with_row) = self.with_row(row, shift)
                && with_row.cost < best.cost
            {
                best = with_row;
            }
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
                    tables: TableUse::One,
                    row: 0,
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

    /// Rows that the layout names, of which at least two are in a piece. A stride that is too long for lanes is one, too.
    fn rows(&self) -> impl Iterator<Item = usize> + use<T> {
        let stride = Some(self.layout.stride as usize).filter(|stride| *stride > MAX_STRIDE / 4);
        let rows = [Some(self.layout.row as usize), stride];
        let most = max_row(self.layout.element);
        rows.into_iter()
            .flatten()
            .filter(move |row| (2..=most).contains(row))
    }

    /// The best predictor of differences from the row before, by the lanes of some whole pieces; `None` if it is no better there than the
    /// best one of the numbers themselves.
    fn with_row(&self, row: usize, shift: u32) -> Option<ModelCandidate> {
        let pieces = piece_count(self.src.len());
        let (mut plain, mut by_row) = (LaneSample::new(), Vec::new());
        let step = pieces.div_ceil(ROW_SAMPLE_PIECES).max(1);
        for piece in (0..pieces).skip(step / 2).step_by(step) {
            let start = plain.words.len();
            let words = self.elements(self.src, piece).chunks_exact(T::BYTES);
            plain.words.extend(words.map(|w| T::load(w).ordered(shift)));
            let numbers = &plain.words[start..];
            by_row.extend_from_slice(numbers);
            subtract_row(row, &mut by_row[start..]);
            let lane = lane_len::<T>();
            let ends = (lane..numbers.len()).step_by(lane).chain([numbers.len()]);
            plain.ends.extend(ends.map(|end| start + end));
        }
        if by_row.is_empty() {
            return None;
        }
        let stride = self.layout.stride as usize;
        let without = plain.best_predictor(NumberSource::Ordered, shift, stride, &plain.words);
        let mut with = plain.best_predictor(NumberSource::Ordered, shift, stride, &by_row);
        with.model.row = row;
        // A value that is read alone needs its whole piece.
        (with.cost < without.cost * ROW_GAIN).then_some(with)
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
        let mut other = sample.best_predictor(
            NumberSource::Dictionary,
            shift,
            self.layout.stride as usize,
            &places,
        );
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
