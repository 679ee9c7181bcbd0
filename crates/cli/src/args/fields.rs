//! The arguments of `forebay fields`.
use clap::{Args, Subcommand, ValueEnum, ValueHint};
use forebay_codec::ElementType;
use forebay_node::units::parse_size;
use std::path::PathBuf;

/// Subcommands of `fields`.
#[derive(Debug, Subcommand)]
pub enum FieldsCommand {
    /// Measure what every codec makes of the numbers of files, and recommend one
    Analyze(FieldsAnalyzeArgs),
    /// Encode what is stored of files again, by their attribute user.forebay.codec as it is now
    Recode(FieldsRecodeArgs),
}

/// Arguments of `fields analyze`.
#[derive(Debug, Args)]
#[command(
    after_help = "Example: `forebay fields analyze temperature.bin --type f32`. Of a file in which three variables alternate: \
        `--stride 3`; behind a header of 80 bytes: `--offset 80`. What is not said is guessed from the content, and the first line of the \
        table says what was taken.\n\n\
        Ratio: bytes before, for each byte after. Encode, decode: bytes of numbers a second on one core of this machine, the median of three \
        runs. One value: decoding one number at a random place of what is in memory. Every byte that was encoded is decoded and compared. \
        Auto: what the automatic choice for fewest bytes takes, for each container of up to 1 MiB.\n\n\
        The last line of a table recommends a codec as the attribute `user.forebay.codec` names it. Files are only read: of each at most \
        64 MiB, in pieces of 1 MiB from everywhere in it. It takes up to 200 MiB of memory. Exit codes: 0 done, 1 failed, 2 wrong usage."
)]
pub struct FieldsAnalyzeArgs {
    /// Files of numbers
    #[arg(required = true, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub files: Vec<PathBuf>,
    /// Type of the numbers, little-endian
    #[arg(long = "type", value_name = "TYPE", default_value = "auto")]
    pub element: NumberType,
    /// Numbers from one to the next of the same variable [default: guessed]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub stride: Option<u32>,
    /// Bytes of a file before its first number
    #[arg(long, value_name = "BYTES", default_value = "0", value_parser = parse_size)]
    pub offset: u64,
    /// Print one JSON object instead of tables
    #[arg(long)]
    pub json: bool,
    /// Draw ratio against decode speed of all files together into this file, an SVG
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub plot: Option<PathBuf>,
}

/// Arguments of `fields recode`.
#[derive(Debug, Args)]
#[command(
    after_help = "Example: `setfattr -n user.forebay.codec -v field,f32 run/t.nc; forebay fields recode run/t.nc`. A change of the \
        attribute alone is for what is written after it. Of a directory all files below it are taken, links are not followed. Files may be \
        read and written meanwhile. It works whatever the setting codec_when says, and may be stopped at any time: what is done stays.\n\n\
        Exit codes: 0 done, 1 a file could not be encoded again, 2 wrong usage, such as a path that is on no mount."
)]
pub struct FieldsRecodeArgs {
    /// Files on a Forebay mount, or directories
    #[arg(required = true, value_name = "PATH", value_hint = ValueHint::AnyPath)]
    pub paths: Vec<PathBuf>,
    /// Print one JSON object a file instead of text
    #[arg(long)]
    pub json: bool,
}

/// A type of numbers, or none said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum NumberType {
    /// Guessed from the content
    Auto,
    /// IEEE 754 binary32
    F32,
    /// IEEE 754 binary64
    F64,
    /// bfloat16
    Bf16,
    /// IEEE 754 binary16
    F16,
}

impl NumberType {
    /// The type, if one is said.
    pub fn element(self) -> Option<ElementType> {
        match self {
            NumberType::Auto => None,
            NumberType::F32 => Some(ElementType::F32),
            NumberType::F64 => Some(ElementType::F64),
            NumberType::Bf16 => Some(ElementType::Bf16),
            NumberType::F16 => Some(ElementType::F16),
        }
    }
}
