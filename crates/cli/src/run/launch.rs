//! The servers of `run` as an MPI job: `mpirun` or `srun` starts one `forebay serve` on each node.
//!
//! The launcher's standard output carries the servers' reports. Its standard input is the lifeline: it reaches the first
//! server, and when it ends, be it that `run` closes it or that `run` is killed, all servers stop in order. So the launcher is
//! not killed with `run`; it ends when its servers have. It has a process group of its own, for Ctrl-C is for the command.
use super::Servers;
use super::hosts::Host;
use crate::args::{Launcher, RunArgs};
use crate::fail::{Context, Failure, Result};
use crate::serve::{Report, Seat, host};
use crate::settings::{Resolved, TABLE};
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// After one server has reported a failure, the others may still report what led to it.
const ECHO: Duration = Duration::from_millis(500);

/// What the servers get beyond their own limit, for the launcher to start and end.
const MARGIN: Duration = Duration::from_secs(15);

struct Launched {
    child: Child,
    reports: Receiver<Report>,
    seats: Vec<Seat>,
    name: String,
    limit: Duration,
}

/// Starts the servers and waits until every mount answers.
///
/// # Errors
/// What the first server reports; that there is no launcher; that the servers are not ready in time.
pub fn start(
    args: &RunArgs,
    settings: &Resolved,
    launcher: Launcher,
    hosts: Option<Vec<Host>>,
) -> Result<Box<dyn Servers>> {
    let mut command = match launcher {
        Launcher::Srun => srun()?,
        _ => mpirun(args, settings, hosts)?,
    };
    let name = command.get_program().to_string_lossy().into_owned();
    let program = std::env::current_exe().or_fail("cannot find this program", "report this")?;
    command.arg(program).arg("serve").arg("--launched");
    command.arg("--store").arg(&args.store);
    command.arg("--mount").arg(&args.mount);
    let texts = settings.texts();
    for setting in TABLE.iter().filter(|s| s.key != "nodes") {
        if let Some(text) = texts.get(setting.key) {
            command.arg(format!("--{}={text}", setting.flag));
        }
    }
    let secret: String = [
        forebay_server::superblock::random_id(),
        forebay_server::superblock::random_id(),
    ]
    .concat()
    .iter()
    .map(|byte| format!("{byte:02x}"))
    .collect();
    let mut child = command
        .env("FOREBAY_SECRET", secret)
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|e| missing(&name, &e))?;
    let Some(output) = child.stdout.take() else {
        return Err(Failure::new("the launcher has no output", "report this"));
    };
    let (sender, reports) = mpsc::channel();
    let mut launched = Launched {
        child,
        reports,
        seats: Vec::new(),
        name,
        limit: settings.values.stop_limit + MARGIN,
    };
    std::thread::Builder::new()
        .name("server reports".into())
        .spawn(move || {
            for line in BufReader::new(output).lines().map_while(|line| line.ok()) {
                match serde_json::from_str::<Report>(&line) {
                    Ok(report) => {
                        // Nobody waits for it any more.
                        let _ = sender.send(report);
                    }
                    // What the launcher itself has to say.
                    Err(_) => eprintln!("{line}"),
                }
            }
        })
        .or_fail("cannot start a thread", "raise the limit on processes")?;
    launched.ready(settings.values.start_limit + MARGIN)?;
    Ok(Box::new(launched))
}

fn missing(name: &str, error: &std::io::Error) -> Failure {
    Failure::new(
        format!("cannot start {name}: {error}"),
        "install OpenMPI or MPICH, name the program with --mpirun, or leave out --hosts for servers on this machine",
    )
}

fn mpirun(args: &RunArgs, settings: &Resolved, hosts: Option<Vec<Host>>) -> Result<Command> {
    let open = forebay_fabric::mpi::library().contains("Open MPI");
    let names: &[&str] = match open {
        true => &["mpirun.openmpi", "mpirun"],
        false => &["mpirun.mpich", "mpiexec.hydra", "mpirun"],
    };
    let program = match &args.mpirun {
        Some(program) => program.clone(),
        None => names
            .iter()
            .map(PathBuf::from)
            .find(|name| found(name))
            .ok_or_else(|| {
                missing(
                    names[0],
                    &std::io::Error::new(std::io::ErrorKind::NotFound, "not in PATH"),
                )
            })?,
    };
    let mut command = Command::new(program);
    let servers = match &hosts {
        Some(hosts) => hosts.iter().map(|h| h.servers).sum(),
        None => u32::from(settings.values.service.nodes),
    };
    command.arg("-n").arg(servers.to_string());
    if let Some(hosts) = &hosts {
        let list: Vec<_> = hosts
            .iter()
            .map(|h| format!("{}:{}", h.name, h.servers))
            .collect();
        command.arg(if open { "--host" } else { "-hosts" });
        command.arg(list.join(","));
    }
    if open {
        // A server is not to be tied to one core, nor to end because another one did.
        command.args(["--oversubscribe", "--bind-to", "none", "--enable-recovery"]);
        command.args(["-x", "FOREBAY_SECRET"]);
        if rustix::process::geteuid().is_root() {
            command.arg("--allow-run-as-root");
        }
    }
    Ok(command)
}

