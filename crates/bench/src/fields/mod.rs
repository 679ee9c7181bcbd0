//! Floating-point arrays encoded in containers: how small they become, how fast they are encoded and decoded, and how long one value
//! takes; Forebay's codecs against those of others.
//!
//! Invariants: all subjects encode the same containers of 1 MiB in pieces of 4 KiB, each of which decodes alone; what is decoded is
//! compared with the source each time; one thread; each round has every subject in turn.
//!
//! | module | what it owns |
//! |---|---|
//! | `cases` | cases by name, and which are run |
//! | `array` | arrays, and containers of them |
//! | `generate`, `adam` | generated arrays; a training run |
//! | `subject`, `whole` | subjects by name, and how they encode |
//! | `round` | what is measured of a subject |
//! | `means` | means over folders |
//! | `store_run`, `disk_model` | arrays written to a store and read again; the disk that it waits for |
//! | `mount_run` | arrays in files of a mount |
//! | `table` | the tables |
mod adam;
mod array;
mod cases;
mod disk_model;
mod generate;
mod means;
mod mount_run;
mod round;
mod store_run;
mod subject;
mod table;
mod whole;

use crate::fail::{Context, Result};
use crate::harness::{Case, RunArgs, in_turn};
use crate::report::Report;
use crate::sizes;
use crate::subjects::ProgramArgs;
use cases::{FieldsWork, GeneratedArray};
use mount_run::MountWork;
use round::FieldsRound;
use std::path::{Path, PathBuf};
use store_run::{StoreArrays, StoreRun};
use subject::FieldsSubject;

/// What `fields` does.
#[derive(Debug, clap::Args)]
pub struct FieldsArgs {
    #[command(flatten)]
    run: RunArgs,
    /// Only these subjects: forebay, field, field-base, paper, zstd-3, shuffle-zstd-3, shuffle-zstd-1, lz4, pco-4, pco-8, raw,
    /// shuffle-zstd-3-whole
    #[arg(long = "subject", value_name = "SUBJECT", value_delimiter = ',')]
    subjects: Vec<String>,
    /// Bytes of `smooth`, `noisy` and `random`
    #[arg(long, default_value = "64MiB", value_parser = sizes::parse)]
    size: u64,
    /// What generated arrays and the training run follow from
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Directory with the folders `fields` and `checkpoints`: arrays as NAME.bin.zst, described in NAME.json
    #[arg(long, value_name = "DIR", default_value = "../shared/data")]
    data: PathBuf,
    /// Directory on the disk of `e2e-disk` and `mount-...`
    #[arg(long, value_name = "DIR", default_value = "target/bench")]
    dir: PathBuf,
    #[command(flatten)]
    program: ProgramArgs,
}

/// Runs the subcommand.
///
/// # Errors
/// If there is no such case or subject, an array cannot be read, or a subject fails.
pub fn run(args: &FieldsArgs) -> Result<()> {
    let all = cases::all(&args.data)?;
    let hint = ", --data DIR adds the arrays there";
    let Some(chosen) = args.run.choose(&all, hint)? else {
        return Ok(());
    };
    let subjects = subject::select(&args.subjects)?;
    let has_mount = chosen
        .iter()
        .any(|case| matches!(case.work, FieldsWork::Mount(_)));
    let program = has_mount.then(|| args.program.find()).transpose()?;
    args.run.begin(&header(args), &table::head())?;
    let mut report = Report::new("fields", "raw");
    let mut training = None;
    for case in cases::with_arrays(&all, chosen)? {
        match case.work {
            FieldsWork::Store(run) => {
                measure_store(args, &case, run, &all, &subjects, &mut report)?;
                args.run.print(&report, case.name, table::store_rows)?;
                continue;
            }
            FieldsWork::Mount(work) => {
                if let Some(program) = &program {
                    measure_mount(args, (case.name, work), program, &subjects, &mut report)?;
                }
                args.run.print(&report, case.name, table::mount_rows)?;
                continue;
            }
            FieldsWork::Means(folder) => {
                let arrays = cases::arrays_of(&all, folder);
                let arrays: Vec<&'static str> = arrays.iter().map(|array| array.name).collect();
                for subject in &subjects {
                    for means in means::of_subject(&report, &arrays, subject.name) {
                        report.add_all(case.name, subject.name, means);
                    }
                }
            }
            FieldsWork::Points(points) => {
                let arrays = field_arrays(args, &all)?;
                let with_points = subjects.iter().filter_map(|s| s.with_points(points));
                let subjects: Vec<FieldsSubject> = with_points.collect();
                measure(args, &case, &arrays, &subjects, &mut report)?;
            }
            _ => {
                let arrays = array::load(&case.work, args.size, args.seed, &mut training)?;
                measure(args, &case, &arrays, &subjects, &mut report)?;
            }
        }
        args.run.print(&report, case.name, table::rows)?;
    }
    Ok(())
}

