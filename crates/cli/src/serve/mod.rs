//! The server process: opens the store, mounts, answers the control socket, and stops cleanly.
//!
//! Invariants: mount points are made ready before the first mount starts, and nothing below a mount of this process is
//! touched after that; starting and stopping each end within a limit, with a word about where they hung.
mod desk;
mod events;
mod log;
mod points;
mod spec;
mod stage;
mod watchdog;

pub use spec::{Report, Spec};

use crate::control::{Answer, Listener};
use crate::fail::{Context, Failure, Result};
use crate::mount_table::{self, How};
use crate::settings::Resolved;
use desk::{Desk, Running};
use events::Event;
use forebay_fuse::{Mount, MountOptions};
use forebay_server::Service;
use log::Log;
use stage::StageDesk;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};
use watchdog::Watchdog;

/// The hidden verb: reads its specification from standard input, reports on standard output, serves in the background.
///
/// # Errors
/// Never after it is ready: from then on only the log is told.
pub fn background() -> Result {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).or_fail(
        "cannot read the server's specification",
        "start it with `forebay mount`",
    )?;
    let spec: Spec = serde_json::from_str(&text)
        .or_fail("this is an internal command", "use `forebay mount`")?;
    if spec.with_parent {
        rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::TERM))
            .or_fail("cannot follow the starting process", "report this")?;
    }
    // A session of its own: Ctrl-C at the terminal is not for it. Fails only if it leads one already.
    let _ = rustix::process::setsid();
    rustix::thread::set_name(c"forebay").or_fail("cannot name the process", "report this")?;
    // The umask and directory of whoever started it do not matter to a server.
    std::env::set_current_dir("/").or_fail("cannot change to /", "report this")?;
    let report = |report: &Report| -> std::io::Result<()> {
        let mut out = std::io::stdout().lock();
        serde_json::to_writer(&mut out, report)?;
        out.write_all(b"\n")?;
        out.flush()
    };
    run(&spec, false, report).map_err(|failure| {
        tracing::error!("{failure}");
        let _ = report(&Report::Failed {
            code: failure.code,
            text: failure.text.clone(),
        });
        // Standard error may be the starting terminal; the report has said it.
        Failure {
            text: String::new(),
            ..failure
        }
    })
}

/// Serves until told to stop. `report` hears each step of the start; if it fails, nobody waits and the server stops.
///
/// # Errors
/// If it cannot start, or did not stop cleanly.
pub fn run(
    spec: &Spec,
    foreground: bool,
    report: impl Fn(&Report) -> std::io::Result<()> + Clone + Send + 'static,
) -> Result {
    let settings = Resolved::from_texts(&spec.settings)?.values;
    let log = Log::start(&settings, foreground);
    let (sender, events) = mpsc::channel();
    events::signals(sender.clone())?;
    let detach = spec.mounts.clone();
    let (store, tell) = (spec.store.clone(), report.clone());
    // Until the store is locked, its mounts are those of another server, and none of our business.
    let opened = Arc::new(AtomicBool::new(false));
    let ours = opened.clone();
    let watchdog = Watchdog::start(settings.start_limit, "start-limit", move |failure| {
        let _ = tell(&Report::Failed {
            code: failure.code,
            text: failure.text.clone(),
        });
        if ours.load(Ordering::SeqCst) {
            detach_all(&store, &detach);
        }
    });
    let stage = |text: String| {
        watchdog.stage(&text);
        report(&Report::Stage(text)).or_fail("the starting process is gone", "start again")
    };

    // A new store has no mounts yet: its mount points are looked at before it is made, for a start that fails should not
    // leave a store behind, of a number of nodes that nobody settled on.
    let new = !spec.store.join(forebay_server::superblock::NAME).exists();
    let prepare = || {
        stage(String::from("preparing the mount points"))?;
        points::prepare(&spec.store, &spec.mounts)
    };
    if new {
        prepare()?;
    }
    stage(format!("opening the store {}", spec.store.display()))?;
    let io = Arc::new(forebay_storage::OsIo);
    let service = Service::start(io, &spec.store, settings.service.clone())
        .map_err(|e| opening(&spec.store, &e))?;
    opened.store(true, Ordering::SeqCst);
    report(&Report::Opened).or_fail("the starting process is gone", "start again")?;
    if !foreground {
        log.move_to(&spec.store)?;
    }
    tracing::info!(
        "forebay {} serves {} with {:?}",
        env!("CARGO_PKG_VERSION"),
        spec.store.display(),
        settings.service
    );
    if !new {
        prepare()?;
    }
    let mut mounts = Vec::new();
    for (member, point) in spec.mounts.iter().enumerate() {
        stage(format!(
            "mounting node {member} of {} on {}",
            spec.mounts.len(),
            point.display()
        ))?;
        let options = MountOptions {
            source: mount_table::source(&spec.store),
            allow_other: settings.allow_other,
            ..MountOptions::default()
        };
        let mount =
            Mount::start(service.delegate(member as u16), point, options).map_err(Failure::plain);
        match mount {
            Ok(mount) => mounts.push(mount),
            Err(failure) => {
                detach_all(&spec.store, &spec.mounts);
                return Err(failure);
            }
        }
    }
    let service: Running = Arc::new(Mutex::new(Some(service)));
    let stages = Arc::new(StageDesk::new(service.clone(), spec.clone()));
    let desk = Desk {
        service: service.clone(),
        stages: stages.clone(),
        spec: spec.clone(),
        since: Instant::now(),
        events: Mutex::new(sender.clone()),
        limit: settings.stop_limit,
    };
    let listener = Listener::open(&spec.store, Arc::new(desk))?;
    if !spec.mounts.is_empty() {
        events::unmounts(spec.store.clone(), spec.mounts.clone(), sender)?;
    }
    drop(watchdog);
    let nobody = report(&Report::Ready).is_err();
    tracing::info!("ready");
    if !foreground {
        release_streams()?;
    }

    let reply = if nobody {
        None
    } else {
        wait(&events, &spec.mounts, &stages)
    };
    let limit = Watchdog::start(settings.stop_limit, "stop-limit", {
        let (store, mounts) = (spec.store.clone(), spec.mounts.clone());
        move |_| detach_all(&store, &mounts)
    });
    limit.stage("ending stage jobs");
    stages.stop();
    let result = stop(&limit, spec, mounts, &service);
    if let Some(reply) = reply {
        let answer = match &result {
            Ok(()) => Answer::Stopped,
            Err(failure) => Answer::Refused(failure.text.clone()),
        };
        // Whoever asked may have gone.
        let _ = reply.send(answer);
    }
    listener.close(Duration::from_secs(2));
    tracing::info!("stopped");
    result
}

