//! A segment: a pattern with what the file's owner must know about it; what is committed, stored and sent.
//!
//! Inside its [frame], which has version, length and checksum:
//!
//! ```text
//!  | flags  | member | log    | first  | last - first | limit  | address | body |
//!  | 1 byte | varint | varint | varint | varint       | varint | varint  |      |
//! ```
//!
//! - *flags* say which of the last fields and of the body's parts are there; unknown ones are refused.
//! - *member*, *log*: whose bytes they are.
//! - *first* and *last* sequence (flag 1): one commit has one. A segment spans several only if the owner knows that nothing else
//!   changed the file between, so any other change is before all of it or after all of it.
//! - *limit* (flag 2): bytes from here on were truncated away.
//! - *address* of the first element (flag 4; 0 if not given), then the [body](crate::encode) (flags 8 to 64).

use crate::encode::GAPS;
use crate::parse::parse;
use crate::{Error, Pattern, Result, encode, frame};
use forebay_codec::varint;
use std::ops::Range;

const FLAG_SEQUENCE_RANGE: u8 = 1;
const LIMIT: u8 = 2;
const ADDR: u8 = 4;

/// The log whose bytes a pattern describes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogSource {
    /// The member whose store has the bytes.
    pub member: u16,
    /// The log there.
    pub log: u64,
}

/// Bytes of a file and where they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PlacedExtent {
    /// First byte of the file.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
    /// The log that has them.
    pub source: LogSource,
    /// Address of the first byte there.
    pub addr: u64,
    /// The commit that published them.
    pub sequence: u64,
}

impl PlacedExtent {
    /// The offset after the last byte.
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(self.len)
    }

    pub(crate) fn order(&self) -> (u64, u64, LogSource) {
        (self.sequence, self.addr, self.source)
    }

    /// The part inside `range`.
    pub(crate) fn clip(mut self, range: Range<u64>) -> PlacedExtent {
        let (start, end) = (self.offset.max(range.start), self.end().min(range.end));
        self.addr += start - self.offset;
        (self.offset, self.len) = (start, end.saturating_sub(start));
        self
    }
}

/// A pattern, whose it is, and which commits made it.
#[derive(Debug, Clone, Default)]
pub struct Segment {
    /// The log of all its extents.
    pub source: LogSource,
    /// The first commit it holds.
    pub first: u64,
    /// The last commit it holds.
    pub last: u64,
    /// Bytes at this offset and after it do not count: the file was truncated there.
    pub limit: Option<u64>,
    /// The extents.
    pub pattern: Pattern,
}

impl Segment {
    /// A segment of one commit.
    pub fn new(source: LogSource, sequence: u64, pattern: Pattern) -> Segment {
        Segment {
            source,
            first: sequence,
            last: sequence,
            limit: None,
            pattern,
        }
    }

    /// The file was truncated at `size` by a change after this segment.
    pub fn truncate(&mut self, size: u64) {
        self.limit = Some(self.limit.map_or(size, |limit| limit.min(size)));
    }

    /// Appends the segment to `out`, in the fewest bytes: folded, or as plain as it came.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut head = Vec::with_capacity(32);
        let (mut flags, body) = encode::body(&self.pattern);
        head.push(0);
        varint::put(&mut head, u64::from(self.source.member));
        varint::put(&mut head, self.source.log);
        varint::put(&mut head, self.first);
        if self.last != self.first {
            flags |= FLAG_SEQUENCE_RANGE;
            varint::put(&mut head, self.last.wrapping_sub(self.first));
        }
        if let Some(limit) = self.limit {
            flags |= LIMIT;
            varint::put(&mut head, limit);
        }
        if let Some(addr) = self
            .pattern
            .terms
            .first()
            .map(|t| t.addr)
            .filter(|a| *a > 0)
        {
            flags |= ADDR;
            varint::put(&mut head, addr);
        }
        head[0] = flags;
        head.extend_from_slice(&body);
        frame::put(out, frame::SEGMENT, &head);
    }

    /// The segment's bytes.
    pub fn encoded(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.encode(&mut out);
        out
    }

    /// Takes a segment off the start of `bytes`, which is `at` bytes after the start of all (for messages).
    ///
    /// # Errors
    /// `Short`, `Newer`, `Checksum`, `Malformed`. `bytes` then stands after the segment if its length could be read, else at its end.
    pub fn decode(bytes: &mut &[u8], at: usize) -> Result<Segment> {
        let (kind, inside) = frame::take(bytes, at)?;
        let malformed = |what| Error::Malformed { at, what };
        if kind != frame::SEGMENT {
            return Err(malformed("it is no segment"));
        }
        Segment::inside(inside).map_err(malformed)
    }

    pub(crate) fn inside(bytes: &[u8]) -> std::result::Result<Segment, &'static str> {
        let (&flags, mut bytes) = bytes.split_first().ok_or("it is empty")?;
        let mut next = || varint::take(&mut bytes).ok_or("its head is cut off");
        let member = u16::try_from(next()?).map_err(|_| "no member has this number")?;
        let log = next()?;
        let first = next()?;
        let mut given = |flag: u8| {
            if flags & flag > 0 {
                next().map(Some)
            } else {
                Ok(None)
            }
        };
        let more = given(FLAG_SEQUENCE_RANGE)?.unwrap_or(0);
        let last = first
            .checked_add(more)
            .ok_or("its sequences are too large")?;
        let limit = given(LIMIT)?;
        let addr = given(ADDR)?.unwrap_or(0);
        if flags & GAPS != 0 {
            return Err("a log of its own has no gaps");
        }
        let pattern = parse(flags & !(FLAG_SEQUENCE_RANGE | LIMIT | ADDR), bytes, addr)?;
        Ok(Segment {
            source: LogSource { member, log },
            first,
            last,
            limit,
            pattern,
        })
    }

    /// Bytes of memory held.
    pub fn memory(&self) -> usize {
        size_of::<Segment>() - size_of::<Pattern>() + self.pattern.memory()
    }
}
