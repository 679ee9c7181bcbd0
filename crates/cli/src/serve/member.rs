//! One node server as a process of an MPI job: `forebay serve`.
//!
//! Order, because a process should not fork once MPI has started: look at the paths, mount, start the watcher of the
//! mount, then MPI. Until the members have agreed and recovered, the mount makes whoever touches it wait.
//!
//! Invariant: one that stops makes all stop.
use super::attend::{self, Attended, Hosted, OnEarlyStop, Programs};
use super::events::Event;
use super::launcher::{follow, starter, users};
use super::log::Log;
use super::office::Office;
use super::place::Place;
use super::spec::Seat;
use super::watchdog::Watchdog;
use super::{Report, detach_all, follow_parent, opening, points, watch};
use crate::control::{DeadMember, Health, MountStatus, Peer};
use crate::fail::{Context, Failure, Result};
use crate::metrics::Endpoint;
use crate::mount_table;
use crate::processes;
use crate::settings::{Resolved, Settings};
use forebay_fabric::mpi::{self, Ending, Identity, Job, StartError, Timing, World};
use forebay_fuse::{MountOptions, Pending};
use forebay_server::{Delegate, Home, Joined, Meeting, MemberStatus, proto, superblock};
use forebay_storage::{OsIo, PooledIo};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, mpsc};
use std::time::{Duration, Instant};

/// What the server is started with.
pub struct Start {
    /// The store; may hold `{rank}`.
    pub store: PathBuf,
    /// The mount point; may hold `{rank}`.
    pub mount: PathBuf,
    /// What all servers of the job know.
    pub secret: Vec<u8>,
    /// The settings.
    pub settings: Resolved,
    /// Stop when standard input of rank 0 ends, or the `forebay run` behind it if that is on this machine.
    pub until_input_ends: bool,
}

/// A member and its connection to the others.
struct Together {
    joined: Joined,
    world: World,
    /// Where all members run, once all are ready.
    seats: Arc<OnceLock<Vec<Seat>>>,
    /// Reports that the member has stopped.
    stopped: Box<dyn FnOnce() + Send>,
}

impl Hosted for Together {
    fn glance(&self, patience: Duration) -> forebay_server::Result<Vec<MemberStatus>> {
        Ok(vec![self.joined.glance(patience)?])
    }

    fn peers(&self) -> Vec<Peer> {
        let seen = |peer: forebay_fabric::mpi::Peer| Peer {
            member: peer.rank as u16,
            health: match peer.health {
                mpi::Health::Alive => Health::Alive,
                mpi::Health::Left => Health::Left,
                mpi::Health::Dead => Health::Dead,
            },
            silent_seconds: peer.silent.as_secs_f64(),
        };
        let own = self.world.rank();
        let others = self.world.peers().into_iter().filter(|p| p.rank != own);
        others.map(seen).collect()
    }

    fn delegates(&self) -> Vec<(u16, Arc<Delegate>)> {
        vec![(self.world.rank() as u16, self.joined.delegate())]
    }

    fn members(&self) -> u16 {
        self.world.size() as u16
    }

    fn home(&self, _member: u16) -> PathBuf {
        PathBuf::new()
    }

    fn dead(&self) -> Vec<DeadMember> {
        let is_dead = |member: u16| {
            let mut peers = self.world.peers().into_iter();
            peers.any(|p| p.rank == u32::from(member) && p.health == mpi::Health::Dead)
        };
        let seats = self.seats.get().into_iter().flatten();
        let dead = seats.filter(|seat| is_dead(seat.member));
        dead.map(|seat| DeadMember {
            member: seat.member,
            host: seat.host.clone(),
            pid: seat.pid,
        })
        .collect()
    }

    fn leave(&self, why: &str, over: bool) {
        self.joined.meeting().tell_stop(why, over);
    }

    fn stop(self: Box<Self>, limit: Duration) -> forebay_server::Result<()> {
        let result = self.joined.stop(limit);
        // The end of MPI may wait for a launcher that hangs; to the store it makes no difference any more.
        (self.stopped)();
        if self.world.stop(limit) == Ending::Abandoned {
            tracing::warn!(
                "a member has died: ended without MPI_Finalize, which would wait for it"
            );
        }
        result
    }
}

