//! Choosing a codec by a sample.
//!
//! | module | what |
//! |---|---|
//! | `guess` | which numbers the bytes are |
//! | `chooser` | a file's choice, kept for some containers |
//!
//! For fewest bytes, [`FieldCodec`] is taken without a trial if the guess says that the bytes are numbers, and neither bytes nor values
//! repeat in two pieces. Otherwise each candidate codec encodes a few sample pieces, and the cheapest one is chosen: fewest bytes, or
//! least time of writing and reading by the model of [`cost`](crate::cost), with speeds that the caller has measured. If values repeat,
//! [`FieldCodec`] encodes the whole container for its trial, because a small sample understates the gain of a dictionary;
//! [`CodecChooser::encode`] then reuses the output of that trial.
//!
//! Not tried: Pcodec (what it saves beyond [`FieldCodec`] does not pay for its time); Zstandard on numbers in which LZ4 finds no
//! repetition; and Zstandard where [`FieldCodec`] takes less than 0.7 of the bytes that LZ4 takes, for on numbers it is
//! seldom that much shorter than LZ4. A trial of Zstandard takes as long as encoding a tenth of the container, so it encodes half of the
//! sample first, and the rest only if that is not far behind the best so far.
//!
//! A hint names the codec, or parts of the layout; what it leaves open is sampled.
mod chooser;
mod guess;

pub use chooser::CodecChooser;

use crate::container::{Codec, CodecId, EncodedContainer, PIECE_LEN};
use crate::cost::{Bandwidths, CodecSpeed, StoreSeconds};
use crate::element::{ElementLayout, ElementType};
use crate::error::CodecError;
use crate::field::FieldCodec;
use crate::general::{ByteCodec, GeneralCodec, PcoCodec, RawCodec};
use crate::hint::{CodecHint, HintedCodec};
use crate::xor::{ReferencePoints, XorCodec};
use guess::guess;

/// Slots for values of which it is counted how many repeat: some times as many as a sample has.
const VALUE_SLOT_BITS: u32 = 13;
/// Pieces that are encoded as a sample, at most.
const SAMPLED_PIECES: usize = 4;
/// One of so many pieces is sampled.
const SAMPLED: usize = 32;
/// Pieces of the sample that are looked at first.
const QUICK_PIECES: usize = 2;
/// What a byte of likely numbers is expected to become, at most, for [`FieldCodec`] to be taken without a trial: where it is more, bytes
/// may be no numbers, or those of many interleaved arrays.
const LIKELY_NUMBERS: f64 = 0.88;
/// A ratio of LZ4 from which on nothing repeats.
const NOTHING_REPEATS: f64 = 0.95;
/// A ratio of LZ4 that comes of few distinct values, maybe.
const REPEATING_RATIO: f64 = 0.6;
/// A ratio of `field` from which on numbers of several interleaved arrays are likely, which a shuffle may find.
const POORLY_PREDICTED: f64 = 0.7;
/// The bytes of [`FieldCodec`] by those of LZ4 below which Zstandard is not tried.
const CLEARLY_NUMBERS: f64 = 0.7;
/// The cost of a codec's first pieces, by that of the best so far on all of the sample, from which on the rest is not tried.
const FAR_BEHIND: f64 = 1.15;
/// What must be gained for a container not to stay raw.
const LEAST_GAIN: f64 = 0.01;
/// The level of Zstandard.
const ZSTD_LEVEL: i32 = 3;
/// The level of Pcodec.
const PCO_LEVEL: usize = 8;

/// A codec with its settings.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum AnyCodec {
    /// See [`RawCodec`].
    Raw(RawCodec),
    /// See [`XorCodec`].
    Xor(XorCodec),
    /// See [`FieldCodec`].
    Field(FieldCodec),
    /// See [`GeneralCodec`].
    General(GeneralCodec),
    /// See [`PcoCodec`].
    Pco(PcoCodec),
}

impl AnyCodec {
    /// A codec with the levels that a choice gives it, and the reference points that are best for `store`.
    pub fn of(id: CodecId, store: Bandwidths) -> AnyCodec {
        let general = |codec, shuffle| AnyCodec::General(GeneralCodec { codec, shuffle });
        match id {
            CodecId::Raw => AnyCodec::Raw(RawCodec),
            CodecId::Xor => AnyCodec::Xor(XorCodec {
                points: ReferencePoints::Best(store),
            }),
            CodecId::Field => AnyCodec::Field(FieldCodec),
            CodecId::Zstd => general(ByteCodec::Zstd(ZSTD_LEVEL), false),
            CodecId::ShuffleZstd => general(ByteCodec::Zstd(ZSTD_LEVEL), true),
            CodecId::Lz4 => general(ByteCodec::Lz4, false),
            CodecId::ShuffleLz4 => general(ByteCodec::Lz4, true),
            CodecId::Pco => AnyCodec::Pco(PcoCodec { level: PCO_LEVEL }),
        }
    }

