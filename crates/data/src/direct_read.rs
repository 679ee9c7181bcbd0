//! Raw log bytes that another process of this machine reads from the segment files itself: where they lie, and how it verifies them.
//!
//! It saves the two copies of a reply. The reader is of the same user, who may open these files anyway.
//!
//! Invariant: bytes are handed out only after the checksum of their whole piece was right. A byte of a segment is written once, and
//! numbers of segments are not used again while the server runs: so bytes that were moved or freed since are a mismatch, a hole or missing,
//! and never another log's. The reader then asks the server for the bytes themselves.
use crate::LogStore;
use crate::pieces::ChecksummedPieces;
use crate::poison::io_error;
use crate::read::LogReader;
use crate::span::{PIECE_BYTES, RawBytes, SpanBytes};
use forebay_proto::{LogId, Result};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

/// Bytes that are read before they are verified: few enough to be still in the processor's cache.
const STEP_BYTES: usize = 256 << 10;

/// Raw bytes that lie together in a segment file, and the pieces that they touch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredRun {
    /// The segment file.
    pub segment: u32,
    /// Where the first piece begins in it.
    offset: u64,
    /// Bytes of the first piece; the others have 4 KiB, but the last, which may be shorter.
    first: u32,
    /// Bytes of all pieces.
    stored: u32,
    /// Where the wanted bytes begin in the first piece.
    skip: u32,
    /// How many are wanted.
    pub len: u32,
    /// CRC32C of each piece.
    checksums: Vec<u32>,
}

impl StoredRun {
    /// Of addresses that `raw` holds. `None`: there are none, or more than a request may have.
    fn of(raw: &RawBytes, addresses: &Range<u64>) -> Option<StoredRun> {
        if addresses.is_empty() {
            return None;
        }
        let pieces = raw.piece_of(addresses.start)..raw.piece_of(addresses.end - 1) + 1;
        let (first, last) = (raw.piece(pieces.start), raw.piece(pieces.end - 1));
        Some(StoredRun {
            segment: raw.segment,
            offset: raw.segment_offset(first.start),
            first: (first.end - first.start) as u32,
            stored: u32::try_from(last.end - first.start).ok()?,
            skip: (addresses.start - first.start) as u32,
            len: (addresses.end - addresses.start) as u32,
            checksums: raw.crcs[pieces].into(),
        })
    }

    /// Bytes of piece `i`, counted from the first one's begin.
    fn piece(&self, i: usize) -> Range<usize> {
        let (first, stored) = (self.first as usize, self.stored as usize);
        let end = |i: usize| (first + i * PIECE_BYTES as usize).min(stored);
        match i.checked_sub(1) {
            None => 0..end(0),
            Some(before) => end(before)..end(i),
        }
    }

    /// Whether its numbers fit together: it may have come from another process.
    pub fn is_sound(&self) -> bool {
        let (first, stored) = (u64::from(self.first), u64::from(self.stored));
        let pieces = 1 + stored.saturating_sub(first).div_ceil(PIECE_BYTES);
        let wanted = u64::from(self.skip) + u64::from(self.len);
        let is_first = first > 0 && first <= PIECE_BYTES && first <= stored;
        let ends = self.offset.checked_add(stored).is_some();
        is_first && ends && self.checksums.len() as u64 == pieces && wanted <= stored
    }

    /// The number of the piece with this byte, counted from the first one's begin.
    fn piece_of(&self, at: usize) -> usize {
        match at.checked_sub(self.first as usize) {
            None => 0,
            Some(behind) => 1 + behind / PIECE_BYTES as usize,
        }
    }

    /// Memory that it takes, bytes.
    pub fn memory(&self) -> usize {
        size_of::<StoredRun>() + size_of_val(&self.checksums[..])
    }

    /// Reads some of the wanted bytes, from the `from`th on, from the segment file, verified. `false`: they are not there any more, or
    /// damaged; `into` then has any bytes.
    ///
    /// # Errors
    /// As the disk.
    pub fn read(&self, file: &File, from: u32, into: &mut [u8]) -> io::Result<bool> {
        let end = u64::from(from) + into.len() as u64;
        if !self.is_sound() || into.is_empty() || end > u64::from(self.len) {
            return Ok(false);
        }
        let start = self.skip as usize + from as usize;
        let wanted = start..start + into.len();
        let mut edge = [0; PIECE_BYTES as usize];
        let mut i = self.piece_of(wanted.start);
        while i < self.checksums.len() && self.piece(i).start < wanted.end {
            let piece = self.piece(i);
            if piece.start < wanted.start || piece.end > wanted.end {
                // Cut by the wanted range: read aside.
                let edge = &mut edge[..piece.len()];
                if !read_at(file, edge, self.offset + piece.start as u64)?
                    || forebay_checksum::crc32c(edge) != self.checksums[i]
                {
                    return Ok(false);
                }
                let (from, to) = (piece.start.max(wanted.start), piece.end.min(wanted.end));
                if from < to {
                    let part = &edge[from - piece.start..to - piece.start];
                    into[from - wanted.start..to - wanted.start].copy_from_slice(part);
                }
                i += 1;
                continue;
            }
            // Whole pieces go straight to their place.
            let mut end = i;
            while end < self.checksums.len()
                && self.piece(end).end <= wanted.end
                && self.piece(end).end - piece.start <= STEP_BYTES
            {
                end += 1;
            }
            let bytes = piece.start..self.piece(end - 1).end;
            let place = &mut into[bytes.start - wanted.start..bytes.end - wanted.start];
            if !read_at(file, place, self.offset + bytes.start as u64)? {
                return Ok(false);
            }
            for (n, checksum) in self.checksums[i..end].iter().enumerate() {
                let piece = self.piece(i + n);
                let stored = &place[piece.start - bytes.start..piece.end - bytes.start];
                if forebay_checksum::crc32c(stored) != *checksum {
                    return Ok(false);
                }
            }
            i = end;
        }
        Ok(true)
    }
}

