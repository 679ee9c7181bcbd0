//! Bringing segments to disk: when a flush asks for it, and ahead of that in the background.
//!
//! Invariants: bytes are durable only once `sync`, `sync_number` or `sync_written` has returned, and only those written before
//! the call. Syncing ahead promises nothing; it makes these calls quick. A sync that fails poisons the log store before it returns,
//! unless there was no descriptor to make it with; one that succeeds returns an error if the store is poisoned.
//!
//! Linux reports a write-back error once to each open file, and not at all to a file that is opened after the error was reported to
//! another one. So a sync of a file that was opened for it waits for the other syncs of the segment before it looks at the poison
//! ([`SyncLocks`]). Errors of directories are not covered: a journalling file system fails altogether after one.
use super::{Segment, Segments, SyncAhead};
use crate::poison::io_error;
use forebay_proto::Result;
use forebay_storage::IoContext;
use parking_lot::RwLock;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::time::Instant;

/// How many locks there are.
const SYNC_LOCKS: usize = 64;

/// Locks by segment number. A sync of a segment holds one shared until its failure has poisoned the log store; whoever takes it exclusively
/// has waited for these syncs.
pub(super) struct SyncLocks([RwLock<()>; SYNC_LOCKS]);

impl Default for SyncLocks {
    fn default() -> SyncLocks {
        SyncLocks([const { RwLock::new(()) }; SYNC_LOCKS])
    }
}

impl SyncLocks {
    fn of(&self, segment: u32) -> &RwLock<()> {
        &self.0[segment as usize % SYNC_LOCKS]
    }
}

impl Segments {
    /// Syncs the bytes written so far and the file's name.
    ///
    /// # Errors
    /// As the disk; `Poisoned` after any failed write or sync.
    pub fn sync(&self, segment: &Segment) -> Result<()> {
        let _shared = self.sync_locks.of(segment.number).read();
        let synced = self.sync_segment(segment);
        synced.map_err(|e| self.poison.note_sync(e))?;
        self.poison.check()
    }

    fn sync_segment(&self, segment: &Segment) -> Result<()> {
        let begin = Instant::now();
        let written = segment.written.load(Acquire);
        segment.file.sync().context("sync", &segment.path)?;
        segment.synced.fetch_max(written, AcqRel);
        self.rate.observe(0, begin);
        if !segment.named.load(Relaxed) {
            self.io.sync_dir(&self.dir).context("sync", &self.dir)?;
            segment.named.store(true, Relaxed);
        }
        Ok(())
    }

    /// Syncs all bytes written so far to any segment.
    ///
    /// # Errors
    /// As `sync`.
    pub fn sync_written(&self) -> Result<()> {
        // A caller that finds nothing to do must not return while another one is still syncing.
        let _one = self.syncing.lock();
        let written = std::mem::take(&mut *self.written.lock());
        for number in &written {
            if let Err(e) = self.sync_number(*number) {
                self.written.lock().extend(written);
                return Err(e);
            }
        }
        Ok(())
    }

    /// Whether `sync_ahead` has something to do.
    pub fn is_ahead(&self) -> bool {
        !self.ahead.lock().is_empty()
    }

    /// Syncs the names of new segments and the bytes of full ones, and starts write-back of the others, so that a later `sync` has
    /// little to do. It promises nothing: a write into space that was reserved before may still be under way.
    ///
    /// # Errors
    /// As `sync`.
    pub fn sync_ahead(&self) -> Result<()> {
        let ahead = std::mem::take(&mut *self.ahead.lock());
        for (segment, what) in &ahead {
            match what {
                SyncAhead::Name => {}
                SyncAhead::Start => segment.file.start_sync(),
                SyncAhead::Whole => self.sync(segment)?,
            }
        }
        if ahead.iter().any(|(s, _)| !s.named.load(Relaxed)) {
            let named = self.io.sync_dir(&self.dir).context("sync", &self.dir);
            named.map_err(|e| self.poison.note_sync(e.into()))?;
            ahead.iter().for_each(|(s, _)| s.named.store(true, Relaxed));
        }
        Ok(())
    }

    /// As `sync`, by number. Does nothing for a segment that is gone.
    ///
    /// # Errors
    /// As `sync`.
    pub fn sync_number(&self, number: u32) -> Result<()> {
        let lock = self.sync_locks.of(number);
        {
            let _shared = lock.read();
            self.sync_opened(number)
                .map_err(|e| self.poison.note_sync(e))?;
        }
        // The error may have been reported to a sync that began before the file was opened.
        drop(lock.write());
        self.poison.check()
    }

    fn sync_opened(&self, number: u32) -> Result<()> {
        let Some(file) = self.file(number)? else {
            return Ok(());
        };
        file.sync()
            .and_then(|()| self.io.sync_dir(&self.dir))
            .map_err(|e| io_error("sync", &self.path(number), e))
    }
}