    fn as_codec(&self) -> &dyn Codec {
        match self {
            AnyCodec::Raw(codec) => codec,
            AnyCodec::Xor(codec) => codec,
            AnyCodec::Field(codec) => codec,
            AnyCodec::General(codec) => codec,
            AnyCodec::Pco(codec) => codec,
        }
    }
}

impl Codec for AnyCodec {
    fn id(&self) -> CodecId {
        self.as_codec().id()
    }

    fn encode_pieces(
        &self,
        layout: &ElementLayout,
        src: &[u8],
        out: &mut EncodedContainer,
    ) -> Result<(), CodecError> {
        self.as_codec().encode_pieces(layout, src, out)
    }
}

/// CodecSpeeds of all codecs on one core of this machine, as far as they are known.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CodecSpeeds([CodecSpeed; CodecId::ALL.len()]);

impl Default for CodecSpeeds {
    fn default() -> CodecSpeeds {
        CodecSpeeds::DEFAULT
    }
}

/// In GB/s.
const fn speed(encode: f64, decode: f64) -> CodecSpeed {
    CodecSpeed {
        encode: encode * 1e9,
        decode: decode * 1e9,
    }
}

impl CodecSpeeds {
    /// Of fields of binary32 on a core of 2023, in the order of [`CodecId::ALL`].
    pub const DEFAULT: CodecSpeeds = CodecSpeeds([
        speed(10.0, 10.0),
        speed(1.9, 3.9),
        speed(1.0, 1.8),
        speed(0.25, 0.8),
        speed(0.35, 1.7),
        speed(2.0, 5.0),
        speed(1.2, 3.0),
        speed(0.14, 0.9),
    ]);

    /// Of a codec.
    pub fn of(&self, codec: CodecId) -> CodecSpeed {
        self.0[codec as usize]
    }

    /// Sets what was measured.
    pub fn set(&mut self, codec: CodecId, speed: CodecSpeed) {
        self.0[codec as usize] = speed;
    }

    /// Takes an encoding that was measured into the mean: an eighth of it is new.
    pub fn observe_encoding(&mut self, codec: CodecId, raw_len: usize, seconds: f64) {
        let speed = raw_len as f64 / seconds;
        if speed.is_finite() && speed > 0.0 {
            let known = &mut self.0[codec as usize].encode;
            *known = 1.0 / (7.0 / 8.0 / *known + 1.0 / 8.0 / speed);
        }
    }
}

/// What is to be least.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum CostGoal {
    /// Bytes that are stored.
    Bytes,
    /// Seconds of writing and of reading once, on a store of these bandwidths.
    Seconds(Bandwidths),
}

/// What a choice is made by.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CostModel {
    /// What is to be least.
    pub goal: CostGoal,
    /// What codecs take.
    pub speeds: CodecSpeeds,
}

impl CostModel {
    /// The cost of a byte that becomes `ratio` bytes.
    fn cost(&self, codec: CodecId, ratio: f64) -> f64 {
        match self.goal {
            CostGoal::Bytes => ratio,
            CostGoal::Seconds(store) => {
                let speed = (codec != CodecId::Raw).then(|| self.speeds.of(codec));
                StoreSeconds::of(1.0, ratio, speed, &store).total()
            }
        }
    }

    /// Where reference points are best.
    fn points(&self) -> ReferencePoints {
        ReferencePoints::Best(match self.goal {
            CostGoal::Bytes => Bandwidths::both(1.0),
            CostGoal::Seconds(store) => store,
        })
    }
}

/// A codec for a container, and what is expected of it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CodecChoice {
    /// The codec.
    pub codec: AnyCodec,
    /// How the container's bytes are numbers.
    pub layout: ElementLayout,
    /// Encoded bytes a raw byte, as far as the sample says.
    pub expected: f64,
}

/// Chooses a codec for a container whose raw bytes are those of a file from offset `at` on.
///
/// # Examples
///
/// ```
/// use forebay_codec::choose::{CostModel, CostGoal, CodecSpeeds, choose};
/// use forebay_codec::{Codec, CodecId, EncodedContainer};
///
/// let field: Vec<u8> = (0..100_000).flat_map(|i| (i as f32 * 1e-3).sin().to_le_bytes()).collect();
/// let model = CostModel { goal: CostGoal::Bytes, speeds: CodecSpeeds::default() };
/// let choice = choose(0, &field, &"auto".parse()?, &model);
/// assert_eq!(choice.codec.id(), CodecId::Field);
/// let mut encoded = EncodedContainer::new();
/// choice.codec.encode(&choice.layout, &field, &mut encoded)?;
/// assert!(encoded.encoded_len() < field.len() * 3 / 4);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn choose(at: u64, raw: &[u8], hint: &CodecHint, model: &CostModel) -> CodecChoice {
    choose_with(at, raw, hint, model, &mut EncodedContainer::new()).0
}

