//! Change counters: numbers in shared memory by which a process of this node sees that bytes which it keeps of a file may be old.
//!
//! ```text
//! shared memory, 32 KiB: 4,096 counters of 8 bytes, in the machine's order of bytes
//!  file  ->  counter  hash of its id; files may share one, and then make each other's bytes look old
//! ```
//!
//! Invariants:
//! - A counter grows whenever what this node's reads of the file return may have changed: under the lock of the file's state, in which
//!   reads plan, and before the call that changed it returns. A reader that loaded the counter before it read, and finds it unchanged later,
//!   holds what a new read would return.
//! - It never goes back while the server runs. The memory outlives the server: who uses it sees to it that the server still runs.
//! - Other processes can map the memory for reading only, where the kernel has a seal for that: it is sealed after the one mapping that
//!   writes was made.
use crate::{Error, Fid, Result};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};
use serde::{Deserialize, Serialize};
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

const COUNTERS: usize = 4096;
const BYTES: usize = COUNTERS * size_of::<AtomicU64>();
/// Spreads ids, which are near each other, over the counters (Fibonacci hashing).
const FIBONACCI_MULTIPLIER: u64 = 0x9E37_79B9_7F4A_7C15;

/// A file's counter, loaded before bytes of the file were read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeMark {
    /// Which counter.
    pub counter: u16,
    /// Its value then.
    pub value: u64,
}

/// The counters of one server. See the head of this file.
pub struct ChangeCounters {
    memory: OwnedFd,
    map: CounterMap,
}

/// The counters as another process sees them.
pub struct SharedChangeCounters(CounterMap);

/// All counters, mapped.
struct CounterMap(NonNull<AtomicU64>);

// SAFETY: what it points to is mapped as long as it lives, and consists of atomics.
unsafe impl Send for CounterMap {}
// SAFETY: as above.
unsafe impl Sync for CounterMap {}

impl CounterMap {
    /// Maps memory that is known to have [`BYTES`], for ever.
    fn new(memory: BorrowedFd<'_>, access: ProtFlags) -> io::Result<CounterMap> {
        // SAFETY: a new mapping at an address of the kernel's choice; nothing else is touched.
        let at = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                BYTES,
                access,
                MapFlags::SHARED,
                memory,
                0,
            )
        }?;
        let at = NonNull::new(at.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(CounterMap(at))
    }

    fn get(&self, counter: u16) -> Option<&AtomicU64> {
        let counter = usize::from(counter);
        // SAFETY: within the mapping, which is aligned to pages, and lives as long as `self`. All bytes are a valid `AtomicU64`.
        (counter < COUNTERS).then(|| unsafe { self.0.add(counter).as_ref() })
    }
}

impl Drop for CounterMap {
    fn drop(&mut self) {
        // SAFETY: the mapping of `new`; references into it cannot outlive `self`.
        // Fails only for an address that is none of a mapping.
        let _ = unsafe { rustix::mm::munmap(self.0.as_ptr().cast(), BYTES) };
    }
}

impl ChangeCounters {
    /// New ones, all 0.
    ///
    /// # Errors
    /// Where there is no memory, or no descriptor.
    pub(super) fn new() -> Result<Arc<ChangeCounters>> {
        let make = || -> io::Result<ChangeCounters> {
            let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
            let memory = rustix::fs::memfd_create("forebay-changes", flags)?;
            rustix::fs::ftruncate(&memory, BYTES as u64)?;
            let map = CounterMap::new(memory.as_fd(), ProtFlags::READ | ProtFlags::WRITE)?;
            rustix::fs::fcntl_add_seals(&memory, SealFlags::SHRINK | SealFlags::GROW)?;
            // Kernels before 5.1 do not have this seal. Only processes of the server's own user get the memory, and one that wrote it
            // could only have others ask for what they have, or keep what is old.
            let _ = rustix::fs::fcntl_add_seals(&memory, SealFlags::FUTURE_WRITE);
            rustix::fs::fcntl_add_seals(&memory, SealFlags::SEAL)?;
            Ok(ChangeCounters { memory, map })
        };
        let failed = |e| Error::Refused(format!("memory that programs of the node share: {e}"));
        Ok(Arc::new(make().map_err(failed)?))
    }

