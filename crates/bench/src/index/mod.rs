//! The extent index against LevelDB and RocksDB: the same batches of records, put and got, in the same run.
//!
//! | module | what |
//! |---|---|
//! | `workload` | the records: IOR, MPI-Tile-IO, BTIO |
//! | `order` | how batches arrive: lockstep, drift, random |
//! | `cases` | both together, by name |
//! | `subject` | the three stores behind one trait |
//! | `measure` | one subject on one case, in a process of its own |
//! | `process` | what the kernel counts of it |
//! | `table` | rows for people |
//!
//! How it is made fair stands in `docs/index-bench.md`.

mod cases;
mod measure;
mod order;
mod process;
mod subject;
mod table;
mod workload;

use crate::fail::{Context, Failure, Result};
use crate::harness::{DirArgs, RunArgs, in_turn};
use crate::report::Report;
use crate::sizes;
use measure::{IndexLoad, IndexOutcome, SubjectJob};
use std::path::Path;
use std::process::{Command, Stdio};
use subject::{StoreType, Tuning};
use table::{METRICS, Metric};
pub use workload::Workload;

/// What `index` does.
#[derive(Debug, clap::Args)]
#[command(mut_arg("runs", |runs| runs.visible_alias("rounds")))]
pub struct IndexArgs {
    #[command(flatten)]
    run: RunArgs,
    /// Only these subjects: forebay, leveldb, rocksdb
    #[arg(long = "subject", value_name = "SUBJECT", value_delimiter = ',')]
    subjects: Vec<String>,
    #[command(flatten)]
    load: IndexLoad,
    #[command(flatten)]
    tuning: Tuning,
    /// Of the orders of arrival; each round has the next
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    dir: DirArgs,
}

/// Runs the subcommand.
///
/// # Errors
/// If there is no such case or subject, or a subject fails or answers wrongly.
pub fn run(args: &IndexArgs) -> Result<()> {
    let Some(cases) = args.run.choose(cases::CASES, "")? else {
        return Ok(());
    };
    let stores = subject::select(&args.subjects)?;
    let dir = args.dir.make()?;
    let header = header(args, &stores, &dir.0);
    args.run.begin(&header, table::HEAD)?;
    let mut report = Report::new("index", "forebay");
    for case in cases {
        for round in 0..args.run.runs {
            args.run.progress(case.name, round);
            for StoreType { name, .. } in in_turn(&stores, round) {
                let job = SubjectJob {
                    case: case.name.into(),
                    store: name.into(),
                    tuning: args.tuning.clone(),
                    load: args.load.clone(),
                    // The gets' order has the next one.
                    seed: args.seed + 2 * u64::from(round),
                    dir: dir.0.join(format!("{}-{round}-{name}", case.name)),
                };
                let outcome = in_child(&job).doing(format!("{} on {name}", case.name))?;
                log_outcome(case.name, name, round, &outcome);
                for (Metric(metric, unit, _), value) in METRICS.iter().zip(values(&outcome)) {
                    report.add(case.name, metric, name, unit, value);
                }
            }
        }
        args.run.print(&report, case.name, table::rows)?;
    }
    Ok(())
}

/// Empties the files of a directory. They are not removed before all is done: whenever ext4 creates a file, it goes through the inodes
/// that were removed in the last minutes, and who comes after a store of many files would be slower.
fn empty(dir: &Path) -> std::io::Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        match entry.file_type()?.is_dir() {
            true => empty(&entry.path())?,
            false => drop(std::fs::File::create(entry.path())?),
        }
    }
    Ok(())
}

/// Does a job in a new process, in a directory whose files are empty afterwards.
fn in_child(job: &SubjectJob) -> Result<IndexOutcome> {
    let program = std::env::current_exe().doing("find this program")?;
    let text = serde_json::to_string(job).doing("the job")?;
    let mut command = Command::new(program);
    command.arg("__index").arg(text).stdin(Stdio::null());
    let output = command.stderr(Stdio::inherit()).output();
    let output = output.doing("start the process of a subject")?;
    let done = match output.status.success() {
        true => serde_json::from_slice(&output.stdout).doing("what the process said"),
        false => Err(Failure::new(format!("it failed: {}", output.status))),
    };
    if job.dir.exists() {
        empty(&job.dir).doing(job.dir.display())?;
    }
    done
}

