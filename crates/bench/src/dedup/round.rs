//! One round of one subject: it starts with an empty store, stores the files of a chain one after the other, and reads them back.
use super::service::ServiceOptions;
use super::source::SourceFiles;
use super::status::ServiceFigures;
use super::subject::{DedupSubject, RunningSubject};
use crate::cache::CacheDropping;
use crate::fail::{Context, Failure, Result};
use crate::report::Values;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Instant;

const GIB: f64 = (1u64 << 30) as f64;

/// The inputs of a round.
pub struct ChainRound<'a> {
    /// The files that are stored.
    pub source: &'a SourceFiles,
    /// How services are started.
    pub options: &'a ServiceOptions,
    /// How reads are made cold.
    pub cold: CacheDropping,
    /// All bytes that are read are compared with the source, once more and not timed.
    pub compare: bool,
}

impl ChainRound<'_> {
    /// Does it, in a directory that it makes and removes.
    ///
    /// # Errors
    /// What the subject fails with; if something else is read than was written.
    pub fn run(&self, subject: &DedupSubject, home: &Path) -> Result<Values> {
        let mut running = RunningSubject::start(subject.kind, self.options, home)?;
        let values = self.measure(&mut running);
        // Its mount goes first.
        drop(running);
        let removed = std::fs::remove_dir_all(home).doing(home.display());
        values.and_then(|values| removed.map(|()| values))
    }

    fn measure(&self, running: &mut RunningSubject) -> Result<Values> {
        let bytes = self.source.bytes() as f64;
        // What a store reserves of the disk, however little is stored, is no price of these files.
        let empty = disk_bytes(&running.stored_in())?;
        let (mut written, mut settled) = (0.0, Some(0.0));
        let (mut cpu, mut dedup_cpu) = (0.0, Some(0.0));
        rustix::fs::sync();
        for (name, bytes) in &self.source.files {
            self.source.warm(name)?;
            let stored = running.take(self.source, name, *bytes).doing(name)?;
            written += stored.written;
            settled = settled.zip(stored.settled).map(|(sum, more)| sum + more);
            cpu += stored.cpu;
            dedup_cpu = dedup_cpu
                .zip(stored.dedup_cpu)
                .map(|(sum, more)| sum + more);
        }
        let figures = running.stop()?;
        let stored = disk_bytes(&running.stored_in())?.saturating_sub(empty);
        let mut values = vec![
            ("stored_ratio", "ratio", stored as f64 / bytes),
            ("write_bytes_per_s", "B/s", bytes / written),
        ];
        if let Some(settled) = settled {
            values.push(("settle_bytes_per_s", "B/s", bytes / settled));
            values.extend(
                self.found_ratio(stored)
                    .map(|r| ("found_ratio", "ratio", r)),
            );
        }
        values.push(("cpu_s_per_gib", "s/GiB", cpu / (bytes / GIB)));
        let dedup_cpu = dedup_cpu.map(|seconds| seconds / (bytes / GIB));
        values.extend(dedup_cpu.map(|seconds| ("dedup_cpu_s_per_gib", "s/GiB", seconds)));
        values.push(("read_bytes_per_s", "B/s", bytes / self.read(running)?));
        let index = figures
            .as_ref()
            .and_then(ServiceFigures::index_bytes_per_tib);
        values.extend(index.map(|bytes| ("cit_bytes_per_tib", "B", bytes)));
        Ok(values)
    }

    /// Bytes that come again and are not stored, by all that come again; if any do.
    fn found_ratio(&self, stored: u64) -> Option<f64> {
        let repeated = self.source.bytes() - self.source.distinct;
        let saved = self.source.bytes() as f64 - stored as f64;
        (repeated > 0).then(|| saved / repeated as f64)
    }

    /// Seconds of reading all files cold.
    fn read(&self, running: &mut RunningSubject) -> Result<f64> {
        self.cold
            .drop_caches(&[&running.stored_in(), &self.source.dir]);
        running.open()?;
        let begin = Instant::now();
        for (name, bytes) in &self.source.files {
            if running.read(name, |_| Ok(()))? != *bytes {
                return Err(Failure::new(format!("{name} has another length")));
            }
        }
        let seconds = begin.elapsed().as_secs_f64();
        if self.compare {
            for (name, _) in &self.source.files {
                let mut comparison = self.source.comparison(name)?;
                running.read(name, |piece| comparison.next(piece))?;
                comparison.end()?;
            }
        }
        Ok(seconds)
    }
}

/// What the files below a directory take on the disk: blocks, because segments have holes.
fn disk_bytes(dir: &Path) -> Result<u64> {
    let mut total = 0;
    for entry in std::fs::read_dir(dir).doing(dir.display())? {
        let path = entry?.path();
        let meta = path.symlink_metadata().doing(path.display())?;
        total += match meta.is_dir() {
            true => disk_bytes(&path)?,
            false => meta.blocks() * 512,
        };
    }
    Ok(total)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Seek, SeekFrom, Write};

    #[test]
    fn holes_take_no_disk_space() {
        let dir = tempfile::tempdir().unwrap();
        let below = dir.path().join("below");
        std::fs::create_dir(&below).unwrap();
        let mut file = std::fs::File::create(below.join("file")).unwrap();
        file.seek(SeekFrom::Start(64 << 20)).unwrap();
        file.write_all(&[1; 8192]).unwrap();
        file.sync_all().unwrap();
        let bytes = disk_bytes(dir.path()).unwrap();
        assert!((8192..1 << 20).contains(&bytes), "{bytes}");
    }
}
