//! One rank's end of one fabric of the job.
//!
//! Calls register here, hand their frame to the progress thread and wait; the progress thread brings what arrives.
//! No lock is held while a handler runs or a frame is handed over.

use super::engine::{Command, Wire};
use super::frame::{Frame, Kind, MOST_BUFFERS};
use super::peers::Peers;
use super::pool::Pool;
use crate::port::Port;
use crate::slot::{Answer, Slot};
use crate::{Error, Fabric, Handler, Message, Rank, Replier};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

pub(super) struct End {
    pub epoch: u64,
    peers: Arc<Peers>,
    port: Arc<Port>,
    wire: Wire,
    pool: Arc<Pool>,
    closed: AtomicBool,
    /// Peers whose end of this fabric is closed.
    gone: Vec<AtomicBool>,
    calls: Mutex<HashMap<u64, (Rank, Arc<Slot>)>>,
    next: AtomicU64,
    /// Requests that came before there was a handler; `None` from then on.
    early: Mutex<Option<Vec<Early>>>,
}

type Early = (Rank, Message, Replier);

impl End {
    pub fn new(epoch: u64, peers: Arc<Peers>, wire: Wire, pool: Arc<Pool>) -> Arc<End> {
        Arc::new(End {
            epoch,
            port: Port::new(peers.own()),
            gone: (0..peers.size()).map(|_| AtomicBool::new(false)).collect(),
            peers,
            wire,
            pool,
            closed: AtomicBool::new(false),
            calls: Mutex::default(),
            next: AtomicU64::new(1),
            early: Mutex::new(Some(Vec::new())),
        })
    }

    /// Whether a call or message to `to` can start.
    fn admit(&self, to: Rank) -> Result<(), Error> {
        let gone = self.gone.get(to as usize).ok_or(Error::NoSuchRank(to))?;
        if self.closed.load(Ordering::SeqCst) {
            return Err(Error::Closed);
        }
        if gone.load(Ordering::SeqCst) || (to != self.peers.own() && !self.peers.is_alive(to)) {
            return Err(Error::Dead(to));
        }
        Ok(())
    }

    fn post(&self, to: Rank, kind: Kind, id: u64, message: Message) -> Result<(), Error> {
        if message.bulk.len() >= MOST_BUFFERS {
            tracing::error!(to, buffers = message.bulk.len(), "too many buffers");
            return Err(Error::Dead(to));
        }
        let frame = Frame {
            kind,
            epoch: self.epoch,
            id,
            message: Some(message),
        };
        self.wire.give(Command::Send(to, frame))
    }

    fn ask(&self, to: Rank, message: Message, deadline: Duration) -> Result<Message, Error> {
        // A deadline too far for the clock is none.
        let until = Instant::now().checked_add(deadline);
        let slot = Slot::new();
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        self.calls.lock().insert(id, (to, slot.clone()));
        // Registered first, looked at second: a close or death in between is seen by one of the two.
        let sent = self.admit(to);
        let sent = sent.and_then(|()| self.post(to, Kind::Request, id, message));
        let answer = sent.and_then(|()| slot.wait(until));
        self.calls.lock().remove(&id);
        let late = Error::Deadline {
            rank: to,
            after: deadline,
        };
        answer?.ok_or(late)
    }

    /// As on the local fabric: the handler runs on the caller's thread.
    fn ask_self(&self, message: Message, deadline: Duration) -> Result<Message, Error> {
        let own = self.peers.own();
        let handler = self.port.handler().ok_or(Error::Dead(own))?;
        let until = Instant::now().checked_add(deadline);
        let slot = Slot::new();
        let answer = Answer::new(slot.clone(), own);
        handler.request(own, message, Replier::new(move |m| answer.give(m)));
        drop(handler);
        if let Some(answer) = slot.take() {
            return answer;
        }
        let _watch = self.port.watch(&slot, Error::Closed);
        if let Err(error) = self.admit(own) {
            slot.fail(error);
        }
        let late = Error::Deadline {
            rank: own,
            after: deadline,
        };
        slot.wait(until)?.ok_or(late)
    }

