//! The process between `run` and its command. However `run` ends, nothing of the command stays behind.
//!
//! The guard is the command's parent, and orphans below it become its children (`PR_SET_CHILD_SUBREAPER`). When `run` ends first,
//! or once the command has ended, it kills every process below itself.
use super::signals::forward_signal;
use forebay_node::failure::{Context, Failure, Result};
use forebay_node::process_handle::{ProcessHandle, wait_for_any};
use forebay_node::processes;
use forebay_node::slurm_steps::{self, COMMAND_VARIABLE, OrphanedTasks};
use forebay_node::start::launcher::run_name;
use forebay_node::threads::spawn;
use rustix::event::{PollFd, PollFlags};
use rustix::process::{Pid, Signal};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The guard, as `run` sees it. Dropping it has the command killed.
pub struct Guard {
    child: Child,
    /// What ran below `run` before the command: the service, and what watches it.
    spared: Vec<u32>,
    /// When the guard began.
    since: Option<u64>,
}

impl Guard {
    /// Starts `command` under a guard; `environment` is for the command. What runs already goes on without it.
    ///
    /// # Errors
    /// If there is no process to be had.
    pub fn start(command: &[OsString], environment: &[(&str, OsString)]) -> Result<Guard> {
        adopt()?;
        let spared = processes::below(std::process::id(), &[]);
        let child = Command::new("/proc/self/exe")
            .arg("__guard")
            .arg(std::process::id().to_string())
            .arg("--")
            .args(command)
            .envs(environment.iter().map(|(name, value)| (*name, value)))
            .env(COMMAND_VARIABLE, run_name())
            .spawn()
            .or_fail(
                "cannot start a process for the command",
                "raise the limit on processes (ulimit -u)",
            )?;
        Ok(Guard {
            since: processes::start_ticks(child.id()),
            child,
            spared,
        })
    }

    /// The guard's process: signals to it are signals to the command.
    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Has the command, and all that it started, killed when one of `signs` becomes readable. Then the flag is set.
    ///
    /// # Errors
    /// If the command cannot be followed.
    pub fn end_with(&self, signs: Vec<OwnedFd>) -> Result<Arc<AtomicBool>> {
        let guard = super::process_handle(self.child.id())?;
        let ended = Arc::new(AtomicBool::new(false));
        let flag = ended.clone();
        spawn("follow the service", "a thread", move || {
            let mut poll = vec![PollFd::new(&guard, PollFlags::IN)];
            poll.extend(signs.iter().map(|sign| PollFd::new(sign, PollFlags::IN)));
            while rustix::event::poll(&mut poll, None).is_err() {}
            // The guard's end is the command's; what becomes of the service later is no matter.
            if poll[0].revents().is_empty() {
                flag.store(true, Ordering::SeqCst);
                // With the guard gone its processes are below this one, and dropping `Guard` kills them.
                let _ = guard.signal(Signal::KILL);
            }
        })?;
        Ok(ended)
    }

    /// Waits for the command; its exit code, 128 + n if signal n ended it.
    ///
    /// # Errors
    /// If it cannot be waited for.
    pub fn wait(mut self) -> Result<u8> {
        let status = self.child.wait();
        Ok(code(
            status.or_fail("cannot wait for the command", "report this")?,
        ))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // If the guard itself was killed, what it guarded is now below this process.
        end_all_below(std::process::id(), &self.spared, self.since, run_name());
        // Fails only if it was waited for already.
        let _ = self.child.wait();
    }
}

/// Orphans below this process become its children.
fn adopt() -> Result {
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
        .or_fail("cannot adopt orphans", "report this")
}

/// The exit code a shell would give.
fn code(status: std::process::ExitStatus) -> u8 {
    let code = match (status.code(), status.signal()) {
        (Some(code), _) => code,
        (None, Some(signal)) => 128 + signal,
        (None, None) => 1,
    };
    code as u8
}