/// The process of a subject: does the job, prints the outcome.
///
/// # Errors
/// As [`measure::run`].
pub fn child(job: &str) -> Result<()> {
    let job: SubjectJob = serde_json::from_str(job).doing("the job")?;
    let outcome = measure::run(&job)?;
    println!("{}", serde_json::to_string(&outcome).doing("the outcome")?);
    Ok(())
}

/// Bytes of a record as a user sees it: the peers' key and value.
const USER_BYTES: f64 = 46.0;

/// The values of the metrics, in their order.
fn values(o: &IndexOutcome) -> [f64; METRICS.len()] {
    let (puts, gets) = (o.puts as f64, o.gets as f64);
    [
        puts / o.put.seconds,
        puts / (o.put.seconds + o.flush_seconds + o.settle_seconds),
        gets / o.cold.seconds,
        gets / o.warm.seconds,
        o.table_bytes as f64 / puts,
        o.written_to_tables as f64 / (puts * USER_BYTES),
        o.written as f64 / (puts * USER_BYTES),
        o.memory as f64,
        o.resident as f64,
        o.put.cpu * 1e9 / puts,
        o.cold.cpu * 1e9 / gets,
        o.warm.cpu * 1e9 / gets,
        o.flush_seconds,
        o.settle_seconds,
    ]
}

/// Prints the outcome of a round on standard error, with more detail than the table.
fn log_outcome(case: &str, store: &str, round: u32, o: &IndexOutcome) {
    let millions = |n: u64, seconds: f64| n as f64 / seconds / 1e6;
    eprintln!(
        "# {case} {store} round {}: puts {:.3} M/s, flush {:.2} s, settle {:.2} s, {} gets: cold {:.3} M/s, warm {:.3} M/s; {:.2} B a record; memory {}, resident {}",
        round + 1,
        millions(o.puts, o.put.seconds),
        o.flush_seconds,
        o.settle_seconds,
        o.gets,
        millions(o.gets, o.cold.seconds),
        millions(o.gets, o.warm.seconds),
        o.table_bytes as f64 / o.puts as f64,
        sizes::show(o.memory as f64),
        sizes::show(o.resident as f64),
    );
    let nanos = |seconds: f64, n: u64| seconds * 1e9 / n as f64;
    eprintln!(
        "#   processor time of one, ns: put {:.0} in the putting thread, {:.0} in all; get cold {:.0}, warm {:.0}",
        nanos(o.put.thread_cpu, o.puts),
        nanos(o.put.cpu, o.puts),
        nanos(o.cold.cpu, o.gets),
        nanos(o.warm.cpu, o.gets),
    );
    for note in &o.notes {
        eprintln!("#   {note}");
    }
}

fn header(args: &IndexArgs, stores: &[StoreType], dir: &Path) -> String {
    let load = &args.load;
    let mut text = format!(
        "# index: {} runs, batches of {} records, {} thread(s) that put and get, in {}\n\
         # durability: logged, not synced, for all; memory: {} for each: MemTables, buffers and caches together\n\
         # puts: until all are accepted; then flushed and left until nothing is written, not timed with them\n\
         # gets: {}; cold: files synced, pages dropped by posix_fadvise, store opened anew; warm: the same gets again; all answers checked\n\
         # bytes_per_record: all table files; write_amplification: bytes written to table files (_with_log: to all files) by {USER_BYTES} B a record\n\
         # forebay: how many times better than the subject of the row\n",
        args.run.runs,
        load.batch,
        load.threads,
        dir.display(),
        sizes::show(args.tuning.memory as f64),
        match load.gets {
            Some(n) => format!("a sample of about {n} records, whole batches, the same for all"),
            None => "all that was put, in batches, by the same order".into(),
        },
    );
    for StoreType { name, describe, .. } in stores {
        text.push_str(&format!("# {name}: {}\n", describe(&args.tuning)));
    }
    text
}
