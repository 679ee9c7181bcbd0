//! A server at work: it answers until there is a reason to stop, then stops in order.
//!
//! Knows nothing of how the service was started, nor of how many members run in this process.
use crate::control::{ControlReply, Listener};
use crate::control_service::ControlService;
use crate::events::{self, ServerEvent, StopCause};
use crate::failure::{Context, Failure, Result};
use crate::links::LinkServers;
use crate::members::LocalMembers;
use crate::metrics::{MetricsEndpoint, MetricsServer};
use crate::mount_cleaner;
use crate::mount_table::detach_all;
use crate::processes;
use crate::rates::RateSampler;
use crate::recording::RecordingService;
use crate::server_context::ServerContext;
use crate::spec::ServerFailure;
use crate::stage::StageService;
use crate::watchdog::Watchdog;
use forebay_fuse::Mount;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

/// What runs, and where.
pub struct ServerParts {
    /// What is served.
    pub server: ServerContext,
    /// Its mounts as they run.
    pub mounts: Vec<Mount>,
    /// Where metrics are to be served, if at all.
    pub metrics: Option<MetricsEndpoint>,
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
    (sender, events): (mpsc::Sender<ServerEvent>, mpsc::Receiver<ServerEvent>),
    ready: impl FnOnce() -> Result<bool, ServerFailure>,
) -> Result<(), ServerFailure> {
    let server = RunningServer::start(parts, sender)?;
    let heard = ready()?;
    tracing::info!("ready");
    let cause = match heard {
        true => server.wait(&events),
        false => StopCause::for_reason("whoever started it is gone"),
    };
    Ok(server.stop(cause)?)
}

/// All that answers somebody.
struct RunningServer {
    server: Arc<ServerContext>,
    mounts: Vec<Mount>,
    programs: Option<ServedPrograms>,
    stages: Arc<StageService>,
    recordings: Arc<RecordingService>,
    control: Arc<ControlService>,
    metrics: Option<MetricsServer>,
    links: Arc<LinkServers>,
    listener: Listener,
}

impl RunningServer {
    fn start(parts: ServerParts, events: mpsc::Sender<ServerEvent>) -> Result<RunningServer> {
        let server = Arc::new(parts.server);
        let mounts = parts.mounts;
        let stages = Arc::new(StageService::new(server.clone()));
        let recordings = mounts.iter().map(Mount::recording).collect();
        let recordings = Arc::new(RecordingService::new(server.clone(), recordings));
        let links = Arc::new(LinkServers::start(&server)?);
        let control = Arc::new(ControlService {
            server: server.clone(),
            handles: mounts.iter().map(Mount::open_handles).collect(),
            since: Instant::now(),
            stages: stages.clone(),
            recordings: recordings.clone(),
            links: links.clone(),
            rates: RateSampler::start(server.clone())?,
            metrics: parts.metrics.as_ref().map(MetricsEndpoint::url),
            events: Mutex::new(events.clone()),
        });
        server.rpc.serve(control.clone());
        let figures = control.clone();
        let serve = |m: MetricsEndpoint| m.serve(Box::new(move || figures.own_status()));
        let metrics = parts.metrics.map(serve).transpose()?;
        let listener = Listener::open(&server.store, control.clone())?;
        if !mounts.is_empty() {
            events::unmounts(server.store.clone(), server.points(), events)?;
        }
        Ok(RunningServer {
            server,
            mounts,
            programs: parts.programs,
            stages,
            recordings,
            control,
            metrics,
            links,
            listener,
        })
    }

