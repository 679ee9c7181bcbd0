//! Statistics of a trace: calls, bytes, sizes, access shapes, sharing.
//!
//! A call is *sequential* if it starts where the same rank's last call of the same kind on that file ended, *strided* if
//! instead its distance to that call's start equals the distance before. Calls without length or offset are left out
//! of both, and out of file sizes.

use crate::{Kind, NO_OFFSET, Op, Trace};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;

/// Figures of the calls of one kind.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct KindStats {
    /// Number of calls.
    pub calls: u64,
    /// Calls of no length among them.
    pub empty: u64,
    /// Bytes of all calls.
    pub bytes: u64,
    /// Calls by size: the key is the smallest power of two that is not below the length (0 for empty calls).
    pub sizes: BTreeMap<u64, u64>,
    /// Sequential calls.
    pub sequential: u64,
    /// Strided calls.
    pub strided: u64,
}

impl KindStats {
    fn share(&self, part: u64) -> f64 {
        part as f64 / (self.calls - self.empty).max(1) as f64
    }

    /// Sequential calls, as a part of the calls with length (0 to 1).
    pub fn sequential_share(&self) -> f64 {
        self.share(self.sequential)
    }

    /// Strided calls, likewise.
    pub fn strided_share(&self) -> f64 {
        self.share(self.strided)
    }
}

/// Figures of one file.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct FileStats {
    /// The file's name.
    pub name: String,
    /// Ranks that touched it.
    pub ranks: u64,
    /// Ranks that wrote to it, empty calls included (as Darshan counts).
    pub writers: u64,
    /// Ranks that read from it, likewise.
    pub readers: u64,
    /// Bytes written.
    pub written: u64,
    /// Bytes read.
    pub read: u64,
    /// The end of the last byte touched.
    pub end: u64,
}

/// Figures of a trace.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Stats {
    /// The trace's name.
    pub name: String,
    /// Its number of ranks.
    pub ranks: u32,
    /// Ranks that made a call.
    pub active_ranks: u64,
    /// From the first start to the last end, nanoseconds.
    pub nanos: u64,
    /// All writes.
    pub writes: KindStats,
    /// All reads.
    pub reads: KindStats,
    /// Files that a call touched, by id.
    pub files: Vec<FileStats>,
}

#[derive(Default)]
struct Sharing {
    ranks: BTreeSet<u32>,
    writers: BTreeSet<u32>,
    readers: BTreeSet<u32>,
}

/// A rank's last call of a kind on a file.
struct LastCall {
    offset: u64,
    end: u64,
    distance: Option<u64>,
}

impl Stats {
    /// Figures of `trace`.
    pub fn of(trace: &Trace) -> Stats {
        let mut stats = Stats {
            name: trace.name.clone(),
            ranks: trace.ranks,
            ..Stats::default()
        };
        let mut files: BTreeMap<u32, (FileStats, Sharing)> = BTreeMap::new();
        let mut active = BTreeSet::new();
        let mut lasts = HashMap::new();
        for op in &trace.ops {
            active.insert(op.rank);
            let (file, sharing) = files.entry(op.file).or_default();
            sharing.ranks.insert(op.rank);
            let (kind, bytes, users) = match op.kind {
                Kind::Write => (&mut stats.writes, &mut file.written, &mut sharing.writers),
                Kind::Read => (&mut stats.reads, &mut file.read, &mut sharing.readers),
            };
            kind.calls += 1;
            kind.bytes += op.len;
            *bytes += op.len;
            *kind.sizes.entry(size_class(op.len)).or_default() += 1;
            users.insert(op.rank);
            if op.len == 0 {
                kind.empty += 1;
                continue;
            }
            if op.offset != NO_OFFSET {
                file.end = file.end.max(op.stop());
                kind.place(op, &mut lasts);
            }
        }
        let start = trace.ops.iter().map(|op| op.start).min().unwrap_or(0);
        stats.nanos = trace
            .ops
            .iter()
            .map(|op| op.end)
            .max()
            .unwrap_or(0)
            .saturating_sub(start);
        stats.active_ranks = active.len() as u64;
        stats.files = files
            .into_iter()
            .map(|(id, (file, sharing))| FileStats {
                name: trace.files.get(id as usize).cloned().unwrap_or_default(),
                ranks: sharing.ranks.len() as u64,
                writers: sharing.writers.len() as u64,
                readers: sharing.readers.len() as u64,
                ..file
            })
            .collect();
        stats
    }

    /// Files that more than one rank touched.
    pub fn shared_files(&self) -> usize {
        self.files.iter().filter(|f| f.ranks > 1).count()
    }

