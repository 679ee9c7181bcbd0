//! The tail of a log: bytes appended but not yet written to a segment. Parts of it may already be freed; they are
//! never written as live.
use crate::ranges::subtract;
use std::ops::Range;

/// The buffered end of one log.
#[derive(Debug, Default)]
pub struct LogTail {
    /// Address of the first buffered byte.
    start: u64,
    bytes: Vec<u8>,
    /// Freed addresses inside the tail: sorted, disjoint.
    freed: Vec<Range<u64>>,
}

impl LogTail {
    /// Address of the first buffered byte.
    pub fn start(&self) -> u64 {
        self.start
    }
    /// Address of the next append.
    pub fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }
    /// The buffered bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
    /// Whether nothing is buffered.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
    /// Memory held, bytes.
    pub fn capacity(&self) -> usize {
        self.bytes.capacity()
    }
    /// The capacity needed for `more` bytes: doubles, so that a log of small appends copies each byte about twice at
    /// most, up to `limit`, and from there exactly what is asked.
    pub fn capacity_for(&self, more: usize, limit: usize) -> usize {
        let need = self.bytes.len() + more;
        if need <= self.bytes.capacity() {
            return self.bytes.capacity();
        }
        need.next_power_of_two().max(4096).min(limit).max(need)
    }
    /// Grows to exactly this capacity.
    pub fn reserve(&mut self, capacity: usize) {
        self.bytes
            .reserve_exact(capacity.saturating_sub(self.bytes.len()));
    }
    /// Appends; the caller has reserved.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }
    /// Appends bytes that are free from the beginning; the caller has reserved.
    pub fn pad(&mut self, len: u64) {
        let end = self.end();
        self.bytes.resize(self.bytes.len() + len as usize, 0);
        self.free(&(end..end + len));
    }
    /// Everything up to `end` is in a segment now (or dropped); returns the emptied buffer.
    pub fn advance(&mut self, end: u64) -> Vec<u8> {
        self.start = end;
        self.freed.clear();
        let mut buffer = std::mem::take(&mut self.bytes);
        buffer.clear();
        buffer
    }
    /// Starts over with this empty buffer.
    pub fn adopt(&mut self, buffer: Vec<u8>) {
        debug_assert!(self.bytes.is_empty() && buffer.is_empty());
        self.bytes = buffer;
    }

    /// Frees the part of `range` that lies in the tail; returns how many bytes were live till now.
    pub fn free(&mut self, range: &Range<u64>) -> u64 {
        let range = range.start.max(self.start)..range.end.min(self.end());
        if range.is_empty() {
            return 0;
        }
        let before = self.freed_len();
        let (mut start, mut end) = (range.start, range.end);
        let mut kept = Vec::with_capacity(self.freed.len() + 1);
        for f in self.freed.drain(..) {
            if f.end < start || f.start > end {
                kept.push(f);
            } else {
                start = start.min(f.start);
                end = end.max(f.end);
            }
        }
        let at = kept.partition_point(|f: &Range<u64>| f.start < start);
        kept.insert(at, start..end);
        self.freed = kept;
        self.freed_len() - before
    }

    fn freed_len(&self) -> u64 {
        self.freed.iter().map(|f| f.end - f.start).sum()
    }

    /// Bytes buffered and not freed.
    pub fn live_len(&self) -> u64 {
        self.bytes.len() as u64 - self.freed_len()
    }

    /// The addresses not freed, in order.
    pub fn live(&self) -> Vec<Range<u64>> {
        subtract(self.start..self.end(), &self.freed)
    }

    /// Copies `[addr, addr + buf.len())`; `Err` names the first address that is freed or not there.
    pub fn read(&self, addr: u64, buf: &mut [u8]) -> Result<(), u64> {
        let end = addr + buf.len() as u64;
        if addr < self.start || end > self.end() {
            return Err(if addr < self.start {
                addr
            } else {
                self.end().max(addr)
            });
        }
        if let Some(f) = self.freed.iter().find(|f| f.start < end && f.end > addr) {
            return Err(f.start.max(addr));
        }
        let at = (addr - self.start) as usize;
        buf.copy_from_slice(&self.bytes[at..at + buf.len()]);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn freed_parts_are_a_set(ops in prop::collection::vec((0u64..120, 0u64..40), 0..20)) {
            let mut tail = LogTail::default();
            tail.advance(10);
            tail.push(&[9; 40]);
            tail.pad(10);
            tail.push(&[9; 30]);
            let mut model = [true; 200];
            model[50..60].fill(false);
            for (start, len) in ops {
                let freed = tail.free(&(start..start + len));
                let mut n = 0;
                for a in start.max(10)..(start + len).min(90) {
                    n += u64::from(std::mem::take(&mut model[a as usize]));
                }
                prop_assert_eq!(freed, n);
            }
            let live: Vec<u64> = tail.live().into_iter().flatten().collect();
            let want: Vec<u64> = (10..90).filter(|a| model[*a as usize]).collect();
            prop_assert_eq!(tail.live_len(), want.len() as u64);
            prop_assert_eq!(live, want);
            for a in 0..100 {
                prop_assert_eq!(tail.read(a, &mut [0]).is_ok(), (10..90).contains(&a) && model[a as usize]);
            }
        }
    }
}
