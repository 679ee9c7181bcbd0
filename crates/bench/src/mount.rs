//! Benchmark `mount`: every case, some rounds; in a round every subject in turn, in alternating order, so that a slow drift of
//! the machine touches all alike.
use crate::cache::CacheDropping;
use crate::cases::{CASES, CaseWork, ProcessWork, RecordLayout};
use crate::fail::{Context, Failure, Result};
use crate::harness::Case;
use crate::job::{Records, WorkerTask};
use crate::report::{Report, cpu_metric};
use crate::subjects::{self, ForebayOptions, Subject, SubjectKind};
use crate::{MountArgs, process_group, sizes};
use std::path::{Path, PathBuf};

const GIB: f64 = (1u64 << 30) as f64;

/// Runs the subcommand.
///
/// # Errors
/// If a subject cannot be started, a case fails, or the subjects could not be compared.
pub fn run(args: &MountArgs) -> Result<()> {
    let Some(cases) = args.run.choose(CASES, "")? else {
        return Ok(());
    };
    let kinds = subjects::select(&args.subjects)?;
    comparable(&args.durability, &kinds)?;
    let forebay = ForebayOptions {
        program: match kinds.iter().any(|kind| kind.is_forebay()) {
            true => subjects::find_forebay(args.forebay.as_deref())?,
            false => PathBuf::new(),
        },
        nodes: args.nodes,
        durability: args.durability.clone(),
    };
    let dir = args.dir.make()?;
    let cold = CacheDropping::choose();
    let mut running = Vec::new();
    for kind in &kinds {
        running.push(Subject::start(*kind, &dir.0, &forebay)?);
    }
    header(args, &dir.0, cold)?;
    let mut report = Report::new("mount", "passthrough");
    for case in &cases {
        for round in 0..args.run.runs {
            args.run.progress(case.name, round);
            let mut order: Vec<&Subject> = running.iter().collect();
            if round % 2 == 1 {
                order.reverse();
            }
            for subject in order {
                let what = format!("{} on {}", case.name, subject.kind.name());
                measure(case, subject, args, cold, &mut report).doing(what)?;
            }
        }
        args.run.print(&report, case.name, Report::table)?;
    }
    Ok(())
}

/// Every subject must promise the same, or the numbers say nothing.
fn comparable(durability: &str, kinds: &[SubjectKind]) -> Result<()> {
    if !["none", "process", "disk"].contains(&durability) {
        return Err(Failure::new(format!(
            "no durability '{durability}'; there are none, process, disk"
        )));
    }
    if durability != "process" && !kinds.iter().all(|kind| kind.is_forebay()) {
        return Err(Failure::new(format!(
            "the plain disk and the pass-through keep what the kernel has taken, as durability `process` does; with `{durability}` \
             they cannot be compared: add `--subject forebay`, or leave --durability out"
        )));
    }
    Ok(())
}

fn header(args: &MountArgs, dir: &Path, cold: CacheDropping) -> Result<()> {
    let text = format!(
        "# mount: {} runs, {} a case, {} files, in {}\n\
         # durability: {} for all subjects; write times end after fdatasync and close\n\
         # memory: the kernel's page cache for all; forebay's servers besides, their default budget on each of {} nodes\n\
         # reads: {}\n\
         # ratio: median against the pass-through's; read_other: written on one node, read on another\n\
         # cpu: seconds per GiB, the processes and the file system's server together\n",
        args.run.runs,
        sizes::show(args.size as f64),
        args.files,
        dir.display(),
        args.durability,
        args.nodes,
        cold.text(),
    );
    args.run.begin(&text, &Report::head())
}

fn measure(
    case: &Case<ProcessWork>,
    subject: &Subject,
    args: &MountArgs,
    cold: CacheDropping,
    report: &mut Report,
) -> Result<()> {
    let dir = subject.work.join(case.name);
    std::fs::create_dir(&dir).doing(dir.display())?;
    let mut run = CaseRun {
        case,
        subject,
        report,
    };
    match case.work.kind {
        CaseWork::Bytes {
            layout,
            record,
            divide,
        } => {
            let bytes = args.size / divide;
            let records = Records {
                layout,
                record,
                bytes,
            };
            run.bytes(&dir, records, cold)?;
        }
        CaseWork::Files { shared } => run.files(&dir, shared, args.files)?,
    }
    std::fs::remove_dir_all(&dir).doing(dir.display())
}

struct CaseRun<'a> {
    case: &'a Case<ProcessWork>,
    subject: &'a Subject,
    report: &'a mut Report,
}

impl CaseRun<'_> {
    fn measure(
        &mut self,
        dir: &Path,
        task: &WorkerTask,
        metric: &'static str,
        unit: &'static str,
    ) -> Result<()> {
        let before = self.subject.cpu()?;
        let ran = process_group::run(dir, self.case.work.processes, task)?;
        let cpu = self.subject.cpu()? - before + ran.cpu;
        let done = ran.done as f64;
        let mut found = vec![(metric, unit, done / ran.seconds)];
        if let Some(cpu_metric) = cpu_metric(metric) {
            found.push((cpu_metric, "s/GiB", cpu / (done / GIB)));
        }
        let subject = self.subject.kind.name();
        self.report.add_all(self.case.name, subject, found);
        Ok(())
    }

    fn bytes(&mut self, dir: &Path, records: Records, cold: CacheDropping) -> Result<()> {
        match records.layout {
            // Only its reads are a case.
            RecordLayout::Random => {
                let write = WorkerTask::Write(Records {
                    layout: RecordLayout::Segments,
                    record: 1 << 20,
                    ..records
                });
                process_group::run(dir, self.case.work.processes, &write)?;
            }
            _ => self.measure(dir, &WorkerTask::Write(records), "write_bytes_per_s", "B/s")?,
        }
        let read = WorkerTask::Read(records);
        let below = self.subject.below.clone();
        cold.drop_caches(&[&below, dir]);
        self.measure(dir, &read, "read_bytes_per_s", "B/s")?;
        if let Some(other) = &self.subject.other {
            let dir = other.join(self.case.name);
            cold.drop_caches(&[&below, &dir]);
            self.measure(&dir, &read, "read_other_bytes_per_s", "B/s")?;
        }
        Ok(())
    }

    fn files(&mut self, dir: &Path, shared: bool, files: u64) -> Result<()> {
        if !shared {
            for rank in 0..self.case.work.processes {
                let own = dir.join(rank.to_string());
                std::fs::create_dir(&own).doing(own.display())?;
            }
        }
        self.measure(dir, &WorkerTask::Create(files), "creates_per_s", "1/s")?;
        self.measure(dir, &WorkerTask::Stat(files), "stats_per_s", "1/s")?;
        self.measure(dir, &WorkerTask::Unlink(files), "unlinks_per_s", "1/s")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unlike_promises_are_not_compared() {
        assert!(comparable("process", &SubjectKind::ALL).is_ok());
        assert!(comparable("disk", &[SubjectKind::Forebay]).is_ok());
        assert!(
            comparable("disk", &SubjectKind::ALL)
                .is_err_and(|e| e.0.contains("cannot be compared"))
        );
        assert!(comparable("none", &[SubjectKind::Disk, SubjectKind::Forebay]).is_err());
        assert!(comparable("eternal", &[SubjectKind::Forebay]).is_err());
    }
}