/// Serves until told to stop. `report` hears of each step; if it fails, nobody listens and the server stops.
///
/// # Errors
/// If it cannot start, or did not stop cleanly.
pub fn run(start: &Start, report: impl Fn(&Report) + Clone + Send + Sync + 'static) -> Result {
    let result = serve(start, &report);
    if let Err((failure, follows)) = &result
        && !failure.text.is_empty()
    {
        tracing::error!("{failure}");
        report(&Report::Failed {
            code: failure.code,
            text: on_this_host(start.until_input_ends, &failure.text),
            follows: *follows,
            for_others: false,
        });
    }
    // The report has said it; standard error may be the log by now.
    result.map_err(|(failure, _)| Failure {
        text: String::new(),
        ..failure
    })
}

/// What `run` is told names the host that it comes from; `serve` itself runs where it is read.
pub(crate) fn on_this_host(launched: bool, text: &str) -> String {
    match launched {
        true => format!("on {}: {text}", super::spec::host()),
        false => text.into(),
    }
}

/// A failure, and whether it only follows from another member's.
type Ended = (Failure, bool);

fn first(failure: Failure) -> Ended {
    (failure, false)
}

fn serve(
    start: &Start,
    report: &(impl Fn(&Report) + Clone + Send + Sync + 'static),
) -> Result<(), Ended> {
    crate::descriptors::raise_limit();
    let settings = &start.settings.values;
    follow_parent("the launcher").map_err(first)?;
    let log = Log::start(settings, false);
    // `run` starts all servers with one command line; others may give each its own.
    let place = Place::of(&start.store, &start.mount, start.until_input_ends).map_err(first)?;
    let Place { rank, store, point } = place;
    report(&Report::Begun {
        host: super::spec::host(),
    });
    std::env::set_current_dir("/")
        .or_fail("cannot change to /", "report this")
        .map_err(first)?;
    let started = Arc::new(AtomicBool::new(false));
    let (sender, events) = mpsc::channel();
    let alone = sender.clone();
    let input = follow(&sender, &started, start.until_input_ends, rank).map_err(first)?;
    let mine = Arc::new(AtomicBool::new(false));
    let watchdog = {
        let (tell, mine) = (report.clone(), mine.clone());
        let (store, point) = (store.clone(), point.clone());
        let launched = start.until_input_ends;
        Watchdog::start(
            settings.start_limit,
            "start-limit",
            move |failure, for_others| {
                tell(&Report::Failed {
                    code: failure.code,
                    text: on_this_host(launched, &failure.text),
                    follows: false,
                    for_others,
                });
                if mine.load(Ordering::SeqCst) {
                    detach_all(&store, &[point]);
                }
            },
        )
    };

    let new = !superblock::is_in(&forebay_storage::OsIo, &store).unwrap_or(false);
    let prepare = || {
        watchdog.stage("preparing the mount point");
        points::prepare(&store, std::slice::from_ref(&point)).map_err(first)
    };
    if new {
        prepare()?;
    }
    watchdog.stage(&format!("opening the store {}", store.display()));
    let home = Home::open(&OsIo, &store).map_err(|e| first(opening(&store, &e)))?;
    mine.store(true, Ordering::SeqCst);
    if !new {
        log.move_to(&store).map_err(first)?;
        prepare()?;
    }
    watch::start(&store, &users(start.until_input_ends)).map_err(first)?;
    let address = settings.metrics.as_ref();
    let metrics = address
        .map(|address| Endpoint::open(address, rank))
        .transpose()
        .map_err(first)?;
    watchdog.stage(&format!("mounting {}", point.display()));
    let options = MountOptions {
        source: mount_table::source(&store),
        allow_other: settings.allow_other,
        ..MountOptions::default()
    };
    let kept = crate::descriptors::kept(1, options.thread_count(), true).map_err(first)?;
    let pending = Pending::mount(&point, options).map_err(|e| first(Failure::plain(e)))?;

    watchdog.stage_with_others("starting MPI");
    let world = join(start, &home, rank).map_err(first)?;
    let member = world.rank();
    tracing::info!(
        "forebay {} serves {} as member {member} of {} with {:?}",
        env!("CARGO_PKG_VERSION"),
        store.display(),
        world.size(),
        settings.service
    );
    let tell = report.clone();
    let expelled = Arc::new(AtomicBool::new(false));
    let (outside, told_so) = (expelled.clone(), sender.clone());
    world.on_expulsion(move |by| {
        outside.store(true, Ordering::SeqCst);
        let why = format!(
            "member {by} and others have declared this server dead: it was not heard for longer than the deadline, and they go on without it"
        );
        // Fails only if it stops already.
        let _ = told_so.send(Event::Expelled(why));
    });
    world.on_death(move |member| {
        // It is this one that is dead, then.
        if !expelled.load(Ordering::SeqCst) {
            tracing::error!(member, "a member has died; its data answers EIO");
            tell(&Report::Died(member as u16));
        }
    });
    watchdog.stage_with_others("waiting for all members to open their stores and recover");
    let meeting = Arc::new(Meeting::new(world.fabric()));
    let (io, config) = (
        Arc::new(PooledIo::new(OsIo, kept)),
        settings.service.clone(),
    );
    let limit = settings.start_limit;
    let requests = world.fabric();
    let office = Office::new(world.fabric());
    let joined = Joined::start(io, home, meeting.clone(), requests, config, limit);
    let joined = joined.map_err(|e| (opening(&store, &e), follows(&e)))?;
    let died = joined.on_death();
    // Those that died before this listens, too; twice is no harm.
    // Where `run` is, its command is: there this is no cut.
    if start.until_input_ends && starter().is_none() {
        stop_when_alone(&world, alone);
    }
    let dead = |peer: &mpi::Peer| peer.health == mpi::Health::Dead;
    world.on_death(joined.on_death());
    world
        .peers()
        .iter()
        .filter(|p| dead(p))
        .for_each(|p| died(p.rank));
    if new {
        // Not before the members have agreed: until then there is no store, and the directory is to stay empty.
        log.move_to(&store).map_err(first)?;
    }
    let mount = pending
        .answer(joined.delegate())
        .map_err(|e| first(Failure::plain(e)))?;
    let told = sender.clone();
    let origin = Arc::new(OnceLock::new());
    let first_told = origin.clone();
    meeting.on_stop(move |request| {
        // One that hears it later was told by others that only follow.
        let _ = first_told.set((request.member, request.why.clone()));
        let why = format!("member {} stops: {}", request.member, request.why);
        let over = request.over;
        // Fails only if nobody listens any more, and then it stops already.
        let _ = told.send(Event::Told { why, over });
    });
    let early = Arc::new(OnceLock::new());
    let known = Arc::new(OnceLock::new());
    let stopped = report.clone();
    let points = vec![MountStatus {
        member: member as u16,
        path: point,
    }];
    let attended = Attended {
        store: store.clone(),
        settings: start.settings.texts(),
        points: points.clone(),
        mounts: vec![mount],
        service: Box::new(Together {
            joined,
            world,
            seats: known.clone(),
            stopped: Box::new(move || stopped(&Report::Stopped(member as u16))),
        }),
        office: Some(office),
        metrics,
        programs: start.until_input_ends.then(|| Programs {
            starter: starter(),
            early: stops_early(member as u16, report, &early, origin),
        }),
    };
    let mut late = false;
    let served = attend::until_stopped(attended, settings, (sender, events), || {
        watchdog.stage_with_others("waiting for all mounts");
        let seats = seats(&meeting, &points, limit).map_err(|e| {
            late = follows(&e);
            opening(&store, &e)
        })?;
        drop(meeting);
        drop(watchdog);
        started.store(true, Ordering::SeqCst);
        // Set once, here.
        let _ = known.set(seats.clone());
        if rank == 0 {
            report(&Report::AllReady(seats));
        }
        Ok(true)
    });
    if started.load(Ordering::SeqCst) {
        // Well or not: the failure says more.
        report(&Report::Stopped(member as u16));
        if let Some(callers) = early.get() {
            outlast_programs(callers, input, settings.stop_limit);
        }
    }
    served.map_err(|failure| (failure, late))
}

/// A server that hears no other one any more cannot be told how things stand: it is cut off, and its launcher and `run` with the others.
/// It stops by itself.
fn stop_when_alone(world: &World, events: mpsc::Sender<Event>) {
    let limit = world.timing().limit;
    let (dead, others) = (Mutex::new(BTreeSet::new()), world.size() as usize - 1);
    world.on_death(move |member| {
        let mut dead = dead.lock().unwrap_or_else(PoisonError::into_inner);
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
        let _ = events.send(Event::Told { why, over: false });
    });
}

/// Waits, after a stop before the command has ended, until it has. As long as the process that gets standard input runs, so does
/// the launcher, on every machine, and dead mounts stay until that has ended. Slurm ends the processes that watch them with the step:
/// there each server waits for the ranks of its machine itself.
fn outlast_programs(callers: &BTreeSet<u32>, input: Option<mpsc::Receiver<()>>, limit: Duration) {
    let end = Instant::now() + limit;
    if let Some(input) = input {
        // Nothing is ever sent: it ends with the other end.
        let _ = input.recv_timeout(limit);
    }
    let since = processes::start_ticks(std::process::id());
    let mut steps = processes::LaunchedSteps::since(since);
    let mut rest = || steps.run() || processes::ranks_run(callers);
    while users(true).is_empty() && Instant::now() < end && rest() {
        std::thread::sleep(RANKS_LOOK);
    }
}

/// Between looks at the processes of this machine.
const RANKS_LOOK: Duration = Duration::from_millis(200);

/// Reports that the member stops before the command has ended, and keeps who has used the mount. `origin`: the member that
/// this one follows, if it was told to stop, and why that one stops; `run` may hear of it from here first.
fn stops_early(
    member: u16,
    report: &(impl Fn(&Report) + Clone + Send + Sync + 'static),
    early: &Arc<OnceLock<BTreeSet<u32>>>,
    origin: Arc<OnceLock<(u16, String)>>,
) -> OnEarlyStop {
    let (report, early) = (report.clone(), early.clone());
    Box::new(move |why, callers| {
        // A service stops once.
        let _ = early.set(callers.clone());
        let (member, why) = match origin.get() {
            Some((first, why)) => (*first, why.clone()),
            None => (member, why.into()),
        };
        report(&Report::Stopping { member, why });
    })
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

/// Whether the error is only the echo of another member's.
fn follows(error: &forebay_server::Error) -> bool {
    matches!(error, forebay_server::Error::Peer { .. })
}

/// What a refused server waits for the one that speaks for all.
const TO_SAY_WHY: Duration = Duration::from_secs(1);

/// The version that this server says it is of: its own. Tests may have one say another.
fn version() -> u32 {
    let told = std::env::var("FOREBAY_TEST_VERSION");
    let told = told.ok().and_then(|text| text.parse().ok());
    told.unwrap_or(proto::VERSION)
}

/// Starts MPI and finds the other members.
fn join(start: &Start, home: &Home, expected: u32) -> Result<World> {
    let failed = |e: StartError| Failure::plain(format!("{}: {e}", home.dir().display()));
    let job = Job::start().map_err(failed)?;
    if job.rank != expected {
        return Err(Failure::new(
            format!(
                "MPI says rank {} and the launcher's environment says {expected}",
                job.rank
            ),
            "start the servers with the mpirun or srun of the MPI that forebay was built for",
        ));
    }
    let Ok(size) = u16::try_from(job.size) else {
        return Err(Failure::new(
            format!("{} processes are more than a service may have", job.size),
            "start one server on each node",
        ));
    };
    // A new store takes its rank for its number.
    let (member, members) = home.member().unwrap_or((job.rank as u16, size));
    let identity = Identity {
        version: version(),
        secret: start.secret.clone(),
        member: u32::from(member),
        members: u32::from(members),
        // Members agree on it when they meet, for new stores have none yet.
        service: [0; 16],
    };
    let rank = job.rank;
    job.join(identity, timing(&start.settings.values))
        .map_err(|e| match e {
            // All processes refuse alike: the first one says so for all.
            StartError::Refused(why) if rank != 0 => {
                tracing::error!("{why}");
                // The launcher ends all as soon as one has failed: the first is left the time to say why.
                std::thread::sleep(TO_SAY_WHY);
                Failure::silent()
            }
            e => failed(e),
        })
}

/// Waits until all mounts answer; where they are, by member.
fn seats(
    meeting: &Meeting,
    own: &[MountStatus],
    limit: Duration,
) -> forebay_server::Result<Vec<Seat>> {
    let seat = own.first().map(|mount| Seat {
        member: mount.member,
        host: super::spec::host(),
        mount: mount.path.clone(),
        pid: std::process::id(),
    });
    let shown = serde_json::to_vec(&seat).unwrap_or_default();
    let all = meeting.exchange(shown, limit)?;
    // All run the same version; what cannot be read is left out, and missed by whoever needs it.
    Ok(all
        .iter()
        .filter_map(|text| serde_json::from_slice(text).ok())
        .collect())
}
