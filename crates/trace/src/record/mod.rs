//! Recording: calls come from the threads that answer a mount, and go to a file while the program runs.
//!
//! ```text
//!  answering threads --- shard of the thread --- full, or a second old --- writer thread --- file
//! ```
//!
//! A call costs its thread two table lookups and a copy into a buffer. If the disk is slower than the calls, they wait for
//! it: nothing is left out, and memory stays bounded. A process that is killed loses what was recorded in its last second.
//!
//! Invariants: a call is written after the names of its file and rank; calls of one thread are written in order.

mod files;
mod merge;
mod ranks;
#[cfg(test)]
mod tests;

pub use merge::{NodeRecording, merge};

use crate::format::Writer;
use crate::{Action, Call};
use files::FileNumbers;
use parking_lot::{Condvar, Mutex};
use ranks::ThreadRanks;
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufWriter};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Buffers, so that threads seldom meet at one.
const SHARDS: usize = 16;
/// Calls in a buffer before it is handed on.
const CALLS_PER_BUFFER: usize = 4096;
/// Full buffers that may wait for the writer.
const MAX_WAITING_BUFFERS: usize = 32;
/// No call is older before it is written.
const MAX_CALL_AGE: Duration = Duration::from_secs(1);

/// How a recording is made.
#[derive(Debug, Clone)]
pub struct RecorderOptions {
    /// What to call it.
    pub name: String,
    /// When it began, nanoseconds since 1970 (see [`clock`]): the same at all nodes.
    pub begun: u64,
    /// Each thread is a rank of its own, instead of each process.
    pub threads: bool,
    /// This machine's name.
    pub host: String,
}

/// A call as a mount sees it.
#[derive(Debug, Clone, Copy)]
pub struct ObservedCall {
    /// The thread that called; 0 if the kernel did it by itself.
    pub thread: u32,
    /// What it did.
    pub action: Action,
    /// Inode of the file or directory.
    pub inode: u64,
    /// Number of the open file, if it is about one; else 0.
    pub handle: u64,
    /// See [`Action`].
    pub offset: u64,
    /// See [`Action`].
    pub len: u64,
    /// Start, by [`Recorder::now`].
    pub start: u64,
    /// End, likewise.
    pub end: u64,
    /// 0, or the error number.
    pub error: u32,
}

/// Nanoseconds since 1970.
pub fn clock() -> u64 {
    nanos(rustix::time::ClockId::Realtime)
}

fn nanos(id: rustix::time::ClockId) -> u64 {
    let time = rustix::time::clock_gettime(id);
    // Neither is negative for these clocks.
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Takes calls from any thread; one a process and recording.
pub struct Recorder {
    shared: Arc<RecorderState>,
    sender: SyncSender<WriterMessage>,
    writer: Mutex<Option<JoinHandle<io::Result<u64>>>>,
    /// What is taken from the monotonic clock, so that it counts from `begun`.
    zero: u64,
}

struct RecorderState {
    shards: [Mutex<Vec<Call>>; SHARDS],
    files: FileNumbers,
    who: ThreadRanks,
    /// Who opened what is open, by handle.
    open: Mutex<HashMap<u64, u32>>,
    /// Nothing is open any more.
    closed: Condvar,
}

impl RecorderState {
    fn close(&self, handle: u64) -> Option<u32> {
        let mut open = self.open.lock();
        let opener = open.remove(&handle);
        if open.is_empty() {
            self.closed.notify_all();
        }
        opener
    }
}

enum WriterMessage {
    Calls(Vec<Call>),
    End,
}

impl Recorder {
    /// Creates `path` and records into it.
    ///
    /// # Errors
    /// Those of creating the file and of starting a thread.
    pub fn start(path: &Path, setup: &RecorderOptions) -> io::Result<Recorder> {
        let file = BufWriter::new(File::create_new(path)?);
        let mut writer = Writer::new(file, &setup.name, setup.begun, 0)?;
        writer.flush()?;
        let shared = Arc::new(RecorderState {
            shards: Default::default(),
            files: FileNumbers::default(),
            who: ThreadRanks::new(setup.threads, &setup.host),
            open: Mutex::default(),
            closed: Condvar::new(),
        });
        let (sender, jobs) = sync_channel(MAX_WAITING_BUFFERS);
        let thread = std::thread::Builder::new().name("recorder".into()).spawn({
            let shared = shared.clone();
            move || write(&jobs, writer, &shared)
        })?;
        // Since `begun`, by a clock that does not jump.
        let since = clock().saturating_sub(setup.begun);
        Ok(Recorder {
            shared,
            sender,
            writer: Mutex::new(Some(thread)),
            zero: nanos(rustix::time::ClockId::Monotonic).wrapping_sub(since),
        })
    }

    /// Nanoseconds since the recording began.
    pub fn now(&self) -> u64 {
        nanos(rustix::time::ClockId::Monotonic).saturating_sub(self.zero)
    }

    /// Says under which name a file or directory was met.
    pub fn named(&self, parent: u64, name: &[u8], inode: u64) {
        self.shared.files.name(parent, name, inode);
    }

    /// What was met under this name, if anything was.
    pub fn child(&self, parent: u64, name: &[u8]) -> Option<u64> {
        self.shared.files.child(parent, name)
    }

    /// Records a call.
    pub fn call(&self, seen: &ObservedCall) {
        let rank = self.rank(seen);
        let call = Call {
            rank,
            action: seen.action,
            file: self.shared.files.number(seen.inode),
            offset: seen.offset,
            len: seen.len,
            start: seen.start,
            end: seen.end,
            error: seen.error,
        };
        let mut shard = self.shared.shards[own_shard()].lock();
        shard.push(call);
        if shard.len() >= CALLS_PER_BUFFER {
            let calls = std::mem::replace(&mut *shard, Vec::with_capacity(CALLS_PER_BUFFER));
            // With the shard held, so that a later buffer of this thread cannot overtake. Fails only after the end.
            let _ = self.sender.send(WriterMessage::Calls(calls));
        }
    }

    fn rank(&self, seen: &ObservedCall) -> u32 {
        let opened = matches!(seen.action, Action::Open | Action::Create) && seen.error == 0;
        if seen.thread == 0 && !opened {
            // The kernel itself: for whoever opened the file.
            let opener = match seen.action {
                Action::Close => self.shared.close(seen.handle),
                _ => self.shared.open.lock().get(&seen.handle).copied(),
            };
            return opener.unwrap_or_else(|| self.shared.who.rank(0));
        }
        let rank = self.shared.who.rank(seen.thread);
        if opened && seen.handle != 0 {
            self.shared.open.lock().insert(seen.handle, rank);
        } else if seen.action == Action::Close {
            self.shared.close(seen.handle);
        }
        rank
    }

    /// Files that were opened since the recording began and are open still.
    #[cfg(test)]
    fn open(&self) -> usize {
        self.shared.open.lock().len()
    }

    /// Waits until all files that were opened since the recording began are closed, or it is `until`.
    pub fn wait_until_closed(&self, until: Instant) {
        let mut open = self.shared.open.lock();
        let closed = &self.shared.closed;
        closed.wait_while_until(&mut open, |open| !open.is_empty(), until);
    }

    /// Ends the recording; gives the number of its calls. Calls that come later are not recorded.
    ///
    /// # Errors
    /// The first failure to write; the file is whole up to there.
    pub fn finish(&self) -> io::Result<u64> {
        let writer = self.writer.lock().take();
        let Some(writer) = writer else {
            return Err(io::Error::other("the recording has ended before"));
        };
        // Fails only if the writer has ended, and joining it tells why.
        let _ = self.sender.send(WriterMessage::End);
        let panicked = |_| Err(io::Error::other("the recorder panicked; see the log"));
        writer.join().unwrap_or_else(panicked)
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        if self.writer.lock().is_some() {
            // Whoever drops it without asking has no use for the outcome.
            let _ = self.finish();
        }
    }
}

/// Each thread keeps to one shard.
fn own_shard() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static OWN: usize = NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS;
    }
    OWN.with(|own| *own)
}

