//! One member's endpoint of one fabric of the session.
//!
//! Calls register at its port, hand their frame to the progress thread and wait; the progress thread brings what arrives.
//! No lock is held while a handler runs or a frame is handed over.

use super::commands::{Command, CommandSender};
use super::frame::{Frame, FrameKind, MAX_BUFFERS};
use super::handler_pool::HandlerPool;
use super::peers::Peers;
use crate::port::Port;
use crate::reply_slot::ReplySlot;
use crate::{Error, Fabric, Handler, Message, Rank, Replier};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

pub(super) struct Endpoint {
    pub epoch: u64,
    peers: Arc<Peers>,
    port: Arc<Port>,
    commands: CommandSender<Endpoint>,
    pool: Arc<HandlerPool>,
    /// Peers whose end of this fabric is closed.
    gone: Vec<AtomicBool>,
    /// Requests that came before there was a handler; `None` from then on.
    early: Mutex<Option<Vec<EarlyRequest>>>,
}

type EarlyRequest = (Rank, Message, Replier);

impl Endpoint {
    pub fn new(
        epoch: u64,
        peers: Arc<Peers>,
        commands: CommandSender<Endpoint>,
        pool: Arc<HandlerPool>,
    ) -> Arc<Endpoint> {
        Arc::new(Endpoint {
            epoch,
            port: Port::new(peers.own()),
            gone: (0..peers.size()).map(|_| AtomicBool::new(false)).collect(),
            peers,
            commands,
            pool,
            early: Mutex::new(Some(Vec::new())),
        })
    }

    /// Whether a call or message to `to` can start.
    fn admit(&self, to: Rank) -> Result<(), Error> {
        let gone = self.gone.get(to as usize).ok_or(Error::NoSuchRank(to))?;
        if self.port.is_closed() {
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
        message: Option<Message>,
    ) -> Result<(), Error> {
        let buffers = message.as_ref().map_or(0, |message| message.bulk.len());
        if buffers >= MAX_BUFFERS {
            tracing::error!(to, buffers, "too many buffers");
            return Err(Error::Dead(to));
        }
        let frame = Frame {
            kind,
            epoch: self.epoch,
            id,
            message,
        };
        self.commands.push(Command::Send(to, frame))
    }

    fn call_peer(&self, to: Rank, message: Message, deadline: Duration) -> Result<Message, Error> {
        let begun = Instant::now();
        let slot = Arc::<ReplySlot>::default();
        let call = self.port.watch(&slot, to, Error::Closed);
        // Registered first, looked at second: a close or death in between is seen by one of the two.
        self.admit(to)?;
        self.send_frame(to, FrameKind::Request, call.id, Some(message))?;
        slot.wait(to, begun, deadline)
    }

    /// Takes what arrived from an alive peer. On the progress thread: hands over and returns.
    pub fn arrive(self: &Arc<Endpoint>, from: Rank, frame: Frame) {
        let id = frame.id;
        match (frame.kind, frame.message) {
            (FrameKind::Request, Some(message)) => self.request(from, id, message),
            (FrameKind::Reply, Some(message)) => self.port.end_call(id, from, Ok(message)),
            (FrameKind::Dropped, _) => self.port.end_call(id, from, Err(Error::Dead(from))),
            (FrameKind::Message, Some(message)) => {
                if self.port.post(from, message).is_err() {
                    tracing::debug!(from, "a message came after the mailbox closed");
                }
            }
            (FrameKind::Bye, _) => self.peer_gone(from),
            (kind, _) => tracing::debug!(from, ?kind, "a frame without its message"),
        }
    }

    fn request(self: &Arc<Endpoint>, from: Rank, id: u64, message: Message) {
        let end = Arc::clone(self);
        let replier = Replier::new(move |reply| end.reply(from, id, reply));
        let mut early = self.early.lock();
        match early.as_mut() {
            Some(waiting) => waiting.push((from, message, replier)),
            None => {
                drop(early);
                self.handle((from, message, replier));
            }
        }
    }

    /// Answers a request of another member, or says that it was dropped.
    fn reply(&self, to: Rank, id: u64, reply: Option<Message>) {
        let kind = match reply {
            Some(_) => FrameKind::Reply,
            None => FrameKind::Dropped,
        };
        // Fails only if the job is over, and the requester knows that.
        let _ = self.send_frame(to, kind, id, reply);
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
        self.port.fail_calls_to(rank);
    }

    pub fn close(&self) {
        let early = self.early.lock().take();
        self.port.close(|| {
            // Fails only if the progress thread has ended, and then nobody waits for it.
            let _ = self.commands.push(Command::Close(self.epoch));
        });
        drop(early);
    }
}

/// One member's end of a fabric of a [`Session`](super::Session). Its rank is the member's number. Dropping it closes it.
pub struct SessionFabric(pub(super) Arc<Endpoint>);

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
            let end = &self.0;
            end.port
                .call_here(&end.port, message, deadline, || end.admit(to))
        } else {
            self.0.call_peer(to, message, deadline)
        }
    }

    fn send(&self, to: Rank, message: Message) -> Result<(), Error> {
        self.0.admit(to)?;
        if to == self.rank() {
            self.0.port.post(to, message)
        } else {
            self.0.send_frame(to, FrameKind::Message, 0, Some(message))
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
