//! An end of a fabric whose requests and messages pass through a test's own code first.

use crate::{Error, Fabric, Handler, Message, Rank};
use std::sync::Arc;
use std::time::Duration;

/// A request on its way: what [`Fabric::call`] of an end was asked.
pub struct InterceptedCall<'a> {
    /// The end that asks.
    pub end: &'a dyn Fabric,
    /// The rank asked.
    pub to: Rank,
    /// The request.
    pub message: Message,
    /// How long the caller waits.
    pub deadline: Duration,
}

impl InterceptedCall<'_> {
    /// Asks, and gives the reply.
    ///
    /// # Errors
    /// As [`Fabric::call`].
    pub fn proceed(self) -> Result<Message, Error> {
        self.end.call(self.to, self.message, self.deadline)
    }
}

/// What requests and messages of an end pass. Each goes through unchanged unless its method says otherwise.
pub trait Intercept: Send + Sync {
    /// Instead of `end.call`.
    ///
    /// # Errors
    /// As [`Fabric::call`].
    fn call(&self, call: InterceptedCall<'_>) -> Result<Message, Error> {
        call.proceed()
    }

    /// Instead of `end.send`.
    ///
    /// # Errors
    /// As [`Fabric::send`].
    fn send(&self, end: &dyn Fabric, to: Rank, message: Message) -> Result<(), Error> {
        end.send(to, message)
    }
}

struct InterceptedFabric {
    end: Arc<dyn Fabric>,
    by: Arc<dyn Intercept>,
}

/// The end, with what is sent over it passing `by`.
pub fn intercepted(end: Arc<dyn Fabric>, by: Arc<dyn Intercept>) -> Arc<dyn Fabric> {
    Arc::new(InterceptedFabric { end, by })
}

impl Fabric for InterceptedFabric {
    fn rank(&self) -> Rank {
        self.end.rank()
    }

    fn size(&self) -> u32 {
        self.end.size()
    }

    fn call(&self, to: Rank, message: Message, deadline: Duration) -> Result<Message, Error> {
        self.by.call(InterceptedCall {
            end: &*self.end,
            to,
            message,
            deadline,
        })
    }

    fn send(&self, to: Rank, message: Message) -> Result<(), Error> {
        self.by.send(&*self.end, to, message)
    }

    fn serve(&self, handler: Arc<dyn Handler>) {
        self.end.serve(handler);
    }

    fn close(&self) {
        self.end.close();
    }
}
