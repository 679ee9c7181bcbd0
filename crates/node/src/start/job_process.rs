//! A server that is one process of a job, and serves one member of a service over all of them: `forebay serve`.
//!
//! How the processes talk is a [session] over whatever transport this program has; which one it is does not matter here.
//! A process should not fork once the transport has started (under MPI that may fail), so the mounts and the mount
//! cleaner are started first; accesses to a mount wait until the members have agreed and recovered.
//!
//! Invariant: if one process stops, all stop.
use super::job_member::JobMember;
use super::launcher::{RUN_VARIABLE, events_from_signals, mount_users, run_process, stop_event};
use super::server_paths::ServerPaths;
use super::{JoinedMembers, Reporter, ServerPlan, ServiceTopology, StartProgress};
use super::{follow_parent, opening};
use crate::control::MountStatus;
use crate::descriptors;
use crate::events::{ServerEvent, StopCause};
use crate::failure::{Context, Failure, Result};
use crate::log::Log;
use crate::process_handle::wait_for_any;
use crate::processes;
use crate::server_rpc::ServerRpc;
use crate::serving::{OnEarlyStop, ServedPrograms};
use crate::settings::Settings;
use crate::slurm_steps::{self, OrphanedTasks};
use crate::spec::{MemberLocation, ServerFailure, ServerReport, host, on_this_host};
use crate::transport;
use forebay_fabric::session::{self, Identity, Session, StartError, Timing};
use forebay_server::{JoinedMember, MemberBarrier, MemberDirectory, proto};
use forebay_storage::{Io, OsIo};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// What the server is started with.
pub struct JobStart {
    /// The store; may hold `{rank}`.
    pub store: PathBuf,
    /// The mount point; may hold `{rank}`.
    pub mount: PathBuf,
    /// What all servers of the job know.
    pub secret: Vec<u8>,
    /// The settings.
    pub settings: Settings,
    /// Their texts.
    pub texts: BTreeMap<String, String>,
    /// Stop when standard input of rank 0 ends, or the `forebay run` behind it if that is on this machine.
    pub until_input_ends: bool,
}

/// Serves until told to stop. `report` is called with each state of the server.
///
/// # Errors
/// If it cannot start, or did not stop cleanly.
pub fn run(start: &JobStart, report: impl Fn(&ServerReport) + Send + Sync + 'static) -> Result {
    let launched = start.until_input_ends;
    let report: Reporter = Arc::new(move |said: &ServerReport| -> std::io::Result<()> {
        match said {
            // Nobody follows the steps of one process of many.
            ServerReport::Step(_) | ServerReport::Opened => {}
            ServerReport::Failed(failed) => {
                let mut failed = failed.clone();
                failed.failure.text = on_this_host(launched, &failed.failure.text);
                report(&ServerReport::Failed(failed));
            }
            said => report(said),
        }
        Ok(())
    });
    let result = serve(start, &report);
    if let Err(failed) = &result
        && !failed.failure.text.is_empty()
    {
        tracing::error!("{}", failed.failure);
        report_if_heard(&report, ServerReport::Failed(failed.clone()));
    }
    // The report has said it; standard error may be the log by now.
    result.map_err(|failed| Failure::silent_with(failed.failure.code))
}

/// Whoever started it may be gone; the launcher's end stops the server.
fn report_if_heard(report: &Reporter, said: ServerReport) {
    let _ = report(&said);
}

fn serve(start: &JobStart, report: &Reporter) -> Result<(), ServerFailure> {
    descriptors::raise_limit();
    follow_parent("the launcher")?;
    let log = Log::start(&start.settings, false);
    // `run` starts all servers with one command line; others may give each its own.
    let launched = start.until_input_ends;
    let paths = ServerPaths::of(&start.store, &start.mount, launched)?;
    report_if_heard(report, ServerReport::Begun { host: host() });
    std::env::set_current_dir("/").or_fail("cannot change to /", "report this")?;
    let started = Arc::new(AtomicBool::new(false));
    let (sender, events) = mpsc::channel();
    let input = events_from_signals(&sender, &started, launched, paths.rank)?;
    let plan = ServerPlan {
        store: paths.store.clone(),
        points: vec![paths.point.clone()],
        settings: &start.settings,
        texts: start.texts.clone(),
        alone: false,
        read_only: false,
        rank: paths.rank,
        mount_users: Some(mount_users(launched)),
        log,
    };
    let mut topology = JobProcess {
        start,
        paths,
        report: report.clone(),
        home: None,
        member: 0,
        barrier: None,
        started: started.clone(),
        locations: Arc::default(),
        callers: Arc::default(),
    };
    let served = super::serve(plan, &mut topology, (sender, events), report);
    if started.load(Ordering::SeqCst) {
        // Well or not: the failure says more.
        report_if_heard(report, ServerReport::Stopped(topology.member));
        if let Some(callers) = topology.callers.get() {
            wait_for_command_exit(callers, input, start.settings.stop_limit);
        }
    }
    served
}

