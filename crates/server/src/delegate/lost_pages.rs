//! Pages that a kernel kept and this node could not take: who has heard of the loss.
//!
//! The kernel tells a failed page to whichever close comes first, also to that of a reader, and forgets it then. So the losses of
//! a file are counted here as well, and every handle for writing hears of each at its next flush or sync.
//!
//! Invariant: a handle that was open at a loss hears of it once, or of a later one in its place.
use crate::{Error, Result};
use rustix::io::Errno;
use std::sync::atomic::{AtomicU64, Ordering};

const ERRNO_BITS: u32 = 16;

/// The losses of a file: their number above the errno of the last.
#[derive(Debug, Default)]
pub struct LostPages(AtomicU64);

/// The losses that a handle has heard of.
#[derive(Debug)]
pub struct HeardLosses(AtomicU64);

impl LostPages {
    /// Pages were lost.
    pub fn add(&self, errno: Errno) {
        let errno = u64::from(errno.raw_os_error().unsigned_abs() & ((1 << ERRNO_BITS) - 1));
        let next = |lost: u64| Some(((lost >> ERRNO_BITS) + 1) << ERRNO_BITS | errno);
        // It always changes.
        let _ = self
            .0
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, next);
    }

    /// What a handle that is opened now need not hear of.
    pub fn heard(&self) -> HeardLosses {
        HeardLosses(AtomicU64::new(self.0.load(Ordering::SeqCst)))
    }

    /// Whether the handle has not heard of the last loss.
    pub fn has_news(&self, heard: &HeardLosses) -> bool {
        heard.0.load(Ordering::SeqCst) != self.0.load(Ordering::SeqCst)
    }

    /// The handle hears of what it has not heard of.
    ///
    /// # Errors
    /// The errno of the last loss.
    pub fn tell(&self, heard: &HeardLosses) -> Result<()> {
        let lost = self.0.load(Ordering::SeqCst);
        match heard.0.swap(lost, Ordering::SeqCst) == lost {
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
        let lost = LostPages::default();
        let (first, second) = (lost.heard(), lost.heard());
        assert!(lost.tell(&first).is_ok() && !lost.has_news(&first));
        lost.add(Errno::NOSPC);
        let later = lost.heard();
        assert!(lost.has_news(&first) && lost.has_news(&second) && !lost.has_news(&later));
        assert_eq!(lost.tell(&first).unwrap_err().errno(), Errno::NOSPC);
        assert!(lost.tell(&first).is_ok() && lost.tell(&later).is_ok());
        lost.add(Errno::IO);
        for heard in [&first, &second, &later] {
            assert_eq!(lost.tell(heard).unwrap_err().errno(), Errno::IO);
            assert!(lost.tell(heard).is_ok());
        }
    }
}
