//! Segment files: 64 MiB each, shared by many logs; `header` says what one looks like.
//!
//! Invariants: a byte of a segment is written once; numbers are never used twice; a segment is not appended to after a reopen. Raw
//! bytes go to one of a few open segments, chosen by the number of the log, and containers to one more: these are the *lanes*, so
//! that several logs write to different files at once. Space is reserved by moving the end of a segment under its lane's lock; the
//! write itself happens outside that lock.
pub mod header;
mod rate;
mod sync;

use crate::poison::{Poison, io_error};
use forebay_proto::{LogId, Member, Result};
use forebay_storage::{File, Io, IoContext, is_unsupported};
use header::{HEADER_BYTES, header, name};
use parking_lot::Mutex;
use rate::WriteRate;
use std::collections::{BTreeSet, HashMap};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::time::Instant;
use sync::SyncLocks;

/// Size of a segment file, header included, bytes.
pub const SEGMENT_BYTES: u64 = 64 << 20;
/// Segments that logs fill at once.
const LOG_LANES: usize = 4;
/// After this many bytes of a segment, they are synced ahead of the flush that will need it. Files that are small, or removed soon,
/// are not synced ahead.
const START_SYNC_BYTES: u64 = 4 << 20;
/// From this size on, a write starts on a page of the file.
const PAGE_ALIGNED_FROM: u64 = 64 << 10;

/// A segment being written.
pub struct Segment {
    /// Its number.
    pub number: u32,
    file: Arc<dyn File>,
    path: PathBuf,
    /// Its name is on disk.
    named: AtomicBool,
    /// Bytes written since the last `SyncAhead::Start`.
    unstarted: AtomicU64,
    /// Bytes written so far, and of them those before the last sync.
    written: AtomicU64,
    synced: AtomicU64,
}

impl Segment {
    /// All is on disk that was written before the call.
    pub fn is_synced(&self) -> bool {
        self.named.load(Relaxed) && self.synced.load(Acquire) >= self.written.load(Acquire)
    }
}

/// What the reclaiming thread syncs of a segment ahead of any flush.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SyncAhead {
    /// The name of a new one.
    Name,
    /// What is written of one that is being filled; nobody waits for it.
    Start,
    /// A full one.
    Whole,
}

/// Kinds of data that are kept apart: each lane fills its own segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lane {
    /// Raw bytes of a log, which shares its lane with others.
    Log(LogId),
    /// Containers, which live longer than raw bytes do.
    Containers,
}

impl Lane {
    const COUNT: usize = LOG_LANES + 1;

    fn index(self) -> usize {
        match self {
            Lane::Log(log) => log as usize % LOG_LANES,
            Lane::Containers => LOG_LANES,
        }
    }
}

/// The segment that a lane fills, and where its free part starts.
type FillPosition = Option<(Arc<Segment>, u64)>;

/// How full a segment is; bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SegmentUsage {
    /// Stored by raw spans, in chunks that are named, or reserved by a write under way.
    pub live: u64,
    /// End of the written part.
    pub len: u64,
    /// Bytes of that which are holes on the disk, as far as is known.
    pub holes: u64,
    /// Takes no more data.
    pub sealed: bool,
    /// Holds damaged bytes: never reclaimed.
    pub pinned: bool,
}

impl SegmentUsage {
    /// Whether to evacuate it: its live bytes are less than a quarter of the file, or less than half of its space on the disk. The
    /// second is so where holes are not punched: live bytes are scattered over its pages, or the disk does not support it.
    pub fn is_mostly_dead(&self) -> bool {
        let written = self.len.saturating_sub(HEADER_BYTES);
        let taken = written.saturating_sub(self.holes);
        self.live > 0 && (self.live * 4 < written || self.live * 2 < taken)
    }
}

/// Bytes of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct SegmentRange {
    /// The segment.
    pub segment: u32,
    /// First byte.
    pub start: u64,
    /// After the last byte.
    pub end: u64,
}

impl SegmentRange {
    /// The range of `len` bytes from an offset on.
    pub fn new(segment: u32, offset: u32, len: u64) -> SegmentRange {
        let start = u64::from(offset);
        SegmentRange {
            segment,
            start,
            end: start + len,
        }
    }
}

