//! Reading log bytes, verified.
//!
//! A byte is copied out only after the checksum of its whole piece was right. If a checksum is wrong, the span is looked
//! up once more in the store: a span freed or moved meanwhile explains it (its bytes may be punched away), and only a
//! span that is still the same means damage. So a reader in flight needs no lock against freeing and cleaning.
use super::{
    Inner, LogId,
    quota::io_error,
    spans::{self, PIECE, Span},
};
use crate::{Error, LOST_LOG, Result};
use forebay_storage::File;
use std::ops::Range;
use std::sync::Arc;

/// How often a read follows a span that moves under it. Moving is rare and slow (the cleaner).
const TRIES: usize = 16;

/// Bytes read before they are verified: few enough to be still in the processor's cache, and while they are verified the
/// disk goes on reading ahead. A multiple of the piece.
const STEP: u64 = 256 << 10;

/// A piece whose checksum is not the recorded one.
struct Bad {
    piece: usize,
    found: Option<u32>,
}

impl Inner {
    pub(super) fn gone(&self, log: LogId, addr: u64) -> Error {
        Error::Gone {
            member: self.options.member,
            log,
            addr,
        }
    }

    pub(super) fn read(&self, log: LogId, addr: u64, buf: &mut [u8]) -> Result<()> {
        if log == LOST_LOG {
            return Err(Error::Corrupt(format!(
                "a damaged record held where {} bytes of a file are; the log names it, and `forebay fsck` does",
                buf.len()
            )));
        }
        if addr.checked_add(buf.len() as u64).is_none() {
            return Err(self.gone(log, addr));
        }
        let mut done = 0;
        while done < buf.len() {
            let at = addr + done as u64;
            if let Some(n) = self.read_tail(log, at, &mut buf[done..])? {
                done += n;
                continue;
            }
            done += self.read_spans(log, at, &mut buf[done..])?;
        }
        Ok(())
    }

    /// Copies what the tail holds from `at` on. `None`: `at` is not in a tail.
    fn read_tail(&self, id: LogId, at: u64, buf: &mut [u8]) -> Result<Option<usize>> {
        let Some(log) = self.logs.find(id).filter(|l| at >= l.written()) else {
            return Ok(None);
        };
        let state = log.state.lock();
        if at < state.tail.start() {
            return Ok(None);
        }
        let n = (buf.len() as u64).min(state.tail.end().saturating_sub(at)) as usize;
        if n == 0 {
            return Err(self.gone(id, at));
        }
        state
            .tail
            .read(at, &mut buf[..n])
            .map_err(|addr| self.gone(id, addr))?;
        Ok(Some(n))
    }

    /// Copies what the span that holds `at` has of the wanted bytes; how many.
    fn read_spans(&self, log: LogId, at: u64, buf: &mut [u8]) -> Result<usize> {
        let mut span = match self.cache.get(log, at) {
            Some(span) => span,
            None => self.load(log, at)?,
        };
        for _ in 0..TRIES {
            let n = (buf.len() as u64).min(span.live.end - at) as usize;
            let Some(bad) = self.read_span(&span, at, &mut buf[..n])? else {
                return Ok(n);
            };
            let now = self.load(log, at)?;
            if now == span {
                return Err(self.damage(&span, &bad));
            }
            span = now;
        }
        Err(Error::Corrupt(format!(
            "log {log} address {at}: the span moved {TRIES} times while it was read; read again"
        )))
    }

    /// The span from the store.
    fn load(&self, log: LogId, at: u64) -> Result<Arc<Span>> {
        let epoch = self.cache.epoch(log);
        let span = Arc::new(spans::find(&self.store, log, at)?.ok_or_else(|| self.gone(log, at))?);
        self.cache.keep(epoch, span.clone());
        Ok(span)
    }

    /// Reads live bytes of one span and verifies every piece they touch. `Some`: a piece is not what was written.
    fn read_span(&self, span: &Span, at: u64, buf: &mut [u8]) -> Result<Option<Bad>> {
        let end = at + buf.len() as u64;
        let (first, last) = (span.piece_of(at), span.piece_of(end - 1));
        let Some(file) = self.segments.file(span.segment)? else {
            return Ok(Some(Bad {
                piece: first,
                found: None,
            }));
        };
        // Pieces cut by the wanted range go through a page on the stack, whole pieces straight into `buf`; all of them
        // come from the disk together and in order, so that the kernel sees a stream and reads ahead.
        let (head, tail) = (span.piece(first), span.piece(last));
        let (mut head_page, mut tail_page) = ([0; PIECE as usize], [0; PIECE as usize]);
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
            if let Some(bad) = self.read_pieces(&*file, span, &step, &mut parts)? {
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
        &self,
        file: &dyn File,
        span: &Span,
        range: &Range<u64>,
        parts: &mut [&mut [u8]],
    ) -> Result<Option<Bad>> {
        let mut n = file
            .read_parts_at(parts, span.place(range.start))
            .map_err(|e| io_error("read", &self.segments.path(span.segment), e))?;
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
                    return Ok(Some(Bad { piece, found: None }));
                }
                let (bytes, more) = rest.split_at(len);
                let found = crc32c::crc32c(bytes);
                if found != span.crcs[piece] {
                    return Ok(Some(Bad {
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

    fn damage(&self, span: &Span, bad: &Bad) -> Error {
        let (path, addr) = (
            self.segments.path(span.segment),
            span.piece(bad.piece).start,
        );
        let found = bad
            .found
            .map_or("nothing".to_owned(), |f| format!("{f:08x}"));
        let text = format!(
            "{}: log {} address {addr} at byte {} is damaged (checksum {found}, expected {:08x}); run `forebay fsck`",
            path.display(),
            span.log,
            span.place(addr),
            span.crcs[bad.piece],
        );
        tracing::error!("{text}");
        Error::Corrupt(text)
    }

    /// All stored bytes of a span, verified; `None` if they are not what was written, or not there.
    pub(super) fn read_stored(&self, span: &Span) -> Result<Option<Vec<u8>>> {
        let Some(file) = self.segments.file(span.segment)? else {
            return Ok(None);
        };
        let mut bytes = vec![0; span.stored_len() as usize];
        let bad = self.read_pieces(&*file, span, &span.stored, &mut [&mut bytes])?;
        Ok(bad.is_none().then_some(bytes))
    }
}

/// `range` cut at multiples of `STEP`, where pieces are cut, too; no part is much smaller than a step if there are two.
fn steps(range: &Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let end = range.end;
    let cut = move |at: u64| match (at + STEP).next_multiple_of(STEP) {
        cut if cut + STEP / 2 <= end => cut,
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
        assert_eq!(STEP % PIECE, 0);
        for (start, end) in [
            (0, 1),
            (7, STEP),
            (STEP, 2 * STEP),
            (100, 3 * STEP + 5),
            (STEP - 1, 9 * STEP + 5),
            (9, 9),
        ] {
            let steps: Vec<_> = steps(&(start..end)).collect();
            assert_eq!(steps.first().map_or(end, |s| s.start), start);
            assert_eq!(steps.last().map_or(start, |s| s.end), end);
            assert!(
                steps
                    .iter()
                    .all(|s| s.start < s.end && s.end - s.start < 3 * STEP)
            );
            assert!(
                steps
                    .windows(2)
                    .all(|w| w[0].end == w[1].start && w[0].end % STEP == 0)
            );
        }
    }
}
