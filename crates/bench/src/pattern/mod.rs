//! How small an index becomes, how fast patterns are found, and how fast an offset is found in them.
//!
//! # Subjects
//! - `forebay`: our patterns. `published`: the algorithm of Pattern PLFS, its entries written as varints, which is less than its
//!   library writes. `raw`: entries of 48 bytes. `zstd`: the raw entries of each log, compressed at level 3.
//!
//! # Metrics
//! - `encoded_bytes`: what the logs commit; `merged_bytes`: after merging all logs of a file; `memory_bytes`: what a reader holds.
//! - `discover_per_s`: extents a second on one core, until there is something to encode (zstd: until it is encoded).
//! - `lookup_ns`: one offset in the merged index, at random among the extents, of all files. zstd must decompress first: none.
//! - `resolve_ns`: one piece when all are gone through in order, in portions, until the end or for a second.

mod cases;
mod published;
mod subjects;
#[cfg(test)]
mod tests;

use crate::fail::Result;
use crate::harness::RunArgs;
use crate::report::Report;
use std::fmt::Write as _;
use std::path::PathBuf;
use subjects::SUBJECTS;

/// What `pattern` does.
#[derive(Debug, clap::Args)]
pub struct PatternArgs {
    #[command(flatten)]
    run: RunArgs,
    /// Directory of traces (CSV exports of Darshan DXT): each is two cases, its reads and its writes
    #[arg(long, value_name = "DIR")]
    traces: Option<PathBuf>,
}

/// Runs the subcommand.
///
/// # Errors
/// If there is no such case, or a trace cannot be read.
pub fn run(args: &PatternArgs) -> Result<()> {
    let all = cases::all(args.traces.as_deref())?;
    let hint = ", --traces DIR adds those of traces";
    let Some(chosen) = args.run.choose(&all, hint)? else {
        return Ok(());
    };
    let header = format!(
        "# pattern: {} runs; one core; everything in memory, nothing is stored, so durability and caches are the same for all\n\
         # forebay and published write varints, forebay with checksum, version and commit; raw: 48 bytes an extent; zstd: level 3 of raw\n",
        args.run.runs
    );
    args.run.begin(&header, HEAD)?;
    let mut report = Report::new("pattern", "published");
    for case in chosen {
        let Some(files) = case.work.load()? else {
            continue;
        };
        for _ in 0..args.run.runs {
            for (subject, measure) in SUBJECTS {
                report.add_all(case.name, subject, measure(&files)?);
            }
        }
        args.run.print(&report, case.name, rows)?;
    }
    Ok(())
}

const HEAD: &str = "case                               subject          encoded        merged        memory  M extents/s     lookup ns   piece ns\n";

fn rows(report: &Report, case: &str) -> String {
    let mut out = String::new();
    for (subject, _) in SUBJECTS {
        let show = |metric: &str, scale: f64, digits: usize| {
            let found = report.median(case, metric, subject);
            found.map_or("-".into(), |n| format!("{:.digits$}", n / scale))
        };
        let _ = writeln!(
            out,
            "{case:<34} {:<10} {:>13} {:>13} {:>13} {:>12} {:>13} {:>10}",
            subject,
            show("encoded_bytes", 1.0, 0),
            show("merged_bytes", 1.0, 0),
            show("memory_bytes", 1.0, 0),
            show("discover_per_s", 1e6, 2),
            show("lookup_ns", 1.0, 0),
            show("resolve_ns", 1.0, 1),
        );
    }
    out
}
