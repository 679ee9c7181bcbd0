//! The queue of commands from other threads to the progress thread, and how they wake it.
//!
//! **Invariant:** no command waits while the progress thread sleeps. That thread sets its flag `asleep` and then checks
//! the queue; a sender queues its command and then checks the flag. So one of the two sees the other.

use super::byte_transport::Waker;
use super::frame::Frame;
use crate::{Error, Rank};
use crossbeam_channel::{Receiver, Sender, TryRecvError, unbounded};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::time::Duration;

/// What other threads ask of the progress thread. `E` is an end of a fabric.
pub(super) enum Command<E> {
    /// Send this frame, if the peer is there.
    Send(Rank, Frame),
    /// Frames of this epoch are for this end.
    Open(u64, Arc<E>),
    /// This epoch's end here is closed: say so to all.
    Close(u64),
    /// Leave the job; wait this long for the others to leave too.
    Stop(Duration),
}

struct WakeFlag {
    asleep: AtomicBool,
    wake: Waker,
}

/// The side of the threads that ask.
pub(super) struct CommandSender<E> {
    queue: Sender<Command<E>>,
    wake_flag: Arc<WakeFlag>,
}

/// The progress thread's side.
pub(super) struct CommandReceiver<E> {
    queue: Receiver<Command<E>>,
    wake_flag: Arc<WakeFlag>,
}

/// Both sides; `wake` ends the progress thread's sleep.
pub(super) fn commands<E>(wake: Waker) -> (CommandSender<E>, CommandReceiver<E>) {
    // Unbounded: a handler that waits for room could be what the room waits for.
    let (sender, receiver) = unbounded();
    let asleep = AtomicBool::new(false);
    let wake_flag = Arc::new(WakeFlag { asleep, wake });
    let receiver = CommandReceiver {
        queue: receiver,
        wake_flag: wake_flag.clone(),
    };
    let queue = sender;
    (CommandSender { queue, wake_flag }, receiver)
}

impl<E> Clone for CommandSender<E> {
    fn clone(&self) -> Self {
        CommandSender {
            queue: self.queue.clone(),
            wake_flag: self.wake_flag.clone(),
        }
    }
}

impl<E> CommandSender<E> {
    /// Queues a command, and ends the progress thread's sleep.
    ///
    /// # Errors
    /// `Closed` when the progress thread has ended.
    pub fn push(&self, command: Command<E>) -> Result<(), Error> {
        self.queue.send(command).map_err(|_| Error::Closed)?;
        // Ordered after the queueing, as `sleep_unless_queued` looks at the queue after its store: one of the two sees the
        // other.
        fence(Ordering::SeqCst);
        let asleep = &self.wake_flag.asleep;
        if asleep.load(Ordering::SeqCst) && asleep.swap(false, Ordering::SeqCst) {
            (self.wake_flag.wake)();
        }
        Ok(())
    }
}

impl<E> CommandReceiver<E> {
    /// The next command.
    ///
    /// # Errors
    /// There is none; `Disconnected` when nobody can ask for anything any more.
    pub fn next(&self) -> Result<Command<E>, TryRecvError> {
        self.queue.try_recv()
    }

    /// Runs `sleep`, which a command that comes ends; not if one is there.
    pub fn sleep_unless_queued(&self, sleep: impl FnOnce()) {
        let asleep = &self.wake_flag.asleep;
        asleep.store(true, Ordering::SeqCst);
        if self.queue.is_empty() {
            sleep();
        }
        asleep.store(false, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn a_sleep_ends_when_a_command_is_queued() {
        let wake_flag = std::thread::current();
        let (sender, receiver) = commands::<()>(Box::new(move || wake_flag.unpark()));
        let others = std::thread::spawn(move || {
            for i in 0..1000 {
                sender.push(Command::Close(i)).unwrap();
                if i % 10 == 0 {
                    std::thread::yield_now();
                }
            }
            sender
        });
        let (begun, mut next) = (Instant::now(), 0);
        while next < 1000 {
            match receiver.next() {
                Ok(Command::Close(i)) => {
                    assert_eq!(i, next);
                    next += 1;
                }
                Ok(_) => panic!("nobody asked for anything else"),
                Err(_) => receiver
                    .sleep_unless_queued(|| std::thread::park_timeout(Duration::from_secs(60))),
            }
        }
        // One sleep that is not ended takes as long.
        assert!(begun.elapsed() < Duration::from_secs(60));
        drop(others.join().unwrap());
        assert_eq!(receiver.next().err(), Some(TryRecvError::Disconnected));
    }
}
