//! The wire format of collectives. Numbers are little-endian. There is no checksum: a transport delivers messages whole and
//! unchanged ([`ByteTransport`](crate::session::ByteTransport) promises it).
//!
//! ```text
//! up: a request with a value, or a one-way message with a failure
//!  0   4  "FRNG": tells these from other heads on the same fabric
//!  4   1  version, 1
//!  5   1  kind: 1 value, 2 failure
//!  6   1  failure's kind
//!  7   1  0
//!  8   8  group's number      16   8  digest of the group's ranks and their tree
//! 24   8  round               32   4  root
//! 36   4  milliseconds that the sender still waits: how long this is worth keeping
//! 40   4  failure's rank
//! 44   …  key                 bulk[0]: the value
//!
//! down: the reply
//!  0   4  "FRNG"     4   1  version     5   1  kind: 3 answer, 2 failure     6   1  failure's kind     7   1  0
//!  8   4  failure's rank                bulk[0]: the answer
//! ```

use crate::{Message, Rank};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use std::time::Duration;

const MAGIC: &[u8; 4] = b"FRNG";
const VERSION: u8 = 1;
const VALUE: u8 = 1;
const FAILURE: u8 = 2;
const ANSWER: u8 = 3;
const UP_LEN: usize = 44;
const DOWN_LEN: usize = 12;

