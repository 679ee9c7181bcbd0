//! `forebay run`: starts a service, runs a command with it, stops it, and ends as the command did.
//!
//! ```text
//!  run --+-- servers: one process (embedded), or a launcher (mpirun, srun) and what that starts
//!        +-- guard ---- command ---- whatever the command starts
//! ```
//!
//! Invariants: the command starts when every mount answers and everything is staged in; the service stops when the command,
//! and all that it started, has ended and everything is staged out; as soon as any server stops before that, the command is ended;
//! however `run` ends, the guard ends the command, and the servers commit, unmount and end.
mod exec;
pub mod guard;
mod hosts;
mod launch;
mod reports;
mod signals;
mod staging;

pub use launch::has_mpirun;

use crate::args::{Launcher, RunArgs};
use crate::config_file;
use crate::output::print_error_line;
use crate::progress::start_server;
use crate::settings::{ResolvedSettings, Source};
use forebay_client::link::SOCKET_VARIABLE;
use forebay_client::team_ioctl;
use forebay_node::failure::{Context, FAILED, Failure, Result};
use forebay_node::mount_table;
use forebay_node::process_handle::ProcessHandle;
use forebay_node::server_process::ServerProcess;
use forebay_node::transport;
pub use guard::Guard;
pub use signals::Signals;
use staging::Staging;
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

/// A running service, however it was started.
trait Servers {
    /// The mounts on this machine, by member.
    fn mounts(&self) -> Vec<PathBuf>;
    /// Handles that become readable when the service ends, or begins to.
    fn ended(&self) -> Result<Vec<OwnedFd>>;
    /// Commits, unmounts, ends.
    fn stop(self: Box<Self>) -> Result;
}

/// Runs the subcommand.
///
/// # Errors
/// Wrong settings (2); a service that does not start or stop (1); the command's own exit code.
pub fn run(args: &RunArgs, config: Option<&Path>) -> Result {
    let settings = config_file::resolve(config, &args.settings)?;
    let mount = mount_point(args)?;
    let staging = Staging::plan(args, mount)?;
    let signals = Signals::catch()?;
    let servers = start(args, mount, &settings)?;
    let outcome = work(args, &staging, &*servers, &signals);
    let stopped = servers.stop();
    let code = match outcome {
        Ok(Some(0)) => return stopped,
        // What ended the service says more.
        Ok(None) => {
            return stopped.and(Err(Failure::new(
                "the service ended while the command ran, so the command was ended",
                "start again on the same store: what was committed is in it",
            )));
        }
        Ok(Some(code)) => code,
        Err(failure) => {
            print_error_line(format!("forebay: {failure}"));
            failure.code
        }
    };
    if let Err(failure) = stopped {
        print_error_line(format!("forebay: {failure}"));
    }
    Err(Failure::silent_with(code))
}

/// Stages in, runs the command, stages out; the exit code, `None` if the command was ended because the service had.
fn work(
    args: &RunArgs,
    staging: &Staging,
    servers: &dyn Servers,
    signals: &Signals,
) -> Result<Option<u8>> {
    if !(staging.into.is_empty() && staging.out.is_empty()) {
        staging::store(&servers.mounts())?;
    }
    let copied = staging.copy(true, servers, &signals.cancels());
    signals.pass_to_nobody();
    copied.map_err(|failure| Failure {
        code: signals.code().unwrap_or(FAILED),
        text: format!("stage in: {failure}; the command was not started"),
    })?;
    let code = command(args, servers, signals)?;
    let Some(code) = code.filter(|_| !staging.out.is_empty()) else {
        return Ok(code);
    };
    let next = "what was committed stays in the store: `forebay run` with the same --stage-out goes on, with `true` as its command";
    if signals.code().is_some() && code != 0 {
        print_error_line(format!(
            "forebay: nothing is staged out, because a signal ended the command; {next}"
        ));
        return Ok(Some(code));
    }
    let copied = staging.copy(false, servers, &signals.cancels());
    signals.pass_to_nobody();
    Ok(Some(match copied {
        Ok(()) => code,
        Err(failure) => {
            print_error_line(format!("forebay: stage out: {failure}; {next}"));
            match code {
                0 => signals.code().unwrap_or(FAILED),
                code => code,
            }
        }
    }))
}

/// Where is mounted; `None`: nowhere, by the user's wish or because this machine cannot.
fn mount_point(args: &RunArgs) -> Result<Option<&Path>> {
    let embedded = launcher(args) == Launcher::Embedded;
    let Some(mount) = args.mount.as_deref() else {
        return match embedded {
            true => Ok(None),
            false => Err(Failure::usage(
                "--no-mount is for servers in one process",
                "name a --mount, or say `--launcher embedded`",
            )),
        };
    };
    match mount_table::need_fuse() {
        Ok(()) => Ok(Some(mount)),
        Err(_) if embedded && args.stage_in.is_empty() && args.stage_out.is_empty() => {
            print_error_line(format!(
                "forebay: warning: this machine has no /dev/fuse, so nothing is mounted on {}: what is written there is not in the \
                 store; only programs that use Forebay's libraries reach it (FOREBAY_SOCKET)",
                mount.display()
            ));
            Ok(None)
        }
        Err(failure) => Err(failure),
    }
}

