//! The servers of `run` as an MPI job: `mpirun` or `srun` starts one `forebay serve` on each node.
//!
//! - **Reports.** The launcher's standard output carries the servers' reports.
//! - **Lifeline.** The launcher's standard input reaches the first server. When it ends, because `run` closes it or was killed,
//!   all servers stop in order. So the launcher is not killed with `run`; it ends when its servers have. Servers on the machine
//!   of `run` also stop when that process ends.
//! - **End of the command.** Before `run` closes the lifeline it writes that the command is over. A server that did not hear
//!   that leaves a mount that answers with errors, until the command is over.
//! - **A dead first server.** Then another server on this machine is asked to stop, over its control socket. If there is none,
//!   the launcher passes a signal on to all servers.
//!
//! The launcher has a process group of its own, because Ctrl-C is for the command.
use super::hosts::Host;
use super::reports::Reports;
use super::{Servers, exec};
use crate::args::{Launcher, RunArgs};
use crate::output::{escaped, print_error_line};
use crate::settings::ResolvedSettings;
use forebay_node::control::ControlClient;
use forebay_node::failure::{Context, Failure, Result};
use forebay_node::mount_table;
use forebay_node::process_handle::wait_for_child;
use forebay_node::spec::{MemberLocation, ServerReport, host};
use forebay_node::start::launcher::{COMMAND_OVER, RUN_VARIABLE, run_name};
use forebay_node::transport;
use forebay_node::watchdog::UNREACHABLE_HINT;
use rustix::process::{Pid, Signal};
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

/// What a launcher gets to end by itself after a start that failed.
const FAILED_START_LIMIT: Duration = Duration::from_secs(1);

/// How long a launcher may go on after the first of its servers has stopped: they stop together, so the others have stopped too, have
/// died, or cannot be reached.
const STOPPED_LAUNCHER_LIMIT: Duration = Duration::from_secs(5);

/// How long a launcher that is asked to end may take, which waits for hosts that it cannot reach.
const TERMINATED_LAUNCHER_LIMIT: Duration = Duration::from_secs(3);

/// What the servers get beyond their own limit, for the launcher to start and end.
const LAUNCHER_MARGIN: Duration = Duration::from_secs(15);

struct LaunchedServers {
    child: Child,
    reports: Reports,
    locations: Vec<MemberLocation>,
    /// The launcher's name.
    name: String,
    launcher: Launcher,
    /// The path of this program, which is the same on all hosts.
    program: String,
    /// How many servers there are to be.
    servers: u32,
    /// Where, if that is known.
    hosts: Vec<Host>,
    limit: Duration,
}

/// Starts the servers and waits until every mount answers. `servers`: how many there are to be, where Slurm does not say it.
///
/// # Errors
/// What the first server reports; that there is no launcher; that the servers are not ready in time.
pub fn start(
    args: &RunArgs,
    mount: &Path,
    settings: &ResolvedSettings,
    launcher: Launcher,
    hosts: Option<Vec<Host>>,
    servers: u32,
) -> Result<Box<dyn Servers>> {
    let one_host = on_one_host(launcher, hosts.as_deref());
    let (mut command, servers) = match launcher {
        Launcher::Srun => {
            let nodes = job_nodes()?;
            (srun(&nodes), nodes.parse().unwrap_or_default())
        }
        _ => (mpirun(args, hosts.as_deref(), servers)?, servers),
    };
    if one_host {
        within_one_host(&mut command);
    }
    let name = command.get_program().to_string_lossy().into_owned();
    let program = std::env::current_exe().or_fail("cannot find this program", "report this")?;
    exec::program(&mut command, program.as_os_str());
    command.arg("serve").arg("--launched");
    command.arg("--store").arg(&args.store);
    command.arg("--mount").arg(mount);
    command.args(settings.flags(|key| key != "nodes"));
    let random = || u128::from_be_bytes(forebay_server::superblock::random_id());
    let secret = format!("{:032x}{:032x}", random(), random());
    let mut child = command
        .env("FOREBAY_SECRET", secret)
        .env(RUN_VARIABLE, run_name())
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|e| missing(&name, &e))?;
    let Some(output) = child.stdout.take() else {
        return Err(Failure::new("the launcher has no output", "report this"));
    };
    let ended = super::process_handle(child.id())?;
    let mut launched = LaunchedServers {
        child,
        reports: Reports::read(ended, output)?,
        locations: Vec::new(),
        name,
        launcher,
        program: program.display().to_string(),
        servers,
        hosts: hosts.unwrap_or_default(),
        limit: settings.values.stop_limit + LAUNCHER_MARGIN,
    };
    launched.ready(settings.values.start_limit + LAUNCHER_MARGIN)?;
    Ok(Box::new(launched))
}