/// See the head of this file.
struct JobProcess<'a> {
    start: &'a JobStart,
    paths: ServerPaths,
    report: Reporter,
    /// From [`ServiceTopology::open`] to [`ServiceTopology::join`].
    home: Option<MemberDirectory>,
    /// The member that runs here, from [`ServiceTopology::join`] on.
    member: u16,
    /// From [`ServiceTopology::join`] to [`ServiceTopology::ready`].
    barrier: Option<Arc<MemberBarrier>>,
    /// All mounts of the service answer.
    started: Arc<AtomicBool>,
    /// Where all members run, once all are ready.
    locations: Arc<OnceLock<Vec<MemberLocation>>>,
    /// The process groups that have used the mount, once the member stops before the command has ended.
    callers: Arc<OnceLock<BTreeSet<u32>>>,
}

impl ServiceTopology for JobProcess<'_> {
    fn open(&mut self, _io: &Arc<dyn Io>, _steps: &StartProgress) -> Result<(), ServerFailure> {
        let store = &self.paths.store;
        let home = MemberDirectory::open(&OsIo, store).map_err(|e| opening(store, &e))?;
        self.home = Some(home);
        Ok(())
    }

    fn join(
        &mut self,
        io: Arc<dyn Io>,
        progress: &StartProgress,
        events: &Sender<ServerEvent>,
    ) -> Result<JoinedMembers, ServerFailure> {
        let home = self.home.take();
        let home = home.ok_or_else(|| Failure::new("the store was not opened", "report this"))?;
        progress.watchdog.step_with_others("starting MPI");
        let session = self.connect(&home)?;
        let member = session.rank() as u16;
        self.member = member;
        tracing::info!("member {member} of {}", session.size());
        self.tell_of_deaths(&session, events);
        progress
            .watchdog
            .step_with_others("waiting for all members to open their stores and recover");
        let barrier = Arc::new(MemberBarrier::new(session.fabric()));
        let requests = session.fabric();
        let rpc = ServerRpc::new(session.fabric());
        let (config, limit) = (
            self.start.settings.service.clone(),
            self.start.settings.start_limit,
        );
        let joined = JoinedMember::start(io, home, barrier.clone(), requests, config, limit);
        let joined = joined.map_err(|e| self.not_opened(&e))?;
        // Where `run` is, its command is: there this is no cut.
        if self.start.until_input_ends && run_process().is_none() {
            stop_when_alone(&session, events.clone());
        }
        // Those that died before this listens, too; twice is no harm.
        session.on_death(joined.on_death());
        let died = joined.on_death();
        let dead = |peer: &session::Peer| peer.health == session::Health::Dead;
        let peers = session.peers();
        peers.iter().filter(|p| dead(p)).for_each(|p| died(p.rank));
        let stop_origin = follow_stops(&barrier, events.clone());
        self.barrier = Some(barrier);
        let report = self.report.clone();
        let programs = || ServedPrograms {
            starter: run_process(),
            early: self.tell_early_stop(member, stop_origin),
        };
        Ok(JoinedMembers {
            programs: self.start.until_input_ends.then(programs),
            rpc,
            members: Box::new(JobMember {
                joined,
                session,
                locations: self.locations.clone(),
                stopped: Box::new(move || report_if_heard(&report, ServerReport::Stopped(member))),
            }),
        })
    }

    fn ready(
        &mut self,
        progress: &StartProgress,
        mounts: &[MountStatus],
    ) -> Result<bool, ServerFailure> {
        progress.watchdog.step_with_others("waiting for all mounts");
        let barrier = self.barrier.take();
        let barrier =
            barrier.ok_or_else(|| Failure::new("the members have not met", "report this"))?;
        let limit = self.start.settings.start_limit;
        let locations = exchange_locations(&barrier, mounts, limit);
        let locations = locations.map_err(|e| self.not_opened(&e))?;
        // Set once, here.
        let _ = self.locations.set(locations.clone());
        self.started.store(true, Ordering::SeqCst);
        if self.paths.rank == 0 {
            report_if_heard(&self.report, ServerReport::AllReady(locations));
        }
        Ok(true)
    }
}

