//! Interface sketch of the fabric; the public names stay.
#![allow(missing_docs)]
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;

/// Where a member runs now: 0..size.
pub type Rank = u32;

/// What travels: a short head (encoded by the caller) and bulk bytes that are never copied more than the transport needs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Message {
    pub head: Bytes,
    pub bulk: Vec<Bytes>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("rank {0} is dead")]
    Dead(Rank),
    #[error("rank {rank} did not answer within {after:?}")]
    Deadline { rank: Rank, after: Duration },
    #[error("no rank {0} in this service")]
    NoSuchRank(Rank),
    #[error("the fabric is closed")]
    Closed,
}

/// Answers one request, from any thread, now or later. Dropping it unanswered fails the request with `Dead`.
pub struct Replier(Box<dyn FnOnce(Message) + Send>);
impl Replier {
    pub fn new(f: impl FnOnce(Message) + Send + 'static) -> Replier { Replier(Box::new(f)) }
    pub fn reply(self, message: Message) { (self.0)(message) }
}

/// What a rank does with what it receives. Must not hold locks while it calls other ranks.
pub trait Handler: Send + Sync {
    fn request(&self, from: Rank, message: Message, replier: Replier);
    /// A one-way message; those of one sender arrive in order.
    fn message(&self, from: Rank, message: Message);
}

/// One rank's end of the fabric.
pub trait Fabric: Send + Sync {
    fn rank(&self) -> Rank;
    fn size(&self) -> u32;
    /// Sends a request and waits for the reply, `deadline` at most.
    fn call(&self, to: Rank, message: Message, deadline: Duration) -> Result<Message, Error>;
    fn send(&self, to: Rank, message: Message) -> Result<(), Error>;
    /// Sets what this rank does with what it receives. Once, before the first message to it.
    fn serve(&self, handler: Arc<dyn Handler>);
    /// Stops receiving; requests in flight end with `Closed` or `Dead`.
    fn close(&self);
}
