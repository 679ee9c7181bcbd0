//! Arrays in files of a mount: one is written with a codec, brought to disk, and read in single pages; or several are written while
//! those before settle.
//!
//! Invariants: every page that is read is compared with the source, outside the measured time; the caches of the kernel are empty
//! before the first read; each run has a new store.
use super::array::FloatArray;
use super::store_run::settings;
use super::subject::FieldsSubject;
use crate::cache::CacheDropping;
use crate::dedup::status::ServiceFigures;
use crate::fail::{Context, Failure, Result};
use crate::report::Values;
use crate::subjects::{ServerProcess, forebay_command};
use forebay_data::CodecWhen;
use forebay_testkit::random::Random;
use rustix::fs::XattrFlags;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// Bytes of a read.
const PAGE: usize = 4096;
/// The most reads of a run.
const READS: usize = 4096;
/// Bytes of a write.
const RECORD: usize = 1 << 20;
/// From one checkpoint to the next, in which those before settle.
const PAUSE: Duration = Duration::from_secs(2);
/// The attribute that says how a file is encoded.
const CODEC: &str = "user.forebay.codec";

/// What is done with the files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MountWork {
    /// The first array is written; then its pages are read at random.
    Reads,
    /// All arrays are written, each to a file of its own with an fsync. Those before settle meanwhile, encoded; of `raw` nothing does.
    Checkpoints,
}

impl MountWork {
    /// How many arrays it takes.
    pub fn arrays(self) -> u64 {
        match self {
            MountWork::Reads => 1,
            MountWork::Checkpoints => 6,
        }
    }

    /// Measures a subject. `program`: the program `forebay`; `dir`: an empty directory on the disk.
    ///
    /// # Errors
    /// If the mount does not come up, a call fails, or something else is read than was written.
    pub fn measure(
        self,
        program: &Path,
        dir: &Path,
        subject: &FieldsSubject,
        arrays: &[FloatArray],
        seed: u64,
    ) -> Result<Values> {
        let Some((when, codec)) = settings(subject) else {
            return Err(Failure::new(format!(
                "{} is not a setting of a service",
                subject.name
            )));
        };
        let (settle, when) = match (self, when) {
            (_, CodecWhen::Off) => ("off", "off"),
            (MountWork::Checkpoints, _) | (_, CodecWhen::Settle) => ("auto", "settle"),
            (MountWork::Reads, CodecWhen::Auto) => ("off", "auto"),
            (MountWork::Reads, CodecWhen::Inline) => ("off", "inline"),
        };
        let (store, point) = (dir.join("store"), dir.join("mount"));
        for made in [&store, &point] {
            std::fs::create_dir(made).doing(made.display())?;
        }
        let mut command = forebay_command(program, dir)?;
        command.args(["mount", "--foreground", "--settle", settle]);
        command.args(["--codec-when", when]).stdin(Stdio::null());
        command.arg(&store).arg(&point);
        let server = ServerProcess::start(command, dir, vec![point.clone()])?;
        let (mut bytes, mut time) = (0, Duration::ZERO);
        for (n, array) in arrays.iter().enumerate() {
            time += write(&point.join(format!("array-{n}")), array, codec)?;
            bytes += array.bytes.len();
            if self == MountWork::Checkpoints && n + 1 < arrays.len() {
                std::thread::sleep(PAUSE);
            }
        }
        if self == MountWork::Checkpoints {
            let written = bytes as f64 / time.as_secs_f64().max(1e-9);
            let settled = ServiceFigures::ask(program, &store)?.settled_share();
            return Ok(vec![
                ("write_bytes_per_s", "B/s", written),
                ("settled_share", "ratio", settled),
            ]);
        }
        let path = point.join("array-0");
        CacheDropping::choose().drop_caches(&[&store, &path]);
        let (count, time) = match arrays {
            [array, ..] => read_pages(&path, array, seed).map_err(|e| server.failure(&e.0))?,
            [] => (0, Duration::ZERO),
        };
        let reads_per_s = count as f64 / time.as_secs_f64().max(1e-9);
        Ok(vec![("random_reads_per_s", "1/s", reads_per_s)])
    }
}

/// Writes an array to a new file with this codec, and syncs it. The time of both.
fn write(path: &Path, array: &FloatArray, codec: &str) -> Result<Duration> {
    let file = File::create_new(path).doing(path.display())?;
    let element = forebay_codec::hint::element_name(array.element);
    let hint = format!("{codec},{element}");
    rustix::fs::fsetxattr(&file, CODEC, hint.as_bytes(), XattrFlags::empty()).doing(CODEC)?;
    let begin = Instant::now();
    for (i, record) in array.bytes.chunks(RECORD).enumerate() {
        file.write_all_at(record, (i * RECORD) as u64)
            .doing(path.display())?;
    }
    file.sync_all().doing(path.display())?;
    Ok(begin.elapsed())
}

/// Reads pages of the array, each once, for a second read would be of memory. How many, and the time of all.
fn read_pages(path: &Path, array: &FloatArray, seed: u64) -> Result<(usize, Duration)> {
    let file = File::open(path).doing(path.display())?;
    let mut pages: Vec<usize> = (0..array.bytes.len() / PAGE).collect();
    let count = pages.len().min(READS);
    let mut random = Random::new(seed);
    let (mut page, mut time) = ([0; PAGE], Duration::ZERO);
    for _ in 0..count {
        let at = pages.swap_remove(random.index(pages.len())) * PAGE;
        let begin = Instant::now();
        file.read_exact_at(&mut page, at as u64)
            .doing(path.display())?;
        time += begin.elapsed();
        if page != array.bytes[at..at + PAGE] {
            return Err(Failure::new("something else was read than was written"));
        }
    }
    Ok((count, time))
}
