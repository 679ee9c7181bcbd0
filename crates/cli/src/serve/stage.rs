//! The stage jobs of a running server.
//!
//! Invariants: a job that was not sent to the background is cancelled when the process that asked for it ends; two jobs never
//! copy the same at once; no path below a mount of this process is touched; a server that stops ends its jobs first.
use super::attend::{Hosted, Running};
use crate::control::{Answer, StageAnswer, StageAsk, StageJob, StageSpec, StageState};
use forebay_client::Client;
use forebay_client::stage::{
    Direction, Job, Local, Options, Outcome, Pair, Report, Stop, job_number, left,
};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Finished jobs that are remembered.
const REMEMBERED: usize = 32;
/// Lines in one answer.
const LINES: usize = 200;
/// How often it is looked whether who asked still lives.
const WATCH: Duration = Duration::from_millis(250);

/// One job.
struct Slot {
    job: u64,
    number: u64,
    what: String,
    background: bool,
    report: Arc<Report>,
    since: Instant,
    ended: Mutex<Option<(Outcome, Duration)>>,
    end: Condvar,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Slot {
    fn runs(&self) -> bool {
        lock(&self.ended).is_none()
    }

    fn show(&self, from: usize, most: usize) -> StageJob {
        let ended = *lock(&self.ended);
        let state = match ended.map(|(outcome, _)| outcome) {
            None => StageState::Running,
            Some(Outcome::Done) => StageState::Done,
            Some(Outcome::SomeFailed) => StageState::Failed,
            Some(Outcome::Stopped) => StageState::Stopped,
        };
        let why = match self.report.stop() {
            Some(Stop::Fatal(text)) => Some(text),
            Some(Stop::Cancelled) => Some(String::from("it was cancelled")),
            None => None,
        };
        let seconds = ended.map_or_else(|| self.since.elapsed(), |(_, took)| took);
        StageJob {
            job: self.job,
            what: self.what.clone(),
            state,
            why,
            background: self.background,
            seconds: seconds.as_secs_f64(),
            counts: self.report.counts(),
            lines: self.report.lines(from, most),
        }
    }
}

/// See the head of this file.
pub struct StageDesk {
    service: Running,
    store: PathBuf,
    /// The mounts of this process.
    points: Vec<PathBuf>,
    slots: Mutex<Vec<Arc<Slot>>>,
    /// No more jobs begin.
    closed: AtomicBool,
}

impl StageDesk {
    /// No job yet.
    pub fn new(service: Running, store: PathBuf, points: Vec<PathBuf>) -> StageDesk {
        StageDesk {
            service,
            store,
            points,
            slots: Mutex::default(),
            closed: AtomicBool::new(false),
        }
    }

    /// Answers a question.
    pub fn answer(&self, ask: StageAsk, asker: u32) -> Answer {
        let done = match ask {
            StageAsk::Start(spec) => self.start(*spec, asker).map(StageAnswer::Job),
            StageAsk::Look { job, from } => self
                .find(job)
                .map(|slot| StageAnswer::Seen(Box::new(slot.show(from, LINES)))),
            StageAsk::List => Ok(StageAnswer::Jobs(self.list())),
            StageAsk::Cancel { job } => self.find(job).map(|slot| {
                slot.report.cancel();
                StageAnswer::Job(job)
            }),
        };
        done.map_or_else(Answer::Refused, Answer::Stage)
    }

    fn journals(&self, service: &dyn Hosted, member: u16) -> PathBuf {
        self.store.join(service.home(member)).join("stage")
    }

    fn find(&self, job: u64) -> Result<Arc<Slot>, String> {
        let slot = lock(&self.slots).iter().find(|s| s.job == job).cloned();
        slot.ok_or_else(|| {
            format!("there is no stage job {job}; `forebay stage status` shows those there are")
        })
    }

    fn list(&self) -> Vec<StageJob> {
        // Every member of a job keeps a journal of it.
        let first = lock(&self.service).as_ref().and_then(|service| {
            let (member, _) = *service.delegates().first()?;
            Some(self.journals(&**service, member))
        });
        let slots = lock(&self.slots);
        let mut jobs: Vec<StageJob> = slots.iter().map(|slot| slot.show(0, 0)).collect();
        for (number, what) in first.iter().flat_map(|journals| left(journals)) {
            if slots.iter().all(|slot| slot.number != number) {
                jobs.push(StageJob {
                    job: 0,
                    what: String::from_utf8_lossy(&what).into_owned(),
                    state: StageState::Unfinished,
                    why: None,
                    background: false,
                    seconds: 0.0,
                    counts: forebay_client::stage::Counts::default(),
                    lines: Vec::new(),
                });
            }
        }
        jobs
    }

