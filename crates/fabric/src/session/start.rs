//! Starting: from a process that a launcher started to a member among its peers.
//!
//! A start has two halves, for a process has to know its number before it can say which member it runs: [`start`] starts
//! the transport, [`PendingSession::join`] introduces this process to the others.

use super::byte_transport::{ByteTransport, Pause};
use super::commands::{CommandReceiver, CommandSender, commands};
use super::endpoint::Endpoint;
use super::frame;
use super::handle::{ProgressThread, Session};
use super::handler_pool::HandlerPool;
use super::handshake::{Identity, IdentityError, check_identities, encode_record};
use super::peers::Peers;
use super::progress::{ProgressLoop, SessionEnd};
use super::timing::Timing;
use crossbeam_channel::{Receiver, Sender, bounded};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Why a process does not become a member.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The transport can be started once in the life of a process.
    #[error("{0} was already started in this process: start one server per process")]
    Again(&'static str),
    /// The transport failed.
    #[error("{transport} did not start ({reason}): {advice}")]
    Transport {
        /// Its name.
        transport: &'static str,
        /// What failed, in its words.
        reason: String,
        /// What to do.
        advice: &'static str,
    },
    /// Not all processes of the job introduced themselves.
    #[error("not all servers of the job came up within {0:?}: see what the others report")]
    Late(Duration),
    /// They did, and do not belong together.
    #[error(transparent)]
    Refused(#[from] IdentityError),
}

impl StartError {
    fn of<T: ByteTransport>(reason: impl ToString) -> StartError {
        StartError::Transport {
            transport: T::NAME,
            reason: reason.to_string(),
            advice: T::START_ADVICE,
        }
    }
}

type JoinResult = Result<(Arc<Peers>, Timing), StartError>;

/// A process of a job, before it says who it is.
pub struct PendingSession {
    /// This process's number in the job; may differ from start to start.
    pub process: u32,
    /// Number of processes in the job.
    pub processes: u32,
    identity: Sender<(Identity, Timing)>,
    joined: Receiver<JoinResult>,
    progress: ProgressThread,
    commands: CommandSender<Endpoint>,
    pool: Arc<HandlerPool>,
    /// What is said if that thread ends without an answer.
    lost: fn() -> StartError,
}

/// Starts the transport that `connect` makes, on a thread of its own: that thread makes it, uses it and ends it.
///
/// # Errors
/// `Transport`: what `connect` fails with.
pub fn start<T: ByteTransport>(
    connect: impl FnOnce() -> Result<T, T::Error> + Send + 'static,
) -> Result<PendingSession, StartError> {
    let (started, connected) = bounded(1);
    let (identity, identities) = bounded(1);
    let (join, joined) = bounded(1);
    let (end, ended) = bounded(1);
    let pool = Arc::new(HandlerPool::default());
    let own_pool = pool.clone();
    let thread = std::thread::Builder::new()
        .name(format!("{}-progress", T::NAME.to_lowercase()))
        .spawn(move || {
            let transport = match connect() {
                Ok(transport) => transport,
                Err(error) => {
                    // Fails only if nobody waits for it.
                    let _ = started.send(Err(StartError::of::<T>(error)));
                    return;
                }
            };
            let (sender, receiver) = commands(transport.waker());
            let numbers = (transport.process(), transport.processes());
            let _ = started.send(Ok((numbers, sender)));
            let Ok((identity, timing)) = identities.recv() else {
                return;
            };
            let ending = serve(transport, &identity, timing, &join, (receiver, own_pool));
            let _ = end.send(ending);
        })
        .map_err(StartError::of::<T>)?;
    let lost = || StartError::of::<T>("its thread panicked");
    let connected = connected.recv().map_err(|_| lost())?;
    let ((process, processes), commands) = connected?;
    Ok(PendingSession {
        process,
        processes,
        identity,
        joined,
        progress: ProgressThread { ended, thread },
        commands,
        pool,
        lost,
    })
}

impl PendingSession {
    /// Tells all others who this process is, and hears who they are. All processes of the job do this at once.
    ///
    /// # Errors
    /// `Refused`, the same on every process; `Late`; `Transport`.
    pub fn join(self, identity: Identity, timing: Timing) -> Result<Session, StartError> {
        let sent = self.identity.send((identity, timing));
        sent.map_err(|_| (self.lost)())?;
        let (peers, timing) = self.joined.recv().map_err(|_| (self.lost)())??;
        Ok(Session {
            peers,
            timing,
            progress: Some(self.progress),
            commands: self.commands,
            pool: self.pool,
            ends: Mutex::default(),
        })
    }
}

/// The life of the progress thread once the transport has started.
fn serve<T: ByteTransport>(
    mut transport: T,
    identity: &Identity,
    timing: Timing,
    join: &Sender<JoinResult>,
    (commands, pool): (CommandReceiver<Endpoint>, Arc<HandlerPool>),
) -> SessionEnd {
    let members = transport.processes();
    let timing = timing.scaled(members);
    let processes = match exchange_identities(&mut transport, identity, timing) {
        Ok(processes) => processes,
        Err(error) => {
            // All refuse together, so all end the transport; whoever came late could wait for ever.
            let refused = matches!(error, StartError::Refused(_));
            if refused && let Err(error) = transport.finish() {
                tracing::error!(%error, "{} did not end well", T::NAME);
            }
            let _ = join.send(Err(error));
            return SessionEnd::Abandoned;
        }
    };
    let peers = Arc::new(Peers::new(identity.member, members));
    let shared = (peers.clone(), pool, timing);
    let progress = ProgressLoop::new(transport, commands, &processes, shared);
    // Fails only if nobody waits for it; then the commands are disconnected too.
    let _ = join.send(Ok((peers, timing)));
    progress.run()
}

/// Exchanges identities; the process of each member. It waits as the progress thread does when nothing comes: a transport
/// that can be woken sleeps until something arrives; MPI has no wait with a limit, and is looked at between naps.
fn exchange_identities<T: ByteTransport>(
    transport: &mut T,
    identity: &Identity,
    timing: Timing,
) -> Result<Vec<u32>, StartError> {
    let own = encode_record(identity, u32::from(frame::VERSION), &transport.host());
    let begun = Instant::now();
    transport.exchange(own).map_err(StartError::of::<T>)?;
    loop {
        let records = transport.poll_exchange();
        if let Some(records) = records.map_err(StartError::of::<T>)? {
            return Ok(check_identities(&records, T::PROCESS)?);
        }
        let waited = begun.elapsed();
        if waited > timing.join {
            return Err(StartError::Late(timing.join));
        }
        match transport.pause(waited, false) {
            Pause::Spin => std::hint::spin_loop(),
            Pause::Yield => std::thread::yield_now(),
            Pause::Sleep(at_most) => transport.sleep(at_most.min(timing.join - waited)),
        }
    }
}
