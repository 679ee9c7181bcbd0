//! The handle of a running session: its fabrics, its peers, its end.

use super::commands::{Command, CommandSender};
use super::endpoint::{Endpoint, SessionFabric};
use super::handler_pool::HandlerPool;
use super::peers::{Peer, Peers};
use super::progress::SessionEnd;
use super::timing::Timing;
use crate::Rank;
use crossbeam_channel::Receiver;
use parking_lot::Mutex;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

/// A member among its peers. Several fabrics may be open in it. Dropping it stops it.
pub struct Session {
    pub(super) peers: Arc<Peers>,
    pub(super) timing: Timing,
    /// Until it has ended.
    pub(super) progress: Option<ProgressThread>,
    pub(super) commands: CommandSender<Endpoint>,
    pub(super) pool: Arc<HandlerPool>,
    pub(super) ends: Mutex<Vec<Weak<Endpoint>>>,
}

/// The progress thread, and how it says that it ends.
pub(super) struct ProgressThread {
    pub ended: Receiver<SessionEnd>,
    pub thread: JoinHandle<()>,
}

impl Session {
    /// This process's end of the next fabric. All members open their fabrics in the same order; requests that come
    /// before `serve` wait for it.
    pub fn fabric(&self) -> Arc<SessionFabric> {
        let mut ends = self.ends.lock();
        let epoch = ends.len() as u64 + 1;
        let (peers, commands) = (self.peers.clone(), self.commands.clone());
        let end = Endpoint::new(epoch, peers, commands, self.pool.clone());
        // Fails only after the progress thread has ended; then its calls fail too.
        let _ = self.commands.push(Command::Open(epoch, end.clone()));
        ends.push(Arc::downgrade(&end));
        Arc::new(SessionFabric(end))
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

    /// Closes all fabrics, says so to the others, and waits for them to stop too, `timeout` at most. Returns always:
    /// where ending the transport could wait for ever it is left, and if it does hang, it is left too.
    pub fn stop(mut self, timeout: Duration) -> SessionEnd {
        self.end(timeout)
    }

    fn end(&mut self, timeout: Duration) -> SessionEnd {
        let Some(progress) = self.progress.take() else {
            return SessionEnd::Abandoned; // Ended before.
        };
        let ends: Vec<_> = self.ends.lock().iter().filter_map(Weak::upgrade).collect();
        for end in ends {
            end.close();
        }
        // Fails only if the thread has ended.
        let _ = self.commands.push(Command::Stop(timeout));
        let limit = timeout.saturating_add(self.timing.limit);
        match progress.ended.recv_timeout(limit) {
            Ok(ending) => {
                if progress.thread.join().is_err() {
                    tracing::error!("the progress thread panicked");
                }
                ending
            }
            Err(_) => SessionEnd::Abandoned,
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.end(self.timing.limit);
    }
}
