//! A server at work: answers the control socket until it is time to stop, then stops in order.
//!
//! Knows nothing of how the service was started, nor of how many members run in this process.
use super::desk::Desk;
use super::events::{self, Event};
use super::office::Office;
use super::rates::RateDesk;
use super::record::RecordDesk;
use super::stage::StageDesk;
use super::watchdog::Watchdog;
use crate::control::{Answer, Listener, MountStatus, Peer};
use crate::fail::{Context, Result};
use crate::metrics::Endpoint;
use crate::settings::Settings;
use forebay_fuse::Mount;
use forebay_server::{Delegate, MemberStatus, Service};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

/// The members that run in this process.
pub trait Hosted: Send {
    /// What they hold and have done. Waits `patience` at most for what costs a look at everything.
    fn glance(&self, patience: Duration) -> forebay_server::Result<Vec<MemberStatus>>;
    /// How the members in other processes stand; none if there are no other processes.
    fn peers(&self) -> Vec<Peer>;
    /// Each of them: its number and its delegate.
    fn delegates(&self) -> Vec<(u16, Arc<Delegate>)>;
    /// How many members the service has, in all processes.
    fn members(&self) -> u16;
    /// Where the member's directory lies in the store of this process, relative to it.
    fn home(&self, member: u16) -> PathBuf;
    /// Tells the members in other processes that this one stops, and why.
    fn leave(&self, why: &str);
    /// Commits what is pending and closes; waits for other processes at each step, `limit` at most.
    fn stop(self: Box<Self>, limit: Duration) -> forebay_server::Result<()>;
}

impl Hosted for Service {
    fn glance(&self, patience: Duration) -> forebay_server::Result<Vec<MemberStatus>> {
        Service::glance(self, patience)
    }

    fn peers(&self) -> Vec<Peer> {
        Vec::new()
    }

    fn delegates(&self) -> Vec<(u16, Arc<Delegate>)> {
        let delegate = |member| (member, self.delegate(member));
        (0..self.members()).map(delegate).collect()
    }

    fn members(&self) -> u16 {
        Service::members(self)
    }

    fn home(&self, member: u16) -> PathBuf {
        PathBuf::from(format!("node-{member}"))
    }

    fn leave(&self, _why: &str) {}

    fn stop(self: Box<Self>, _limit: Duration) -> forebay_server::Result<()> {
        Service::stop(*self)
    }
}

/// The service while it runs; taken out when it stops.
pub type Running = Arc<Mutex<Option<Box<dyn Hosted>>>>;

/// What runs, and where.
pub struct Attended {
    /// The store, absolute.
    pub store: PathBuf,
    /// The settings as texts.
    pub settings: BTreeMap<String, String>,
    /// The mounts of this process.
    pub points: Vec<MountStatus>,
    /// The same as they run.
    pub mounts: Vec<Mount>,
    /// The members of this process.
    pub service: Box<dyn Hosted>,
    /// The way to the other processes of the service, if there are others.
    pub office: Option<Office>,
    /// Where metrics are to be served, if at all.
    pub metrics: Option<Endpoint>,
}

/// Serves until told to stop. `ready` is called once everything answers; it says whether anyone heard that.
///
/// # Errors
/// If it cannot go on, or did not stop cleanly.
pub fn until_stopped(
    attended: Attended,
    settings: &Settings,
    (sender, events): (mpsc::Sender<Event>, mpsc::Receiver<Event>),
    ready: impl FnOnce() -> Result<bool>,
) -> Result {
    let store = attended.store;
    let points: Vec<PathBuf> = attended.points.iter().map(|p| p.path.clone()).collect();
    let service: Running = Arc::new(Mutex::new(Some(attended.service)));
    let office = attended.office.map(Arc::new);
    let stages = Arc::new(StageDesk::new(
        service.clone(),
        store.clone(),
        points.clone(),
        office.clone(),
    ));
    let handles = attended.mounts.iter().map(Mount::open_handles).collect();
    let watches = attended.mounts.iter().map(Mount::watch);
    let records = Arc::new(RecordDesk::new(
        attended.points.iter().cloned().zip(watches).collect(),
        office.clone(),
        service.clone(),
    ));
    let desk = Arc::new(Desk {
        records: records.clone(),
        handles,
        office: office.clone(),
        rates: RateDesk::start(service.clone())?,
        metrics: attended.metrics.as_ref().map(Endpoint::url),
        service: service.clone(),
        stages: stages.clone(),
        store: store.clone(),
        settings: attended.settings,
        points: attended.points,
        since: Instant::now(),
        events: Mutex::new(sender.clone()),
        limit: settings.stop_limit,
    });
    if let Some(office) = &office {
        office.open(desk.clone());
    }
    let metrics = attended
        .metrics
        .map(|m| m.serve(desk.clone()))
        .transpose()?;
    let listener = Listener::open(&store, desk.clone())?;
    if !points.is_empty() {
        events::unmounts(store.clone(), points.clone(), sender)?;
    }
    let heard = ready()?;
    tracing::info!("ready");

    let (why, reply) = match heard {
        true => wait(&events, &desk),
        false => (String::from("whoever started it is gone"), None),
    };
    tracing::info!("{why}: stopping");
    let limit = Watchdog::start(settings.stop_limit, "stop-limit", {
        let (store, points) = (store.clone(), points.clone());
        move |_| super::detach_all(&store, &points)
    });
    drop((metrics, desk));
    limit.stage("ending stage jobs");
    stages.stop();
    if let Some(office) = office {
        office.close();
    }
    let running = service
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take();
    if let Some(running) = &running {
        running.leave(&why);
    }
    unmount(&limit, attended.mounts, &points);
    records.close();
    let result = match running {
        Some(running) => close(&limit, &store, running, settings.stop_limit),
        None => Ok(()),
    };
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

/// Waits until it is time to stop; says why, and whom to tell afterwards.
fn wait(events: &mpsc::Receiver<Event>, desk: &Desk) -> (String, Option<mpsc::SyncSender<Answer>>) {
    // The senders live as long as the process; an error here would mean that nobody can ever ask, so stopping is right.
    while let Ok(event) = events.recv() {
        match event {
            Event::Signal(signal) => return (format!("signal {signal}"), None),
            Event::Unmounted => return (String::from("every mount was unmounted"), None),
            #[cfg(feature = "mpi")]
            Event::Told(why) => return (why, None),
            Event::Stop {
                force,
                asker,
                reply,
            } => {
                let busy = if force {
                    None
                } else {
                    desk.busy_anywhere(asker)
                };
                match busy {
                    Some(why) => {
                        // Whoever asked may have gone.
                        let _ = reply.send(Answer::Refused(why));
                    }
                    None => return (String::from("asked to"), Some(reply)),
                }
            }
        }
    }
    (String::from("nobody can ask any more"), None)
}

fn unmount(limit: &Watchdog, mounts: Vec<Mount>, points: &[PathBuf]) {
    for (mount, point) in mounts.into_iter().zip(points) {
        limit.stage(&format!("unmounting {}", point.display()));
        // Waits some seconds for users to go, then cuts them off.
        if let Err(e) = mount.stop() {
            tracing::warn!("unmounting {}: {e}", point.display());
        }
    }
}

/// Commits, closes, unlocks.
fn close(limit: &Watchdog, store: &Path, service: Box<dyn Hosted>, patience: Duration) -> Result {
    limit.stage("closing the store");
    service.stop(patience).or_fail(
        format!("cannot close the store {}", store.display()),
        "run `forebay fsck` on it",
    )
}
