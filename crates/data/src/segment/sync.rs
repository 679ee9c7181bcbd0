//! Bringing segments to disk: when a flush asks for it, and ahead of that in the background.
//!
//! Invariants: bytes are durable only once `sync`, `sync_number` or `sync_written` has returned, and only those written before
//! the call. Syncing ahead promises nothing; it makes these calls quick. A sync that failed has closed the log store (`poison`) before
//! it returns.
//!
//! A kernel tells of bytes that it could not write once to each open file, and not to one that is opened after somebody was told. So a
//! segment is opened for a sync only while no other sync of it is between the call and its note ([`FailureNotes`]), and a sync that went
//! well fails if another one has failed.
use super::{Segment, Segments, SyncAhead};
use crate::poison::io_error;
use forebay_proto::Result;
use forebay_storage::{File, IoContext};
use parking_lot::RwLock;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::time::Instant;

/// Locks for the segments, by number. Shared from a sync until its failure is noted, alone while a segment is opened for one.
const NOTE_LOCKS: usize = 64;

/// See the head of this file.
pub(super) struct FailureNotes([RwLock<()>; NOTE_LOCKS]);

impl Default for FailureNotes {
    fn default() -> FailureNotes {
        FailureNotes([const { RwLock::new(()) }; NOTE_LOCKS])
    }
}

impl FailureNotes {
    fn of(&self, segment: u32) -> &RwLock<()> {
        &self.0[segment as usize % NOTE_LOCKS]
    }
}

impl Segments {
    /// Syncs the bytes written so far and the file's name.
    ///
    /// # Errors
    /// As the disk; also if another sync has failed, for it may have been told of these bytes.
    pub fn sync(&self, segment: &Segment) -> Result<()> {
        let _noted = self.notes.of(segment.number).read();
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
        let synced = match self.open_to_sync(number)? {
            Some(file) => {
                let _noted = self.notes.of(number).read();
                let synced = file.sync().and_then(|()| self.io.sync_dir(&self.dir));
                synced.map_err(|e| {
                    self.poison
                        .note_sync(io_error("sync", &self.path(number), e))
                })
            }
            None => Ok(()),
        };
        synced?;
        self.poison.check()
    }

    /// A segment, for a sync that is told of all that was lost before, unless the log store is closed for it.
    fn open_to_sync(&self, number: u32) -> Result<Option<Arc<dyn File>>> {
        let _alone = self.notes.of(number).write();
        self.poison.check()?;
        self.file(number).map_err(|e| self.poison.note_sync(e))
    }
}
