//! Two byte strings seen as one: what is left of earlier pieces, and a new piece. A range that lies in one of them is not
//! copied.
use std::ops::Range;

/// See the head of this module.
pub struct SplitBytes<'a> {
    /// The address of the first byte.
    pub addr: u64,
    /// The earlier bytes.
    pub held: &'a [u8],
    /// The bytes behind them.
    pub piece: &'a [u8],
}

impl<'a> SplitBytes<'a> {
    /// The address behind the last byte.
    pub fn end(&self) -> u64 {
        self.addr + (self.held.len() + self.piece.len()) as u64
    }

    /// The bytes at these addresses, which it holds; `copy` takes them if they lie in both parts.
    pub fn range<'s>(&self, range: Range<u64>, copy: &'s mut Vec<u8>) -> &'s [u8]
    where
        'a: 's,
    {
        let from = (range.start - self.addr) as usize;
        let to = (range.end - self.addr) as usize;
        let split = self.held.len();
        if to <= split {
            return &self.held[from..to];
        }
        if from >= split {
            return &self.piece[from - split..to - split];
        }
        copy.clear();
        copy.extend_from_slice(&self.held[from..]);
        copy.extend_from_slice(&self.piece[..to - split]);
        copy
    }
}
