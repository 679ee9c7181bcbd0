//! Encodes a container: codes by a part of its pieces, then piece by piece, as `plan` chose.
use super::base_tables::{BaseTables, Thresholds, thresholds};
use super::choose_predictor::{SymbolCounts, number};
use super::dispatch;
use super::huffman::{self, CodeLengths};
use super::lane_encoder::{BLOCK, LaneEncoder, SymbolIndex, TableCosts, first_block};
use super::lanes::{LANES, SLACK, TABLES, TableUse, lane_len};
use super::parameters::{FieldParameters, NumberSource, SymbolModel};
use super::piece::{CONSTANT, LaneTable};
use super::plan::{EncodingPlan, FieldContainer, LEAST_GAIN, against};
use super::predict::{Predictor, subtract_row};
use super::symbols::{ESCAPE, SYMBOLS};
use crate::container::{EncodedContainer, PIECE_LEN, PieceEdges, piece_count};
use crate::element::{ElementLayout, Word};

/// The lanes of a piece have fewer bytes, whatever the numbers: 2,048 of 16 raw bits and a code of 9.
const LANES_MASK: usize = 8191;
/// Elements of a piece, at most.
const ELEMENTS: usize = PIECE_LEN / 2;
/// Up to so many symbols have a code in every table, also where a part of the pieces does not show them.
const COMMON_SYMBOLS: usize = 64;
/// Counted lanes of a container from which on lanes have tables of their own: fewer lanes do not tell four kinds apart.
const MIN_LANES: usize = 32;

/// Appends parameters and pieces to a container that has its head. `base` has as many bytes as `src`.
pub(super) fn encode(
    layout: &ElementLayout,
    src: &[u8],
    base: Option<&[u8]>,
    out: &mut EncodedContainer,
) {
    let shrinks = match layout.element.width() {
        2 => encode_words::<i16>(layout, src, base, out),
        4 => encode_words::<i32>(layout, src, base, out),
        _ => encode_words::<i64>(layout, src, base, out),
    };
    if !shrinks {
        out.clear_pieces();
        out.push_raw_pieces(src);
    }
}

fn encode_words<T: Word>(
    layout: &ElementLayout,
    src: &[u8],
    base: Option<&[u8]>,
    out: &mut EncodedContainer,
) -> bool {
    let mut container: FieldContainer<T> = FieldContainer {
        src,
        base,
        layout: *layout,
        indexed: None,
    };
    let Some(plan) = container.plan() else {
        return false;
    };
    dispatch::encode_pieces(&container, &plan, out)
}

/// Counts of symbols in each table.
type TableCounts = [SymbolCounts; TABLES];

fn no_counts() -> TableCounts {
    std::array::from_fn(|_| SymbolCounts([0; SYMBOLS]))
}

/// The symbols of the pieces by which codes are made: lane by lane.
struct CountedLanes {
    symbols: Vec<u8>,
    /// Where each lane ends in them.
    ends: Vec<usize>,
}

impl CountedLanes {
    fn lanes(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(a, b)| &self.symbols[a..*b])
    }

    /// Counts with the table that is best for each lane: first lanes are divided by the mean of their symbols into as many parts as
    /// there are tables, then each takes the table that costs it least.
    fn counts_by_lane(&self, all: &SymbolCounts) -> TableCounts {
        let mean = |lane: &[u8]| {
            let sum: u64 = lane.iter().map(|s| u64::from(*s)).sum();
            sum * 1024 / lane.len().max(1) as u64
        };
        let means: Vec<u64> = self.lanes().map(mean).collect();
        let mut sorted = means.clone();
        sorted.sort_unstable();
        let limits: [u64; TABLES - 1] =
            std::array::from_fn(|i| sorted[(i + 1) * (sorted.len() - 1) / TABLES]);
        let mut counts = no_counts();
        for (lane, mean) in self.lanes().zip(&means) {
            let table = limits.iter().filter(|limit| *mean > **limit).count();
            lane.iter()
                .for_each(|s| counts[table].0[usize::from(*s)] += 1);
        }
        // Rarely is a symbol where it was not seen.
        for counts in &mut counts {
            for (n, all) in counts.0.iter_mut().zip(&all.0) {
                *n = (8 * *n).max(1.min(*all));
            }
        }
        let costs = TableCosts::of_counts(&counts);
        let mut counts = no_counts();
        for lane in self.lanes() {
            let table = TableCosts::least(costs.sum(lane.iter().map(|s| usize::from(*s))));
            let counts = &mut counts[usize::from(table)].0;
            lane.iter().for_each(|s| counts[usize::from(*s)] += 1);
        }
        counts
    }
}

