//! Writeback errors: dirty pages that this node could not store, and which handles have been told (the role of Linux's `errseq_t`).
//!
//! The kernel reports such an error once, to the next close of the file, even a reader's. So the errors of a file are counted here as
//! well, and every handle for writing is told of each at its next flush or sync.
//!
//! Invariant: a handle that was open at an error is told of it once, or of a later one in its place.
use crate::{Error, Result};
use rustix::io::Errno;
use std::sync::atomic::{AtomicU64, Ordering};

const ERRNO_BITS: u32 = 16;

/// The writeback errors of a file: their number above the errno of the last.
#[derive(Debug, Default)]
pub struct WritebackErrors(AtomicU64);

/// The errors of its file that a handle has been told of.
#[derive(Debug)]
pub struct ReportedErrors(AtomicU64);

impl WritebackErrors {
    /// Pages were lost with this error.
    pub fn add(&self, errno: Errno) {
        let errno = u64::from(errno.raw_os_error().unsigned_abs() & ((1 << ERRNO_BITS) - 1));
        let next = |lost: u64| Some(((lost >> ERRNO_BITS) + 1) << ERRNO_BITS | errno);
        // It always changes.
        let _ = self
            .0
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, next);
    }

    /// What a handle that is opened now need not be told of.
    pub fn sample(&self) -> ReportedErrors {
        ReportedErrors(AtomicU64::new(self.0.load(Ordering::SeqCst)))
    }

    /// Whether the handle has not been told of the last error.
    pub fn has_unreported(&self, reported: &ReportedErrors) -> bool {
        reported.0.load(Ordering::SeqCst) != self.0.load(Ordering::SeqCst)
    }

    /// Tells the handle of an error that it has not been told of.
    ///
    /// # Errors
    /// The errno of the last one.
    pub fn report(&self, reported: &ReportedErrors) -> Result<()> {
        let lost = self.0.load(Ordering::SeqCst);
        match reported.0.swap(lost, Ordering::SeqCst) == lost {
            true => Ok(()),
            false => Err(Error::Posix(Errno::from_raw_os_error(
                (lost & ((1 << ERRNO_BITS) - 1)) as i32,
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_handle_that_was_open_hears_of_a_loss_once() {
        let errors = WritebackErrors::default();
        let (first, second) = (errors.sample(), errors.sample());
        assert!(errors.report(&first).is_ok() && !errors.has_unreported(&first));
        errors.add(Errno::NOSPC);
        let later = errors.sample();
        assert!(
            errors.has_unreported(&first)
                && errors.has_unreported(&second)
                && !errors.has_unreported(&later)
        );
        assert_eq!(errors.report(&first).unwrap_err().errno(), Errno::NOSPC);
        assert!(errors.report(&first).is_ok() && errors.report(&later).is_ok());
        errors.add(Errno::IO);
        for reported in [&first, &second, &later] {
            assert_eq!(errors.report(reported).unwrap_err().errno(), Errno::IO);
            assert!(errors.report(reported).is_ok());
        }
    }
}
