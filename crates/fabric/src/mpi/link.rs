//! The transfers between this process and one peer.
//!
//! - First messages are read in the order they were sent, so the pieces that follow them are received in that order too.
//! - One-way messages are handed on in the order they were sent. A `Bye` comes after all that was sent before it. Requests
//!   and replies do not wait for a large message before them.

use super::edge::{Comm, MpiError, Receiving, Sending};
use super::frame::{Arriving, Broken, Frame, Kind};
use bytes::Bytes;
use std::collections::VecDeque;
use std::ffi::c_int;
use std::time::Instant;

/// Why a link is given up.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error(transparent)]
    Mpi(#[from] MpiError),
    #[error(transparent)]
    Broken(#[from] Broken),
}

/// Whether anything was sent or received since the last look.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Moved {
    pub out: bool,
    /// The peer lives.
    pub inn: bool,
}

pub(super) struct Link {
    /// The peer's MPI rank.
    rank: c_int,
    pub last_sent: Instant,
    out: VecDeque<Sending>,
    inn: VecDeque<Inbound>,
}

enum Inbound {
    First(Receiving),
    Large(Arriving, VecDeque<Receiving>, Vec<Bytes>),
    Ready(Frame),
}

impl Link {
    pub fn new(rank: c_int) -> Link {
        Link {
            rank,
            last_sent: Instant::now(),
            out: VecDeque::new(),
            inn: VecDeque::new(),
        }
    }

    /// Whether anything is on its way.
    pub fn is_moving(&self) -> bool {
        self.is_sending() || !self.inn.is_empty()
    }

    pub fn is_sending(&self) -> bool {
        !self.out.is_empty()
    }

    /// Gives up all transfers.
    pub fn clear(&mut self) {
        self.out.clear();
        self.inn.clear();
    }

    /// Begins to send `frame`.
    pub fn send(&mut self, comm: &Comm, frame: &Frame) -> Result<(), MpiError> {
        let (first, large) = frame.encode();
        let sending = comm.send_first(first, self.rank)?;
        self.keep(sending)?;
        for buffer in large {
            let sending = comm.send_pieces(buffer, self.rank)?;
            self.keep(sending)?;
        }
        self.last_sent = Instant::now();
        Ok(())
    }

    fn keep(&mut self, mut sending: Sending) -> Result<(), MpiError> {
        if !self.out.is_empty() || !sending.test()? {
            self.out.push_back(sending);
        }
        Ok(())
    }

    /// A first message is arriving.
    pub fn begin(&mut self, first: Receiving) {
        self.inn.push_back(Inbound::First(first));
    }

    /// Looks how far the transfers are, and gives what has arrived to `take`.
    pub fn advance(&mut self, comm: &Comm, mut take: impl FnMut(Frame)) -> Result<Moved, Failure> {
        let mut moved = Moved::default();
        while let Some(sending) = self.out.front_mut() {
            if !sending.test()? {
                break;
            }
            self.out.pop_front();
            moved.out = true;
        }
        if self.inn.is_empty() {
            return Ok(moved);
        }
        moved.inn |= self.read_firsts(comm)?;
        for inbound in &mut self.inn {
            moved.inn |= receive(inbound)?;
        }
        self.ready().into_iter().for_each(&mut take);
        Ok(moved)
    }

    fn read_firsts(&mut self, comm: &Comm) -> Result<bool, Failure> {
        let mut moved = false;
        for inbound in &mut self.inn {
            let Inbound::First(first) = inbound else {
                continue;
            };
            let Some(first) = first.test()? else {
                break;
            };
            let arriving = Arriving::decode(&first)?;
            let pieces: Result<VecDeque<Receiving>, MpiError> = arriving
                .coming()
                .map(|len| comm.receive_pieces(len, self.rank))
                .collect();
            *inbound = Inbound::Large(arriving, pieces?, Vec::new());
            moved = true;
        }
        Ok(moved)
    }

    /// Takes out the frames that are complete and need not wait for others.
    fn ready(&mut self) -> Vec<Frame> {
        let (mut out, mut kept) = (Vec::new(), VecDeque::new());
        let mut message_before = false;
        for inbound in self.inn.drain(..) {
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
        self.inn = kept;
        out
    }
}

fn may_pass(frame: &Frame, any_before: bool, message_before: bool) -> bool {
    match frame.kind {
        Kind::Bye => !any_before,
        Kind::Message => !message_before,
        Kind::Request | Kind::Reply | Kind::Dropped | Kind::Heartbeat | Kind::Expelled => true,
    }
}

impl Inbound {
    fn may_be_message(&self) -> bool {
        match self {
            Inbound::First(_) => true,
            Inbound::Large(arriving, ..) => arriving.kind == Kind::Message,
            Inbound::Ready(frame) => frame.kind == Kind::Message,
        }
    }
}

/// Collects the buffers that are there; makes the frame when all are.
fn receive(inbound: &mut Inbound) -> Result<bool, MpiError> {
    let Inbound::Large(_, pieces, got) = inbound else {
        return Ok(false);
    };
    let before = got.len();
    while let Some(piece) = pieces.front_mut() {
        let Some(bytes) = piece.test()? else {
            return Ok(got.len() > before);
        };
        pieces.pop_front();
        got.push(bytes);
    }
    // Only for the time of one `match`: replaced below.
    let nothing = Inbound::Ready(Frame::bare(Kind::Heartbeat, 0, 0));
    if let Inbound::Large(arriving, _, got) = std::mem::replace(inbound, nothing) {
        *inbound = Inbound::Ready(arriving.complete(got));
    }
    Ok(true)
}