/// Whether PATH has the program.
fn found(name: &std::path::Path) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(name).is_file())
}

/// One server on each node of the job, beside the command's own steps.
fn srun() -> Result<Command> {
    let nodes = std::env::var("SLURM_JOB_NUM_NODES").or_else(|_| std::env::var("SLURM_NNODES"));
    let nodes = nodes.map_err(|_| {
        Failure::usage(
            "this is no Slurm job",
            "run it in a batch script or below salloc, or choose another --launcher",
        )
    })?;
    let mut command = Command::new("srun");
    command.args(["--overlap", "--kill-on-bad-exit=0"]);
    command.args(["--input=0", "--ntasks-per-node=1", "--mem=0"]);
    command.arg(format!("--nodes={nodes}"));
    command.arg(format!("--ntasks={nodes}"));
    // A server is not to be tied to one core. In the environment, as the flag is an error to clusters that never bind.
    command.env("SLURM_CPU_BIND", "none");
    // The cluster's default may be another MPI's, or none.
    if std::env::var_os("SLURM_MPI_TYPE").is_none() {
        let open = forebay_fabric::mpi::library().contains("Open MPI");
        command.arg(if open { "--mpi=pmix" } else { "--mpi=pmi2" });
    }
    command.args(["--job-name=forebay", "--quiet"]);
    Ok(command)
}

impl Launched {
    fn ready(&mut self, limit: Duration) -> Result {
        let end = Instant::now() + limit;
        loop {
            match self
                .reports
                .recv_timeout(end.saturating_duration_since(Instant::now()))
            {
                Ok(Report::AllReady(seats)) => {
                    self.seats = seats;
                    return Ok(());
                }
                Ok(Report::Failed {
                    code,
                    text,
                    follows,
                }) => return Err(self.cause(Failure { code, text }, follows)),
                Ok(_) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Failure::new(
                        format!("{} ended before the servers were ready", self.name),
                        "see what it says above, and the log in each store",
                    ));
                }
                Err(RecvTimeoutError::Timeout) => {
                    return Err(Failure::new(
                        format!("the servers are not ready after {} s", limit.as_secs()),
                        "see the log in each store; a slow disk may need a larger --start-limit",
                    ));
                }
            }
        }
    }

    /// The failure that others only follow from, if it is reported soon.
    fn cause(&self, mut failure: Failure, mut follows: bool) -> Failure {
        let end = Instant::now() + ECHO;
        while follows
            && let Ok(report) = self
                .reports
                .recv_timeout(end.saturating_duration_since(Instant::now()))
        {
            if let Report::Failed {
                code,
                text,
                follows: also,
            } = report
                && !also
            {
                (failure, follows) = (Failure { code, text }, false);
            }
        }
        failure
    }

    /// Closes the lifeline and waits for the launcher; whether it ended well.
    fn end(&mut self, limit: Duration) -> Option<bool> {
        drop(self.child.stdin.take());
        let end = Instant::now() + limit;
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => return Some(status.success()),
                Err(_) => return None,
                Ok(None) if Instant::now() >= end => {
                    // Asked to end, a launcher ends its servers first.
                    let launcher = rustix::process::Pid::from_child(&self.child);
                    let _ = rustix::process::kill_process(launcher, rustix::process::Signal::TERM);
                    let _ = self.child.wait();
                    return None;
                }
                Ok(None) => std::thread::sleep(Duration::from_millis(5)),
            }
        }
    }
}

impl Servers for Launched {
    fn mounts(&self) -> Vec<PathBuf> {
        let own = host();
        let here = self.seats.iter().filter(|seat| seat.host == own);
        here.map(|seat| seat.mount.clone()).collect()
    }

    fn stop(mut self: Box<Self>) -> Result {
        let limit = self.limit;
        let ended = self.end(limit);
        let failed = self.reports.try_iter().find_map(|report| match report {
            Report::Failed { code, text, .. } => Some(Failure { code, text }),
            _ => None,
        });
        match (failed, ended) {
            (Some(failure), _) => Err(failure),
            (None, Some(true)) => Ok(()),
            (None, _) => Err(Failure::new(
                "a server ended before its time",
                "what was committed is in the stores: see the log in each, and start again",
            )),
        }
    }
}

impl Drop for Launched {
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            self.end(MARGIN);
        }
    }
}
