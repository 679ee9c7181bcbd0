//! Measured processes that run together: all are started, then released at once; timed from the first start to the last end.
use crate::fail::{Context, Failure, Result};
use crate::job::{WorkerJob, WorkerOutcome, WorkerTask};
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// The outcomes of all processes together.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GroupResult {
    /// From the first start to the last end.
    pub seconds: f64,
    /// Processor time of the processes.
    pub cpu: f64,
    /// Bytes or files of all processes.
    pub done: u64,
}

struct MeasuredProcess {
    child: Child,
    out: BufReader<std::process::ChildStdout>,
}

/// Kills what is left if something failed.
impl Drop for MeasuredProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl MeasuredProcess {
    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.out.read_line(&mut line)?;
        if line.is_empty() {
            let mut why = String::new();
            if let Some(stderr) = &mut self.child.stderr {
                let _ = std::io::Read::read_to_string(stderr, &mut why);
            }
            return Err(Failure::new(format!(
                "a measured process failed: {}",
                why.trim()
            )));
        }
        Ok(line)
    }
}

/// The program that a measured process runs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WorkerProgram {
    /// The program and its first arguments, after which comes a [`WorkerJob`] in JSON; none: this program. It says what
    /// [`crate::job::work`] does.
    pub command: Vec<OsString>,
    /// See [`WorkerJob::link`].
    pub link: Option<PathBuf>,
}

/// Runs the task in `of` processes of this program, to which `dirs`, of which there is at least one, are dealt out in turn.
///
/// # Errors
/// If one fails; says why.
pub fn run(dirs: &[PathBuf], of: u64, task: &WorkerTask) -> Result<GroupResult> {
    run_program(&WorkerProgram::default(), dirs, of, task)
}

/// The same with another program.
///
/// # Errors
/// As [`run`].
pub fn run_program(
    program: &WorkerProgram,
    dirs: &[PathBuf],
    of: u64,
    task: &WorkerTask,
) -> Result<GroupResult> {
    let own = std::env::current_exe().doing("the path of this program")?;
    let own = [own.into_os_string(), "__worker".into()];
    let words = match program.command.as_slice() {
        [] => &own[..],
        words => words,
    };
    let Some((program_path, arguments)) = words.split_first() else {
        return Err(Failure::new("no program to measure"));
    };
    let mut members = Vec::new();
    for (rank, dir) in (0..of).zip(dirs.iter().cycle()) {
        let job = WorkerJob {
            dir: dir.clone(),
            rank,
            of,
            task: task.clone(),
            link: program.link.clone(),
        };
        let mut child = Command::new(program_path)
            .args(arguments)
            .arg(serde_json::to_string(&job)?)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .doing("start a process")?;
        let out = child
            .stdout
            .take()
            .ok_or_else(|| Failure::new("a process without output"))?;
        members.push(MeasuredProcess {
            child,
            out: BufReader::new(out),
        });
    }
    for member in &mut members {
        member.line()?;
    }
    for member in &mut members {
        if let Some(stdin) = &mut member.child.stdin {
            stdin.write_all(b"go\n")?;
        }
    }
    let mut outcomes: Vec<WorkerOutcome> = Vec::new();
    for member in &mut members {
        outcomes.push(serde_json::from_str(&member.line()?).doing("what a process said")?);
    }
    let start = outcomes
        .iter()
        .map(|o| o.start)
        .fold(f64::INFINITY, f64::min);
    let end = outcomes.iter().map(|o| o.end).fold(0.0, f64::max);
    Ok(GroupResult {
        seconds: end - start,
        cpu: outcomes.iter().map(|o| o.cpu).sum(),
        done: outcomes.iter().map(|o| o.done).sum(),
    })
}