/// The arrays of the folder of fields, or generated ones where it is missing.
fn field_arrays(args: &FieldsArgs, all: &[Case<FieldsWork>]) -> Result<Vec<array::FloatArray>> {
    let mut works: Vec<FieldsWork> = cases::arrays_of(all, "fields")
        .iter()
        .map(|case| case.work.clone())
        .collect();
    if works.is_empty() {
        works = [GeneratedArray::Smooth, GeneratedArray::Noisy]
            .map(FieldsWork::Generated)
            .into();
    }
    let mut arrays = Vec::new();
    for work in works {
        arrays.extend(array::load(&work, args.size, args.seed, &mut None)?);
    }
    Ok(arrays)
}

/// Measures all rounds of a case with a store.
fn measure_store(
    args: &FieldsArgs,
    case: &Case<FieldsWork>,
    run: StoreRun,
    all: &[Case<FieldsWork>],
    subjects: &[FieldsSubject],
    report: &mut Report,
) -> Result<()> {
    let arrays = match run.arrays {
        StoreArrays::Random => vec![generate::generate(
            GeneratedArray::Random,
            args.size,
            args.seed,
        )],
        StoreArrays::Fields => {
            let mut arrays = field_arrays(args, all)?;
            // As of a run that writes the same fields again and again.
            let bytes: usize = arrays.iter().map(|array| array.bytes.len()).sum();
            let times = (args.size as usize).div_ceil(bytes.max(1));
            arrays
                .iter_mut()
                .for_each(|array| array.bytes = array.bytes.repeat(times));
            arrays
        }
    };
    let mut measured: Vec<FieldsSubject> = subjects.to_vec();
    measured.retain(store_run::takes);
    // What the bytes take on the disk of the model is the model's.
    let parent = match run.disk {
        Some(_) if Path::new("/dev/shm").is_dir() => Path::new("/dev/shm"),
        _ => &args.dir,
    };
    std::fs::create_dir_all(parent).doing(parent.display())?;
    for round in 0..args.run.runs {
        for subject in in_turn(&measured, round) {
            let what = format!("{} by {}", case.name, subject.name);
            args.run.progress(&what, round);
            let dir = tempfile::tempdir_in(parent).doing(parent.display())?;
            let values = run.measure(dir.path(), &subject, &arrays).doing(what)?;
            report.add_all(case.name, subject.name, values);
        }
    }
    Ok(())
}

/// Measures all rounds of a case with a mount; nothing without FUSE.
fn measure_mount(
    args: &FieldsArgs,
    (case, work): (&'static str, MountWork),
    program: &Path,
    subjects: &[FieldsSubject],
    report: &mut Report,
) -> Result<()> {
    if !Path::new("/dev/fuse").exists() {
        eprintln!("skipped: {case}: /dev/fuse is not there");
        return Ok(());
    }
    let array = |n| generate::generate(GeneratedArray::Smooth, args.size, args.seed + n);
    let arrays: Vec<array::FloatArray> = (0..work.arrays()).map(array).collect();
    let mut measured: Vec<FieldsSubject> = subjects.to_vec();
    measured.retain(store_run::takes);
    std::fs::create_dir_all(&args.dir).doing(args.dir.display())?;
    for round in 0..args.run.runs {
        let seed = args.seed + u64::from(round);
        for subject in in_turn(&measured, round) {
            let what = format!("{case} by {}", subject.name);
            args.run.progress(&what, round);
            let dir = tempfile::tempdir_in(&args.dir).doing(args.dir.display())?;
            let place = dir.path().canonicalize().doing(dir.path().display())?;
            let values = work
                .measure(program, &place, &subject, &arrays, seed)
                .doing(what)?;
            report.add_all(case, subject.name, values);
        }
    }
    Ok(())
}

/// Measures all rounds of a case.
fn measure(
    args: &FieldsArgs,
    case: &Case<FieldsWork>,
    arrays: &[array::FloatArray],
    subjects: &[FieldsSubject],
    report: &mut Report,
) -> Result<()> {
    let has_base = arrays.iter().all(|array| array.base.is_some());
    let mut measured: Vec<FieldsSubject> = subjects.to_vec();
    measured.retain(|subject| subject.takes(has_base));
    if measured.is_empty() {
        return Ok(());
    }
    let mut one = FieldsRound::new(arrays);
    for round in 0..args.run.runs {
        for subject in in_turn(&measured, round) {
            let what = format!("{} by {}", case.name, subject.name);
            args.run.progress(&what, round);
            let values = one
                .run(&subject, args.seed + u64::from(round))
                .doing(what)?;
            report.add_all(case.name, subject.name, values);
        }
    }
    Ok(())
}

fn header(args: &FieldsArgs) -> String {
    format!(
        "# fields: {} runs, generated arrays of {}, seed {}, datasets in {}\n\
         # all in memory, one thread; containers of 1 MiB in pieces of 4 KiB that decode alone (shuffle-zstd-3-whole: whole arrays)\n\
         # forebay: what its chooser finds shortest, told the type of the elements; field-base: against the checkpoint before\n\
         # sampling: what choosing adds to encoding the arrays, each a file; (single): if each container were the only one of its file\n\
         # one value: head parsed; lookup, CRC32C of the encoded piece, decoding; every decode is compared with the source\n",
        args.run.runs,
        sizes::show(args.size as f64),
        args.seed,
        args.data.display(),
    )
}