/// The segment files of one member.
pub struct Segments {
    io: Arc<dyn Io>,
    /// Where their files lie.
    pub dir: PathBuf,
    /// How fast the disk takes bytes.
    pub rate: WriteRate,
    member: Member,
    next: AtomicU32,
    lanes: [Mutex<FillPosition>; Lane::COUNT],
    table: Mutex<HashMap<u32, SegmentUsage>>,
    /// For the reclaiming thread.
    ahead: Mutex<Vec<(Arc<Segment>, SyncAhead)>>,
    /// Segments written since the last `sync_written`.
    written: Mutex<BTreeSet<u32>>,
    /// Held during `sync_written`.
    syncing: Mutex<()>,
    /// Set by a failed sync.
    poison: Arc<Poison>,
    sync_locks: SyncLocks,
}

impl Segments {
    /// The segments in `dir`, which exists. `table`: what recovery found; `next`: a number never used; `poison`: set by a failed sync.
    pub fn new(
        io: Arc<dyn Io>,
        dir: &Path,
        member: Member,
        next: u32,
        table: HashMap<u32, SegmentUsage>,
        poison: Arc<Poison>,
    ) -> Segments {
        Segments {
            io,
            dir: dir.to_owned(),
            rate: WriteRate::default(),
            member,
            next: AtomicU32::new(next),
            lanes: [const { Mutex::new(None) }; Lane::COUNT],
            table: Mutex::new(table),
            ahead: Mutex::default(),
            written: Mutex::default(),
            syncing: Mutex::default(),
            poison,
            sync_locks: SyncLocks::default(),
        }
    }

    /// Where the file of this number lies.
    pub fn path(&self, number: u32) -> PathBuf {
        // In one piece of memory: each read asks for one.
        let (dir, name) = (self.dir.as_os_str(), name(number));
        let mut path = PathBuf::with_capacity(dir.len() + 1 + name.len());
        path.push(dir);
        path.push(name);
        path
    }

    /// Reserves `len` bytes of a segment: the segment and the offset in it. They count as live from now on.
    ///
    /// # Errors
    /// As creating a file.
    pub fn reserve(&self, lane: Lane, len: u64) -> Result<(Arc<Segment>, u32)> {
        debug_assert!(len <= SEGMENT_BYTES - HEADER_BYTES);
        let mut lane = self.lanes[lane.index()].lock();
        let start = |end: u64| match len >= PAGE_ALIGNED_FROM {
            true => end.next_multiple_of(4096),
            false => end,
        };
        if let Some((segment, end)) = lane.as_ref()
            && start(*end) + len > SEGMENT_BYTES
        {
            self.change(segment.number, |usage| usage.sealed = true);
            self.ahead.lock().push((segment.clone(), SyncAhead::Whole));
            *lane = None;
        }
        let (segment, end) = match &mut *lane {
            Some(current) => current,
            none => none.insert((self.create()?, HEADER_BYTES)),
        };
        let offset = start(*end);
        *end = offset + len;
        let mut table = self.table.lock();
        let usage = table.entry(segment.number).or_default();
        usage.live += len;
        usage.len = *end;
        Ok((segment.clone(), offset as u32))
    }

    fn create(&self) -> Result<Arc<Segment>> {
        let number = self.next.fetch_add(1, Relaxed);
        let path = self.path(number);
        let file = self.io.create(&path).context("create", &path)?;
        if let Err(e) = file.write_at(&header(self.member, number), 0) {
            // Nothing names the file yet; recovery would remove it too.
            let _ = self.io.remove(&path);
            return Err(io_error("write", &path, e));
        }
        self.table.lock().insert(
            number,
            SegmentUsage {
                len: HEADER_BYTES,
                ..SegmentUsage::default()
            },
        );
        let segment = Arc::new(Segment {
            number,
            file,
            path,
            named: AtomicBool::new(false),
            unstarted: AtomicU64::new(0),
            written: AtomicU64::new(0),
            synced: AtomicU64::new(0),
        });
        self.ahead.lock().push((segment.clone(), SyncAhead::Name));
        Ok(segment)
    }