    /// Takes what arrived from an alive peer. On the progress thread: hands over and returns.
    pub fn arrive(self: &Arc<End>, from: Rank, frame: Frame) {
        let id = frame.id;
        match (frame.kind, frame.message) {
            (Kind::Request, Some(message)) => self.request(from, id, message),
            (Kind::Reply, Some(message)) => {
                if let Some(slot) = self.waiting(from, id) {
                    slot.fill(Ok(message));
                }
            }
            (Kind::Dropped, _) => {
                if let Some(slot) = self.waiting(from, id) {
                    slot.fail(Error::Dead(from));
                }
            }
            (Kind::Message, Some(message)) => {
                if self.port.post(from, message).is_err() {
                    tracing::debug!(from, "a message came after the mailbox closed");
                }
            }
            (Kind::Bye, _) => self.peer_gone(from),
            (kind, _) => tracing::debug!(from, ?kind, "a frame without its message"),
        }
    }

    fn waiting(&self, from: Rank, id: u64) -> Option<Arc<Slot>> {
        let calls = self.calls.lock();
        let call = calls.get(&id).filter(|(to, _)| *to == from);
        call.map(|(_, slot)| slot.clone())
    }

    fn request(self: &Arc<End>, from: Rank, id: u64, message: Message) {
        let answer = Remote {
            end: Some(Arc::clone(self)),
            to: from,
            id,
        };
        let replier = Replier::new(move |m| answer.give(m));
        let mut early = self.early.lock();
        match early.as_mut() {
            Some(waiting) => waiting.push((from, message, replier)),
            None => {
                drop(early);
                self.handle((from, message, replier));
            }
        }
    }

    fn handle(&self, (from, message, replier): Early) {
        let Some(handler) = self.port.handler() else {
            return; // Closed: dropping the replier says so.
        };
        self.pool
            .run(move || handler.request(from, message, replier));
    }

    /// A peer's end is closed, or the peer left or died: calls to it end, later ones fail.
    pub fn peer_gone(&self, rank: Rank) {
        if let Some(gone) = self.gone.get(rank as usize) {
            gone.store(true, Ordering::SeqCst);
        }
        self.fail_calls(Error::Dead(rank), |to| to == rank);
    }

    fn fail_calls(&self, error: Error, which: impl Fn(Rank) -> bool) {
        let calls = self.calls.lock();
        for (to, slot) in calls.values() {
            if which(*to) {
                slot.fail(error.clone());
            }
        }
    }

    pub fn close(&self) {
        if self.closed.swap(true, Ordering::SeqCst) {
            return;
        }
        self.fail_calls(Error::Closed, |_| true);
        // Fails only if the progress thread has ended, and then nobody waits for it.
        let _ = self.wire.give(Command::Close(self.epoch));
        let early = self.early.lock().take();
        self.port.close();
        drop(early);
    }
}

/// The right to answer a request of another process; dropped unused it says so.
struct Remote {
    end: Option<Arc<End>>,
    to: Rank,
    id: u64,
}

impl Remote {
    fn give(mut self, message: Message) {
        if let Some(end) = self.end.take() {
            // Fails only if the job is over, and the requester knows that.
            let _ = end.post(self.to, Kind::Reply, self.id, message);
        }
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        if let Some(end) = self.end.take() {
            let frame = Frame::bare(Kind::Dropped, end.epoch, self.id);
            // As for `give`.
            let _ = end.wire.give(Command::Send(self.to, frame));
        }
    }
}

/// One rank's end of a fabric over MPI. Its rank is the member's number. Dropping it closes it.
pub struct MpiFabric(pub(super) Arc<End>);

impl Fabric for MpiFabric {
    fn rank(&self) -> Rank {
        self.0.peers.own()
    }

    fn size(&self) -> u32 {
        self.0.peers.size()
    }

    fn call(&self, to: Rank, message: Message, deadline: Duration) -> Result<Message, Error> {
        self.0.admit(to)?;
        if to == self.rank() {
            self.0.ask_self(message, deadline)
        } else {
            self.0.ask(to, message, deadline)
        }
    }

    fn send(&self, to: Rank, message: Message) -> Result<(), Error> {
        self.0.admit(to)?;
        if to == self.rank() {
            self.0.port.post(to, message)
        } else {
            self.0.post(to, Kind::Message, 0, message)
        }
    }

    fn serve(&self, handler: Arc<dyn Handler>) {
        self.0.port.serve(handler);
        let early = self.0.early.lock().take();
        for request in early.into_iter().flatten() {
            self.0.handle(request);
        }
    }

    fn close(&self) {
        self.0.close();
    }
}

impl Drop for MpiFabric {
    fn drop(&mut self) {
        self.close();
    }
}
