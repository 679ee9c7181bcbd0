//! One measured process: a child that reports that it is ready, waits for a line, does its job, and reports the outcome.
use crate::access::{self, FileAccess, OpenData};
use crate::cases::RecordLayout;
use crate::cpu;
use crate::fail::{Context, Failure, Result};
use forebay_testkit::random::Random;
use rustix::time::ClockId;
use serde::{Deserialize, Serialize};
use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};

/// What the child does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerJob {
    /// The directory of the case on the subject.
    pub dir: PathBuf,
    /// The number of this process, from 0.
    pub rank: u64,
    /// The number of all processes.
    pub of: u64,
    /// The measured task.
    pub task: WorkerTask,
    /// Files are reached by the link of this store; `None`: by the kernel.
    #[serde(default)]
    pub link: Option<PathBuf>,
}

/// A task that is measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum WorkerTask {
    /// Write these over all processes, then fdatasync and close.
    Write(Records),
    /// Read them (`Random`: as many, but at most `RANDOM_READS` a process).
    Read(Records),
    /// Create this many empty files in all.
    Create(u64),
    /// Stat them, every process those of its neighbour.
    Stat(u64),
    /// Unlink them.
    Unlink(u64),
}

/// The records of all processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Records {
    /// Which file a process uses, and where in it.
    pub layout: RecordLayout,
    /// Bytes of a record.
    pub record: u64,
    /// Bytes of all processes together.
    pub bytes: u64,
}

/// The outcome that the child prints at the end.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct WorkerOutcome {
    /// Monotonic seconds when it began.
    pub start: f64,
    /// Monotonic seconds when it ended.
    pub end: f64,
    /// Its processor time in between, seconds.
    pub cpu: f64,
    /// Bytes read or written, or files created, asked about or removed.
    pub done: u64,
}

/// Random reads of one process at most.
const RANDOM_READS: u64 = 4096;
const SEED: u64 = 0x9E37_79B9_7F4A_7C15;

/// Runs the child: waits for its line, does the job, prints the outcome.
///
/// # Errors
/// What failed, with the path.
pub fn work(text: &str) -> Result<()> {
    let job: WorkerJob = serde_json::from_str(text).doing("the job")?;
    let mut buffer = vec![0u8; job.record() as usize];
    Random::new(SEED).fill(&mut buffer);
    let access = access::choose(job.link.as_deref())?;
    println!("ready");
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line)?;
    if line.is_empty() {
        return Err(Failure::new("the benchmark went away"));
    }
    let (cpu, start) = (cpu::of_self(), cpu::seconds(ClockId::Monotonic));
    let done = job.run(&*access, &mut buffer)?;
    let outcome = WorkerOutcome {
        start,
        end: cpu::seconds(ClockId::Monotonic),
        cpu: cpu::of_self() - cpu,
        done,
    };
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", serde_json::to_string(&outcome)?)?;
    Ok(())
}

impl WorkerJob {
    fn record(&self) -> u64 {
        match self.task {
            WorkerTask::Write(records) | WorkerTask::Read(records) => records.record,
            _ => 0,
        }
    }

    fn run(&self, access: &dyn FileAccess, buffer: &mut [u8]) -> Result<u64> {
        match self.task {
            WorkerTask::Write(records) => {
                let path = self.data_file(records.layout);
                let file = access.open(&path, true).doing(path.display())?;
                self.write(&*file, records, buffer).doing(path.display())
            }
            WorkerTask::Read(records) => {
                let path = self.data_file(records.layout);
                let file = access.open(&path, false).doing(path.display())?;
                self.read(&*file, records, buffer).doing(path.display())
            }
            WorkerTask::Create(files) => {
                self.each(access, self.rank, files, |path| access.create(path))
            }
            WorkerTask::Stat(files) => {
                let next = (self.rank + 1) % self.of;
                self.each(access, next, files, |path| access.stat(path))
            }
            WorkerTask::Unlink(files) => {
                self.each(access, self.rank, files, |path| access.unlink(path))
            }
        }
    }

    fn data_file(&self, layout: RecordLayout) -> PathBuf {
        match layout {
            RecordLayout::Own => self.dir.join(format!("data.{}", self.rank)),
            _ => self.dir.join("data"),
        }
    }

    /// Offsets of this process's records, in order.
    fn offsets(&self, records: Records) -> Box<dyn Iterator<Item = u64>> {
        let (rank, of, record) = (self.rank, self.of, records.record);
        let each = records.bytes / record / of;
        match records.layout {
            RecordLayout::Own => Box::new((0..each).map(move |i| i * record)),
            RecordLayout::Segments => Box::new((0..each).map(move |i| (rank * each + i) * record)),
            RecordLayout::Strided => Box::new((0..each).map(move |i| (i * of + rank) * record)),
            RecordLayout::Random => {
                let mut random = Random::new(SEED ^ rank);
                let records = each * of;
                Box::new((0..each.min(RANDOM_READS)).map(move |_| random.below(records) * record))
            }
        }
    }

