//! A file's choice, kept for some containers: sampling each would take longer than it gains.
//!
//! The codec is chosen again after [`FIRST_KEPT_CONTAINERS`] containers; that number doubles each time the same codec is chosen. It is
//! also chosen again once a container's ratio differs much from that of the first one after the last choice.
use super::{CodecChoice, CostModel, choose, choose_with};
use crate::container::{Codec, EncodedContainer, StoredForm};
use crate::error::CodecError;
use crate::hint::CodecHint;

/// Containers that a first choice is kept for.
const FIRST_KEPT_CONTAINERS: u32 = 16;
/// Containers that any choice is kept for at most.
const MAX_KEPT_CONTAINERS: u32 = 128;
/// How far from what was expected is much.
const RESAMPLED_DEVIATION: f64 = 0.15;

/// Chooses for the containers of one file, one after the other.
#[derive(Debug, Clone)]
pub struct CodecChooser {
    hint: CodecHint,
    choice: Option<CodecChoice>,
    /// Containers of this choice.
    used: u32,
    /// How many it is kept for.
    kept: u32,
    /// Ratio of the first container of this choice: later ones are compared with it.
    first: Option<f64>,
}

impl CodecChooser {
    /// For a file with this hint.
    pub fn new(hint: CodecHint) -> CodecChooser {
        CodecChooser {
            hint,
            choice: None,
            used: 0,
            kept: FIRST_KEPT_CONTAINERS,
            first: None,
        }
    }

    /// What to encode the container with that begins at this offset of the file. `model` is asked for only if a choice is made.
    pub fn next(&mut self, at: u64, raw: &[u8], model: impl FnOnce() -> CostModel) -> CodecChoice {
        self.used += 1;
        if let Some(mut choice) = self.choice
            && self.used <= self.kept
        {
            // Containers of a file begin at any offset; those of the choice's own had its phase.
            choice.layout.phase = self.phase(at, &choice);
            return choice;
        }
        let choice = choose(at, raw, &self.hint, &model());
        self.keep(at, choice);
        choice
    }

    /// Chooses for the container that begins at this offset of the file, and encodes it. Where all of it was encoded to choose, it is not
    /// encoded again. `model` is asked for only if a choice is made.
    ///
    /// # Errors
    ///
    /// More than a container may have.
    pub fn encode(
        &mut self,
        at: u64,
        raw: &[u8],
        model: impl FnOnce() -> CostModel,
        out: &mut EncodedContainer,
    ) -> Result<(CodecChoice, StoredForm), CodecError> {
        let choice = match self.choice {
            Some(_) if self.used < self.kept => self.next(at, raw, model),
            _ => {
                self.used += 1;
                let (choice, is_encoded) = choose_with(at, raw, &self.hint, &model(), out);
                self.keep(at, choice);
                if is_encoded {
                    self.encoded(raw.len(), out.stored_len());
                    return Ok((choice, out.stored_form()));
                }
                choice
            }
        };
        let stored = choice.codec.encode(&choice.layout, raw, out)?;
        self.encoded(raw.len(), out.stored_len());
        Ok((choice, stored))
    }

    /// Keeps a choice that was made for a container at this offset.
    fn keep(&mut self, at: u64, choice: CodecChoice) {
        let width = choice.layout.element.width() as u64;
        let same = |known: CodecChoice| known.codec.id() == choice.codec.id();
        self.kept = match self.choice.is_some_and(same) {
            true => (2 * self.kept).min(MAX_KEPT_CONTAINERS),
            false => FIRST_KEPT_CONTAINERS,
        };
        self.used = 1;
        self.first = None;
        let mut kept = choice;
        // As at offset zero.
        kept.layout.phase = ((u64::from(choice.layout.phase) + at) % width) as u32;
        self.choice = Some(kept);
    }

