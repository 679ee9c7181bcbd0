//! Sends replies to a single caller ([`SingleCallerDetector`](super::single_caller::SingleCallerDetector)) from the caller's own
//! processor, so that the two threads take turns on it.
//!
//! Caller and answering thread never have work at the same time. On two processors each request and each reply wakes a thread on
//! a processor that has halted, which takes longer than most answers, in a virtual machine several times as long. On one
//! processor each is a switch between threads, if the scheduler leaves both there. So for the time of the reply the thread
//!
//! 1. is bound to the processor on which the caller ran last, and
//! 2. has the scheduling policy `SCHED_IDLE`: for the scheduler a processor with such threads alone is free. It puts the woken caller
//!    there, and lets it run at once.
//!
//! The thread goes on when the caller waits: for the reply to its next request, mostly, which is then there to be taken.
//!
//! # Invariants
//! - While a request is answered the thread has its usual policy and processors; threads that it starts inherit those.
//! - In the idle policy it holds no lock, because the reply is kept until the handler has returned
//!   ([`keep_reply`](super::kept_reply::keep_reply)).
//! - A thread stays bound while it waits for its next request, unless it is parked, and is not from the moment it has one.
//! - As long as anybody else computes on that processor, the thread does not run, perhaps before the reply is sent. Another thread that
//!   begins to read, or after one or two [`WATCH_INTERVAL`]s the watch (`reading_threads`), ends its idle policy
//!   ([`IdleReplies::end`]). If the reply was not sent, or the next
//!   request waited, the next [`FIRST_PAUSE`] replies, twice as many after each further time, are sent as usual. All this is done
//!   only while a thread is parked that can watch.
//! - Nothing is done where a thread cannot leave the idle policy again: that takes the right to raise priorities.
#[cfg(doc)]
use super::reading_threads::WATCH_INTERVAL;
use rustix::thread::{CpuSet, gettid, sched_getaffinity, sched_getcpu, sched_setaffinity};
use std::io::Read;
use std::sync::LazyLock;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32};
use std::sync::mpsc::channel;

/// After this many replies it is looked again where the caller runs, which takes as long as an answer.
const REPLIES_PER_LOOK: u32 = 64;
/// After so many if it seems to run elsewhere.
const MIN_REPLIES_PER_LOOK: u32 = 8;
/// Replies that are sent as usual after the thread was kept from running for the first time, and at most.
const FIRST_PAUSE: u32 = 1 << 10;
/// After so many callers in a row of which nothing can be found out, replies are sent as usual for a while too.
const MAX_UNKNOWN: u32 = 8;
const MAX_PAUSE: u32 = 1 << 16;

/// Whether threads of this process can leave the idle policy.
static CAN_LEAVE_IDLE: LazyLock<bool> = LazyLock::new(|| {
    let (tell, number) = channel();
    let (hold, held) = channel::<()>();
    // It sleeps meanwhile, so it need not be let run in the idle policy. It is not waited for.
    let probe = move || {
        let told = tell.send(gettid().as_raw_nonzero().get());
        told.is_ok() && held.recv().is_ok()
    };
    let started = std::thread::Builder::new().spawn(probe);
    let number = started.ok().and_then(|_| number.recv().ok());
    let can =
        number.is_some_and(|n| set_policy(n, libc::SCHED_IDLE) && set_policy(n, libc::SCHED_OTHER));
    drop(hold);
    can
});

/// What the threads of a mount share of this. Only one of them sends a reply so at a time: the one that alone reads requests.
#[derive(Default)]
pub(super) struct IdleReplies {
    /// The number of the thread in the idle policy; 0: none.
    thread: AtomicI32,
    /// It has sent its reply.
    is_sent: AtomicBool,
    /// Somebody had to wait for it.
    was_late: AtomicBool,
    /// Its idle policy is ended, perhaps before it began.
    is_ended: AtomicBool,
    /// Replies that are still sent as usual.
    pause: AtomicU32,
    /// Length of the pause before. 0: there was none.
    last_pause: AtomicU32,
    /// Replies that were sent so since then.
    sent: AtomicU32,
}

