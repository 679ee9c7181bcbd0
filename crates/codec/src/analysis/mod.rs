//! What every codec makes of a sample of a file: ratio, speeds, the time of one value, and which of them to take.
//!
//! | module | what |
//! |---|---|
//! | `sample` | which bytes of a file are looked at |
//! | `measure` | one codec over all containers of the sample |
//! | `recommend` | the hint that fits what was measured |
//!
//! The caller reads the sample and brings a clock, so that nothing here does I/O. Invariant: a number is returned only of a codec
//! that gave every byte of the sample back.
mod measure;
mod recommend;
mod sample;

pub use recommend::{Recommendation, RecommendationReason};
pub use sample::{SampledContainer, sampled_ranges};

use crate::choose::{AnyCodec, CodecChooser, CodecSpeeds, CostGoal, CostModel, choose};
use crate::container::{Codec, CodecId};
use crate::cost::{Bandwidths, CodecSpeed};
use crate::element::{ElementLayout, ElementType};
use crate::error::CodecError;
use crate::hint::{CodecHint, HintedCodec};
use measure::CodecMeasurement;
use std::time::Duration;
use thiserror::Error;

/// Times that everything is encoded and decoded; medians count.
const RUNS: usize = 3;
/// A store that is neither slow nor fast: where a codec must know, it is this one.
const BANDWIDTH: f64 = 1e9;

/// What is known of a file's numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct KnownNumbers {
    /// Their type.
    pub element: Option<ElementType>,
    /// Numbers from one to the next of the same kind; at least 1.
    pub stride: Option<u32>,
    /// Bytes of the file before the first number.
    pub offset: u64,
}

/// A codec, or the automatic choice, over the whole sample.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CodecAnalysis {
    /// Bytes of the sample.
    pub raw_len: u64,
    /// Bytes that they become, heads included.
    pub encoded_len: u64,
    /// On one core, with all work of choosing if there was any.
    pub speed: CodecSpeed,
    /// Decoding one number at a random place, from an encoded piece in memory and a head that was parsed.
    pub one_value: Duration,
}

impl CodecAnalysis {
    /// Raw bytes for an encoded byte.
    pub fn ratio(&self) -> f64 {
        self.raw_len as f64 / self.encoded_len.max(1) as f64
    }
}

/// What was found.
#[derive(Debug, Clone, PartialEq)]
pub struct SampleAnalysis {
    /// How the file is numbers, its phase as at the beginning of the file: told, or what most containers look like.
    pub layout: ElementLayout,
    /// Every codec that coded the whole sample, in the order of [`CodecId::ALL`].
    pub codecs: Vec<(CodecId, CodecAnalysis)>,
    /// Why others did not.
    pub failed: Vec<AnalysisError>,
    /// The automatic choice for fewest bytes.
    pub auto: CodecAnalysis,
    /// For how many containers the automatic choice took each codec, without those that it took for none.
    pub taken: Vec<(CodecId, u32)>,
    /// What to do.
    pub recommended: Recommendation,
}

/// Why there is no analysis.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum AnalysisError {
    /// A codec failed.
    #[error("{} cannot code the container at {at}", codec.name())]
    Codec {
        /// Which.
        codec: CodecId,
        /// Where in the file.
        at: u64,
        /// Why.
        #[source]
        error: CodecError,
    },
    /// A codec gave other bytes back than it had got.
    #[error("{} gave other bytes back of the container at {at}", codec.name())]
    Differs {
        /// Which.
        codec: CodecId,
        /// Where in the file.
        at: u64,
    },
}

/// How many bytes [`analyze`] tells as done, of a sample of so many.
pub const fn work(raw_len: u64) -> u64 {
    (CodecId::ALL.len() as u64 + 1) * RUNS as u64 * raw_len
}