    /// Waits until it is time to stop.
    fn wait(&self, events: &mpsc::Receiver<ServerEvent>) -> StopCause {
        // The senders live as long as the process; an error here would mean that nobody can ever ask, so stopping is right.
        while let Ok(event) = events.recv() {
            match event {
                ServerEvent::Stop(cause) => return cause,
                ServerEvent::StopRequest {
                    force,
                    asker,
                    reply,
                } => {
                    let busy = || self.control.busy_anywhere(asker);
                    if let Some(why) = (!force).then(busy).flatten() {
                        // Whoever asked may have gone.
                        let _ = reply.send(ControlReply::Refused(why));
                        continue;
                    }
                    let starter = self.programs.as_ref().and_then(|p| p.starter);
                    return StopCause {
                        over: starter == Some(asker),
                        reply: Some(reply),
                        ..StopCause::for_reason("asked to")
                    };
                }
            }
        }
        StopCause::for_reason("nobody can ask any more")
    }

    /// Stops in order: nobody is answered any more, mounts go, the members commit and close.
    fn stop(self, cause: StopCause) -> Result {
        let StopCause {
            why,
            over,
            expelled,
            reply,
        } = cause;
        tracing::info!("{why}: stopping");
        let mut mounts = self.mounts;
        let callers: BTreeSet<u32> = mounts.iter().flat_map(Mount::callers).collect();
        // What was declared dead answers nobody any more, at once; its mounts stay as those of a process that was killed.
        if expelled {
            mounts.drain(..).for_each(Mount::refuse);
        }
        if let Some(programs) = self.programs.as_ref().filter(|_| !over) {
            (programs.early)(&why, &callers);
        }
        // Ranks on this machine may outlive their launcher, on another one, by a moment.
        let may_run = || !over || !processes::ranks(&callers).is_empty();
        let mounts_stay = expelled || self.programs.is_some() && may_run();
        let server = self.server;
        let points = server.points();
        let watchdog = Watchdog::start(server.stop_limit, "stop-limit", {
            let (store, points) = (server.store.clone(), points.clone());
            move |_, _| {
                if !mounts_stay {
                    detach_all(&store, &points, |failure| tracing::warn!("{failure}"));
                }
            }
        });
        drop((self.metrics, self.control));
        watchdog.step("ending stage jobs");
        self.stages.stop();
        watchdog.step("ending the connections of programs");
        self.links.stop(LINK_STOP_LIMIT.min(server.stop_limit));
        server.rpc.close();
        let members = server.members.lock().take();
        if let Some(members) = &members {
            members.leave(&why, over);
        }
        match mounts_stay {
            // The process that recordings the mounts detaches them once nobody is left.
            true => {
                mount_cleaner::tell_callers(&callers);
                mounts.into_iter().for_each(Mount::refuse);
            }
            false => unmount(&watchdog, mounts, &points),
        }
        self.recordings.close();
        let dead = members.as_ref().map_or(Vec::new(), |m| m.dead());
        let result = match members {
            Some(members) => close(&watchdog, &server.store, members, server.stop_limit),
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
        self.listener.close(LAST_REPLIES_LIMIT);
        tracing::info!("stopped");
        match expelled {
            true => result.and(Err(Failure::new(
                why,
                "its store is as after a kill: start it with the others again",
            ))),
            false => result,
        }
    }
}

/// How long the last requests on the control socket may take to be answered.
const LAST_REPLIES_LIMIT: Duration = Duration::from_secs(2);

/// How long the files of connected programs may take to be closed; what is not closed then is published when the members stop.
const LINK_STOP_LIMIT: Duration = Duration::from_secs(10);

fn unmount(watchdog: &Watchdog, mounts: Vec<Mount>, points: &[PathBuf]) {
    for (mount, point) in mounts.into_iter().zip(points) {
        watchdog.step(&format!("unmounting {}", point.display()));
        // Waits some seconds for users to go, then cuts them off.
        if let Err(e) = mount.stop() {
            tracing::warn!("unmounting {}: {e}", point.display());
        }
    }
}

/// Commits, closes, unlocks.
fn close(
    watchdog: &Watchdog,
    store: &Path,
    members: Box<dyn LocalMembers>,
    limit: Duration,
) -> Result {
    watchdog.step("closing the store");
    members.stop(limit).or_fail(
        format!("cannot close the store {}", store.display()),
        "run `forebay fsck` on it",
    )
}
