//! Handlers made of functions, and the bytes that checks send.

use bytes::Bytes;
use forebay_fabric::{Handler, Message, Rank, Replier};
use std::sync::Arc;

type OnRequest = Box<dyn Fn(Rank, Message, Replier) + Send + Sync>;
type OnMessage = Box<dyn Fn(Rank, Message) + Send + Sync>;

/// A handler made of two functions. What has no function is dropped.
#[derive(Default)]
pub struct ClosureHandler {
    on_request: Option<OnRequest>,
    on_message: Option<OnMessage>,
}

impl ClosureHandler {
    /// Handles requests with `f`.
    pub fn requests(
        f: impl Fn(Rank, Message, Replier) + Send + Sync + 'static,
    ) -> Arc<ClosureHandler> {
        Arc::new(ClosureHandler {
            on_request: Some(Box::new(f)),
            on_message: None,
        })
    }

    /// Handles one-way messages with `f`.
    pub fn messages(f: impl Fn(Rank, Message) + Send + Sync + 'static) -> Arc<ClosureHandler> {
        Arc::new(ClosureHandler {
            on_request: None,
            on_message: Some(Box::new(f)),
        })
    }

    /// Answers each request with the request.
    pub fn echo() -> Arc<ClosureHandler> {
        ClosureHandler::requests(|_, message, replier| replier.reply(message))
    }
}

impl Handler for ClosureHandler {
    fn request(&self, from: Rank, message: Message, replier: Replier) {
        if let Some(f) = &self.on_request {
            f(from, message, replier);
        }
    }

    fn message(&self, from: Rank, message: Message) {
        if let Some(f) = &self.on_message {
            f(from, message);
        }
    }
}

/// `len` bytes that differ by place and by `seed`.
pub(super) fn bytes(len: usize, seed: u64) -> Bytes {
    let mut out = Vec::with_capacity(len + 8);
    let mut word = seed;
    while out.len() < len {
        word = word
            .wrapping_mul(0x5851_F42D_4C95_7F2D)
            .wrapping_add(0x1405_7B7E_F767_814F);
        out.extend_from_slice(&(word ^ (word >> 29)).to_le_bytes());
    }
    out.truncate(len);
    Bytes::from(out)
}

/// A message whose head is one number.
pub(super) fn number(n: u64) -> Message {
    Message::new(n.to_le_bytes().to_vec())
}

/// The number of such a message; `None` if it is none.
pub(super) fn read_number(message: &Message) -> Option<u64> {
    Some(u64::from_le_bytes(message.head[..].try_into().ok()?))
}