impl IdleReplies {
    /// Counts a reply; whether it is to be sent as usual.
    fn is_paused(&self) -> bool {
        let left = self.pause.load(Relaxed);
        // Threads that count at once may lose a count; that does not matter.
        if left > 0 {
            self.pause.store(left - 1, Relaxed);
        }
        left > 0
    }

    fn begin_pause(&self) {
        let length = (self.last_pause.load(Relaxed) * 2).clamp(FIRST_PAUSE, MAX_PAUSE);
        self.last_pause.store(length, Relaxed);
        self.pause.store(length, Relaxed);
        self.sent.store(0, Relaxed);
    }

    /// The thread in the idle policy, if the calling one is it, has sent its reply.
    pub fn sent(&self) {
        if self.thread.load(SeqCst) == own_thread() {
            self.is_sent.store(true, SeqCst);
        }
    }

    /// Runs `work`, in the idle policy as long as the thread is alone: who begins to read ends that.
    fn run_idle<T>(&self, is_alone: impl Fn() -> bool, work: impl FnOnce() -> T) -> T {
        // Before it is entered: what is told from then on counts. What is told late, when the thread has left it, is forgotten here.
        self.is_sent.store(false, SeqCst);
        self.was_late.store(false, SeqCst);
        self.is_ended.store(false, SeqCst);
        let entered = (self.thread).compare_exchange(0, own_thread(), SeqCst, SeqCst);
        if entered.is_err() {
            // Another one is in it, which was kept from running.
            return work();
        }
        set_policy(0, libc::SCHED_IDLE);
        // Who ended it before it began, or began to read before that could be seen.
        if self.is_ended.load(SeqCst) || !is_alone() {
            set_policy(0, libc::SCHED_OTHER);
        }
        let done = work();
        if !set_policy(0, libc::SCHED_OTHER) {
            tracing::warn!("a thread of the mount has lost the right to leave the idle policy");
        }
        self.thread.store(0, SeqCst);
        if self.was_late.load(SeqCst) {
            self.begin_pause();
        } else if self.sent.fetch_add(1, Relaxed) == MAX_PAUSE {
            self.last_pause.store(0, Relaxed);
        }
        done
    }

    /// Ends the idle policy of the thread that has it. If that thread has just left it, nothing changes.
    /// `one_waits`: whether a request waits to be read; else the caller may be what computes there.
    pub fn end(&self, one_waits: bool) {
        let thread = self.thread.load(SeqCst);
        if thread != 0 {
            if one_waits || !self.is_sent.load(SeqCst) {
                self.was_late.store(true, SeqCst);
            }
            self.is_ended.store(true, SeqCst);
            set_policy(thread, libc::SCHED_OTHER);
        }
    }
}

/// Where the replies of one answering thread are sent from.
pub(super) struct CallerProcessor {
    /// Processors of the thread otherwise. `None`: this is not done here.
    usual: Option<CpuSet>,
    /// The caller, as in requests.
    caller: u32,
    /// The processor on which it ran when this was looked for.
    processor: Option<usize>,
    /// Replies since then.
    replies: u32,
    /// Times in a row that this could not be found out.
    unknown: u32,
    is_shared: bool,
    /// Whether the thread may run on that processor only.
    is_bound: bool,
}

impl CallerProcessor {
    /// For the calling thread.
    pub fn new() -> CallerProcessor {
        // SAFETY: takes and gives numbers; 0 names the calling thread.
        let is_usual = unsafe { libc::sched_getscheduler(0) } == libc::SCHED_OTHER;
        let usual = match is_usual && *CAN_LEAVE_IDLE {
            true => sched_getaffinity(None).ok(),
            false => None,
        };
        CallerProcessor {
            // With one processor they share it anyway.
            usual: usual.filter(|processors| processors.count() > 1),
            caller: 0,
            processor: None,
            replies: 0,
            unknown: 0,
            is_shared: false,
            is_bound: false,
        }
    }

