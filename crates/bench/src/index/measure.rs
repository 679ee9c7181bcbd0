//! One subject on one case, in a process of its own: puts, flush, gets cold, gets warm.
//!
//! Batches are made some hundred at a time, and only the subject's work on them is timed; memory for its answers is allocated before
//! and used again for the next batches. Every answer is compared with what was put; a wrong one ends the benchmark.
use super::cases;
use super::order::Arrivals;
use super::process;
use super::subject::{self, RecordLocation, Subject, Tuning, Worker};
use super::workload::{Record, Workload};
use crate::cache::CacheDropping;
use crate::cpu;
use crate::fail::{Failure, Result};
use crate::harness::in_threads;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// The job of the child process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SubjectJob {
    /// The name of the case.
    pub case: String,
    /// The subject's name.
    pub store: String,
    /// Its settings.
    pub tuning: Tuning,
    /// The load, the same for all subjects.
    pub load: IndexLoad,
    /// Seed of the order of arrival.
    pub seed: u64,
    /// An empty directory, or none yet.
    pub dir: PathBuf,
}

/// The load of a subject; the same for all.
#[derive(Debug, Clone, clap::Args, Serialize, Deserialize)]
pub struct IndexLoad {
    /// Records of a batch
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u64).range(1..))]
    pub batch: u64,
    /// Threads that put and get
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    pub threads: u16,
    /// Get about so many records only: whole batches, from places spread over the case [default: all]
    #[arg(long)]
    pub gets: Option<u64>,
    /// Each batch is a commit of its own, with the next sequence; else all of a writer's are one
    #[arg(long)]
    pub commit_batches: bool,
}

/// The outcome that the child prints; times in seconds, sizes in bytes.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct IndexOutcome {
    /// Records put.
    pub puts: u64,
    /// Until all were accepted; the processor time of the process until everything had settled.
    pub put: WorkTime,
    /// From then until all were in table files.
    pub flush_seconds: f64,
    /// From then until nothing was written any more.
    pub settle_seconds: f64,
    /// Table files then.
    pub table_bytes: u64,
    /// Written to table files until then.
    pub written_to_tables: u64,
    /// Written to all files until then.
    pub written: u64,
    /// Records looked up, cold and again warm.
    pub gets: u64,
    /// Cold: pages dropped, store opened anew.
    pub cold: WorkTime,
    /// The same gets again: warm.
    pub warm: WorkTime,
    /// The most that the subject ever counted.
    pub memory: u64,
    /// The most that the process ever had.
    pub resident: u64,
    /// What the subject said of itself after the puts, and after the gets.
    pub notes: Vec<String>,
}

/// Batches that are made at once to put them.
const PUT_BATCHES_AT_ONCE: usize = 256;
/// And to get them: fewer, so that they and the answers do not push out of the processor's caches what the subject has there.
const GET_BATCHES_AT_ONCE: usize = 64;
/// Batches beside each other in a sample of gets.
const SAMPLE_BATCHES: u64 = 64;
/// Nothing written for so long: it has settled.
const QUIET_TIME: Duration = Duration::from_millis(600);
/// How often that is looked at.
const QUIET_POLL: Duration = Duration::from_millis(100);

/// Runs the job.
///
/// # Errors
/// Those of the subject; or it answered wrongly.
pub fn run(job: &SubjectJob) -> Result<IndexOutcome> {
    let case = cases::find(&job.case)?;
    let work = (case.workload)();
    let arrivals = |seed| Arrivals::new(&work, case.order, job.load.batch, seed);
    let mut out = IndexOutcome::default();
    let before = process::written()?;

    let subject = subject::open(&job.store, &job.dir, &job.tuning)?;
    let mut commits = 0;
    let incoming = arrivals(job.seed).map(|mut batch| {
        commits += 1;
        if job.load.commit_batches {
            batch.iter_mut().for_each(|r| r.seq = commits);
        }
        batch
    });
    let put = |worker: &mut dyn Worker, batch: &[Record], _: &mut _| worker.put(batch);
    let sheets = sheets(PUT_BATCHES_AT_ONCE, 0);
    let (batches, put) = all_timed(job, &*subject, incoming, &sheets, put, &mut out.memory)?;
    out.put = put;
    out.puts = batches.iter().sum();

    let (start, cpu) = (Instant::now(), cpu::of_self());
    subject.flush()?;
    out.flush_seconds = start.elapsed().as_secs_f64();
    out.settle_seconds = wait_until_idle(&*subject)?;
    out.put.cpu += cpu::of_self() - cpu;
    out.memory = out.memory.max(subject.memory());
    out.written = process::written()? - before;
    out.written_to_tables = subject.written_to_tables(&batches, out.written);
    out.table_bytes = process::table_bytes(&job.dir)?;
    out.notes.push(subject.note());
    subject.close()?;

    CacheDropping::Advised.drop_caches(&[&job.dir]);
    let subject = subject::open(&job.store, &job.dir, &job.tuning)?;
    let arrivals = || arrivals(job.seed + 1);
    (out.gets, out.cold) = gets(job, &work, &*subject, arrivals(), &mut out.memory)?;
    (_, out.warm) = gets(job, &work, &*subject, arrivals(), &mut out.memory)?;
    out.notes.push(subject.note());
    subject.close()?;
    out.resident = process::peak_memory()?;
    Ok(out)
}