/// Fills `buf`. `false`: the file ends before.
fn read_at(file: &File, buf: &mut [u8], offset: u64) -> io::Result<bool> {
    match file.read_exact_at(buf, offset) {
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        read => read.map(|()| true),
    }
}

impl LogReader {
    /// See [`LogStore::locate`].
    fn locate(
        &self,
        log: LogId,
        addresses: Range<u64>,
        most: usize,
    ) -> Result<Option<Vec<StoredRun>>> {
        self.foreground.direct_read();
        let mut runs = Vec::new();
        let mut at = addresses.start;
        while at < addresses.end {
            if runs.len() >= most {
                return Ok(None);
            }
            // What is in memory only, or freed, is for an ordinary read.
            let Ok(None) = self.logs.read_tail(log, at, &mut [0]) else {
                return Ok(None);
            };
            let Some(span) = self.spans.find(log, at)? else {
                return Ok(None);
            };
            let here = at..addresses.end.min(span.live.end);
            let SpanBytes::Raw(raw) = &span.bytes else {
                return Ok(None);
            };
            let Some(run) = StoredRun::of(raw, &here) else {
                return Ok(None);
            };
            runs.push(run);
            at = here.end;
        }
        Ok(Some(runs))
    }
}

impl LogStore {
    /// Where these log addresses lie, in order, if all are raw in segment files, in at most so many runs; `None` if not.
    ///
    /// # Errors
    /// As the store, and `Corrupt` for a broken record.
    pub fn locate(
        &self,
        log: LogId,
        addresses: Range<u64>,
        most: usize,
    ) -> Result<Option<Vec<StoredRun>>> {
        self.reader.locate(log, addresses, most)
    }

    /// A program reads by itself what it was told of before: settling gives way.
    pub fn note_direct_read(&self) {
        self.reader.foreground.direct_read();
    }

    /// A segment file, for reading only.
    ///
    /// # Errors
    /// As the disk; also if it is removed.
    pub fn open_segment(&self, number: u32) -> Result<File> {
        let path = self.reader.segments.path(number);
        File::open(&path).map_err(|e| io_error("open", &path, e))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::span::Span;
    use proptest::prelude::*;
    use std::io::Write;

    /// A segment file with a span from this address on, and that span.
    fn stored(start: u64, len: usize) -> (File, Vec<u8>, Span) {
        let bytes: Vec<u8> = (0..len).map(|i| (i * i / 7 + i) as u8).collect();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[0xEE; 4096]).unwrap();
        file.write_all(&bytes).unwrap();
        (file, bytes.clone(), Span::of(1, start, &bytes, 1, 4096))
    }

    proptest! {
        /// Any part of a span is read as it was written; with a byte of a touched piece changed, it is not read.
        #[test]
        fn parts_are_read_verified(
            start in 0u64..10_000,
            len in 1usize..700_000,
            part in (0.0..1.0, 0.0..1.0),
            within in (0.0..1.0, 0.0..1.0),
            flip in 0.0..1.0,
        ) {
            let (file, bytes, span) = stored(start, len);
            let (a, b) = ((part.0 * len as f64) as usize, (part.1 * len as f64) as usize);
            let (from, to) = (a.min(b), a.max(b).max(a.min(b) + 1).min(len));
            let raw = span.raw().unwrap();
            let addresses = start + from as u64..start + to as u64;
            let run = StoredRun::of(raw, &addresses).unwrap();
            let mut into = vec![0; to - from];
            prop_assert!(run.read(&file, 0, &mut into).unwrap());
            prop_assert!(into == bytes[from..to]);
            let (c, d) = ((within.0 * into.len() as f64) as usize, (within.1 * into.len() as f64) as usize);
            let (c, d) = (c.min(d), c.max(d).max(c.min(d) + 1).min(into.len()));
            let mut some = vec![0; d - c];
            prop_assert!(run.read(&file, c as u32, &mut some).unwrap());
            prop_assert!(some == bytes[from + c..from + d]);
            prop_assert!(!run.read(&file, c as u32 + 1, &mut into).unwrap(), "more than there is");
            let at = run.offset + (flip * f64::from(run.stored)) as u64;
            let at = at.min(run.offset + u64::from(run.stored) - 1);
            let mut byte = [0];
            file.read_exact_at(&mut byte, at).unwrap();
            file.write_all_at(&[!byte[0]], at).unwrap();
            prop_assert!(!run.read(&file, 0, &mut into).unwrap());
            file.set_len(run.offset + u64::from(run.stored) - 1).unwrap();
            prop_assert!(!run.read(&file, 0, &mut into).unwrap());
        }

        /// Whatever another process says, nothing panics.
        #[test]
        fn unsound_runs_are_refused(
            numbers in any::<(u32, u64, u32, u32, u32, u32)>(),
            checksums in prop::collection::vec(any::<u32>(), 0..5),
            small in any::<bool>(),
        ) {
            let (file, ..) = stored(0, 10_000);
            let (segment, offset, first, stored, skip, len) = numbers;
            let most = if small { 9000 } else { u32::MAX };
            let run = StoredRun {
                segment, offset,
                first: first % most,
                stored: stored % most,
                skip: skip % most,
                len: len % most % 100_000,
                checksums,
            };
            let mut into = vec![0; run.len as usize];
            let _ = run.read(&file, 0, &mut into);
            let half = into.len() / 2;
            let _ = run.read(&file, half as u32, &mut into[half..]);
        }
    }
}
