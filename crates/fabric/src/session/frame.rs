//! Frames: the messages between the processes of a session.
//!
//! A frame is a first message, and after it each buffer of 16 KiB or more by itself, so that large buffers are sent
//! from where they are and received into their final places. All numbers are little-endian.
//!
//! ```text
//!  0          4         6      7   8             16            24          28         32
//! | magic     | version | kind | 0 | epoch       | id          | buffers n | checksum |
//!  32           32 + 8n
//! | n lengths   | the bytes of the small buffers, one after the other
//! ```
//!
//! - magic and version: what does not begin so is not ours, or of another release. The handshake has excluded both, so
//!   a frame that fails here says that the peer or the network is broken: the peer is given up.
//! - kind: see [`FrameKind`].
//! - epoch: which of the fabrics of this job, counted from 1 in the order they were opened; 0 is the job itself.
//! - id: the request, as its sender counts; a reply repeats it. 0 for what is not answered.
//! - buffers: the head first, then the bulk; 0 for what carries no message.
//! - checksum: CRC32C of the header, without these four bytes, and the lengths: a wrong kind or length would be acted on. It does
//!   not cover the buffers: the transport delivers them unchanged.
//! - a buffer is in the first message if it is shorter than 16 KiB and the buffers before it there take less than 1 GiB.

use crate::Message;
use bytes::{Buf, Bytes};

const MAGIC: [u8; 4] = *b"FBmp";
/// Of this layout and of what the kinds mean; compared in the handshake.
pub(super) const VERSION: u16 = 2;
const HEADER_LEN: usize = 32;
/// Shorter buffers are copied into the first message: one copy is cheaper than one more message of the transport.
const INLINE_BELOW: usize = 16 << 10;
/// Keeps the first message below 2 GiB, the most that MPI can count.
const INLINE_TOTAL: usize = 1 << 30;
/// The lengths take at most 512 MiB of the first message.
pub(super) const MAX_BUFFERS: usize = 1 << 26;

/// What a frame is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum FrameKind {
    /// To be answered with `Reply` or `Dropped`.
    Request = 1,
    /// The answer.
    Reply = 2,
    /// There will be no answer.
    Dropped = 3,
    /// A one-way message.
    Message = 4,
    /// Says only that the sender lives.
    Heartbeat = 5,
    /// The sender has closed its end of the epoch; for epoch 0 it leaves the job.
    Bye = 6,
    /// The sender has declared the receiver dead, and hears nothing of it any more.
    Expelled = 7,
}

impl FrameKind {
    fn from_byte(byte: u8) -> Option<FrameKind> {
        use FrameKind::*;
        let all = [Request, Reply, Dropped, Message, Heartbeat, Bye, Expelled];
        all.into_iter().find(|kind| *kind as u8 == byte)
    }
}

/// A frame to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Frame {
    pub kind: FrameKind,
    pub epoch: u64,
    pub id: u64,
    pub message: Option<Message>,
}

impl Frame {
    pub fn control(kind: FrameKind, epoch: u64, id: u64) -> Frame {
        Frame {
            kind,
            epoch,
            id,
            message: None,
        }
    }

    /// The first message, and the large buffers that follow it.
    pub fn encode(&self) -> (Bytes, Vec<Bytes>) {
        let buffers = self.message.iter();
        let buffers =
            buffers.flat_map(|message| std::iter::once(&message.head).chain(&message.bulk));
        let buffers: Vec<&Bytes> = buffers.collect();
        let mut budget = InlineBudget::default();
        let (inline, large): (Vec<&Bytes>, Vec<&Bytes>) =
            buffers.iter().partition(|b| budget.is_inline(b.len()));
        let lengths_end = HEADER_LEN + 8 * buffers.len();
        let mut first = Vec::with_capacity(lengths_end + budget.sum);
        first.extend_from_slice(&MAGIC);
        first.extend_from_slice(&VERSION.to_le_bytes());
        first.extend_from_slice(&[self.kind as u8, 0]);
        first.extend_from_slice(&self.epoch.to_le_bytes());
        first.extend_from_slice(&self.id.to_le_bytes());
        first.extend_from_slice(&(buffers.len() as u32).to_le_bytes());
        first.extend_from_slice(&[0; 4]);
        for buffer in &buffers {
            first.extend_from_slice(&(buffer.len() as u64).to_le_bytes());
        }
        let sum = checksum(&first);
        first[28..32].copy_from_slice(&sum.to_le_bytes());
        for buffer in inline {
            first.extend_from_slice(buffer);
        }
        (first.into(), large.into_iter().cloned().collect())
    }
}

/// Tells which buffers are in the first message; asked in order.
#[derive(Default)]
struct InlineBudget {
    sum: usize,
}

impl InlineBudget {
    fn is_inline(&mut self, len: usize) -> bool {
        let inline = len < INLINE_BELOW && self.sum < INLINE_TOTAL;
        if inline {
            self.sum += len;
        }
        inline
    }
}

/// A frame whose first message has arrived.
#[derive(Debug)]
pub(super) struct PartialFrame {
    pub kind: FrameKind,
    pub epoch: u64,
    pub id: u64,
    buffers: Vec<Buffer>,
}

