//! The start of a server process: one order of steps for every `ServiceTopology`, which says whether all members of the service
//! run in this process or each in its own.
//!
//! ```text
//!  new store:      prepare (mount points, metrics, mounts) -> open the store --------------------------> join -> answer -> ready
//!  existing store:                                            open the store -> prepare (the same) ----> join -> answer -> ready
//! ```
//!
//! For a new store all that may be refused comes before the store is made: a start that fails should not leave a store behind,
//! whose number of nodes is fixed from then on. A process that touches a mount waits until the mount is answered.
//!
//! Invariants: mount points are checked and made before the first mount, and nothing below a mount of this process is touched
//! after that. Mounts, and the process that watches them, are started before `ServiceTopology::join`, after which a process may
//! not be able to fork. Start and stop each have a limit; when it passes, the log says at which step.
mod job_member;
pub mod job_process;
pub mod launcher;
mod mount_points;
pub mod one_process;
mod server_paths;

use crate::control::MountStatus;
use crate::descriptors;
use crate::events::ServerEvent;
use crate::failure::{Context, Failure, Result};
use crate::log::Log;
use crate::members::LocalMembers;
use crate::metrics::MetricsEndpoint;
use crate::mount_cleaner;
use crate::mount_table::{self, detach_all};
use crate::server_context::ServerContext;
use crate::server_rpc::ServerRpc;
use crate::serving::{self, ServedPrograms, ServerParts};
use crate::settings::Settings;
use crate::spec::{ServerFailure, ServerReport};
use crate::watchdog::Watchdog;
use forebay_fuse::{MountOptions, PendingMount, answering_threads};
use forebay_server::superblock;
use forebay_storage::{Io, OsIo, PooledIo};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender};

/// Tells whoever started the process; an error: nobody listens any more.
type Reporter = Arc<dyn Fn(&ServerReport) -> std::io::Result<()> + Send + Sync>;

/// How the members of the service are spread over processes.
trait ServiceTopology {
    /// Opens and locks what this process serves.
    fn open(&mut self, io: &Arc<dyn Io>, progress: &StartProgress) -> Result<(), ServerFailure>;

    /// Meets the other processes, and recovers with them. Whatever they say later is sent to `events`.
    fn join(
        &mut self,
        io: Arc<dyn Io>,
        progress: &StartProgress,
        events: &Sender<ServerEvent>,
    ) -> Result<JoinedMembers, ServerFailure>;

    /// The mounts of this process answer: waits until those of all do, and tells whoever started it; whether anyone heard.
    fn ready(
        &mut self,
        progress: &StartProgress,
        mounts: &[MountStatus],
    ) -> Result<bool, ServerFailure>;
}

/// What a topology gives a process to serve.
struct JoinedMembers {
    members: Box<dyn LocalMembers>,
    /// The way to the other processes.
    rpc: ServerRpc,
    /// See [`ServerParts::programs`].
    programs: Option<ServedPrograms>,
}

/// What a process is to serve, in any topology.
struct ServerPlan<'a> {
    /// The store, absolute.
    store: PathBuf,
    /// One mount point a member, absolute.
    points: Vec<PathBuf>,
    settings: &'a Settings,
    /// The same as texts.
    texts: BTreeMap<String, String>,
    /// All members of the service run in this process.
    alone: bool,
    /// Nothing can be changed.
    read_only: bool,
    /// The number of this process, for the address of its metrics.
    rank: u32,
    /// The processes that may use the mounts even when the server is dead; none: nobody watches the mounts.
    mount_users: Option<Vec<u32>>,
    log: Log,
}

/// The steps of a start, as they are told to its watchdog and to the process that waits for it.
struct StartProgress {
    watchdog: Watchdog,
    report: Reporter,
}

impl StartProgress {
    fn step(&self, text: String) -> Result {
        self.watchdog.step(&text);
        (self.report)(&ServerReport::Step(text))
            .or_fail("the starting process is gone", "start again")
    }
}

