//! The subjects of `mount`: the plain disk, the pass-throughs, Forebay. Each gives directories to work in and, if a process
//! serves them, that process; each ends when it is dropped.
use crate::cpu;
use crate::fail::{Context, Failure, Result};
use crate::harness::by_name;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

/// A subject of `mount`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SubjectKind {
    /// A directory of the disk.
    Disk,
    /// The pass-through file system over such a directory.
    Passthrough,
    /// The same with the kernel's writeback cache.
    PassthroughWriteback,
    /// Forebay with its store in such a directory.
    Forebay,
    /// The same with an index record for each write; only if it is named.
    PatternsOff,
}

impl SubjectKind {
    /// All, in the order of the table.
    pub const ALL: [SubjectKind; 5] = [
        SubjectKind::Disk,
        SubjectKind::Passthrough,
        SubjectKind::PassthroughWriteback,
        SubjectKind::Forebay,
        SubjectKind::PatternsOff,
    ];

    /// Whether it is Forebay.
    pub fn is_forebay(self) -> bool {
        matches!(self, SubjectKind::Forebay | SubjectKind::PatternsOff)
    }

    /// Its name, as in results and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            SubjectKind::Disk => "disk",
            SubjectKind::Passthrough => "passthrough",
            SubjectKind::PassthroughWriteback => "passthrough-writeback",
            SubjectKind::Forebay => "forebay",
            SubjectKind::PatternsOff => "patterns-off",
        }
    }
}