macro_rules! failures {
    ($($(#[$doc:meta])* $name:ident = $code:literal: $text:literal,)*) => {
        /// Why an operation failed. The rank is where it was found.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
        pub enum CollectiveFailure { $($(#[$doc])* #[error($text)] $name(Rank)),* }

        impl CollectiveFailure {
            fn code(self) -> (u8, Rank) {
                match self { $(CollectiveFailure::$name(rank) => ($code, rank)),* }
            }

            fn from_code(code: u8, rank: Rank) -> Option<CollectiveFailure> {
                match code {
                    $($code => Some(CollectiveFailure::$name(rank)),)*
                    _ => None,
                }
            }
        }
    };
}

// The number is the failure's kind on the wire.
failures! {
    /// This rank did not take part in time, or is dead.
    Missing = 1: "rank {0} did not take part in time",
    /// The caller's function panicked at this rank.
    Panicked = 2: "the operation panicked at rank {0}",
    /// This rank has another idea of the group, its shape or the root; or it is in another group of this number.
    Mismatch = 3: "rank {0} has another idea of the group; use the same list everywhere, and a number that no other group has now",
    /// This rank is in as many operations as it can keep, or in this one already.
    Busy = 4: "rank {0} is busy",
    /// At this rank the operation had ended before, or a later one has begun.
    Over = 5: "the operation was over at rank {0}; if the ranks are at different operations, go on with a new group number",
    /// No answer came from this rank, which had the value: the operation may have been carried out.
    Lost = 6: "no answer from rank {0}; the operation may have been carried out",
    /// This rank's message was not understood.
    Malformed = 7: "rank {0} sent what is no message of this version",
    /// This rank is not in the group.
    NotAMember = 8: "rank {0} is not in the group",
    /// This rank is at a later operation of the group, so it will not take part.
    Ahead = 9: "rank {0} did not take part, as it is at a later operation of the group; go on with a new group number",
}

impl CollectiveFailure {
    /// Whether the root may have run the operation all the same.
    pub fn may_have_happened(&self) -> bool {
        matches!(
            self,
            CollectiveFailure::Lost(_) | CollectiveFailure::Panicked(_)
        )
    }
}

/// Which operation: the same at all members, and never twice.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct OperationId {
    pub group: u64,
    /// Of the group's ranks: groups of one number are different ones if they differ in it.
    pub digest: u64,
    pub round: u64,
    pub key: Bytes,
}

/// A message from a child.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ChildMessage {
    pub id: OperationId,
    pub root: Rank,
    pub keep_for: Duration,
    pub content: Result<Bytes, CollectiveFailure>,
}

/// Whether a message is one of a collective.
pub(super) fn is_ring(message: &Message) -> bool {
    message.head.starts_with(MAGIC)
}

/// A message of `content`, whose kind is `value` if it is not a failure; `put` writes the rest of its head, of `len` bytes in all, with
/// the failure's rank.
fn message(
    content: Result<Bytes, CollectiveFailure>,
    value: u8,
    len: usize,
    put: impl FnOnce(&mut BytesMut, Rank),
) -> Message {
    let (kind, (code, rank)) = match &content {
        Ok(_) => (value, (0, 0)),
        Err(failure) => (FAILURE, failure.code()),
    };
    let mut head = BytesMut::with_capacity(len);
    head.put_slice(MAGIC);
    head.put_slice(&[VERSION, kind, code, 0]);
    put(&mut head, rank);
    Message {
        head: head.freeze(),
        bulk: content.into_iter().collect(),
    }
}

impl ChildMessage {
    pub fn encode(self) -> Message {
        let (id, root) = (self.id, self.root);
        let millis = u32::try_from(self.keep_for.as_millis()).unwrap_or(u32::MAX);
        message(self.content, VALUE, UP_LEN + id.key.len(), |head, rank| {
            for number in [id.group, id.digest, id.round] {
                head.put_u64_le(number);
            }
            head.put_u32_le(root);
            head.put_u32_le(millis);
            head.put_u32_le(rank);
            head.put_slice(&id.key);
        })
    }

    /// `None` if it is none of this version.
    pub fn decode(message: Message) -> Option<ChildMessage> {
        let mut head = message.head;
        if head.len() < UP_LEN {
            return None;
        }
        let (kind, code) = start(&mut head)?;
        let group = head.get_u64_le();
        let digest = head.get_u64_le();
        let round = head.get_u64_le();
        let root = head.get_u32_le();
        let keep_for = Duration::from_millis(head.get_u32_le().into());
        let rank = head.get_u32_le();
        let content = content(kind, VALUE, code, rank, message.bulk)?;
        Some(ChildMessage {
            id: OperationId {
                group,
                digest,
                round,
                key: head,
            },
            root,
            keep_for,
            content,
        })
    }
}

/// A reply.
pub(super) fn encode_down(outcome: Result<Bytes, CollectiveFailure>) -> Message {
    message(outcome, ANSWER, DOWN_LEN, |head, rank| {
        head.put_u32_le(rank);
    })
}

/// `None` if it is none of this version.
pub(super) fn decode_down(message: Message) -> Option<Result<Bytes, CollectiveFailure>> {
    let mut head = message.head;
    if head.len() != DOWN_LEN {
        return None;
    }
    let (kind, code) = start(&mut head)?;
    let rank = head.get_u32_le();
    content(kind, ANSWER, code, rank, message.bulk)
}

/// Kind and failure's kind from the first 8 bytes.
fn start(head: &mut Bytes) -> Option<(u8, u8)> {
    let start = head.split_to(8);
    let right = start[..4] == MAGIC[..] && start[4] == VERSION && start[7] == 0;
    right.then(|| (start[5], start[6]))
}

fn content(
    kind: u8,
    value: u8,
    code: u8,
    rank: Rank,
    mut bulk: Vec<Bytes>,
) -> Option<Result<Bytes, CollectiveFailure>> {
    match (kind, bulk.len()) {
        (k, 1) if k == value && code == 0 && rank == 0 => bulk.pop().map(Ok),
        (FAILURE, 0) => CollectiveFailure::from_code(code, rank).map(Err),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn failures() -> impl Strategy<Value = CollectiveFailure> {
        (1u8..=9, any::<u32>()).prop_map(|(c, r)| CollectiveFailure::from_code(c, r).unwrap())
    }

    fn outcomes() -> impl Strategy<Value = Result<Bytes, CollectiveFailure>> {
        prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..20).prop_map(|v| Ok(v.into())),
            failures().prop_map(Err),
        ]
    }

    proptest! {
        #[test]
        fn what_is_sent_is_read(
            numbers in any::<[u64; 3]>(),
            key in proptest::collection::vec(any::<u8>(), 0..20),
            root in any::<u32>(),
            keep_for in any::<u32>(),
            content in outcomes(),
        ) {
            let up = ChildMessage {
                id: OperationId { group: numbers[0], digest: numbers[2], round: numbers[1], key: key.into() },
                root,
                keep_for: Duration::from_millis(keep_for.into()),
                content: content.clone(),
            };
            let message = up.clone().encode();
            prop_assert!(is_ring(&message));
            prop_assert_eq!(ChildMessage::decode(message), Some(up));
            prop_assert_eq!(decode_down(encode_down(content.clone())), Some(content));
        }

        #[test]
        fn other_bytes_are_refused_or_read_never_worse(
            mut head in proptest::collection::vec(any::<u8>(), 0..60),
            buffers in 0usize..3,
            version in any::<bool>(),
        ) {
            if version && head.len() >= 5 {
                head[..4].copy_from_slice(MAGIC);
                head[4] = VERSION;
            }
            let message = Message { head: head.into(), bulk: vec![Bytes::new(); buffers] };
            if let Some(up) = ChildMessage::decode(message.clone()) {
                prop_assert_eq!(up.encode(), message.clone());
            }
            if let Some(outcome) = decode_down(message.clone())
                && outcome.is_ok() {
                prop_assert_eq!(&encode_down(outcome).head[..8], &message.head[..8]);
            }
        }
    }

    #[test]
    fn another_version_is_not_read() {
        let mut head = encode_down(Ok(Bytes::new())).head.to_vec();
        head[4] = 2;
        let message = Message {
            head: head.into(),
            bulk: vec![Bytes::new()],
        };
        assert_eq!(decode_down(message), None);
    }
}
