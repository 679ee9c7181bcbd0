//! A stage job at the server that coordinates it: what is shown of it, while it runs and for a while after.
use super::job_part::JobPart;
use crate::control::{StageJob, StageState};
use crate::process_handle::on_exit;
use forebay_client::stage::{StageCounts, StageOutcome, StageReport, StopReason};
use parking_lot::{Condvar, Mutex};
use std::io::PipeWriter;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// One job that this server leads.
pub struct LedJob {
    /// Its number.
    pub job: u64,
    /// What is copied, whenever and wherever.
    pub key: u64,
    /// What is copied, for people.
    pub what: String,
    background: bool,
    /// What it tells; also to cancel it.
    pub report: Arc<StageReport>,
    /// What the parts of other servers have done.
    pub elsewhere: Mutex<StageCounts>,
    /// Since when it runs.
    pub since: Instant,
    ended: Mutex<Option<(StageOutcome, Duration)>>,
    end: Condvar,
    /// Closed at its end, for whoever waits for that beside something else.
    open: Mutex<Option<PipeWriter>>,
}

impl LedJob {
    /// One that begins now.
    pub fn new(part: &JobPart, background: bool) -> Arc<LedJob> {
        Arc::new(LedJob {
            job: part.job,
            key: part.key,
            what: part.what.clone(),
            background,
            report: part.report.clone(),
            elsewhere: Mutex::default(),
            since: Instant::now(),
            ended: Mutex::default(),
            end: Condvar::new(),
            open: Mutex::default(),
        })
    }

    /// Whether it has not ended.
    pub fn runs(&self) -> bool {
        self.ended.lock().is_none()
    }

    /// As it is shown, with some of its lines.
    pub fn show(&self, from: usize, most: usize) -> StageJob {
        let ended = *self.ended.lock();
        let state = match ended.map(|(outcome, _)| outcome) {
            None => StageState::Running,
            Some(StageOutcome::Done) => StageState::Done,
            Some(StageOutcome::SomeFailed) => StageState::Failed,
            Some(StageOutcome::Stopped) => StageState::Stopped,
        };
        let why = match self.report.stop() {
            Some(StopReason::Fatal(text)) => Some(text),
            Some(StopReason::Cancelled) => Some(String::from("it was cancelled")),
            None => None,
        };
        let seconds = ended.map_or_else(|| self.since.elapsed(), |(_, took)| took);
        let mut counts = self.report.counts();
        counts += *self.elsewhere.lock();
        StageJob {
            job: self.job,
            what: self.what.clone(),
            state,
            why,
            background: self.background,
            seconds: seconds.as_secs_f64(),
            counts,
            lines: self.report.lines(from, most),
        }
    }

    /// It has ended.
    pub fn end(&self, outcome: StageOutcome) {
        *self.ended.lock() = Some((outcome, self.since.elapsed()));
        self.end.notify_all();
        drop(self.open.lock().take());
    }

    /// Waits until it has ended.
    pub fn wait(&self) {
        let mut ended = self.ended.lock();
        self.end.wait_while(&mut ended, |ended| ended.is_none());
    }

    /// Cancels it once the process that asked for it is gone, on a thread of its own that ends with the job.
    ///
    /// # Errors
    /// If there is no descriptor or thread to be had.
    pub fn cancel_with_asker(self: &Arc<LedJob>, asker: u32) -> Result<(), String> {
        let job = self.clone();
        let open = on_exit(asker, "stage watch", move || job.report.cancel())?;
        *self.open.lock() = Some(open);
        // It may have ended before it was there to be closed.
        if !self.runs() {
            self.open.lock().take();
        }
        Ok(())
    }
}
