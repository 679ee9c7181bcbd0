//! The stage jobs that this server leads, and its parts of the others'.
//!
//! Invariants: a job that was not sent to the background is cancelled when the process that asked for it ends; two jobs never
//! copy the same at once; no path of the service's own is touched; a server that stops ends its jobs and parts first.
use super::coordinator::Coordinator;
use super::environment::{StageEnvironment, StagePlan};
use super::job_part::JobPart;
use super::led_job::LedJob;
use crate::control::{ControlReply, StageJob, StageReply, StageRequest, StageSpec, StageState};
use crate::server_context::ServerContext;
use crate::server_rpc::messages::{ListedJob, PartRequest, PartSpec};
use crate::server_rpc::{PeerReply, PeerRequest, ServerRpc, reply};
use crate::threads;
use forebay_client::stage::{StageCounts, StageOptions, StageOutcome};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Finished jobs that are remembered.
const FINISHED_JOBS_KEPT: usize = 32;
/// Lines in one answer.
const LINES_PER_REPLY: usize = 200;
/// How long another server may take to answer.
const PEER_REPLY_TIMEOUT: Duration = Duration::from_secs(10);
/// A part ends if its progress was not asked for during this time.
const UNWATCHED_PART_LIMIT: Duration = Duration::from_secs(30);
/// How long a stopping server waits for coordinators to see that its parts have ended.
const COORDINATOR_GRACE: Duration = Duration::from_secs(2);

/// See the head of this file.
pub struct StageService {
    environment: StageEnvironment,
    state: Mutex<LedJobs>,
    parts: Arc<Mutex<BTreeMap<u64, Arc<JobPart>>>>,
    coordinator_timeout: Duration,
}

#[derive(Default)]
struct LedJobs {
    /// Those that this server leads, and those that it led last.
    led: Vec<Arc<LedJob>>,
    /// Jobs begun so far.
    begun: u64,
    /// No more jobs begin.
    closed: bool,
}

impl StageService {
    /// No job yet.
    pub fn new(server: Arc<ServerContext>) -> StageService {
        let options = StageOptions::default();
        StageService {
            environment: StageEnvironment { server, options },
            state: Mutex::default(),
            parts: Arc::default(),
            coordinator_timeout: UNWATCHED_PART_LIMIT,
        }
    }

    /// The same, with other limits.
    #[cfg(test)]
    pub fn with(mut self, options: StageOptions, coordinator_timeout: Duration) -> StageService {
        self.environment.options = options;
        StageService {
            coordinator_timeout,
            ..self
        }
    }

    /// Answers a question of a client.
    pub fn answer(self: &Arc<StageService>, ask: StageRequest, asker: u32) -> ControlReply {
        let done = match ask {
            StageRequest::Start(spec) => self.start(*spec, asker).map(StageReply::Job),
            StageRequest::Look { job, from } => self
                .find(job)
                .map(|led| StageReply::Seen(Box::new(led.show(from, LINES_PER_REPLY)))),
            StageRequest::List => Ok(StageReply::Jobs(self.all())),
            StageRequest::Forget => {
                self.forget_unfinished();
                let said = self.ask_others::<()>(PartRequest::Forget);
                let forgotten = said.into_iter().try_for_each(|(_, said)| said);
                forgotten.map(|()| StageReply::Jobs(self.all()))
            }
            StageRequest::Cancel { job } => self.cancel(job).map(|()| StageReply::Job(job)),
        };
        done.map_or_else(ControlReply::Refused, ControlReply::Stage)
    }

    /// Answers a question of another server.
    pub fn answer_server(&self, ask: PartRequest) -> PeerReply {
        match ask {
            PartRequest::Places => return reply(self.environment.places()),
            PartRequest::Look { job, from } => {
                return reply(self.part(job)?.progress_since(from, LINES_PER_REPLY));
            }
            PartRequest::List => return reply(self.list()),
            PartRequest::Start(spec) => self.start_part(*spec)?,
            PartRequest::Forget => self.forget_unfinished(),
            PartRequest::Cancel { job } => self.part(job)?.report.cancel(),
            PartRequest::End { job, done } => self.end_part(job, done),
            PartRequest::CancelJob { job } => self.find(job)?.report.cancel(),
        }
        reply(())
    }

    /// Forgets what is finished of jobs that do not run here.
    fn forget_unfinished(&self) {
        // Held so that none begins meanwhile.
        let state = self.state.lock();
        let parts = self.parts.lock();
        for (key, what) in self.environment.left() {
            let runs = state.led.iter().any(|s| s.key == key && s.runs());
            if !runs && parts.values().all(|part| part.key != key) {
                tracing::info!("forgot the unfinished stage job {what}");
                self.environment.forget(key);
            }
        }
    }

    fn find(&self, job: u64) -> Result<Arc<LedJob>, String> {
        let state = self.state.lock();
        let led = state.led.iter().find(|s| s.job == job).cloned();
        led.ok_or_else(|| {
            format!("there is no stage job {job}; `forebay stage status` shows those there are")
        })
    }

