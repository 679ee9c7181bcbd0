//! The frames on their way between this process and one peer.
//!
//! - First messages are read in the order they were sent, so the large buffers that follow them are received in that order too.
//! - One-way messages are handed on in the order they were sent. A `Bye` (the peer leaves) comes after all that was sent before it.
//!   Requests and replies do not wait for a large message before them.

use super::byte_transport::ByteTransport;
use super::frame::{Frame, FrameError, FrameKind, PartialFrame};
use bytes::Bytes;
use std::collections::VecDeque;
use std::time::Instant;

/// Why a link is given up.
#[derive(Debug, thiserror::Error)]
pub(super) enum LinkError<E: std::error::Error> {
    #[error("{0}")]
    Transport(E),
    #[error(transparent)]
    Frame(FrameError),
}

/// What moved on a link since the last look.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct LinkProgress {
    pub sent: bool,
    /// The peer lives.
    pub received: bool,
}

pub(super) struct Link<T: ByteTransport> {
    /// The peer's process.
    process: u32,
    pub last_sent: Instant,
    outbound: VecDeque<T::PendingSend>,
    inbound: VecDeque<Inbound<T>>,
}

enum Inbound<T: ByteTransport> {
    /// Its first message is being received.
    First(T::PendingReceive),
    /// Its large buffers are: those to come, and those that are here.
    Large(PartialFrame, VecDeque<T::PendingReceive>, Vec<Bytes>),
    Ready(Frame),
}

impl<T: ByteTransport> Link<T> {
    pub fn new(process: u32) -> Link<T> {
        Link {
            process,
            last_sent: Instant::now(),
            outbound: VecDeque::new(),
            inbound: VecDeque::new(),
        }
    }

    /// Whether anything is on its way.
    pub fn is_moving(&self) -> bool {
        self.is_sending() || !self.inbound.is_empty()
    }

    pub fn is_sending(&self) -> bool {
        !self.outbound.is_empty()
    }

    /// Gives up all transfers.
    pub fn clear(&mut self) {
        self.outbound.clear();
        self.inbound.clear();
    }

    /// Begins to send `frame`.
    pub fn send(&mut self, transport: &mut T, frame: &Frame) -> Result<(), T::Error> {
        let (first, large) = frame.encode();
        let sending = transport.send_first(self.process, first)?;
        self.queue_unless_sent(transport, sending)?;
        for buffer in large {
            let sending = transport.send_large(self.process, buffer)?;
            self.queue_unless_sent(transport, sending)?;
        }
        self.last_sent = Instant::now();
        Ok(())
    }

    fn queue_unless_sent(
        &mut self,
        transport: &mut T,
        mut sending: T::PendingSend,
    ) -> Result<(), T::Error> {
        if !self.outbound.is_empty() || !transport.poll_send(&mut sending)? {
            self.outbound.push_back(sending);
        }
        Ok(())
    }

    /// A first message is arriving.
    pub fn begin(&mut self, first: T::PendingReceive) {
        self.inbound.push_back(Inbound::First(first));
    }

    /// Looks how far the transfers are, and gives what has arrived to `take`.
    pub fn advance(
        &mut self,
        transport: &mut T,
        mut take: impl FnMut(Frame),
    ) -> Result<LinkProgress, LinkError<T::Error>> {
        let mut moved = LinkProgress::default();
        while let Some(sending) = self.outbound.front_mut() {
            if !transport.poll_send(sending).map_err(LinkError::Transport)? {
                break;
            }
            self.outbound.pop_front();
            moved.sent = true;
        }
        if self.inbound.is_empty() {
            return Ok(moved);
        }
        moved.received |= self.read_firsts(transport)?;
        for inbound in &mut self.inbound {
            moved.received |= receive_large(transport, inbound).map_err(LinkError::Transport)?;
        }
        self.ready().into_iter().for_each(&mut take);
        Ok(moved)
    }

    fn read_firsts(&mut self, transport: &mut T) -> Result<bool, LinkError<T::Error>> {
        let mut moved = false;
        for inbound in &mut self.inbound {
            let Inbound::First(first) = inbound else {
                continue;
            };
            let first = transport.poll_receive(first);
            let Some(first) = first.map_err(LinkError::Transport)? else {
                break;
            };
            let partial = PartialFrame::decode(&first).map_err(LinkError::Frame)?;
            let large: Result<VecDeque<T::PendingReceive>, T::Error> = partial
                .separate_lengths()
                .map(|len| transport.receive_large(self.process, len))
                .collect();
            *inbound = Inbound::Large(partial, large.map_err(LinkError::Transport)?, Vec::new());
            moved = true;
        }
        Ok(moved)
    }

    /// Takes out the frames that are complete and need not wait for others.
    fn ready(&mut self) -> Vec<Frame> {
        let (mut out, mut kept) = (Vec::new(), VecDeque::new());
        let mut message_before = false;
        for inbound in self.inbound.drain(..) {
            match inbound {
                Inbound::Ready(frame) if may_pass(&frame, !kept.is_empty(), message_before) => {
                    out.push(frame);
                }
                other => {
                    message_before |= other.may_be_message();
                    kept.push_back(other);
                }
            }
        }
        self.inbound = kept;
        out
    }
}

fn may_pass(frame: &Frame, any_before: bool, message_before: bool) -> bool {
    match frame.kind {
        FrameKind::Bye => !any_before,
        FrameKind::Message => !message_before,
        FrameKind::Request
        | FrameKind::Reply
        | FrameKind::Dropped
        | FrameKind::Heartbeat
        | FrameKind::Expelled => true,
    }
}

impl<T: ByteTransport> Inbound<T> {
    fn may_be_message(&self) -> bool {
        match self {
            Inbound::First(_) => true,
            Inbound::Large(partial, ..) => partial.kind == FrameKind::Message,
            Inbound::Ready(frame) => frame.kind == FrameKind::Message,
        }
    }
}

/// Collects the large buffers that are there; makes the frame when all are.
fn receive_large<T: ByteTransport>(
    transport: &mut T,
    inbound: &mut Inbound<T>,
) -> Result<bool, T::Error> {
    let Inbound::Large(_, awaited, got) = inbound else {
        return Ok(false);
    };
    let before = got.len();
    while let Some(receiving) = awaited.front_mut() {
        let Some(bytes) = transport.poll_receive(receiving)? else {
            return Ok(got.len() > before);
        };
        awaited.pop_front();
        got.push(bytes);
    }
    // Only for the time of one `match`: replaced below.
    let nothing = Inbound::Ready(Frame::control(FrameKind::Heartbeat, 0, 0));
    if let Inbound::Large(partial, _, got) = std::mem::replace(inbound, nothing) {
        *inbound = Inbound::Ready(partial.complete(got));
    }
    Ok(true)
}
