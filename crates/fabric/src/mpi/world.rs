//! Starting and ending: from a process that `mpirun` started to a member among its peers.

use super::edge::{self, Comm, MpiError};
use super::end::{End, MpiFabric};
use super::engine::{Command, Commands, Engine, Wire};
use super::frame;
use super::identity::{Identity, Refused, agree, record};
use super::peers::{Peer, Peers};
use super::pool::Pool;
use crate::Rank;
use crossbeam_channel::{Receiver, Sender, bounded};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The times that the transport keeps to. They are for up to 64 processes; for more they grow in proportion, as each
/// process listens to all others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// A link on which nothing was sent for so long carries a heartbeat. At most a third of `limit` makes sense.
    pub heartbeat: Duration,
    /// A peer that was not heard for so long is dead.
    pub limit: Duration,
    /// How long a process waits for the others to introduce themselves.
    pub join: Duration,
}

impl Default for Timing {
    fn default() -> Timing {
        Timing {
            heartbeat: Duration::from_secs(1),
            limit: Duration::from_secs(10),
            join: Duration::from_secs(120),
        }
    }
}

impl Timing {
    fn scaled(self, size: u32) -> Timing {
        let factor = size.div_ceil(64).max(1);
        Timing {
            heartbeat: self.heartbeat * factor,
            limit: self.limit * factor,
            join: self.join * factor,
        }
    }
}

/// Why a process does not become a member.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// MPI can be started once in the life of a process.
    #[error("MPI was already started in this process: start one server per process")]
    Again,
    /// MPI itself failed.
    #[error(
        "MPI did not start ({0}): start the servers with the mpirun or srun of the MPI they were built for"
    )]
    Mpi(String),
    /// Not all processes of the job introduced themselves.
    #[error("not all servers of the job came up within {0:?}: see what the others report")]
    Late(Duration),
    /// They did, and do not belong together.
    #[error(transparent)]
    Refused(#[from] Refused),
}

impl From<MpiError> for StartError {
    fn from(error: MpiError) -> StartError {
        StartError::Mpi(error.to_string())
    }
}

/// How MPI ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// All left, and `MPI_Finalize` has returned.
    Finalized,
    /// Someone is dead or stays: `MPI_Finalize` would wait for it, so it was not called. The process should end now.
    Abandoned,
}

static STARTED: AtomicBool = AtomicBool::new(false);

type Joined = Result<(Arc<Peers>, Timing), StartError>;

/// A process of an MPI job, before it says who it is.
pub struct Job {
    /// This process's number in the job; may differ from start to start.
    pub rank: u32,
    /// Number of processes in the job.
    pub size: u32,
    identity: Sender<(Identity, Timing)>,
    joined: Receiver<Joined>,
    wire: Wire,
    pool: Arc<Pool>,
    ended: Receiver<Ending>,
    thread: JoinHandle<()>,
}

impl Job {
    /// Starts MPI, on a thread of its own that all MPI calls of this process are made on. Start it before other
    /// threads of the process fork, and fork no more after it.
    ///
    /// # Errors
    /// `Again`, `Mpi`.
    pub fn start() -> Result<Job, StartError> {
        if STARTED.swap(true, Ordering::SeqCst) {
            return Err(StartError::Again);
        }
        let (started, place) = bounded(1);
        let (identity, identities) = bounded(1);
        let (join, joined) = bounded(1);
        let (end, ended) = bounded(1);
        let (wire, commands) = Wire::new();
        let pool = Arc::new(Pool::default());
        let own_pool = pool.clone();
        let thread = std::thread::Builder::new()
            .name("mpi-progress".into())
            .spawn(move || {
                let comm = match edge::init() {
                    Ok(comm) => comm,
                    Err(error) => {
                        // Fails only if nobody waits for it.
                        let _ = started.send(Err(error));
                        return;
                    }
                };
                let _ = started.send(Ok((comm.rank as u32, comm.size as u32)));
                let Ok((identity, timing)) = identities.recv() else {
                    return;
                };
                let ending = serve(comm, &identity, timing, &join, (commands, own_pool));
                let _ = end.send(ending);
            })
            .map_err(|error| StartError::Mpi(error.to_string()))?;
        let place = place.recv();
        let place = place.map_err(|_| StartError::Mpi("its thread panicked".into()))?;
        let (rank, size) = place?;
        Ok(Job {
            rank,
            size,
            identity,
            joined,
            wire,
            pool,
            ended,
            thread,
        })
    }

    /// Tells all others who this process is, and hears who they are. All processes of the job do this at once.
    ///
    /// # Errors
    /// `Refused`, the same on every process; `Late`; `Mpi`.
    pub fn join(self, identity: Identity, timing: Timing) -> Result<World, StartError> {
        let gone = || StartError::Mpi("its thread panicked".into());
        let sent = self.identity.send((identity, timing));
        sent.map_err(|_| gone())?;
        let (peers, timing) = self.joined.recv().map_err(|_| gone())??;
        Ok(World {
            peers,
            timing,
            wire: self.wire,
            pool: self.pool,
            ended: self.ended,
            thread: Mutex::new(Some(self.thread)),
            ends: Mutex::default(),
        })
    }
}

