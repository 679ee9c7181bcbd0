//! What a person says of a file's content: the value of the attribute that names its codec.
//!
//! ```text
//!  auto|raw|xor|field|zstd|lz4|pco[,f32|f64|bf16|f16][,stride=N][,row=N][,points=N]
//! ```
//!
//! Everything behind the codec is about its numbers, in any order, each at most once. A hint that is wrong costs room and time, never
//! a byte of the content.
use crate::element::ElementType;
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// Which codec is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum HintedCodec {
    /// What a sample says.
    #[default]
    Auto,
    /// None.
    Raw,
    /// The paper's.
    Xor,
    /// Our own.
    Field,
    /// Zstandard, shuffled if that is shorter.
    Zstd,
    /// LZ4, shuffled if that is shorter.
    Lz4,
    /// Pcodec.
    Pco,
}

impl HintedCodec {
    /// Every one.
    pub const ALL: [HintedCodec; 7] = [
        Self::Auto,
        Self::Raw,
        Self::Xor,
        Self::Field,
        Self::Zstd,
        Self::Lz4,
        Self::Pco,
    ];

    /// Its name in hints.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Raw => "raw",
            Self::Xor => "xor",
            Self::Field => "field",
            Self::Zstd => "zstd",
            Self::Lz4 => "lz4",
            Self::Pco => "pco",
        }
    }
}

/// A parsed hint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct CodecHint {
    /// The codec.
    pub codec: HintedCodec,
    /// The type of the numbers.
    pub element: Option<ElementType>,
    /// Numbers from one to the next of the same kind; at least 1.
    pub stride: Option<u32>,
    /// Numbers of a row; at least 1. The codec `field` expects a number from the one a row before, if a row is at most
    /// half a piece of 4 KiB: a piece decodes alone, so longer rows cannot be used.
    pub row: Option<u32>,
    /// Reference points of the codec `xor` in a container of 1 MiB; at least 1. Shorter containers have them as far apart. If it is
    /// not said, the best `R` of the paper's model is taken ([`Bandwidths`](crate::cost::Bandwidths)).
    pub points: Option<u32>,
}

/// A text that is no hint.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "`{part}` is not known in the codec hint `{text}`; it is auto|raw|xor|field|zstd|lz4|pco[,f32|f64|bf16|f16][,stride=N][,row=N][,points=N]"
)]
pub struct HintError {
    text: String,
    part: String,
}

/// The name of a type in hints.
pub const fn element_name(element: ElementType) -> &'static str {
    match element {
        ElementType::F32 => "f32",
        ElementType::F64 => "f64",
        ElementType::Bf16 => "bf16",
        ElementType::F16 => "f16",
    }
}

/// Sets what was not set before.
fn set_once<T>(field: &mut Option<T>, value: Option<T>) -> Option<()> {
    field.is_none().then_some(())?;
    *field = Some(value?);
    Some(())
}

impl CodecHint {
    /// Takes a part behind the codec; `None` if there is no such, or not a second time.
    fn take(&mut self, part: &str) -> Option<()> {
        let Some((key, value)) = part.split_once('=') else {
            let known = ElementType::ALL
                .into_iter()
                .find(|e| element_name(*e) == part);
            return set_once(&mut self.element, known);
        };
        // A sign is no digit of a count.
        let digits = value.bytes().all(|byte| byte.is_ascii_digit());
        let value = value.parse().ok().filter(|n| digits && *n > 0);
        match key {
            "stride" => set_once(&mut self.stride, value),
            "row" => set_once(&mut self.row, value),
            "points" => set_once(&mut self.points, value),
            _ => None,
        }
    }
}

impl FromStr for CodecHint {
    type Err = HintError;

    fn from_str(text: &str) -> Result<CodecHint, HintError> {
        let refused = |part: &str| HintError {
            text: text.to_owned(),
            part: part.to_owned(),
        };
        let mut parts = text.split(',');
        let name = parts.next().unwrap_or_default();
        let codec = HintedCodec::ALL.into_iter().find(|c| c.name() == name);
        let mut hint = CodecHint {
            codec: codec.ok_or_else(|| refused(name))?,
            ..CodecHint::default()
        };
        for part in parts {
            hint.take(part).ok_or_else(|| refused(part))?;
        }
        Ok(hint)
    }
}

impl fmt::Display for CodecHint {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(self.codec.name())?;
        if let Some(element) = self.element {
            write!(f, ",{}", element_name(element))?;
        }
        if let Some(stride) = self.stride {
            write!(f, ",stride={stride}")?;
        }
        if let Some(row) = self.row {
            write!(f, ",row={row}")?;
        }
        if let Some(points) = self.points {
            write!(f, ",points={points}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn hints() -> impl Strategy<Value = CodecHint> {
        let some = || proptest::option::of(1..=u32::MAX);
        let element = proptest::option::of(0..4usize);
        let numbers = (some(), some(), some());
        (0..7usize, element, numbers).prop_map(|(codec, element, (stride, row, points))| {
            CodecHint {
                codec: HintedCodec::ALL[codec],
                element: element.map(|i| ElementType::ALL[i]),
                stride,
                row,
                points,
            }
        })
    }

    proptest! {
        #[test]
        fn what_is_displayed_is_parsed(hint in hints()) {
            prop_assert_eq!(hint.to_string().parse(), Ok(hint));
        }

        #[test]
        fn any_text_is_a_hint_or_refused(text in "\\PC*|(auto|raw|pco|,|f32|stride=|[0-9]|=|-| )*") {
            if let Ok(hint) = text.parse::<CodecHint>() {
                prop_assert_eq!(hint.to_string().parse(), Ok(hint));
            }
        }
    }

    #[test]
    fn parts_come_in_any_order() {
        let hint: CodecHint = "field,points=9,row=360,stride=3,bf16".parse().unwrap();
        assert_eq!(hint.to_string(), "field,bf16,stride=3,row=360,points=9");
    }

    #[test]
    fn unknown_parts_are_named() {
        for (text, part) in [
            ("", ""),
            ("gzip", "gzip"),
            ("Auto", "Auto"),
            ("auto,", ""),
            ("auto,f128", "f128"),
            ("auto,f32,f64", "f64"),
            ("auto,stride=0", "stride=0"),
            ("auto,stride=+1", "stride=+1"),
            ("auto,stride=", "stride="),
            ("auto,row=4294967296", "row=4294967296"),
            ("xor,points=0", "points=0"),
            ("auto,column=1", "column=1"),
            ("auto ,f32", "auto "),
        ] {
            let refused = text.parse::<CodecHint>().unwrap_err();
            assert_eq!(refused.part, part, "{text}");
        }
    }
}
