//! `forebay-bench`: Forebay measured against its peers, both sides in one run.
//!
//! `mount` compares four subjects: the plain disk, a minimal pass-through file system without and with the kernel's writeback
//! cache, and Forebay; `clients` compares the link with the mount; `stage` compares `forebay stage out` with `cp`; `ring` compares collective algorithms (many servers ask
//! one), measured and simulated; `index` compares the extent index with LevelDB and RocksDB; `pattern` compares indexes of the
//! same extents; `prefetch` compares ways to fetch what will be read; `checkpoint` compares patterns with records for every
//! write; `dedup` compares what is stored of chains of checkpoints with borg and restic; `fields` compares codecs of
//! floating-point arrays. What a benchmark measures is a *subject*; each of its inputs is a *case*. Standard output is a table, or
//! with `--json` one object a line; what a person should know beside goes to standard error.

mod access;
mod cache;
mod cases;
mod checkpoint;
mod clients;
mod cpu;
mod dcp;
mod dedup;
mod fail;
mod fields;
mod figures;
mod harness;
mod index;
mod job;
mod loggp;
mod mount;
mod passthrough;
mod pattern;
mod prefetch;
mod process_group;
mod report;
mod ring;
mod sizes;
mod source_tree;
mod stage;
mod subjects;

use clap::{Args, Parser, Subcommand};
use harness::{DirArgs, RunArgs};
use std::path::PathBuf;
use std::process::ExitCode;
use subjects::ProgramArgs;

/// Measures Forebay against its peers.
#[derive(Debug, Parser)]
#[command(name = "forebay-bench", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Files through the mount, against the plain disk and a minimal pass-through file system, without and with the writeback cache
    Mount(MountArgs),
    /// The ways of a program to its files: the link against the mount and the plain disk, with one and with four processes
    Clients(ClientsArgs),
    /// `forebay stage out` against `cp -a` and `sync` of the same data from the same disk
    Stage(StageArgs),
    /// Many servers that ask one the same thing at once: log-ring, direct, each client by itself, and the best tree there is
    Ring(ring::RingArgs),
    /// Draw the paper's figures from what the benchmarks wrote with --json
    Figures(figures::FiguresArgs),
    /// The extent index against LevelDB and RocksDB: puts and batched gets of strided, tiled and BTIO records
    Index(index::IndexArgs),
    /// One subject of the benchmark `index`
    #[command(name = "__index", hide = true)]
    IndexChild { job: String },
    /// Patterns: bytes of an index, speed of finding them, time of a lookup; against the published algorithm, raw entries and zstd
    Pattern(pattern::PatternArgs),
    /// Reads fetched before they are asked for: patterns against none, readahead, Markov chains, and perfect knowledge
    Prefetch(prefetch::PrefetchArgs),
    /// A checkpoint of many processes in one file, with patterns and without: write, read, index on disk and in memory
    Checkpoint(checkpoint::CheckpointArgs),
    /// Chains of checkpoints, settled, against borg and restic: what is stored of them, how fast, and read back
    Dedup(dedup::DedupArgs),
    /// Arrays of floating-point numbers: how small codecs make them, how fast, and how long one value takes
    Fields(fields::FieldsArgs),
    /// Checkpoints of PyTorch: over the link, through the mount, on the disk; saved by four ranks, loaded by 1, 2, 3 and 6
    Dcp(dcp::DcpArgs),
    /// One rank of the benchmark `ring` under `mpirun`
    #[cfg(feature = "mpi")]
    #[command(name = "__ring-rank", hide = true)]
    RingRank(ring::RingLoad),
    /// Serve a pass-through mount until standard input ends
    #[command(name = "__passthrough", hide = true)]
    Passthrough {
        /// The kernel may hold written pages back
        #[arg(long)]
        writeback: bool,
        source: PathBuf,
        point: PathBuf,
    },
    /// One measured process
    #[command(name = "__worker", hide = true)]
    Worker { job: String },
}