/// Codes, and the bits that they take for what was counted, with their own in the head.
fn codes_of(counts: &[SymbolCounts], step: usize) -> (Vec<CodeLengths>, u64) {
    let lengths: Vec<CodeLengths> = counts.iter().map(|c| huffman::lengths(&c.0)).collect();
    let mut head = Vec::new();
    let mut bits = 0;
    for (lengths, counts) in lengths.iter().zip(counts) {
        huffman::put(lengths, &mut head);
        for (symbol, n) in counts.0.iter().enumerate() {
            bits += u64::from(*n) * u64::from(huffman::length(lengths, symbol));
        }
    }
    let cost = bits * step as u64 + 8 * head.len() as u64;
    (lengths, cost)
}

/// Gives a place to symbols that a part of the pieces does not show.
fn allow_uncounted(counts: &mut [SymbolCounts], all: &SymbolCounts) {
    // What is seen in other tables only is likely to come in each, and an escape is long and slow. Of many symbols the codes would
    // become longer.
    if all.0.iter().filter(|n| **n > 0).count() <= COMMON_SYMBOLS {
        for counts in counts.iter_mut() {
            for (n, all) in counts.0.iter_mut().zip(&all.0) {
                *n = (*n).max(1.min(*all));
            }
        }
    }
    for counts in counts {
        let total: u32 = counts.0.iter().sum();
        counts.0[ESCAPE] += 1 + total / 8192;
    }
}