    /// Writes reserved bytes.
    ///
    /// # Errors
    /// As the disk; the reservation stays.
    pub fn write(&self, segment: &Arc<Segment>, offset: u32, bytes: &[u8]) -> Result<()> {
        let begin = Instant::now();
        segment
            .file
            .write_at(bytes, u64::from(offset))
            .context("write", &segment.path)?;
        self.rate.observe(bytes.len(), begin);
        self.written.lock().insert(segment.number);
        let len = bytes.len() as u64;
        // Afterwards: a sync that began before does not count for these bytes.
        segment.written.fetch_add(len, AcqRel);
        if segment.unstarted.fetch_add(len, Relaxed) + len >= START_SYNC_BYTES {
            segment.unstarted.store(0, Relaxed);
            self.ahead.lock().push((segment.clone(), SyncAhead::Start));
        }
        Ok(())
    }

    /// A segment for reading. `None`: there is no such file.
    ///
    /// # Errors
    /// As the disk.
    pub fn file(&self, number: u32) -> Result<Option<Arc<dyn File>>> {
        let path = self.path(number);
        match self.io.open_kept(&path) {
            Ok(file) => Ok(Some(file)),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            Err(e) => Err(io_error("open", &path, e)),
        }
    }

    fn change(&self, number: u32, with: impl FnOnce(&mut SegmentUsage)) {
        if let Some(usage) = self.table.lock().get_mut(&number) {
            with(usage);
        }
    }

    /// `len` stored bytes of a segment are no longer named by a span.
    pub fn release(&self, number: u32, len: u64) {
        if let Some(usage) = self.table.lock().get_mut(&number) {
            debug_assert!(
                usage.live >= len,
                "segment {number}: released more than it held"
            );
            usage.live = usage.live.saturating_sub(len);
        }
    }

    /// Replaces `old` stored bytes of a segment's count by `new`.
    pub fn recount(&self, number: u32, old: u64, new: u64) {
        self.change(number, |usage| {
            usage.live = (usage.live + new).saturating_sub(old)
        });
    }

    /// Excludes a segment from reclaiming.
    pub fn pin(&self, number: u32) {
        self.change(number, |usage| usage.pinned = true);
    }

    /// How full a segment is. `None`: there is none of this number.
    pub fn usage(&self, number: u32) -> Option<SegmentUsage> {
        self.table.lock().get(&number).copied()
    }

    /// Sealed segments that pass `want`, by number.
    pub fn sealed(&self, want: impl Fn(&SegmentUsage) -> bool) -> Vec<u32> {
        let table = self.table.lock();
        let mut found: Vec<u32> = table
            .iter()
            .filter(|(_, u)| u.sealed && want(u))
            .map(|(n, _)| *n)
            .collect();
        found.sort_unstable();
        found
    }

    /// Number of segment files.
    pub fn count(&self) -> u64 {
        self.table.lock().len() as u64
    }

    /// What the files take on the disk.
    ///
    /// # Errors
    /// As the disk.
    pub fn disk_bytes(&self, stop: &AtomicBool) -> Result<u64> {
        let numbers: Vec<u32> = self.table.lock().keys().copied().collect();
        let mut sum = 0;
        for number in numbers {
            if stop.load(Relaxed) {
                break;
            }
            let path = self.path(number);
            sum += match self.io.open_kept(&path).and_then(|file| file.allocated()) {
                Ok(bytes) => bytes,
                // Removed meanwhile.
                Err(e) if e.kind() == ErrorKind::NotFound => 0,
                Err(e) => return Err(io_error("stat", &path, e)),
            };
        }
        Ok(sum)
    }

    /// Punches a hole in a segment. No span may name these bytes. If the disk does not support it, the space is freed with the whole
    /// segment later, so that is no error.
    ///
    /// # Errors
    /// As the disk.
    pub fn punch(&self, number: u32, offset: u64, len: u64) -> Result<()> {
        let Some(file) = self.file(number)? else {
            return Ok(());
        };
        match file.punch(offset, len) {
            Err(e) if is_unsupported(&e) => Ok(()),
            Err(e) => Err(io_error("punch", &self.path(number), e)),
            Ok(()) => {
                self.note_holes(number, &*file);
                Ok(())
            }
        }
    }

