//! Benchmark `mount`: every case, some rounds; in a round every subject in turn, another one first each time, so that a slow
//! drift of the machine touches all alike. All subjects start anew before a case that needs another number of nodes than the one before.
use crate::cache::CacheDropping;
use crate::cases::{CASES, CaseWork, ProcessWork, RecordLayout};
use crate::fail::{Context, Failure, Result};
use crate::harness::{Case, in_turn};
use crate::job::{Records, WorkerTask};
use crate::report::{Report, cpu_metric};
use crate::source_tree::SourceTree;
use crate::subjects::{self, ForebayOptions, Subject, SubjectKind};
use crate::{MountArgs, process_group, sizes};
use std::fs::create_dir;
use std::path::{Path, PathBuf};
use std::time::Instant;

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
    let program = match kinds.iter().any(|kind| kind.is_forebay()) {
        true => args.program.find()?,
        false => PathBuf::new(),
    };
    let dir = args.dir.make()?;
    let cold = CacheDropping::choose();
    let unpacks = cases.iter().any(|c| c.work.kind == CaseWork::Unpack);
    let tree = unpacks.then(|| SourceTree::make(&dir.0, args.tree_files));
    let conditions = RunConditions {
        args,
        cold,
        tree: tree.transpose()?,
    };
    let mut running: Vec<Subject> = Vec::new();
    let mut started = None;
    header(&conditions, &dir.0)?;
    let mut report = Report::new("mount", peer(args.nodes));
    for case in &cases {
        let nodes = case.work.nodes(args.nodes);
        if started != Some(nodes) {
            running.clear();
            let home = dir.0.join("subjects");
            if started.replace(nodes).is_some() {
                std::fs::remove_dir_all(&home).doing(home.display())?;
            }
            let forebay = ForebayOptions {
                program: program.clone(),
                nodes,
                durability: args.durability.clone(),
            };
            for kind in &kinds {
                running.push(Subject::start(*kind, &home, &forebay)?);
            }
            report.compare_with(peer(nodes));
        }
        for round in 0..args.run.runs {
            args.run.progress(case.name, round);
            let subjects: Vec<&Subject> = running.iter().collect();
            for subject in in_turn(&subjects, round) {
                let what = format!("{} on {}", case.name, subject.kind.name());
                measure(case, subject, &conditions, round, &mut report).doing(what)?;
            }
        }
        args.run.print(&report, case.name, Report::table)?;
    }
    Ok(())
}

/// What all cases of a run have in common.
struct RunConditions<'a> {
    args: &'a MountArgs,
    cold: CacheDropping,
    /// If a case unpacks one.
    tree: Option<SourceTree>,
}

/// The peer of a service with so many nodes: of one node, the kernel may hold written pages back; of more, it may not, because
/// the others would not see them.
fn peer(nodes: u16) -> &'static str {
    let kind = match nodes {
        1 => SubjectKind::PassthroughWriteback,
        _ => SubjectKind::Passthrough,
    };
    kind.name()
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
            "the plain disk and the pass-throughs keep what the kernel has taken, as durability `process` does; with `{durability}` \
             they cannot be compared: add `--subject forebay`, or leave --durability out"
        )));
    }
    Ok(())
}

fn header(conditions: &RunConditions, dir: &Path) -> Result<()> {
    let args = conditions.args;
    let tree = conditions.tree.as_ref();
    let tree = tree.map_or(String::new(), |tree| {
        let bytes = sizes::show(tree.bytes as f64);
        format!(
            "# source-tree: {} files, {bytes}, tar's time without a sync\n",
            args.tree_files
        )
    });
    let text = format!(
        "# mount: {} runs, {} a case, {} files, in {}\n\
         # durability: {} for all subjects; write times end after fdatasync and close\n\
         # memory: the kernel's page cache for all; forebay's servers besides, their default budget on each of {} nodes (4 in cases -4n)\n\
         # reads: {}\n\
         # ratio: speed against {}'s (in cases -4n {}'s); read_other: written on one node, read on another\n\
         {tree}# cpu: seconds per GiB, the processes and the file system's server together\n",
        args.run.runs,
        sizes::show(args.size as f64),
        args.files,
        dir.display(),
        args.durability,
        args.nodes,
        conditions.cold.text(),
        peer(args.nodes),
        SubjectKind::Passthrough.name(),
    );
    args.run.begin(&text, &Report::head())
}

