//! The subjects, and how each encodes containers.
use super::array::SourceContainer;
use crate::fail::Result;
use crate::harness::by_name;
use forebay_codec::FieldCodec;
use forebay_codec::choose::{AnyCodec, CodecChooser, CodecSpeeds, CostGoal, CostModel};
use forebay_codec::cost::Bandwidths;
use forebay_codec::general::{ByteCodec, GeneralCodec, PcoCodec, RawCodec};
use forebay_codec::hint::HintedCodec;
use forebay_codec::xor::{ReferencePoints, XorCodec};
use forebay_codec::{Codec as _, CodecHint, ElementLayout, EncodedContainer};

/// A subject of `fields`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FieldsSubject {
    /// Its name.
    pub name: &'static str,
    /// How it encodes arrays.
    pub kind: SubjectKind,
}

/// How a subject encodes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum SubjectKind {
    /// What the chooser chooses for fewest bytes; it is told the type of the elements.
    Automatic,
    /// One codec.
    Codec(AnyCodec),
    /// Our codec of fields, against a base; only where there is one.
    AgainstBase,
    /// Whole arrays, without containers.
    Whole,
}

/// Equal speeds of reading and writing, for which the paper's formula gives the square root of the number of entries.
const EQUAL: Bandwidths = Bandwidths {
    read: 1e9,
    write: 1e9,
};

const fn codec(name: &'static str, codec: AnyCodec) -> FieldsSubject {
    let kind = SubjectKind::Codec(codec);
    FieldsSubject { name, kind }
}

const fn general(name: &'static str, codec: ByteCodec, shuffle: bool) -> FieldsSubject {
    self::codec(name, AnyCodec::General(GeneralCodec { codec, shuffle }))
}

const fn pco(name: &'static str, level: usize) -> FieldsSubject {
    codec(name, AnyCodec::Pco(PcoCodec { level }))
}

/// The subjects of `fields`.
pub const SUBJECTS: [FieldsSubject; 12] = [
    FieldsSubject {
        name: "forebay",
        kind: SubjectKind::Automatic,
    },
    codec("field", AnyCodec::Field(FieldCodec)),
    FieldsSubject {
        name: "field-base",
        kind: SubjectKind::AgainstBase,
    },
    codec(
        "paper",
        AnyCodec::Xor(XorCodec {
            points: ReferencePoints::Best(EQUAL),
        }),
    ),
    general("zstd-3", ByteCodec::Zstd(3), false),
    general("shuffle-zstd-3", ByteCodec::Zstd(3), true),
    general("shuffle-zstd-1", ByteCodec::Zstd(1), true),
    general("lz4", ByteCodec::Lz4, false),
    pco("pco-4", 4),
    pco("pco-8", 8),
    codec("raw", AnyCodec::Raw(RawCodec)),
    FieldsSubject {
        name: "shuffle-zstd-3-whole",
        kind: SubjectKind::Whole,
    },
];

/// Those with these names, or all.
///
/// # Errors
/// Names the one that there is not.
pub fn select(wanted: &[String]) -> Result<Vec<FieldsSubject>> {
    let names: Vec<&str> = SUBJECTS.iter().map(|s| s.name).collect();
    let hint = format!("there are {}", names.join(", "));
    by_name("subject", &SUBJECTS, |s| s.name, wanted, &hint)
}

/// What the automatic choice is told.
pub fn automatic_hint(layout: &ElementLayout) -> CodecHint {
    CodecHint {
        codec: HintedCodec::Auto,
        element: Some(layout.element),
        ..CodecHint::default()
    }
}

/// What it chooses by.
pub fn automatic_model() -> CostModel {
    CostModel {
        goal: CostGoal::Bytes,
        speeds: CodecSpeeds::default(),
    }
}

impl FieldsSubject {
    /// Encodes each container into the one of the same number.
    pub fn encode(&self, sources: &[SourceContainer], out: &mut [EncodedContainer]) -> Result<()> {
        let mut chooser = CodecChooser::new(CodecHint::default());
        for (source, out) in sources.iter().zip(out) {
            let SourceContainer { raw, layout, .. } = source;
            match self.kind {
                SubjectKind::Codec(codec) => {
                    codec.encode(layout, raw, out)?;
                }
                SubjectKind::AgainstBase => {
                    let base = source.base.unwrap_or_default();
                    FieldCodec.encode_against(base, layout, raw, out)?;
                }
                SubjectKind::Automatic => {
                    if source.at == 0 {
                        // An array is a file of its own.
                        chooser = CodecChooser::new(automatic_hint(layout));
                    }
                    chooser.encode(source.at, raw, automatic_model, out)?;
                }
                SubjectKind::Whole => {}
            }
        }
        Ok(())
    }

    /// The same with so many reference points in a container; `None`: it has none.
    pub fn with_points(self, points: u64) -> Option<FieldsSubject> {
        let SubjectKind::Codec(AnyCodec::Xor(_)) = self.kind else {
            return None;
        };
        let points = ReferencePoints::Count(points);
        Some(codec(self.name, AnyCodec::Xor(XorCodec { points })))
    }

    /// Whether it is measured on arrays with or without a base.
    pub fn takes(&self, has_base: bool) -> bool {
        has_base || self.kind != SubjectKind::AgainstBase
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subjects_are_found_by_name() {
        let names = |wanted: &[&str]| {
            let wanted: Vec<String> = wanted.iter().map(|n| (*n).to_owned()).collect();
            select(&wanted).map(|s| s.iter().map(|s| s.name).collect::<Vec<_>>())
        };
        assert_eq!(names(&["raw", "paper"]).unwrap(), ["raw", "paper"]);
        assert_eq!(names(&[]).unwrap().len(), SUBJECTS.len());
        let with_points = SUBJECTS.iter().filter_map(|s| s.with_points(300));
        assert_eq!(with_points.map(|s| s.name).collect::<Vec<_>>(), ["paper"]);
        assert!(names(&["gzip"]).unwrap_err().0.contains("shuffle-zstd-1"));
    }
}
