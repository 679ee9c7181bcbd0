//! Holds raw spans that were read, and cuts their bytes into chunks.
//!
//! The grid of chunks continues over spans that follow each other in a log, so a chunk may lie in several spans.
use crate::chunk::{Chunk, Cutter};
use crate::container::encoder::RawOrigin;
use crate::fingerprint::{Fingerprint, FingerprintBatch, FingerprintKind};
use crate::pieces::ChecksummedPieces;
use crate::span::Span;
use std::ops::Range;

/// Shorter chunks are stored without a lookup: the records of a shared one would take about as much space.
const MIN_SHARED_BYTES: usize = 512;

/// A chunk of the bytes that were read.
pub struct CutChunk {
    /// Its place in [`ReadSpans::bytes`].
    pub at: Range<usize>,
    /// `None`: zeros, or too short to be looked up.
    pub fingerprint: Option<Fingerprint>,
    /// All of it is zero.
    pub zero: bool,
}

/// A raw span that was read.
pub struct ReadSpan {
    /// The span.
    pub span: Span,
    /// The place of its live bytes in [`ReadSpans::bytes`].
    pub at: Range<usize>,
    /// The chunks that have a byte of it, once cut.
    pub chunks: Range<usize>,
}

/// Spans that were read together, in the order of their logs and addresses.
#[derive(Default)]
pub struct ReadSpans {
    /// Buffer for the live bytes of all spans, one after the other. Kept between two uses, so it may be longer than these.
    bytes: Vec<u8>,
    /// The spans.
    pub spans: Vec<ReadSpan>,
    /// The chunks, which hold all bytes, in order.
    pub chunks: Vec<CutChunk>,
}

impl ReadSpans {
    /// Removes all spans; keeps the memory.
    pub fn clear(&mut self) {
        self.spans.clear();
        self.chunks.clear();
    }

    /// Removes all spans and frees the memory.
    pub fn shrink(&mut self) {
        self.clear();
        self.bytes = Vec::new();
    }

    /// The length of all spans.
    fn used(&self) -> usize {
        self.spans.last().map_or(0, |s| s.at.end)
    }

    /// The live bytes of all spans, one after the other.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.used()]
    }

    /// The buffer for the bytes of the next span.
    pub fn room(&mut self, len: u64) -> &mut [u8] {
        let used = self.used();
        let end = used + len as usize;
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        &mut self.bytes[used..end]
    }

    /// Adds a span, whose live bytes were read into [`ReadSpans::room`].
    pub fn push(&mut self, span: Span) {
        let start = self.used();
        self.spans.push(ReadSpan {
            at: start..start + span.live_len() as usize,
            span,
            chunks: 0..0,
        });
    }

    /// Cuts the bytes of all spans; each log with a new cutter.
    pub fn cut(&mut self, cutter: impl Fn() -> Cutter, kind: FingerprintKind) {
        let chunks = &mut self.chunks;
        let mut fingerprints = FingerprintBatch::new(kind, &self.bytes);
        // Chunks come in the order of the bytes that are pushed, and hold all of them.
        let mut add = |chunk: Chunk<'_>| {
            let start = chunks.last().map_or(0, |c: &CutChunk| c.at.end);
            let shared = !chunk.zero && chunk.bytes.len() >= MIN_SHARED_BYTES;
            let at = start..start + chunk.bytes.len();
            chunks.push(CutChunk {
                at: at.clone(),
                fingerprint: None,
                zero: chunk.zero,
            });
            if shared {
                let number = chunks.len() - 1;
                fingerprints.push(number, at, |i, found| set_fingerprint(chunks, i, found));
            }
        };
        for spans in self.spans.chunk_by(|a, b| a.span.log == b.span.log) {
            let mut cutter = cutter();
            for s in spans {
                cutter.push(s.span.live.start, &self.bytes[s.at.clone()], &mut add);
            }
            cutter.finish(&mut add);
        }
        fingerprints.finish(|i, found| set_fingerprint(chunks, i, found));
        let mut first = 0;
        for s in &mut self.spans {
            let last = |i: usize| self.chunks.get(i).is_some_and(|c| c.at.end < s.at.end);
            let mut end = first;
            while last(end) {
                end += 1;
            }
            s.chunks = first..(end + 1).min(self.chunks.len());
            let goes_on = self.chunks.get(end).is_some_and(|c| c.at.end > s.at.end);
            first = if goes_on { end } else { end + 1 };
        }
    }

    /// CRC32C of a chunk of this span. If the chunk is exactly one piece of the raw bytes, the piece's checksum is reused.
    pub fn checksum(&self, span: &ReadSpan, chunk: &CutChunk) -> u32 {
        let known = span
            .span
            .raw()
            .filter(|_| span.holds(chunk))
            .and_then(|raw| {
                let addr = span.span.live.start + (chunk.at.start - span.at.start) as u64;
                let piece = raw.piece_of(addr);
                let is_piece = raw.piece(piece) == (addr..addr + chunk.at.len() as u64);
                is_piece.then(|| raw.checksum(piece))
            });
        known.unwrap_or_else(|| forebay_checksum::crc32c(&self.bytes()[chunk.at.clone()]))
    }
}

