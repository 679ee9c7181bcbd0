//! Checkpoints of `torch.distributed.checkpoint`: saved by four ranks, loaded by other numbers of them.
//!
//! # Subjects
//! - `forebay`: `forebay.torch` over the link, all ranks in one file. `forebay-mount`: torch's own writer and reader on the mount of the same
//!   service. `filesystem`: the same on the disk.
//!
//! # Metrics
//! - `save_bytes_per_s`: until every rank is told that the checkpoint is there, and its bytes are on disk. `load_bytes_per_s`: until every rank
//!   has its part. Bytes are those of the tensors, once.
//! - `files`: of the checkpoint.
//!
//! In a run each subject in turn, another one first each time, in one job of ranks: no subject pays for starting Python.

use crate::fail::{Context, Failure, Result};
use crate::harness::{Case, DirArgs, RunArgs, by_name, program_output};
use crate::report::Report;
use crate::sizes;
use crate::subjects::{ForebayOptions, ProgramArgs, Subject, SubjectKind};
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What `dcp` does.
#[derive(Debug, clap::Args)]
pub struct DcpArgs {
    #[command(flatten)]
    run: RunArgs,
    /// Only these subjects: forebay, forebay-mount, filesystem
    #[arg(long = "subject", value_name = "SUBJECT", value_delimiter = ',')]
    subjects: Vec<String>,
    /// Bytes of a checkpoint
    #[arg(long, default_value = "1GiB", value_parser = sizes::parse)]
    size: u64,
    /// A Python with torch and the package forebay (`scripts/python.sh bench` makes one)
    #[arg(long, default_value = "target/python/torch/bin/python")]
    python: PathBuf,
    #[command(flatten)]
    program: ProgramArgs,
    /// Durability of Forebay; what is saved is on disk with each
    #[arg(long, default_value = "process")]
    durability: String,
    #[command(flatten)]
    dir: DirArgs,
}

/// What ranks do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RankWork {
    Save,
    Load,
}

/// Ranks that save.
const SAVERS: u32 = 4;

/// What is done, and by how many ranks.
const CASES: [Case<(RankWork, u32)>; 5] = [
    Case::new("save-4", (RankWork::Save, SAVERS)),
    Case::new("load-1", (RankWork::Load, 1)),
    Case::new("load-2", (RankWork::Load, 2)),
    Case::new("load-3", (RankWork::Load, 3)),
    Case::new("load-6", (RankWork::Load, 6)),
];

const SUBJECTS: [&str; 3] = ["forebay", "forebay-mount", "filesystem"];

/// A line of rank 0.
#[derive(Debug, Deserialize)]
struct RunLine {
    subject: String,
    seconds: f64,
    files: u64,
}

/// Runs the subcommand.
///
/// # Errors
/// If the service or torch cannot be started, or what is loaded is not what was saved.
pub fn run(args: &DcpArgs) -> Result<()> {
    let Some(cases) = args.run.choose(&CASES, "")? else {
        return Ok(());
    };
    let hint = format!("there are {}", SUBJECTS.join(", "));
    let chosen = by_name("subject", &SUBJECTS, |s| s, &args.subjects, &hint)?;
    let work = args.dir.make()?;
    let options = ForebayOptions {
        program: args.program.find()?,
        nodes: 1,
        durability: args.durability.clone(),
    };
    let service = Subject::start(SubjectKind::Forebay, &work.0, &options)?;
    let disk = work.0.join("filesystem");
    std::fs::create_dir_all(&disk).doing(disk.display())?;
    let mount = service.mounts.first();
    let mount = mount.ok_or_else(|| Failure::new("the service has no mount"))?;
    let place = |subject: &str| match subject {
        "forebay" => PathBuf::from("/forebay"),
        "forebay-mount" => mount.join("mount"),
        _ => disk.clone(),
    };
    let job = RankJobs {
        args,
        store: &service.below,
        places: chosen.iter().map(|s| (*s, place(s))).collect(),
    };
    args.run.begin(&header(args, &work.0), &Report::head())?;
    let mut report = Report::new("dcp", "filesystem");
    // Loads need what a save leaves, so there is one, measured or not.
    let saves = cases.iter().any(|c| c.work.0 == RankWork::Save);
    let saved = job.run(
        RankWork::Save,
        SAVERS,
        if saves { args.run.runs } else { 0 },
    )?;
    for Case {
        name,
        work: (what, ranks),
        ..
    } in cases
    {
        let lines = match what {
            RankWork::Save => &saved,
            RankWork::Load => &job.run(what, ranks, args.run.runs)?,
        };
        let metric = match what {
            RankWork::Save => "save_bytes_per_s",
            RankWork::Load => "load_bytes_per_s",
        };
        for line in lines {
            let known = SUBJECTS.iter().find(|s| **s == line.subject);
            let subject = *known.ok_or_else(|| Failure::new("a rank names no subject"))?;
            report.add(
                name,
                metric,
                subject,
                "B/s",
                args.size as f64 / line.seconds,
            );
            report.add(name, "files", subject, "", line.files as f64);
        }
        args.run.print(&report, name, Report::table)?;
    }
    Ok(())
}

