//! The arguments of `forebay trace` and its subcommands.
use crate::settings::SettingArgs;
use clap::{Args, Subcommand, ValueHint};
use forebay_node::units::parse_duration;
use forebay_trace::replay::Delays;
use std::path::PathBuf;
use std::time::Duration;

/// The subcommands of `trace`.
#[derive(Debug, Subcommand)]
pub enum TraceCommand {
    /// Make the trace of a known workload
    Gen(GenArgs),
    /// Run a command and record every operation on Forebay mounts meanwhile
    Record(RecordArgs),
    /// Do what a trace did, with derived content, and verify every byte that is read
    Replay(ReplayArgs),
    /// Describe a trace: ranks, files, sizes, strides
    Stats(StatsArgs),
    /// Draw which bytes each rank touched, and when
    Plot(PlotArgs),
    /// Write a trace in Forebay's format, or as CSV
    Convert(ConvertArgs),
}

/// Arguments of `trace plot`.
#[derive(Debug, Args)]
#[command(
    after_help = "A panel for the reads and one for the writes of each file, those with most bytes first; a mark for each call, from its \
        start to its end and over the bytes it touched, in the colour of its rank.\n\n\
        An HTML page holds the data and needs nothing else: the wheel zooms at the pointer (over an axis, that axis), dragging moves, \
        dragging with Shift zooms to a box, a double click shows everything, and the pointer over a call says what it is."
)]
pub struct PlotArgs {
    /// A trace in Forebay's format, or CSV
    #[arg(value_name = "TRACE", value_hint = ValueHint::FilePath)]
    pub trace: PathBuf,
    /// What to write, by its ending: .svg, .png or .html; may be given several times [default: TRACE.html]
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub output: Vec<PathBuf>,
    /// Only files with this path, or whose path ends with it behind a slash, or with this number
    #[arg(long, value_name = "PATH")]
    pub file: Option<String>,
    /// Only reads or only writes
    #[arg(long, value_enum, value_name = "KIND")]
    pub kind: Option<KindArg>,
    /// Only these ranks: one, or FIRST-LAST
    #[arg(long, value_name = "RANKS", value_parser = parse_ranks)]
    pub ranks: Option<std::ops::RangeInclusive<u32>>,
    /// What runs from left to right: time, or the number of the rank's call on the file
    #[arg(long, value_enum, value_name = "AXIS", default_value_t = XArg::Time)]
    pub x: XArg,
}

/// Reads or writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum KindArg {
    /// Only reads
    Read,
    /// Only writes
    Write,
}

/// The horizontal axis of a plot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum XArg {
    /// Time since the first call shown
    Time,
    /// The rank's calls, one after the other
    Calls,
}

/// `3` or `0-7`.
fn parse_ranks(text: &str) -> Result<std::ops::RangeInclusive<u32>, String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (first.trim().parse(), last.trim().parse()) {
        (Ok(first), Ok(last)) if first <= last => Ok(first..=last),
        _ => Err(format!("'{text}' names no ranks; write 3 or 0-7")),
    }
}

/// Arguments of `trace record`.
#[derive(Debug, Args)]
#[command(
    after_help = "The exit code is the command's. Everything that goes through the mounts is recorded, whoever does it. Each process \
        is a rank, numbered as its MPI or Slurm launcher did, if there is one.\n\n\
        While the recording runs, files that are opened bypass the kernel's page cache, and names and attributes are asked for each \
        time: so the trace has the calls as programs make them (those above 1 MiB in pieces). With --cached the kernel works as ever, and \
        the trace has what it asks for: less work, but no reads that it answers itself."
)]
pub struct RecordArgs {
    /// Mount points or stores to record [default: every service of this user mounted on this machine]
    #[arg(long = "mount", value_name = "MOUNTPOINT|STORE", value_hint = ValueHint::DirPath)]
    pub mounts: Vec<PathBuf>,
    /// Where to write the trace; as CSV if it ends in .csv [default: CMD.trace, if there is none]
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub output: Option<PathBuf>,
    /// Each thread is a rank, instead of each process
    #[arg(long)]
    pub threads: bool,
    /// Leave the kernel its caches, and record what still reaches the mount
    #[arg(long)]
    pub cached: bool,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    pub command: Vec<std::ffi::OsString>,
}

