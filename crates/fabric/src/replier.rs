//! A one-shot handle for the reply to one request.

use crate::Message;
use std::fmt;

type ReplyTo = Box<dyn FnOnce(Option<Message>) + Send>;

/// Answers one request, from any thread, now or later. Dropping it unanswered fails the request with `Dead`.
pub struct Replier(Option<ReplyTo>);

impl Replier {
    /// For transports. `f` is called once: with the reply, or with `None` when the replier is dropped without one, which
    /// must fail the request.
    pub fn new(f: impl FnOnce(Option<Message>) + Send + 'static) -> Replier {
        Replier(Some(Box::new(f)))
    }

    /// Sends the reply. The requester may have stopped waiting; then this does nothing.
    pub fn reply(mut self, message: Message) {
        self.finish(Some(message));
    }

    fn finish(&mut self, reply: Option<Message>) {
        if let Some(f) = self.0.take() {
            f(reply);
        }
    }
}

impl Drop for Replier {
    fn drop(&mut self) {
        self.finish(None);
    }
}

impl fmt::Debug for Replier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Replier")
    }
}