    fn write(
        &self,
        file: &dyn OpenData,
        records: Records,
        buffer: &mut [u8],
    ) -> std::io::Result<u64> {
        let mut done = 0;
        for offset in self.offsets(records) {
            buffer[..8].copy_from_slice(&offset.to_le_bytes());
            file.write(buffer, offset)?;
            done += buffer.len() as u64;
        }
        file.sync()?;
        Ok(done)
    }

    /// The first 8 bytes of a record say where it lies, so that a subject that reads something else does not win.
    fn read(
        &self,
        file: &dyn OpenData,
        records: Records,
        buffer: &mut [u8],
    ) -> std::io::Result<u64> {
        let mut done = 0;
        for offset in self.offsets(records) {
            file.read(buffer, offset)?;
            let says = buffer.first_chunk().map_or(0, |b| u64::from_le_bytes(*b));
            // Random records were written as parts of larger ones, so only some of them say.
            let says_nothing = records.layout == RecordLayout::Random && offset % (1 << 20) != 0;
            if !says_nothing && says != offset {
                return Err(std::io::Error::other(format!(
                    "wrong bytes at {offset}: they say {says}"
                )));
            }
            done += buffer.len() as u64;
        }
        Ok(done)
    }

    /// Files of one process: in the directory of that process, or in the shared one.
    fn each(
        &self,
        access: &dyn FileAccess,
        rank: u64,
        files: u64,
        mut act: impl FnMut(&Path) -> std::io::Result<()>,
    ) -> Result<u64> {
        let own = self.dir.join(rank.to_string());
        let dir = if access.is_dir(&own) {
            own
        } else {
            self.dir.clone()
        };
        let mut path = dir.join("f");
        for i in 0..files / self.of {
            path.set_file_name(format!("f{rank}.{i}"));
            act(&path).doing(path.display())?;
        }
        Ok(files / self.of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::ByKernel;
    use std::fs::OpenOptions;
    use std::os::unix::fs::FileExt;

    fn job(rank: u64, of: u64, task: WorkerTask, dir: &Path) -> WorkerJob {
        WorkerJob {
            dir: dir.to_owned(),
            rank,
            of,
            task,
            link: None,
        }
    }

    fn records(layout: RecordLayout, record: u64, count: u64) -> Records {
        let bytes = record * count;
        Records {
            layout,
            record,
            bytes,
        }
    }

    #[test]
    fn every_layout_covers_every_record_once() {
        let offsets = |rank, layout| {
            let job = job(rank, 4, WorkerTask::Create(0), Path::new(""));
            job.offsets(records(layout, 4096, 64))
        };
        for layout in [RecordLayout::Segments, RecordLayout::Strided] {
            let mut all: Vec<u64> = (0..4).flat_map(|r| offsets(r, layout)).collect();
            all.sort_unstable();
            assert_eq!(all, (0..64).map(|i| i * 4096).collect::<Vec<_>>());
        }
        let random = offsets(1, RecordLayout::Random);
        assert!(
            random
                .inspect(|o| assert!(o % 4096 == 0 && *o < 64 * 4096))
                .count()
                == 16
        );
    }

    #[test]
    fn what_is_written_reads_back_and_wrong_bytes_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let records = records(RecordLayout::Strided, 47_008, 8);
        let (record, bytes) = (records.record, records.bytes);
        let mut buffer = vec![7; record as usize];
        for rank in 0..2 {
            let write = job(rank, 2, WorkerTask::Write(records), dir.path());
            assert_eq!(write.run(&ByKernel, &mut buffer).unwrap(), bytes / 2);
        }
        let read = job(1, 2, WorkerTask::Read(records), dir.path());
        assert_eq!(read.run(&ByKernel, &mut buffer).unwrap(), bytes / 2);
        let file = OpenOptions::new()
            .write(true)
            .open(dir.path().join("data"))
            .unwrap();
        file.write_all_at(&[1], record).unwrap();
        assert!(
            read.run(&ByKernel, &mut buffer)
                .is_err_and(|e| e.to_string().contains("wrong bytes at 47008"))
        );
    }

    #[test]
    fn files_come_and_go() {
        let dir = tempfile::tempdir().unwrap();
        for rank in 0..2 {
            assert_eq!(
                job(rank, 2, WorkerTask::Create(10), dir.path())
                    .run(&ByKernel, &mut [])
                    .unwrap(),
                5
            );
        }
        assert_eq!(dir.path().read_dir().unwrap().count(), 10);
        assert_eq!(
            job(1, 2, WorkerTask::Stat(10), dir.path())
                .run(&ByKernel, &mut [])
                .unwrap(),
            5
        );
        for rank in 0..2 {
            job(rank, 2, WorkerTask::Unlink(10), dir.path())
                .run(&ByKernel, &mut [])
                .unwrap();
        }
        assert_eq!(dir.path().read_dir().unwrap().count(), 0);
        assert!(
            job(0, 2, WorkerTask::Stat(10), dir.path())
                .run(&ByKernel, &mut [])
                .is_err()
        );
    }
}