#[derive(Debug)]
enum Buffer {
    Inline(Bytes),
    Separate(usize),
}

/// Why a first message is not one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a broken frame of {len} bytes: {what}")]
pub(super) struct FrameError {
    len: usize,
    what: &'static str,
}

impl PartialFrame {
    pub fn decode(first: &Bytes) -> Result<PartialFrame, FrameError> {
        let broken = |what| FrameError {
            len: first.len(),
            what,
        };
        if first.len() < HEADER_LEN || first[..4] != MAGIC {
            return Err(broken("no magic"));
        }
        if first[4..6] != VERSION.to_le_bytes() {
            return Err(broken("another version"));
        }
        let mut header = &first[8..HEADER_LEN];
        let (epoch, id) = (header.get_u64_le(), header.get_u64_le());
        let (count, sum) = (header.get_u32_le() as usize, header.get_u32_le());
        let lengths_end = HEADER_LEN + 8 * count;
        if count > MAX_BUFFERS || first.len() < lengths_end {
            return Err(broken("cut short"));
        }
        if checksum(&first[..lengths_end]) != sum {
            return Err(broken("wrong checksum"));
        }
        let kind = FrameKind::from_byte(first[6]).ok_or_else(|| broken("unknown kind"))?;
        let mut budget = InlineBudget::default();
        let mut lengths = &first[HEADER_LEN..lengths_end];
        let mut at = lengths_end;
        let mut buffers = Vec::with_capacity(count);
        for _ in 0..count {
            let len = usize::try_from(lengths.get_u64_le()).map_err(|_| broken("too long"))?;
            if !budget.is_inline(len) {
                buffers.push(Buffer::Separate(len));
            } else if first.len() - at < len {
                return Err(broken("cut short"));
            } else {
                buffers.push(Buffer::Inline(first.slice(at..at + len)));
                at += len;
            }
        }
        if at != first.len() {
            return Err(broken("too long"));
        }
        Ok(PartialFrame {
            kind,
            epoch,
            id,
            buffers,
        })
    }

    /// The lengths of the buffers that follow, in order.
    pub fn separate_lengths(&self) -> impl Iterator<Item = usize> + '_ {
        self.buffers.iter().filter_map(|buffer| match buffer {
            Buffer::Inline(_) => None,
            Buffer::Separate(len) => Some(*len),
        })
    }

    /// The frame, with the buffers that followed.
    pub fn complete(self, followed: Vec<Bytes>) -> Frame {
        let mut followed = followed.into_iter();
        let mut buffers = self.buffers.into_iter().map(|buffer| match buffer {
            Buffer::Inline(bytes) => bytes,
            Buffer::Separate(_) => followed.next().unwrap_or_default(),
        });
        let message = buffers.next().map(|head| Message {
            head,
            bulk: buffers.collect(),
        });
        Frame {
            kind: self.kind,
            epoch: self.epoch,
            id: self.id,
            message,
        }
    }
}

fn checksum(up_to_lengths: &[u8]) -> u32 {
    forebay_checksum::crc32c_append(
        forebay_checksum::crc32c(&up_to_lengths[..28]),
        &up_to_lengths[HEADER_LEN..],
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn lengths() -> impl Strategy<Value = Vec<usize>> {
        let len = prop_oneof![
            0..20usize,
            INLINE_BELOW - 2..INLINE_BELOW + 3,
            Just(100_000)
        ];
        proptest::collection::vec(len, 0..6)
    }

    proptest! {
        #[test]
        fn frames_come_back(kind in 1..=6u8, epoch: u64, id: u64, lens in lengths()) {
            let mut buffers = lens.iter().enumerate().map(|(i, len)| Bytes::from(vec![i as u8; *len]));
            let message = buffers.next().map(|head| Message { head, bulk: buffers.collect() });
            let kind = FrameKind::from_byte(kind).unwrap();
            let frame = Frame { kind, epoch, id, message };
            let (first, large) = frame.encode();
            let partial = PartialFrame::decode(&first).unwrap();
            let separate: Vec<usize> = partial.separate_lengths().collect();
            prop_assert_eq!(&separate, &large.iter().map(Bytes::len).collect::<Vec<_>>());
            prop_assert!(separate.iter().all(|len| *len >= INLINE_BELOW));
            prop_assert_eq!(partial.complete(large), frame);
        }

        #[test]
        fn a_changed_or_cut_header_is_refused(lens in lengths(), at: prop::sample::Index, bit in 0..8u8) {
            let message = Message { head: Bytes::new(), bulk: lens.iter().map(|len| vec![1; *len].into()).collect() };
            let frame = Frame { kind: FrameKind::Request, epoch: 1, id: 2, message: Some(message) };
            let (first, _) = frame.encode();
            let header = HEADER_LEN + 8 * (lens.len() + 1);
            let mut changed = first.to_vec();
            changed[at.index(header)] ^= 1 << bit;
            prop_assert!(PartialFrame::decode(&changed.into()).is_err());
            prop_assert!(PartialFrame::decode(&first.slice(..at.index(first.len()))).is_err());
        }
    }
}
