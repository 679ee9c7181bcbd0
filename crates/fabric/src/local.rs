//! Ranks as threads of one process.
//!
//! - A request runs the target's handler on the requester's own thread: no queue, no thread switch, no copy. So a
//!   handler that blocks delays its caller beyond the deadline; what counts then is whether it replied.
//! - One-way messages go through one mailbox thread per rank, in the order they were sent.
//! - No lock is held while a handler runs, so handlers may call each other back and forth.
//! - A closed rank is dead to the others. A handler that still runs when its rank closes may finish its reply.

use crate::port::Port;
use crate::{Error, Fabric, Handler, Message, Rank};
use std::sync::Arc;
use std::time::Duration;

/// The ends of a new fabric of `n` ranks, by rank.
pub fn fabric(n: u32) -> Vec<Arc<LocalFabric>> {
    let ports: Arc<[Arc<Port>]> = (0..n).map(Port::new).collect();
    (0..n)
        .map(|rank| {
            Arc::new(LocalFabric {
                rank,
                ports: ports.clone(),
            })
        })
        .collect()
}

/// One rank's end of a fabric inside one process. Dropping it closes it.
pub struct LocalFabric {
    rank: Rank,
    ports: Arc<[Arc<Port>]>,
}

impl LocalFabric {
    fn own(&self) -> &Arc<Port> {
        &self.ports[self.rank as usize]
    }

    /// The peer's port, if both ends are open.
    fn peer(&self, to: Rank) -> Result<&Arc<Port>, Error> {
        let peer = self.ports.get(to as usize).ok_or(Error::NoSuchRank(to))?;
        if self.own().is_closed() {
            return Err(Error::Closed);
        }
        if peer.is_closed() {
            return Err(Error::Dead(to));
        }
        Ok(peer)
    }
}

impl Fabric for LocalFabric {
    fn rank(&self) -> Rank {
        self.rank
    }

    fn size(&self) -> u32 {
        self.ports.len() as u32
    }

    fn call(&self, to: Rank, message: Message, deadline: Duration) -> Result<Message, Error> {
        let peer = self.peer(to)?;
        peer.call_here(self.own(), message, deadline, || self.peer(to).map(drop))
    }

    fn send(&self, to: Rank, message: Message) -> Result<(), Error> {
        self.peer(to)?.post(self.rank, message)
    }

    fn serve(&self, handler: Arc<dyn Handler>) {
        self.own().serve(handler);
    }

    fn close(&self) {
        self.own().close(|| ());
    }
}

impl Drop for LocalFabric {
    fn drop(&mut self) {
        self.close();
    }
}
