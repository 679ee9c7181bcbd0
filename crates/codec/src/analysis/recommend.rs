//! Which hint to give a file, by what was measured.
//!
//! Of the codecs that are at most [`NEAR_SHORTEST_FACTOR`] times as long as the shortest, the one that encodes and decodes in the least
//! time; `auto` if it is shorter still, for it takes another codec where the content changes; `raw` if nothing gains. The hints `zstd` and
//! `lz4` mean the shorter of two codecs, with and without a shuffle: the longer one of them cannot be asked for.
use super::{CodecAnalysis, KnownNumbers};
use crate::container::CodecId;
use crate::element::{ElementLayout, ElementType};
use crate::hint::{CodecHint, HintedCodec};

/// What a codec may be longer than the shortest, if it is faster.
const NEAR_SHORTEST_FACTOR: f64 = 1.05;
/// What must be gained for anything to be encoded: as for an automatic choice.
const LEAST_GAIN: f64 = 0.01;
/// What `auto` must gain over the best single codec.
const MIXED_CONTENT_GAIN: f64 = 0.01;

/// Why a hint is recommended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecommendationReason {
    /// No codec makes the sample shorter by more than a hundredth.
    NothingGains,
    /// No single codec is as short as one for each part.
    Mixed,
    /// No codec is shorter.
    Shortest,
    /// About as short as this one, and faster.
    Faster(CodecId),
}

/// What to do with a file.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Recommendation {
    /// The hint.
    pub hint: CodecHint,
    /// Raw bytes for an encoded byte with it.
    pub ratio: f64,
    /// Why.
    pub reason: RecommendationReason,
}

/// A hint of this codec with what is known of the numbers, and nothing that is guessed: where bytes are coded as bytes they may be none.
pub(super) fn hint_of_bytes(codec: HintedCodec, known: &KnownNumbers) -> CodecHint {
    let begins_with_one =
        |element: &ElementType| known.offset.is_multiple_of(element.width() as u64);
    CodecHint {
        codec,
        element: known.element.filter(begins_with_one),
        stride: known.stride,
        ..CodecHint::default()
    }
}

/// A hint of this codec with all that is known of the numbers.
pub(super) fn hint(codec: HintedCodec, layout: &ElementLayout, known: &KnownNumbers) -> CodecHint {
    // A hint with a type says that the file begins with a number; otherwise the type is guessed, and where the first one begins.
    let begins_with_one = layout.phase == 0;
    match codec {
        HintedCodec::Raw => CodecHint {
            codec,
            ..CodecHint::default()
        },
        _ => CodecHint {
            codec,
            element: begins_with_one.then_some(layout.element),
            stride: known
                .stride
                .or((layout.stride > 1).then_some(layout.stride)),
            ..CodecHint::default()
        },
    }
}

/// What hints call a codec.
fn hinted(codec: CodecId) -> HintedCodec {
    match codec {
        CodecId::Raw => HintedCodec::Raw,
        CodecId::Xor => HintedCodec::Xor,
        CodecId::Field => HintedCodec::Field,
        CodecId::Zstd | CodecId::ShuffleZstd => HintedCodec::Zstd,
        CodecId::Lz4 | CodecId::ShuffleLz4 => HintedCodec::Lz4,
        CodecId::Pco => HintedCodec::Pco,
    }
}