/// The same; also returns whether `encoded` is the container by the choice, for sometimes the whole of it is a trial.
fn choose_with(
    at: u64,
    raw: &[u8],
    hint: &CodecHint,
    model: &CostModel,
    encoded: &mut EncodedContainer,
) -> (CodecChoice, bool) {
    let row = hint.row.unwrap_or(0);
    let guess = guess(at, raw, hint.element, hint.stride, row);
    let mut trial = ChoiceTrial {
        sample: sample(raw),
        layout: guess.layout,
        model,
        encoded,
        encoded_sample: EncodedContainer::new(),
        best_is_encoded: false,
        cost: f64::INFINITY,
        best: CodecChoice {
            codec: AnyCodec::Raw(RawCodec),
            layout: guess.layout,
            expected: 1.0,
        },
    };
    let general = |codec, shuffle| AnyCodec::General(GeneralCodec { codec, shuffle });
    let zstd = |shuffle| general(ByteCodec::Zstd(ZSTD_LEVEL), shuffle);
    let lz4 = |shuffle| general(ByteCodec::Lz4, shuffle);
    let xor = AnyCodec::Xor(XorCodec {
        points: match hint.points {
            Some(points) => ReferencePoints::Count(points.into()),
            None => model.points(),
        },
    });
    let only = |codec| {
        let choice = CodecChoice {
            codec,
            layout: guess.layout,
            expected: guess.cost.min(1.0),
        };
        (choice, false)
    };
    match hint.codec {
        HintedCodec::Raw => return only(AnyCodec::Raw(RawCodec)),
        HintedCodec::Xor => return only(xor),
        HintedCodec::Field => return only(AnyCodec::Field(FieldCodec)),
        HintedCodec::Pco => return only(AnyCodec::Pco(PcoCodec { level: PCO_LEVEL })),
        HintedCodec::Zstd => {
            trial.run(zstd(false));
            trial.run(zstd(true));
        }
        HintedCodec::Lz4 => {
            trial.run(lz4(false));
            trial.run(lz4(true));
        }
        HintedCodec::Auto => {
            trial.take(AnyCodec::Raw(RawCodec), 1.0);
            if model.goal == CostGoal::Bytes
                && guess.cost < LIKELY_NUMBERS
                && trial.nothing_repeats(lz4(false))
            {
                return only(AnyCodec::Field(FieldCodec));
            }
            let repeats = trial.run(lz4(false));
            let layout = guess.layout;
            // Whole values repeat. What a dictionary of them is worth shows in a container, not in a sample of it.
            let numbers =
                match repeats < REPEATING_RATIO || repeats_values(&trial.sample, layout.element) {
                    true if layout.element == ElementType::F32 && hint.element.is_none() => {
                        trial.layout = wide_layout(&layout);
                        let wide = trial.run_whole(raw);
                        trial.layout = layout;
                        wide.min(trial.run_whole(raw))
                    }
                    true => trial.run_whole(raw),
                    false => trial.run(AnyCodec::Field(FieldCodec)),
                };
            if let CostGoal::Seconds(_) = model.goal {
                trial.run(xor);
            }
            let may_repeat = repeats < NOTHING_REPEATS || numbers > POORLY_PREDICTED;
            let shuffled = match may_repeat || model.goal != CostGoal::Bytes {
                true => trial.run(lz4(true)),
                false => 1.0,
            };
            let is_worth = |by_lz4: f64| numbers > CLEARLY_NUMBERS * by_lz4;
            // Where neither finds anything there is nothing, or text with few repetitions.
            if repeats < NOTHING_REPEATS && is_worth(repeats) || numbers > 0.95 {
                trial.run_if_close(zstd(false));
            }
            if may_repeat && is_worth(shuffled) {
                trial.run_if_close(zstd(true));
            }
        }
    }
    (trial.best, trial.best_is_encoded)
}

/// Whether at most half of the sample's values are distinct. Those of 16 bits are not counted: a dictionary saves little of them.
fn repeats_values(sample: &[u8], element: ElementType) -> bool {
    let repeated = match element.width() {
        4 => repeated_values::<4>(sample),
        8 => repeated_values::<8>(sample),
        _ => return false,
    };
    repeated * 2 * element.width() >= sample.len()
}

