//! The processes that started a server of a job: the launcher, and the `forebay run` that started that.
//!
//! Invariant: the server stops once they have ended. During the start the process ends at once, when the launcher ends or on a
//! signal: nothing needs committing yet.
use crate::events::{self, ServerEvent, StopCause};
use crate::failure::{Context, FAILED, Result};
use crate::process_handle::ProcessHandle;
use crate::threads;
use signal_hook::consts::SIGUSR1;
use std::io::Read;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

/// The name ([`run_name`]) of the `forebay run` that started the launcher.
pub const RUN_VARIABLE: &str = "FOREBAY_RUN";

/// What this process is called if it is a `forebay run`: `PID@HOST`.
pub fn run_name() -> String {
    format!("{}@{}", std::process::id(), crate::spec::host())
}

/// Who may use the mount of this server even when it is dead: the `run` behind the launcher if that is on this machine, else
/// the launcher's job. Slurm ends all processes of a step with it, so there nobody is waited for.
pub(super) fn mount_users(launched: bool) -> Vec<u32> {
    let launcher: Vec<u32> = crate::processes::parent().into_iter().collect();
    let slurm = |pid: &u32| {
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm"));
        name.is_ok_and(|name| name.starts_with("slurm"))
    };
    if launcher.iter().any(slurm) {
        return Vec::new();
    }
    // A launcher may hang when servers have died; `run` ends it then.
    let run = launched.then(run_process).flatten();
    run.map_or(launcher, |run| vec![run])
}

/// The `forebay run` that started the launcher, if it is on this machine.
pub(super) fn run_process() -> Option<u32> {
    let told = std::env::var(RUN_VARIABLE).ok()?;
    let (pid, host) = told.split_once('@')?;
    pid.parse().ok().filter(|_| host == crate::spec::host())
}

/// What `run` writes to the servers' standard input, before it ends it, when its command has ended.
pub const COMMAND_OVER: &[u8] = b"over\n";

/// Turns signals, and the end of what started the launcher, into events; before `started`, into the end of the process.
///
/// For the process that gets standard input: what is disconnected once that has ended.
pub(super) fn events_from_signals(
    events: &mpsc::Sender<ServerEvent>,
    started: &Arc<AtomicBool>,
    launched: bool,
    rank: u32,
) -> Result<Option<mpsc::Receiver<()>>> {
    let stop = {
        let (events, started) = (events.clone(), started.clone());
        move |event: ServerEvent, why: &str| {
            if !started.load(Ordering::SeqCst) {
                tracing::error!("{why} while starting: ended at once");
                std::process::exit(i32::from(FAILED));
            }
            // Fails only if nobody listens any more, and then it stops already.
            let _ = events.send(event);
        }
    };
    let caught = stop.clone();
    events::signals(move |event| caught(event, "a signal came"))?;
    if launched {
        // `run` has its launcher send SIGUSR1 to all servers where the first one, which gets standard input, has died.
        let stop = stop.clone();
        threads::on_signals(&[SIGUSR1], move |_| {
            stop(stop_event(COMMAND_ENDED, true), COMMAND_ENDED);
        })?;
    }
    let ended = "the run has ended";
    if let Some(run) = run_process().filter(|_| launched) {
        let run = ProcessHandle::open(run).or_fail("cannot follow the run", "start again")?;
        let stop = stop.clone();
        threads::spawn(
            "follow the run",
            "the thread that follows the run",
            move || {
                while !run.wait(Duration::MAX) {}
                // Its guard may still be ending the command.
                stop(stop_event(ended, false), ended);
            },
        )?;
    }
    if !launched || rank != 0 {
        return Ok(None);
    }
    let (lifeline, input) = mpsc::channel();
    threads::spawn("input", "the thread for standard input", move || {
        let mut said = Vec::new();
        // However it ends, it has ended.
        let _ = std::io::stdin().lock().read_to_end(&mut said);
        drop(lifeline);
        let over = said == COMMAND_OVER;
        let why = if over { COMMAND_ENDED } else { ended };
        stop(stop_event(why, over), why);
    })?;
    Ok(Some(input))
}

const COMMAND_ENDED: &str = "the command has ended";

/// Another process wants the server to stop; `over`: the programs that the service was there for have ended.
pub(super) fn stop_event(why: impl Into<String>, over: bool) -> ServerEvent {
    ServerEvent::Stop(StopCause {
        over,
        ..StopCause::for_reason(why)
    })
}