fn set_fingerprint(chunks: &mut [CutChunk], i: usize, found: Fingerprint) {
    chunks[i].fingerprint = Some(found);
}

impl ReadSpan {
    /// Where the bytes from this place in [`ReadSpans::bytes`] on come from. A chunk that begins in the span before is from the same
    /// log.
    pub fn origin(&self, at: usize) -> RawOrigin {
        let addr = self.span.live.start + at as u64 - self.at.start as u64;
        let hint = self
            .span
            .raw()
            .map_or_else(Default::default, |raw| raw.hint);
        RawOrigin {
            log: self.span.log,
            addr,
            hint: hint.into(),
        }
    }

    /// Which bytes of the chunk are in this span, counted from the chunk's first one.
    pub fn part(&self, chunk: &CutChunk) -> Range<usize> {
        let (start, end) = (
            self.at.start.max(chunk.at.start),
            self.at.end.min(chunk.at.end),
        );
        start - chunk.at.start..end - chunk.at.start
    }

    /// Whether all of the chunk is in this span.
    pub fn holds(&self, chunk: &CutChunk) -> bool {
        self.part(chunk) == (0..chunk.at.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunk::{AnchorTable, ChunkSize};
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use std::sync::Arc;

    proptest! {
        #[test]
        fn chunks_hold_every_byte_and_each_span_knows_those_that_have_a_byte_of_it(
            mut spans in prop::collection::vec((0u64..3, 0u64..2000, 1usize..30_000, any::<bool>()), 1..12),
            anchored in any::<bool>(),
        ) {
            let (mut read, mut next) = (ReadSpans::default(), BTreeMap::new());
            spans.sort_by_key(|s| s.0);
            for (log, gap, len, zero) in spans {
                let at = next.entry(log).or_insert(0);
                *at += gap / 1000 * gap;
                let bytes: Vec<u8> = (0..len).map(|i| if zero { 0 } else { (i * 7 % 251) as u8 + 1 }).collect();
                read.room(len as u64).copy_from_slice(&bytes);
                read.push(Span::of(log, *at, &bytes, 1, 4096));
                *at += len as u64;
            }
            let cutter = || match anchored {
                true => Cutter::anchored(Arc::new(AnchorTable::new(ChunkSize::MIN, 1 << 16))),
                false => Cutter::fixed(ChunkSize::MIN),
            };
            read.cut(cutter, FingerprintKind::Blake3);
            let mut at = 0;
            for chunk in &read.chunks {
                let bytes = &read.bytes()[chunk.at.clone()];
                prop_assert_eq!(chunk.at.start, at);
                prop_assert!(!bytes.is_empty() && bytes.len() <= ChunkSize::MIN.bytes());
                prop_assert!(!chunk.zero || bytes.iter().all(|b| *b == 0));
                let is_shared = !chunk.zero && bytes.len() >= MIN_SHARED_BYTES;
                prop_assert_eq!(chunk.fingerprint.is_some(), is_shared);
                if let Some(fingerprint) = chunk.fingerprint {
                    prop_assert_eq!(fingerprint, FingerprintKind::Blake3.of(bytes));
                }
                at = chunk.at.end;
            }
            prop_assert_eq!(at, read.bytes().len());
            for s in &read.spans {
                for chunk in &read.chunks[s.chunks.clone()] {
                    let crc = forebay_checksum::crc32c(&read.bytes()[chunk.at.clone()]);
                    prop_assert_eq!(read.checksum(s, chunk), crc);
                }
                let mut at = s.at.start;
                for chunk in &read.chunks[s.chunks.clone()] {
                    let part = s.part(chunk);
                    prop_assert_eq!(chunk.at.start + part.start, at);
                    at = chunk.at.start + part.end;
                }
                prop_assert_eq!(at, s.at.end);
            }
        }
    }
}