impl JobProcess<'_> {
    fn not_opened(&self, error: &forebay_server::Error) -> ServerFailure {
        ServerFailure {
            // Only the echo of another member's failure.
            follows: matches!(error, forebay_server::Error::Peer { .. }),
            ..opening(&self.paths.store, error).into()
        }
    }

    /// Starts the transport and finds the other members.
    fn connect(&self, home: &MemberDirectory) -> Result<Session> {
        let failed = |e: StartError| Failure::plain(format!("{}: {e}", home.dir().display()));
        let job = transport::start().map_err(failed)?;
        if job.process != self.paths.rank {
            return Err(Failure::new(
                format!(
                    "MPI says rank {} and the launcher's environment says {}",
                    job.process, self.paths.rank
                ),
                "start the servers with the mpirun or srun of the MPI that forebay was built for",
            ));
        }
        let Ok(size) = u16::try_from(job.processes) else {
            return Err(Failure::new(
                format!(
                    "{} processes are more than a service may have",
                    job.processes
                ),
                "start one server on each node",
            ));
        };
        // A new store takes its rank for its number.
        let (member, members) = home.member().unwrap_or((job.process as u16, size));
        let identity = Identity {
            version: version(),
            secret: self.start.secret.clone(),
            member: u32::from(member),
            members: u32::from(members),
            // Members agree on it when they meet, for new stores have none yet.
            service: [0; 16],
        };
        let rank = job.process;
        job.join(identity, timing(&self.start.settings))
            .map_err(|e| match e {
                // All processes refuse alike: the first one says so for all.
                StartError::Refused(why) if rank != 0 => {
                    tracing::error!("{why}");
                    // A signal of the launcher ends the process before.
                    std::thread::sleep(REFUSAL_REPORT_TIME);
                    Failure::silent()
                }
                e => failed(e),
            })
    }

    /// Tells that other members have died; or that this one has, to the others.
    fn tell_of_deaths(&self, session: &Session, events: &Sender<ServerEvent>) {
        let expelled = Arc::new(AtomicBool::new(false));
        let (outside, events) = (expelled.clone(), events.clone());
        session.on_expulsion(move |by| {
            outside.store(true, Ordering::SeqCst);
            let why = format!(
                "member {by} and others have declared this server dead: it was not heard for longer than the deadline, and they go on without it"
            );
            // Fails only if it stops already.
            let _ = events.send(ServerEvent::Stop(StopCause {
                expelled: true,
                ..StopCause::for_reason(why)
            }));
        });
        let report = self.report.clone();
        session.on_death(move |member| {
            // It is this one that is dead, then.
            if !expelled.load(Ordering::SeqCst) {
                tracing::error!(member, "a member has died; its data answers EIO");
                report_if_heard(&report, ServerReport::Died(member as u16));
            }
        });
    }

    /// Reports that `member` stops before the command has ended, and keeps who has used the mount. `origin`: the member that it follows,
    /// if it was told to stop, and why that one stops; `run` may hear of it from here first.
    fn tell_early_stop(&self, member: u16, origin: StopOrigin) -> OnEarlyStop {
        let (report, kept) = (self.report.clone(), self.callers.clone());
        Box::new(move |why, callers| {
            // A service stops once.
            let _ = kept.set(callers.clone());
            let (member, why) = match origin.get() {
                Some((first, why)) => (*first, why.clone()),
                None => (member, why.into()),
            };
            report_if_heard(&report, ServerReport::Stopping { member, why });
        })
    }
}

/// The member that was the first to stop, and why it did.
type StopOrigin = Arc<OnceLock<(u16, String)>>;