/// Runs every codec and the automatic choice over a sample. `clock` is the time since any moment; `done` hears of every raw byte that was
/// encoded and decoded, [`work`] of them in all.
///
/// # Errors
///
/// The automatic choice fails, or does not give back what it got. Of a single codec that is in [`SampleAnalysis::failed`].
pub fn analyze(
    sample: &[SampledContainer],
    known: &KnownNumbers,
    clock: &dyn Fn() -> Duration,
    done: &mut dyn FnMut(u64),
) -> Result<SampleAnalysis, AnalysisError> {
    let layout = layout(sample, known);
    let store = Bandwidths::both(BANDWIDTH);
    let mut measurement = CodecMeasurement::new(sample, layout.element.width(), clock, done);
    let all = CodecId::ALL.map(|id| AnyCodec::of(id, store));
    let (codecs, failed) = measure_codecs(&mut measurement, &all, &layout);
    let model = CostModel {
        goal: CostGoal::Bytes,
        speeds: CodecSpeeds::default(),
    };
    let hint = recommend::hint(HintedCodec::Auto, &layout, known);
    let auto = measurement.run(|| {
        let mut chooser = CodecChooser::new(hint);
        move |at: u64, raw: &[u8], before| {
            if let Some((raw_len, encoded_len)) = before {
                chooser.encoded(raw_len, encoded_len);
            }
            let choice = chooser.next(at, raw, || model);
            (choice.codec, choice.layout)
        }
    })?;
    let taken = measurement.taken();
    let recommended = recommend::recommend(&codecs, &auto, &taken, &layout, known);
    Ok(SampleAnalysis {
        layout,
        codecs,
        failed,
        auto,
        taken,
        recommended,
    })
}

/// Measures each codec. One that fails ends nothing but its own measurement.
fn measure_codecs<C: Codec + Copy>(
    measurement: &mut CodecMeasurement<'_>,
    codecs: &[C],
    layout: &ElementLayout,
) -> (Vec<(CodecId, CodecAnalysis)>, Vec<AnalysisError>) {
    let (mut measured, mut failed) = (Vec::new(), Vec::new());
    for codec in codecs {
        let analysis = measurement.run(|| {
            move |at: u64, _: &[u8], _| {
                let phase = phase_at(layout, at);
                (*codec, ElementLayout { phase, ..*layout })
            }
        });
        match analysis {
            Ok(analysis) => measured.push((codec.id(), analysis)),
            Err(error) => failed.push(error),
        }
    }
    (measured, failed)
}

/// How most containers look, with what is known.
fn layout(sample: &[SampledContainer], known: &KnownNumbers) -> ElementLayout {
    // What a container takes if nothing else is known.
    let model = CostModel {
        goal: CostGoal::Bytes,
        speeds: CodecSpeeds::default(),
    };
    let hint = CodecHint {
        codec: HintedCodec::Field,
        element: known.element,
        stride: known.stride,
        ..CodecHint::default()
    };
    let mut votes: Vec<(ElementLayout, f64)> = Vec::new();
    for container in sample {
        // As if the file began with its first number: a phase of zero is then the likely one.
        let at = container.at - known.offset.min(container.at);
        let choice = choose(at, &container.bytes, &hint, &model);
        let width = choice.layout.element.width() as u64;
        let phase = (u64::from(choice.layout.phase) + container.at) % width;
        let layout = ElementLayout {
            // Less than 8.
            phase: phase as u32,
            ..choice.layout
        };
        // One vote, and a small one of a container that shows nothing: any layout is as good for it.
        let weight = (1.0 - choice.expected).max(0.0) + 1e-3;
        match votes.iter_mut().find(|vote| vote.0 == layout) {
            Some(vote) => vote.1 += weight,
            None => votes.push((layout, weight)),
        }
    }
    let most = votes.into_iter().max_by(|a, b| a.1.total_cmp(&b.1));
    most.map_or(ElementLayout::plain(ElementType::F32), |vote| vote.0)
}

/// The phase of a container that begins at `at`, of a layout whose phase is that of the file.
fn phase_at(layout: &ElementLayout, at: u64) -> u32 {
    let width = layout.element.width() as u64;
    ((u64::from(layout.phase) + width - at % width) % width) as u32
}

#[cfg(test)]
mod tests;