    /// The thread has a request, and may run on its usual processors again.
    pub fn request_taken(&mut self) {
        self.is_shared = false;
        self.unbind();
    }

    /// Lets the thread run on its usual processors again.
    pub fn unbind(&mut self) {
        if let Some(usual) = self.usual.as_ref().filter(|_| self.is_bound) {
            // Fails only if all of them were taken from this process meanwhile.
            let _ = sched_setaffinity(None, usual);
            self.is_bound = false;
        }
    }

    /// Whether the last reply was to be sent so.
    pub fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// Whether the reply to a request of the thread `caller` (0: the kernel for itself) is to be sent by [`CallerProcessor::send`].
    pub fn serves(&mut self, caller: u32, shared: &IdleReplies) -> bool {
        self.is_shared = self.usual.is_some() && !shared.is_paused();
        // The kernel's own requests come between those of the caller, which waits for some of them: when its pages are written back.
        if caller != self.caller && caller != 0 {
            (self.caller, self.processor) = (caller, None);
        }
        self.is_shared
    }

    /// Sends a reply by `send`, from the caller's processor if the thread is there. `send` runs in the idle policy then, while `is_alone`,
    /// and returns whether the caller has made no other request when it is done.
    pub fn send(
        &mut self,
        send: impl FnOnce() -> bool,
        is_alone: impl Fn() -> bool,
        shared: &IdleReplies,
    ) {
        let there = self.processor.filter(|at| *at == sched_getcpu());
        let is_apart = match there {
            None => {
                send();
                true
            }
            Some(at) => {
                self.bind(at);
                self.replies += 1;
                // Where both are on one processor, the caller mostly runs before this thread goes on.
                shared.run_idle(is_alone, send) && self.replies >= MIN_REPLIES_PER_LOOK
            }
        };
        if is_apart || self.replies >= REPLIES_PER_LOOK {
            self.join_caller(shared);
        }
    }

    /// Goes to the processor on which the caller runs now. Not just before a reply: a processor that this thread has left looks for
    /// work, and would take the caller that the reply wakes.
    fn join_caller(&mut self, shared: &IdleReplies) {
        self.replies = 0;
        let ran = last_processor(self.caller);
        let usual = self.usual.as_ref();
        let is_usual = |at: &usize| *at < CpuSet::MAX_CPU && usual.is_some_and(|u| u.is_set(*at));
        self.processor = ran.filter(is_usual);
        self.unknown = if ran.is_some() { 0 } else { self.unknown + 1 };
        match self.processor {
            Some(at) => self.bind(at),
            // It has ended; or this process may not look at it.
            None if ran.is_none() && self.unknown < MAX_UNKNOWN => {}
            None => {
                self.unknown = 0;
                shared.begin_pause();
            }
        }
    }

    /// Binds the thread to a processor, until it has its next request.
    fn bind(&mut self, processor: usize) {
        let mut its = CpuSet::new();
        its.set(processor);
        // Fails only if that was taken from this process meanwhile; then both may meet there another time.
        self.is_bound |= sched_setaffinity(None, &its).is_ok();
    }
}

fn own_thread() -> i32 {
    gettid().as_raw_nonzero().get()
}

/// Gives a thread of this process (0: the calling one) a scheduling policy without a priority; whether it has it.
fn set_policy(thread: i32, policy: libc::c_int) -> bool {
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: the call reads the parameters, which live through it.
    unsafe { libc::sched_setscheduler(thread, policy, &raw const parameters) == 0 }
}

