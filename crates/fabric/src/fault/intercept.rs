//! An end of a fabric whose requests and messages pass something of a test on their way.
use crate::{Error, Fabric, Handler, Message, Rank};
use std::sync::Arc;
use std::time::Duration;

/// What requests and messages of an end pass. Each goes through unchanged unless its method says otherwise.
pub trait Intercept: Send + Sync {
    /// Instead of `end.call`.
    ///
    /// # Errors
    /// As [`Fabric::call`].
    fn call(
        &self,
        end: &dyn Fabric,
        to: Rank,
        message: Message,
        deadline: Duration,
    ) -> Result<Message, Error> {
        end.call(to, message, deadline)
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
        self.by.call(&*self.end, to, message, deadline)
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
