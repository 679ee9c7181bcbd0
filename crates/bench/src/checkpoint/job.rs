//! One checkpoint of one subject: written, closed, measured on the disk, then read by services started anew.

use super::cases::SIZE;
use crate::cache::CacheDropping;
use crate::fail::{Context, Failure, Result};
use crate::harness::in_threads;
use crate::index::Workload;
use crate::report::Values;
use forebay_server::delegate::Handle;
use forebay_server::{Caller, Config, Delegate, Fid, OpenFlags, Service, index_files, keys};
use forebay_storage::OsIo;
use std::ops::{Bound, Range};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

const NAME: &[u8] = b"checkpoint";
/// Calls of a reading phase without bytes, at most: a part of what all readers would do.
const MAX_LOCATED_CALLS: u64 = 1 << 21;
const CALLER: Caller = Caller { uid: 0, gid: 0 };

/// A job.
pub struct CheckpointRun<'a> {
    /// What is written.
    pub work: Workload,
    /// Its bytes are written and read.
    pub data: bool,
    pub config: Config,
    pub dir: &'a Path,
    pub cold: CacheDropping,
}

/// A process that writes or reads.
struct Process {
    rank: u64,
    delegate: Arc<Delegate>,
    handle: Handle,
}

impl CheckpointRun<'_> {
    /// Does it, in a directory that it makes and removes.
    ///
    /// # Errors
    /// What the service fails with; if something else is read than was written.
    pub fn run(&self) -> Result<Values> {
        std::fs::create_dir_all(self.dir).doing(self.dir.display())?;
        let found = self.measure();
        let removed = std::fs::remove_dir_all(self.dir).doing(self.dir.display());
        found.and_then(|found| removed.map(|()| found))
    }

    fn measure(&self) -> Result<Values> {
        let service = self.start()?;
        let fid = self.create(&service)?;
        let mut found = self.write(&service, fid)?;
        let patterns = stored_patterns(&service)?;
        service.stop()?;
        let disk = patterns as f64 + self.index_tables()? as f64;

        let (open, rate) = self.read(fid, self.writers())?;
        found.push(("read_open_s", "s", open));
        found.push(("read_bytes_per_s", "B/s", rate));
        let (open, rate) = self.read(fid, self.writers() / 2)?;
        found.push(("nonuniform_open_s", "s", open));
        found.push(("nonuniform_bytes_per_s", "B/s", rate));
        let (seconds, memory) = self.resolve(fid)?;
        found.push(("resolve_s", "s", seconds));
        found.push(("index_disk_bytes", "B", disk));
        found.push(("index_memory_bytes", "B", memory as f64));
        Ok(found)
    }

    /// The service, with nothing in its memory, nor of its files in the system's.
    fn start(&self) -> Result<Service> {
        self.cold.drop_caches(&[self.dir]);
        Ok(Service::start(
            Arc::new(OsIo),
            &self.store(),
            self.config.clone(),
        )?)
    }

    fn store(&self) -> PathBuf {
        self.dir.join("store")
    }

    fn create(&self, service: &Service) -> Result<Fid> {
        let delegate = service.delegate(0);
        let flags = OpenFlags {
            write: true,
            ..OpenFlags::default()
        };
        let made = delegate.create(Fid::ROOT, NAME, 0o644, true, flags, CALLER)?;
        delegate.release(made.handle)?;
        Ok(made.attr.fid)
    }

    /// So many processes, dealt out to the nodes, with the file open.
    fn open(&self, service: &Service, fid: Fid, count: u64, write: bool) -> Result<Vec<Process>> {
        let flags = OpenFlags {
            write,
            read: !write,
            ..OpenFlags::default()
        };
        let nodes = u64::from(service.members());
        let open = |rank: u64| {
            let delegate = service.delegate((rank % nodes) as u16);
            let handle = delegate.open(fid, flags)?.handle;
            Ok(Process {
                rank,
                delegate,
                handle,
            })
        };
        (0..count).map(open).collect()
    }

    fn write(&self, service: &Service, fid: Fid) -> Result<Values> {
        let begun = Instant::now();
        let processes = self.open(service, fid, self.writers(), true)?;
        let open = begun.elapsed().as_secs_f64();
        let begun = Instant::now();
        on_nodes(service, &processes, |of_node| match self.data {
            true => self.write_in_turn(of_node),
            false => self.write_one_by_one(of_node),
        })?;
        let closing = Instant::now();
        on_nodes(service, &processes, |of_node| {
            let mut all = of_node.iter();
            all.try_for_each(|p| Ok(p.delegate.release(p.handle)?))
        })?;
        let close = closing.elapsed().as_secs_f64();
        let rate = self.bytes() as f64 / begun.elapsed().as_secs_f64();
        Ok(vec![
            ("write_open_s", "s", open),
            ("write_bytes_per_s", "B/s", rate),
            ("write_close_s", "s", close),
        ])
    }

    fn writers(&self) -> u64 {
        u64::from(self.work.writers())
    }

    fn bytes(&self) -> u64 {
        let last = |w: u32| {
            let last = self.work.record(w, self.work.each(w) - 1);
            last.addr + u64::from(last.len)
        };
        (0..self.work.writers()).map(last).sum()
    }

    /// What reader `rank` of so many reads as its `k`-th: FS-TEST's readers take turns over the file, those of BTIO read what one writer
    /// after another wrote.
    fn piece(&self, rank: u64, readers: u64, mut k: u64) -> Option<Range<u64>> {
        let (at, len) = match &self.work {
            Workload::Strided { len, .. } => {
                let number = k * readers + rank;
                let there = number < self.work.total();
                there.then_some((number * u64::from(*len), *len))
            }
            Workload::Bt(_) => {
                let mut own = (rank..self.writers()).step_by(readers as usize);
                own.find_map(|w| {
                    let each = self.work.each(w as u32);
                    let found = (k < each).then(|| self.work.record(w as u32, k));
                    k = k.saturating_sub(each);
                    found.map(|r| (r.offset, r.len))
                })
            }
        }?;
        Some(at..at + u64::from(len))
    }

    /// All writers of a node at the same speed.
    fn write_in_turn(&self, processes: &[&Process]) -> Result<()> {
        for k in 0..self.work.each(0) {
            for p in processes {
                let at = self.work.record(p.rank as u32, k).offset;
                let content = content(at, self.writers());
                p.delegate.write(p.handle, at, &content, CALLER)?;
            }
        }
        Ok(())
    }

    /// One writer of a node after another, without bytes.
    fn write_one_by_one(&self, processes: &[&Process]) -> Result<()> {
        for p in processes {
            let writer = p.rank as u32;
            for k in 0..self.work.each(writer) {
                let r = self.work.record(writer, k);
                let len = u64::from(r.len);
                p.delegate
                    .writer
                    .write_unbacked(p.handle, r.offset, len, r.addr)?;
            }
            p.delegate.flush(p.handle)?;
        }
        Ok(())
    }

    /// Bytes of the index's table files, once all is in them.
    fn index_tables(&self) -> Result<u64> {
        let dirs = [self.store()];
        Ok(index_files::write(Arc::new(OsIo), &dirs, &self.config)?.table_bytes)
    }

    /// Reads with so many processes: seconds until all know where their first bytes are, then bytes a second.
    fn read(&self, fid: Fid, readers: u64) -> Result<(f64, f64)> {
        let service = self.start()?;
        let begun = Instant::now();
        let processes = self.open(&service, fid, readers, false)?;
        on_nodes(&service, &processes, |of_node| {
            let mut all = of_node.iter();
            all.try_for_each(|p| {
                let first = self.piece(p.rank, readers, 0);
                first.map_or(Ok(0), |range| p.locate(range)).map(|_| ())
            })
        })?;
        let open = begun.elapsed().as_secs_f64();
        let calls = match self.data {
            true => u64::MAX,
            false => MAX_LOCATED_CALLS / readers,
        };
        let read = AtomicU64::new(0);
        let begun = Instant::now();
        on_nodes(&service, &processes, |of_node| {
            let mut bytes = 0;
            for k in 0..calls {
                let before = bytes;
                for p in of_node {
                    let Some(range) = self.piece(p.rank, readers, k) else {
                        continue;
                    };
                    bytes += match self.data {
                        true => p.read(range, self.writers())?,
                        false => p.locate(range)?,
                    };
                }
                if bytes == before {
                    break;
                }
            }
            read.fetch_add(bytes, Ordering::Relaxed);
            Ok(())
        })?;
        let rate = read.into_inner() as f64 / begun.elapsed().as_secs_f64();
        for p in processes {
            p.delegate.release(p.handle)?;
        }
        service.stop()?;
        Ok((open, rate))
    }

    /// One process of the last node finds out where all bytes are: seconds, and bytes of memory.
    fn resolve(&self, fid: Fid) -> Result<(f64, u64)> {
        let service = self.start()?;
        let delegate = service.delegate(service.members() - 1);
        let before = delegate.memory();
        let begun = Instant::now();
        let handle = delegate.open(fid, OpenFlags::READ)?.handle;
        let found = delegate.locator.locate(handle, 0..self.bytes())?;
        let seconds = begun.elapsed().as_secs_f64();
        let memory = delegate.memory().saturating_sub(before);
        delegate.release(handle)?;
        service.stop()?;
        // The index cuts an extent where its slices meet.
        if found.bytes != self.bytes() || found.pieces < self.work.total() {
            return Err(Failure::new(format!(
                "{} bytes in {} pieces were found of {} in {}",
                found.bytes,
                found.pieces,
                self.bytes(),
                self.work.total()
            )));
        }
        Ok((seconds, memory))
    }
}

