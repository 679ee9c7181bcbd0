//! Large reads that this process makes itself, out of the server's segment files (`forebay_server::delegate::DirectRead`).
//!
//! It asks where the bytes lie, and reads and verifies them there: they are copied once, and the server computes nothing. If they are not
//! there any more, or damaged, the ordinary read that follows finds out what is the matter.
use super::connection::BulkTransfer;
use super::error::{CallError, LinkError};
use super::request::{FileRequest, MAX_LOCATED_BYTES, Request};
use super::session::LinkSession;
use forebay_server::delegate::DirectRead;
use parking_lot::Mutex;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Shorter reads are ordinary ones: to ask where their bytes lie would take as long.
const MIN_BYTES: usize = 256 << 10;
/// Ordinary reads after one that could not be made directly: the next ones are mostly as it.
const BACKOFF_READS: u32 = 16;
/// Segment files that are kept open.
const MOST_SEGMENTS: usize = 16;

/// The segment files that a process has open of the server of its session, the newest last. Another server may have other files of the
/// same numbers.
#[derive(Default)]
pub(super) struct SegmentFiles(Mutex<Vec<(u32, Arc<File>)>>);

impl SegmentFiles {
    /// Closes all, unless another thread has them.
    pub fn clear(&self) {
        if let Some(mut files) = self.0.try_lock() {
            files.clear();
        }
    }

    /// Of the server of this session.
    fn get(&self, session: &LinkSession, number: u32) -> Result<Arc<File>, CallError> {
        {
            let mut files = self.0.lock();
            if let Some(at) = files.iter().position(|(known, _)| *known == number) {
                let known = files.remove(at);
                let file = known.1.clone();
                files.push(known);
                return Ok(file);
            }
        }
        let mut descriptor: Option<OwnedFd> = None;
        let bulk = BulkTransfer::Descriptor(&mut descriptor);
        session.call_on_file::<()>(&Request::Segment(number), bulk)?;
        // This process has no number left for it, so the kernel has dropped it.
        let none_left = || LinkError::Local(Errno::MFILE.into());
        let file = Arc::new(File::from(descriptor.ok_or_else(none_left)?));
        let mut files = self.0.lock();
        if files.len() >= MOST_SEGMENTS {
            files.remove(0);
        }
        files.push((number, file.clone()));
        Ok(file)
    }
}

/// Whether reads of an open file are made directly.
#[derive(Debug, Default)]
pub(super) struct DirectReads {
    /// Ordinary reads until it is tried again.
    backoff: AtomicU32,
}

impl DirectReads {
    /// Reads as many of the first bytes of `into` as can be read directly: how many, and whether the file ends there. What is left is for
    /// ordinary reads.
    ///
    /// # Errors
    /// As an ordinary read.
    pub fn read(
        &self,
        session: &LinkSession,
        file: u64,
        into: &mut [u8],
        offset: u64,
    ) -> Result<(usize, bool), CallError> {
        if into.len() < MIN_BYTES {
            return Ok((0, false));
        }
        let waits = self.backoff.load(Relaxed);
        if waits > 0 {
            // Of threads that read at once some may not count; that does not matter.
            self.backoff.store(waits - 1, Relaxed);
            return Ok((0, false));
        }
        let mut done = 0;
        for part in into.chunks_mut(MAX_LOCATED_BYTES as usize) {
            let at = offset.saturating_add(done as u64);
            let len = part.len() as u32;
            let request = Request::File(file, FileRequest::Locate { offset: at, len });
            let (located, _): (Option<DirectRead>, _) =
                session.call_on_file(&request, BulkTransfer::None)?;
            let Some(came) = located.and_then(|located| fill(session, &located, part)) else {
                self.backoff.store(BACKOFF_READS, Relaxed);
                return Ok((done, false));
            };
            done += came;
            if came < part.len() {
                return Ok((done, true));
            }
        }
        Ok((done, false))
    }
}

/// Reads what was located; how many bytes that is. `None`: not all of it is there, or its numbers do not fit.
fn fill(session: &LinkSession, located: &DirectRead, part: &mut [u8]) -> Option<usize> {
    let mut rest = part.get_mut(..located.len as usize)?;
    let mut runs: Vec<_> = located.runs.iter().collect();
    runs.sort_unstable_by_key(|(place, _)| *place);
    let mut at = 0;
    for (place, run) in runs {
        let (hole, behind) = rest.split_at_mut_checked(place.checked_sub(at)? as usize)?;
        let (bytes, behind) = behind.split_at_mut_checked(run.len as usize)?;
        hole.fill(0);
        let file = session.segments.get(session, run.segment).ok()?;
        if !run.read(&file, bytes).ok()? {
            return None;
        }
        at = place + run.len;
        rest = behind;
    }
    rest.fill(0);
    Some(located.len as usize)
}