impl<T: Word> FieldContainer<'_, T> {
    /// The numbers of a piece.
    #[inline(always)]
    fn numbers(
        &self,
        model: &SymbolModel,
        piece: usize,
        first: usize,
        out: &mut [T; ELEMENTS],
    ) -> usize {
        let elements = self.elements(self.src, piece);
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
                    .elements(base, piece)
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
        if model.row > 0 {
            subtract_row(model.row, out);
        }
        n
    }

    /// The symbols of every `step`th piece; `counts` are those in tables by the symbol before.
    #[inline(always)]
    fn count_lanes(
        &self,
        model: &SymbolModel,
        step: usize,
        counts: &mut TableCounts,
    ) -> CountedLanes {
        let pieces = piece_count(self.src.len());
        let index = SymbolIndex::new(model.map, model.tables);
        let mut counted = CountedLanes {
            symbols: Vec::with_capacity(self.src.len() / T::BYTES / step),
            ends: Vec::new(),
        };
        let mut indices = [0; BLOCK];
        let mut copy = [T::default(); BLOCK];
        let mut numbers = [T::default(); ELEMENTS];
        let mut residuals = [T::default(); ELEMENTS];
        let from = usize::from(model.predictor != Predictor::None);
        let per_piece = self.edges(0).elements;
        for piece in (0..pieces).step_by(step) {
            let n = self.numbers(model, piece, piece * per_piece, &mut numbers);
            for lane in numbers[..n].chunks(lane_len::<T>()) {
                model
                    .predictor
                    .residuals(model.stride, lane, &mut residuals);
                let mut table = index.first(0);
                for first in (from..lane.len()).step_by(BLOCK) {
                    let block = first_block(&residuals[first..], &mut copy);
                    table = index.find(block, &[0; BLOCK], table, &mut indices);
                    let indices = &indices[..BLOCK.min(lane.len() - first)];
                    for index in indices {
                        let index = *index as usize;
                        counts[index / SYMBOLS % TABLES].0[index % SYMBOLS] += 1;
                    }
                    // The lower 8 bits are the symbol.
                    counted.symbols.extend(indices.iter().map(|i| *i as u8));
                }
                counted.ends.push(counted.symbols.len());
            }
        }
        counted
    }

    /// The exponents of the base in every `step`th piece, in the order of `count_lanes`.
    fn base_exponents(&self, step: usize) -> Vec<u16> {
        let fraction = self.layout.element.mantissa_bits();
        let pieces = (0..piece_count(self.src.len())).step_by(step);
        let of_piece = |base, piece| {
            let words = self.elements(base, piece).chunks_exact(T::BYTES);
            words.map(move |word| BaseTables::exponent(T::load(word), fraction))
        };
        let base = self.base.into_iter();
        base.flat_map(|base| pieces.clone().flat_map(move |piece| of_piece(base, piece)))
            .collect()
    }

    /// The best thresholds of the base's exponents, and the counts of symbols in each table.
    fn counts_by_base(&self, step: usize, symbols: &[u8]) -> (Thresholds, TableCounts) {
        let exponents = self.base_exponents(step);
        let thresholds = thresholds(symbols, &exponents);
        let mut counts = no_counts();
        for (symbol, exponent) in symbols.iter().zip(&exponents) {
            let table = thresholds.iter().filter(|t| exponent > *t).count();
            counts[table].0[usize::from(*symbol)] += 1;
        }
        (thresholds, counts)
    }

    /// The tables of a piece's numbers, if the base chooses; returns how many.
    #[inline(always)]
    fn tables_by_base(&self, model: &SymbolModel, piece: usize, out: &mut [u8; ELEMENTS]) -> usize {
        let (TableUse::ByBase(thresholds), Some(base)) = (model.tables, self.base) else {
            return 0;
        };
        let tables = BaseTables::new(thresholds, self.layout.element.mantissa_bits());
        let words = self.elements(base, piece).chunks_exact(T::BYTES);
        let n = words.len();
        for (out, word) in out.iter_mut().zip(words) {
            *out = tables.table(T::load(word));
        }
        n
    }

    /// Codes for a model with one table or four, whichever is smallest, by a part of the pieces.
    #[inline(always)]
    fn codes(&self, plan: &EncodingPlan) -> (SymbolModel, Vec<CodeLengths>) {
        let thresholds = plan.candidate.thresholds();
        let mut model = SymbolModel {
            tables: TableUse::BySymbolBefore(thresholds),
            ..plan.candidate.model
        };
        let step = match piece_count(self.src.len()) {
            0..=8 => 1,
            9..=32 => 2,
            33..=128 => 4,
            _ => 8,
        };
        let mut by_symbol = no_counts();
        let counted = self.count_lanes(&model, step, &mut by_symbol);
        let mut all = SymbolCounts([0; SYMBOLS]);
        for counts in &by_symbol {
            for (all, n) in all.0.iter_mut().zip(&counts.0) {
                *all += n;
            }
        }
        let mut by_lane = match counted.ends.len() {
            MIN_LANES.. => Some(counted.counts_by_lane(&all)),
            _ => None,
        };
        let mut by_base = match model.source.has_base() {
            true => Some(self.counts_by_base(step, &counted.symbols)),
            false => None,
        };
        let mut one = [all.clone()];
        if step > 1 {
            allow_uncounted(&mut one, &all);
            allow_uncounted(&mut by_symbol, &all);
        }
        // Lanes choose their tables anew, also where all were counted.
        if let Some(by_lane) = &mut by_lane {
            allow_uncounted(by_lane, &all);
        }
        let (mut best, mut cost) = codes_of(&one, step);
        model.tables = TableUse::One;
        // Four tables are slower than one.
        let least_gain = cost / 100;
        let mut limit = cost.saturating_sub(least_gain);
        let mut try_tables = |tables, counts: &[SymbolCounts], of_lanes: u64| {
            let (lengths, bits) = codes_of(counts, step);
            if bits + of_lanes < limit {
                (best, cost, limit) = (lengths, bits, bits + of_lanes);
                model.tables = tables;
            }
        };
        try_tables(TableUse::BySymbolBefore(thresholds), &by_symbol, 0);
        if let Some((thresholds, by_base)) = &mut by_base {
            if step > 1 {
                allow_uncounted(by_base, &all);
            }
            try_tables(TableUse::ByBase(*thresholds), by_base, 0);
        }
        if let Some(by_lane) = &by_lane {
            try_tables(
                TableUse::ByLane,
                by_lane,
                (2 * counted.ends.len() * step) as u64,
            );
        }
        (model, best)
    }

    /// Encodes all pieces; `false` if they do not shrink.
    #[inline(always)]
    pub(super) fn encode_pieces(&self, plan: &EncodingPlan, out: &mut EncodedContainer) -> bool {
        let (model, lengths) = self.codes(plan);
        let encoder = LaneEncoder::new::<T>(model.map, model.tables, &lengths);
        let costs = match model.tables {
            TableUse::ByLane => Some(TableCosts::of_codes(&lengths)),
            _ => None,
        };
        let base_checksums = match self.base {
            Some(base) if model.source.has_base() => base
                .chunks(PIECE_LEN)
                .map(forebay_checksum::crc32c)
                .collect(),
            _ => Vec::new(),
        };
        let parameters = FieldParameters {
            element: self.layout.element,
            model,
            lengths,
            dictionary: plan.dictionary.clone(),
            base_checksums,
        };
        parameters.put(out.head_mut());
        let reference_bits = parameters.reference_bits();
        let mut scratch = PieceScratch {
            numbers: [T::default(); ELEMENTS],
            residuals: [T::default(); ELEMENTS],
            lanes: [0; LANES_MASK + 1 + SLACK],
            by_base: [0; ELEMENTS],
        };
        let mut first = 0;
        for (piece, raw) in self.src.chunks(PIECE_LEN).enumerate() {
            let n = self.numbers(&model, piece, first, &mut scratch.numbers);
            first += n;
            let by_base = self.tables_by_base(&model, piece, &mut scratch.by_base);
            let job = PieceJob {
                model: &model,
                encoder: &encoder,
                costs: costs.as_ref(),
                reference_bits,
                raw,
                edges: self.edges(piece),
                by_base,
            };
            // Not by a closure: that would be compiled for any processor.
            let encoded = job.encode(&mut scratch, out.piece_mut());
            out.end_piece(raw, encoded);
        }
        out.encoded_len() + self.src.len() / LEAST_GAIN < self.src.len()
    }
}

