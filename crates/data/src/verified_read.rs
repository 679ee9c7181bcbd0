//! Reading stored bytes, verified: a byte is handed out only after the checksum of its whole piece was right.
use crate::buffer_pool::{BufferPool, PooledBuffer};
use crate::pieces::ChecksummedPieces;
use crate::poison::io_error;
use crate::segment::Segments;
use forebay_proto::{Error, Result};
use forebay_storage::File;
use std::ops::Range;

/// Bytes read before they are verified: few enough to be still in the processor's cache, and while they are verified the
/// disk goes on reading ahead.
pub const VERIFY_STEP: u64 = 256 << 10;
/// Gaps between wanted bytes up to this length are read too, instead of making another read call.
pub const READ_OVER_BYTES: u64 = 16 << 10;
/// A piece of this size is read into the stack if only a part of it is wanted.
const SMALL_PIECE: usize = 4096;

/// A piece that is not what was written.
pub struct Mismatch {
    /// Its number.
    pub piece: usize,
    /// The checksum of what is there. `None`: its bytes are not there.
    pub found: Option<u32>,
}

impl Mismatch {
    /// A piece whose bytes are not there.
    pub fn missing(piece: usize) -> Mismatch {
        Mismatch { piece, found: None }
    }
}

/// Memory for a piece of which only a part is wanted.
struct CutPiece {
    small: [u8; SMALL_PIECE],
    large: Vec<u8>,
    len: usize,
}

impl CutPiece {
    fn new(len: u64) -> CutPiece {
        let len = len as usize;
        CutPiece {
            small: [0; SMALL_PIECE],
            large: match len > SMALL_PIECE {
                true => vec![0; len],
                false => Vec::new(),
            },
            len,
        }
    }

    fn bytes(&mut self) -> &mut [u8] {
        match self.large.is_empty() {
            true => &mut self.small[..self.len],
            false => &mut self.large,
        }
    }
}

/// Reads `buf.len()` bytes (at least one) from position `at` on, and verifies every piece that they touch. The bytes must be consecutive in
/// the segment. `Some`: a piece is damaged.
pub fn read(
    segments: &Segments,
    pieces: &impl ChecksummedPieces,
    at: u64,
    buf: &mut [u8],
) -> Result<Option<Mismatch>> {
    match segments.file(pieces.segment())? {
        Some(file) => read_in(segments, &*file, pieces, at, buf),
        None => Ok(Some(Mismatch::missing(pieces.piece_of(at)))),
    }
}

/// As `read`, of this segment file.
fn read_in(
    segments: &Segments,
    file: &dyn File,
    pieces: &impl ChecksummedPieces,
    at: u64,
    buf: &mut [u8],
) -> Result<Option<Mismatch>> {
    let end = at + buf.len() as u64;
    let (first, last) = (pieces.piece_of(at), pieces.piece_of(end - 1));
    // Pieces cut by the wanted range go through a buffer, whole pieces straight into `buf`; all of them
    // come from the disk together and in order, so that the kernel sees a stream and reads ahead.
    let (head, tail) = (pieces.piece(first), pieces.piece(last));
    let cut_head = head.start < at || (first == last && end < head.end);
    let cut_tail = first != last && end < tail.end;
    let cut =
        |is_cut: bool, piece: &Range<u64>| is_cut.then(|| CutPiece::new(piece.end - piece.start));
    let (mut head_bytes, mut tail_bytes) = (cut(cut_head, &head), cut(cut_tail, &tail));
    let whole =
        if cut_head { head.end.min(end) } else { at }..if cut_tail { tail.start } else { end };
    let mut middle = &mut buf[(whole.start - at) as usize..(whole.end - at) as usize];
    for step in steps(pieces, &(head.start..tail.end)) {
        let here = step.start.max(whole.start)..step.end.min(whole.end);
        let (target, rest) = middle.split_at_mut(here.end.saturating_sub(here.start) as usize);
        middle = rest;
        let mut parts = [&mut [][..], target, &mut []];
        if let Some(cut) = head_bytes.as_mut().filter(|_| step.start == head.start) {
            parts[0] = cut.bytes();
        }
        if let Some(cut) = tail_bytes.as_mut().filter(|_| step.end == tail.end) {
            parts[2] = cut.bytes();
        }
        if let Some(bad) = read_pieces(segments, file, pieces, &step, &mut parts)? {
            return Ok(Some(bad));
        }
    }
    if let Some(cut) = &mut head_bytes {
        let n = (head.end.min(end) - at) as usize;
        let from = (at - head.start) as usize;
        buf[..n].copy_from_slice(&cut.bytes()[from..from + n]);
    }
    if let Some(cut) = &mut tail_bytes {
        let n = (end - tail.start) as usize;
        let from = buf.len() - n;
        buf[from..].copy_from_slice(&cut.bytes()[..n]);
    }
    Ok(None)
}

