//! Buffers for reads that are reused, so that they are neither cleared nor allocated each time.
//!
//! A read of 1 MiB would otherwise spend a good part of its time on zeroing memory that it overwrites at once. Reads of a page by
//! several threads would wait for each other in the allocator, which serves such sizes under one lock.
//!
//! A kept buffer begins on a page. The kernel takes an answer page by page into its cache: from a buffer that begins in
//! the middle of one it would take every page in two parts, and pin and lock twice as often.
//!
//! Invariants: a buffer holds whatever the last read left there, so its user overwrites all bytes before it hands out any.
//! The pool never holds more than its limit (not counting the page that each buffer spends on its alignment). If a buffer that comes
//! back does not fit, others of the size that takes most go back to the allocator.
use bytes::Bytes;
use parking_lot::Mutex;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// Smaller buffers are allocated each time: clearing them costs less than sharing them.
const MIN_POOLED_BYTES: usize = PAGE;
/// Where the kernel's pages begin; on machines with larger ones, every fourth or sixteenth of these.
const PAGE: usize = 4096;
/// Powers of two, from `MIN_POOLED_BYTES` on, that a pooled buffer may have: up to 64 GiB. Nothing longer is asked for; if it were,
/// it would not be kept.
const SIZES: usize = 25;

/// A pool of buffers. Cheap to clone: clones share it.
#[derive(Clone)]
pub struct BufferPool {
    pool: Arc<Pool>,
}

struct Pool {
    /// Most bytes kept.
    limit: usize,
    free: Mutex<FreeBuffers>,
}

/// Buffers that nobody uses.
#[derive(Default)]
struct FreeBuffers {
    /// By size: `MIN_POOLED_BYTES << i`.
    of_size: [Vec<HeapBytes>; SIZES],
    /// Bytes of all.
    held: usize,
}

impl FreeBuffers {
    fn pop(&mut self, size: usize) -> Option<HeapBytes> {
        let memory = self.of_size.get_mut(size)?.pop()?;
        self.held -= memory.len();
        Some(memory)
    }

    fn push(&mut self, memory: HeapBytes) {
        if let Some(free) = self.of_size.get_mut(size_index(memory.len())) {
            self.held += memory.len();
            free.push(memory);
        }
    }

    /// The size of which most bytes are here.
    fn largest_share(&self) -> usize {
        let bytes = |i: &usize| self.of_size[*i].len() << i;
        (0..SIZES).max_by_key(bytes).unwrap_or(0)
    }
}

/// Which size serves `len` bytes.
fn size_index(len: usize) -> usize {
    let pages = len.div_ceil(MIN_POOLED_BYTES);
    pages.next_power_of_two().trailing_zeros() as usize
}

/// Initialised bytes on the heap.
#[derive(Default)]
struct HeapBytes {
    bytes: Vec<u8>,
    /// Where the usable part begins: on a page, if it is to be kept.
    start: usize,
}

impl HeapBytes {
    /// `len` bytes that begin anywhere.
    fn small(len: usize) -> HeapBytes {
        HeapBytes {
            bytes: vec![0; len],
            start: 0,
        }
    }

    /// `len` bytes that begin on a page.
    fn aligned(len: usize) -> HeapBytes {
        let bytes = vec![0; len + PAGE];
        // A heap block stays where it is while its owner moves, so the place is found once.
        let start = bytes.as_ptr().align_offset(PAGE).min(PAGE);
        HeapBytes { bytes, start }
    }

    /// Usable bytes of one that begins on a page.
    fn len(&self) -> usize {
        self.bytes.len().saturating_sub(PAGE)
    }
}

impl BufferPool {
    /// `limit`: most bytes kept for later.
    pub fn new(limit: u64) -> BufferPool {
        let pool = Pool {
            limit: usize::try_from(limit).unwrap_or(usize::MAX),
            free: Mutex::default(),
        };
        BufferPool {
            pool: Arc::new(pool),
        }
    }

    /// A buffer of `len` bytes of any content: the caller writes all of them.
    pub fn take(&self, len: usize) -> PooledBuffer {
        let memory = if len < MIN_POOLED_BYTES {
            HeapBytes::small(len)
        } else {
            let kept = self.pool.free.lock().pop(size_index(len));
            kept.unwrap_or_else(|| HeapBytes::aligned(len.next_power_of_two()))
        };
        PooledBuffer {
            memory,
            len,
            pool: self.pool.clone(),
        }
    }

