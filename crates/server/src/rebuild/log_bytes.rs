//! Checks which log bytes of one member can be read: that its segment files are there and long enough and, if asked, that
//! checksums are right.
use super::{ByteCheck, MemberRemains};
use forebay_data::segment_header;
use forebay_data::span::{Span, checksums};
use forebay_storage::{File, Io};
use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// See the head of this file.
pub struct LogBytes<'a> {
    io: &'a dyn Io,
    data: Option<&'a Path>,
    byte_check: ByteCheck,
    /// Segment files and their lengths.
    segments: HashMap<u32, (PathBuf, u64)>,
    /// The one that was read last.
    open: Option<(u32, Arc<dyn File>)>,
    buffer: Vec<u8>,
}

impl<'a> LogBytes<'a> {
    /// A directory that cannot be listed has no segment files.
    pub fn new(io: &'a dyn Io, source: &'a MemberRemains, byte_check: ByteCheck) -> LogBytes<'a> {
        let data = source.data.as_deref();
        let listed = data.and_then(|data| io.list(data).ok()).unwrap_or_default();
        let segments = listed.into_iter().filter_map(|entry| {
            let path = data?.join(&entry.name);
            Some((segment_header::number(&entry.name)?, (path, entry.len)))
        });
        LogBytes {
            io,
            data,
            byte_check,
            segments: segments.collect(),
            open: None,
            buffer: Vec::new(),
        }
    }

    /// Live addresses of the span whose bytes are not what was written.
    pub fn damaged(&mut self, span: &Span) -> Vec<Range<u64>> {
        if self.data.is_none() {
            return vec![span.live.clone()];
        }
        let end = match self.segments.get(&span.segment) {
            Some((_, len)) => len
                .saturating_sub(u64::from(span.offset))
                .min(span.stored_len()),
            None => 0,
        };
        // A piece of which the end is missing cannot be verified.
        let pieces = (0..span.crcs.len()).map(|i| (span.piece(i), span.crcs[i]));
        let there = |piece: &Range<u64>| piece.end - span.stored.start <= end;
        let bad: Vec<Range<u64>> = match self.byte_check {
            ByteCheck::Lengths => pieces.map(|(p, _)| p).filter(|p| !there(p)).collect(),
            ByteCheck::Bytes => {
                self.read(span, end);
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

    /// Fills the buffer with the first `end` bytes of the span; with zeros what cannot be read.
    fn read(&mut self, span: &Span, end: u64) {
        self.buffer.clear();
        self.buffer.resize(end as usize, 0);
        let file = match &self.open {
            Some((number, file)) if *number == span.segment => Some(file.clone()),
            _ => {
                let path = self.segments.get(&span.segment).map(|(path, _)| path);
                let file = path.and_then(|path| self.io.open(path).ok());
                self.open = file.clone().map(|file| (span.segment, file));
                file
            }
        };
        if let Some(file) = file
            && file
                .read_at(&mut self.buffer, u64::from(span.offset))
                .is_err()
        {
            self.buffer.fill(0);
        }
    }
}
