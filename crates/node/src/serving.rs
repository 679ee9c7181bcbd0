//! A server at work: answers the control socket until it is time to stop, then stops in order.
//!
//! Knows nothing of how the service was started, nor of how many members run in this process.
use crate::control::{ControlReply, Listener, MountStatus};
use crate::control_service::ControlService;
use crate::events::{self, Event};
use crate::failure::{Context, Failure, Result};
use crate::members::{LocalMembers, SharedMembers};
use crate::metrics::Endpoint;
use crate::peer_rpc::PeerRpc;
use crate::processes;
use crate::rates::RateSampler;
use crate::recording::RecordingService;
use crate::settings::Settings;
use crate::stage::StageService;
use crate::watchdog::Watchdog;
use forebay_fuse::Mount;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

/// What runs, and where.
pub struct ServerParts {
    /// The store, absolute.
    pub store: PathBuf,
    /// The settings as texts.
    pub settings: BTreeMap<String, String>,
    /// The mounts of this process.
    pub points: Vec<MountStatus>,
    /// The same as they run.
    pub mounts: Vec<Mount>,
    /// The members of this process.
    pub service: Box<dyn LocalMembers>,
    /// The way to the other processes of the service, if there are others.
    pub peer_rpc: Option<PeerRpc>,
    /// Where metrics are to be served, if at all.
    pub metrics: Option<Endpoint>,
    /// The programs that the service was started for; none: whoever stops it has looked after them.
    pub programs: Option<ServedPrograms>,
}

/// Takes why a service stops early, and process groups.
pub type OnEarlyStop = Box<dyn Fn(&str, &BTreeSet<u32>) + Send>;

/// The programs that a service was started for, by `run` or one of its kind. As long as they may run there is a mount that
/// answers with an error: the directory below would take their files without a word.
pub struct ServedPrograms {
    /// The process that stops the service only when they have ended, if it is on this machine.
    pub starter: Option<u32>,
    /// Hears that, and why, the service stops before they have ended, and the process groups of all that have used the mounts.
    pub early: OnEarlyStop,
}

/// Serves until told to stop. `ready` is called once everything answers; it says whether anyone heard that.
///
/// # Errors
/// If it cannot go on, or did not stop cleanly.
pub fn until_stopped(
    parts: ServerParts,
    settings: &Settings,
    (sender, events): (mpsc::Sender<Event>, mpsc::Receiver<Event>),
    ready: impl FnOnce() -> Result<bool>,
) -> Result {
    let store = parts.store;
    let points: Vec<PathBuf> = parts.points.iter().map(|p| p.path.clone()).collect();
    let service: SharedMembers = Arc::new(Mutex::new(Some(parts.service)));
    let peer_rpc = parts.peer_rpc.map(Arc::new);
    let stages = Arc::new(StageService::new(
        service.clone(),
        store.clone(),
        points.clone(),
        peer_rpc.clone(),
    ));
    let handles = parts.mounts.iter().map(Mount::open_handles).collect();
    let watches = parts.mounts.iter().map(Mount::watch);
    let records = Arc::new(RecordingService::new(
        parts.points.iter().cloned().zip(watches).collect(),
        peer_rpc.clone(),
        service.clone(),
    ));
    let control = Arc::new(ControlService {
        records: records.clone(),
        handles,
        peer_rpc: peer_rpc.clone(),
        rates: RateSampler::start(service.clone())?,
        metrics: parts.metrics.as_ref().map(Endpoint::url),
        service: service.clone(),
        stages: stages.clone(),
        store: store.clone(),
        settings: parts.settings,
        points: parts.points,
        since: Instant::now(),
        events: Mutex::new(sender.clone()),
        limit: settings.stop_limit,
    });
    if let Some(peer_rpc) = &peer_rpc {
        peer_rpc.serve(control.clone());
    }
    let metrics = parts
        .metrics
        .map(|m| m.serve(control.clone()))
        .transpose()?;
    let listener = Listener::open(&store, control.clone())?;
    if !points.is_empty() {
        events::unmounts(store.clone(), points.clone(), sender)?;
    }
    let heard = ready()?;
    tracing::info!("ready");

    let starter = parts.programs.as_ref().and_then(|p| p.starter);
    let StopCause {
        why,
        over,
        expelled,
        reply,
    } = match heard {
        true => wait(&events, &control, starter),
        false => StopCause::because("whoever started it is gone"),
    };
    tracing::info!("{why}: stopping");
    let mut mounts = parts.mounts;
    let callers: BTreeSet<u32> = mounts.iter().flat_map(Mount::callers).collect();
    // What was declared dead answers nobody any more, at once; its mounts stay as those of a process that was killed.
    if expelled {
        mounts.drain(..).for_each(Mount::refuse);
    }
    if let Some(programs) = parts.programs.as_ref().filter(|_| !over) {
        (programs.early)(&why, &callers);
    }
    // Ranks on this machine may outlive their launcher, on another one, by a moment.
    let used =
        expelled || parts.programs.is_some() && (!over || !processes::ranks(&callers).is_empty());
    let limit = Watchdog::start(settings.stop_limit, "stop-limit", {
        let (store, points) = (store.clone(), points.clone());
        move |_, _| {
            if !used {
                crate::mount_table::detach_all(&store, &points);
            }
        }
    });
    drop((metrics, control));
    limit.step("ending stage jobs");
    stages.stop();
    if let Some(peer_rpc) = peer_rpc {
        peer_rpc.close();
    }
    let running = service
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take();
    if let Some(running) = &running {
        running.leave(&why, over);
    }
    match used {
        // The process that watches the mounts detaches them once nobody is left.
        true => {
            crate::mount_cleaner::tell_callers(&callers);
            mounts.into_iter().for_each(Mount::refuse);
        }
        false => unmount(&limit, mounts, &points),
    }
    records.close();
    let dead = running.as_ref().map_or(Vec::new(), |r| r.dead());
    let result = match running {
        Some(running) => close(&limit, &store, running, settings.stop_limit),
        None => Ok(()),
    };
    if let Some(reply) = reply {
        let answer = match &result {
            Ok(()) => ControlReply::Stopped { dead },
            Err(failure) => ControlReply::Refused(failure.text.clone()),
        };
        // Whoever asked may have gone.
        let _ = reply.send(answer);
    }
    listener.close(Duration::from_secs(2));
    tracing::info!("stopped");
    match expelled {
        true => result.and(Err(Failure::new(
            why,
            "its store is as after a kill: start it with the others again",
        ))),
        false => result,
    }
}