/// The life of the progress thread after MPI has started.
fn serve(
    comm: Comm,
    identity: &Identity,
    timing: Timing,
    join: &Sender<Joined>,
    (commands, pool): (Commands, Arc<Pool>),
) -> Ending {
    let timing = timing.scaled(comm.size as u32);
    let ranks = match introduce(&comm, identity, timing) {
        Ok(ranks) => ranks,
        Err(error) => {
            // All refuse together, so all end MPI; whoever came late could wait for ever.
            let refused = matches!(error, StartError::Refused(_));
            if refused && let Err(error) = comm.finalize() {
                tracing::error!(%error, "MPI did not end well");
            }
            let _ = join.send(Err(error));
            return Ending::Abandoned;
        }
    };
    let peers = Arc::new(Peers::new(identity.member, comm.size as u32));
    let engine = Engine::new(comm, commands, &ranks, (peers.clone(), pool, timing));
    // Fails only if nobody waits for it; then the commands are disconnected too.
    let _ = join.send(Ok((peers, timing)));
    engine.run()
}

/// Exchanges identities; the MPI rank of each member.
fn introduce(comm: &Comm, identity: &Identity, timing: Timing) -> Result<Vec<i32>, StartError> {
    let own = record(identity, u32::from(frame::VERSION), &edge::host());
    let mut gathering = comm.gather(own)?;
    let begun = Instant::now();
    loop {
        if let Some(records) = gathering.test()? {
            return Ok(agree(&records)?);
        }
        if begun.elapsed() > timing.join {
            return Err(StartError::Late(timing.join));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A member among its peers. One per process; several fabrics may be open in it.
pub struct World {
    peers: Arc<Peers>,
    timing: Timing,
    wire: Wire,
    pool: Arc<Pool>,
    ended: Receiver<Ending>,
    thread: Mutex<Option<JoinHandle<()>>>,
    ends: Mutex<Vec<Weak<End>>>,
}

impl World {
    /// This process's end of the next fabric. All members open their fabrics in the same order; requests that come
    /// before `serve` wait for it.
    pub fn fabric(&self) -> Arc<MpiFabric> {
        let mut ends = self.ends.lock();
        let (peers, wire, pool) = (&self.peers, &self.wire, &self.pool);
        let epoch = ends.len() as u64 + 1;
        let end = End::new(epoch, peers.clone(), wire.clone(), pool.clone());
        // Fails only after the progress thread has ended; then its calls fail too.
        let _ = self.wire.give(Command::Open(end.clone()));
        ends.push(Arc::downgrade(&end));
        Arc::new(MpiFabric(end))
    }

    /// This process's member.
    pub fn rank(&self) -> Rank {
        self.peers.own()
    }

    /// Number of members.
    pub fn size(&self) -> u32 {
        self.peers.size()
    }

    /// The times in force, scaled to the number of members.
    pub fn timing(&self) -> Timing {
        self.timing
    }

    /// How all members stand, by member; this one is alive.
    pub fn peers(&self) -> Vec<Peer> {
        self.peers.all()
    }

    /// Calls `f` once for each member that dies from now on, on a thread that may block. A member that leaves does not
    /// die.
    pub fn on_death(&self, f: impl Fn(Rank) + Send + Sync + 'static) {
        self.peers.on_death(Arc::new(f));
    }

    /// Calls `f` with the member that has declared this process dead, once it says so: when this process runs again after it was
    /// kept from running for longer than the limit. Every other member is dead to this one from then on, for they act without it.
    pub fn on_expulsion(&self, f: impl Fn(Rank) + Send + Sync + 'static) {
        self.peers.on_expulsion(Arc::new(f));
    }

    /// Closes all fabrics, says so to the others, and waits for them to stop too, `patience` at most. Returns always:
    /// where `MPI_Finalize` could wait for ever it is not called, and if it does hang, it is left.
    pub fn stop(self, patience: Duration) -> Ending {
        self.end(patience)
    }

    fn end(&self, patience: Duration) -> Ending {
        let Some(thread) = self.thread.lock().take() else {
            return Ending::Abandoned; // Ended before.
        };
        let ends: Vec<_> = self.ends.lock().iter().filter_map(Weak::upgrade).collect();
        for end in ends {
            end.close();
        }
        // Fails only if the thread has ended.
        let _ = self.wire.give(Command::Stop(patience));
        let ended = self
            .ended
            .recv_timeout(patience.saturating_add(self.timing.limit));
        match ended {
            Ok(ending) => {
                if thread.join().is_err() {
                    tracing::error!("the progress thread panicked");
                }
                ending
            }
            Err(_) => Ending::Abandoned,
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.end(self.timing.limit);
    }
}