fn header(args: &DcpArgs, dir: &Path) -> String {
    format!(
        "# dcp: {} runs, {} of float32 in 16 tensors, in {}; ranks on this machine, gloo over loopback\n\
         # durability: the bytes of a checkpoint are on disk before it is there (fsync of each file; forebay: {}, and a commit by each rank)\n\
         # memory: the kernel's page cache for all; forebay's server besides, its default budget\n\
         # reads: warm, what was saved before is in the page cache if it fits\n\
         # ratio: median against filesystem's\n",
        args.run.runs,
        sizes::show(args.size as f64),
        dir.display(),
        args.durability,
    )
}

/// Jobs of ranks on the same places.
struct RankJobs<'a> {
    args: &'a DcpArgs,
    store: &'a Path,
    places: Vec<(&'static str, PathBuf)>,
}

impl RankJobs<'_> {
    /// Runs one; what rank 0 said.
    fn run(&self, what: RankWork, ranks: u32, runs: u32) -> Result<Vec<RunLine>> {
        let places: serde_json::Map<String, serde_json::Value> = self
            .places
            .iter()
            .map(|(subject, place)| (subject.to_string(), place.display().to_string().into()))
            .collect();
        let job = serde_json::json!({
            "mode": match what { RankWork::Save => "save", RankWork::Load => "load" },
            "runs": runs,
            "bytes": self.args.size,
            "store": self.store,
            "places": places,
        });
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/dcp/rank.py");
        let mut command = Command::new(&self.args.python);
        command
            .args(["-m", "torch.distributed.run", "--nnodes=1"])
            .arg(format!("--nproc-per-node={ranks}"))
            .args([
                "--master-addr=127.0.0.1",
                &format!("--master-port={}", free_port()?),
            ])
            .arg(source)
            .arg(job.to_string())
            .env("GLOO_SOCKET_IFNAME", "lo")
            .env("OMP_NUM_THREADS", "1");
        let said = program_output(&mut command)?;
        parse(&said)
    }
}

fn parse(said: &str) -> Result<Vec<RunLine>> {
    let lines = said.lines().filter(|line| line.starts_with('{'));
    lines
        .map(|line| serde_json::from_str(line).doing("a line of a rank"))
        .collect()
}

/// A port of the loopback that nobody has.
fn free_port() -> Result<u16> {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).doing("a port")?;
    Ok(listener.local_addr().doing("a port")?.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_rank_0_are_found_among_others() {
        let said = "W1127 a word of torch\n{\"subject\":\"forebay\",\"seconds\":0.5,\"files\":2}\n";
        let lines = parse(said).unwrap();
        assert_eq!((lines.len(), lines[0].files), (1, 2));
        assert!((lines[0].seconds - 0.5).abs() < f64::EPSILON);
        assert!(parse("{\"subject\":1}").is_err());
    }
}