    fn part(&self, job: u64) -> Result<Arc<JobPart>, String> {
        let part = self.parts.lock().get(&job).cloned();
        part.ok_or_else(|| format!("it has no part of stage job {job} any more; see its log"))
    }

    fn rpc(&self) -> &ServerRpc {
        &self.environment.server.rpc
    }

    fn ask_others<T: DeserializeOwned + Send>(
        &self,
        ask: PartRequest,
    ) -> Vec<(u16, Result<T, String>)> {
        let request = PeerRequest::Stage(ask);
        self.rpc().call_all(&request, PEER_REPLY_TIMEOUT)
    }

    /// Number of the `n`-th job of this server, from 0: it tells which server leads the job.
    fn number(&self, n: u64) -> u64 {
        n * u64::from(self.rpc().size()) + u64::from(self.rpc().own()) + 1
    }

    fn cancel(&self, job: u64) -> Result<(), String> {
        let leader = (job.saturating_sub(1) % u64::from(self.rpc().size())) as u16;
        if leader == self.rpc().own() {
            return self.find(job).map(|led| led.report.cancel());
        }
        let ask = PeerRequest::Stage(PartRequest::CancelJob { job });
        self.rpc().call(leader, ask.encode(), PEER_REPLY_TIMEOUT)
    }

    /// What this server leads, and what was cut off here.
    fn list(&self) -> Vec<ListedJob> {
        let led_jobs = self.state.lock().led.clone();
        let listed = |led: &Arc<LedJob>| ListedJob {
            key: led.key,
            age: led.since.elapsed().as_secs_f64(),
            job: led.show(0, 0),
        };
        let mut jobs: Vec<ListedJob> = led_jobs.iter().map(listed).collect();
        let parts = self.parts.lock().clone();
        for (key, what) in self.environment.left() {
            if led_jobs.iter().all(|led| led.key != key) && parts.values().all(|p| p.key != key) {
                let job = StageJob {
                    job: 0,
                    what,
                    state: StageState::Unfinished,
                    why: None,
                    background: false,
                    seconds: 0.0,
                    counts: StageCounts::default(),
                    lines: Vec::new(),
                };
                let age = 0.0;
                jobs.push(ListedJob { key, age, job });
            }
        }
        jobs
    }

    /// The jobs of all servers.
    fn all(&self) -> Vec<StageJob> {
        let mut listed = self.list();
        for (_, said) in self.ask_others::<Vec<ListedJob>>(PartRequest::List) {
            match said {
                Ok(more) => listed.extend(more),
                Err(why) => tracing::warn!("the stage jobs of another server: {why}"),
            }
        }
        // The newest last; then what was cut off, once, unless some server has told of it.
        let unfinished = |l: &ListedJob| l.job.state == StageState::Unfinished;
        listed.sort_by(|a, b| (b.age.total_cmp(&a.age)).then(a.job.what.cmp(&b.job.what)));
        let mut seen = std::collections::BTreeSet::new();
        listed.retain(|l| seen.insert(l.key) || !unfinished(l));
        listed.into_iter().map(|l| l.job).collect()
    }

    fn start(self: &Arc<StageService>, spec: StageSpec, asker: u32) -> Result<u64, String> {
        let plan = StagePlan::new(&spec)?;
        if spec.into && self.environment.is_read_only() {
            return Err(String::from(
                "this service is read-only: it salvages a damaged store; copy out of it, and into another one",
            ));
        }
        let avoid = self.places()?;
        self.refuse_own(&spec, &avoid)?;
        let mut state = self.state.lock();
        self.refuse_busy(&state, plan.key)?;
        let engine = self.environment.job(&spec, &plan, &avoid, false)?;
        let job = self.number(state.begun);
        let part = JobPart::new(job, plan.key, plan.what, engine);
        let led = LedJob::new(&part, spec.background);
        let (running, server) = (led.clone(), self.environment.server.clone());
        let background = spec.background;
        let run = move || {
            tracing::info!("stage job {job}: {}", running.what);
            let spec = PartSpec { job, spec, avoid };
            let run = || {
                let coordinator = Coordinator {
                    part: &part,
                    rpc: &server.rpc,
                    elsewhere: &running.elsewhere,
                    lines: LINES_PER_REPLY,
                };
                coordinator.run(spec)
            };
            // What panics must not look as if it ran for ever.
            let run = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
            let outcome = run.unwrap_or(StageOutcome::Stopped);
            let counts = running.show(0, 0).counts;
            tracing::info!("stage job {job} ended: {outcome:?}, {counts:?}");
            drop(part);
            running.end(outcome);
        };
        threads::spawn("stage", "a thread", run).map_err(|e| e.text)?;
        if !background {
            led.cancel_with_asker(asker)
                .inspect_err(|_| led.report.cancel())?;
        }
        state.begun += 1;
        let jobs = &mut state.led;
        jobs.push(led);
        while jobs.len() > FINISHED_JOBS_KEPT {
            match jobs.iter().position(|s| !s.runs()) {
                Some(oldest) => jobs.remove(oldest),
                None => break,
            };
        }
        Ok(job)
    }

