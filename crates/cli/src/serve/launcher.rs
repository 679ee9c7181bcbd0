//! What started a server of an MPI job: the launcher, and the `forebay run` behind it.
//!
//! Invariant: once it has ended the server stops; while the server starts, that or a signal ends it at once, for then there is
//! nothing to commit.
use super::events::{self, Event};
use crate::fail::{Context, FAILED, Failure, Result};
use rustix::event::{PollFd, PollFlags};
use rustix::process::{Pid, PidfdFlags};
use std::io::Read;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};

/// `PID@HOST` of the `forebay run` that started the launcher.
pub const RUN: &str = "FOREBAY_RUN";

/// Who may use the mount of this server even when it is dead: the `run` behind the launcher if that is on this machine, else
/// the launcher's job. Slurm ends all processes of a step with it, so there nobody is waited for.
pub(super) fn users(launched: bool) -> Vec<u32> {
    let launcher = super::parent();
    let slurm = |pid: &u32| {
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm"));
        name.is_ok_and(|name| name.starts_with("slurm"))
    };
    if launcher.iter().any(slurm) {
        return Vec::new();
    }
    // A launcher may hang when servers have died; `run` ends it then.
    let run = launched.then(starter).flatten();
    run.map_or(launcher, |run| vec![run])
}

/// The `forebay run` that started the launcher, if it is on this machine.
fn starter() -> Option<u32> {
    let told = std::env::var(RUN).ok()?;
    let (pid, host) = told.split_once('@')?;
    pid.parse().ok().filter(|_| host == super::host())
}

/// Turns signals, and the end of what started the launcher, into events; before `started`, into the end of the process.
pub(super) fn follow(
    events: &mpsc::Sender<Event>,
    started: &Arc<AtomicBool>,
    launched: bool,
    rank: u32,
) -> Result {
    let stop = {
        let (events, started) = (events.clone(), started.clone());
        move |event: Event, why: &str| {
            if !started.load(Ordering::SeqCst) {
                tracing::error!("{why} while starting: ended at once");
                std::process::exit(i32::from(FAILED));
            }
            // Fails only if nobody listens any more, and then it stops already.
            let _ = events.send(event);
        }
    };
    let (sender, signals) = mpsc::channel();
    events::signals(sender)?;
    let next = "raise the limit on processes";
    let caught = stop.clone();
    std::thread::Builder::new()
        .name("signal events".into())
        .spawn(move || {
            for event in signals {
                caught(event, "a signal came");
            }
        })
        .or_fail("cannot start the thread for signals", next)?;
    let over = "the run has ended";
    if let Some(run) = starter().filter(|_| launched) {
        let pid = Pid::from_raw(run as i32).ok_or_else(|| Failure::new(over, "start again"))?;
        let run = rustix::process::pidfd_open(pid, PidfdFlags::empty())
            .or_fail("cannot follow the run", "start again")?;
        let stop = stop.clone();
        std::thread::Builder::new()
            .name("follow the run".into())
            .spawn(move || {
                // Readable once the process has ended.
                let mut poll = [PollFd::new(&run, PollFlags::IN)];
                while rustix::event::poll(&mut poll, None).is_err() {}
                stop(Event::Told(over.into()), over);
            })
            .or_fail("cannot start the thread that follows the run", next)?;
    }
    if !launched || rank != 0 {
        return Ok(());
    }
    std::thread::Builder::new()
        .name("input".into())
        .spawn(move || {
            // However it ends, it has ended.
            let _ = std::io::stdin().lock().read_to_end(&mut Vec::new());
            stop(Event::Told(over.into()), over);
        })
        .or_fail("cannot start the thread for standard input", next)?;
    Ok(())
}