/// Memory for a piece: its numbers, the residuals of a lane, the bits of all lanes.
struct PieceScratch<T> {
    numbers: [T; ELEMENTS],
    residuals: [T; ELEMENTS],
    lanes: [u8; LANES_MASK + 1 + SLACK],
    /// The tables of the numbers, if the base chooses.
    by_base: [u8; ELEMENTS],
}

/// A piece to encode.
struct PieceJob<'a> {
    model: &'a SymbolModel,
    encoder: &'a LaneEncoder,
    /// If lanes have tables of their own.
    costs: Option<&'a TableCosts>,
    reference_bits: u32,
    raw: &'a [u8],
    edges: PieceEdges,
    /// How many numbers have a table that the base chooses: all or none.
    by_base: usize,
}

impl PieceJob<'_> {
    /// Appends the piece, of whose elements there are numbers; `false` if it does not shrink.
    #[inline(always)]
    fn encode<T: Word>(&self, scratch: &mut PieceScratch<T>, out: &mut Vec<u8>) -> bool {
        let (raw, edges, model) = (self.raw, &self.edges, self.model);
        let n = edges.elements;
        if n == 0 {
            return false;
        }
        let elements = &raw[edges.range()];
        let outside = (&raw[..edges.lead], &raw[edges.range().end..]);
        if n > 1
            && !model.source.has_base()
            && elements[T::BYTES..] == elements[..elements.len() - T::BYTES]
        {
            out.push(CONSTANT);
            out.extend_from_slice(outside.0);
            out.extend_from_slice(outside.1);
            out.extend_from_slice(&elements[..T::BYTES]);
            return true;
        }
        let from = usize::from(model.predictor != Predictor::None);
        let (mut references, mut lens) = ([T::default(); LANES], [0; LANES]);
        let (mut tables, mut lanes, mut at) = ([0; LANES], 0, 0);
        for (i, lane) in scratch.numbers[..n].chunks(lane_len::<T>()).enumerate() {
            let by_base = scratch.by_base[..self.by_base]
                .chunks(lane_len::<T>())
                .nth(i);
            let by_base = by_base.unwrap_or_default();
            let residuals = &mut scratch.residuals;
            model.predictor.residuals(model.stride, lane, residuals);
            let (rest, n) = (&residuals[from..], lane.len() - from);
            if let Some(costs) = self.costs {
                tables[lanes] = self.encoder.best_table(costs, rest, n);
            }
            let table = (tables[lanes], by_base);
            let buffer = &mut scratch.lanes;
            let end = (self.encoder).encode::<T, LANES_MASK>(rest, n, table, buffer, at);
            references[lanes] = lane[0];
            lens[lanes] = end - at;
            lanes += 1;
            at = end;
        }
        if at + edges.len() >= raw.len() {
            return false;
        }
        LaneTable::put(
            outside,
            self.costs.map(|_| &tables[..lanes]),
            if from == 1 { &references[..lanes] } else { &[] },
            self.reference_bits,
            &lens[..lanes],
            out,
        );
        out.extend_from_slice(&scratch.lanes[..at]);
        true
    }
}