    /// The largest number of ranks that wrote one file.
    pub fn most_writers(&self) -> u64 {
        self.files.iter().map(|f| f.writers).max().unwrap_or(0)
    }
}

impl KindStats {
    fn place(&mut self, op: &Op, lasts: &mut HashMap<(u32, u32, Kind), LastCall>) {
        let key = (op.rank, op.file, op.kind);
        let last = lasts.get(&key);
        let distance = last.map(|l| op.offset.wrapping_sub(l.offset));
        match last {
            Some(last) if last.end == op.offset => self.sequential += 1,
            Some(last) if last.distance == distance => self.strided += 1,
            _ => {}
        }
        lasts.insert(
            key,
            LastCall {
                offset: op.offset,
                end: op.stop(),
                distance,
            },
        );
    }
}

/// The smallest power of two not below `len`; 0 for 0.
fn size_class(len: u64) -> u64 {
    if len == 0 {
        0
    } else {
        len.checked_next_power_of_two().unwrap_or(u64::MAX)
    }
}

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "trace      {}", self.name)?;
        writeln!(
            f,
            "ranks      {} ({} with calls)",
            self.ranks, self.active_ranks
        )?;
        writeln!(
            f,
            "files      {} ({} shared, at most {} writers)",
            self.files.len(),
            self.shared_files(),
            self.most_writers()
        )?;
        writeln!(f, "duration   {:.3} s", self.nanos as f64 / 1e9)?;
        for (name, kind) in [("writes", &self.writes), ("reads", &self.reads)] {
            writeln!(
                f,
                "{name:<10} {} calls ({} empty), {}, {:.0}% sequential, {:.0}% strided",
                kind.calls,
                kind.empty,
                Bytes(kind.bytes),
                100.0 * kind.sequential_share(),
                100.0 * kind.strided_share()
            )?;
            for (size, calls) in &kind.sizes {
                writeln!(f, "  <= {:<12} {calls}", Bytes(*size).to_string())?;
            }
        }
        Ok(())
    }
}

/// Shown with a binary unit and at most three digits after the point.
pub(crate) struct Bytes(pub u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut size, mut unit) = (self.0 as f64, "B");
        for next in ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"] {
            if size < 1024.0 {
                break;
            }
            (size, unit) = (size / 1024.0, next);
        }
        let digits = if size.fract() == 0.0 { 0 } else { 2 };
        write!(f, "{size:.digits$} {unit}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn op(rank: u32, kind: Kind, offset: u64, len: u64) -> Op {
        Op {
            rank,
            kind,
            file: 1,
            offset,
            len,
            start: 5,
            end: 9,
        }
    }

    #[test]
    fn shapes_sizes_and_sharing_are_counted() {
        use Kind::{Read, Write};
        let mut ops: Vec<Op> = [0, 100, 200, 300, 310]
            .map(|o| op(0, Write, o, 10))
            .to_vec();
        ops.extend([
            op(2, Read, 0, 5),
            op(2, Read, 5, 8),
            op(2, Read, 0, 0),
            op(1, Write, NO_OFFSET, 3),
        ]);
        let trace = Trace {
            name: "t".into(),
            ranks: 4,
            files: vec!["a".into(), "b".into()],
            ops,
        };
        let stats = Stats::of(&trace);
        assert_eq!(
            (
                stats.active_ranks,
                stats.shared_files(),
                stats.most_writers(),
                stats.nanos
            ),
            (3, 1, 2, 4)
        );
        assert_eq!(
            (
                stats.writes.calls,
                stats.writes.bytes,
                stats.writes.strided,
                stats.writes.sequential
            ),
            (6, 53, 2, 1)
        );
        assert_eq!(
            (
                stats.reads.empty,
                stats.reads.sequential,
                stats.reads.strided
            ),
            (1, 1, 0)
        );
        assert_eq!(stats.reads.sizes, BTreeMap::from([(0, 1), (8, 2)]));
        assert_eq!(stats.writes.sizes, BTreeMap::from([(4, 1), (16, 5)]));
        let expected = FileStats {
            name: "b".into(),
            ranks: 3,
            writers: 2,
            readers: 1,
            written: 53,
            read: 13,
            end: 320,
        };
        assert_eq!(stats.files, [expected]);
        assert_eq!(stats.reads.sequential_share(), 0.5);
        assert!(
            stats
                .to_string()
                .contains("3 calls (1 empty), 13 B, 50% sequential"),
            "{stats}"
        );
    }
}