/// Starts, and serves until told to stop.
fn serve(
    plan: ServerPlan<'_>,
    topology: &mut dyn ServiceTopology,
    (sender, events): (Sender<ServerEvent>, Receiver<ServerEvent>),
    report: &Reporter,
) -> Result<(), ServerFailure> {
    let (store, settings) = (&plan.store, plan.settings);
    // Until the store is locked, its mounts are those of another server, and none of our business.
    let opened = Arc::new(AtomicBool::new(false));
    let progress = StartProgress {
        watchdog: plan.watchdog(&opened, report),
        report: report.clone(),
    };
    let own_mounts = || {
        opened.store(true, Ordering::SeqCst);
        report(&ServerReport::Opened).or_fail("the starting process is gone", "start again")
    };
    let early = match is_store(store) {
        true => None,
        false => {
            let prepared = plan.prepare(&progress)?;
            own_mounts()?;
            Some(prepared)
        }
    };
    progress.step(format!("opening the store {}", store.display()))?;
    let threads = answering_threads();
    let open_files = descriptors::open_files(plan.points.len().max(1), threads, !plan.alone)?;
    let io: Arc<dyn Io> = Arc::new(PooledIo::new(OsIo, open_files));
    topology.open(&io, &progress)?;
    own_mounts()?;
    if is_store(store) {
        plan.log.move_to(store)?;
    }
    tracing::info!(
        "forebay {} serves {} with {:?}",
        env!("CARGO_PKG_VERSION"),
        store.display(),
        settings.service
    );
    let prepared = match early {
        Some(prepared) => prepared,
        None => plan.prepare(&progress)?,
    };
    let joined = topology.join(io, &progress, &sender)?;
    // One that only exists since the members have agreed: until then its directory was to stay empty.
    plan.log.move_to(store)?;
    let (mut mounts, mut points) = (Vec::new(), Vec::new());
    let pending = prepared.pending.into_iter().zip(&plan.points);
    for ((pending, point), (member, delegate)) in pending.zip(joined.members.delegates()) {
        let mount = pending.answer(delegate).map_err(Failure::plain);
        mounts.push(mount.inspect_err(|_| {
            detach_all(store, &plan.points, |failure| tracing::warn!("{failure}"))
        })?);
        points.push(MountStatus {
            member,
            path: point.clone(),
        });
    }
    let parts = ServerParts {
        server: ServerContext {
            store: store.clone(),
            settings: plan.texts.clone(),
            deadline: settings.service.deadline,
            stop_limit: settings.stop_limit,
            mounts: points.clone(),
            members: Mutex::new(Some(joined.members)),
            rpc: joined.rpc,
        },
        mounts,
        metrics: prepared.metrics,
        programs: joined.programs,
    };
    serving::until_stopped(parts, (sender, events), || {
        let heard = topology.ready(&progress, &points);
        drop(progress);
        heard
    })
}

/// What is there before the members answer.
struct PreparedMounts {
    metrics: Option<MetricsEndpoint>,
    /// Mounted, and unmounted with the list.
    pending: Vec<PendingMount>,
}

impl ServerPlan<'_> {
    fn watchdog(&self, opened: &Arc<AtomicBool>, report: &Reporter) -> Watchdog {
        let (store, points) = (self.store.clone(), self.points.clone());
        let (opened, report) = (opened.clone(), report.clone());
        let give_up = move |failure: &Failure, for_others| {
            // Nobody may listen any more.
            let _ = report(&ServerReport::Failed(ServerFailure {
                for_others,
                ..failure.clone().into()
            }));
            if opened.load(Ordering::SeqCst) {
                detach_all(&store, &points, |failure| tracing::warn!("{failure}"));
            }
        };
        Watchdog::start(self.settings.start_limit, "start-limit", give_up)
    }

    fn prepare(&self, progress: &StartProgress) -> Result<PreparedMounts> {
        let what = if self.alone { "points" } else { "point" };
        progress.step(format!("preparing the mount {what}"))?;
        mount_points::prepare(&self.store, &self.points)?;
        let address = self.settings.metrics.as_ref();
        let metrics = address
            .map(|address| MetricsEndpoint::open(address, self.rank))
            .transpose()?;
        if let Some(users) = &self.mount_users {
            mount_cleaner::start(&self.store, users)?;
        }
        let options = || MountOptions {
            source: mount_table::source(&self.store),
            allow_other: self.settings.allow_other,
            read_only: self.read_only,
            write_back: self.settings.write_back,
        };
        let mount = |(node, point): (usize, &PathBuf)| {
            let shown = point.display();
            progress.step(match self.alone {
                true => format!("mounting node {node} of {} on {shown}", self.points.len()),
                false => format!("mounting {shown}"),
            })?;
            PendingMount::mount(point, options()).map_err(Failure::plain)
        };
        let pending = self.points.iter().enumerate().map(mount);
        let pending = pending.collect::<Result<Vec<PendingMount>>>()?;
        Ok(PreparedMounts { metrics, pending })
    }
}

fn is_store(dir: &Path) -> bool {
    superblock::is_in(&OsIo, dir).unwrap_or(false)
}

/// This process stops when the one that started it ends.
///
/// The signal is a hang-up: the kernel may send it once for each thread of a parent that is killed, and a second one of
/// another kind would cut the stop short.
fn follow_parent(who: &str) -> Result {
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::HUP))
        .or_fail(format!("cannot follow {who}"), "report this")
}

/// The message for a store that cannot be opened.
fn opening(store: &Path, error: &forebay_server::Error) -> Failure {
    let shown = store.display();
    let text = format!("cannot open the store {shown}: {error}");
    // Records of the store say so themselves.
    let next = "; `forebay fsck --repair` keeps what is whole, `forebay mount --salvage` reads it";
    match matches!(error, forebay_server::Error::Corrupt(_)) {
        true => Failure::plain(text + next),
        false => Failure::plain(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_that_is_not_opened_because_of_damage_says_what_there_is_to_do() {
        let error = forebay_server::Error::Corrupt("the counter is damaged".into());
        let failure = opening(Path::new("/s"), &error);
        for part in [
            "/s: the counter",
            "forebay fsck --repair",
            "forebay mount --salvage",
        ] {
            assert!(failure.text.contains(part), "{failure}");
        }
    }
}
