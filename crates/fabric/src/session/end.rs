//! One member's end of one fabric of the session.
//!
//! Calls register here, hand their frame to the progress thread and wait; the progress thread brings what arrives.
//! No lock is held while a handler runs or a frame is handed over.

use super::commands::{Command, CommandSender};
use super::frame::{Frame, FrameKind, MAX_BUFFERS};
use super::handler_pool::HandlerPool;
use super::peers::Peers;
use crate::port::Port;
use crate::reply_slot::ReplySlot;
use crate::{Error, Fabric, Handler, Message, Rank, Replier};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

pub(super) struct FabricEnd {
    pub epoch: u64,
    peers: Arc<Peers>,
    port: Arc<Port>,
    commands: CommandSender<FabricEnd>,
    pool: Arc<HandlerPool>,
    closed: AtomicBool,
    /// Peers whose end of this fabric is closed.
    gone: Vec<AtomicBool>,
    calls: Mutex<HashMap<u64, (Rank, Arc<ReplySlot>)>>,
    next: AtomicU64,
    /// Requests that came before there was a handler; `None` from then on.
    early: Mutex<Option<Vec<EarlyRequest>>>,
}

type EarlyRequest = (Rank, Message, Replier);

impl FabricEnd {
    pub fn new(
        epoch: u64,
        peers: Arc<Peers>,
        commands: CommandSender<FabricEnd>,
        pool: Arc<HandlerPool>,
    ) -> Arc<FabricEnd> {
        Arc::new(FabricEnd {
            epoch,
            port: Port::new(peers.own()),
            gone: (0..peers.size()).map(|_| AtomicBool::new(false)).collect(),
            peers,
            commands,
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

    fn send_frame(
        &self,
        to: Rank,
        kind: FrameKind,
        id: u64,
        message: Message,
    ) -> Result<(), Error> {
        if message.bulk.len() >= MAX_BUFFERS {
            tracing::error!(to, buffers = message.bulk.len(), "too many buffers");
            return Err(Error::Dead(to));
        }
        let frame = Frame {
            kind,
            epoch: self.epoch,
            id,
            message: Some(message),
        };
        self.commands.push(Command::Send(to, frame))
    }

    fn call_peer(&self, to: Rank, message: Message, deadline: Duration) -> Result<Message, Error> {
        // A deadline too far for the clock is none.
        let until = Instant::now().checked_add(deadline);
        let slot = ReplySlot::new();
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        self.calls.lock().insert(id, (to, slot.clone()));
        // Registered first, looked at second: a close or death in between is seen by one of the two.
        let sent = self.admit(to);
        let sent = sent.and_then(|()| self.send_frame(to, FrameKind::Request, id, message));
        let answer = sent.and_then(|()| slot.wait(until));
        self.calls.lock().remove(&id);
        let late = Error::Deadline {
            rank: to,
            after: deadline,
        };
        answer?.ok_or(late)
    }

    /// As on the local fabric: the handler runs on the caller's thread.
    fn call_self(&self, message: Message, deadline: Duration) -> Result<Message, Error> {
        let own = self.peers.own();
        self.port.call_here(own, message, deadline, |slot, until| {
            let _watch = self.port.watch(slot, Error::Closed);
            if let Err(error) = self.admit(own) {
                slot.fail(error);
            }
            slot.wait(until)
        })
    }

    /// Takes what arrived from an alive peer. On the progress thread: hands over and returns.
    pub fn arrive(self: &Arc<FabricEnd>, from: Rank, frame: Frame) {
        let id = frame.id;
        match (frame.kind, frame.message) {
            (FrameKind::Request, Some(message)) => self.request(from, id, message),
            (FrameKind::Reply, Some(message)) => {
                if let Some(slot) = self.waiting(from, id) {
                    slot.fill(Ok(message));
                }
            }
            (FrameKind::Dropped, _) => {
                if let Some(slot) = self.waiting(from, id) {
                    slot.fail(Error::Dead(from));
                }
            }
            (FrameKind::Message, Some(message)) => {
                if self.port.post(from, message).is_err() {
                    tracing::debug!(from, "a message came after the mailbox closed");
                }
            }
            (FrameKind::Bye, _) => self.peer_gone(from),
            (kind, _) => tracing::debug!(from, ?kind, "a frame without its message"),
        }
    }

    fn waiting(&self, from: Rank, id: u64) -> Option<Arc<ReplySlot>> {
        let calls = self.calls.lock();
        let call = calls.get(&id).filter(|(to, _)| *to == from);
        call.map(|(_, slot)| slot.clone())
    }

    fn request(self: &Arc<FabricEnd>, from: Rank, id: u64, message: Message) {
        let reply = RemoteReply {
            end: Some(Arc::clone(self)),
            to: from,
            id,
        };
        let replier = Replier::new(move |m| reply.send(m));
        let mut early = self.early.lock();
        match early.as_mut() {
            Some(waiting) => waiting.push((from, message, replier)),
            None => {
                drop(early);
                self.handle((from, message, replier));
            }
        }
    }

    fn handle(&self, (from, message, replier): EarlyRequest) {
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
        let _ = self.commands.push(Command::Close(self.epoch));
        let early = self.early.lock().take();
        self.port.close();
        drop(early);
    }
}

/// The right to answer a request of another member; dropped unused it says so.
struct RemoteReply {
    end: Option<Arc<FabricEnd>>,
    to: Rank,
    id: u64,
}

impl RemoteReply {
    fn send(mut self, message: Message) {
        if let Some(end) = self.end.take() {
            // Fails only if the job is over, and the requester knows that.
            let _ = end.send_frame(self.to, FrameKind::Reply, self.id, message);
        }
    }
}

impl Drop for RemoteReply {
    fn drop(&mut self) {
        if let Some(end) = self.end.take() {
            let frame = Frame::control(FrameKind::Dropped, end.epoch, self.id);
            // As for `send`.
            let _ = end.commands.push(Command::Send(self.to, frame));
        }
    }
}

/// One member's end of a fabric of a [`Session`](super::Session). Its rank is the member's number. Dropping it closes it.
pub struct SessionFabric(pub(super) Arc<FabricEnd>);

impl Fabric for SessionFabric {
    fn rank(&self) -> Rank {
        self.0.peers.own()
    }

    fn size(&self) -> u32 {
        self.0.peers.size()
    }

    fn call(&self, to: Rank, message: Message, deadline: Duration) -> Result<Message, Error> {
        self.0.admit(to)?;
        if to == self.rank() {
            self.0.call_self(message, deadline)
        } else {
            self.0.call_peer(to, message, deadline)
        }
    }

    fn send(&self, to: Rank, message: Message) -> Result<(), Error> {
        self.0.admit(to)?;
        if to == self.rank() {
            self.0.port.post(to, message)
        } else {
            self.0.send_frame(to, FrameKind::Message, 0, message)
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

impl Drop for SessionFabric {
    fn drop(&mut self) {
        self.close();
    }
}