/// What the writer wrote there: its rank and its call, again and again.
fn content(at: u64, writers: u64) -> [u8; SIZE as usize] {
    let number = at / SIZE;
    let mut bytes = [0; SIZE as usize];
    for word in bytes.chunks_exact_mut(16) {
        word[..8].copy_from_slice(&(number % writers).to_le_bytes());
        word[8..].copy_from_slice(&(number / writers).to_le_bytes());
    }
    bytes
}

impl Process {
    fn locate(&self, range: Range<u64>) -> Result<u64> {
        let found = self.delegate.locator.locate(self.handle, range.clone())?;
        match found.bytes == range.end - range.start {
            true => Ok(found.bytes),
            false => Err(Failure::new(format!(
                "{} bytes were found at {}",
                found.bytes, range.start
            ))),
        }
    }

    fn read(&self, range: Range<u64>, writers: u64) -> Result<u64> {
        let bytes = self.delegate.read(self.handle, range.start, SIZE as u32)?;
        match bytes[..] == content(range.start, writers) {
            true => Ok(SIZE),
            false => Err(Failure::new(format!(
                "other bytes than were written at {}",
                range.start
            ))),
        }
    }
}

/// Each node does its part in a thread of its own.
fn on_nodes(
    service: &Service,
    processes: &[Process],
    work: impl Fn(&[&Process]) -> Result<()> + Sync,
) -> Result<()> {
    let nodes = u64::from(service.members());
    let of_node = |node| processes.iter().filter(move |p| p.rank % nodes == node);
    let of_nodes = (0..nodes).map(|node| of_node(node).collect::<Vec<_>>());
    in_threads(of_nodes, |of_node| work(&of_node)).map(drop)
}