/// Has this process stop when another one says that it does.
fn follow_stops(barrier: &MemberBarrier, events: Sender<ServerEvent>) -> StopOrigin {
    let origin = StopOrigin::default();
    let first = origin.clone();
    barrier.on_stop(move |request| {
        // One that hears it later was told by others that only follow.
        let _ = first.set((request.member, request.why.clone()));
        let why = format!("member {} stops: {}", request.member, request.why);
        // Fails only if nobody listens any more, and then it stops already.
        let _ = events.send(stop_event(why, request.over));
    });
    origin
}

/// A server that hears no other one any more cannot be told how things stand: it is cut off, and its launcher and `run` with the others.
/// It stops by itself.
fn stop_when_alone(session: &Session, events: Sender<ServerEvent>) {
    let limit = session.timing().limit;
    let (dead, others) = (Mutex::new(BTreeSet::new()), session.size() as usize - 1);
    session.on_death(move |member| {
        let mut dead = dead.lock();
        dead.insert(member);
        if dead.len() < others {
            return;
        }
        let why = format!(
            "no other server was heard for {} s: this host is cut off from them, or they have died; what was committed here stays in \
             the store, start again with the others",
            limit.as_secs_f32()
        );
        tracing::error!("{why}");
        // Fails only if it stops already.
        let _ = events.send(stop_event(why, false));
    });
}

/// What `run` takes at most, once a server stops, to end its command in order.
const COMMAND_END_TIME: Duration = Duration::from_secs(10);

/// What the tasks of a command that were killed take at most to end.
const TASK_END_TIME: Duration = Duration::from_secs(5);

/// Waits, after a stop before the command has ended, until it has. As long as the process that gets standard input runs, so does
/// the launcher, on every machine, and dead mounts stay until that has ended. Slurm ends the processes that watch them with the step:
/// there each server waits for the ranks of its machine itself.
fn wait_for_command_exit(callers: &BTreeSet<u32>, input: Option<Receiver<()>>, limit: Duration) {
    let end = Instant::now() + limit;
    if let Some(input) = input {
        // Nothing is ever sent: it ends with the other end.
        let _ = input.recv_timeout(limit);
    }
    if !mount_users(true).is_empty() {
        return;
    }
    let since = processes::start_ticks(std::process::id());
    // Its `srun` may have been killed because it did not end its step.
    let kill_from = Instant::now() + COMMAND_END_TIME;
    let end = end.max(kill_from + TASK_END_TIME);
    let orphaned = std::env::var(RUN_VARIABLE).ok().map(|run| OrphanedTasks {
        command: run,
        kill_from,
    });
    slurm_steps::wait_for_launched(since, orphaned.as_ref(), end);
    loop {
        let ranks = processes::ranks(callers);
        let left = end.saturating_duration_since(Instant::now());
        if ranks.is_empty() || left.is_zero() {
            return;
        }
        wait_for_any(&ranks, &[], left);
    }
}

/// What is silent for as long as a request may take is dead; so whatever needs it fails in that time, however many requests it
/// makes. Not below a second: a busy machine may keep a server from running that long.
fn timing(settings: &Settings) -> Timing {
    let limit = settings.service.deadline.max(Duration::from_secs(1));
    Timing {
        heartbeat: (limit / 10).min(Timing::default().heartbeat),
        limit,
        join: settings.start_limit,
    }
}

/// The launcher ends all processes as soon as one has failed: a refused one leaves the one that speaks for all this time to say why.
const REFUSAL_REPORT_TIME: Duration = Duration::from_secs(1);

/// The version that this server says it is of: its own. Tests may have one say another.
fn version() -> u32 {
    let told = std::env::var("FOREBAY_TEST_VERSION");
    let told = told.ok().and_then(|text| text.parse().ok());
    told.unwrap_or(proto::VERSION)
}

/// Waits until the mounts of all processes answer; where they are, by member.
fn exchange_locations(
    barrier: &MemberBarrier,
    own: &[MountStatus],
    limit: Duration,
) -> forebay_server::Result<Vec<MemberLocation>> {
    let location = own.first().map(|mount| MemberLocation {
        member: mount.member,
        host: host(),
        mount: mount.path.clone(),
        pid: std::process::id(),
    });
    let shown = serde_json::to_vec(&location).unwrap_or_default();
    let all = barrier.exchange(shown, limit)?;
    // All run the same version; what cannot be read is left out, and missed by whoever needs it.
    Ok(all
        .iter()
        .filter_map(|text| serde_json::from_slice(text).ok())
        .collect())
}
