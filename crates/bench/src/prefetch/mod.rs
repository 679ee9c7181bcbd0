//! Reads fetched before they are asked for: a replay of traces through the library, all ways to prefetch in one run.
//!
//! # Subjects
//! - `forebay`: by patterns, the default. `none`, `readahead` (as kernels do), `markov` (8 KiB blocks; after a first run that is not
//!   measured, as it needs one), `perfect` (knows all requests beforehand).
//!
//! # Metrics
//! - `io_time_s`: time that all ranks spent in reads, added up. `read_p99_s`: 99 of 100 reads took at most so long.
//! - `fetched_bytes`: fetched ahead; `wasted_bytes`: of these, never read. `read_bytes`: what the ranks asked for.
//!
//! Two members of one service in this process, `--latency` apart; all data on the one, all readers on the other. Before each read a rank
//! sleeps for the mean time of an uncached read, which is measured first in each round. Bytes are checked outside the times.

mod cases;
mod replay;

use crate::fail::Result;
use crate::harness::{Case, DirArgs, RunArgs, in_turn};
use crate::report::Report;
use cases::{ReadWork, Reads};
use forebay_server::delegate::PrefetchPolicy;
use replay::ReplaySettings;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

/// What `prefetch` does.
#[derive(Debug, clap::Args)]
pub struct PrefetchArgs {
    #[command(flatten)]
    run: RunArgs,
    /// Injected between the two members, for each request and its answer; microseconds
    #[arg(long, default_value_t = 200, value_name = "US")]
    latency: u64,
    /// Most reads of each rank
    #[arg(long, value_name = "N", default_value_t = usize::MAX, hide_default_value = true)]
    calls: usize,
    /// Directory with the Darshan DXT export of openPMD
    #[arg(long, value_name = "DIR", default_value = "../shared/data/dxt")]
    traces: PathBuf,
    #[command(flatten)]
    dir: DirArgs,
}

const SUBJECTS: [(&str, PrefetchPolicy); 5] = [
    ("none", PrefetchPolicy::None),
    ("readahead", PrefetchPolicy::Readahead),
    ("markov", PrefetchPolicy::Markov),
    ("forebay", PrefetchPolicy::Pattern),
    ("perfect", PrefetchPolicy::Perfect),
];

/// Runs the subcommand.
///
/// # Errors
/// If there is no such case, or the service fails.
pub fn run(args: &PrefetchArgs) -> Result<()> {
    let Some(chosen) = args.run.choose(&cases::CASES, "")? else {
        return Ok(());
    };
    replay::sleep_exactly()?;
    let header = header(args, &chosen);
    args.run.begin(&header, HEAD)?;
    let mut report = Report::new("prefetch", "none");
    for case in chosen {
        let Some(reads) = case.work.load(&args.traces, args.calls)? else {
            eprintln!(
                "# {}: skipped, for its trace is not in {} (--traces)",
                case.name,
                args.traces.display()
            );
            continue;
        };
        measure(args, case.name, &reads, &mut report)?;
        args.run.print(&report, case.name, rows)?;
    }
    Ok(())
}

fn header(args: &PrefetchArgs, chosen: &[Case<ReadWork>]) -> String {
    let mut out = format!(
        "# prefetch: {} runs; two members in one process, {} us apart, readers on the one, data on the other; through the library\n\
         # all subjects: durability process, 192 MiB of memory (12 MiB for what is fetched ahead, none for `none`), segment files cold (sync, then posix_fadvise), \
         nothing else in memory\n# before each read a rank sleeps for the mean time of an uncached read, measured at the start of each round\n",
        args.run.runs, args.latency
    );
    for case in chosen {
        let _ = writeln!(out, "# {}: {}", case.name, case.work.about);
    }
    out
}

fn measure(
    args: &PrefetchArgs,
    case: &'static str,
    reads: &Reads,
    report: &mut Report,
) -> Result<()> {
    let dir = args.dir.make()?;
    let store = dir.0.join("store");
    replay::prepare(&store, reads)?;
    let settings = |policy, delay| ReplaySettings {
        policy,
        delay,
        latency: Duration::from_micros(args.latency),
    };
    for round in 0..args.run.runs {
        let uncached = replay::replay(
            &store,
            reads,
            settings(PrefetchPolicy::None, Duration::ZERO),
        )?;
        let delay = uncached.io_time() / uncached.times.len().max(1) as f64;
        let delay = Duration::from_secs_f64(delay);
        report.add(case, "delay_s", "none", "s", delay.as_secs_f64());
        // Nobody is always the first one after the uncached run.
        for (subject, policy) in in_turn(&SUBJECTS, round) {
            let mut found = replay::replay(&store, reads, settings(policy, delay))?;
            let values = vec![
                ("io_time_s", "s", found.io_time()),
                ("read_p99_s", "s", found.p99()),
                ("read_bytes", "B", found.bytes as f64),
                ("fetched_bytes", "B", found.ahead.fetched_bytes as f64),
                ("wasted_bytes", "B", found.wasted()),
            ];
            report.add_all(case, subject, values);
        }
    }
    Ok(())
}

const HEAD: &str = "case      subject        I/O time s            min - max       cut   of perfect     p99 us    fetched MB     wasted\n";

fn rows(report: &Report, case: &str) -> String {
    let number = |metric: &str, subject: &str| report.median(case, metric, subject).unwrap_or(0.0);
    let time = |subject: &str| number("io_time_s", subject);
    let gain = |subject: &str| time("none") - time(subject);
    let mut out = String::new();
    for (subject, _) in SUBJECTS {
        let Some(io) = report.spread(case, "io_time_s", subject) else {
            continue;
        };
        let number = |metric: &str| number(metric, subject);
        let read = number("read_bytes").max(1.0);
        let _ = writeln!(
            out,
            "{case:<9} {subject:<10} {:>14.3} {:>20} {:>8.1}% {:>11.1}% {:>10.0} {:>13.2} {:>9.2}%",
            io.median,
            format!("{:.3} - {:.3}", io.min, io.max),
            100.0 * gain(subject) / time("none"),
            100.0 * gain(subject) / gain("perfect"),
            1e6 * number("read_p99_s"),
            number("fetched_bytes") / 1e6,
            100.0 * number("wasted_bytes") / read,
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_says_what_is_cut_and_how_much_of_what_is_possible() {
        let mut report = Report::new("prefetch", "none");
        for (subject, time) in [("none", 10.0), ("forebay", 2.0), ("perfect", 0.0)] {
            report.add("pagoda", "io_time_s", subject, "s", time);
            report.add("pagoda", "read_bytes", subject, "B", 200.0);
            report.add("pagoda", "wasted_bytes", subject, "B", 1.0);
        }
        let text = rows(&report, "pagoda");
        let row = text.lines().find(|l| l.contains("forebay")).unwrap();
        assert!(
            row.matches("80.0%").count() == 2 && row.ends_with("0.50%"),
            "{text}"
        );
        assert_eq!(text.lines().count(), 3);
    }
}
