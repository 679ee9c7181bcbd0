//! Messages between ranks, and the number of a rank.

use bytes::Bytes;

/// Where a member runs now: 0..size.
pub type Rank = u32;

/// What travels: a short head (encoded by the caller) and bulk bytes that are never copied more than the transport needs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Message {
    /// The encoded request, reply or message.
    pub head: Bytes,
    /// File bytes and the like; number, order and lengths of the buffers arrive as sent.
    pub bulk: Vec<Bytes>,
}

impl Message {
    /// A message without bulk bytes.
    pub fn new(head: impl Into<Bytes>) -> Message {
        Message {
            head: head.into(),
            bulk: Vec::new(),
        }
    }
}
