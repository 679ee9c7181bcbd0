//! A checkpoint as FS-TEST writes it: N processes, one file, 4 KiB at a time in turn; then read by as many, and by half as
//! many. The pieces of MPI-Tile-IO and BTIO are written and read in the same way.
//!
//! # Subjects
//! - `forebay`: as it is. `patterns-off`: the same with the setting `patterns = off`, so every write is a record of the index.
//!
//! # Metrics
//! - `write_open_s`, `write_bytes_per_s` (from the first write until all is published), `write_close_s`.
//! - `read_open_s`: until every process has the file open and knows where its first bytes are; `read_bytes_per_s` then.
//!   `nonuniform_...`: the same with half as many processes as wrote.
//! - `resolve_s`: one process of a service just started opens the file and finds out where each piece of it is.
//! - `index_disk_bytes`: records of patterns, and table files of the extent index. `index_memory_bytes`: what the node of that
//!   process holds of the file afterwards; all processes of a node share it.
//!
//! Cases without data do all that except moving bytes: extents name log addresses that hold nothing, reads stop once it is
//! known where their bytes are, and "bytes" are those that would be moved.

mod cases;
mod job;

use crate::cache::CacheDropping;
use crate::fail::{Context, Result};
use crate::harness::{DirArgs, RunArgs, by_name, in_turn};
use crate::report::Report;
use crate::sizes;
use cases::SIZE;
use forebay_server::Config;
use forebay_storage::Durability;
use job::CheckpointRun;
use std::fmt::Write as _;
use std::path::Path;

/// What `checkpoint` does.
#[derive(Debug, clap::Args)]
pub struct CheckpointArgs {
    #[command(flatten)]
    run: RunArgs,
    /// Only these subjects: forebay, patterns-off
    #[arg(long = "subject", value_name = "SUBJECT", value_delimiter = ',')]
    subjects: Vec<String>,
    /// Nodes of the service, all in this process
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..))]
    nodes: u16,
    /// Durability of both subjects: none, process, disk
    #[arg(long, default_value = "process", value_parser = durability)]
    durability: Durability,
    #[command(flatten)]
    dir: DirArgs,
}

fn durability(text: &str) -> std::result::Result<Durability, String> {
    match text {
        "none" => Ok(Durability::None),
        "process" => Ok(Durability::Process),
        "disk" => Ok(Durability::Disk),
        _ => Err(format!("'{text}' is none of none, process, disk")),
    }
}

/// Name, and whether patterns are on.
const SUBJECTS: [(&str, bool); 2] = [("forebay", true), ("patterns-off", false)];

/// Runs the subcommand.
///
/// # Errors
/// If there is no such case or subject, or a service fails or answers wrongly.
pub fn run(args: &CheckpointArgs) -> Result<()> {
    let Some(chosen) = args.run.choose(cases::CASES, "")? else {
        return Ok(());
    };
    let hint = format!("there are {}", SUBJECTS.map(|s| s.0).join(", "));
    let subjects = by_name("subject", &SUBJECTS, |s| s.0, &args.subjects, &hint)?;
    let dir = args.dir.make()?;
    let cold = CacheDropping::Advised;
    let header = header(args, &dir.0);
    args.run.begin(&header, HEAD)?;
    let mut report = Report::new("checkpoint", "patterns-off");
    for case in chosen {
        for round in 0..args.run.runs {
            for (name, patterns) in in_turn(&subjects, round) {
                args.run.progress(&format!("{} {name}", case.name), round);
                let job = CheckpointRun {
                    work: (case.work.workload)(),
                    data: case.work.data,
                    config: config(args, patterns),
                    dir: &dir.0.join("run"),
                    cold,
                };
                let found = job.run().doing(format!("{} on {name}", case.name))?;
                report.add_all(case.name, name, found);
            }
        }
        args.run.print(&report, case.name, rows)?;
    }
    Ok(())
}

/// Both subjects have the same, but for patterns.
fn config(args: &CheckpointArgs, patterns: bool) -> Config {
    Config {
        nodes: args.nodes,
        durability: args.durability,
        patterns,
        ..Config::default()
    }
}

fn header(args: &CheckpointArgs, dir: &Path) -> String {
    let config = config(args, true);
    format!(
        "# checkpoint: {} runs, writes and reads of {SIZE} bytes but in BTIO, processes dealt out to {} nodes in one process, a thread a node; in {}\n\
         # durability: {:?} for both; memory: {} a node for both; patterns are the only difference\n\
         # write_bytes_per_s: until all is published; reads: services started anew, files {}\n\
         # 512 writers, tile-io, btio: metadata only; each writer of a node after another, reads end when it is known where their bytes are\n",
        args.run.runs,
        args.nodes,
        dir.display(),
        args.durability,
        sizes::show(config.memory as f64),
        "synced, and their pages dropped by posix_fadvise",
    )
}

const HEAD: &str =
    "case                 metric                          forebay    patterns-off     ratio\n";

fn rows(report: &Report, case: &str) -> String {
    let mut out = String::new();
    for (metric, unit) in report.metrics(case) {
        let median = |subject| report.median(case, metric, subject);
        let show = |subject| median(subject).map_or("-".into(), |v| show(unit, v));
        let ratio = match (median("forebay"), median("patterns-off")) {
            (Some(a), Some(b)) if b > 0.0 => format!("{:.3}x", a / b),
            _ => "-".into(),
        };
        let _ = writeln!(
            out,
            "{case:<20} {metric:<23} {:>15} {:>15} {ratio:>9}",
            show("forebay"),
            show("patterns-off"),
        );
    }
    out
}

fn show(unit: &str, value: f64) -> String {
    match unit {
        "s" => format!("{value:.4} s"),
        "B/s" => format!("{}/s", sizes::show(value)),
        _ => sizes::show(value),
    }
}