/// The hidden subcommand: runs the command for the process `parent`, and ends with the command's exit code.
///
/// # Errors
/// If the command cannot be started: exit code 127 if there is none, 126 if it is not allowed.
pub fn run(parent: u32, command: &[OsString]) -> Result {
    let Some(program) = command.first() else {
        return Err(Failure::new(
            "this is an internal command",
            "use `forebay run`",
        ));
    };
    adopt()?;
    end_with_parent(parent)?;
    // Signals of the terminal reach the command without the guard, which ends when the command does.
    use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM, SIGHUP, SIGQUIT])
        .or_fail("cannot catch signals", "report this")?;
    let started = Command::new(program).args(&command[1..]).spawn();
    let mut child = started.map_err(|e| {
        let missing = e.kind() == std::io::ErrorKind::NotFound;
        let failure = Failure::new(
            format!("cannot start {}: {e}", program.to_string_lossy()),
            "give a program and its arguments after --",
        );
        failure.with_code(if missing { 127 } else { 126 })
    })?;
    let pid = Pid::from_child(&child);
    spawn("signals", "a thread", move || {
        signals
            .forever()
            .for_each(|signal| forward_signal(signal, pid));
    })?;
    let status = child
        .wait()
        .or_fail("cannot wait for the command", "report this")?;
    end_command();
    match code(status) {
        0 => Ok(()),
        code => Err(Failure::silent_with(code)),
    }
}

/// Ends everything below this process, and this process, when `parent` ends.
fn end_with_parent(parent: u32) -> Result {
    let next = "report this";
    let handle = ProcessHandle::open(parent).or_fail("cannot follow the starting process", next)?;
    if forebay_node::processes::parent() != Some(parent) {
        return Err(Failure::new(
            "the starting process has ended",
            "start again",
        ));
    }
    let watch = move || {
        while !handle.wait(Duration::MAX) {}
        end_command();
        std::process::exit(i32::from(forebay_node::failure::FAILED));
    };
    spawn("follow", "a thread", watch)
}

/// In the guard: ends everything below it.
fn end_command() {
    let own = std::process::id();
    let command = std::env::var(COMMAND_VARIABLE).unwrap_or_default();
    end_all_below(own, &[], processes::start_ticks(own), command);
}

/// How long `srun` may take to end the tasks of its step.
const STEP_END_LIMIT: Duration = Duration::from_secs(5);

/// Processes that were killed are looked for again after this long, though none has ended.
const RESCAN_LIMIT: Duration = Duration::from_millis(100);

/// Kills every process below `top`, but for `spared` and what is below them.
///
/// `srun` is asked to end first: it then kills the tasks of its step on all hosts. Killed, because it does not end, it leaves them to run
/// until the job's end, and to write below a mount that has gone by then: those on this machine, known by the name of their `command`, are
/// killed here, the others by the servers of theirs. One that ends while its step is on its way does not wait for it: the steps on this
/// machine that began at `since` or later are waited for here.
fn end_all_below(top: u32, spared: &[u32], since: Option<u64>, command: String) {
    let begun = Instant::now();
    let mut asked = BTreeSet::new();
    // A process may start another between the look and the kill; so look until there is none.
    while begun.elapsed() < STEP_END_LIMIT * 2 {
        let below = processes::below(top, spared);
        if below.is_empty() {
            break;
        }
        for pid in below.iter().copied() {
            let step = begun.elapsed() < STEP_END_LIMIT
                && processes::of_thread(pid).is_some_and(|(_, name)| name == "srun");
            let signal = match step {
                true if !asked.insert(pid) => continue,
                true => Signal::TERM,
                false => Signal::KILL,
            };
            if let Some(pid) = Pid::from_raw(pid as i32) {
                // Fails only if it has ended.
                let _ = rustix::process::kill_process(pid, signal);
            }
        }
        wait_for_any(&below, &[], RESCAN_LIMIT);
    }
    if begun.elapsed() >= STEP_END_LIMIT * 2 {
        tracing::warn!("processes of the command do not end");
    }
    if !asked.is_empty() {
        let kill_from = Instant::now();
        let orphaned = OrphanedTasks { command, kill_from };
        slurm_steps::wait_for_launched(since, Some(&orphaned), begun + STEP_END_LIMIT * 3);
    }
}