    /// Bytes kept now.
    pub fn held(&self) -> u64 {
        self.pool.free.lock().held as u64
    }
}

impl Pool {
    /// Keeps `memory` for later.
    fn keep(&self, memory: HeapBytes) {
        if memory.len() > self.limit {
            return;
        }
        // Given back outside the lock.
        let mut dropped = Vec::new();
        let mut free = self.free.lock();
        while free.held + memory.len() > self.limit {
            let most = free.largest_share();
            let Some(other) = free.pop(most) else { break };
            dropped.push(other);
        }
        free.push(memory);
        drop(free);
    }
}

/// A buffer; goes back to its pool when it is dropped.
pub struct PooledBuffer {
    /// At least `len` bytes.
    memory: HeapBytes,
    len: usize,
    pool: Arc<Pool>,
}

impl PooledBuffer {
    /// The bytes to hand on, without a copy. The buffer goes back when the last of them is dropped.
    pub fn freeze(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl Deref for PooledBuffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.memory.bytes[self.memory.start..][..self.len]
    }
}

impl DerefMut for PooledBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory.bytes[self.memory.start..][..self.len]
    }
}

impl AsRef<[u8]> for PooledBuffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Drop for PooledBuffer {
    fn drop(&mut self) {
        if self.len < MIN_POOLED_BYTES {
            return;
        }
        self.pool.keep(std::mem::take(&mut self.memory));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_buffer_comes_back_when_its_last_reader_is_done() {
        let buffers = BufferPool::new(1 << 20);
        let mut buffer = buffers.take(100_000);
        buffer.fill(7);
        let bytes = buffer.freeze();
        let part = bytes.slice(10..20);
        drop(bytes);
        assert_eq!((buffers.held(), &part[..]), (0, &[7; 10][..]));
        drop(part);
        assert_eq!(buffers.held(), 1 << 17);
        assert_eq!(buffers.take(70_000).len(), 70_000);
        assert_eq!(buffers.held(), 1 << 17);
        // A longer one than is there is made new; a shorter one does not take it.
        assert_eq!(buffers.take(1 << 18).len(), 1 << 18);
        let page = buffers.take(PAGE);
        assert_eq!(buffers.held(), (1 << 17) + (1 << 18));
        drop(page);
        assert_eq!(buffers.held(), (1 << 17) + (1 << 18) + PAGE as u64);
    }

    #[test]
    fn buffers_of_a_size_that_is_asked_for_now_replace_others() {
        let buffers = BufferPool::new(1 << 20);
        let of_size = |len, n| (0..n).map(|_| buffers.take(len)).collect::<Vec<_>>();
        drop(of_size(1 << 18, 4));
        assert_eq!(buffers.held(), 1 << 20);
        drop(of_size(PAGE, 64));
        assert_eq!(buffers.held(), 1 << 20, "one of 256 KiB made room");
        let again = of_size(PAGE, 64);
        assert_eq!(buffers.held(), 3 << 18);
        drop(again);
        drop(buffers.take((1 << 20) + 1));
        assert_eq!(buffers.held(), 1 << 20, "too long to be kept");
    }

    #[test]
    fn a_large_buffer_begins_on_a_page_also_when_it_is_used_again() {
        let buffers = BufferPool::new(1 << 20);
        for len in [
            MIN_POOLED_BYTES,
            100_000,
            1 << 18,
            (1 << 18) - 1,
            5000,
            100_000,
        ] {
            let mut buffer = buffers.take(len);
            assert_eq!(buffer.as_ptr().align_offset(PAGE), 0);
            buffer.fill(9);
            assert_eq!(buffer.freeze().len(), len);
        }
    }

    #[test]
    fn no_more_is_kept_than_the_limit_and_nothing_small() {
        let buffers = BufferPool::new(1 << 18);
        let taken: Vec<_> = (0..5).map(|_| buffers.take(1 << 17)).collect();
        drop(taken);
        assert_eq!(buffers.held(), 1 << 18);
        drop(buffers.take(100));
        assert_eq!(buffers.held(), 1 << 18);
        assert!(buffers.take(0).is_empty());
    }
}