/// Why a server stops.
struct StopCause {
    why: String,
    /// The programs that the service was there for have ended.
    over: bool,
    /// The others have declared this process dead.
    expelled: bool,
    /// Whom to tell when it has.
    reply: Option<mpsc::SyncSender<ControlReply>>,
}

impl StopCause {
    fn because(why: impl Into<String>) -> StopCause {
        StopCause {
            why: why.into(),
            over: false,
            expelled: false,
            reply: None,
        }
    }
}

/// Waits until it is time to stop.
fn wait(
    events: &mpsc::Receiver<Event>,
    control: &ControlService,
    starter: Option<u32>,
) -> StopCause {
    // The senders live as long as the process; an error here would mean that nobody can ever ask, so stopping is right.
    while let Ok(event) = events.recv() {
        match event {
            Event::Signal(signal) => return StopCause::because(format!("signal {signal}")),
            Event::Unmounted => return StopCause::because("every mount was unmounted"),
            #[cfg(feature = "mpi")]
            Event::Expelled(why) => {
                return StopCause {
                    expelled: true,
                    ..StopCause::because(why)
                };
            }
            #[cfg(feature = "mpi")]
            Event::Told { why, over } => {
                return StopCause {
                    over,
                    ..StopCause::because(why)
                };
            }
            Event::Stop {
                force,
                asker,
                reply,
            } => {
                let busy = if force {
                    None
                } else {
                    control.busy_anywhere(asker)
                };
                match busy {
                    Some(why) => {
                        // Whoever asked may have gone.
                        let _ = reply.send(ControlReply::Refused(why));
                    }
                    None => {
                        return StopCause {
                            over: starter == Some(asker),
                            reply: Some(reply),
                            ..StopCause::because("asked to")
                        };
                    }
                }
            }
        }
    }
    StopCause::because("nobody can ask any more")
}

fn unmount(limit: &Watchdog, mounts: Vec<Mount>, points: &[PathBuf]) {
    for (mount, point) in mounts.into_iter().zip(points) {
        limit.step(&format!("unmounting {}", point.display()));
        // Waits some seconds for users to go, then cuts them off.
        if let Err(e) = mount.stop() {
            tracing::warn!("unmounting {}: {e}", point.display());
        }
    }
}

/// Commits, closes, unlocks.
fn close(
    limit: &Watchdog,
    store: &Path,
    service: Box<dyn LocalMembers>,
    patience: Duration,
) -> Result {
    limit.step("closing the store");
    service.stop(patience).or_fail(
        format!("cannot close the store {}", store.display()),
        "run `forebay fsck` on it",
    )
}
