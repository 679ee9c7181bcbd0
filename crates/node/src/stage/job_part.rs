//! One server's part of a stage job: that of its own nodes, for its own coordinator or for that of another server.
//!
//! Invariants: a part for another server ends by itself once its coordinator has not asked for its progress for a while.
//! Its result stays until then, or until its coordinator ends it.
use crate::server_rpc::messages::PartProgress;
use crate::threads;
use forebay_client::stage::{PartResult, StageReport, StageRun};
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// See the head of this file.
pub struct JobPart {
    /// Number of the job.
    pub job: u64,
    /// What is copied, whenever and wherever.
    pub key: u64,
    /// What is copied, for people.
    pub what: String,
    /// The engine's job.
    pub engine: StageRun,
    /// What it tells; also to cancel it.
    pub report: Arc<StageReport>,
    state: Mutex<PartState>,
    changed: Condvar,
}

struct PartState {
    /// Of a part that has ended, until they are taken.
    parts: Option<PartResult>,
    ended: bool,
    looked: Instant,
    released: bool,
}

impl JobPart {
    /// One that has not begun.
    pub fn new(job: u64, key: u64, what: String, engine: StageRun) -> Arc<JobPart> {
        Arc::new(JobPart {
            job,
            key,
            what,
            report: engine.report(),
            engine,
            state: Mutex::new(PartState {
                parts: None,
                ended: false,
                looked: Instant::now(),
                released: false,
            }),
            changed: Condvar::new(),
        })
    }

    /// Lets it run, on a thread of its own.
    ///
    /// # Errors
    /// If there is no thread to be had; then it counts as ended.
    pub fn start(self: &Arc<JobPart>) -> Result<(), String> {
        let part = self.clone();
        let run = move || {
            // What panics must not look as if it ran for ever.
            let run = std::panic::AssertUnwindSafe(|| part.engine.parts());
            let parts = std::panic::catch_unwind(run).ok();
            if parts.is_none() {
                let text = "it panicked; see the server's log, and report this";
                part.report.fatal(text.into());
            }
            let mut state = part.state.lock();
            (state.parts, state.ended) = (parts, true);
            part.changed.notify_all();
        };
        threads::spawn("stage part", "a thread", run)
            .map_err(|e| e.text)
            .inspect_err(|_| self.state.lock().ended = true)
    }

    /// How far it is, for a coordinator elsewhere.
    pub fn progress_since(&self, from: usize, lines: usize) -> PartProgress {
        let mut state = self.state.lock();
        state.looked = Instant::now();
        let parts = state.parts.as_ref();
        let left = parts.map(|parts| parts.summary.clone());
        let ended = state.ended;
        drop(state);
        let report = &self.report;
        // After whether it has ended: so nothing is missed.
        PartProgress {
            ended,
            left,
            counts: report.counts(),
            lines: report.lines(from, lines),
            stop: report.stop(),
        }
    }

    /// Whether it has ended.
    pub fn ended(&self) -> bool {
        self.state.lock().ended
    }

    /// Waits until it has ended, `limit` at most; whether it has.
    pub fn wait(&self, limit: Option<Duration>) -> bool {
        let mut state = self.state.lock();
        let runs = |state: &mut PartState| !state.ended;
        match limit {
            Some(limit) => _ = self.changed.wait_while_for(&mut state, runs, limit),
            None => self.changed.wait_while(&mut state, runs),
        }
        state.ended
    }

    /// What it leaves, once.
    pub fn take(&self) -> Option<PartResult> {
        self.state.lock().parts.take()
    }

    /// Nobody looks at it any more.
    pub fn release(&self) {
        self.state.lock().released = true;
        self.changed.notify_all();
    }

    /// Waits until its coordinator has let it go, `limit` at most.
    pub fn wait_released(&self, limit: Duration) {
        let mut state = self.state.lock();
        self.changed
            .wait_while_for(&mut state, |state| !state.released, limit);
    }

    /// Cancels it when nobody has looked for `timeout`; returns once it has ended and been released, or nobody looks.
    pub fn watch(&self, timeout: Duration) {
        let mut state = self.state.lock();
        loop {
            let alone = state.looked.elapsed() >= timeout;
            if state.ended && (alone || state.released) {
                return;
            }
            if alone && self.report.stop().is_none() {
                tracing::warn!("stage job {}: nobody asks for it any more", self.job);
                self.report.cancel();
            }
            // Once nobody looks only an end is waited for, or that somebody looks again.
            let left = match alone {
                true => timeout,
                false => timeout.saturating_sub(state.looked.elapsed()),
            };
            self.changed.wait_for(&mut state, left);
        }
    }
}
