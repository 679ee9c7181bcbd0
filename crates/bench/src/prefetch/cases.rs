//! The cases, by who reads what: a generated trace like Pagoda's, the metadata reads of a real one, random reads.

use crate::fail::{Context, Result};
use crate::harness::Case;
use forebay_pattern::ReadRequest;
use forebay_trace::{Kind, NO_OFFSET, Ranges, workload};
use std::collections::BTreeMap;
use std::path::Path;

/// The real trace: openPMD-api's parallel benchmark on 64 nodes of Cori, through HDF5.
const OPENPMD: &str = "openpmd-8-1024.posix.csv.zst";
/// Longer calls of it are of its writing phase (read, change, write), and 1.2 GB of one byte after another.
const MAX_CALL_BYTES: u64 = 1 << 20;
/// Ranks of it on one node.
const RANKS_PER_NODE: usize = 16;

/// The reads of a case, before they are loaded.
#[derive(Debug, Clone, Copy)]
pub struct ReadWork {
    /// Its description, for the header.
    pub about: &'static str,
    /// The generated workload; none: the real trace.
    workload: Option<&'static str>,
}

const fn case(
    name: &'static str,
    about: &'static str,
    workload: Option<&'static str>,
) -> Case<ReadWork> {
    Case::new(name, ReadWork { about, workload })
}

/// The cases of `prefetch`.
pub const CASES: [Case<ReadWork>; 3] = [
    case(
        "pagoda",
        "4 ranks, 12 time steps of six variables with a stride each (generated)",
        Some("pagoda"),
    ),
    case(
        "openpmd",
        "HDF5 metadata reads of 1,024 ranks (Darshan DXT), 16 ranks at a time as on each of its nodes, node after node; calls up to 1 MiB",
        None,
    ),
    case(
        "random",
        "4 ranks, 1,000 blocks of 8 KiB each, each once in random order",
        Some("random:ranks=4,calls=1000,size=8k"),
    ),
];

/// The reads of a case.
#[derive(Debug)]
pub struct Reads {
    /// The reads of each rank, in order.
    pub readers: Vec<Vec<ReadRequest>>,
    /// How many ranks read at a time.
    pub together: usize,
}

impl ReadWork {
    /// The reads; `None`, if the trace is not there. At most `calls` of each rank.
    pub fn load(&self, traces: &Path, calls: usize) -> Result<Option<Reads>> {
        let (trace, together) = match self.workload {
            Some(spec) => {
                let trace = workload::parse(spec).doing(spec)?.trace();
                let ranks = trace.ranks as usize;
                (trace, ranks)
            }
            None => {
                let path = traces.join(OPENPMD);
                if !path.exists() {
                    return Ok(None);
                }
                let trace = forebay_trace::load(&path).doing(path.display())?;
                (trace, RANKS_PER_NODE)
            }
        };
        let mut readers: BTreeMap<u32, Vec<ReadRequest>> = BTreeMap::new();
        for op in &trace.ops {
            if op.kind != Kind::Read
                || op.offset == NO_OFFSET
                || !(1..=MAX_CALL_BYTES).contains(&op.len)
            {
                continue;
            }
            let (offset, len) = (op.offset, op.len);
            let reader = readers.entry(op.rank).or_default();
            if reader.len() < calls {
                reader.push(ReadRequest { offset, len });
            }
        }
        Ok(Some(Reads {
            readers: readers.into_values().collect(),
            together,
        }))
    }
}

impl Reads {
    /// The parts of the file that are read, joined.
    pub fn ranges(&self) -> Vec<std::ops::Range<u64>> {
        let mut joined = Ranges::default();
        for r in self.readers.iter().flatten() {
            joined.set(r.offset..r.offset + r.len, ());
        }
        joined.iter().map(|(range, ())| range).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_cases_are_loaded_and_what_they_read_is_joined() {
        for case in CASES {
            let Some(reads) = case.work.load(Path::new("no-such-directory"), 7).unwrap() else {
                assert_eq!(case.name, "openpmd");
                continue;
            };
            assert_eq!((reads.readers.len(), reads.together), (4, 4));
            assert!(reads.readers.iter().all(|r| r.len() == 7));
            let ranges = reads.ranges();
            assert!(ranges.windows(2).all(|w| w[0].end < w[1].start));
            let inside = |r: &ReadRequest| {
                let found = ranges
                    .iter()
                    .find(|g| g.start <= r.offset && r.offset < g.end);
                found.is_some_and(|g| r.offset + r.len <= g.end)
            };
            assert!(reads.readers.iter().flatten().all(inside));
        }
    }
}