/// Bytes of the records of patterns, keys and values.
fn stored_patterns(service: &Service) -> Result<usize> {
    let mut bytes = 0;
    for node in service.nodes() {
        let all = (Bound::Unbounded, Bound::Unbounded);
        for entry in node.store.scan(keys::PATTERNS, all.0, all.1) {
            let (key, value) = entry?;
            bytes += key.len() + value.len();
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::super::cases::fs_test;
    use super::*;

    fn run(work: Workload, data: bool, patterns: bool) -> impl Fn(&str) -> f64 {
        let place = tempfile::tempdir().unwrap();
        let config = Config {
            nodes: 2,
            patterns,
            ..Config::default()
        };
        let dir = &place.path().join("run");
        let cold = CacheDropping::Advised;
        let job = CheckpointRun {
            work,
            data,
            config,
            dir,
            cold,
        };
        let found = job.run().unwrap();
        assert!(!dir.exists());
        move |metric| found.iter().find(|f| f.0 == metric).unwrap().2
    }

    /// Reads compare bytes, and a job that finds other pieces than were written fails.
    #[test]
    fn both_subjects_with_bytes_and_without() {
        let turns = || fs_test(6, 100);
        for (work, data) in [
            (turns(), true),
            (turns(), false),
            (Workload::bt(36, 3), false),
        ] {
            let (on, off) = (run(work.clone(), data, true), run(work, data, false));
            for metric in ["index_disk_bytes", "index_memory_bytes"] {
                let (on, off) = (on(metric), off(metric));
                assert!(on > 0.0 && on < off, "{metric}: {on} {off}");
            }
            assert!(on("read_bytes_per_s") > 0.0 && off("nonuniform_bytes_per_s") > 0.0);
        }
    }
}