    fn start_part(&self, spec: PartSpec) -> Result<(), String> {
        let plan = StagePlan::new(&spec.spec)?;
        let state = self.state.lock();
        self.refuse_busy(&state, plan.key)?;
        let engine = self.environment.job(&spec.spec, &plan, &spec.avoid, true)?;
        let part = JobPart::new(spec.job, plan.key, plan.what, engine);
        tracing::info!("a part of stage job {}: {}", part.job, part.what);
        let (watched, parts, coordinator_timeout) =
            (part.clone(), self.parts.clone(), self.coordinator_timeout);
        parts.lock().insert(part.job, part.clone());
        let watch = move || {
            watched.watch(coordinator_timeout);
            parts.lock().remove(&watched.job);
        };
        let started = part.start().and_then(|()| {
            threads::spawn("stage watch", "a thread", watch)
                .map_err(|e| e.text)
                .inspect_err(|_| {
                    part.report.cancel();
                    part.wait(None);
                })
        });
        started.inspect_err(|_| {
            self.parts.lock().remove(&part.job);
        })
    }

    fn end_part(&self, job: u64, done: bool) {
        let Some(part) = self.parts.lock().remove(&job) else {
            return;
        };
        tracing::info!(
            "its part of stage job {job} ended: {:?}",
            part.report.counts()
        );
        part.report.cancel();
        part.wait(None);
        if done {
            self.environment.forget(part.key);
        }
        part.release();
    }

    /// Two jobs must not copy the same at once.
    fn refuse_busy(&self, state: &LedJobs, key: u64) -> Result<(), String> {
        if state.closed {
            return Err(String::from(
                "the service is stopping; start it again, then run the same command",
            ));
        }
        let led = state.led.iter().find(|s| s.key == key && s.runs());
        let parts = self.parts.lock();
        let part = parts.values().find(|part| part.key == key);
        match led.map(|s| s.job).or(part.map(|p| p.job)) {
            None => Ok(()),
            Some(job) => Err(format!(
                "stage job {job} copies the same already; `forebay stage status` shows it"
            )),
        }
    }

    /// Paths of all servers that are no plain directories.
    fn places(&self) -> Result<Vec<PathBuf>, String> {
        let mut places = self.environment.places();
        for (_, said) in self.ask_others::<Vec<PathBuf>>(PartRequest::Places) {
            places.extend(said.map_err(|why| {
                format!("{why}; staging needs all servers: start the service again")
            })?);
        }
        places.sort();
        places.dedup();
        Ok(places)
    }

    /// The plain side must be neither in a store nor on a mount of this very service.
    fn refuse_own(&self, spec: &StageSpec, places: &[PathBuf]) -> Result<(), String> {
        for (from, to) in &spec.pairs {
            let plain = PathBuf::from(if spec.into { from } else { to });
            let shown = plain.display();
            let mut mounts = self.environment.server.mounts.iter();
            if mounts.any(|mount| plain.starts_with(&mount.path)) {
                return Err(format!(
                    "{shown} lies in this service too; copy within it with `cp -a`"
                ));
            }
            if places.iter().any(|place| plain.starts_with(place)) {
                return Err(format!(
                    "{shown} lies in the store or on a mount of this service; name a directory outside of it"
                ));
            }
        }
        Ok(())
    }

    /// How many jobs run that this process leads or has a part of.
    pub fn running(&self) -> u64 {
        let mut jobs: Vec<u64> = self.parts.lock().keys().copied().collect();
        let state = self.state.lock();
        jobs.extend(state.led.iter().filter(|s| s.runs()).map(|s| s.job));
        jobs.sort_unstable();
        jobs.dedup();
        jobs.len() as u64
    }

    /// What runs now, for the message that refuses to stop.
    pub fn stop_obstacle(&self) -> Option<String> {
        let led = self.state.lock().led.iter().find(|s| s.runs()).cloned();
        let led = led.map(|led| (led.job, led.what.clone()));
        let part = || {
            let parts = self.parts.lock();
            let (_, part) = parts.first_key_value()?;
            Some((part.job, part.what.clone()))
        };
        let (job, what) = led.or_else(part)?;
        Some(format!(
            "stage job {job} runs ({what}); wait for it (`forebay stage status`), end it with `forebay stage status --cancel {job}`, or add --force"
        ))
    }

    /// Ends all jobs and parts, and waits until they have.
    pub fn stop(&self) {
        let jobs = {
            let mut state = self.state.lock();
            state.closed = true;
            state.led.clone()
        };
        let parts = self.parts.lock().clone();
        jobs.iter().for_each(|led| led.report.cancel());
        parts.values().for_each(|part| part.report.cancel());
        for led in jobs {
            led.wait();
        }
        for part in parts.values() {
            part.wait(None);
            // Its coordinator learns why; if it is gone, nobody does.
            part.wait_released(COORDINATOR_GRACE);
            part.release();
        }
        self.parts.lock().clear();
    }
}