/// How many values are like one before, nearly: a slot for each hash knows the last value there.
fn repeated_values<const W: usize>(sample: &[u8]) -> usize {
    let mut last = [0u64; 1 << VALUE_SLOT_BITS];
    let mut repeated = 0;
    for value in sample.as_chunks::<W>().0 {
        let mut word = [0; 8];
        word[..W].copy_from_slice(value);
        // Zero is no free slot.
        let hash = (u64::from_le_bytes(word) ^ 0x5bd1_e995).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let slot = &mut last[(hash >> (64 - VALUE_SLOT_BITS)) as usize];
        repeated += usize::from(*slot == hash);
        *slot = hash;
    }
    repeated
}

/// The same bytes as binary64: pairs of binary32 whose halves change together may be these.
fn wide_layout(layout: &ElementLayout) -> ElementLayout {
    ElementLayout {
        element: ElementType::F64,
        stride: layout.stride.div_ceil(2),
        ..*layout
    }
}

/// Pieces from everywhere in a container.
fn sample(raw: &[u8]) -> Vec<u8> {
    let pieces = raw.len() / PIECE_LEN;
    if pieces <= 1 {
        return raw[..raw.len().min(PIECE_LEN)].to_vec();
    }
    let sampled = pieces.div_ceil(SAMPLED).min(SAMPLED_PIECES);
    let mut sample = Vec::with_capacity(sampled * PIECE_LEN);
    // The first half of the sample is from everywhere too.
    for k in (0..sampled).step_by(2).chain((1..sampled).step_by(2)) {
        // In the middle of each part.
        let piece = (2 * k + 1) * pieces / (2 * sampled);
        sample.extend_from_slice(&raw[piece * PIECE_LEN..(piece + 1) * PIECE_LEN]);
    }
    sample
}

/// Codecs tried on a sample.
struct ChoiceTrial<'a> {
    sample: Vec<u8>,
    layout: ElementLayout,
    model: &'a CostModel,
    encoded: &'a mut EncodedContainer,
    encoded_sample: EncodedContainer,
    /// Whether `encoded` is the whole container by the best so far.
    best_is_encoded: bool,
    /// The best so far, and what it costs.
    best: CodecChoice,
    cost: f64,
}

impl ChoiceTrial<'_> {
    /// Encodes the sample; returns the ratio.
    fn run(&mut self, codec: AnyCodec) -> f64 {
        let ratio = self.sample_ratio(codec, self.sample.len());
        self.take(codec, ratio);
        ratio
    }

    /// Encodes the sample, unless its first pieces show that the codec is far behind the best so far.
    fn run_if_close(&mut self, codec: AnyCodec) {
        let len = QUICK_PIECES * PIECE_LEN;
        if len < self.sample.len() {
            let ratio = self.sample_ratio(codec, len);
            if self.model.cost(codec.id(), ratio) > FAR_BEHIND * self.cost {
                return;
            }
        }
        self.run(codec);
    }

    /// The ratio of the first bytes of the sample. Without the head: a container has it once, too, and is much longer.
    fn sample_ratio(&mut self, codec: AnyCodec, len: usize) -> f64 {
        let sample = &self.sample[..len.min(self.sample.len())];
        match codec.encode(&self.layout, sample, &mut self.encoded_sample) {
            Ok(_) => self.encoded_sample.bytes().len() as f64 / sample.len().max(1) as f64,
            Err(_) => f64::INFINITY,
        }
    }

    /// Whether neither bytes nor values repeat in some pieces.
    fn nothing_repeats(&mut self, lz4: AnyCodec) -> bool {
        let len = self.sample.len().min(QUICK_PIECES * PIECE_LEN);
        !repeats_values(&self.sample[..len], self.layout.element)
            && self.sample_ratio(lz4, len) > NOTHING_REPEATS
    }

    /// Encodes a whole container by our codec of fields; returns the ratio.
    fn run_whole(&mut self, raw: &[u8]) -> f64 {
        let codec = AnyCodec::Field(FieldCodec);
        self.best_is_encoded = false;
        if codec.encode(&self.layout, raw, self.encoded).is_err() {
            return f64::INFINITY;
        }
        let ratio = self.encoded.encoded_len() as f64 / raw.len().max(1) as f64;
        self.best_is_encoded = self.take(codec, ratio);
        ratio
    }

    /// Takes a codec if it is the best so far; returns whether it is. Raw needs no gain.
    fn take(&mut self, codec: AnyCodec, ratio: f64) -> bool {
        let worth = match codec {
            AnyCodec::Raw(_) => 0.0,
            _ => LEAST_GAIN,
        };
        let cost = self.model.cost(codec.id(), ratio + worth);
        let is_best = cost < self.cost || (cost == self.cost && codec == self.best.codec);
        if is_best {
            self.best_is_encoded = false;
            self.cost = cost;
            self.best = CodecChoice {
                codec,
                layout: self.layout,
                expected: ratio,
            };
        }
        is_best
    }
}