/// Waits until it is time to stop, and says whom to tell afterwards.
fn wait(
    events: &mpsc::Receiver<Event>,
    points: &[PathBuf],
    stages: &StageDesk,
) -> Option<mpsc::SyncSender<Answer>> {
    // The senders live as long as the process; an error here would mean that nobody can ever ask, so stopping is right.
    while let Ok(event) = events.recv() {
        match event {
            Event::Signal(signal) => {
                tracing::info!("signal {signal}: stopping");
                return None;
            }
            Event::Unmounted => {
                tracing::info!("every mount was unmounted: stopping");
                return None;
            }
            Event::Stop {
                force,
                asker,
                reply,
            } => {
                let open = points
                    .iter()
                    .find(|p| !crate::processes::holders(p).is_empty());
                if let Some(why) = stages.busy().filter(|_| !force) {
                    let _ = reply.send(Answer::Refused(why));
                    continue;
                }
                match open.filter(|_| !force) {
                    Some(point) => {
                        let _ = reply.send(Answer::Refused(mount_table::busy(point, asker).text));
                    }
                    None => return Some(reply),
                }
            }
        }
    }
    None
}

/// Unmounts, commits, closes, unlocks.
fn stop(limit: &Watchdog, spec: &Spec, mounts: Vec<Mount>, service: &Running) -> Result {
    for (mount, point) in mounts.into_iter().zip(&spec.mounts) {
        limit.stage(&format!("unmounting {}", point.display()));
        // Waits some seconds for users to go, then cuts them off.
        if let Err(e) = mount.stop() {
            tracing::warn!("unmounting {}: {e}", point.display());
        }
    }
    limit.stage("closing the store");
    let service = service
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take();
    let Some(service) = service else {
        return Ok(());
    };
    service.stop().or_fail(
        format!("cannot close the store {}", spec.store.display()),
        "run `forebay fsck` on it",
    )
}

/// Detaches `point` if this store is mounted there.
fn detach(store: &Path, point: &Path) {
    if mount_table::is_mounted(store, point) == Ok(true)
        && let Err(failure) = mount_table::unmount(point, How::Detach)
    {
        tracing::warn!("{failure}");
    }
}

/// After a failed start or a stop that hangs: leave no mount behind.
fn detach_all(store: &Path, points: &[PathBuf]) {
    points.iter().for_each(|point| detach(store, point));
}

/// The message for a store that cannot be opened.
fn opening(store: &Path, error: &forebay_server::Error) -> Failure {
    Failure::plain(format!(
        "cannot open the store {}: {error}",
        store.display()
    ))
}

/// Lets go of the streams of the starting process; standard error goes to the log by now.
fn release_streams() -> Result {
    let null = std::fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/null")
        .or_fail("cannot open /dev/null", "report this")?;
    rustix::stdio::dup2_stdin(&null)
        .and_then(|()| rustix::stdio::dup2_stdout(&null))
        .or_fail(
            "cannot release the starting terminal",
            "raise the limit on open files",
        )
}