/// Buffer for parts that are read together, allocated at first use.
pub struct CoalescedReadBuffer<'a> {
    pool: &'a BufferPool,
    buffer: Option<PooledBuffer>,
}

impl CoalescedReadBuffer<'_> {
    /// Nothing is taken yet.
    pub fn of(pool: &BufferPool) -> CoalescedReadBuffer<'_> {
        CoalescedReadBuffer { pool, buffer: None }
    }

    /// Another one of the same pool.
    pub fn another(&self) -> Self {
        CoalescedReadBuffer {
            pool: self.pool,
            buffer: None,
        }
    }

    /// A buffer of `len` bytes, with any content.
    pub fn bytes(&mut self, len: usize) -> &mut [u8] {
        let is_enough = self
            .buffer
            .as_ref()
            .is_some_and(|buffer| buffer.len() >= len);
        if !is_enough {
            self.buffer = None;
        }
        let pool = self.pool;
        let take = || pool.take(len.max(2 * VERIFY_STEP as usize));
        &mut self.buffer.get_or_insert_with(take)[..len]
    }
}

/// Positions that are wanted, and where their bytes go.
pub struct WantedPart<'a> {
    /// The position of the first byte.
    pub at: u64,
    /// As many as it holds, not none.
    pub into: &'a mut [u8],
}

impl WantedPart<'_> {
    /// The position after the last byte.
    pub fn end(&self) -> u64 {
        self.at + self.into.len() as u64
    }
}