/// Whether all servers will run on one host.
fn on_one_host(launcher: Launcher, hosts: Option<&[Host]>) -> bool {
    match (launcher, hosts) {
        (Launcher::Srun, _) => job_nodes().is_ok_and(|nodes| nodes.trim() == "1"),
        (_, None) => true,
        (_, Some(hosts)) => hosts.windows(2).all(|pair| pair[0].name == pair[1].name),
    }
}

/// Servers of one host talk over shared memory. Without a word the MPI opens ports for those of other hosts all the same, OpenMPI
/// on all addresses: every user of the network could take a server's descriptors by connecting to them. Who has chosen
/// a transport knows better.
fn within_one_host(command: &mut Command) {
    let choices: &[_] = match open_mpi() {
        true => &[("OMPI_MCA_pml", "ob1"), ("OMPI_MCA_btl", "self,vader")],
        // The transport of MPICH where it is built for UCX, as Debian's is.
        false => &[("UCX_TLS", "sm,self")],
    };
    if choices
        .iter()
        .all(|(name, _)| std::env::var_os(name).is_none())
    {
        command.envs(choices.iter().copied());
    }
}

fn missing(name: &str, error: &std::io::Error) -> Failure {
    Failure::new(
        format!("cannot start {name}: {error}"),
        "install OpenMPI or MPICH, name the program with --mpirun, or leave out --hosts for servers on this machine",
    )
}

fn open_mpi() -> bool {
    transport::library().is_some_and(|library| library.contains("Open MPI"))
}

/// What the launcher of this program's MPI may be called.
fn names() -> &'static [&'static str] {
    match open_mpi() {
        true => &["mpirun.openmpi", "mpirun"],
        false => &["mpirun.mpich", "mpiexec.hydra", "mpirun"],
    }
}

/// The first of them that there is.
fn installed_launcher() -> Option<PathBuf> {
    names().iter().map(PathBuf::from).find(|name| found(name))
}

/// Whether `--launcher mpirun` finds an `mpirun`.
pub fn has_mpirun() -> bool {
    installed_launcher().is_some()
}

fn mpirun(args: &RunArgs, hosts: Option<&[Host]>, servers: u32) -> Result<Command> {
    let open = open_mpi();
    let program = match &args.mpirun {
        Some(program) => program.clone(),
        None => installed_launcher().ok_or_else(|| {
            missing(
                names()[0],
                &std::io::Error::new(std::io::ErrorKind::NotFound, "not in PATH"),
            )
        })?,
    };
    let mut command = Command::new(program);
    command.arg("-n").arg(servers.to_string());
    if let Some(hosts) = hosts {
        let list: Vec<_> = hosts
            .iter()
            .map(|h| format!("{}:{}", h.name, h.servers))
            .collect();
        command.arg(if open { "--host" } else { "-hosts" });
        command.arg(list.join(","));
        // OpenMPI would cut a full name off at its first dot, and look for what is left of it.
        if open && hosts.iter().any(|h| h.name.contains('.')) {
            command.args(["--mca", "orte_keep_fqdn_hostnames", "1"]);
        }
        // The other hosts connect to this one. Hydra would tell them the name that this machine has for itself.
        if let Some(own) = hosts.iter().find(|h| h.is_here).filter(|_| !open) {
            command.arg("-localhost").arg(&own.name);
        }
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

/// The hosts of the file on which no server has begun. Hosts may call themselves otherwise than the file does: those are left out if
/// any host has begun under another name.
fn missing_hosts(hosts: &[Host], begun: &[String]) -> Vec<String> {
    let short = |name: &str| name.split('.').next().unwrap_or_default().to_string();
    let known: Vec<String> = hosts.iter().map(|h| short(&h.name)).collect();
    if begun.iter().any(|name| !known.contains(&short(name))) {
        return Vec::new();
    }
    let begun: Vec<String> = begun.iter().map(|name| short(name)).collect();
    let missing = hosts.iter().filter(|h| !begun.contains(&short(&h.name)));
    missing.map(|h| h.name.clone()).collect()
}

/// Whether PATH has the program.
fn found(name: &std::path::Path) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(name).is_file())
}