    fn start(&self, spec: StageSpec, asker: u32) -> Result<u64, String> {
        let direction = if spec.into {
            Direction::In
        } else {
            Direction::Out
        };
        let pairs: Vec<Pair> = spec
            .pairs
            .iter()
            .map(|(from, to)| Pair {
                from: from.into(),
                to: to.into(),
            })
            .collect();
        self.refuse_own(&spec)?;
        let what = describe(&spec)?;
        let number = job_number(direction, &pairs);
        let mut slots = lock(&self.slots);
        if self.closed.load(Ordering::SeqCst) {
            return Err(String::from("the service is stopping; start it again"));
        }
        if let Some(slot) = slots.iter().find(|s| s.number == number && s.runs()) {
            return Err(format!(
                "stage job {} copies the same already; `forebay stage status` shows it",
                slot.job
            ));
        }
        let job = self.job(&spec, direction, pairs, &what)?;
        let id = slots.last().map_or(0, |s| s.job) + 1;
        let slot = Arc::new(Slot {
            job: id,
            number,
            what,
            background: spec.background,
            report: job.report(),
            since: Instant::now(),
            ended: Mutex::default(),
            end: Condvar::new(),
        });
        let running = slot.clone();
        let thread = std::thread::Builder::new().name("stage".into());
        let run = move || {
            tracing::info!("stage job {id}: {}", running.what);
            // What panics must not look as if it ran for ever.
            let run = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| job.run()));
            let outcome = run.unwrap_or(Outcome::Stopped);
            let counts = running.report.counts();
            tracing::info!("stage job {id} ended: {outcome:?}, {counts:?}");
            *lock(&running.ended) = Some((outcome, running.since.elapsed()));
            running.end.notify_all();
        };
        thread
            .spawn(run)
            .map_err(|e| format!("cannot start a thread: {e}; raise the limit on processes"))?;
        if !spec.background {
            let watched = slot.clone();
            std::thread::Builder::new()
                .name("stage watch".into())
                .spawn(move || watch(&watched, asker))
                .map_err(|e| {
                    slot.report.cancel();
                    format!("cannot start a thread: {e}; raise the limit on processes")
                })?;
        }
        slots.push(slot);
        while slots.len() > REMEMBERED {
            match slots.iter().position(|s| !s.runs()) {
                Some(oldest) => slots.remove(oldest),
                None => break,
            };
        }
        Ok(id)
    }

    /// A job over all nodes of this process.
    fn job(
        &self,
        spec: &StageSpec,
        direction: Direction,
        pairs: Vec<Pair>,
        what: &str,
    ) -> Result<Job, String> {
        let service = lock(&self.service);
        let service = service.as_ref().ok_or_else(|| {
            format!(
                "the service of {} is stopping; start it again",
                self.store.display()
            )
        })?;
        let nodes = service.members();
        let local = |(node, delegate)| Local {
            node,
            client: Client::new(delegate),
            journals: self.journals(&**service, node),
        };
        let mut avoid = self.points.clone();
        avoid.push(self.store.clone());
        let jobs = match (spec.jobs, nodes) {
            (0, 1) => 4,
            (0, _) => 2,
            (jobs, _) => usize::from(jobs),
        };
        let options = Options {
            verify: spec.verify,
            sync: spec.sync,
            jobs,
            avoid,
            ..Options::default()
        };
        let local = service.delegates().into_iter().map(local).collect();
        Job::new(direction, pairs, options, nodes, local, what).map_err(|e| {
            format!(
                "cannot write the journal in {}: {e}; make room there, or look at its log",
                self.store.display()
            )
        })
    }

    /// The plain side must be neither in the store nor on a mount of this very service.
    fn refuse_own(&self, spec: &StageSpec) -> Result<(), String> {
        for (from, to) in &spec.pairs {
            let plain = PathBuf::from(if spec.into { from } else { to });
            if plain.starts_with(&self.store) {
                return Err(format!(
                    "{} lies in the store of this service; name a directory outside of it",
                    plain.display()
                ));
            }
            if self.points.iter().any(|m| plain.starts_with(m)) {
                return Err(format!(
                    "{} lies in this service too; copy within it with `cp -a`",
                    plain.display()
                ));
            }
        }
        Ok(())
    }

    /// What runs now, for the message that refuses to stop.
    pub fn busy(&self) -> Option<String> {
        let slots = lock(&self.slots);
        let slot = slots.iter().find(|slot| slot.runs())?;
        Some(format!(
            "stage job {} runs ({}); wait for it (`forebay stage status`), end it with `forebay stage status --cancel {}`, or add --force",
            slot.job, slot.what, slot.job
        ))
    }

    /// Ends all jobs, and waits until they have.
    pub fn stop(&self) {
        let slots = {
            let slots = lock(&self.slots);
            self.closed.store(true, Ordering::SeqCst);
            slots.clone()
        };
        slots.iter().for_each(|slot| slot.report.cancel());
        for slot in slots {
            let ended = lock(&slot.ended);
            let waited = slot.end.wait_while(ended, |ended| ended.is_none());
            drop(waited.unwrap_or_else(PoisonError::into_inner));
        }
    }
}

/// Cancels the job once the process that asked for it is gone.
fn watch(slot: &Slot, asker: u32) {
    let mut ended = lock(&slot.ended);
    while ended.is_none() {
        let waited = slot.end.wait_timeout(ended, WATCH);
        ended = waited.unwrap_or_else(PoisonError::into_inner).0;
        if ended.is_none() && !crate::processes::lives(asker) {
            slot.report.cancel();
        }
    }
}

fn describe(spec: &StageSpec) -> Result<String, String> {
    let way = if spec.into { "in" } else { "out" };
    match spec.pairs.as_slice() {
        [] => Err(String::from(
            "the manifest names nothing; write `SRC DST` lines",
        )),
        [(from, to)] => Ok(format!("{way} {from} to {to}")),
        [(from, to), more @ ..] => Ok(format!("{way} {from} to {to} and {} more", more.len())),
    }
}
