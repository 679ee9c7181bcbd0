//! The two traits: [`Fabric`], which a transport implements, and [`Handler`], which its user implements.

use crate::{Error, Message, Rank, Replier};
use std::sync::Arc;
use std::time::Duration;

/// What a rank does with what it receives. Must not hold locks while it calls other ranks: they may call back.
pub trait Handler: Send + Sync {
    /// A request. May run on any thread, many at once, the requester's own included.
    fn request(&self, from: Rank, message: Message, replier: Replier);
    /// A one-way message; those of one sender arrive in order.
    fn message(&self, from: Rank, message: Message);
}

/// One rank's end of the fabric.
pub trait Fabric: Send + Sync {
    /// This end's rank.
    fn rank(&self) -> Rank;
    /// Number of ranks.
    fn size(&self) -> u32;
    /// Sends a request and waits for the reply, `deadline` at most. A rank may call itself.
    ///
    /// # Errors
    /// `Deadline` when time is up, `Dead` when the rank is gone or dropped the request, `Closed` when this end is
    /// closed, `NoSuchRank`.
    fn call(&self, to: Rank, message: Message, deadline: Duration) -> Result<Message, Error>;
    /// Sends a one-way message. `Ok` says it is on its way, not that it arrived.
    ///
    /// # Errors
    /// `Dead`, `Closed` and `NoSuchRank` as for `call`.
    fn send(&self, to: Rank, message: Message) -> Result<(), Error>;
    /// Sets what this rank does with what it receives. Once, before the first message to it.
    fn serve(&self, handler: Arc<dyn Handler>);
    /// Stops receiving and lets go of the handler; requests in flight end with `Closed` or `Dead`. Waits for the
    /// message being handled, unless called by its handler. Closing twice is fine.
    fn close(&self);
}