/// How many nodes the Slurm job has.
fn job_nodes() -> Result<String> {
    let nodes = std::env::var("SLURM_JOB_NUM_NODES").or_else(|_| std::env::var("SLURM_NNODES"));
    nodes.map_err(|_| {
        Failure::usage(
            "this is no Slurm job",
            "run it in a batch script or below salloc, or choose another --launcher",
        )
    })
}

/// One server on each node of the job, beside the command's own steps.
fn srun(nodes: &str) -> Command {
    let mut command = Command::new("srun");
    command.args(["--overlap", "--kill-on-bad-exit=0"]);
    command.args(["--input=0", "--ntasks-per-node=1", "--mem=0"]);
    // The servers need what is in the environment, also in a job that was submitted with `--export=NONE`.
    command.arg("--export=ALL");
    command.arg(format!("--nodes={nodes}"));
    command.arg(format!("--ntasks={nodes}"));
    // A server is not to be tied to one core. In the environment, as the flag is an error to clusters that never bind.
    command.env("SLURM_CPU_BIND", "none");
    // The cluster's default may be another MPI's, or none.
    if std::env::var_os("SLURM_MPI_TYPE").is_none() {
        command.arg(if open_mpi() {
            "--mpi=pmix"
        } else {
            "--mpi=pmi2"
        });
    }
    command.args(["--job-name=forebay", "--quiet"]);
    command
}

