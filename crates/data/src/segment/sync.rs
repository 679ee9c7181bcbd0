//! Bringing segments to disk: when a flush asks for it, and ahead of that in the background.
//!
//! Invariant: bytes are durable only once `sync`, `sync_number` or `sync_written` has returned, and only those written before
//! the call. Syncing ahead promises nothing; it makes these calls quick.
use super::{Segment, Segments, SyncAhead};
use crate::poison::io_error;
use forebay_proto::Result;
use forebay_storage::IoContext;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::time::Instant;

impl Segments {
    /// Syncs the bytes written so far and the file's name.
    ///
    /// # Errors
    /// As the disk.
    pub fn sync(&self, segment: &Segment) -> Result<()> {
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
    /// As the disk.
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
    /// As the disk; what was written is then in doubt, as after a failed `sync`.
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
            self.io.sync_dir(&self.dir).context("sync", &self.dir)?;
            ahead.iter().for_each(|(s, _)| s.named.store(true, Relaxed));
        }
        Ok(())
    }

    /// As `sync`, by number. Does nothing for a segment that is gone.
    ///
    /// # Errors
    /// As the disk.
    pub fn sync_number(&self, number: u32) -> Result<()> {
        let Some(file) = self.file(number)? else {
            return Ok(());
        };
        file.sync()
            .and_then(|()| self.io.sync_dir(&self.dir))
            .map_err(|e| io_error("sync", &self.path(number), e))
    }
}