/// Looks all up, or a sample: the number of records, and what it took.
fn gets(
    job: &SubjectJob,
    work: &Workload,
    subject: &dyn Subject,
    arrivals: Arrivals<'_>,
    memory: &mut u64,
) -> Result<(u64, WorkTime)> {
    let sample = BatchSample::new(
        arrivals.batches(),
        job.load.gets.unwrap_or(work.total()),
        job.load.batch,
    );
    let chosen = (0..)
        .zip(arrivals)
        .filter(|(n, _)| sample.has(*n))
        .map(|(_, batch)| batch);
    let get =
        |worker: &mut dyn Worker, batch: &[Record], answers: &mut _| worker.get(batch, answers);
    let sheets = sheets(GET_BATCHES_AT_ONCE, job.load.batch as usize);
    let (batches, took) = all_timed(job, subject, chosen, &sheets, get, memory)?;
    Ok((batches.iter().sum(), took))
}

/// Does `each` on all batches, as many at once as there are sheets: the number of records of each batch, and what it took.
fn all_timed(
    job: &SubjectJob,
    subject: &dyn Subject,
    mut batches: impl Iterator<Item = Vec<Record>>,
    sheets: &[AnswerSheet],
    each: impl Fn(&mut dyn Worker, &[Record], &mut Vec<RecordLocation>) -> Result<()> + Sync,
    memory: &mut u64,
) -> Result<(Vec<u64>, WorkTime)> {
    let (mut records, mut all) = (Vec::new(), WorkTime::default());
    loop {
        let group: Vec<Vec<Record>> = batches.by_ref().take(sheets.len()).collect();
        if group.is_empty() {
            return Ok((records, all));
        }
        records.extend(group.iter().map(|b| b.len() as u64));
        let took = timed(job.load.threads, subject, &group, sheets, &each)?;
        all.seconds += took.seconds;
        all.thread_cpu += took.thread_cpu;
        all.cpu += took.cpu;
        *memory = (*memory).max(subject.memory());
    }
}

/// Which batches are looked up: windows of them, evenly spread.
struct BatchSample {
    window: u64,
    every: u64,
}

impl BatchSample {
    fn new(batches: u64, records: u64, size: u64) -> BatchSample {
        let wanted = records.div_ceil(size).clamp(1, batches.max(1));
        let window = SAMPLE_BATCHES.min(wanted);
        let windows = wanted.div_ceil(window);
        BatchSample {
            window,
            every: match wanted == batches {
                true => window,
                false => (batches / windows).max(window),
            },
        }
    }

    fn has(&self, n: u64) -> bool {
        n % self.every < self.window
    }
}

/// The answers to one batch.
type AnswerSheet = Mutex<Vec<RecordLocation>>;

/// Sheets for so many batches of so many records.
fn sheets(batches: usize, records: usize) -> Vec<AnswerSheet> {
    let sheet = |_| Mutex::new(Vec::with_capacity(records));
    (0..batches).map(sheet).collect()
}

/// What some work took, in seconds.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct WorkTime {
    /// Of the slowest thread.
    pub seconds: f64,
    /// Processor time of the threads that asked.
    pub thread_cpu: f64,
    /// Processor time of the process meanwhile.
    pub cpu: f64,
}

