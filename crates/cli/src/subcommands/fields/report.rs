//! What the analysis found: as JSON, and as text.
use super::sampled;
use crate::table::Table;
use forebay_codec::analysis::{CodecAnalysis, KnownNumbers, RecommendationReason, SampleAnalysis};
use forebay_codec::hint::element_name;
use forebay_node::units::{counted, size};
use serde::Serialize;
use std::fmt::Write as _;
use std::time::Duration;

/// All of it.
#[derive(Debug, Clone, Default, Serialize)]
pub struct FieldsReport {
    /// In the order of the arguments.
    pub files: Vec<FileReport>,
}

/// One file.
#[derive(Debug, Clone, Serialize)]
pub struct FileReport {
    pub file: String,
    pub bytes: u64,
    pub sampled_bytes: u64,
    /// Bytes before the first number, as they were given.
    pub offset: u64,
    /// Type of the numbers; said or guessed.
    #[serde(rename = "type")]
    pub element: &'static str,
    pub stride: u32,
    /// What of these was guessed.
    pub guessed: Vec<&'static str>,
    /// Every codec.
    pub codecs: Vec<CodecReport>,
    /// The automatic choice.
    pub auto: CodecReport,
    /// For how many containers of 1 MiB that took each codec.
    pub auto_takes: Vec<TakenCodec>,
    /// A value of the attribute `user.forebay.codec`.
    pub recommended: String,
    pub sentence: String,
}

/// A codec over the sample of a file.
#[derive(Debug, Clone, Serialize)]
pub struct CodecReport {
    pub codec: &'static str,
    pub ratio: f64,
    pub encoded_bytes: u64,
    pub encode_bytes_per_s: f64,
    pub decode_bytes_per_s: f64,
    pub one_value_ns: u64,
}

/// What the automatic choice took.
#[derive(Debug, Clone, Serialize)]
pub struct TakenCodec {
    pub codec: &'static str,
    pub containers: u32,
}

impl CodecReport {
    fn new(codec: &'static str, analysis: &CodecAnalysis) -> CodecReport {
        CodecReport {
            codec,
            ratio: analysis.ratio(),
            encoded_bytes: analysis.encoded_len,
            encode_bytes_per_s: analysis.speed.encode,
            decode_bytes_per_s: analysis.speed.decode,
            one_value_ns: u64::try_from(analysis.one_value.as_nanos()).unwrap_or(u64::MAX),
        }
    }

    fn cells(&self) -> Vec<String> {
        let rate = |bytes: f64| format!("{}/s", size(bytes as u64));
        vec![
            self.codec.into(),
            format!("{:.3}", self.ratio),
            rate(self.encode_bytes_per_s),
            rate(self.decode_bytes_per_s),
            time(Duration::from_nanos(self.one_value_ns)),
        ]
    }
}

/// A short time for people.
fn time(time: Duration) -> String {
    match time.as_nanos() {
        ns @ 0..1000 => format!("{ns} ns"),
        ns => format!("{:.1} µs", ns as f64 / 1e3),
    }
}

impl FileReport {
    /// Of an analysis.
    pub fn new(
        file: String,
        bytes: u64,
        sampled_bytes: u64,
        known: &KnownNumbers,
        found: &SampleAnalysis,
    ) -> FileReport {
        let guessed = [
            ("type", known.element.is_none()),
            ("stride", known.stride.is_none()),
        ];
        let recommended = found.recommended.hint.to_string();
        FileReport {
            file,
            bytes,
            sampled_bytes,
            offset: known.offset,
            element: element_name(found.layout.element),
            stride: found.layout.stride,
            guessed: guessed.iter().filter(|g| g.1).map(|g| g.0).collect(),
            codecs: found
                .codecs
                .iter()
                .map(|(id, analysis)| CodecReport::new(id.name(), analysis))
                .collect(),
            auto: CodecReport::new("auto", &found.auto),
            auto_takes: found
                .taken
                .iter()
                .map(|(id, containers)| TakenCodec {
                    codec: id.name(),
                    containers: *containers,
                })
                .collect(),
            sentence: sentence(&recommended, found),
            recommended,
        }
    }

    fn write(&self, out: &mut String) {
        let guessed = match &self.guessed[..] {
            [] => String::new(),
            guessed => format!(" ({} guessed)", guessed.join(" and ")),
        };
        // Writing to a string does not fail.
        let _ = writeln!(
            out,
            "{}: {}, as {} with stride {}{guessed}",
            self.file,
            sampled(self),
            self.element,
            self.stride,
        );
        let mut table = Table::new(&["codec", "ratio", "encode", "decode", "one value"]);
        for codec in self.codecs.iter().chain([&self.auto]) {
            table.row(codec.cells());
        }
        let _ = write!(out, "{table}");
        let taken = self.auto_takes.iter();
        let taken: Vec<String> = taken
            .map(|t| {
                let containers = counted(u64::from(t.containers), "container");
                format!("{} for {containers}", t.codec)
            })
            .collect();
        let _ = writeln!(out, "Auto takes {}.\n{}", taken.join(", "), self.sentence);
    }
}

/// What is recommended, and why.
fn sentence(hint: &str, found: &SampleAnalysis) -> String {
    let ratio = found.recommended.ratio;
    match found.recommended.reason {
        RecommendationReason::NothingGains => {
            format!("Recommended: `{hint}`, for no codec makes it shorter by more than 1 %.")
        }
        RecommendationReason::Mixed => {
            format!(
                "Recommended: `{hint}`, for no single codec is as short as one for each part ({ratio:.2})."
            )
        }
        RecommendationReason::Shortest => {
            format!("Recommended: `{hint}`, the shortest ({ratio:.2}).")
        }
        RecommendationReason::Faster(other) => format!(
            "Recommended: `{hint}`, about as short as {} ({ratio:.2}) and faster.",
            other.name()
        ),
    }
}

impl FieldsReport {
    /// For people.
    pub fn text(&self) -> String {
        let mut out = String::new();
        for (i, file) in self.files.iter().enumerate() {
            if i > 0 {
                out.push('\n');
            }
            file.write(&mut out);
        }
        out
    }
}