/// The processor on which a thread of any process ran last.
fn last_processor(thread: u32) -> Option<usize> {
    let mut file = std::fs::File::open(format!("/proc/{thread}/stat")).ok()?;
    // Longer than the line can be, so that one call reads it.
    let mut status = [0; 1024];
    let len = file.read(&mut status).ok()?;
    let status = String::from_utf8_lossy(status.get(..len)?);
    // Field 39; the second is the program's name in brackets and may hold any character.
    let (_, rest) = status.rsplit_once(')')?;
    rest.split_ascii_whitespace().nth(36)?.parse().ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // A test fails by panicking.
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    fn policy() -> i32 {
        // SAFETY: as above.
        unsafe { libc::sched_getscheduler(0) }
    }

    fn own_thread() -> u32 {
        super::own_thread() as u32
    }

    #[test]
    fn pauses_grow_to_the_longest_and_are_counted_down() {
        let shared = IdleReplies::default();
        assert!(!shared.is_paused());
        for length in [1, 2, 4].map(|n| n * FIRST_PAUSE) {
            shared.begin_pause();
            assert!((0..length).all(|_| shared.is_paused()));
            assert!(!shared.is_paused());
        }
        (0..20).for_each(|_| shared.begin_pause());
        assert_eq!(shared.pause.load(Relaxed), MAX_PAUSE);
    }

    #[test]
    fn the_processor_of_a_thread_is_found() {
        let usual = sched_getaffinity(None).unwrap();
        assert!(usual.is_set(last_processor(own_thread()).unwrap()));
        assert_eq!(last_processor(u32::MAX), None);
    }

    /// On a thread of its own, as it changes that. Not on a machine with one processor, or without the right to leave the idle policy.
    fn with_caller(test: impl FnOnce(CallerProcessor, IdleReplies) + Send + 'static) {
        let run = || {
            let (mut own, shared) = (CallerProcessor::new(), IdleReplies::default());
            if own.serves(own_thread(), &shared) {
                return test(own, shared);
            }
            assert!(sched_getaffinity(None).unwrap().count() == 1 || !*CAN_LEAVE_IDLE);
        };
        std::thread::spawn(run).join().unwrap();
    }

    #[test]
    fn a_reply_is_sent_from_the_callers_processor_and_all_is_as_usual_afterwards() {
        with_caller(|mut own, shared| {
            let usual = sched_getaffinity(None).unwrap();
            assert!(own.is_shared());
            // It joins the caller, which is this thread, with the first reply.
            own.send(|| false, || true, &shared);
            assert!(own.processor.is_some());
            for at in (0..CpuSet::MAX_CPU).filter(|at| usual.is_set(*at)) {
                own.bind(at);
                own.processor = Some(at);
                let sent = std::cell::Cell::new(None);
                let note = || {
                    sent.set(Some((policy(), sched_getcpu())));
                    false
                };
                own.send(note, || true, &shared);
                assert_eq!(sent.get(), Some((libc::SCHED_IDLE, at)));
                assert_eq!(policy(), libc::SCHED_OTHER);
                own.request_taken();
                assert_eq!(sched_getaffinity(None).unwrap(), usual);
            }
            assert!(!shared.is_paused());
            assert!(own.serves(0, &shared) && own.processor.is_some());
        });
    }

    #[test]
    fn a_thread_that_was_kept_from_replying_runs_on_and_pauses() {
        with_caller(|mut own, shared| {
            own.join_caller(&shared);
            let (begun, limit) = (Instant::now(), Duration::from_secs(60));
            let is_over = AtomicBool::new(false);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    while !is_over.load(SeqCst) {
                        shared.end(false);
                        std::thread::yield_now();
                    }
                });
                let wait = || {
                    while policy() == libc::SCHED_IDLE && begun.elapsed() < limit {
                        std::thread::yield_now();
                    }
                    false
                };
                own.send(wait, || true, &shared);
                is_over.store(true, SeqCst);
            });
            own.request_taken();
            assert!(begun.elapsed() < limit);
            assert!(!own.serves(own_thread(), &shared) && !own.is_shared());
            // Nobody is in that policy any more.
            shared.was_late.store(false, SeqCst);
            shared.end(true);
            assert!(!shared.was_late.load(SeqCst));
        });
    }
}
