//! Buffers for large reads, used again instead of cleared again.
//!
//! A read of 1 MiB would otherwise spend a good part of its time on zeroing memory that it overwrites at once.
//!
//! A kept buffer begins on a page. The kernel takes an answer page by page into its cache: from a buffer that begins in
//! the middle of one it would take every page in two parts, and pin and lock twice as often.
//!
//! Invariants: a buffer's bytes are whatever the last read left there, so who takes one writes every byte before it
//! shows any. What is kept for later never exceeds the limit (the page that each spends on its alignment not counted); what
//! does not fit goes back to the allocator.
use bytes::Bytes;
use parking_lot::Mutex;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// Smaller ones are made new each time: clearing them costs less than sharing them.
const SMALLEST: usize = 64 << 10;
/// Where the kernel's pages begin; on machines with larger ones, every fourth or sixteenth of these.
const PAGE: usize = 4096;

/// A stock of buffers. Cheap to clone: clones share it.
#[derive(Clone)]
pub struct Buffers {
    stock: Arc<Stock>,
}

struct Stock {
    /// Most bytes kept.
    limit: usize,
    free: Mutex<Vec<Memory>>,
}

/// Initialised bytes on the heap.
#[derive(Default)]
struct Memory {
    bytes: Vec<u8>,
    /// Where the usable part begins: on a page, if it is to be kept.
    start: usize,
}

impl Memory {
    /// `len` bytes that begin anywhere.
    fn small(len: usize) -> Memory {
        Memory {
            bytes: vec![0; len],
            start: 0,
        }
    }

    /// `len` bytes that begin on a page.
    fn aligned(len: usize) -> Memory {
        let bytes = vec![0; len + PAGE];
        // A heap block stays where it is while its owner moves, so the place is found once.
        let start = bytes.as_ptr().align_offset(PAGE).min(PAGE);
        Memory { bytes, start }
    }

    /// Usable bytes of one that begins on a page.
    fn len(&self) -> usize {
        self.bytes.len().saturating_sub(PAGE)
    }
}

impl Buffers {
    /// `limit`: most bytes kept for later.
    pub fn new(limit: u64) -> Buffers {
        let stock = Stock {
            limit: usize::try_from(limit).unwrap_or(usize::MAX),
            free: Mutex::default(),
        };
        Buffers {
            stock: Arc::new(stock),
        }
    }

    /// A buffer of `len` bytes of any content: the caller writes all of them.
    pub fn take(&self, len: usize) -> Buffer {
        let memory = if len < SMALLEST {
            Memory::small(len)
        } else {
            self.kept(len)
                .unwrap_or_else(|| Memory::aligned(len.next_power_of_two()))
        };
        Buffer {
            memory,
            len,
            stock: self.stock.clone(),
        }
    }

    fn kept(&self, len: usize) -> Option<Memory> {
        let mut free = self.stock.free.lock();
        let at = free.iter().rposition(|memory| memory.len() >= len)?;
        Some(free.swap_remove(at))
    }

    /// Bytes kept now.
    pub fn held(&self) -> u64 {
        self.stock.held() as u64
    }
}

impl Stock {
    fn held(&self) -> usize {
        self.free.lock().iter().map(Memory::len).sum()
    }
}

/// A buffer; goes back to its stock when it is dropped.
pub struct Buffer {
    /// At least `len` bytes.
    memory: Memory,
    len: usize,
    stock: Arc<Stock>,
}

impl Buffer {
    /// The bytes to hand on, without a copy. The buffer goes back when the last of them is dropped.
    pub fn freeze(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl Deref for Buffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.memory.bytes[self.memory.start..][..self.len]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory.bytes[self.memory.start..][..self.len]
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if self.len < SMALLEST {
            return;
        }
        let memory = std::mem::take(&mut self.memory);
        let mut free = self.stock.free.lock();
        let held: usize = free.iter().map(Memory::len).sum();
        if held + memory.len() <= self.stock.limit {
            free.push(memory);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_buffer_comes_back_when_its_last_reader_is_done() {
        let buffers = Buffers::new(1 << 20);
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
        // A longer one than is there is made new.
        assert_eq!(buffers.take(1 << 18).len(), 1 << 18);
    }

    #[test]
    fn a_large_buffer_begins_on_a_page_also_when_it_is_used_again() {
        let buffers = Buffers::new(1 << 20);
        for len in [SMALLEST, 100_000, 1 << 18, (1 << 18) - 1, 100_000] {
            let mut buffer = buffers.take(len);
            assert_eq!(buffer.as_ptr().align_offset(PAGE), 0);
            buffer.fill(9);
            assert_eq!(buffer.freeze().len(), len);
        }
    }

    #[test]
    fn no_more_is_kept_than_the_limit_and_nothing_small() {
        let buffers = Buffers::new(1 << 18);
        let taken: Vec<_> = (0..5).map(|_| buffers.take(1 << 17)).collect();
        drop(taken);
        assert_eq!(buffers.held(), 1 << 18);
        drop(buffers.take(100));
        assert_eq!(buffers.held(), 1 << 18);
        assert!(buffers.take(0).is_empty());
    }
}