/// Arguments of `trace convert`.
#[derive(Debug, Args)]
#[command(
    after_help = "A CSV gets a table of file names beside it, NAME.files.csv. Of a trace that was cut off, what is whole is kept."
)]
pub struct ConvertArgs {
    /// A trace in Forebay's format, or CSV
    #[arg(value_name = "FROM", value_hint = ValueHint::FilePath)]
    pub from: PathBuf,
    /// The file to write; as CSV if it ends in .csv
    #[arg(value_name = "TO", value_hint = ValueHint::FilePath)]
    pub to: PathBuf,
}

/// Arguments of `trace gen`.
#[derive(Debug, Args)]
pub struct GenArgs {
    /// The workload; `forebay trace gen list` names all
    pub kind: String,
    /// Parameters as NAME=VALUE; sizes may be written like 64KiB
    #[arg(value_name = "NAME=VALUE")]
    pub params: Vec<String>,
    /// Where to write the trace [default: standard output]
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub output: Option<PathBuf>,
}

/// Arguments of `trace stats`.
#[derive(Debug, Args)]
pub struct StatsArgs {
    /// A trace in Forebay's format, or a Darshan DXT export (CSV)
    #[arg(value_hint = ValueHint::FilePath)]
    pub file: PathBuf,
    /// Print one JSON object instead of a table
    #[arg(long)]
    pub json: bool,
}

/// `none`, `recorded`, `recorded/SPEED`, or a time.
fn parse_delays(text: &str) -> Result<Delays, String> {
    let wrong = || {
        format!(
            "'{text}' is no delay; write none, recorded, recorded/2, or a time like 200us or 5ms"
        )
    };
    match text.split_once('/') {
        _ if text == "none" => Ok(Delays::None),
        _ if text == "recorded" => Ok(Delays::Recorded { speed: 1.0 }),
        Some(("recorded", speed)) => match speed.parse() {
            Ok(speed) if speed > 0.0 && f64::is_finite(speed) => Ok(Delays::Recorded { speed }),
            _ => Err(wrong()),
        },
        Some(_) => Err(wrong()),
        None => match text.strip_suffix("us").map(str::parse) {
            Some(Ok(micros)) => Ok(Delays::Fixed(Duration::from_micros(micros))),
            Some(Err(_)) => Err(wrong()),
            None => parse_duration(text).map(Delays::Fixed).map_err(|_| wrong()),
        },
    }
}

/// Arguments of `trace replay`.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("target").required(true).args(["mounts", "store"]))]
pub struct ReplayArgs {
    /// A trace in Forebay's format, or a Darshan DXT export (CSV)
    #[arg(value_hint = ValueHint::FilePath)]
    pub file: PathBuf,
    /// Replay in these directories; rank R uses the R-th, round and round
    #[arg(long, value_name = "DIR,DIR..", value_delimiter = ',', value_hint = ValueHint::DirPath)]
    pub mounts: Vec<PathBuf>,
    /// Start a service on this store for the replay, and stop it at the end
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub store: Option<PathBuf>,
    /// What ranks do between calls: none; recorded (what the trace says they computed), recorded/4 (four times as fast); or a time
    #[arg(long, value_name = "none|recorded|TIME", default_value = "none", value_parser = parse_delays)]
    pub delays: Delays,
    /// Threads that make calls when there are no delays; a rank stays on one [default: 4]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub threads: Option<u32>,
    /// Do not read everything once more at the end
    #[arg(long)]
    pub no_check: bool,
    /// With --store: through the client library, without mounts
    #[arg(long, requires = "store", conflicts_with = "mounts")]
    pub library: bool,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub json: bool,
    /// Settings of the service
    #[command(flatten)]
    pub settings: SettingArgs,
}
