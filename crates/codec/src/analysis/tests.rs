//! The analysis of arrays of known content, with a clock that is told what time it is.
use super::*;
use crate::container::{EncodedContainer, MAX_CONTAINER_LEN};
use forebay_testkit::random::seeded_bytes;
use std::cell::Cell;

/// A file of `bytes`, sampled whole from `offset` on.
fn sample(bytes: &[u8], offset: u64) -> Vec<SampledContainer> {
    let ranges = sampled_ranges(offset, bytes.len() as u64, u64::MAX);
    let container = |range: std::ops::Range<u64>| SampledContainer {
        at: range.start,
        bytes: bytes[range.start as usize..range.end as usize].to_vec(),
    };
    ranges.into_iter().map(container).collect()
}

fn analyze_bytes(bytes: &[u8], known: &KnownNumbers) -> SampleAnalysis {
    let ticks = Cell::new(0);
    let clock = || {
        ticks.set(ticks.get() + 1);
        Duration::from_micros(ticks.get())
    };
    let sample = sample(bytes, known.offset);
    let mut done = 0;
    let analysis = analyze(&sample, known, &clock, &mut |n| done += n).unwrap();
    assert_eq!(done, work(bytes.len() as u64 - known.offset));
    analysis
}

fn wave(n: usize) -> Vec<u8> {
    let values = (0..n).map(|i| 280.0 + (i as f32 * 1e-3).sin());
    values.flat_map(f32::to_le_bytes).collect()
}

#[test]
fn every_codec_is_measured_and_raw_has_ratio_one() {
    let analysis = analyze_bytes(&wave(270_000), &KnownNumbers::default());
    let ids: Vec<CodecId> = analysis.codecs.iter().map(|(id, _)| *id).collect();
    assert_eq!(ids, CodecId::ALL);
    let raw = analysis.codecs[0].1;
    assert!((0.999..=1.0).contains(&raw.ratio()), "{}", raw.ratio());
    // With this clock everything takes a microsecond for each container.
    assert_eq!(raw.speed.encode, 540_000.0 / 1e-6);
    assert!(analysis.codecs.iter().all(|(_, a)| a.raw_len == 1_080_000));
    assert_eq!(analysis.layout, ElementLayout::plain(ElementType::F32));
    assert_eq!(analysis.taken, [(CodecId::Field, 2)]);
    assert_eq!(analysis.recommended.hint.element, Some(ElementType::F32));
}

/// A codec that copies, or refuses if it has the number of Zstandard.
#[derive(Debug, Clone, Copy)]
struct RefusingCodec(CodecId);

impl Codec for RefusingCodec {
    fn id(&self) -> CodecId {
        self.0
    }

    fn encode_pieces(
        &self,
        _: &ElementLayout,
        src: &[u8],
        out: &mut EncodedContainer,
    ) -> Result<(), CodecError> {
        if self.0 == CodecId::Zstd {
            return Err(CodecError::Encoder("it refuses"));
        }
        out.push_raw_pieces(src);
        Ok(())
    }
}

#[test]
fn a_codec_that_fails_ends_nothing_but_its_own_measurement() {
    let wave = sample(&wave(30_000), 0);
    let done = Cell::new(0);
    let clock = || Duration::ZERO;
    let mut count = |n| done.set(done.get() + n);
    let mut measurement = CodecMeasurement::new(&wave, 4, &clock, &mut count);
    let codecs = [CodecId::Raw, CodecId::Zstd, CodecId::Raw].map(RefusingCodec);
    let layout = ElementLayout::plain(ElementType::F32);
    let (measured, failed) = measure_codecs(&mut measurement, &codecs, &layout);
    assert_eq!(measured.len(), 2);
    let error = CodecError::Encoder("it refuses");
    let codec = CodecId::Zstd;
    assert_eq!(
        failed,
        [AnalysisError::Codec {
            codec,
            at: 0,
            error
        }]
    );
    assert_eq!(done.get(), 3 * RUNS as u64 * 120_000);
}

#[test]
fn random_bytes_are_to_stay_raw() {
    let analysis = analyze_bytes(&seeded_bytes(1, 200_000), &KnownNumbers::default());
    assert_eq!(analysis.recommended.hint.to_string(), "raw");
    assert_eq!(
        analysis.recommended.reason,
        RecommendationReason::NothingGains
    );
    assert_eq!(analysis.taken, [(CodecId::Raw, 1)]);
}

#[test]
fn the_automatic_choice_follows_the_content() {
    let mut bytes = wave(MAX_CONTAINER_LEN / 4);
    bytes.extend(seeded_bytes(3, 2 * MAX_CONTAINER_LEN));
    let known = KnownNumbers {
        element: Some(ElementType::F32),
        ..KnownNumbers::default()
    };
    let analysis = analyze_bytes(&bytes, &known);
    // The second container is a surprise.
    assert_eq!(analysis.taken, [(CodecId::Raw, 1), (CodecId::Field, 2)]);
}

#[test]
fn numbers_behind_a_header_are_found_and_no_type_is_recommended_that_would_misplace_them() {
    let mut bytes = seeded_bytes(3, 10);
    bytes.extend(wave(30_000));
    let known = KnownNumbers {
        element: Some(ElementType::F32),
        offset: 10,
        ..KnownNumbers::default()
    };
    let analysis = analyze_bytes(&bytes, &known);
    assert_eq!(analysis.layout.phase, 2);
    assert_eq!(analysis.recommended.hint.element, None);
    let plain = analyze_bytes(&wave(30_000), &KnownNumbers::default());
    let field = |analysis: &SampleAnalysis| analysis.codecs[CodecId::Field as usize].1.encoded_len;
    assert!(field(&analysis).abs_diff(field(&plain)) < 100);
    // A header of whole numbers misplaces nothing.
    let known = KnownNumbers {
        offset: 12,
        ..known
    };
    let mut bytes = seeded_bytes(3, 12);
    bytes.extend(wave(30_000));
    let analysis = analyze_bytes(&bytes, &known);
    assert_eq!(analysis.layout.phase, 0);
    assert_eq!(analysis.recommended.hint.element, Some(ElementType::F32));
}

#[test]
fn a_stride_is_found_and_recommended() {
    let three = (0..60_000u32).map(|i| (i % 3) as f32 * 1e5 + ((i / 3) as f32 * 1e-3).sin());
    let bytes: Vec<u8> = three.flat_map(f32::to_le_bytes).collect();
    let analysis = analyze_bytes(&bytes, &KnownNumbers::default());
    assert_eq!(analysis.layout.stride, 3);
    assert_eq!(analysis.recommended.hint.stride, Some(3));
}

#[test]
fn files_shorter_than_a_number_are_analyzed() {
    for len in 1..20 {
        let analysis = analyze_bytes(&seeded_bytes(4, len), &KnownNumbers::default());
        assert_eq!(
            analysis.recommended.reason,
            RecommendationReason::NothingGains,
            "{len}"
        );
    }
}
