//! Chains of checkpoints that share most of their bytes: what is stored of them, at what speed and cost, and how fast they are
//! read. Forebay's settling against borg and restic.
//!
//! Invariants: all subjects get the same files in the same order, from the same disk, each file from the page cache. Each subject
//! starts with an empty store for each case and round. A file counts as stored once the subject promises that it survives a power
//! cut.
//!
//! | module | what it owns |
//! |---|---|
//! | `cases` | chains by name |
//! | `chain`, `source` | the bytes of a chain; its files |
//! | `subject` | subjects by name, and a running one |
//! | `service`, `status` | Forebay; its figures about settling |
//! | `peers`, `peer_output` | borg and restic; parsing their output |
//! | `round` | what is measured of a chain |
//! | `index` | the fingerprint index alone, without bytes |
//! | `table` | the table |
mod cases;
mod chain;
mod index;
mod peer_output;
mod peers;
mod round;
mod service;
mod source;
pub mod status;
mod subject;
mod table;

use crate::cache::CacheDropping;
use crate::fail::{Context, Result};
use crate::harness::{Case, DirArgs, RunArgs, in_turn};
use crate::report::Report;
use crate::sizes;
use crate::subjects::ProgramArgs;
use cases::{CASES, DedupWork};
use chain::ChainShape;
use round::ChainRound;
use service::ServiceOptions;
use source::SourceFiles;
use std::path::{Path, PathBuf};
use subject::{DedupSubject, SubjectKind};

/// What `dedup` does.
#[derive(Debug, clap::Args)]
pub struct DedupArgs {
    #[command(flatten)]
    run: RunArgs,
    /// Only these subjects: forebay, settle-off, borg-fixed, borg-buzhash, restic
    #[arg(long = "subject", value_name = "SUBJECT", value_delimiter = ',')]
    subjects: Vec<String>,
    /// Bytes of a checkpoint, without its header
    #[arg(long, default_value = "1GiB", value_parser = sizes::parse)]
    size: u64,
    /// What the bytes follow from
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    dir: DirArgs,
    #[command(flatten)]
    program: ProgramArgs,
}

/// Runs the subcommand.
///
/// # Errors
/// If there is no such case or subject, or a subject fails.
pub fn run(args: &DedupArgs) -> Result<()> {
    let Some(cases) = args.run.choose(CASES, "")? else {
        return Ok(());
    };
    let stores_files = |case: &Case<DedupWork>| matches!(case.work, DedupWork::Files(_));
    let files = cases.iter().any(stores_files);
    let options = service_options(args, files)?;
    let (subjects, left_out) = match files {
        true => subject::select(&args.subjects, &options)?,
        false => Default::default(),
    };
    let dir = args.dir.make()?;
    let cold = CacheDropping::choose();
    let mut names: Vec<&str> = subjects.iter().map(|s| s.name).collect();
    if !names.contains(&INDEX_SUBJECT) && cases.iter().any(|case| !stores_files(case)) {
        names.insert(0, INDEX_SUBJECT);
    }
    let header = header(args, &subjects, &left_out, cold, &dir.0);
    args.run.begin(&header, &table::head(&names))?;
    let mut report = Report::new("dedup", "settle-off");
    for case in cases {
        match case.work {
            DedupWork::Files(shape) => {
                let chain = ChainCase {
                    args,
                    name: case.name,
                    shape,
                    options: &options,
                    cold,
                };
                chain.run(&subjects, &dir.0, &mut report)?;
            }
            DedupWork::Index { chunks } => {
                for round in 0..args.run.runs {
                    args.run.progress(case.name, round);
                    let found = index::run(chunks, args.seed + u64::from(round));
                    report.add_all(case.name, INDEX_SUBJECT, found.doing(case.name)?);
                }
            }
        }
        args.run.print(&report, case.name, |report, case| {
            table::rows(report, case, &names)
        })?;
    }
    Ok(())
}

/// Whose the fingerprint index is.
const INDEX_SUBJECT: &str = "forebay";

/// How services are started, if one may be.
fn service_options(args: &DedupArgs, files: bool) -> Result<ServiceOptions> {
    let is_service = |kind| matches!(kind, SubjectKind::Service { .. });
    let services = subject::SUBJECTS.iter().filter(|s| is_service(s.kind));
    let wanted = |name: &str| args.subjects.is_empty() || args.subjects.iter().any(|s| s == name);
    if !files || !services.map(|s| s.name).any(wanted) {
        return Ok(ServiceOptions {
            program: PathBuf::new(),
            has_setting: false,
        });
    }
    let program = args.program.find()?;
    let has_setting = status::has_setting(&program)?;
    Ok(ServiceOptions {
        program,
        has_setting,
    })
}

/// A case that stores files.
struct ChainCase<'a> {
    args: &'a DedupArgs,
    name: &'static str,
    shape: ChainShape,
    options: &'a ServiceOptions,
    cold: CacheDropping,
}

impl ChainCase<'_> {
    fn run(&self, subjects: &[DedupSubject], dir: &Path, report: &mut Report) -> Result<()> {
        let made = dir.join("source");
        let source = SourceFiles::make(&made, self.shape, self.args.size, self.args.seed);
        let source = source.doing("the checkpoints")?;
        for round in 0..self.args.run.runs {
            for subject in in_turn(subjects, round) {
                let what = format!("{} on {}", self.name, subject.name);
                self.args.run.progress(&what, round);
                let one = ChainRound {
                    source: &source,
                    options: self.options,
                    cold: self.cold,
                    compare: round == 0,
                };
                let values = one.run(&subject, &dir.join(subject.name)).doing(what)?;
                report.add_all(self.name, subject.name, values);
            }
        }
        std::fs::remove_dir_all(&made).doing(made.display())
    }
}

fn header(
    args: &DedupArgs,
    subjects: &[DedupSubject],
    left_out: &[String],
    cold: CacheDropping,
    dir: &Path,
) -> String {
    let mut text = format!(
        "# dedup: {} runs, checkpoints of {}, seed {}, in {}\n\
         # durability: disk for all: a file counts once its bytes are synced (forebay: durability disk and fsync; borg, restic: sync their files)\n\
         # memory: the kernel's page cache for all; forebay's server besides, its default budget; borg and restic what they take\n\
         # writes: from files that are in memory, one checkpoint after the other; reads: {}; a new service or process, bytes thrown away\n\
         # stored: disk blocks of the store or repository, caches elsewhere not counted; settle_bytes_per_s: from the first write until stored as it stays\n\
         # index-64g: metadata only, {} of memory a TiB\n",
        args.run.runs,
        sizes::show(args.size as f64),
        args.seed,
        dir.display(),
        cold.text(),
        sizes::show(index::BYTES_PER_TIB as f64),
    );
    for subject in subjects {
        let (name, version, about) = (subject.name, subject.version(), subject.about);
        text.push_str(&format!("# {name}:{version} {about}\n"));
    }
    left_out
        .iter()
        .for_each(|line| text.push_str(&format!("# {line}\n")));
    text
}
