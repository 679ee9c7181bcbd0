//! The segment files of the session's server that this process has open for reading, as descriptors that the server passed.
//!
//! Invariant: [`MAX_SEGMENTS`] at most, the ones used last, all of one session: another server may have other files of the same numbers.
use super::connection::BulkTransfer;
use super::error::{CallError, LinkError};
use super::request::Request;
use super::session::LinkSession;
use parking_lot::Mutex;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::fs::File;
use std::sync::Arc;

/// Segment files that are kept open: of 64 MiB each.
const MAX_SEGMENTS: usize = 64;

/// See the head of this file.
#[derive(Default)]
pub(super) struct SegmentFiles {
    /// By number; the one used last is the last.
    files: Mutex<Vec<(u32, Arc<File>)>>,
}

impl SegmentFiles {
    /// Closes all, unless another thread has them.
    pub fn clear(&self) {
        if let Some(mut files) = self.files.try_lock() {
            files.clear();
        }
    }

    /// Of the server of this session.
    pub fn get(&self, session: &LinkSession, number: u32) -> Result<Arc<File>, CallError> {
        if let Some(file) = find(&mut self.files.lock(), number) {
            return Ok(file);
        }
        let mut descriptor: Option<OwnedFd> = None;
        let bulk = BulkTransfer::Descriptor(&mut descriptor);
        session.call_on_file::<()>(&Request::Segment(number), bulk)?;
        // This process has no number left for it, so the kernel has dropped it.
        let none_left = || LinkError::Local(Errno::MFILE.into());
        let file = Arc::new(File::from(descriptor.ok_or_else(none_left)?));
        let mut files = self.files.lock();
        if let Some(file) = find(&mut files, number) {
            // Another thread was faster.
            return Ok(file);
        }
        if files.len() >= MAX_SEGMENTS {
            files.remove(0);
        }
        files.push((number, file.clone()));
        Ok(file)
    }
}

/// A file that is open; it is the one used last from now on.
fn find(files: &mut Vec<(u32, Arc<File>)>, number: u32) -> Option<Arc<File>> {
    let at = files.iter().rposition(|(known, _)| *known == number)?;
    let known = files.remove(at);
    let file = known.1.clone();
    files.push(known);
    Some(file)
}