    /// Where elements begin in a container at this offset.
    fn phase(&self, at: u64, kept: &CodecChoice) -> u32 {
        let width = kept.layout.element.width() as u64;
        ((u64::from(kept.layout.phase) + width - at % width) % width) as u32
    }

    /// Tells how long a container became. A surprise has the next one sampled.
    pub fn encoded(&mut self, raw_len: usize, encoded_len: usize) {
        if raw_len == 0 {
            return;
        }
        let ratio = encoded_len as f64 / raw_len as f64;
        let expected = *self.first.get_or_insert(ratio);
        if (ratio - expected).abs() > RESAMPLED_DEVIATION * expected {
            self.used = self.kept;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{CodecSpeeds, CostGoal};
    use super::*;
    use crate::CodecId;
    use forebay_testkit::random::seeded_bytes;
    use std::cell::Cell;

    fn wave(n: usize) -> Vec<u8> {
        let values = (0..n).map(|i| 280.0 + (i as f32 * 1e-3).sin());
        values.flat_map(f32::to_le_bytes).collect()
    }

    fn model() -> CostModel {
        CostModel {
            goal: CostGoal::Bytes,
            speeds: CodecSpeeds::default(),
        }
    }

    #[test]
    fn a_choice_is_kept_and_its_phase_follows_the_offset() {
        let mut chooser = CodecChooser::new("auto,f32".parse().unwrap());
        let (wave, asked) = (wave(10_000), Cell::new(0));
        for k in 0..60u64 {
            let at = k * 4099;
            let raw = &wave[(at % 4) as usize..];
            let choice = chooser.next(at, raw, || {
                asked.set(asked.get() + 1);
                model()
            });
            assert_eq!((at + u64::from(choice.layout.phase)) % 4, 0, "{k}");
            assert_eq!(choice.codec.id(), CodecId::Field);
        }
        assert_eq!(asked.get(), 3);
    }

    #[test]
    fn encoding_at_once_is_choosing_and_encoding() {
        let few: Vec<u8> = (0..100_000u32)
            .flat_map(|i| (f64::from(i * 7919 % 600) / 3.0).to_le_bytes())
            .collect();
        // Binary64 of few values with low halves of zero, which are taken for pairs of binary32; and text.
        let halves: Vec<u8> = (0..60_000u32)
            .flat_map(|i| f64::from(i * 7919 % 50).to_le_bytes())
            .collect();
        let text = b"the time of step is a number, and so is the step of time; "
            .iter()
            .copied()
            .cycle();
        let text: Vec<u8> = text.take(200_000).collect();
        for raw in [wave(10_000), few, halves, text, seeded_bytes(2, 50_000)] {
            let hint: CodecHint = "auto".parse().unwrap();
            let (mut a, mut b) = (CodecChooser::new(hint), CodecChooser::new(hint));
            let (mut at_once, mut apart) = (EncodedContainer::new(), EncodedContainer::new());
            for at in [0, 8 << 20] {
                let (choice, stored) = a.encode(at, &raw, model, &mut at_once).unwrap();
                let expected = b.next(at, &raw, model);
                let form = expected.codec.encode(&expected.layout, &raw, &mut apart);
                b.encoded(raw.len(), apart.stored_len());
                assert_eq!((choice, Ok(stored)), (expected, form));
                assert!(at_once == apart);
            }
        }
    }

    #[test]
    fn a_surprise_has_the_next_container_sampled() {
        let mut chooser = CodecChooser::new(CodecHint::default());
        let (wave, noise) = (wave(10_000), seeded_bytes(1, 40_000));
        assert_eq!(chooser.next(0, &wave, model).codec.id(), CodecId::Field);
        chooser.encoded(40_000, 20_000);
        let kept = chooser.next(40_000, &noise, || unreachable!("it is kept"));
        assert_eq!(kept.codec.id(), CodecId::Field);
        chooser.encoded(40_000, 40_000);
        assert_eq!(chooser.next(80_000, &noise, model).codec.id(), CodecId::Raw);
    }
}
