//! Checks which log bytes of one member can be read: that its segment files are there and long enough and, if asked, that
//! checksums are right.
use super::{ByteCheck, MemberPaths};
use crate::segment_files::SegmentFiles;
use forebay_data::span::{Span, checksums};
use forebay_storage::Io;
use std::ops::Range;

/// See the head of this file.
pub struct LogBytes<'a> {
    files: Option<SegmentFiles<'a>>,
    byte_check: ByteCheck,
    buffer: Vec<u8>,
}

impl<'a> LogBytes<'a> {
    /// Those of the member's segment files.
    pub fn new(io: &'a dyn Io, source: &'a MemberPaths, byte_check: ByteCheck) -> LogBytes<'a> {
        let data = source.data.as_deref();
        LogBytes {
            files: data.map(|data| SegmentFiles::new(io, data)),
            byte_check,
            buffer: Vec::new(),
        }
    }

    /// Live addresses of the span whose bytes are not what was written.
    pub fn damaged(&mut self, span: &Span) -> Vec<Range<u64>> {
        let Some(files) = &mut self.files else {
            return vec![span.live.clone()];
        };
        // One that cannot be opened holds nothing.
        let file = files.get(span.segment).ok().flatten();
        let len = file.as_ref().and_then(|file| file.len().ok());
        let end = len.unwrap_or(0).saturating_sub(u64::from(span.offset));
        let end = end.min(span.stored_len());
        // A piece of which the end is missing cannot be verified.
        let pieces = (0..span.crcs.len()).map(|i| (span.piece(i), span.crcs[i]));
        let there = |piece: &Range<u64>| piece.end - span.stored.start <= end;
        let bad: Vec<Range<u64>> = match self.byte_check {
            ByteCheck::Lengths => pieces.map(|(p, _)| p).filter(|p| !there(p)).collect(),
            ByteCheck::Bytes => {
                self.buffer.clear();
                self.buffer.resize(end as usize, 0);
                let read = file.map(|file| file.read_at(&mut self.buffer, u64::from(span.offset)));
                if let Some(Err(_)) = read {
                    self.buffer.fill(0);
                }
                let found = checksums(span.stored.start, &self.buffer);
                let right = |i: usize, crc: u32| found.get(i) == Some(&crc);
                let all = pieces.enumerate();
                all.filter(|(i, (p, crc))| !there(p) || !right(*i, *crc))
                    .map(|(_, (p, _))| p)
                    .collect()
            }
        };
        let live = |p: Range<u64>| p.start.max(span.live.start)..p.end.min(span.live.end);
        bad.into_iter()
            .map(live)
            .filter(|r| !r.is_empty())
            .collect()
    }
}
