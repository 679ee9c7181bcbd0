//! The streams of extents that an index would hold for a trace's calls: the interface between traces and a pattern finder.
//!
//! A *group* is what all ranks did to one file, reads and writes separately. A *stream* is one rank's part of a group, in the
//! rank's order: what one log of the file system would hold. The finder sees one group at a time and knows nothing of traces; this
//! module knows nothing of how patterns are found.

use crate::{Kind, NO_OFFSET, Op, Trace};
use serde::Serialize;
use std::collections::BTreeMap;

/// Bytes of an index entry without patterns: file, offset, length, log, address and sequence in 8 bytes each.
pub const RAW_ENTRY: u64 = 48;

/// What all ranks did to one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallGroup {
    /// Index into [`Trace::files`].
    pub file: u32,
    /// Reads or writes.
    pub kind: Kind,
    /// By rank: offset and length of each call, in order; none empty.
    pub streams: BTreeMap<u32, Vec<(u64, u64)>>,
}

/// What was found in a group.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FoundPatterns {
    /// Patterns.
    pub patterns: u64,
    /// Bytes they are written in.
    pub encoded: u64,
    /// The first ones for people, such as `512 x [256 Ki x 4 KiB stride 2 MiB]`.
    pub shown: Vec<String>,
}

/// What was found in one group of a report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GroupPatterns {
    /// The file's name.
    pub file: String,
    /// Reads or writes.
    pub kind: Kind,
    /// Ranks that took part.
    pub ranks: u64,
    /// Calls.
    pub extents: u64,
    /// Patterns that stand for them.
    pub patterns: u64,
    /// Bytes of an entry a call.
    pub raw_bytes: u64,
    /// Bytes of the patterns.
    pub encoded_bytes: u64,
    /// The first patterns for people.
    pub shown: Vec<String>,
}

/// What was found in a trace; the group with the most calls first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct PatternStats {
    /// By file, reads and writes apart.
    pub groups: Vec<GroupPatterns>,
    /// Of all groups.
    pub extents: u64,
    /// Of all groups.
    pub patterns: u64,
    /// Of all groups.
    pub raw_bytes: u64,
    /// Of all groups.
    pub encoded_bytes: u64,
}

impl PatternStats {
    /// How many times fewer bytes the patterns take.
    pub fn compression(&self) -> f64 {
        self.raw_bytes as f64 / self.encoded_bytes.max(1) as f64
    }
}

/// The groups of these calls, by file, writes first. Calls without length or known offset are left out.
pub fn groups(ops: impl IntoIterator<Item = Op>) -> Vec<CallGroup> {
    let mut groups: BTreeMap<(u32, bool), CallGroup> = BTreeMap::new();
    for op in ops {
        if op.len == 0 || op.offset == NO_OFFSET {
            continue;
        }
        let key = (op.file, op.kind == Kind::Read);
        let group = groups.entry(key).or_insert_with(|| CallGroup {
            file: op.file,
            kind: op.kind,
            streams: BTreeMap::new(),
        });
        let stream = group.streams.entry(op.rank).or_default();
        stream.push((op.offset, op.len));
    }
    groups.into_values().collect()
}

/// Looks for patterns in every group of a trace.
pub fn discover(trace: &Trace, mut find: impl FnMut(&CallGroup) -> FoundPatterns) -> PatternStats {
    let mut stats = PatternStats::default();
    for group in groups(trace.ops.iter().copied()) {
        let found = find(&group);
        let extents = group.streams.values().map(|s| s.len() as u64).sum();
        let name = trace.files.get(group.file as usize);
        let found = GroupPatterns {
            file: name.cloned().unwrap_or_default(),
            kind: group.kind,
            ranks: group.streams.len() as u64,
            extents,
            patterns: found.patterns,
            raw_bytes: extents * RAW_ENTRY,
            encoded_bytes: found.encoded,
            shown: found.shown,
        };
        stats.extents += found.extents;
        stats.patterns += found.patterns;
        stats.raw_bytes += found.raw_bytes;
        stats.encoded_bytes += found.encoded_bytes;
        stats.groups.push(found);
    }
    stats
        .groups
        .sort_by_key(|group| std::cmp::Reverse(group.extents));
    stats
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload;

    fn trace() -> Trace {
        let spec = "ior-strided:ranks=3,size=10,calls=5";
        workload::parse(spec).unwrap().trace()
    }

    #[test]
    fn a_group_has_what_each_rank_did_to_a_file() {
        let groups = groups(trace().ops);
        let kinds: Vec<Kind> = groups.iter().map(|g| g.kind).collect();
        assert_eq!(kinds, [Kind::Write, Kind::Read]);
        for (rank, stream) in (0u64..).zip(groups[0].streams.values()) {
            let expected: Vec<(u64, u64)> = (0..5).map(|i| ((i * 3 + rank) * 10, 10)).collect();
            assert_eq!(stream, &expected);
        }
    }

    #[test]
    fn what_is_found_is_added_up_and_compared_with_raw_entries() {
        let find = |group: &CallGroup| FoundPatterns {
            patterns: 1,
            encoded: 12,
            shown: vec![format!("{} x [5 x 10 B stride 30 B]", group.streams.len())],
        };
        let stats = discover(&trace(), find);
        assert_eq!((stats.extents, stats.raw_bytes), (30, 1440));
        assert_eq!((stats.patterns, stats.encoded_bytes), (2, 24));
        assert_eq!(stats.compression(), 60.0);
        assert_eq!(stats.groups[1].shown, ["3 x [5 x 10 B stride 30 B]"]);
    }
}
