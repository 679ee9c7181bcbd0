//! Reading the bytes of a span, verified: a byte is handed out only after the checksum of its whole piece was right.
use crate::poison::io_error;
use crate::segment::Segments;
use crate::span::{PIECE_BYTES, Span};
use forebay_proto::{Error, Result};
use forebay_storage::File;
use std::ops::Range;

/// Bytes read before they are verified: few enough to be still in the processor's cache, and while they are verified the
/// disk goes on reading ahead. A multiple of the piece.
const VERIFY_STEP: u64 = 256 << 10;

/// A piece that is not what was written.
pub struct Mismatch {
    piece: usize,
    /// The checksum of what is there. `None`: its bytes are not there.
    found: Option<u32>,
}

/// Reads live bytes of one span and verifies every piece they touch. `Some`: a piece is not what was written.
pub fn read_span(
    segments: &Segments,
    span: &Span,
    at: u64,
    buf: &mut [u8],
) -> Result<Option<Mismatch>> {
    let end = at + buf.len() as u64;
    let (first, last) = (span.piece_of(at), span.piece_of(end - 1));
    let Some(file) = segments.file(span.segment)? else {
        return Ok(Some(Mismatch {
            piece: first,
            found: None,
        }));
    };
    // Pieces cut by the wanted range go through a page on the stack, whole pieces straight into `buf`; all of them
    // come from the disk together and in order, so that the kernel sees a stream and reads ahead.
    let (head, tail) = (span.piece(first), span.piece(last));
    let (mut head_page, mut tail_page) = ([0; PIECE_BYTES as usize], [0; PIECE_BYTES as usize]);
    let cut_head = head.start < at || (first == last && end < head.end);
    let cut_tail = first != last && end < tail.end;
    let whole =
        if cut_head { head.end.min(end) } else { at }..if cut_tail { tail.start } else { end };
    let mut middle = &mut buf[(whole.start - at) as usize..(whole.end - at) as usize];
    for step in steps(&(head.start..tail.end)) {
        let (with_head, with_tail) = (
            cut_head && step.start == head.start,
            cut_tail && step.end == tail.end,
        );
        let here = step.start.max(whole.start)..step.end.min(whole.end);
        let (target, rest) = middle.split_at_mut(here.end.saturating_sub(here.start) as usize);
        middle = rest;
        let mut parts = [&mut [][..], target, &mut []];
        if with_head {
            parts[0] = &mut head_page[..(head.end - head.start) as usize];
        }
        if with_tail {
            parts[2] = &mut tail_page[..(tail.end - tail.start) as usize];
        }
        if let Some(bad) = read_pieces(segments, &*file, span, &step, &mut parts)? {
            return Ok(Some(bad));
        }
    }
    if cut_head {
        let n = (head.end.min(end) - at) as usize;
        let from = (at - head.start) as usize;
        buf[..n].copy_from_slice(&head_page[from..from + n]);
    }
    if cut_tail {
        let n = (end - tail.start) as usize;
        let from = buf.len() - n;
        buf[from..].copy_from_slice(&tail_page[..n]);
    }
    Ok(None)
}

/// Whole pieces, each inside one of the parts, in one call.
fn read_pieces(
    segments: &Segments,
    file: &dyn File,
    span: &Span,
    range: &Range<u64>,
    parts: &mut [&mut [u8]],
) -> Result<Option<Mismatch>> {
    let mut n = file
        .read_parts_at(parts, span.segment_offset(range.start))
        .map_err(|e| io_error("read", &segments.path(span.segment), e))?;
    let mut pieces = span.piece_of(range.start)..=span.piece_of(range.end - 1);
    for part in parts {
        let mut rest = &part[..part.len().min(n)];
        n -= rest.len();
        let mut left = part.len();
        while left > 0 {
            let Some(piece) = pieces.next() else { break };
            let len = {
                let p = span.piece(piece);
                (p.end - p.start) as usize
            };
            if rest.len() < len {
                return Ok(Some(Mismatch { piece, found: None }));
            }
            let (bytes, more) = rest.split_at(len);
            let found = crc32c::crc32c(bytes);
            if found != span.crcs[piece] {
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

/// The error that tells of a mismatch, which goes to the log too.
pub fn damage(segments: &Segments, span: &Span, bad: &Mismatch) -> Error {
    let (path, addr) = (segments.path(span.segment), span.piece(bad.piece).start);
    let found = bad
        .found
        .map_or("nothing".to_owned(), |f| format!("{f:08x}"));
    let text = format!(
        "{}: log {} address {addr} at byte {} is damaged (checksum {found}, expected {:08x}); run `forebay fsck`",
        path.display(),
        span.log,
        span.segment_offset(addr),
        span.crcs[bad.piece],
    );
    tracing::error!("{text}");
    Error::Corrupt(text)
}

/// All stored bytes of a span, verified; `None` if they are not what was written, or not there.
pub fn read_stored(segments: &Segments, span: &Span) -> Result<Option<Vec<u8>>> {
    let Some(file) = segments.file(span.segment)? else {
        return Ok(None);
    };
    let mut bytes = vec![0; span.stored_len() as usize];
    let bad = read_pieces(segments, &*file, span, &span.stored, &mut [&mut bytes])?;
    Ok(bad.is_none().then_some(bytes))
}

/// `range` cut at multiples of `VERIFY_STEP`, where pieces are cut, too; no part is much smaller than a step if there are two.
fn steps(range: &Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let end = range.end;
    let cut = move |at: u64| match (at + VERIFY_STEP).next_multiple_of(VERIFY_STEP) {
        cut if cut + VERIFY_STEP / 2 <= end => cut,
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

    #[test]
    fn steps_cover_a_range_and_are_cut_where_pieces_are() {
        assert_eq!(VERIFY_STEP % PIECE_BYTES, 0);
        for (start, end) in [
            (0, 1),
            (7, VERIFY_STEP),
            (VERIFY_STEP, 2 * VERIFY_STEP),
            (100, 3 * VERIFY_STEP + 5),
            (VERIFY_STEP - 1, 9 * VERIFY_STEP + 5),
            (9, 9),
        ] {
            let steps: Vec<_> = steps(&(start..end)).collect();
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
