//! Buffers for reads that are reused, so that they are neither cleared nor allocated each time.
//!
//! A read of 1 MiB would otherwise spend a good part of its time on zeroing memory that it overwrites at once. Reads of a page by
//! several threads would wait for each other in the allocator, which serves such sizes under one lock.
//!
//! A kept buffer begins on a page. The kernel takes an answer page by page into its cache: from a buffer that begins in
//! the middle of one it would take every page in two parts, and pin and lock twice as often.
//!
//! Invariants: a buffer holds whatever the last read left there, so its user overwrites all bytes before it hands out any.
//! The pool never holds more than its limit, with the page that each buffer spends on its alignment. If a buffer that comes back does not
//! fit, others of the size that takes most go back to the allocator.
use bytes::Bytes;
use parking_lot::Mutex;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// Buffers of this length are pooled whatever it is; shorter ones only if they are a power of two of pages, as reads of pages mostly are:
/// others would hold up to twice as much as was asked for.
const ROUNDED_UP_BYTES: usize = 64 << 10;
/// Where the kernel's pages begin; on machines with larger ones, every fourth or sixteenth of these.
const PAGE: usize = 4096;
/// Powers of two, from a page on, that a pooled buffer may have: up to 64 GiB. Nothing longer is asked for; if it were, it would not be
/// kept.
const SIZE_CLASSES: usize = 25;

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
    /// By size: `PAGE << class`.
    classes: [Vec<HeapBytes>; SIZE_CLASSES],
    /// Bytes of all on the heap.
    held: usize,
}

impl FreeBuffers {
    fn pop(&mut self, class: usize) -> Option<HeapBytes> {
        let memory = self.classes.get_mut(class)?.pop()?;
        self.held -= memory.bytes.len();
        Some(memory)
    }

    fn push(&mut self, memory: HeapBytes) {
        if let Some(free) = self.classes.get_mut(class_of(memory.len())) {
            self.held += memory.bytes.len();
            free.push(memory);
        }
    }

    /// The size of which most bytes are here.
    fn fullest_class(&self) -> usize {
        let bytes = |class: &usize| self.classes[*class].len() << class;
        (0..SIZE_CLASSES).max_by_key(bytes).unwrap_or(0)
    }
}

/// The smallest size that serves `len` bytes.
fn class_of(len: usize) -> usize {
    let pages = len.div_ceil(PAGE);
    pages.next_power_of_two().trailing_zeros() as usize
}

/// Whether a buffer of `len` bytes is pooled.
fn is_pooled(len: usize) -> bool {
    len >= ROUNDED_UP_BYTES || len >= PAGE && len.is_power_of_two()
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
        let memory = if is_pooled(len) {
            let kept = self.pool.free.lock().pop(class_of(len));
            kept.unwrap_or_else(|| HeapBytes::aligned(len.next_power_of_two()))
        } else {
            HeapBytes::small(len)
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
        let len = memory.bytes.len();
        if len > self.limit {
            return;
        }
        // Given back outside the lock.
        let mut dropped = Vec::new();
        let mut free = self.free.lock();
        while free.held + len > self.limit {
            let fullest = free.fullest_class();
            let Some(other) = free.pop(fullest) else {
                break;
            };
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
        if is_pooled(self.len) {
            self.pool.keep(std::mem::take(&mut self.memory));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a kept buffer of `len` bytes counts.
    fn heap(len: usize) -> u64 {
        (len + PAGE) as u64
    }

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
        let held = heap(1 << 17);
        assert_eq!(buffers.held(), held);
        assert_eq!(buffers.take(70_000).len(), 70_000);
        assert_eq!(buffers.held(), held);
        // A longer one than is there is made new; a shorter one does not take it.
        assert_eq!(buffers.take(1 << 18).len(), 1 << 18);
        let page = buffers.take(PAGE);
        let held = held + heap(1 << 18);
        assert_eq!(buffers.held(), held);
        drop(page);
        assert_eq!(buffers.held(), held + heap(PAGE));
    }

    #[test]
    fn buffers_of_a_size_that_is_asked_for_now_replace_others() {
        let buffers = BufferPool::new(4 * heap(1 << 18));
        let of_size = |len, n| (0..n).map(|_| buffers.take(len)).collect::<Vec<_>>();
        drop(of_size(1 << 18, 5));
        assert_eq!(buffers.held(), 4 * heap(1 << 18), "a fifth does not fit");
        drop(of_size(PAGE, 32));
        assert_eq!(buffers.held(), 3 * heap(1 << 18) + 32 * heap(PAGE));
        let again = of_size(PAGE, 32);
        assert_eq!(buffers.held(), 3 * heap(1 << 18));
        drop(again);
        let held = buffers.held();
        drop(buffers.take(4 << 20));
        assert_eq!(buffers.held(), held, "too long to be kept");
    }

    #[test]
    fn a_kept_buffer_begins_on_a_page_also_when_it_is_used_again() {
        let buffers = BufferPool::new(1 << 20);
        for len in [
            PAGE,
            100_000,
            1 << 18,
            (1 << 18) - 1,
            2 * PAGE,
            100_000,
            PAGE,
        ] {
            let mut buffer = buffers.take(len);
            assert_eq!(buffer.as_ptr().align_offset(PAGE), 0);
            buffer.fill(9);
            assert_eq!(buffer.freeze().len(), len);
        }
    }

    #[test]
    fn what_would_be_rounded_up_by_much_is_not_kept() {
        let buffers = BufferPool::new(1 << 20);
        for len in [0, 100, PAGE - 1, PAGE + 1, 47_008, ROUNDED_UP_BYTES - 1] {
            assert_eq!(buffers.take(len).len(), len);
        }
        assert_eq!(buffers.held(), 0);
        drop(buffers.take(ROUNDED_UP_BYTES));
        assert_eq!(buffers.held(), heap(ROUNDED_UP_BYTES));
    }
}
