//! Calls of teams under way. A process that is killed does not wait for the end of its call.
//!
//! # Invariants
//! - Each call is answered once: at its end, or earlier with `EINTR` if its thread has been killed.
//! - A signal that does not kill has no effect until the end: others take part in the call, so it cannot be undone.
//!
//! While calls are under way, a thread checks for kills some times a second, because nothing would wake it. The kernel reports only
//! the first signal to a request's thread (`FUSE_INTERRUPT`), so not a kill after an earlier signal. And a killed process ends only
//! once its call is answered, so its end cannot be waited for.
use crate::protocol::{IoctlAnswer, Reply};
use crate::thread_status::ThreadStatus;
use parking_lot::Mutex;
use rustix::io::Errno;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// How often it looks.
const KILLED_CHECK_INTERVAL: Duration = Duration::from_millis(100);
const WATCH_STACK: usize = 128 << 10;

/// The right to answer a call, taken once.
pub(super) struct CallReply(Mutex<Option<Reply<IoctlAnswer>>>);

impl CallReply {
    pub fn take(&self) -> Option<Reply<IoctlAnswer>> {
        self.0.lock().take()
    }
}

/// See the head of this file.
#[derive(Default)]
pub(super) struct TeamCalls(Mutex<CallsState>);

#[derive(Default)]
struct CallsState {
    under_way: Vec<(u32, Weak<CallReply>)>,
    /// A thread looks.
    watched: bool,
}

impl TeamCalls {
    /// A call of this thread begins; it is under way as long as the answer is held.
    pub fn begin(self: &Arc<TeamCalls>, thread: u32, reply: Reply<IoctlAnswer>) -> Arc<CallReply> {
        let answer = Arc::new(CallReply(Mutex::new(Some(reply))));
        let mut state = self.0.lock();
        state.under_way.push((thread, Arc::downgrade(&answer)));
        if !state.watched {
            let calls = self.clone();
            let started = std::thread::Builder::new()
                .name("team watch".into())
                .stack_size(WATCH_STACK)
                .spawn(move || calls.watch());
            // Without it a killed process stays until its call is over.
            state.watched = started.is_ok();
        }
        answer
    }

    fn watch(&self) {
        loop {
            std::thread::sleep(KILLED_CHECK_INTERVAL);
            let calls = {
                let mut state = self.0.lock();
                state
                    .under_way
                    .retain(|(_, answer)| answer.strong_count() > 0);
                if state.under_way.is_empty() {
                    state.watched = false;
                    return;
                }
                state.under_way.clone()
            };
            for (thread, answer) in calls {
                let killed = || ThreadStatus::new(thread).killed();
                if let Some(answer) = answer.upgrade()
                    && answer.0.lock().is_some()
                    && killed()
                    && let Some(reply) = answer.take()
                {
                    reply.error(Errno::INTR);
                }
            }
        }
    }
}