/// Which launcher, if nobody says: mpirun for hosts, srun in a Slurm job, else none.
fn launcher(args: &RunArgs) -> Launcher {
    let slurm = std::env::var_os("SLURM_JOB_ID").is_some();
    match args.launcher {
        Some(launcher) => launcher,
        None if args.hosts.is_some() => Launcher::Mpirun,
        None if slurm => Launcher::Srun,
        None => Launcher::Embedded,
    }
}

fn start(
    args: &RunArgs,
    mount: Option<&Path>,
    settings: &ResolvedSettings,
) -> Result<Box<dyn Servers>> {
    let launcher = launcher(args);
    if args.hosts.is_some() && launcher != Launcher::Mpirun {
        return Err(Failure::usage(
            "--hosts is for mpirun",
            "leave out --hosts, or say `--launcher mpirun`",
        ));
    }
    if launcher == Launcher::Embedded {
        return Embedded::start(args, mount, settings);
    }
    let Some(mount) = mount else {
        return Err(Failure::new("there is no mount point", "report this"));
    };
    let hosts = args.hosts.as_deref().map(hosts::read).transpose()?;
    let nodes = u32::from(settings.values.service.nodes);
    let servers = match &hosts {
        Some(hosts) => hosts.iter().map(|h| h.servers).sum(),
        None => nodes,
    };
    if nodes != servers && settings.source("nodes") != Source::Default {
        return Err(Failure::usage(
            format!("--hosts names places for {servers} servers, and --nodes says {nodes}"),
            "leave out --nodes",
        ));
    }
    match transport::IS_BUILT_IN {
        true => launch::start(args, mount, settings, launcher, hosts, servers),
        false => Err(crate::subcommands::serve::no_mpi()),
    }
}

/// A handle of process `pid`.
fn process_handle(pid: u32) -> Result<ProcessHandle> {
    ProcessHandle::open(pid).or_fail("cannot follow the service", "raise the limit on open files")
}

/// Runs the command to its end; its exit code, `None` if it was ended because the service had.
fn command(args: &RunArgs, servers: &dyn Servers, signals: &Signals) -> Result<Option<u8>> {
    let mounts = servers.mounts();
    let all = mounts.iter().map(|m| m.as_os_str().to_owned());
    let joined = all.collect::<Vec<OsString>>().join(&OsString::from(":"));
    // The service is this run's, so no other job has a team of this number.
    let team = (team_ioctl::TEAM_VARIABLE, OsString::from("1"));
    let mut environment = vec![team];
    if let Some(first) = mounts.first() {
        environment.push((team_ioctl::MOUNTS_VARIABLE, joined));
        environment.push(("FOREBAY_MOUNT", first.as_os_str().to_owned()));
    }
    // The servers of one machine may have several stores; the path of one is the same on all machines.
    if !args.store.to_string_lossy().contains("{rank}") {
        let store = mount_table::absolute(&args.store)?;
        environment.push((SOCKET_VARIABLE, store.into_os_string()));
    }
    let guard = Guard::start(&args.command, &environment)?;
    let cut = guard.end_with(servers.ended()?)?;
    signals.pass_to(guard.pid());
    let code = guard.wait();
    signals.pass_to_nobody();
    Ok(match cut.load(Ordering::SeqCst) {
        true => None,
        false => Some(code?),
    })
}

/// All servers in one process on this machine.
struct Embedded {
    server: ServerProcess,
    limit: std::time::Duration,
}

impl Embedded {
    fn start(
        args: &RunArgs,
        mount: Option<&Path>,
        settings: &ResolvedSettings,
    ) -> Result<Box<dyn Servers>> {
        // One process has one store; what mpirun calls ranks are its nodes.
        let whole = |path: &Path| path.to_string_lossy().replace("{rank}", "{node}");
        if whole(&args.store).contains("{node}") {
            return Err(Failure::usage(
                format!(
                    "{}: servers in one process share one store",
                    args.store.display()
                ),
                "name one directory, or say `--launcher mpirun`",
            ));
        }
        let mut spec = match mount {
            Some(mount) => settings.spec(&args.store, Path::new(&whole(mount)))?,
            None => settings.unmounted_spec(&args.store)?,
        };
        spec.with_parent = true;
        Ok(Box::new(Embedded {
            server: start_server(&spec, settings.values.start_limit)?,
            limit: settings.values.stop_limit,
        }))
    }
}

impl Servers for Embedded {
    fn mounts(&self) -> Vec<PathBuf> {
        self.server.spec().mounts.clone()
    }

    fn ended(&self) -> Result<Vec<OwnedFd>> {
        Ok(vec![process_handle(self.server.pid())?.into()])
    }

    fn stop(self: Box<Self>) -> Result {
        let stopped = self.server.stop(self.limit);
        stopped.map_err(|failure| failure.with_code(FAILED))
    }
}
