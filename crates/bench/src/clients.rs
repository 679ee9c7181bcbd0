//! Benchmark `clients`: the ways of a program to its files. All processes use one node; in a round every subject in turn, another one
//! first in each.
//!
//! Subjects beside `disk` work in one service, each in a directory of its own: `mount` through the kernel, `link` by the library, and any
//! further one by a program that is named. That gets the words of its command, and then a job in JSON, which says `dir` (from the
//! root of the service), `rank`, `of`, `task`, and in `link` the store; it prints `ready`, waits for a line, does its
//! task, and prints an outcome ([`crate::job`]).
use crate::ClientsArgs;
use crate::cache::CacheDropping;
use crate::cases::RecordLayout;
use crate::fail::{Context, Failure, Result};
use crate::harness::{Case, in_turn};
use crate::job::{Records, WorkerTask};
use crate::process_group::{WorkerProgram, run_program};
use crate::report::{Report, Values};
use crate::sizes;
use crate::subjects::{ForebayOptions, Subject, SubjectKind};
use std::fs::create_dir;
use std::path::{Path, PathBuf};

/// What the processes of a case do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClientsWork {
    /// Write, then read cold.
    Bytes(RecordLayout, u64),
    /// Create, stat and unlink in directories of their own.
    Files,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ProcessCase {
    processes: u64,
    work: ClientsWork,
}

const fn case(name: &'static str, processes: u64, work: ClientsWork) -> Case<ProcessCase> {
    Case::new(name, ProcessCase { processes, work })
}

const SEQUENTIAL: ClientsWork = ClientsWork::Bytes(RecordLayout::Own, 1 << 20);
const SHARED: ClientsWork = ClientsWork::Bytes(RecordLayout::Segments, 1 << 20);
const STRIDED: ClientsWork = ClientsWork::Bytes(RecordLayout::Strided, 4096);
const RANDOM: ClientsWork = ClientsWork::Bytes(RecordLayout::Random, 4096);

const CASES: &[Case<ProcessCase>] = &[
    case("seq-1m-1p", 1, SEQUENTIAL),
    case("seq-1m-4p", 4, SEQUENTIAL),
    case("shared-1m-1p", 1, SHARED),
    case("shared-1m-4p", 4, SHARED),
    case("strided-4k-1p", 1, STRIDED),
    case("strided-4k-4p", 4, STRIDED),
    case("random-4k-1p", 1, RANDOM),
    case("random-4k-4p", 4, RANDOM),
    case("files-1p", 1, ClientsWork::Files),
    case("files-4p", 4, ClientsWork::Files),
];

/// A way to files.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ClientKind {
    name: &'static str,
    /// The words of its command; none: this program.
    command: Vec<String>,
}

/// Those that are named, or the usual ones.
fn select(names: &[String]) -> Result<Vec<ClientKind>> {
    let usual = ["disk", "mount", "link"].map(String::from);
    let names = if names.is_empty() { &usual } else { names };
    let kind = |name: &String| {
        let (name, program) = name.split_once('=').unwrap_or((name, ""));
        let command: Vec<String> = program.split_whitespace().map(String::from).collect();
        if command.is_empty() && !usual.iter().any(|usual| usual == name) {
            return Err(Failure::new(format!(
                "no subject '{name}'; there are disk, mount, link, and NAME=PROGRAM for a program of your own"
            )));
        }
        let name = name.to_string().leak();
        Ok(ClientKind { name, command })
    };
    names.iter().map(kind).collect()
}

/// Runs the subcommand.
///
/// # Errors
/// If a subject cannot be started, or a case fails.
pub fn run(args: &ClientsArgs) -> Result<()> {
    let Some(cases) = args.run.choose(CASES, "")? else {
        return Ok(());
    };
    let kinds = select(&args.subjects)?;
    let forebay = ForebayOptions {
        program: args.program.find()?,
        nodes: args.nodes,
        durability: "process".into(),
    };
    let dir = args.dir.make()?;
    let cold = CacheDropping::choose();
    let home = dir.0.join("subjects");
    let subjects = SubjectsUnderTest {
        disk: Subject::start(SubjectKind::Disk, &home, &forebay)?,
        service: Subject::start(SubjectKind::Forebay, &home, &forebay)?,
        cold,
    };
    args.run
        .begin(&header(args, &dir.0, cold), &Report::head())?;
    let mut report = Report::new("clients", "mount");
    for case in &cases {
        for round in 0..args.run.runs {
            args.run.progress(case.name, round);
            for kind in in_turn(&kinds, round) {
                let what = format!("{} by {}", case.name, kind.name);
                let found = subjects.measure(args, case, &kind).doing(what)?;
                report.add_all(case.name, kind.name, found);
            }
        }
        args.run.print(&report, case.name, Report::table)?;
    }
    Ok(())
}

