//! What is reachable of one rank: its handler, its mailbox, and who waits for it.
//!
//! Locks here are leaves: each is held for a look-up only, never while a handler runs or another lock is taken.

use crate::reply_slot::{ReplyGuard, ReplySlot};
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

pub(crate) struct Port {
    rank: Rank,
    closed: AtomicBool,
    handler: RwLock<Option<Arc<dyn Handler>>>,
    mail: Sender<MailboxItem>,
    /// Until the mailbox thread starts and takes it.
    inbox: Mutex<Option<Receiver<MailboxItem>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// Requests to or from this rank that wait, and how closing ends them.
    waiting: Mutex<HashMap<u64, (Arc<ReplySlot>, Error)>>,
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
            next: AtomicU64::new(0),
        })
    }

    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    pub fn handler(&self) -> Option<Arc<dyn Handler>> {
        self.handler.read().clone()
    }

    /// Asks this rank on the caller's own thread. If its handler has kept the replier when it returns, `wait` waits for the
    /// reply, until the instant given; never, if that is too far for the clock.
    pub fn call_here(
        &self,
        from: Rank,
        message: Message,
        deadline: Duration,
        wait: impl FnOnce(&Arc<ReplySlot>, Option<Instant>) -> Result<Option<Message>, Error>,
    ) -> Result<Message, Error> {
        let handler = self.handler().ok_or(Error::Dead(self.rank))?;
        let until = Instant::now().checked_add(deadline);
        let slot = ReplySlot::new();
        let reply = ReplyGuard::new(slot.clone(), self.rank);
        handler.request(from, message, Replier::new(move |m| reply.fill(m)));
        drop(handler);
        if let Some(answer) = slot.take() {
            return answer;
        }
        wait(&slot, until)?.ok_or(Error::Deadline {
            rank: self.rank,
            after: deadline,
        })
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

    /// Until the guard is dropped, closing this port ends `slot` with `error`.
    pub fn watch(&self, slot: &Arc<ReplySlot>, error: Error) -> CloseWatch<'_> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        self.waiting.lock().insert(id, (slot.clone(), error));
        CloseWatch { port: self, id }
    }

    pub fn close(&self) {
        if self.closed.swap(true, Ordering::SeqCst) {
            return;
        }
        let handler = self.handler.write().take();
        let waiting = std::mem::take(&mut *self.waiting.lock());
        for (slot, error) in waiting.into_values() {
            slot.fail(error);
        }
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
pub(crate) struct CloseWatch<'a> {
    port: &'a Port,
    id: u64,
}

impl Drop for CloseWatch<'_> {
    fn drop(&mut self) {
        self.port.waiting.lock().remove(&self.id);
    }
}