    fn counter_of(fid: Fid) -> u16 {
        (fid.0.wrapping_mul(FIBONACCI_MULTIPLIER) >> (u64::BITS - COUNTERS.ilog2())) as u16
    }

    /// What reads of the file return may have changed.
    pub(super) fn advance(&self, fid: Fid) {
        if let Some(counter) = self.map.get(Self::counter_of(fid)) {
            counter.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// The counter of a file, to be loaded before bytes of it are read.
    pub(super) fn mark(&self, fid: Fid) -> ChangeMark {
        let counter = Self::counter_of(fid);
        let value = self
            .map
            .get(counter)
            .map_or(0, |c| c.load(Ordering::SeqCst));
        ChangeMark { counter, value }
    }
}

impl AsFd for ChangeCounters {
    /// What another process maps with [`SharedChangeCounters::new`].
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.memory.as_fd()
    }
}

impl SharedChangeCounters {
    /// Those whose memory came from a server. `InvalidData`: it is not such memory.
    ///
    /// # Errors
    /// As said; where it cannot be mapped.
    pub fn new(memory: &OwnedFd) -> io::Result<SharedChangeCounters> {
        let wrong = || io::Error::new(io::ErrorKind::InvalidData, "no memory of change counters");
        let seals = rustix::fs::fcntl_get_seals(memory).map_err(|_| wrong())?;
        // Else it could lose its pages while they are looked at.
        let sealed = seals.contains(SealFlags::SHRINK | SealFlags::GROW);
        if !sealed || rustix::fs::fstat(memory)?.st_size != BYTES as i64 {
            return Err(wrong());
        }
        let map = CounterMap::new(memory.as_fd(), ProtFlags::READ)?;
        Ok(SharedChangeCounters(map))
    }

    /// Whether nothing has changed since the mark.
    pub fn is_current(&self, mark: ChangeMark) -> bool {
        let Some(counter) = self.0.get(mark.counter) else {
            return false;
        };
        // Of memory that is mapped for reading only, nothing but a relaxed load is promised to be possible.
        let value = counter.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        value == mark.value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_seen_by_who_has_the_memory_and_by_no_other_file() {
        let counters = ChangeCounters::new().unwrap();
        let memory = counters.as_fd().try_clone_to_owned().unwrap();
        let shared = SharedChangeCounters::new(&memory).unwrap();
        let (one, other) = (Fid(7), Fid(8));
        let marks = (counters.mark(one), counters.mark(other));
        assert!(shared.is_current(marks.0) && shared.is_current(marks.1));
        counters.advance(one);
        assert!(!shared.is_current(marks.0) && shared.is_current(marks.1));
        assert!(shared.is_current(counters.mark(one)));
        let none = ChangeMark {
            counter: u16::MAX,
            value: 0,
        };
        assert!(!shared.is_current(none));
    }

    #[test]
    fn other_processes_can_neither_write_nor_shorten_it() {
        let counters = ChangeCounters::new().unwrap();
        assert!(CounterMap::new(counters.as_fd(), ProtFlags::WRITE).is_err());
        assert!(rustix::fs::ftruncate(&counters.memory, 8).is_err());
        assert!(rustix::io::pwrite(&counters.memory, &[1; 8], 0).is_err());
    }

    #[test]
    fn other_memory_is_refused() {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let memory = rustix::fs::memfd_create("test", flags).unwrap();
        rustix::fs::ftruncate(&memory, BYTES as u64).unwrap();
        assert!(SharedChangeCounters::new(&memory).is_err(), "not sealed");
    }
}
