//! Accepting connections on a local socket: one thread that accepts, a short-lived one for each connection. The control socket and the
//! metrics are served so.
//!
//! Invariants: a fixed number of connections is served at once; a further one gets an error and is closed. Where
//! [`Acceptor::reserve`] asks for it one descriptor is held back, so that a process that has run out of them still
//! accepts.
use crate::failure::Result;
use crate::threads;
use parking_lot::{Condvar, Mutex};
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// How long is waited for a connection to end when there is no descriptor for the next one: others of the process may come back without
/// a word.
const DESCRIPTOR_WAIT: Duration = Duration::from_millis(100);

/// How connections are accepted.
pub struct Acceptor {
    /// What is served, for names of threads and the log.
    pub what: &'static str,
    /// Connections at once.
    pub most: usize,
    /// Whether a descriptor is held back.
    pub reserve: bool,
}

/// The connections that are served.
#[derive(Default)]
struct Connections {
    count: Mutex<ConnectionCount>,
    ended: Condvar,
}

#[derive(Default)]
struct ConnectionCount {
    open: usize,
    /// Since the start.
    ended: u64,
}

impl Connections {
    /// Waits until one ends, `limit` at most.
    fn wait_for_end(&self, limit: Duration) {
        let mut count = self.count.lock();
        let before = count.ended;
        self.ended
            .wait_while_for(&mut count, |count| count.ended == before, limit);
    }
}

/// One connection, counted while it lives.
struct Permit(Arc<Connections>);

impl Permit {
    fn get(connections: &Arc<Connections>, most: usize) -> Option<Permit> {
        let mut count = connections.count.lock();
        if count.open >= most {
            return None;
        }
        count.open += 1;
        Some(Permit(connections.clone()))
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut count = self.0.count.lock();
        (count.open, count.ended) = (count.open - 1, count.ended + 1);
        self.0.ended.notify_all();
    }
}

impl Acceptor {
    /// Accepts on a thread of its own: `next` waits for a connection, `None` ends it; `refuse` tells one too many; `serve` answers one.
    ///
    /// # Errors
    /// If there is no thread.
    pub fn start<C: Send + 'static>(
        self,
        next: impl Fn() -> Option<io::Result<C>> + Send + 'static,
        refuse: impl Fn(&mut C) + Send + 'static,
        serve: impl Fn(C) + Send + Sync + 'static,
    ) -> Result {
        let serve = Arc::new(serve);
        let thread = format!("the thread of the {}", self.what);
        threads::spawn(self.what, &thread, move || {
            self.accept(next, refuse, &serve);
        })
    }

    fn accept<C: Send + 'static>(
        &self,
        next: impl Fn() -> Option<io::Result<C>>,
        refuse: impl Fn(&mut C),
        serve: &Arc<impl Fn(C) + Send + Sync + 'static>,
    ) {
        let connections = Arc::new(Connections::default());
        let hold_back = || self.reserve.then(|| File::open("/dev/null").ok()).flatten();
        let mut held_back = hold_back();
        while let Some(accepted) = next() {
            let mut connection = match accepted {
                Ok(connection) => connection,
                Err(e) => {
                    if held_back.take().is_none() {
                        tracing::debug!("{}: {e}", self.what);
                        connections.wait_for_end(DESCRIPTOR_WAIT);
                        held_back = hold_back();
                    }
                    continue;
                }
            };
            held_back = held_back.or_else(hold_back);
            let Some(permit) = Permit::get(&connections, self.most) else {
                refuse(&mut connection);
                continue;
            };
            let serve = serve.clone();
            let thread = std::thread::Builder::new().name(format!("{} peer", self.what));
            let started = thread.spawn(move || {
                let _permit = permit;
                serve(connection);
            });
            if let Err(e) = started {
                tracing::warn!("a connection for {} was dropped: {e}", self.what);
            }
        }
    }
}