/// What so many threads take to do `each` on every batch; answers, if there are any, are checked afterwards. There are sheets for
/// all batches.
fn timed(
    threads: u16,
    subject: &dyn Subject,
    group: &[Vec<Record>],
    sheets: &[AnswerSheet],
    each: impl Fn(&mut dyn Worker, &[Record], &mut Vec<RecordLocation>) -> Result<()> + Sync,
) -> Result<WorkTime> {
    sheets.iter().for_each(|sheet| sheet.lock().clear());
    let next = AtomicUsize::new(0);
    let hands = || -> Result<WorkTime> {
        let mut worker = subject.worker()?;
        let (start, cpu) = (Instant::now(), cpu::of_thread());
        loop {
            let n = next.fetch_add(1, Ordering::Relaxed);
            let Some(batch) = group.get(n) else {
                return Ok(WorkTime {
                    seconds: start.elapsed().as_secs_f64(),
                    thread_cpu: cpu::of_thread() - cpu,
                    cpu: 0.0,
                });
            };
            each(&mut *worker, batch, &mut sheets[n].lock())?;
        }
    };
    let cpu = cpu::of_self();
    let all: Vec<_> = match threads {
        1 => vec![hands()?],
        _ => in_threads(0..threads, |_| hands())?,
    };
    let cpu = cpu::of_self() - cpu;
    for (batch, answers) in group.iter().zip(sheets) {
        check(batch, &answers.lock())?;
    }
    let took = all.iter();
    Ok(WorkTime {
        seconds: took.clone().map(|t| t.seconds).fold(0.0, f64::max),
        thread_cpu: took.map(|t| t.thread_cpu).sum(),
        cpu,
    })
}

/// None at all is right for puts.
fn check(batch: &[Record], answers: &[RecordLocation]) -> Result<()> {
    if answers.is_empty() {
        return Ok(());
    }
    if answers.len() != batch.len() {
        let (some, all) = (answers.len(), batch.len());
        return Err(Failure::new(format!("{some} answers to {all} gets")));
    }
    for (record, answer) in batch.iter().zip(answers) {
        if *answer != RecordLocation::of(record) {
            return Err(Failure::new(format!(
                "wrong answer {answer:?} for {record:?}"
            )));
        }
    }
    Ok(())
}

/// Waits until the subject has nothing to do in the background; seconds, without the quiet at the end.
fn wait_until_idle(subject: &dyn Subject) -> Result<f64> {
    let start = Instant::now();
    let mut changed = (start, process::written()?);
    while changed.0.elapsed() < QUIET_TIME {
        std::thread::sleep(QUIET_POLL);
        let now = process::written()?;
        // A log line or two is no work.
        if subject.busy() || now > changed.1 + 65_536 {
            changed = (Instant::now(), now);
        }
    }
    Ok((changed.0 - start).as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_whole_windows_over_the_whole_case() {
        let sample = BatchSample::new(10_000, 1 << 20, 1024);
        let chosen: Vec<u64> = (0..10_000).filter(|n| sample.has(*n)).collect();
        assert!((1024..=1100).contains(&chosen.len()), "{}", chosen.len());
        assert_eq!(chosen[..64], (0..64).collect::<Vec<u64>>());
        assert!(chosen.last().unwrap() > &9_000);
        let all = BatchSample::new(77, 77 * 1024, 1024);
        assert!((0..77).all(|n| all.has(n)));
    }

    #[test]
    fn a_small_case_is_measured_and_checked() {
        let dir = tempfile::tempdir().unwrap();
        let work = Workload::Strided {
            writers: 4,
            each: 3000,
            len: 1024,
        };
        let tuning = Tuning {
            memory: 4 << 20,
            block_bytes: 4096,
            alpha: 0.8,
            leveldb_options: String::new(),
            rocksdb_options: String::new(),
        };
        let subject = subject::open("forebay", &dir.path().join("s"), &tuning).unwrap();
        let group: Vec<_> =
            Arrivals::new(&work, super::super::order::Order::Drift, 256, 1).collect();
        let sheets = sheets(group.len(), 256);
        timed(2, &*subject, &group, &sheets, |w, b, _| w.put(b)).unwrap();
        timed(2, &*subject, &group, &sheets, |w, b, a| w.get(b, a)).unwrap();
        assert!(
            sheets
                .iter()
                .zip(&group)
                .all(|(s, b)| s.lock().len() == b.len())
        );
        let mut wrong = group.clone();
        wrong[3][7].addr += 1;
        let found = timed(1, &*subject, &wrong, &sheets, |w, b, a| w.get(b, a));
        assert!(found.is_err_and(|e| e.0.contains("wrong answer")));
        subject.close().unwrap();
    }
}