impl LaunchedServers {
    fn ready(&mut self, limit: Duration) -> Result {
        let end = Instant::now() + limit;
        let mut begun = Vec::new();
        loop {
            match self.reports.next(end) {
                Ok(ServerReport::AllReady(locations)) => {
                    self.locations = locations;
                    return Ok(());
                }
                Ok(ServerReport::Begun { host }) => begun.push(host),
                Ok(ServerReport::CannotRun { host, said }) => {
                    return Err(self.cannot_run(host, &said));
                }
                Ok(ServerReport::Failed(failed)) if failed.for_others => {
                    return Err(self.not_together(begun, limit - LAUNCHER_MARGIN));
                }
                Ok(ServerReport::Failed(failed)) => {
                    return Err(self
                        .reports
                        .wait_for_root_cause(failed.failure, failed.follows));
                }
                Ok(_) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Failure::new(
                        format!("{} ended before the servers were ready", self.name),
                        "see what it says above, and the log in each store",
                    ));
                }
                Err(RecvTimeoutError::Timeout) => {
                    return Err(self.not_together(begun, limit));
                }
            }
        }
    }

    /// The program does not run on a host, and perhaps on more.
    fn cannot_run(&mut self, host: String, said: &str) -> Failure {
        let next = format!(
            "put the same program, built for the same MPI, at the same path on every host; `ssh {host} {} version` must end well",
            self.program
        );
        Failure::new(
            format!(
                "on {}: {} cannot be run ({})",
                self.reports.hosts_that_cannot_run(host).join(", "),
                self.program,
                escaped(said.trim())
            ),
            next,
        )
    }

    /// The servers that began did not find the others.
    fn not_together(&self, mut begun: Vec<String>, limit: Duration) -> Failure {
        begun.sort();
        let seconds = limit.as_secs();
        let begun_on = match &begun[..] {
            [] => String::from("no host"),
            hosts => hosts.join(", "),
        };
        if begun.len() < self.servers as usize {
            let missing = missing_hosts(&self.hosts, &begun);
            let (where_from, look) = match missing.first() {
                None => (String::new(), String::from("look at the log in each store")),
                Some(first) => (
                    format!(", none on {}", missing.join(", ")),
                    format!(
                        "look whether it runs there: `ssh {first} {} version`",
                        self.program
                    ),
                ),
            };
            return Failure::new(
                format!(
                    "{} of {} servers have begun in {seconds} s, on {begun_on}{where_from}",
                    begun.len(),
                    self.servers
                ),
                format!("{look}; and at what {} may say above", self.name),
            );
        }
        Failure::new(
            format!(
                "the servers have begun, on {begun_on}, and did not find each other in {seconds} s"
            ),
            format!(
                "{UNREACHABLE_HINT}; see the log in each store; many hosts, or slow disks, may need a larger --start-limit"
            ),
        )
    }

    /// Closes the lifeline and waits for the launcher; false if it had to be ended though no server has said that it stopped.
    fn end(&mut self, limit: Duration) -> bool {
        if let Some(mut input) = self.child.stdin.take() {
            // Fails only if the launcher has ended.
            let _ = input.write_all(COMMAND_OVER);
        }
        let mut end = Instant::now() + limit;
        let (mut asked, mut stopped) = (false, false);
        loop {
            if !asked && self.reports.any(|r| matches!(r, ServerReport::Died(_))) {
                asked = true;
                if !self.ask_to_stop(limit) {
                    // It passes the signal on to every server that it reaches; to them it means that the command is over.
                    self.signal(Signal::USR1);
                }
            }
            if !stopped && self.reports.any(|r| matches!(r, ServerReport::Stopped(_))) {
                stopped = true;
                if !self.servers_wait_for_steps() {
                    end = end.min(Instant::now() + STOPPED_LAUNCHER_LIMIT);
                }
            }
            match self.child.try_wait() {
                Ok(Some(_)) => return true,
                Err(_) => return false,
                Ok(None) if Instant::now() >= end => {
                    self.end_launcher(if stopped {
                        TERMINATED_LAUNCHER_LIMIT
                    } else {
                        LAUNCHER_MARGIN
                    });
                    return stopped;
                }
                Ok(None) => self.reports.wait_for_news(end),
            }
        }
    }

    /// Whether servers that have stopped keep their mounts until the command's Slurm steps have ended, up to their own limit. Ended
    /// before, they would leave bare directories to tasks that still write.
    fn servers_wait_for_steps(&self) -> bool {
        let early = |report: &ServerReport| matches!(report, ServerReport::Stopping { .. });
        self.launcher == Launcher::Srun && self.reports.any(early)
    }

    fn signal(&self, signal: Signal) {
        // Fails only if it has ended.
        let _ = rustix::process::kill_process(Pid::from_child(&self.child), signal);
    }

    /// Asked to end, a launcher ends its servers first; it is killed if that takes longer than `limit`, with what it has started to reach
    /// other hosts.
    fn end_launcher(&mut self, limit: Duration) {
        self.signal(Signal::TERM);
        // Whether it has ended does not matter: what is left is killed.
        let _ = wait_for_child(&mut self.child, limit);
        // Servers end by themselves, and those that watch their mounts last.
        let mut below = forebay_node::processes::below(self.child.id(), &[]);
        below.retain(|pid| !forebay_node::processes::runs_this_program(*pid));
        // Fails only if it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
        for pid in below.iter().filter_map(|pid| Pid::from_raw(*pid as i32)) {
            // The same.
            let _ = rustix::process::kill_process(pid, Signal::KILL);
        }
    }

    /// Asks a living server on this machine to stop, which tells all others; false if there is none.
    fn ask_to_stop(&self, limit: Duration) -> bool {
        let mounts = mount_table::all().unwrap_or_default();
        for point in self.mounts() {
            let store = mount_table::at(&mounts, &point).and_then(mount_table::store);
            if let Some(Ok(mut client)) = store.map(|store| ControlClient::connect(&store)) {
                // It may have heard otherwise, and be gone before it answers.
                let _ = client.stop(true, limit);
                return true;
            }
        }
        false
    }

    /// Detaches what servers that died have left on this machine.
    fn detach(&self) {
        for point in self.mounts() {
            let all = mount_table::all().unwrap_or_default();
            if mount_table::at(&all, &point).is_some_and(|m| mount_table::store(m).is_some())
                && let Err(failure) = mount_table::detach(&point)
            {
                print_error_line(format!("forebay: {failure}"));
            }
        }
    }
}

impl Servers for LaunchedServers {
    fn mounts(&self) -> Vec<PathBuf> {
        let own = host();
        let here = self
            .locations
            .iter()
            .filter(|location| location.host == own);
        here.map(|location| location.mount.clone()).collect()
    }

    fn ended(&self) -> Result<Vec<OwnedFd>> {
        let launcher = super::process_handle(self.child.id())?.into();
        Ok(vec![launcher, self.reports.stopping()?])
    }

    fn stop(mut self: Box<Self>) -> Result {
        let limit = self.limit;
        let ended = self.end(limit);
        self.detach();
        self.reports.ending(&self.locations)?;
        match ended {
            true => Ok(()),
            false => Err(Failure::new(
                format!("{} did not end by itself and was ended", self.name),
                "see the log in each store",
            )),
        }
    }
}

impl Drop for LaunchedServers {
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            // The servers are not ready, so there is nothing to commit; some launchers wait for ever for those that gave up.
            self.end(FAILED_START_LIMIT);
        }
    }
}
