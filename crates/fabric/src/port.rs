//! The receiving side of one rank: its handler, its mailbox, and the calls that wait here for a reply.
//!
//! Locks here are leaves: each is held for a look-up, or to fill the slots of those who wait; never while a handler runs or
//! another lock of this module is taken.

use crate::reply_slot::ReplySlot;
use crate::{Error, Handler, Message, Rank, Replier};
use crossbeam_channel::{Receiver, Sender, unbounded};
use parking_lot::{Mutex, RwLock};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

enum MailboxItem {
    Message(Rank, Message),
    Stop,
}

struct WaitingCall {
    slot: Arc<ReplySlot>,
    asked: Rank,
    /// How closing this port ends it.
    if_closed: Error,
}

pub(crate) struct Port {
    rank: Rank,
    closed: AtomicBool,
    handler: RwLock<Option<Arc<dyn Handler>>>,
    mail: Sender<MailboxItem>,
    /// Until the mailbox thread starts and takes it.
    inbox: Mutex<Option<Receiver<MailboxItem>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// Requests to or from this rank that wait, by number.
    waiting: Mutex<HashMap<u64, WaitingCall>>,
    next: AtomicU64,
}

impl Port {
    pub fn new(rank: Rank) -> Arc<Port> {
        // Unbounded: a full mailbox would make handlers that send to each other wait for each other.
        let (mail, inbox) = unbounded();
        Arc::new(Port {
            rank,
            closed: AtomicBool::new(false),
            handler: RwLock::new(None),
            mail,
            inbox: Mutex::new(Some(inbox)),
            thread: Mutex::new(None),
            waiting: Mutex::default(),
            next: AtomicU64::new(1),
        })
    }

    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    pub fn handler(&self) -> Option<Arc<dyn Handler>> {
        self.handler.read().clone()
    }

    /// `from` asks this rank, whose handler runs on the caller's thread. If the handler has kept the replier when it returns,
    /// the caller waits for the reply, unless `check` says that one of the two has closed.
    pub fn call_here(
        &self,
        from: &Port,
        message: Message,
        deadline: Duration,
        check: impl FnOnce() -> Result<(), Error>,
    ) -> Result<Message, Error> {
        let rank = self.rank;
        let handler = self.handler().ok_or(Error::Dead(rank))?;
        let begun = Instant::now();
        let slot = Arc::<ReplySlot>::default();
        let reply_to = slot.clone();
        let replier = Replier::new(move |reply| reply_to.fill(reply.ok_or(Error::Dead(rank))));
        handler.request(from.rank, message, replier);
        drop(handler);
        if let Some(answer) = slot.take() {
            return answer;
        }
        // Registered first, looked at second: a close in between is seen by one of the two.
        let _at_own = from.watch(&slot, rank, Error::Closed);
        let _at_peer = (from.rank != rank).then(|| self.watch(&slot, rank, Error::Dead(rank)));
        if let Err(error) = check() {
            slot.fill(Err(error));
        }
        slot.wait(rank, begun, deadline)
    }

    pub fn post(&self, from: Rank, message: Message) -> Result<(), Error> {
        let sent = self.mail.send(MailboxItem::Message(from, message));
        sent.map_err(|_| Error::Dead(self.rank))
    }

    pub fn serve(self: &Arc<Port>, handler: Arc<dyn Handler>) {
        if self.is_closed() {
            return;
        }
        *self.handler.write() = Some(handler);
        let Some(inbox) = self.inbox.lock().take() else {
            return;
        };
        let port = Arc::clone(self);
        let name = format!("mailbox-{}", self.rank);
        let started = std::thread::Builder::new()
            .name(name)
            .spawn(move || port.deliver(&inbox));
        match started {
            Ok(thread) => *self.thread.lock() = Some(thread),
            // The receiver is gone with the closure: senders see a dead rank.
            Err(error) => tracing::error!(rank = self.rank, %error, "no thread for the mailbox"),
        }
    }

    fn deliver(&self, inbox: &Receiver<MailboxItem>) {
        for mail in inbox {
            match (mail, self.handler()) {
                (MailboxItem::Message(from, message), Some(handler)) => {
                    handler.message(from, message)
                }
                (MailboxItem::Stop, _) | (_, None) => return,
            }
        }
    }

    /// Until the guard is dropped, closing this port ends `slot`, which waits for `asked`, with `if_closed`.
    pub fn watch(&self, slot: &Arc<ReplySlot>, asked: Rank, if_closed: Error) -> CallGuard<'_> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let call = WaitingCall {
            slot: slot.clone(),
            asked,
            if_closed,
        };
        self.waiting.lock().insert(id, call);
        CallGuard { port: self, id }
    }

    /// Ends the call of this number, if it waits for `asked`.
    pub fn end_call(&self, id: u64, asked: Rank, outcome: Result<Message, Error>) {
        let slot = {
            let waiting = self.waiting.lock();
            let call = waiting.get(&id).filter(|call| call.asked == asked);
            call.map(|call| call.slot.clone())
        };
        if let Some(slot) = slot {
            slot.fill(outcome);
        }
    }

    /// Ends all calls that wait for `asked`.
    pub fn fail_calls_to(&self, asked: Rank) {
        for call in self.waiting.lock().values() {
            if call.asked == asked {
                call.slot.fill(Err(Error::Dead(asked)));
            }
        }
    }

    /// Closes it; `announce` tells others once nobody waits here any more.
    pub fn close(&self, announce: impl FnOnce()) {
        if self.closed.swap(true, Ordering::SeqCst) {
            return;
        }
        let handler = self.handler.write().take();
        let waiting = std::mem::take(&mut *self.waiting.lock());
        for call in waiting.into_values() {
            call.slot.fill(Err(call.if_closed));
        }
        announce();
        // Fails only if the mailbox never ran or has ended.
        let _ = self.mail.send(MailboxItem::Stop);
        let thread = self.thread.lock().take();
        if let Some(thread) = thread.filter(|t| t.thread().id() != std::thread::current().id())
            && thread.join().is_err()
        {
            tracing::error!(rank = self.rank, "a message handler panicked");
        }
        drop(handler);
    }
}

/// See [`Port::watch`].
pub(crate) struct CallGuard<'a> {
    port: &'a Port,
    /// The call's number, at this port only once.
    pub id: u64,
}

impl Drop for CallGuard<'_> {
    fn drop(&mut self) {
        self.port.waiting.lock().remove(&self.id);
    }
}
