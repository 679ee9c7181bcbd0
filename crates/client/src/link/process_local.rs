//! A value that each process has for itself: a forked child gets its own, the first time it asks.
//!
//! A child has the memory of its parent as it was, but only the thread that forked: a lock that another thread held stays locked
//! for ever, and a connection would be used by both. So nothing of the parent's value may be used but what needs no lock.
use std::sync::atomic::{AtomicPtr, Ordering};

/// See the head of this file.
pub(crate) struct ProcessLocal<T> {
    /// Never null; made by `Box::into_raw`.
    current: AtomicPtr<PerProcessSlot<T>>,
}

struct PerProcessSlot<T> {
    process: u32,
    value: T,
}

/// The number of this process, asked anew each time: no library call says that a process has forked.
pub(crate) fn this_process() -> u32 {
    rustix::process::getpid()
        .as_raw_nonzero()
        .get()
        .unsigned_abs()
}

impl<T> ProcessLocal<T> {
    pub fn new(value: T) -> ProcessLocal<T> {
        let process = this_process();
        let current = Box::into_raw(Box::new(PerProcessSlot { process, value }));
        ProcessLocal {
            current: AtomicPtr::new(current),
        }
    }

    /// The value of this process. In a child, `inherit` makes it; it is shown the parent's, of which it may use only what needs no lock.
    pub fn get(&self, inherit: impl FnOnce(&T) -> T) -> &T {
        let seen = self.current.load(Ordering::Acquire);
        // SAFETY: `current` points to a box that is freed only by `drop`, which nobody can call while `self` is borrowed.
        let current = unsafe { &*seen };
        let process = this_process();
        if current.process == process {
            return &current.value;
        }
        let value = inherit(&current.value);
        let new = Box::into_raw(Box::new(PerProcessSlot { process, value }));
        let (acquire, release) = (Ordering::Acquire, Ordering::AcqRel);
        let won = self.current.compare_exchange(seen, new, release, acquire);
        let current = match won {
            // The parent's value is left where it is: its locks may be held, and its end is the parent's to bring about.
            Ok(_) => new,
            Err(other) => {
                // SAFETY: `new` is a box made above that no other thread has seen.
                drop(unsafe { Box::from_raw(new) });
                other
            }
        };
        // SAFETY: as above.
        let current = unsafe { &*current };
        &current.value
    }

    /// The value, if this process has made it.
    pub fn own(&self) -> Option<&T> {
        // SAFETY: as in `get`.
        let current = unsafe { &*self.current.load(Ordering::Acquire) };
        (current.process == this_process()).then_some(&current.value)
    }
}

impl<T> Drop for ProcessLocal<T> {
    fn drop(&mut self) {
        if self.own().is_some() {
            // SAFETY: the pointer is a box's, and `self` is the last that has it.
            drop(unsafe { Box::from_raw(*self.current.get_mut()) });
        }
    }
}

// SAFETY: it gives out only `&T`, and takes a `T` from any thread.
unsafe impl<T: Send + Sync> Sync for ProcessLocal<T> {}
// SAFETY: as a box of `T`.
unsafe impl<T: Send + Sync> Send for ProcessLocal<T> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_keeps_its_value_and_frees_it() {
        let value = std::sync::Arc::new(7);
        let local = ProcessLocal::new(value.clone());
        assert_eq!(**local.get(|_| panic!("this process has one")), 7);
        assert!(local.own().is_some());
        drop(local);
        assert_eq!(std::sync::Arc::strong_count(&value), 1);
    }
}
