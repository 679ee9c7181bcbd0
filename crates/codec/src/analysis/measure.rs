//! One codec over all containers of a sample, with the time it takes, and every byte compared.
use super::sample::SampledContainer;
use super::{AnalysisError, CodecAnalysis, RUNS};
use crate::OpenedContainer;
use crate::container::{Codec, CodecId, EncodedContainer, MAX_CONTAINER_LEN, PIECE_LEN};
use crate::cost::CodecSpeed;
use crate::element::ElementLayout;
use crate::error::CodecError;
use std::time::Duration;

/// Numbers that are read in a run.
const VALUES: u64 = 2000;

/// The sample, and what is kept from one codec to the next.
pub(super) struct CodecMeasurement<'a> {
    sample: &'a [SampledContainer],
    /// Bytes of a number.
    width: usize,
    clock: &'a dyn Fn() -> Duration,
    done: &'a mut dyn FnMut(u64),
    encoded: Vec<EncodedContainer>,
    used: Vec<CodecId>,
    decoded: Vec<u8>,
}

impl<'a> CodecMeasurement<'a> {
    pub fn new(
        sample: &'a [SampledContainer],
        width: usize,
        clock: &'a dyn Fn() -> Duration,
        done: &'a mut dyn FnMut(u64),
    ) -> CodecMeasurement<'a> {
        CodecMeasurement {
            sample,
            width,
            clock,
            done,
            encoded: vec![EncodedContainer::new(); sample.len()],
            used: Vec::new(),
            decoded: vec![0; MAX_CONTAINER_LEN],
        }
    }

    /// Encodes and decodes all, [`RUNS`] times, each with a new `chooser`: it says how a container of these bytes, which begins at this
    /// offset, is encoded; it also hears how long the one before was and became. Its time counts as encoding.
    pub fn run<C, D: Codec>(
        &mut self,
        chooser: impl Fn() -> C,
    ) -> Result<CodecAnalysis, AnalysisError>
    where
        C: FnMut(u64, &[u8], Option<(usize, usize)>) -> (D, ElementLayout),
    {
        let mut told = 0;
        let measured = self.run_all(chooser, &mut told);
        // What a failure left out is done, too.
        let all = RUNS as u64
            * self
                .sample
                .iter()
                .map(|c| c.bytes.len() as u64)
                .sum::<u64>();
        (self.done)(all - told);
        measured
    }

    /// The same; adds to `told` the bytes that `done` heard of.
    fn run_all<C, D: Codec>(
        &mut self,
        chooser: impl Fn() -> C,
        told: &mut u64,
    ) -> Result<CodecAnalysis, AnalysisError>
    where
        C: FnMut(u64, &[u8], Option<(usize, usize)>) -> (D, ElementLayout),
    {
        let (mut encoding, mut decoding) = ([Duration::ZERO; RUNS], [Duration::ZERO; RUNS]);
        for (encoding, decoding) in encoding.iter_mut().zip(&mut decoding) {
            let mut chooser = chooser();
            let mut before = None;
            self.used.clear();
            for (k, container) in self.sample.iter().enumerate() {
                let raw = &container.bytes;
                let out = &mut self.encoded[k];
                let start = (self.clock)();
                let (codec, layout) = chooser(container.at, raw, before);
                let written = codec.encode(&layout, raw, out);
                *encoding += (self.clock)().saturating_sub(start);
                self.used.push(codec.id());
                let at = container.at;
                let failed = |error| AnalysisError::Codec {
                    codec: codec.id(),
                    at,
                    error,
                };
                written.map_err(failed)?;
                let decoded = &mut self.decoded[..raw.len()];
                let start = (self.clock)();
                let read = decode(out, decoded);
                *decoding += (self.clock)().saturating_sub(start);
                read.map_err(failed)?;
                if decoded != raw {
                    let codec = codec.id();
                    return Err(AnalysisError::Differs { codec, at });
                }
                before = Some((raw.len(), out.encoded_len()));
                (self.done)(raw.len() as u64);
                *told += raw.len() as u64;
            }
        }
        let raw_len: usize = self.sample.iter().map(|c| c.bytes.len()).sum();
        let encoded_len = self.encoded.iter().map(EncodedContainer::stored_len);
        let rate = |time: [Duration; RUNS]| raw_len as f64 / median(time).as_secs_f64().max(1e-9);
        Ok(CodecAnalysis {
            raw_len: raw_len as u64,
            encoded_len: encoded_len.sum::<usize>() as u64,
            speed: CodecSpeed {
                encode: rate(encoding),
                decode: rate(decoding),
            },
            one_value: self.one_value()?,
        })
    }

    /// How often each codec was used in the last run.
    pub fn taken(&self) -> Vec<(CodecId, u32)> {
        let count = |id| self.used.iter().filter(|used| **used == id).count() as u32;
        let all = CodecId::ALL.into_iter().map(|id| (id, count(id)));
        all.filter(|(_, count)| *count > 0).collect()
    }

    /// The time of reading one number somewhere in what was encoded last.
    fn one_value(&self) -> Result<Duration, AnalysisError> {
        let failed = |k: usize| {
            let (codec, at) = (self.used[k], self.sample[k].at);
            move |error| AnalysisError::Codec { codec, at, error }
        };
        let mut opened = Vec::with_capacity(self.encoded.len());
        for (k, container) in self.encoded.iter().enumerate() {
            opened.push(OpenedContainer::open(container.head()).map_err(failed(k))?);
        }
        let mut random = 1u64;
        let mut below = |n: usize| {
            // The multiplier of Knuth's MMIX; its high bits are random enough for places.
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            ((random >> 33) % n.max(1) as u64) as usize
        };
        let mut times = [Duration::ZERO; RUNS];
        for time in &mut times {
            let mut places = Vec::with_capacity(VALUES as usize);
            for _ in 0..VALUES {
                let k = below(opened.len());
                let piece = below(opened.get(k).map_or(0, OpenedContainer::pieces));
                let len = opened.get(k).map_or(0, |o| o.piece_len(piece));
                if len >= self.width {
                    places.push((k, piece, below(len / self.width) * self.width));
                }
            }
            let mut value = [0; 8];
            let value = &mut value[..self.width];
            let start = (self.clock)();
            for (k, piece, at) in &places {
                let bytes = self.encoded[*k].piece(*piece);
                opened[*k]
                    .decode_range(*piece, bytes, *at..at + self.width, value)
                    .map_err(failed(*k))?;
                std::hint::black_box(&mut *value);
            }
            let taken = (self.clock)().saturating_sub(start);
            *time = taken / (places.len() as u32).max(1);
        }
        Ok(median(times))
    }
}

/// Decodes a container piece by piece, as it is read.
fn decode(encoded: &EncodedContainer, out: &mut [u8]) -> Result<(), CodecError> {
    let opened = OpenedContainer::open(encoded.head())?;
    for (k, out) in out.chunks_mut(PIECE_LEN).enumerate() {
        opened.decode_piece(k, encoded.piece(k), out)?;
    }
    Ok(())
}

fn median(mut times: [Duration; RUNS]) -> Duration {
    times.sort_unstable();
    times[RUNS / 2]
}