fn measure(
    case: &Case<ProcessWork>,
    subject: &Subject,
    conditions: &RunConditions,
    round: u32,
    report: &mut Report,
) -> Result<()> {
    let mut dirs: Vec<PathBuf> = subject.mounts.iter().map(|m| m.join(case.name)).collect();
    let dir = dirs[0].clone();
    create_dir(&dir).doing(dir.display())?;
    // A case without its own number of nodes uses one mount, and another one only to read what came through the first.
    let other = match case.work.nodes {
        Some(_) => None,
        None => dirs.drain(1..).next(),
    };
    let args = conditions.args;
    let mut run = CaseRun {
        case,
        subject,
        cold: conditions.cold,
        dirs,
        other,
        report,
    };
    match case.work.kind {
        CaseWork::Bytes {
            layout,
            record,
            divide,
        } => {
            let bytes = args.size / divide;
            run.bytes(Records {
                layout,
                record,
                bytes,
            })?;
        }
        CaseWork::Files { shared } => run.files(shared, args.files)?,
        CaseWork::Unpack => {
            if let Some(tree) = &conditions.tree {
                run.unpack(tree, round == 0)?;
            }
        }
    }
    std::fs::remove_dir_all(&dir).doing(dir.display())
}

struct CaseRun<'a> {
    case: &'a Case<ProcessWork>,
    subject: &'a Subject,
    cold: CacheDropping,
    /// Where the processes work, dealt out in turn: one directory, through each of the mounts that the case uses.
    dirs: Vec<PathBuf>,
    /// The same directory through another node, if that is only read.
    other: Option<PathBuf>,
    report: &'a mut Report,
}

impl CaseRun<'_> {
    fn measure(
        &mut self,
        dirs: &[PathBuf],
        task: &WorkerTask,
        metric: &'static str,
        unit: &'static str,
    ) -> Result<()> {
        let before = self.subject.cpu()?;
        let ran = process_group::run(dirs, self.case.work.processes, task)?;
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

    fn measure_cold(
        &mut self,
        dirs: &[PathBuf],
        task: &WorkerTask,
        metric: &'static str,
    ) -> Result<()> {
        let mut places: Vec<&Path> = vec![self.subject.below.as_path()];
        places.extend(dirs.iter().map(PathBuf::as_path));
        self.cold.drop_caches(&places);
        self.measure(dirs, task, metric, "B/s")
    }

    fn bytes(&mut self, records: Records) -> Result<()> {
        let writers = self.dirs.clone();
        match records.layout {
            // Only its reads are a case.
            RecordLayout::Random => {
                let write = WorkerTask::Write(Records {
                    layout: RecordLayout::Segments,
                    record: 1 << 20,
                    ..records
                });
                process_group::run(&writers, self.case.work.processes, &write)?;
            }
            _ => self.measure(
                &writers,
                &WorkerTask::Write(records),
                "write_bytes_per_s",
                "B/s",
            )?,
        }
        let read = WorkerTask::Read(records);
        // Each process reads what it wrote; of several mounts, through the next one.
        let mut readers = writers;
        readers.rotate_left(1);
        self.measure_cold(&readers, &read, "read_bytes_per_s")?;
        if let Some(other) = self.other.take() {
            self.measure_cold(&[other], &read, "read_other_bytes_per_s")?;
        }
        Ok(())
    }

    fn files(&mut self, shared: bool, files: u64) -> Result<()> {
        let dirs = self.dirs.clone();
        if !shared {
            for (rank, dir) in (0..self.case.work.processes).zip(dirs.iter().cycle()) {
                let own = dir.join(rank.to_string());
                create_dir(&own).doing(own.display())?;
            }
        }
        self.measure(&dirs, &WorkerTask::Create(files), "creates_per_s", "1/s")?;
        self.measure(&dirs, &WorkerTask::Stat(files), "stats_per_s", "1/s")?;
        self.measure(&dirs, &WorkerTask::Unlink(files), "unlinks_per_s", "1/s")
    }

    fn unpack(&mut self, tree: &SourceTree, compare: bool) -> Result<()> {
        // What was removed or written before is not to be written while this runs.
        rustix::fs::sync();
        tree.warm()?;
        let begin = Instant::now();
        tree.unpack(&self.dirs[0])?;
        let seconds = begin.elapsed().as_secs_f64();
        let subject = self.subject.kind.name();
        self.report
            .add(self.case.name, "unpack_s", subject, "s", seconds);
        match compare {
            true => tree.compare(&self.dirs[0]),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peer_of_one_node_has_the_writeback_cache_too() {
        assert_eq!(peer(1), "passthrough-writeback");
        assert_eq!((peer(2), peer(4)), ("passthrough", "passthrough"));
    }

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
