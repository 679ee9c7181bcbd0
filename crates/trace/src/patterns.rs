//! What an index of a trace's calls would hold: the seam between traces and whatever finds patterns in them.
//!
//! A *stream* is what one rank did to one file, reads and writes apart, in its order: what one log of the file system gets. The
//! finder sees one stream at a time and knows nothing of traces; this knows nothing of how patterns are found.

use crate::{Kind, NO_OFFSET, Trace};
use serde::Serialize;
use std::collections::BTreeMap;

/// Bytes of an index entry without patterns: file, offset, length, log, address and sequence in 8 bytes each.
pub const RAW_ENTRY: u64 = 48;
/// Streams that are described one by one.
const DESCRIBED: usize = 20;

/// What one rank did to one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stream {
    /// The rank.
    pub rank: u32,
    /// Index into [`Trace::files`].
    pub file: u32,
    /// Reads or writes.
    pub kind: Kind,
    /// Offset and length of each call, in order; none empty.
    pub extents: Vec<(u64, u64)>,
}

/// What was found in a stream.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Found {
    /// Patterns.
    pub patterns: u64,
    /// Bytes they are written in.
    pub encoded: u64,
    /// The same for people, such as `512 x [256 Ki x 4 KiB stride 2 MiB]`.
    pub shown: String,
}

/// What was found in one stream of a report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StreamPatterns {
    /// The rank.
    pub rank: u32,
    /// The file's name.
    pub file: String,
    /// Reads or writes.
    pub kind: Kind,
    /// Calls.
    pub extents: u64,
    /// Patterns that stand for them.
    pub patterns: u64,
    /// The patterns for people.
    pub shown: String,
}

/// What was found in a trace.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct PatternStats {
    /// Streams.
    pub streams: u64,
    /// Their calls.
    pub extents: u64,
    /// Patterns that stand for them.
    pub patterns: u64,
    /// Bytes of an entry a call.
    pub raw_bytes: u64,
    /// Bytes of the patterns.
    pub encoded_bytes: u64,
    /// The streams with the most calls.
    pub largest: Vec<StreamPatterns>,
}

impl PatternStats {
    /// How many times fewer bytes the patterns take.
    pub fn compression(&self) -> f64 {
        self.raw_bytes as f64 / self.encoded_bytes.max(1) as f64
    }
}

/// The streams of a trace, by file, kind and rank. Calls without length or known offset are left out.
pub fn streams(trace: &Trace) -> Vec<Stream> {
    let mut streams: BTreeMap<(u32, bool, u32), Stream> = BTreeMap::new();
    for op in &trace.ops {
        if op.len == 0 || op.offset == NO_OFFSET {
            continue;
        }
        let key = (op.file, op.kind == Kind::Read, op.rank);
        let stream = streams.entry(key).or_insert_with(|| Stream {
            rank: op.rank,
            file: op.file,
            kind: op.kind,
            extents: Vec::new(),
        });
        stream.extents.push((op.offset, op.len));
    }
    streams.into_values().collect()
}

/// Looks for patterns in every stream of a trace.
pub fn discover(trace: &Trace, mut find: impl FnMut(&Stream) -> Found) -> PatternStats {
    let mut stats = PatternStats::default();
    for stream in streams(trace) {
        let found = find(&stream);
        let extents = stream.extents.len() as u64;
        stats.streams += 1;
        stats.extents += extents;
        stats.patterns += found.patterns;
        stats.raw_bytes += extents * RAW_ENTRY;
        stats.encoded_bytes += found.encoded;
        let name = trace.files.get(stream.file as usize);
        stats.largest.push(StreamPatterns {
            rank: stream.rank,
            file: name.cloned().unwrap_or_default(),
            kind: stream.kind,
            extents,
            patterns: found.patterns,
            shown: found.shown,
        });
        if stats.largest.len() >= 8 * DESCRIBED {
            keep_largest(&mut stats.largest);
        }
    }
    keep_largest(&mut stats.largest);
    stats
}

fn keep_largest(streams: &mut Vec<StreamPatterns>) {
    // Stable: of equal ones the first ranks stay.
    streams.sort_by_key(|stream| std::cmp::Reverse(stream.extents));
    streams.truncate(DESCRIBED);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload;

    #[test]
    fn a_stream_is_one_ranks_calls_of_one_kind_on_one_file() {
        let trace = workload::parse("ior-strided:ranks=3,size=10,calls=5")
            .unwrap()
            .trace();
        let streams = streams(&trace);
        let writes: Vec<_> = streams.iter().filter(|s| s.kind == Kind::Write).collect();
        assert_eq!(writes.len(), 3);
        for (rank, stream) in (0u64..).zip(&writes) {
            assert_eq!(u64::from(stream.rank), rank);
            let expected: Vec<(u64, u64)> = (0..5).map(|i| ((i * 3 + rank) * 10, 10)).collect();
            assert_eq!(stream.extents, expected);
        }
    }

    #[test]
    fn what_is_found_is_added_up_and_compared_with_raw_entries() {
        let trace = workload::parse("ior-strided:ranks=30,size=10,calls=5")
            .unwrap()
            .trace();
        let find = |stream: &Stream| Found {
            patterns: 1,
            encoded: 12,
            shown: format!("{} x 10 B", stream.extents.len()),
        };
        let stats = discover(&trace, find);
        assert_eq!(
            (stats.extents, stats.raw_bytes),
            (stats.streams * 5, stats.streams * 240)
        );
        assert_eq!(
            (stats.patterns, stats.encoded_bytes),
            (stats.streams, stats.streams * 12)
        );
        assert_eq!(stats.compression(), 20.0);
        assert_eq!(stats.largest.len(), 20);
        assert_eq!(stats.largest[0].shown, "5 x 10 B");
    }
}
