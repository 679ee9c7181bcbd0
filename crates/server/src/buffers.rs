//! Buffers for large reads, used again instead of cleared again.
//!
//! A read of 1 MiB would otherwise spend a good part of its time on zeroing memory that it overwrites at once.
//!
//! Invariants: a buffer's bytes are whatever the last read left there, so who takes one writes every byte before it
//! shows any. What is kept for later never exceeds the limit; what does not fit goes back to the allocator.
use bytes::Bytes;
use parking_lot::Mutex;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// Smaller ones are made new each time: clearing them costs less than sharing them.
const SMALLEST: usize = 64 << 10;

/// A stock of buffers. Cheap to clone: clones share it.
#[derive(Clone)]
pub struct Buffers {
    stock: Arc<Stock>,
}

struct Stock {
    /// Most bytes kept.
    limit: usize,
    free: Mutex<Vec<Vec<u8>>>,
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
        let bytes = if len < SMALLEST {
            vec![0; len]
        } else {
            self.kept(len)
                .unwrap_or_else(|| vec![0; len.next_power_of_two()])
        };
        Buffer {
            bytes,
            len,
            stock: self.stock.clone(),
        }
    }

    fn kept(&self, len: usize) -> Option<Vec<u8>> {
        let mut free = self.stock.free.lock();
        let at = free.iter().rposition(|bytes| bytes.len() >= len)?;
        Some(free.swap_remove(at))
    }

    /// Bytes kept now.
    pub fn held(&self) -> u64 {
        self.stock.held() as u64
    }
}

impl Stock {
    fn held(&self) -> usize {
        self.free.lock().iter().map(Vec::len).sum()
    }
}

/// A buffer; goes back to its stock when it is dropped.
pub struct Buffer {
    /// All initialised; at least `len`.
    bytes: Vec<u8>,
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
        &self.bytes[..self.len]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[..self.len]
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        if bytes.len() < SMALLEST {
            return;
        }
        let mut free = self.stock.free.lock();
        let held: usize = free.iter().map(Vec::len).sum();
        if held + bytes.len() <= self.stock.limit {
            free.push(bytes);
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