/// What `mount` does.
#[derive(Debug, Args)]
pub struct MountArgs {
    #[command(flatten)]
    run: RunArgs,
    /// Only these subjects: disk, passthrough, passthrough-writeback, forebay; patterns-off is Forebay without patterns
    #[arg(long = "subject", value_name = "SUBJECT")]
    subjects: Vec<String>,
    /// Bytes of a case with 1 MiB records; small records use a quarter
    #[arg(long, default_value = "256MiB", value_parser = sizes::parse)]
    size: u64,
    /// Files of a case that counts operations
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u64).range(1..))]
    files: u64,
    /// Files of the case `source-tree`
    #[arg(long, default_value_t = 15_000, value_parser = clap::value_parser!(u64).range(1..))]
    tree_files: u64,
    #[command(flatten)]
    dir: DirArgs,
    #[command(flatten)]
    program: ProgramArgs,
    /// Node servers of Forebay, but in cases whose names end with a number of nodes; from 2 on, the second reads what the first
    /// wrote; with 1, ratios are against passthrough-writeback
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..))]
    nodes: u16,
    /// Durability of Forebay: the others are always as `process`
    #[arg(long, default_value = "process")]
    durability: String,
}

/// What `clients` does.
#[derive(Debug, Args)]
pub struct ClientsArgs {
    #[command(flatten)]
    run: RunArgs,
    /// Only these subjects: disk, mount, link, or NAME=PROGRAM for a program that is given a job and the store as `__worker` is
    #[arg(long = "subject", value_name = "SUBJECT")]
    subjects: Vec<String>,
    /// Bytes of a case with 1 MiB records; small records use a quarter
    #[arg(long, default_value = "256MiB", value_parser = sizes::parse)]
    size: u64,
    /// Files of a case that counts operations
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u64).range(1..))]
    files: u64,
    #[command(flatten)]
    dir: DirArgs,
    #[command(flatten)]
    program: ProgramArgs,
    /// Node servers of Forebay; all processes use the first. With 1 the kernel may hold written pages of the mount back
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..))]
    nodes: u16,
}

/// What `stage` does.
#[derive(Debug, Args)]
pub struct StageArgs {
    #[command(flatten)]
    run: RunArgs,
    /// Small files, of 8 to 13 KB each
    #[arg(long, default_value_t = 2000)]
    files: u64,
    /// Bytes of the large file
    #[arg(long, default_value = "512MiB", value_parser = sizes::parse)]
    size: u64,
    #[command(flatten)]
    dir: DirArgs,
    #[command(flatten)]
    program: ProgramArgs,
}

fn main() -> ExitCode {
    let done = match Cli::parse().verb {
        Verb::Mount(args) => mount::run(&args),
        Verb::Clients(args) => clients::run(&args),
        Verb::Stage(args) => stage::run(&args),
        Verb::Ring(args) => ring::run(&args),
        Verb::Figures(args) => figures::run(&args),
        Verb::Index(args) => index::run(&args),
        Verb::IndexChild { job } => index::child(&job),
        Verb::Pattern(args) => pattern::run(&args),
        Verb::Prefetch(args) => prefetch::run(&args),
        Verb::Checkpoint(args) => checkpoint::run(&args),
        Verb::Dedup(args) => dedup::run(&args),
        Verb::Fields(args) => fields::run(&args),
        Verb::Dcp(args) => dcp::run(&args),
        #[cfg(feature = "mpi")]
        Verb::RingRank(work) => ring::rank(&work),
        Verb::Passthrough {
            writeback,
            source,
            point,
        } => passthrough::serve(&source, &point, writeback),
        Verb::Worker { job } => job::work(&job),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("forebay-bench: {e}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, Parser as _};

    /// `ring` has rounds inside a run; a run of `index` may be called a round.
    #[test]
    fn no_two_flags_of_a_verb_have_one_name() {
        super::Cli::command().debug_assert();
        for flags in [
            ["ring", "--runs", "3", "--rounds", "10"].as_slice(),
            &["index", "--rounds", "3"],
        ] {
            let words = ["forebay-bench"].iter().chain(flags);
            assert!(super::Cli::try_parse_from(words).is_ok(), "{flags:?}");
        }
    }
}