fn header(args: &ClientsArgs, dir: &Path, cold: CacheDropping) -> String {
    format!(
        "# clients: {} runs, {} a case (a quarter with small records), {} files, in {}\n\
         # durability: process for all subjects; write times end after fdatasync\n\
         # memory: the kernel's page cache; forebay's servers besides, their default budget on each of {} nodes; all clients use the first\n\
         # reads: {}\n\
         # ratio: speed against the mount's\n",
        args.run.runs,
        sizes::show(args.size as f64),
        args.files,
        dir.display(),
        args.nodes,
        cold.text(),
    )
}

/// Where the subjects work.
struct SubjectsUnderTest {
    disk: Subject,
    service: Subject,
    cold: CacheDropping,
}

impl SubjectsUnderTest {
    fn measure(
        &self,
        args: &ClientsArgs,
        case: &Case<ProcessCase>,
        kind: &ClientKind,
    ) -> Result<Values> {
        let name = format!("{}-{}", case.name, kind.name);
        let disk = kind.name == "disk";
        // As the kernel sees it, for what is not measured.
        let seen = match disk {
            true => self.disk.below.join(&name),
            false => self.service.mounts[0].join(&name),
        };
        create_dir(&seen).doing(seen.display())?;
        let by_kernel = disk || kind.name == "mount";
        let run = ClientRun {
            program: WorkerProgram {
                command: kind.command.iter().map(Into::into).collect(),
                link: (!by_kernel).then(|| self.service.below.clone()),
            },
            dir: match by_kernel {
                true => seen.clone(),
                false => Path::new("/").join(&name),
            },
            seen: seen.clone(),
            processes: case.work.processes,
        };
        let found = match case.work.work {
            ClientsWork::Bytes(layout, record) => {
                let small = if record < 1 << 20 && layout != RecordLayout::Random {
                    4
                } else {
                    1
                };
                let records = Records {
                    layout,
                    record,
                    bytes: args.size / small,
                };
                self.bytes(&run, records)
            }
            ClientsWork::Files => run.files(args.files),
        };
        std::fs::remove_dir_all(&seen).doing(seen.display())?;
        found
    }

    fn bytes(&self, run: &ClientRun, records: Records) -> Result<Values> {
        let mut found = Vec::new();
        match records.layout {
            // Only its reads are a case.
            RecordLayout::Random => {
                let written = Records {
                    layout: RecordLayout::Segments,
                    record: 1 << 20,
                    ..records
                };
                run.rate(&WorkerTask::Write(written))?;
            }
            _ => {
                let rate = run.rate(&WorkerTask::Write(records))?;
                found.push(("write_bytes_per_s", "B/s", rate));
            }
        }
        let places = [
            self.disk.below.as_path(),
            self.service.below.as_path(),
            &run.seen,
        ];
        self.cold.drop_caches(&places);
        let rate = run.rate(&WorkerTask::Read(records))?;
        found.push(("read_bytes_per_s", "B/s", rate));
        Ok(found)
    }
}

/// One case of one subject.
struct ClientRun {
    program: WorkerProgram,
    /// As the processes name it.
    dir: PathBuf,
    /// As the kernel does.
    seen: PathBuf,
    processes: u64,
}

impl ClientRun {
    fn rate(&self, task: &WorkerTask) -> Result<f64> {
        let dirs = std::slice::from_ref(&self.dir);
        let ran = run_program(&self.program, dirs, self.processes, task)?;
        Ok(ran.done as f64 / ran.seconds)
    }

    fn files(&self, files: u64) -> Result<Values> {
        for rank in 0..self.processes {
            let own = self.seen.join(rank.to_string());
            create_dir(&own).doing(own.display())?;
        }
        let creates = self.rate(&WorkerTask::Create(files))?;
        let stats = self.rate(&WorkerTask::Stat(files))?;
        let unlinks = self.rate(&WorkerTask::Unlink(files))?;
        // As many of each: the time of one of each is the sum of theirs.
        let all = 3.0 / (1.0 / creates + 1.0 / stats + 1.0 / unlinks);
        Ok(vec![
            ("creates_per_s", "1/s", creates),
            ("stats_per_s", "1/s", stats),
            ("unlinks_per_s", "1/s", unlinks),
            ("files_per_s", "1/s", all),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_has_one_and_four_processes() {
        for case in CASES {
            let end = format!("-{}p", case.work.processes);
            assert!(case.name.ends_with(&end), "{}", case.name);
            let other = if case.work.processes == 1 { 4 } else { 1 };
            let other = case.name.replace(&end, &format!("-{other}p"));
            assert!(CASES.iter().any(|case| case.name == other), "{other}");
        }
    }

    #[test]
    fn programs_are_subjects_and_unknown_names_are_none() {
        let kinds = select(&["link".into(), "c=./worker --fast".into()]).unwrap();
        assert_eq!((kinds[0].name, kinds[0].command.len()), ("link", 0));
        assert_eq!((kinds[1].name, kinds[1].command.len()), ("c", 2));
        assert!(select(&["tape".into()]).is_err_and(|e| e.0.contains("tape")));
        assert_eq!(select(&[]).unwrap().len(), 3);
    }
}