/// Recommends one. `codecs` has every codec.
pub(super) fn recommend(
    codecs: &[(CodecId, CodecAnalysis)],
    auto: &CodecAnalysis,
    taken: &[(CodecId, u32)],
    layout: &ElementLayout,
    known: &KnownNumbers,
) -> Recommendation {
    // Which codec the hint leads to decides whether it is one of numbers.
    let recommended = |codec, id, analysis: &CodecAnalysis, reason| Recommendation {
        hint: match id {
            CodecId::Zstd | CodecId::Lz4 => hint_of_bytes(codec, known),
            _ => hint(codec, layout, known),
        },
        ratio: analysis.ratio(),
        reason,
    };
    let seconds = |a: &CodecAnalysis| 1.0 / a.speed.encode + 1.0 / a.speed.decode;
    let shortest = codecs.iter().min_by_key(|(_, a)| a.encoded_len);
    let Some(&(shortest, least)) = shortest else {
        return recommended(
            HintedCodec::Raw,
            CodecId::Raw,
            auto,
            RecommendationReason::NothingGains,
        );
    };
    let limit = |bytes: u64, part: f64| bytes as f64 * part;
    if least.encoded_len.min(auto.encoded_len) as f64 >= limit(auto.raw_len, 1.0 - LEAST_GAIN) {
        let raw = codecs.iter().find(|(id, _)| *id == CodecId::Raw);
        let raw = raw.map_or(least, |(_, analysis)| *analysis);
        return recommended(
            HintedCodec::Raw,
            CodecId::Raw,
            &raw,
            RecommendationReason::NothingGains,
        );
    }
    if (auto.encoded_len as f64) < limit(least.encoded_len, 1.0 - MIXED_CONTENT_GAIN) {
        let most = taken.iter().max_by_key(|(_, count)| *count);
        let id = most.map_or(CodecId::Raw, |(id, _)| *id);
        return recommended(HintedCodec::Auto, id, auto, RecommendationReason::Mixed);
    }
    let near = codecs
        .iter()
        .copied()
        .filter(|(_, a)| a.encoded_len as f64 <= limit(least.encoded_len, NEAR_SHORTEST_FACTOR))
        .filter(|(id, a)| {
            let shorter = |(other, b): &(CodecId, CodecAnalysis)| {
                hinted(*other) == hinted(*id) && b.encoded_len < a.encoded_len
            };
            !codecs.iter().any(shorter)
        });
    let fastest = near.min_by(|(_, a), (_, b)| seconds(a).total_cmp(&seconds(b)));
    let (codec, analysis) = fastest.unwrap_or((shortest, least));
    let reason = match codec == shortest {
        true => RecommendationReason::Shortest,
        false => RecommendationReason::Faster(shortest),
    };
    recommended(hinted(codec), codec, &analysis, reason)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::CodecSpeed;
    use std::time::Duration;

    fn analysis(encoded_len: u64, rate: f64) -> CodecAnalysis {
        CodecAnalysis {
            raw_len: 1_000_000,
            encoded_len,
            speed: CodecSpeed {
                encode: rate,
                decode: rate,
            },
            one_value: Duration::from_nanos(100),
        }
    }

    /// Raw, Field, ShuffleZstd and Pco become so long, at falling speeds.
    fn recommended(field: u64, zstd: u64, pco: u64, auto: u64) -> (String, RecommendationReason) {
        let codecs = [
            (CodecId::Raw, analysis(1_000_016, 1e10)),
            (CodecId::Field, analysis(field, 1e9)),
            (CodecId::ShuffleZstd, analysis(zstd, 5e8)),
            (CodecId::Pco, analysis(pco, 1e8)),
        ];
        let layout = ElementLayout {
            stride: 4,
            ..ElementLayout::plain(ElementType::F32)
        };
        let auto = analysis(auto, 1e9);
        let found = recommend(
            &codecs,
            &auto,
            &[(CodecId::Field, 1)],
            &layout,
            &KnownNumbers::default(),
        );
        (found.hint.to_string(), found.reason)
    }

    #[test]
    fn the_shortest_is_recommended_unless_one_about_as_short_is_faster() {
        let (hint, reason) = recommended(500_000, 600_000, 510_000, 500_000);
        assert_eq!(hint, "field,f32,stride=4");
        assert_eq!(reason, RecommendationReason::Shortest);
        let (hint, reason) = recommended(520_000, 600_000, 500_000, 520_000);
        assert_eq!(hint, "field,f32,stride=4");
        assert_eq!(reason, RecommendationReason::Faster(CodecId::Pco));
        let (hint, _) = recommended(530_000, 600_000, 500_000, 530_000);
        assert_eq!(hint, "pco,f32,stride=4");
        let (hint, _) = recommended(600_000, 500_000, 530_000, 500_000);
        assert_eq!(hint, "zstd,f32,stride=4");
    }

    #[test]
    fn a_codec_is_not_recommended_by_a_hint_that_means_another() {
        let codecs = [
            (CodecId::Raw, analysis(1_000_016, 1e10)),
            (CodecId::Zstd, analysis(510_000, 9e8)),
            (CodecId::ShuffleZstd, analysis(500_000, 5e8)),
        ];
        let (layout, known) = (
            ElementLayout::plain(ElementType::F32),
            KnownNumbers::default(),
        );
        let found = recommend(&codecs, &analysis(500_000, 5e8), &[], &layout, &known);
        assert_eq!(found.hint.to_string(), "zstd,f32");
        assert_eq!(
            (found.ratio, found.reason),
            (2.0, RecommendationReason::Shortest)
        );
    }

    #[test]
    fn no_type_is_guessed_for_bytes() {
        let codecs = [
            (CodecId::Raw, analysis(1_000_016, 1e10)),
            (CodecId::Zstd, analysis(400_000, 5e8)),
            (CodecId::ShuffleZstd, analysis(500_000, 5e8)),
        ];
        let layout = ElementLayout::plain(ElementType::Bf16);
        let auto = analysis(400_000, 5e8);
        let hint = |known| recommend(&codecs, &auto, &[(CodecId::Zstd, 1)], &layout, &known).hint;
        assert_eq!(hint(KnownNumbers::default()).to_string(), "zstd");
        let known = KnownNumbers {
            element: Some(ElementType::F32),
            ..KnownNumbers::default()
        };
        assert_eq!(hint(known).to_string(), "zstd,f32");
        // Mixed content that is mostly text.
        let auto = analysis(300_000, 5e8);
        let mixed = recommend(
            &codecs,
            &auto,
            &[(CodecId::Zstd, 3), (CodecId::Field, 1)],
            &layout,
            &KnownNumbers::default(),
        );
        assert_eq!(mixed.hint.to_string(), "auto");
    }

    #[test]
    fn auto_is_recommended_where_it_is_shorter_than_every_codec() {
        let (hint, reason) = recommended(500_000, 600_000, 500_000, 480_000);
        assert_eq!(hint, "auto,f32,stride=4");
        assert_eq!(reason, RecommendationReason::Mixed);
    }

    #[test]
    fn raw_is_recommended_where_less_than_a_hundredth_is_gained() {
        let (hint, reason) = recommended(995_000, 999_000, 991_000, 999_000);
        assert_eq!(
            (&*hint, reason),
            ("raw", RecommendationReason::NothingGains)
        );
    }
}