/// Reads parts, sorted by position, as `read` does. Parts near each other are read together with the bytes between them.
pub fn read_parts(
    segments: &Segments,
    pieces: &impl ChecksummedPieces,
    buffer: &mut CoalescedReadBuffer<'_>,
    parts: &mut [WantedPart<'_>],
) -> Result<Option<Mismatch>> {
    let Some(part) = parts.first() else {
        return Ok(None);
    };
    let Some(file) = segments.file(pieces.segment())? else {
        return Ok(Some(Mismatch::missing(pieces.piece_of(part.at))));
    };
    let mut first = 0;
    while first < parts.len() {
        let (start, mut last) = (parts[first].at, first);
        while let Some(next) = parts.get(last + 1)
            && next.at >= parts[last].end()
            && next.at - parts[last].end() <= READ_OVER_BYTES
            && next.end() - start <= VERIFY_STEP
        {
            last += 1;
        }
        let near = &mut parts[first..=last];
        let bad = match near {
            [one] => read_in(segments, &*file, pieces, one.at, one.into)?,
            near => read_near(segments, &*file, pieces, buffer, near)?,
        };
        if bad.is_some() {
            return Ok(bad);
        }
        first = last + 1;
    }
    Ok(None)
}

/// Reads parts that lie near each other in one call, and verifies the pieces that they touch.
fn read_near(
    segments: &Segments,
    file: &dyn File,
    pieces: &impl ChecksummedPieces,
    buffer: &mut CoalescedReadBuffer<'_>,
    parts: &mut [WantedPart<'_>],
) -> Result<Option<Mismatch>> {
    let (Some(start), Some(end)) = (parts.first().map(|p| p.at), parts.last().map(|p| p.end()))
    else {
        return Ok(None);
    };
    let first = pieces.piece_of(start);
    let from = pieces.segment_offset(pieces.piece(first).start);
    let to = pieces.segment_offset(pieces.piece(pieces.piece_of(end - 1)).end - 1) + 1;
    let buffer = buffer.bytes((to - from) as usize);
    let n = read_at(segments, pieces, file, from, buffer)?;
    let place = |at: u64| (pieces.segment_offset(at) - from) as usize;
    // The last piece that was verified.
    let mut verified = None;
    for part in parts {
        let touched = pieces.piece_of(part.at)..=pieces.piece_of(part.end() - 1);
        for piece in touched {
            if verified.is_some_and(|last| last >= piece) {
                continue;
            }
            let positions = pieces.piece(piece);
            let begin = place(positions.start);
            let stored = begin..begin + (positions.end - positions.start) as usize;
            let found = (stored.end <= n).then(|| forebay_checksum::crc32c(&buffer[stored]));
            if found != Some(pieces.checksum(piece)) {
                return Ok(Some(Mismatch { piece, found }));
            }
            verified = Some(piece);
        }
        let begin = place(part.at);
        part.into
            .copy_from_slice(&buffer[begin..begin + part.into.len()]);
    }
    Ok(None)
}

/// Reads bytes of the segment of `pieces`, unverified. Returns how many there were.
pub fn read_at(
    segments: &Segments,
    pieces: &impl ChecksummedPieces,
    file: &dyn File,
    offset: u64,
    into: &mut [u8],
) -> Result<usize> {
    file.read_at(into, offset)
        .map_err(|e| io_error("read", &segments.path(pieces.segment()), e))
}

/// Whole pieces, each inside one of the parts, in one call.
fn read_pieces(
    segments: &Segments,
    file: &dyn File,
    pieces: &impl ChecksummedPieces,
    range: &Range<u64>,
    parts: &mut [&mut [u8]],
) -> Result<Option<Mismatch>> {
    let mut n = file
        .read_parts_at(parts, pieces.segment_offset(range.start))
        .map_err(|e| io_error("read", &segments.path(pieces.segment()), e))?;
    let mut numbers = pieces.piece_of(range.start)..=pieces.piece_of(range.end - 1);
    for part in parts {
        let mut rest = &part[..part.len().min(n)];
        n -= rest.len();
        let mut left = part.len();
        while left > 0 {
            let Some(piece) = numbers.next() else { break };
            let len = {
                let p = pieces.piece(piece);
                (p.end - p.start) as usize
            };
            if rest.len() < len {
                return Ok(Some(Mismatch::missing(piece)));
            }
            let (bytes, more) = rest.split_at(len);
            let found = forebay_checksum::crc32c(bytes);
            if found != pieces.checksum(piece) {
                return Ok(Some(Mismatch {
                    piece,
                    found: Some(found),
                }));
            }
            rest = more;
            left -= len;
        }
    }
    Ok(None)
}

/// The error that tells of a mismatch. `user`: who has these bytes.
pub fn damage(
    segments: &Segments,
    pieces: &impl ChecksummedPieces,
    user: &str,
    bad: &Mismatch,
) -> Error {
    let path = segments.path(pieces.segment());
    let found = bad
        .found
        .map_or("nothing".to_owned(), |f| format!("{f:08x}"));
    Error::Corrupt(format!(
        "{}: {}{user} at byte {} is damaged (checksum {found}, expected {:08x}); run `forebay fsck`",
        path.display(),
        pieces.describe(bad.piece),
        pieces.segment_offset(pieces.piece(bad.piece).start),
        pieces.checksum(bad.piece),
    ))
}

/// The verified bytes of consecutive whole pieces; `None`: they are damaged or missing.
pub fn read_stored(
    segments: &Segments,
    pieces: &impl ChecksummedPieces,
    range: &Range<u64>,
) -> Result<Option<Vec<u8>>> {
    let mut bytes = vec![0; (range.end - range.start) as usize];
    let bad = read(segments, pieces, range.start, &mut bytes)?;
    Ok(bad.is_none().then_some(bytes))
}

/// Splits `range`, which consists of whole pieces, at piece boundaries near multiples of `VERIFY_STEP`. If there are several parts, none
/// is much smaller than a step.
fn steps(pieces: &impl ChecksummedPieces, range: &Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let end = range.end;
    let cut = move |at: u64| match (at + VERIFY_STEP).next_multiple_of(VERIFY_STEP) {
        near if near + VERIFY_STEP / 2 <= end => pieces.piece(pieces.piece_of(near)).start,
        _ => end,
    };
    let starts = std::iter::successors(Some(range.start), move |at| Some(cut(*at)));
    starts
        .take_while(move |at| *at < end)
        .map(move |at| at..cut(at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::span::{PIECE_BYTES, Span};

    #[test]
    fn steps_cover_a_range_and_are_cut_where_pieces_are() {
        assert_eq!(VERIFY_STEP % PIECE_BYTES, 0);
        for (start, end) in [
            (0, 1),
            (7, VERIFY_STEP),
            (VERIFY_STEP, 2 * VERIFY_STEP),
            (100, 3 * VERIFY_STEP + 5),
            (VERIFY_STEP - 1, 9 * VERIFY_STEP + 5),
        ] {
            let span = Span::of(1, start, &vec![0; (end - start) as usize], 1, 4096);
            let steps: Vec<_> = steps(span.raw().unwrap(), &(start..end)).collect();
            assert_eq!(steps.first().map_or(end, |s| s.start), start);
            assert_eq!(steps.last().map_or(start, |s| s.end), end);
            assert!(
                steps
                    .iter()
                    .all(|s| s.start < s.end && s.end - s.start < 3 * VERIFY_STEP)
            );
            assert!(
                steps
                    .windows(2)
                    .all(|w| w[0].end == w[1].start && w[0].end % VERIFY_STEP == 0)
            );
        }
    }
}