    /// Asks the disk for the space of the file. If it does not say, the file counts as having no holes.
    fn note_holes(&self, number: u32, file: &dyn File) {
        if let (Ok(len), Ok(allocated)) = (file.len(), file.allocated()) {
            self.change(number, |usage| usage.holes = len.saturating_sub(allocated));
        }
    }

    /// Removes the file of a segment that no span names.
    ///
    /// # Errors
    /// As the disk.
    pub fn remove(&self, number: u32) -> Result<()> {
        let path = self.path(number);
        let file = self.io.open(&path);
        match self.io.remove(&path) {
            Err(e) if e.kind() != ErrorKind::NotFound => return Err(io_error("remove", &path, e)),
            _ => {}
        }
        // A log that has it open, because its bytes were not on disk yet, would keep its space, and so would a program that reads segments
        // itself. If this fails, the space is taken until they close it.
        if let Ok(file) = file {
            let _ = file.set_len(0);
        }
        self.table.lock().remove(&number);
        self.ahead.lock().retain(|(s, _)| s.number != number);
        Ok(())
    }

    /// Seals the segments being filled: no more bytes are reserved in them.
    pub fn seal_all(&self) {
        for lane in &self.lanes {
            if let Some((segment, _)) = lane.lock().take() {
                self.change(segment.number, |usage| usage.sealed = true);
            }
        }
    }

    /// `(free, total)` bytes of the disk.
    ///
    /// # Errors
    /// As the disk.
    pub fn disk(&self) -> Result<(u64, u64)> {
        self.io
            .space(&self.dir)
            .map_err(|e| io_error("statfs", &self.dir, e))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_storage::OsIo;

    #[test]
    fn space_is_reserved_once_and_full_segments_are_sealed() {
        let dir = tempfile::tempdir().unwrap();
        let poison = Arc::new(Poison::new(dir.path()));
        let s = Segments::new(Arc::new(OsIo), dir.path(), 0, 1, HashMap::new(), poison);
        let (a, first) = s.reserve(Lane::Log(0), 100).unwrap();
        let (b, second) = s.reserve(Lane::Log(0), 1 << 20).unwrap();
        assert_eq!((a.number, u64::from(first)), (b.number, HEADER_BYTES));
        assert_eq!(
            u64::from(second),
            2 * HEADER_BYTES,
            "large writes start on a page"
        );
        let (other, _) = s.reserve(Lane::Log(1), 100).unwrap();
        assert_ne!(other.number, a.number);
        for _ in 0..63 {
            s.reserve(Lane::Log(0), 1 << 20).unwrap();
        }
        assert_eq!(s.sealed(|_| true), [a.number]);
        assert!(s.is_ahead());
        s.sync_ahead().unwrap();
        assert!(!s.is_ahead() && a.named.load(Relaxed) && other.named.load(Relaxed));
        // What is written is brought to disk in large steps, not by each write.
        let step = vec![7; START_SYNC_BYTES as usize / 4];
        for n in 1..=8 {
            let (segment, offset) = s.reserve(Lane::Log(1), step.len() as u64).unwrap();
            s.write(&segment, offset, &step).unwrap();
            assert_eq!(s.is_ahead(), n % 4 == 0, "after write {n}");
            s.sync_ahead().unwrap();
        }
        // Starting to write back promises nothing; a sync does, for what was written before it.
        let (segment, offset) = s.reserve(Lane::Log(1), 100).unwrap();
        assert!(!segment.is_synced());
        s.sync(&segment).unwrap();
        assert!(segment.is_synced());
        s.write(&segment, offset, &[7; 100]).unwrap();
        assert!(!segment.is_synced());
        s.remove(a.number).unwrap();
        assert!(s.file(a.number).unwrap().is_none());
        assert_eq!(s.count(), 2);
    }
}
