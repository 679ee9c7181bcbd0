//! The transport that a session stands on: it moves bytes between the processes of a job.
//!
//! A transport is driven by one thread, the session's progress thread, which makes and drops it. It moves two kinds of
//! byte strings to a peer: **first messages**, which come unannounced, and **large buffers**, whose lengths are in the first
//! message before them. So a large buffer is sent from where it is and received into its final place.
//!
//! # What a transport promises
//! - First messages of one process arrive in the order they were sent, each once and whole; its large buffers too,
//!   in the order in which they are asked for with [`receive_large`](ByteTransport::receive_large). Between the two there is no
//!   order: a first message may arrive before the large buffers of one sent earlier.
//! - Bytes arrive unchanged. The session checks only a frame's header and lengths, because it acts on them (`frame`): no
//!   checksum covers what a message says or carries.
//! - No call blocks but [`sleep`](ByteTransport::sleep), up to its bound, and [`finish`](ByteTransport::finish).
//! - An error of a call that names a peer, or a transfer with one, is final: the session declares that peer dead.
//!
//! # What it need not know
//! Frames, members, heartbeats, deadlines, who is dead: a peer that is gone may simply be silent. If what arrives is no
//! frame (a damaged header, a wrong length, cut short), the session declares the sender dead, and goes on with the others.

use bytes::Bytes;
use std::time::Duration;

/// Ends the progress thread's sleep, from any thread. A call while it does not sleep ends its next sleep at once.
pub type Waker = Box<dyn Fn() + Send + Sync>;

/// What the progress thread does when a look at the transport found nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pause {
    /// Look again at once.
    Spin,
    /// Let other threads run first: on a machine with more threads than cores one of them has the work.
    Yield,
    /// Sleep for this long, less if something else is due.
    Sleep(Duration),
}

/// Moves bytes between the processes of a job, numbered `0..processes()`. See the head of this file.
pub trait ByteTransport: 'static {
    /// What it is called in errors, as in "MPI did not start".
    const NAME: &'static str;
    /// What a process's number is called in errors, as in "MPI rank 3".
    const PROCESS: &'static str;
    /// What to do if it does not start.
    const START_ADVICE: &'static str;
    /// Looks for arrivals after a pause before nothing is taken for found; at least 1.
    const POLLS_AFTER_PAUSE: usize;
    /// Why a call failed, in the transport's words.
    type Error: std::error::Error;
    /// Bytes on their way out. Dropping it gives them up.
    type PendingSend;
    /// Bytes on their way in. Dropping it gives them up.
    type PendingReceive;

    /// This process's number.
    fn process(&self) -> u32;
    /// Number of processes.
    fn processes(&self) -> u32;
    /// The name of this host, for messages to people.
    fn host(&self) -> String;

    /// Begins to exchange `own` with all processes, once, before anything else. All give the same number of bytes.
    ///
    /// # Errors
    /// The transport does not work.
    fn exchange(&mut self, own: Vec<u8>) -> Result<(), Self::Error>;
    /// What all processes gave, one after the other by number, once all have.
    ///
    /// # Errors
    /// The transport does not work.
    fn poll_exchange(&mut self) -> Result<Option<Bytes>, Self::Error>;

    /// Begins to send a first message.
    ///
    /// # Errors
    /// The peer cannot be reached.
    fn send_first(&mut self, to: u32, bytes: Bytes) -> Result<Self::PendingSend, Self::Error>;
    /// Begins to send a large buffer, after the first message that tells its length.
    ///
    /// # Errors
    /// The peer cannot be reached.
    fn send_large(&mut self, to: u32, bytes: Bytes) -> Result<Self::PendingSend, Self::Error>;
    /// Whether all was sent.
    ///
    /// # Errors
    /// The peer cannot be reached.
    fn poll_send(&mut self, sending: &mut Self::PendingSend) -> Result<bool, Self::Error>;

    /// The next first message that arrives, and the process it comes from.
    ///
    /// # Errors
    /// The transport cannot look. It names no peer: looking goes on, and who is not heard any more dies of silence.
    fn poll_first(&mut self) -> Result<Option<(u32, Self::PendingReceive)>, Self::Error>;
    /// Begins to receive the next large buffer of `from`, of `len` bytes.
    ///
    /// # Errors
    /// The peer cannot be reached, or there is no memory for it.
    fn receive_large(&mut self, from: u32, len: usize)
    -> Result<Self::PendingReceive, Self::Error>;
    /// The bytes, once all are there. Not asked again then.
    ///
    /// # Errors
    /// The peer cannot be reached, or sent something else.
    fn poll_receive(
        &mut self,
        receiving: &mut Self::PendingReceive,
    ) -> Result<Option<Bytes>, Self::Error>;

    /// How to wait when nothing was found for `idle`; `moving` says that transfers are under way.
    fn pause(&self, idle: Duration, moving: bool) -> Pause;
    /// Sleeps until something may have arrived, until the waker is called, or for `at_most`.
    fn sleep(&mut self, at_most: Duration);
    /// What ends its sleep.
    fn waker(&self) -> Waker;

    /// Ends the transport. Called only when all processes are about to call it, so it may wait for them.
    ///
    /// # Errors
    /// It did not end well.
    fn finish(self) -> Result<(), Self::Error>;
}