/// The named subjects in the order of the table, or the usual ones.
///
/// # Errors
/// Names an unknown one.
pub fn select(names: &[String]) -> Result<Vec<SubjectKind>> {
    if names.is_empty() {
        return Ok(SubjectKind::ALL[..4].to_vec());
    }
    let hint = "there are disk, passthrough, passthrough-writeback, forebay, patterns-off";
    let mut found = by_name("subject", &SubjectKind::ALL, |k| k.name(), names, hint)?;
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

/// How Forebay is started.
#[derive(Debug, Clone)]
pub struct ForebayOptions {
    /// The program `forebay`.
    pub program: PathBuf,
    /// The number of node servers.
    pub nodes: u16,
    /// Its durability.
    pub durability: String,
}

/// A running subject.
pub struct Subject {
    /// The subject.
    pub kind: SubjectKind,
    /// Where the processes write and read: the same files through each. Forebay has one for each node, the others have one.
    pub mounts: Vec<PathBuf>,
    /// The directory on the disk that holds everything.
    pub below: PathBuf,
    server: Option<ServerProcess>,
}

/// A process that serves mounts; it ends when this is dropped.
pub struct ServerProcess {
    child: Child,
    /// The pass-through ends when this does.
    stdin: Option<ChildStdin>,
    points: Vec<PathBuf>,
    log: PathBuf,
}

impl Subject {
    /// Starts it in a directory of its own below `dir`.
    ///
    /// # Errors
    /// If its server does not come up; with the end of its log.
    pub fn start(kind: SubjectKind, dir: &Path, forebay: &ForebayOptions) -> Result<Subject> {
        let home = dir.join(kind.name());
        let below = home.join("store");
        make(&below)?;
        let point = home.join("mount");
        let (command, points): (Command, Vec<PathBuf>) = match kind {
            SubjectKind::Disk => {
                return Ok(Subject {
                    kind,
                    mounts: vec![below.clone()],
                    below,
                    server: None,
                });
            }
            SubjectKind::Passthrough | SubjectKind::PassthroughWriteback => {
                let program = std::env::current_exe().doing("the path of this program")?;
                let mut command = Command::new(program);
                command.arg("__passthrough").stdin(Stdio::piped());
                if kind == SubjectKind::PassthroughWriteback {
                    command.arg("--writeback");
                }
                command.args([&below, &point]);
                (command, vec![point])
            }
            SubjectKind::Forebay | SubjectKind::PatternsOff => {
                let mut command = forebay_command(&forebay.program, &home)?;
                command.args(["mount", "--foreground"]);
                command.args(["--nodes", &forebay.nodes.to_string()]);
                command.args(["--durability", &forebay.durability]);
                if kind == SubjectKind::PatternsOff {
                    command.args(["--patterns", "off"]);
                }
                command.stdin(Stdio::null());
                command.arg(&below).arg(point.join("{node}"));
                let node = |n: u16| point.join(n.to_string());
                (command, (0..forebay.nodes).map(node).collect())
            }
        };
        for point in &points {
            make(point)?;
        }
        Ok(Subject {
            kind,
            mounts: points.clone(),
            below,
            server: Some(ServerProcess::start(command, &home, points)?),
        })
    }

    /// Processor seconds of the server so far.
    ///
    /// # Errors
    /// If the server has gone; with the end of its log.
    pub fn cpu(&self) -> Result<f64> {
        match &self.server {
            Some(server) => server.cpu(),
            None => Ok(0.0),
        }
    }
}

fn make(dir: &Path) -> Result<()> {
    std::fs::create_dir_all(dir).doing(dir.display())
}

impl ServerProcess {
    /// Starts it, and waits until it is ready. It says so on standard output; what it says on standard error goes to a file in `home`.
    ///
    /// # Errors
    /// If it does not come up; with the end of what it said.
    pub fn start(mut command: Command, home: &Path, points: Vec<PathBuf>) -> Result<ServerProcess> {
        let log = home.join("log");
        let name = command.get_program().to_string_lossy().into_owned();
        command
            .stdout(Stdio::piped())
            .stderr(File::create(&log).doing(log.display())?);
        let mut child = command.spawn().doing(name)?;
        let stdin = child.stdin.take();
        let out = child.stdout.take();
        let server = ServerProcess {
            child,
            stdin,
            points,
            log,
        };
        let mut line = String::new();
        let read = out.map(|out| BufReader::new(out).read_line(&mut line));
        match read {
            Some(Ok(n)) if n > 0 => Ok(server),
            _ => Err(server.failure("it ended before it was ready")),
        }
    }

    /// Its processor seconds so far.
    ///
    /// # Errors
    /// If it has gone; with the end of what it said.
    pub fn cpu(&self) -> Result<f64> {
        cpu::of_process(self.child.id()).map_err(|e| self.failure(&e.0))
    }

    /// Processor seconds so far of its threads that have one of these names.
    ///
    /// # Errors
    /// As `cpu`.
    pub fn cpu_of_threads(&self, names: &[&str]) -> Result<f64> {
        cpu::of_threads(self.child.id(), names).map_err(|e| self.failure(&e.0))
    }

    /// The failure of a server that does not serve, with the end of its log.
    pub fn failure(&self, why: &str) -> Failure {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let from = log.len().saturating_sub(2000);
        let end = log.get(from..).unwrap_or(&log);
        Failure::new(format!(
            "the server of {}: {why}\n{end}",
            self.points[0].display()
        ))
    }

    fn mounted(&self) -> bool {
        let table = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        self.points
            .iter()
            .any(|p| table.split(' ').any(|word| Path::new(word) == p))
    }
}

/// Ends the server, and unmounts by force what it leaves.
impl Drop for ServerProcess {
    fn drop(&mut self) {
        match self.stdin.take() {
            Some(stdin) => drop(stdin),
            None => {
                if let Some(pid) = rustix::process::Pid::from_raw(self.child.id() as i32) {
                    let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
                }
            }
        }
        let until = Instant::now() + Duration::from_secs(60);
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        if self.mounted() {
            for point in &self.points {
                let _ = Command::new("umount")
                    .arg("-l")
                    .arg(point)
                    .stderr(Stdio::null())
                    .status();
            }
        }
    }
}

/// The program with no settings but its defaults, whatever the environment and the user's file say. `home` is for an empty file.
///
/// # Errors
/// If that cannot be made.
pub fn forebay_command(program: &Path, home: &Path) -> Result<Command> {
    let config = home.join("empty.toml");
    File::create(&config).doing(config.display())?;
    let mut command = Command::new(program);
    without_variables(&mut command, "FOREBAY_");
    command.arg("--config").arg(&config);
    Ok(command)
}

/// Leaves out the environment variables whose names begin so.
pub fn without_variables(command: &mut Command, prefix: &str) {
    let names = std::env::vars_os().map(|(name, _)| name);
    for name in names.filter(|n| n.to_string_lossy().starts_with(prefix)) {
        command.env_remove(name);
    }
}

/// The program that is measured.
#[derive(Debug, clap::Args)]
pub struct ProgramArgs {
    /// The program to measure [default: `forebay` beside this program]
    #[arg(long)]
    forebay: Option<PathBuf>,
}

impl ProgramArgs {
    /// Its path.
    ///
    /// # Errors
    /// If it is not there; says how to build it.
    pub fn find(&self) -> Result<PathBuf> {
        let beside = std::env::current_exe()
            .doing("the path of this program")?
            .with_file_name("forebay");
        let path = self.forebay.clone().unwrap_or(beside);
        match path.is_file() {
            true => Ok(path),
            false => Err(Failure::new(format!(
                "{}: not there; build it or name it with --forebay",
                path.display()
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subjects_keep_their_order_and_unknown_ones_are_named() {
        assert_eq!(select(&[]).unwrap(), SubjectKind::ALL[..4]);
        assert_eq!(
            select(&["forebay".into(), "disk".into()]).unwrap(),
            [SubjectKind::Disk, SubjectKind::Forebay]
        );
        assert!(select(&["tape".into()]).is_err_and(|e| e.0.contains("tape")));
    }
}