/// The writer thread. After a failure it takes calls and drops them, so that the mount goes on.
fn write(
    jobs: &Receiver<WriterMessage>,
    mut writer: Writer<BufWriter<File>>,
    shared: &RecorderState,
) -> io::Result<u64> {
    let mut failed = None;
    loop {
        let (mut end, mut buffers) = match jobs.recv_timeout(MAX_CALL_AGE) {
            Ok(WriterMessage::Calls(calls)) => (false, vec![calls]),
            Err(RecvTimeoutError::Timeout) => (false, Vec::new()),
            Ok(WriterMessage::End) | Err(RecvTimeoutError::Disconnected) => (true, Vec::new()),
        };
        if buffers.is_empty() {
            let ending = end;
            take_all(shared, jobs, &mut buffers, &mut end);
            if end != ending {
                // Told to end just now: what came before that may be in buffers that were looked at already.
                take_all(shared, jobs, &mut buffers, &mut end);
            }
        }
        if failed.is_none() {
            failed = put(&mut writer, &buffers, shared).err();
        }
        if end {
            return match failed {
                Some(error) => Err(error),
                None => writer.finish().map(|(_, total)| total),
            };
        }
    }
}

/// Takes what is in the shards, full buffers first. Sets `end` if it meets the job to end.
///
/// A thread that holds its shard may wait for room among the jobs, so this takes jobs while it waits for the shard.
fn take_all(
    shared: &RecorderState,
    jobs: &Receiver<WriterMessage>,
    buffers: &mut Vec<Vec<Call>>,
    end: &mut bool,
) {
    for shard in &shared.shards {
        loop {
            let held = shard.try_lock();
            for job in jobs.try_iter() {
                match job {
                    WriterMessage::Calls(calls) => buffers.push(calls),
                    WriterMessage::End => *end = true,
                }
            }
            if let Some(mut held) = held {
                buffers.push(std::mem::take(&mut *held));
                break;
            }
            std::thread::yield_now();
        }
    }
}

/// Names first: the calls were taken before this looks at them, so none of theirs is missing.
fn put(
    writer: &mut Writer<BufWriter<File>>,
    buffers: &[Vec<Call>],
    shared: &RecorderState,
) -> io::Result<()> {
    let files = shared.files.take_new();
    writer.files(files.iter().map(|(number, file)| (*number, file)))?;
    let processes = shared.who.take_new();
    writer.processes(processes.iter().map(|(rank, process)| (*rank, process)))?;
    buffers.iter().try_for_each(|calls| writer.calls(calls))?;
    writer.flush()
}
