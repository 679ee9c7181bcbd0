//! The right to answer one request, once.

use crate::Message;
use std::fmt;

/// Answers one request, from any thread, now or later. Dropping it unanswered fails the request with `Dead`.
pub struct Replier(Box<dyn FnOnce(Message) + Send>);

impl Replier {
    /// For transports. `f` sends the reply; dropping `f` uncalled must fail the request.
    pub fn new(f: impl FnOnce(Message) + Send + 'static) -> Replier {
        Replier(Box::new(f))
    }

    /// Sends the reply. The requester may have stopped waiting; then this does nothing.
    pub fn reply(self, message: Message) {
        (self.0)(message)
    }
}

impl fmt::Debug for Replier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Replier")
    }
}
